"""A LiveKit agent whose memory is Heardlog: python agent.py console"""

import asyncio
import os

import httpx
from livekit.agents import Agent, AgentServer, AgentSession, JobContext, cli
from livekit.plugins import openai

BASE = os.environ.get("HEARDLOG_URL", "http://127.0.0.1:8080/v1")
SECRET = os.environ.get("HEARDLOG_SECRET", "unused")  # a server on loopback may need none


def memory(job_id: str) -> openai.LLM:
    """Returns the LLM of one job. Its requests name the call by the job's ID."""
    return openai.LLM(model="default", base_url=BASE, api_key=SECRET, extra_headers={"X-LiveKit-Job-ID": job_id})


def report(session: AgentSession, ctx: JobContext) -> None:
    """Forwards what the session says of the caller's hearing, and its end."""
    headers = {"Authorization": f"Bearer {SECRET}", "X-LiveKit-Job-ID": ctx.job.id}
    client = httpx.AsyncClient(base_url=BASE, headers=headers)
    turn = asyncio.Lock()  # events arrive in their order
    tasks = []

    async def post(event: dict) -> None:
        async with turn:
            try:
                res = await client.post("/evidence/livekit", json=event)
                res.raise_for_status()
            except httpx.HTTPError as err:
                print("heardlog:", err)

    def send(event: dict) -> None:
        tasks.append(asyncio.create_task(post(event)))

    def row(item) -> dict:
        return {
            "type": "message",
            "role": item.role,
            "content": [item.text_content or ""],
            "interrupted": item.interrupted,
            "metrics": dict(item.metrics),
        }

    @session.on("conversation_item_added")
    def added(event) -> None:
        if event.item.type == "message":
            send({"type": "conversation_item_added", "item": row(event.item)})

    @session.on("close")
    def closed(_) -> None:
        items = [row(item) for item in session.history.items if item.type == "message"]
        send({"type": "close", "chat_history": {"items": items}})

    async def wait() -> None:
        await asyncio.gather(*tasks)
        await client.aclose()

    ctx.add_shutdown_callback(wait)


server = AgentServer()


@server.rtc_session()
async def entrypoint(ctx: JobContext) -> None:
    session = AgentSession(llm=memory(ctx.job.id), stt="deepgram/nova-3", tts="cartesia/sonic-3")
    report(session, ctx)
    await session.start(agent=Agent(instructions="You help callers of a station."), room=ctx.room)


if __name__ == "__main__":
    cli.run_app(server)
