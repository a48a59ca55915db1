// A session of the same agent without a room, in text: node talk.mjs
// The second answer is interrupted.
import { initializeLogger, voice } from "@livekit/agents";
import { LLM } from "@livekit/agents-plugin-openai";
import { attach, llmOptions } from "heardlog/livekit";
import { setTimeout } from "node:timers/promises";
import { OpenAI } from "openai";

initializeLogger({ pretty: false, level: "error" });
const jobId = process.argv[2] ?? `job-${Date.now()}`;
const session = new voice.AgentSession({ llm: new LLM({ client: new OpenAI(llmOptions(jobId)), model: "default" }) });
const heardlog = attach(session, { jobId });
session.on("conversation_item_added", ({ item }) => {
  if (item.type === "message") console.log(`${item.role}: ${item.textContent}${item.interrupted ? " [interrupted]" : ""}`);
});
await session.start({ agent: new voice.Agent({ instructions: "You help callers of a station." }) });

await session.run({ userInput: "When is my train?" }).wait();
const speaking = new Promise((resolve) => session.on("agent_state_changed", (e) => e.newState === "speaking" && resolve()));
const answer = session.generateReply({ userInput: "Is the train late?" });
await speaking;
await setTimeout(500);
session.interrupt({ force: true });
await answer.waitForPlayout();
await session.close();
await heardlog.close();
process.exit(0);
