"""A Pipecat bot whose memory is Heardlog: python bot.py"""

import os

import heardlog.pipecat
from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import (
    LLMContextAggregatorPair,
    LLMUserAggregatorParams,
)
from pipecat.runner.types import RunnerArguments
from pipecat.runner.utils import create_transport
from pipecat.services.cartesia.tts import CartesiaTTSService
from pipecat.services.deepgram.stt import DeepgramSTTService
from pipecat.transports.base_transport import TransportParams
from pipecat.workers.runner import WorkerRunner


async def bot(args: RunnerArguments) -> None:
    transport = await create_transport(
        args, {"webrtc": lambda: TransportParams(audio_in_enabled=True, audio_out_enabled=True)}
    )
    llm = heardlog.pipecat.LLMService(
        args=args,
        settings=heardlog.pipecat.LLMService.Settings(
            system_instruction="You help callers of a station."
        ),
    )
    user, assistant = LLMContextAggregatorPair(
        LLMContext(), user_params=LLMUserAggregatorParams(vad_analyzer=SileroVADAnalyzer())
    )
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
        ),
        observers=[llm.observer],
    )
    runner = WorkerRunner(handle_sigint=args.handle_sigint)
    await runner.add_workers(worker)

    @transport.event_handler("on_client_disconnected")
    async def disconnected(_, client) -> None:
        await runner.cancel()

    await runner.run()


if __name__ == "__main__":
    from pipecat.runner.run import main

    main()
