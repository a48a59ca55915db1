// attach of heardlog/livekit on a session of LiveKit Agents, in text.
import { initializeLogger, voice } from '@livekit/agents';
import { LLM } from '@livekit/agents-plugin-openai';
import { Heardlog } from 'heardlog';
import { attach, llmOptions } from 'heardlog/livekit';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OpenAI } from 'openai';
import { llm, start } from '../../../sdk/js/test/support/server.js';

initializeLogger({ pretty: false, level: 'silent' });

// setUp returns a session that is attached to a server, and the events that went there.
async function setUp(t, { settings = {}, join } = {}) {
  const upstream = await llm(t, (_, n) => ({ text: n === 1 ? 'The train leaves at nine.' : 'one two three ', hang: n > 1 }));
  const url = await start(t, { HEARDLOG_LLM_URL: `${upstream.url}/v1`, ...settings });
  const events = [];
  const keep = async (where, init) => {
    if (String(where).includes('/evidence/')) events.push(JSON.parse(init.body));
    return fetch(where, init);
  };
  const said = [];
  const client = new Heardlog({ url, secret: 'key:s3cr3t-s3cr3t-s3cr3t', fetch: keep });
  const session = new voice.AgentSession({ vad: null, llm: new LLM({ client: new OpenAI({ ...llmOptions('job-1', { client }), maxRetries: 0 }), model: 'm' }) });
  const attached = attach(session, { jobId: 'job-1', client, join, log: (line) => said.push(line) });
  return { attached, client, events, said, session };
}

test('the session is reported in its order, each answer with the stream it came from', async (t) => {
  const { attached, client, events, said, session } = await setUp(t, { settings: { HEARDLOG_CREDENTIALS: 'p=key:s3cr3t-s3cr3t-s3cr3t' }, join: { userId: 'anna' } });
  await session.start({ agent: new voice.Agent({ instructions: 'Be brief.' }) });
  await session.say('Welcome.').waitForPlayout();
  await session.run({ userInput: 'When is my train?' }).wait();
  const speaking = new Promise((resolve) => session.on('agent_state_changed', (e) => e.newState === 'speaking' && resolve()));
  const answer = session.generateReply({ userInput: 'Count.' });
  await speaking;
  session.interrupt({ force: true });
  await answer.waitForPlayout();
  const closing = session.close();
  await attached.close(); // it waits for the session
  await closing;
  assert.deepEqual(said, []);
  assert.equal(attached.reporter.dropped, 0);
  const types = events.map((e) => e.type);
  for (const type of ['conversation_item_added', 'agent_state_changed', 'speech_created', 'metrics_collected', 'close']) assert.ok(types.includes(type), type);
  assert.equal(types.at(-1), 'close');
  assert.ok(events.every((e) => e.created_at > 1e12));
  const items = events.filter((e) => e.item?.type === 'message').map((e) => e.item);
  assert.deepEqual(items.map((i) => i.role), ['assistant', 'user', 'assistant', 'user', 'assistant']);
  assert.deepEqual(items.map((i) => i.extra?.livekit.heardlog), [undefined, undefined, 'chatcmpl-1', undefined, 'chatcmpl-2']);
  assert.equal(items[4].interrupted, true);
  assert.ok(items[2].created_at && items[2].metrics.started_speaking_at);
  const history = events.at(-1).chat_history.items.filter((i) => i.type === 'message');
  assert.deepEqual(history.map((i) => i.id), items.map((i) => i.id));
  const metrics = events.find((e) => e.metrics?.type === 'llm_metrics');
  assert.equal(metrics.metrics.request_id, 'chatcmpl-1');
  assert.equal(metrics.metrics.speech_id, events.filter((e) => e.type === 'speech_created')[1].speech_id);
  const { agent_id } = await client.evidence('livekit', { type: 'nothing', job_id: 'job-1' });
  const agent = client.agent(agent_id);
  assert.equal((await agent.info()).status, 'STOPPED');
  assert.equal((await agent.info()).user_id, 'anna');
  const texts = (await agent.history()).map((m) => `${m.role}: ${m.content.trim()}`);
  assert.deepEqual(texts, ['assistant: Welcome.', 'user: When is my train?', 'assistant: The train leaves at nine.', 'user: Count.', `assistant: ${items[4].content.join('').trim()}`]);
});

test('a session that never started holds nothing up', async (t) => {
  const { attached } = await setUp(t);
  const before = Date.now();
  await attached.close();
  assert.ok(Date.now() - before < 4000);
});

test('without a join, the first request starts the agent', async (t) => {
  const { attached, client, said, session } = await setUp(t, { join: false });
  await session.start({ agent: new voice.Agent({ instructions: 'Be brief.' }) });
  await session.run({ userInput: 'When is my train?' }).wait();
  await session.close();
  await attached.close();
  const { agent_id } = await client.evidence('livekit', { type: 'nothing', job_id: 'job-1' });
  assert.deepEqual((await client.agent(agent_id).history()).map((m) => m.content), ['When is my train?', 'The train leaves at nine.']);
  assert.equal(attached.reporter.dropped, said.length); // events before it had no agent yet
});
