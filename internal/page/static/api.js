// The public API, as the pages use it.

export class APIError extends Error {
  constructor(status, body) {
    super(body?.detail ?? body?.error?.message ?? `the server answered ${status}`);
    this.status = status;
  }
}

// request sends a request and returns its JSON, or null where the answer has none.
export async function request(method, path, body, options = {}) {
  const r = await fetch(path, {
    method,
    headers: body === undefined ? {} : {"Content-Type": "application/json"},
    body: body === undefined ? undefined : JSON.stringify(body),
    ...options,
  });
  const text = await r.text();
  let json = null;
  try { json = text ? JSON.parse(text) : null; } catch { /* no JSON: the status says enough */ }
  if (!r.ok) throw new APIError(r.status, json);
  return json;
}

export const get = (path, options) => request("GET", path, undefined, options);

export const session = () => get("/v1/session");
export const signIn = credential => request("POST", "/v1/session", undefined, {headers: {Authorization: "Bearer " + credential}});
export const signOut = () => request("DELETE", "/v1/session");

const agent = id => "/v1/agents/" + encodeURIComponent(id);

// query returns a query string of the values that are set.
export function query(values) {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(values)) if (v !== "" && v != null) q.set(k, v);
  return q.size ? "?" + q : "";
}

export const calls = (filter, options) => get("/v1/agents" + query(filter), options);
// call and callsShaped read calls with their shape and the worst of what happened in them.
export const call = (id, options) => get(agent(id) + "?include=shape", options);
export const callsShaped = (filter, options) => calls({...filter, include: "shape"}, options);
export const findings = async id => (await get(agent(id) + "/checks")).findings;
export const join = body => request("POST", "/v1/agents", body);
export const leave = id => request("POST", agent(id) + "/leave");
export const interrupt = (id, body) => request("POST", agent(id) + "/interrupt", body);
export const context = (id, body) => request("POST", agent(id) + "/context", body);
export const tailOf = (id, after) => agent(id) + "/events" + query({after});

export const requests = (id, turn) => get(`${agent(id)}/turns/${turn}/requests`);
export const report = (q, options) => get("/v1/reports" + query(q), options);

const user = name => "/v1/users/" + encodeURIComponent(name);
export const users = cursor => get("/v1/users" + query({cursor, limit: 200}));
export const caller = name => get(user(name));
export const exportOf = name => user(name) + "/export";
export const putAliases = (name, aliases) => request("PUT", user(name) + "/aliases", {aliases});
export const putConsent = (name, consent) => request("PUT", user(name) + "/consent", consent);
export const erase = name => request("DELETE", user(name));
export const facts = (name, state) => get(user(name) + "/facts" + query({state, limit: 1000}));
export const factContext = name => get(user(name) + "/facts/context");
const fact = (name, id) => `${user(name)}/facts/${encodeURIComponent(id)}`;
export const factHistory = (name, id) => get(fact(name, id) + "/history");
export const changeFact = (name, id, change) => request("PATCH", fact(name, id), change);
export const acceptFact = (name, id) => request("POST", fact(name, id) + "/accept", {});
export const undoFact = (name, id) => request("POST", fact(name, id) + "/undo", {});
export const deleteFact = (name, id) => request("DELETE", fact(name, id));

const hooks = "/v1/webhooks";
export const endpoints = () => get(hooks + "/endpoints");
export const endpointAction = (id, action) => request("POST", `${hooks}/endpoints/${encodeURIComponent(id)}/${action}`);
export const deliveries = filter => get(hooks + "/deliveries" + query(filter));
export const delivery = id => get(`${hooks}/deliveries/${id}`);
export const deliveryAction = (id, action) => request("POST", `${hooks}/deliveries/${id}/${action}`);
export const event = id => get(`${hooks}/messages/${encodeURIComponent(id)}`);

// messagesAfter returns the messages of a call after a place, at most 100.
export const messagesAfter = (id, seq, options) => get(agent(id) + "/messages" + query({after_seq: seq}), options);

// messages returns all messages of a call, page by page.
export async function messages(id, options) {
  const all = [];
  for (let cursor = ""; ;) {
    const page = await get(agent(id) + "/messages" + query({cursor, limit: 1000}), options);
    all.push(...page.messages);
    if (!page.next_cursor) return all;
    cursor = page.next_cursor;
  }
}

// chat asks for an answer and calls onText with each piece of it. A signal ends it early.
export async function chat(id, messages, onText, signal) {
  const r = await fetch(agent(id) + "/chat/completions", {
    method: "POST", signal,
    headers: {"Content-Type": "application/json"},
    body: JSON.stringify({stream: true, messages}),
  });
  if (!r.ok) throw new APIError(r.status, await r.json().catch(() => null));
  let rest = "";
  for await (const bytes of decoded(r.body)) {
    const lines = (rest + bytes).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
      const piece = JSON.parse(line.slice(6)).choices?.[0]?.delta?.content;
      if (piece) onText(piece);
    }
  }
}

async function* decoded(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    yield value;
  }
}
