// A server for Twilio's ConversationRelay: node twilio.mjs
// Twilio asks POST /twiml what to do with a call, and then talks to the WebSocket /relay.
import { createServer } from "node:http";
import { WebSocketServer } from "ws";
import { ask, send, warn } from "./heardlog.mjs";

const greeting = "Central station, how can I help?";
const host = process.env.PUBLIC_HOST ?? "example.com"; // under which Twilio reaches this server

const server = createServer((req, res) => {
  res.writeHead(200, { "content-type": "text/xml" }).end(
    `<Response><Connect><ConversationRelay url="wss://${host}/relay" welcomeGreeting="${greeting}"/></Connect></Response>`,
  );
});

new WebSocketServer({ server, path: "/relay" }).on("connection", (socket) => {
  let headers, callSid, answering;

  const answer = async (question) => {
    answering?.abort();
    const { signal } = (answering = new AbortController());
    const say = (token, last) => socket.send(JSON.stringify({ type: "text", token, last }));
    for await (const token of ask([{ role: "user", content: question }], { headers, signal })) say(token, false);
    say("", true);
  };

  const on = {
    setup: (m) => {
      callSid = m.callSid;
      headers = { "X-Twilio-CallSid": callSid };
      const heardlog = { keys: [`twilio.call:${callSid}`], scope: { user_id: m.from } };
      return send("/join", { name: callSid, properties: { llm: { greeting_message: greeting }, heardlog } });
    },
    prompt: (m) => m.last !== false && answer(m.voicePrompt),
    interrupt: (m) => {
      answering?.abort();
      return send("/evidence/twilio", { ...m, callSid });
    },
  };

  let ready = Promise.resolve(); // the agent must exist before the first question
  socket.on("message", (data) => {
    const m = JSON.parse(data);
    const handle = async () => on[m.type]?.(m);
    if (m.type === "setup") ready = handle().catch(warn);
    else ready.then(handle).catch(warn);
  });
  socket.on("close", () => {
    answering?.abort();
    if (callSid) ready.then(() => send("/leave", {}, { headers })).catch(warn);
  });
});

server.listen(process.env.PORT ?? 3000, () => console.log(`listening on port ${server.address().port}`));
