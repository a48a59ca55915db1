// Connects a LiveKit session to Heardlog: its LLM, and what its caller heard.
import { LLM } from "@livekit/agents-plugin-openai";
import { OpenAI } from "openai";

const base = process.env.HEARDLOG_URL ?? "http://127.0.0.1:8080/v1";
const secret = process.env.HEARDLOG_SECRET ?? "unused"; // of a credential; a server on loopback may need none

// memory returns the LLM of one job. Its requests name the call by the job's ID.
export function memory(jobId) {
  const client = new OpenAI({ baseURL: base, apiKey: secret, defaultHeaders: { "X-LiveKit-Job-ID": jobId } });
  return new LLM({ client, model: "default" });
}

// report forwards what the session says of the caller's hearing, and its end. It returns a function
// that waits until everything has arrived.
export function report(session, jobId) {
  let queue = Promise.resolve();
  const send = (event) => {
    queue = queue
      .then(() =>
        fetch(`${base}/evidence/livekit`, {
          method: "POST",
          headers: { "content-type": "application/json", authorization: `Bearer ${secret}`, "X-LiveKit-Job-ID": jobId },
          body: JSON.stringify(event),
        }),
      )
      .then(async (res) => res.ok || console.error(`heardlog: ${res.status} ${await res.text()}`))
      .catch((err) => console.error(`heardlog: ${err.message}`));
  };
  session.on("conversation_item_added", ({ type, item }) => send({ type, item }));
  session.on("close", ({ type }) => send({ type, chat_history: session.history.toJSON() }));
  return () => queue;
}
