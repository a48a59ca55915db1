// A custom LLM server for Retell: node retell.mjs
// Retell opens a WebSocket whose path ends with the call's ID.
import { createServer } from "node:http";
import { WebSocketServer } from "ws";
import { ask, send, warn } from "./heardlog.mjs";

const server = createServer((_, res) => res.writeHead(404).end());

new WebSocketServer({ server }).on("connection", (socket, req) => {
  const call_id = new URL(req.url, "http://x").pathname.split("/").pop();
  // The whole transcript is sent each time, so Heardlog aligns it with what it has stored.
  const headers = { "X-Retell-Call-Id": call_id, "X-Heardlog-Mode": "reconcile" };
  let answering;
  const reply = (m) => socket.send(JSON.stringify({ response_type: "response", ...m }));

  const answer = async ({ response_id, transcript, interaction_type }) => {
    answering?.abort(); // a newer question makes the old one stale
    const { signal } = (answering = new AbortController());
    const messages = transcript.map((row) => ({ role: row.role === "agent" ? "assistant" : "user", content: row.content }));
    if (interaction_type === "reminder_required") messages.push({ role: "user", content: "(silence)" });
    for await (const content of ask(messages, { headers, signal })) reply({ response_id, content, content_complete: false });
    reply({ response_id, content: "", content_complete: true });
  };

  socket.on("message", (data) => {
    const m = JSON.parse(data);
    if (m.interaction_type === "ping_pong") socket.send(JSON.stringify({ response_type: "ping_pong", timestamp: Date.now() }));
    if (m.interaction_type === "update_only") send("/evidence/retell", { ...m, call_id }).catch(warn);
    if (m.interaction_type === "response_required" || m.interaction_type === "reminder_required") answer(m).catch(warn);
  });
  socket.on("close", () => {
    answering?.abort();
    send("/leave", {}, { headers }).catch(warn);
  });
  if (process.env.GREETING) reply({ response_id: 0, content: process.env.GREETING, content_complete: true });
});

server.listen(process.env.PORT ?? 3000, () => console.log(`listening on port ${server.address().port}`));
