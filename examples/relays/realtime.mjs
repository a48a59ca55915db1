// A relay between a client and OpenAI's Realtime API: node realtime.mjs
// Everything passes unchanged. What is said and what was played is recorded on the side.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { WebSocket, WebSocketServer } from "ws";
import { send, warn } from "./heardlog.mjs";

const openai = process.env.OPENAI_REALTIME_URL ?? "wss://api.openai.com/v1/realtime?model=gpt-realtime";
const server = createServer((_, res) => res.writeHead(404).end());

new WebSocketServer({ server }).on("connection", async (client) => {
  const upstream = new WebSocket(openai, { headers: { authorization: `Bearer ${process.env.OPENAI_API_KEY}` } });
  const early = []; // what the client sends before the upstream is open
  const agent = send("/agents", { name: `realtime-${randomUUID()}` }).then(async (res) => (await res.json()).agent_id);
  agent.then((id) => console.log(`agent ${id}`), warn);
  let queue = agent; // one call after the other, so that a report follows its answer
  const record = (path, body) => {
    queue = queue.then(async () => send(`/agents/${await agent}${path}`, body)).catch(warn);
  };

  // Transcripts arrive in any order. They are stored in the order of the items.
  const items = [];
  const flush = (over) => {
    while (items.length && (over || items[0].content !== undefined)) {
      const { id, role, content, truncated } = items.shift();
      if (content) record("/messages", { id, role, content });
      if (content && truncated) record("/evidence/openai-realtime", truncated);
    }
  };
  const said = (id, text) => {
    const item = items.find((i) => i.id === id);
    if (item) item.content = text;
    flush(false);
  };

  client.on("message", (data, binary) => {
    if (upstream.readyState === WebSocket.OPEN) upstream.send(data, { binary });
    else if (early.length < 1000) early.push([data, { binary }]);
    const m = JSON.parse(data);
    if (m.type !== "conversation.item.truncate") return;
    const item = items.find((i) => i.id === m.item_id);
    if (item) item.truncated = m; // its transcript is still to come
    else record("/evidence/openai-realtime", m);
  });
  upstream.on("open", () => early.splice(0).forEach((m) => upstream.send(...m)));
  upstream.on("message", (data, binary) => {
    client.send(data, { binary });
    const m = JSON.parse(data);
    switch (m.type) {
      case "conversation.item.added":
        if (m.item.role === "user" || m.item.role === "assistant") {
          items.push({ id: m.item.id, role: m.item.role, content: m.item.content?.[0]?.text });
        }
        return;
      case "conversation.item.input_audio_transcription.completed":
      case "response.output_audio_transcript.done":
        return said(m.item_id, m.transcript);
      case "conversation.item.input_audio_transcription.failed":
        return said(m.item_id, "");
      case "response.output_text.done":
        return said(m.item_id, m.text);
    }
  });

  const end = () => {
    client.close();
    upstream.close();
    flush(true);
    record("/leave");
  };
  client.once("close", end);
  upstream.once("close", () => client.close());
  for (const socket of [client, upstream]) socket.on("error", warn);
});

server.listen(process.env.PORT ?? 3000, () => console.log(`listening on port ${server.address().port}`));
