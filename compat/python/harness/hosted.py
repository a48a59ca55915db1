"""Calls as hosted platforms report them, built with the types of the platforms' own packages.

A field that a new version of a package renames is missing in the payload, or is refused by its
type, so that a test fails. `python -m harness.hosted FOLDER` writes the payloads as files, which
the tests in Go read.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

START = 1_780_000_000  # of every call, Unix s
NUMBER = "+49 30 123456"


def vapi_call() -> dict[str, Any]:
    """A call of Vapi's API."""
    from vapi import types as t

    def ms(seconds: float) -> float:
        return (START + seconds) * 1000

    messages = [
        t.SystemMessage(role="system", message="You are a desk.", time=ms(0), seconds_from_start=0),
        t.BotMessage(
            role="bot",
            message="Hello!",
            time=ms(1),
            end_time=ms(2),
            seconds_from_start=1,
            duration=1000,
        ),
        t.UserMessage(
            role="user",
            message="When is my train?",
            time=ms(3),
            end_time=ms(5),
            seconds_from_start=3,
            duration=2000,
        ),
        t.ToolCallMessage(
            role="tool_calls",
            tool_calls=[
                {"id": "t1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
            ],
            message="",
            time=ms(5.2),
            seconds_from_start=5.2,
        ),
        t.ToolCallResultMessage(
            role="tool_call_result",
            tool_call_id="t1",
            name="find",
            result="nine",
            time=ms(5.4),
            seconds_from_start=5.4,
        ),
        t.BotMessage(
            role="bot",
            message="It leaves at nine.",
            time=ms(6),
            end_time=ms(8),
            seconds_from_start=6,
            duration=2000,
        ),
    ]
    call = t.Call(
        id="vapi-call-1",
        org_id="org",
        type="inboundPhoneCall",
        status="ended",
        created_at="2026-05-28T20:26:39.000Z",
        updated_at="2026-05-28T20:27:41.000Z",
        started_at="2026-05-28T20:26:40.000Z",
        ended_at="2026-05-28T20:27:40.000Z",
        ended_reason="customer-ended-call",
        cost=0.1234,
        assistant_id="assistant-1",
        customer=t.CreateCustomerDto(number=NUMBER),
        artifact=t.Artifact(
            messages=messages,
            recording_url="https://storage.vapi.ai/1.wav",
            performance_metrics=t.PerformanceMetrics(
                turn_latencies=[
                    t.TurnLatency(
                        model_latency=400,
                        voice_latency=200,
                        transcriber_latency=150,
                        endpointing_latency=100,
                        turn_latency=850,
                    )
                ],
                num_assistant_interrupted=0,
            ),
        ),
    )
    return _plain(call)


def vapi_report() -> dict[str, Any]:
    """Vapi's end-of-call-report for the same call."""
    from vapi import types as t

    call = vapi_call()
    report = t.ServerMessageEndOfCallReport(
        type="end-of-call-report",
        ended_reason=call["endedReason"],
        started_at=call["startedAt"],
        ended_at=call["endedAt"],
        cost=call["cost"],
        artifact=call["artifact"],
        customer=call["customer"],
        analysis=t.Analysis(summary="A train."),
        timestamp=START * 1000 + 61_000,
    )
    out = _plain(report)
    out["call"] = {k: call[k] for k in ("id", "orgId", "createdAt", "updatedAt", "assistantId")}
    return {"message": out}


def retell_call() -> dict[str, Any]:
    """A call of Retell's API."""
    from retell.types import phone_call_response as t

    def said(
        role: str, content: str, start: float, end: float
    ) -> t.TranscriptWithToolCallUtterance:
        words = content.split(" ")
        step = (end - start) / len(words)
        return t.TranscriptWithToolCallUtterance(
            role=role,
            content=content,
            words=[
                {"word": w, "start": start + i * step, "end": start + (i + 1) * step}
                for i, w in enumerate(words)
            ],
        )

    one = {
        "values": [850.0],
        "num": 1,
        "min": 850,
        "max": 850,
        "p50": 850,
        "p90": 850,
        "p95": 850,
        "p99": 850,
    }
    call = t.PhoneCallResponse(
        agent_id="agent_1",
        agent_name="desk",
        agent_version=3,
        call_id="call_retell_1",
        call_status="ended",
        call_type="phone_call",
        direction="inbound",
        from_number=NUMBER,
        to_number="+4930999999",
        start_timestamp=START * 1000,
        end_timestamp=START * 1000 + 60_000,
        duration_ms=60_000,
        disconnection_reason="user_hangup",
        recording_url="https://retell.example/1.wav",
        call_cost=t.CallCost(
            combined_cost=12.34,
            product_costs=[],
            total_duration_seconds=60,
            total_duration_unit_price=0.2,
        ),
        latency=t.Latency(e2e=one, llm=one | {"values": [400.0]}),
        transcript_with_tool_calls=[
            said("agent", "Hello!", 1, 2),
            said("user", "When is my train?", 3, 5),
            t.TranscriptWithToolCallToolCallInvocationUtterance(
                role="tool_call_invocation", tool_call_id="t1", name="find", arguments="{}"
            ),
            t.TranscriptWithToolCallToolCallResultUtterance(
                role="tool_call_result", tool_call_id="t1", content="nine", successful=True
            ),
            said("agent", "It leaves at nine.", 6, 8),
        ],
    )
    return call.to_dict(mode="json")


def elevenlabs_conversation() -> dict[str, Any]:
    """A conversation of ElevenLabs' API."""
    from elevenlabs import types as t

    def row(role: str, message: str | None, second: int, **more: Any) -> Any:
        return t.ConversationHistoryTranscriptCommonModelOutput(
            role=role, message=message, time_in_call_secs=second, **more
        )

    metadata = t.ConversationHistoryMetadataCommonModel(
        start_time_unix_secs=START,
        call_duration_secs=60,
        cost=500,
        cost_fiat=0.1234,
        termination_reason="end_call tool was called.",
        main_language="en",
        phone_call=t.ConversationHistoryTwilioPhoneCallModel(
            direction="inbound",
            phone_number_id="p",
            agent_number="+4930999999",
            external_number=NUMBER,
            stream_sid="MZ1",
            call_sid="CA1",
        ).model_dump(mode="json")
        | {"type": "twilio"},
    )
    call = t.GetConversationResponseModel(
        agent_id="agent_1",
        agent_name="desk",
        status="done",
        metadata=metadata,
        conversation_id="conv_1",
        has_audio=True,
        has_user_audio=True,
        has_response_audio=True,
        has_auxiliary_audio=False,
        transcript=[],
    )
    rows = [
        row("agent", "Hello!", 1, interrupted=False),
        row("user", "When is my train?", 3, interrupted=False),
        row(
            "agent",
            "It leaves at",
            6,
            interrupted=True,
            original_message="It leaves at nine from platform two.",
            producing_llm="gpt-4o",
            conversation_turn_metrics=t.ConversationTurnMetrics(
                metrics={
                    "convai_llm_service_ttfb": t.MetricRecord(elapsed_time=0.4),
                    "convai_tts_service_ttfb": t.MetricRecord(elapsed_time=0.2),
                }
            ),
            tool_calls=[
                t.ConversationHistoryTranscriptToolCallCommonModelOutput(
                    request_id="t1",
                    tool_name="find",
                    params_as_json="{}",
                    tool_has_been_called=True,
                )
            ],
            tool_results=[
                t.ConversationHistoryTranscriptOtherToolsResultCommonModel(
                    request_id="t1",
                    tool_name="find",
                    result_value="nine",
                    is_error=False,
                    tool_has_been_called=True,
                ).model_dump(mode="json")
            ],
        ),
        row("user", "Thank you.", 9, interrupted=False),
    ]
    out = _plain(call)
    out["transcript"] = [_plain(r) for r in rows]
    return out


def elevenlabs_hook() -> dict[str, Any]:
    """ElevenLabs' post_call_transcription for the same conversation."""
    return {
        "type": "post_call_transcription",
        "event_timestamp": START + 61,
        "data": elevenlabs_conversation(),
    }


def livekit_report() -> dict[str, Any]:
    """The report of a LiveKit session."""
    from livekit.agents import llm
    from livekit.agents.voice import agent_session, events, report

    chat = llm.ChatContext()
    chat.items.append(
        llm.ChatMessage(id="i1", role="assistant", content=["Hello!"], created_at=START + 1)
    )
    chat.items.append(
        llm.ChatMessage(
            id="i2",
            role="user",
            content=["When is my train?"],
            created_at=START + 5,
            metrics={
                "started_speaking_at": START + 3,
                "stopped_speaking_at": START + 5,
                "transcription_delay": 0.15,
            },
        )
    )
    chat.items.append(
        llm.FunctionCall(id="i3", call_id="t1", name="find", arguments="{}", created_at=START + 5.2)
    )
    chat.items.append(
        llm.FunctionCallOutput(
            id="i4",
            call_id="t1",
            name="find",
            output="nine",
            is_error=False,
            created_at=START + 5.4,
        )
    )
    chat.items.append(
        llm.ChatMessage(
            id="i5",
            role="assistant",
            content=["It leaves at"],
            interrupted=True,
            created_at=START + 6,
            metrics={
                "started_speaking_at": START + 6,
                "stopped_speaking_at": START + 7,
                "llm_node_ttft": 0.4,
                "tts_node_ttfb": 0.2,
                "e2e_latency": 0.85,
            },
        )
    )
    session = agent_session.AgentSession()
    out = report.SessionReport(
        job_id="AJ_1",
        room_id="RM_1",
        room="room-1",
        options=session.options,
        events=[events.CloseEvent(reason=events.CloseReason.PARTICIPANT_DISCONNECTED)],
        chat_history=chat,
        duration=60.0,
        timestamp=START + 60,
        agent_name="desk",
    )
    return json.loads(json.dumps(out.to_dict(), default=str))


def twilio_call() -> dict[str, Any]:
    """A call of Twilio's API with the sentences of its transcript."""
    from twilio.base import deserialize
    from twilio.rest import Client
    from twilio.rest.api.v2010.account.call import CallInstance
    from twilio.rest.intelligence.v2.transcript import TranscriptInstance
    from twilio.rest.intelligence.v2.transcript.sentence import SentenceInstance

    call = {
        "sid": "CA" + "1" * 32,
        "from": NUMBER,
        "to": "+4930999999",
        "direction": "inbound",
        "status": "completed",
        "start_time": "Thu, 28 May 2026 20:26:40 +0000",
        "end_time": "Thu, 28 May 2026 20:27:40 +0000",
        "duration": "60",
        "price": "-0.1234",
        "price_unit": "USD",
    }
    transcript = {
        "sid": "GT" + "1" * 32,
        "status": "completed",
        "duration": 60,
        "media_start_time": "2026-05-28T20:26:40Z",
        "channel": {
            "media_properties": {"reference_sids": {"call_sid": call["sid"]}},
            "participants": [
                {"channel_participant": 1, "role": "Customer"},
                {"channel_participant": 2, "role": "Agent"},
            ],
        },
    }
    sentences = [
        {
            "media_channel": channel,
            "sentence_index": i,
            "start_time": str(start),
            "end_time": str(end),
            "transcript": text,
            "confidence": "0.9",
        }
        for i, (channel, text, start, end) in enumerate(
            [(2, "Hello!", 1, 2), (1, "When is my train?", 3, 5), (2, "It leaves at nine.", 6, 8)]
        )
    ]
    # The package's own readers must find every field.
    client = Client("AC" + "1" * 32, "token")
    c = CallInstance(client.api.v2010, call, account_sid="AC" + "1" * 32)
    assert (c.sid, c._from, c.direction, c.price) == (call["sid"], NUMBER, "inbound", "-0.1234")
    assert c.start_time == deserialize.rfc2822_datetime(call["start_time"]) and c.end_time
    g = TranscriptInstance(client.intelligence.v2, transcript)
    assert g.media_start_time and g.duration == 60 and g.channel
    for s in sentences:
        i = SentenceInstance(client.intelligence.v2, s, transcript_sid=transcript["sid"])
        assert i.transcript and i.media_channel and i.start_time and i.end_time
    return {"call": call, "transcript": transcript, "sentences": sentences}


def _plain(model: Any) -> dict[str, Any]:
    """A model of a package as JSON, with the names of the wire."""
    if hasattr(model, "model_dump_json"):
        return json.loads(model.model_dump_json(by_alias=True, exclude_none=True))
    return json.loads(model.json(by_alias=True, exclude_none=True))


PAYLOADS = {
    "vapi.call": vapi_call,
    "vapi.report": vapi_report,
    "retell.call": retell_call,
    "elevenlabs.conversation": elevenlabs_conversation,
    "elevenlabs.hook": elevenlabs_hook,
    "livekit.report": livekit_report,
    "twilio.call": twilio_call,
}

if __name__ == "__main__":
    for name, build in PAYLOADS.items():
        text = json.dumps(build(), indent=1, sort_keys=True)
        (Path(sys.argv[1]) / f"{name}.json").write_text(text + "\n")
