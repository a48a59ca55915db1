// Connects a session to Heardlog as the guide does, and keeps what went over the wire.
import { LLM } from '@livekit/agents-plugin-openai';
import { OpenAI } from 'openai';

let report;
const real = globalThis.fetch;
const wires = new Map();

// Every request that names a job is kept in the job's list, events and requests alike.
globalThis.fetch = async (url, init) => {
  const res = await real(url, init);
  const job = new Headers(init?.headers).get('x-livekit-job-id');
  const wire = wires.get(job);
  if (wire && init?.body && !String(url).includes('/chat/completions')) {
    const body = JSON.parse(init.body);
    const entry = { at: Date.now(), path: new URL(url).pathname, body, status: res.status };
    wire.push(entry);
    res.clone().json().then((answer) => (entry.answer = answer), () => {});
  }
  return res;
};

// attached returns the LLM of a call and what connects its session.
export function attached({ base, name, events }) {
  const wire = [];
  wires.set(name, wire);
  const fetched = async (url, init) => {
    if (init?.body) wire.push({ at: Date.now(), path: new URL(url).pathname, body: JSON.parse(init.body) });
    return real(url, init);
  };
  const client = new OpenAI({ baseURL: base, apiKey: 'unused', maxRetries: 0, defaultHeaders: { 'X-LiveKit-Job-ID': name }, fetch: fetched });
  const ask = async (method, path, body) => {
    const res = await real(base + path, { method, headers: { 'content-type': 'application/json', 'X-LiveKit-Job-ID': name }, body: body && JSON.stringify(body) });
    const text = await res.text();
    return text ? JSON.parse(text) : {};
  };
  return {
    wire,
    model: new LLM({ client, model: name }),
    async prepare() {
      process.env.HEARDLOG_URL = base;
      ({ report } = await import('../../../examples/livekit-js/heardlog.mjs'));
    },
    connect: (session) => (events ? report(session, name) : async () => {}),
    // record ends the call, if nothing has, and returns what is stored.
    async record() {
      wires.delete(name);
      const { agent_id } = await ask('POST', '/evidence/livekit', { type: 'nothing', job_id: name });
      if (!agent_id) return { messages: [] };
      await ask('POST', `/agents/${agent_id}/leave`);
      const messages = [];
      for (let after = 0; ; ) {
        const page = await ask('GET', `/agents/${agent_id}/messages?limit=1000&after_seq=${after}`);
        if (!page.messages?.length) break;
        messages.push(...page.messages);
        after = page.messages.at(-1).seq;
      }
      return { messages };
    },
  };
}
