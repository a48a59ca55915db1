"""OpenAI's own client with the Responses API over a WebSocket."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, NotFoundError, OpenAI

from harness.server import Server
from harness.upstream import Answer, Upstream


def words(response: Any) -> str:
    return "".join(part.text for item in response.output for part in item.content)


def ledger(server: Server, agent: str) -> list[tuple[str, str]]:
    messages = httpx.get(f"{server.url}/agents/{agent}/messages").json()["messages"]
    return [(m["role"], m["content"]) for m in messages]


def test_turns_on_one_socket(server: Server, upstream: Upstream) -> None:
    client = OpenAI(base_url=server.url, api_key="any", default_headers={"X-Agent-Id": "call-1"})
    upstream.say("At nine.", "At ten.", Answer(status=500), "Sorry.")
    with client.responses.connect() as connection:

        def ask(text: str, **more: Any) -> Any:
            connection.response.create(model="scripted", input=text, **more)
            for event in connection:
                if event.type in ("response.completed", "error"):
                    return event
            raise AssertionError("the connection ended")

        first = ask("When?").response
        assert words(first) == "At nine."
        assert words(ask("And back?", previous_response_id=first.id).response) == "At ten."
        asked = [m["content"] for m in upstream.requests[-1]["messages"]]
        assert asked == ["When?", "At nine.", "And back?"]
        assert (
            ask("x", previous_response_id="resp_none_1").error.code == "previous_response_not_found"
        )
        failed = ask("And then?")
        if failed.type == "error":  # else it was asked again
            assert failed.status == 500 and failed.error.message
            failed = ask("And then?")
        assert words(failed.response) == "Sorry."
        prepared = ask("The shop is closed.", generate=False).response
        assert prepared.output == []
        answer = ask("Is it?", previous_response_id=prepared.id, stream_id="lane")
        assert answer.stream_id == "lane" and words(answer.response).endswith("Is it?")
        assert "The shop is closed." in str(upstream.requests[-1])
    assert ledger(server, "call-1")[:4] == [
        ("user", "When?"),
        ("assistant", "At nine."),
        ("user", "And back?"),
        ("assistant", "At ten."),
    ]


async def test_a_client_that_hangs_up(server: Server, upstream: Upstream) -> None:
    upstream.say(Answer("one two three four five six", delay=0.05), "Hello again.")
    headers = {"X-Agent-Id": "call-2"}
    client = AsyncOpenAI(base_url=server.url, api_key="any", default_headers=headers)
    async with client.responses.connect() as connection:
        await connection.response.create(model="scripted", input="Count.")
        pieces = 0
        async for event in connection:
            pieces += event.type == "response.output_text.delta"
            if pieces == 3:
                break
    async with client.responses.connect() as connection:
        await connection.response.create(model="scripted", input="Hello?")
        async for event in connection:
            if event.type == "response.completed":
                break
    told = ledger(server, "call-2")
    assert told[0] == ("user", "Count.")
    assert told[1][1].startswith("one two three") and told[1][1] != "one two three four five six"
    assert told[2:] == [("user", "Hello?"), ("assistant", "Hello again.")]


def test_conversations(server: Server, upstream: Upstream) -> None:
    client = OpenAI(base_url=server.url, api_key="any")
    first = client.conversations.create(
        metadata={"topic": "trains"},
        items=[{"type": "message", "role": "user", "content": "My name is Anna."}],
    )
    assert first.object == "conversation" and first.metadata == {"topic": "trains"}
    assert client.conversations.retrieve(first.id) == first
    upstream.say("At nine.")
    upstream.call("timetable", to="Bern")
    upstream.say("At ten.")
    made = client.responses.create(model="scripted", input="When?", conversation=first.id)
    assert made.conversation is not None and made.conversation.id == first.id
    told = [m["content"] for m in upstream.requests[-1]["messages"]]
    assert told == ["My name is Anna.", "When?"] or told == ["My name is Anna.\nWhen?"], told
    tool = {"type": "function", "name": "timetable", "parameters": {}, "strict": False}
    called = client.responses.create(
        model="scripted", input="And to Bern?", tools=[tool], conversation={"id": first.id}
    ).output[0]
    client.responses.create(
        model="scripted",
        tools=[tool],
        conversation=first.id,
        input=[{"type": "function_call_output", "call_id": called.call_id, "output": "ten"}],
    )
    items = list(client.conversations.items.list(first.id, order="asc", limit=2))
    assert [i.type for i in items] == [
        "message",
        "message",
        "message",
        "message",
        "function_call",
        "function_call_output",
        "message",
    ]
    assert [i.content[0].text for i in items if i.type == "message"] == [
        "My name is Anna.",
        "When?",
        "At nine.",
        "And to Bern?",
        "At ten.",
    ]
    newest = client.conversations.items.list(first.id, limit=1)
    assert newest.data == items[-1:] and newest.has_more
    assert list(client.conversations.items.list(first.id, limit=3)) == items[::-1]
    for item in items:
        assert client.conversations.items.retrieve(item.id, conversation_id=first.id) == item
    given = list(client.responses.input_items.list(made.id, limit=1))
    assert [i.content[0].text for i in given] == ["When?", "My name is Anna."]
    oldest = client.responses.input_items.list(made.id, order="asc", limit=1)
    assert oldest.data[0].id == items[0].id and oldest.has_more

    added = client.conversations.items.create(
        first.id,
        items=[
            {"role": "user", "content": [{"type": "input_text", "text": "One more."}]},
            {"role": "assistant", "content": "Yes?"},
        ],
    )
    assert [i.role for i in added.data] == ["user", "assistant"]
    assert (
        client.conversations.items.delete(added.data[0].id, conversation_id=first.id).id == first.id
    )
    left = [i.id for i in client.conversations.items.list(first.id, limit=100)]
    assert added.data[0].id not in left and added.data[1].id in left
    changed = client.conversations.update(first.id, metadata={"mood": "good"})
    assert changed.metadata == {"mood": "good"}
    assert client.conversations.delete(first.id).deleted
    for call in (
        lambda: client.conversations.retrieve(first.id),
        lambda: client.conversations.items.list(first.id),
        lambda: client.conversations.delete(first.id),
        lambda: client.responses.create(model="scripted", input="x", conversation=first.id),
    ):
        with pytest.raises(NotFoundError) as e:
            call()
        assert first.id in e.value.message


def test_saved_conversations_have_moved(server: Server) -> None:
    """A client of the former paths goes on, and is told where they are."""
    with httpx.Client(base_url=server.url) as client:
        assert client.put("/conversations/anna", json=[]).status_code == 204
        for path in ("/conversations/anna", "/saved-conversations/anna"):
            answer = client.get(path)
            assert answer.json() == {"messages": [], "summary": None}
            assert ("deprecation" in answer.headers) == (path == "/conversations/anna")
        assert client.get("/conversations").json()["conversations"] == ["anna"]
        assert client.put("/conversations/conv_1", json=[]).status_code == 400
        assert client.put("/saved-conversations/conv_1", json=[]).status_code == 204
        assert client.get("/conversations/conv_1").json()["error"]["code"] == "not_found"
        assert client.delete("/conversations/anna").status_code == 204
        assert client.get("/saved-conversations").json()["conversations"] == ["conv_1"]
