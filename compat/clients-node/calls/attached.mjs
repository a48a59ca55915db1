// Connects a session to Heardlog as the guide does, and keeps what went over the wire.
import { LLM } from '@livekit/agents-plugin-openai';
import { Heardlog } from 'heardlog';
import { attach, llmOptions } from 'heardlog/livekit';
import { OpenAI } from 'openai';

// attached returns the LLM of a call and what connects its session. wire has each request and event.
export function attached({ base, name, events }) {
  const wire = [];
  const keep = async (url, init) => {
    const entry = { at: Date.now(), path: new URL(url).pathname, body: init?.body && JSON.parse(init.body) };
    if (init?.body) wire.push(entry);
    const res = await fetch(url, init);
    entry.status = res.status;
    if (!entry.path.endsWith('/chat/completions')) {
      res.clone().json().then((answer) => (entry.answer = answer), () => {});
    }
    return res;
  };
  const client = new Heardlog({ url: base, fetch: keep });
  const log = new Heardlog({ url: base });
  return {
    wire,
    model: new LLM({ client: new OpenAI({ ...llmOptions(name, { client }), maxRetries: 0 }), model: name }),
    connect(session) {
      if (!events) return async () => {};
      const { close } = attach(session, { jobId: name, client, log: (line) => console.error(line) });
      return close;
    },
    // record ends the call, if nothing has, and returns what is stored.
    async record() {
      const { agent_id } = await log.evidence('livekit', { type: 'nothing', job_id: name });
      const messages = [];
      if (agent_id) {
        const agent = log.agent(agent_id);
        await agent.leave();
        for await (const m of agent.messages()) messages.push(m);
      }
      return { messages };
    },
  };
}
