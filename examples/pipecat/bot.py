"""A Pipecat bot whose memory is Heardlog: python bot.py"""

import os
import uuid

import httpx
from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair, LLMUserAggregatorParams
from pipecat.runner.types import RunnerArguments
from pipecat.runner.utils import create_transport
from pipecat.services.cartesia.tts import CartesiaTTSService
from pipecat.services.deepgram.stt import DeepgramSTTService
from pipecat.services.openai.llm import OpenAILLMService
from pipecat.transports.base_transport import TransportParams
from pipecat.workers.runner import WorkerRunner

BASE = os.environ.get("HEARDLOG_URL", "http://127.0.0.1:8080/v1")
SECRET = os.environ.get("HEARDLOG_SECRET", "unused")  # a server on loopback may need none


async def bot(args: RunnerArguments) -> None:
    transport = await create_transport(
        args, {"webrtc": lambda: TransportParams(audio_in_enabled=True, audio_out_enabled=True)}
    )
    call = {"X-Pipecat-Session-Id": str(uuid.uuid4())}
    heardlog = httpx.AsyncClient(base_url=BASE, headers={"Authorization": f"Bearer {SECRET}", **call})

    async def report(event: dict) -> None:
        try:
            res = await heardlog.post("/evidence/pipecat", json=event)
            res.raise_for_status()
        except httpx.HTTPError as err:
            print("heardlog:", err)

    llm = OpenAILLMService(
        base_url=BASE,
        api_key=SECRET,
        default_headers=call,
        settings=OpenAILLMService.Settings(
            model="default", system_instruction="You help callers of a station."
        ),
    )
    context = LLMContext()
    user, assistant = LLMContextAggregatorPair(
        context, user_params=LLMUserAggregatorParams(vad_analyzer=SileroVADAnalyzer())
    )

    @assistant.event_handler("on_assistant_turn_stopped")
    async def stopped(_, message) -> None:
        # The content is what the voice has spoken of the answer.
        if message.content:
            await report({"type": "bot-output", "data": {"text": message.content, "spoken_status": "completed"}})
        if message.interrupted:
            await report({"type": "bot-interrupted"})

    worker = PipelineWorker(
        Pipeline(
            [
                transport.input(),
                DeepgramSTTService(api_key=os.environ["DEEPGRAM_API_KEY"]),
                user,
                llm,
                CartesiaTTSService(
                    api_key=os.environ["CARTESIA_API_KEY"],
                    settings=CartesiaTTSService.Settings(voice=os.environ["CARTESIA_VOICE"]),
                ),
                transport.output(),
                assistant,
            ]
        )
    )
    runner = WorkerRunner(handle_sigint=args.handle_sigint)
    await runner.add_workers(worker)

    @transport.event_handler("on_client_disconnected")
    async def disconnected(_, client) -> None:
        await runner.cancel()

    await runner.run()
    spoken = [m for m in context.messages if isinstance(m, dict) and isinstance(m.get("content"), str)]
    await report({"type": "end", "messages": spoken})
    await heardlog.aclose()


if __name__ == "__main__":
    from pipecat.runner.run import main

    main()
