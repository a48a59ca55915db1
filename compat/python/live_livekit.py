"""One call in a LiveKit room on loopback: a server, a worker, and a participant with a microphone.

    LIVEKIT_SERVER=/path/to/livekit-server python live_livekit.py

The participant speaks, listens to the answer and interrupts it; then it leaves. What it heard of
the cut answer, in seconds, is compared with the record. It is run by hand: `make test-live`.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import heardlog
import heardlog.livekit
import numpy
from livekit import api, rtc
from livekit.agents import Agent, AgentServer, AgentSession, JobContext
from livekit.agents.worker import JobExecutorType

from harness.livekit_llm import Script, ScriptedLLM
from harness.livekit_phrases import Phrases
from harness.livekit_voice import Ears, Voice
from harness.server import Server, build

KEY, SECRET, PORT = "devkey", "a-secret-of-at-least-thirty-two-characters", 17880
URL = f"ws://127.0.0.1:{PORT}"
ROOM = "room-1"


class LoudVoice(Voice):
    """A voice that the codec lets through: a tone of 250 Hz."""

    def sound(self, number: int, samples: int) -> bytes:
        wave = numpy.repeat(numpy.array([8000, -8000], dtype=numpy.int16), 16)
        return numpy.resize(wave, samples).tobytes()


def token(name: str) -> str:
    grants = api.VideoGrants(room_join=True, room=ROOM)
    return api.AccessToken(KEY, SECRET).with_identity(name).with_grants(grants).to_jwt()


async def participant(
    ears: Ears, jobs: list[asyncio.AbstractEventLoop], ended: asyncio.Event
) -> list[float]:
    """Makes the caller's part, and returns how many seconds of sound each answer had."""
    room = rtc.Room()
    heard: list[float] = []

    async def listen(track: rtc.Track) -> None:
        last = 0.0
        async for event in rtc.AudioStream(track, sample_rate=8000, num_channels=1):
            loud = numpy.abs(numpy.frombuffer(event.frame.data, dtype=numpy.int16)).mean() > 200
            now = time.monotonic()
            if loud:
                if now - last > 0.6:
                    heard.append(0.0)
                heard[-1] += event.frame.duration
                last = now

    tasks: list[asyncio.Task[None]] = []
    room.on("track_subscribed", lambda t, *_: tasks.append(asyncio.create_task(listen(t))))
    await room.connect(URL, token("caller"))
    source = rtc.AudioSource(8000, 1)
    microphone = rtc.LocalAudioTrack.create_audio_track("microphone", source)
    await room.local_participant.publish_track(microphone)

    async def speak() -> None:
        while True:
            await source.capture_frame(rtc.AudioFrame(b"\1\0" * 800, 8000, 1, 800))

    tasks.append(asyncio.create_task(speak()))
    deadline = time.monotonic() + 30
    while not (jobs and ears.streams):
        if time.monotonic() > deadline:
            raise TimeoutError("the worker got no job")
        await asyncio.sleep(0.1)

    async def say(text: str) -> None:  # the job runs in a thread of its own
        hearing = asyncio.run_coroutine_threadsafe(ears.hear(text, 0.8), jobs[0])
        await asyncio.wrap_future(hearing)

    await asyncio.sleep(1)
    await say("When is my train?")
    await asyncio.sleep(3.5)
    await say("No, wait.")
    await asyncio.sleep(6)
    for task in tasks:
        task.cancel()
    await room.disconnect()
    await asyncio.wait_for(ended.wait(), 20)
    return heard


async def call(program: pathlib.Path, folder: pathlib.Path) -> int:
    rnd = random.Random(7)
    llm = ScriptedLLM()
    await llm.start()
    llm.add("live", Script(Phrases("en", rnd), rnd))
    server = Server(program, folder, HEARDLOG_LLM_URL=llm.url, HEARDLOG_LLM_MODEL="scripted")
    voice, ears, ended = LoudVoice(rnd, word_times=True), Ears(), asyncio.Event()
    worker = AgentServer(
        job_executor_type=JobExecutorType.THREAD,
        ws_url=URL,
        api_key=KEY,
        api_secret=SECRET,
        host="127.0.0.1",
        port=0,
        load_threshold=float("inf"),
    )
    loop, jobs = asyncio.get_running_loop(), list[asyncio.AbstractEventLoop]()
    registered = asyncio.Event()
    worker.on("worker_registered", lambda *_: registered.set())

    @worker.rtc_session()
    async def entrypoint(ctx: JobContext) -> None:
        session: AgentSession[None] = AgentSession(
            stt=ears.recognizer,
            vad=ears,
            llm=heardlog.livekit.LLM(url=server.url),
            tts=voice,
            use_tts_aligned_transcript=True,
            turn_handling={"turn_detection": "vad", "interruption": {"mode": "vad"}},
        )
        heardlog.livekit.attach(session, ctx, url=server.url)

        async def over() -> None:
            loop.call_soon_threadsafe(ended.set)

        ctx.add_shutdown_callback(over)
        session.on("close", lambda _: ctx.shutdown())
        jobs.append(asyncio.get_running_loop())
        await session.start(agent=Agent(instructions="This is call live of today."), room=ctx.room)

    running = asyncio.create_task(worker.run(devmode=True))
    try:
        await asyncio.wait_for(registered.wait(), 30)
        heard = await participant(ears, jobs, ended)
        await asyncio.sleep(1)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await worker.aclose()
        await llm.stop()
    with heardlog.Heardlog(server.url) as log:
        agents = log.request("GET", "/agents")["agents"]
        record = log.request("GET", f"/agents/{agents[0]['agent_id']}/messages")["messages"]
    server.stop()
    print("heard, in seconds:", [round(s, 1) for s in heard])
    for m in record:
        print(m["role"], m["state"], repr(m["content"]), m.get("evidence"))
    answers = [m for m in record if m["role"] == "assistant" and m["state"] == "final"]
    cut = answers[0]
    u = voice.utterances[0]
    said = next((end for chars, end in u.ends if chars >= len(cut["content"].strip())), u.seconds)
    print(f"the record ends {said:.1f} s into the cut answer; {heard[0]:.1f} s were heard of it")
    users = [m["content"] for m in record if m["role"] == "user"]
    right = (
        agents[0]["status"] == "STOPPED"
        and users == ["When is my train?", "No, wait."]
        and cut["metadata"].get("interrupted") is True
        and cut["evidence"]["confidence"] >= 90
        and len(answers) == 2
        and abs(said - heard[0]) < 1
    )
    print("right" if right else "WRONG")
    return 0 if right else 1


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        config = f"{{port: {PORT}, bind_addresses: [127.0.0.1], keys: {{{KEY}: {SECRET}}}, "
        config += "rtc: {tcp_port: 17881, udp_port: 17882, use_external_ip: false}}"
        rooms = subprocess.Popen(
            [os.environ["LIVEKIT_SERVER"], "--config-body", config, "--node-ip", "127.0.0.1"],
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        try:
            time.sleep(2)
            return asyncio.run(call(build(folder), folder))
        finally:
            rooms.terminate()
            rooms.wait()


if __name__ == "__main__":
    sys.exit(main())
