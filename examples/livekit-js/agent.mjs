// A voice agent whose memory is Heardlog: node agent.mjs start
// It needs LIVEKIT_URL, LIVEKIT_API_KEY and LIVEKIT_API_SECRET.
import { ServerOptions, cli, defineAgent, inference, voice } from "@livekit/agents";
import { fileURLToPath } from "node:url";
import { memory, report } from "./heardlog.mjs";

export default defineAgent({
  entry: async (ctx) => {
    const session = new voice.AgentSession({
      llm: memory(ctx.job.id),
      stt: new inference.STT({ model: "deepgram/nova-3" }),
      tts: new inference.TTS({ model: "cartesia/sonic-3" }),
    });
    ctx.addShutdownCallback(report(session, ctx.job.id));
    await session.start({ agent: new voice.Agent({ instructions: "You help callers of a station." }), room: ctx.room });
    await ctx.connect();
  },
});

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  cli.runApp(new ServerOptions({ agent: fileURLToPath(import.meta.url) }));
}
