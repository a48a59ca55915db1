// A voice agent whose memory is Heardlog: node agent.mjs start
// It needs LIVEKIT_URL, LIVEKIT_API_KEY and LIVEKIT_API_SECRET.
import { ServerOptions, cli, defineAgent, inference, voice } from "@livekit/agents";
import { LLM } from "@livekit/agents-plugin-openai";
import { attach, llmOptions } from "heardlog/livekit";
import { fileURLToPath } from "node:url";
import { OpenAI } from "openai";

export default defineAgent({
  entry: async (ctx) => {
    const jobId = ctx.job.id;
    const session = new voice.AgentSession({
      llm: new LLM({ client: new OpenAI(llmOptions(jobId)), model: "default" }),
      stt: new inference.STT({ model: "deepgram/nova-3" }),
      tts: new inference.TTS({ model: "cartesia/sonic-3" }),
    });
    const heardlog = attach(session, { jobId });
    ctx.addShutdownCallback(() => heardlog.close());
    await session.start({ agent: new voice.Agent({ instructions: "You help callers of a station." }), room: ctx.room });
    await ctx.connect();
  },
});

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  cli.runApp(new ServerOptions({ agent: fileURLToPath(import.meta.url) }));
}
