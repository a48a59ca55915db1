// Calls to Heardlog that the servers in this folder share.
const base = process.env.HEARDLOG_URL ?? "http://127.0.0.1:8080/v1";
const secret = process.env.HEARDLOG_SECRET; // of a credential; a server on loopback may need none

// send posts a body. It throws if Heardlog refuses it.
export async function send(path, body, { headers = {}, signal } = {}) {
  const auth = secret ? { authorization: `Bearer ${secret}` } : {};
  const res = await fetch(base + path, {
    method: "POST",
    headers: { "content-type": "application/json", ...auth, ...headers },
    body: typeof body === "string" || Buffer.isBuffer(body) ? body : JSON.stringify(body ?? {}),
    signal,
  });
  if (!res.ok) {
    throw Object.assign(new Error(`${path}: ${res.status} ${await res.text()}`), { status: res.status });
  }
  return res;
}

// ask streams an answer, piece by piece. Abort the signal when the caller interrupts.
export async function* ask(messages, { headers, signal }) {
  const res = await send("/chat/completions", { stream: true, messages }, { headers, signal });
  let rest = "";
  for await (const bytes of res.body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + bytes).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
      const text = JSON.parse(line.slice(6)).choices?.[0]?.delta?.content;
      if (text) yield text;
    }
  }
}

// warn is for calls whose failure must not end the conversation.
export const warn = (err) => {
  if (err.name !== "AbortError") console.error(err.message);
};
