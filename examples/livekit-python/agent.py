"""A LiveKit agent whose memory is Heardlog: python agent.py console"""

import heardlog.livekit
from livekit.agents import Agent, AgentServer, AgentSession, JobContext, cli

server = AgentServer()


@server.rtc_session()
async def entrypoint(ctx: JobContext) -> None:
    session = AgentSession(
        llm=heardlog.livekit.LLM(), stt="deepgram/nova-3", tts="cartesia/sonic-3"
    )
    heardlog.livekit.attach(session, ctx)
    await session.start(agent=Agent(instructions="You help callers of a station."), room=ctx.room)


if __name__ == "__main__":
    cli.run_app(server)
