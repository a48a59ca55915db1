// The session of heardlog/openai-agents in OpenAI's Agents SDK.
import { Agent, OpenAIProvider, Runner, setTracingDisabled, tool } from '@openai/agents';
import { Heardlog } from 'heardlog';
import { Session } from 'heardlog/openai-agents';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import OpenAI from 'openai';
import { llm, start } from '../../../sdk/js/test/support/server.js';

setTracingDisabled(true);
const texts = (items) => items.map((i) => (i.type === 'message' ? `${i.role}: ${typeof i.content === 'string' ? i.content : i.content[0].text}` : `${i.type}: ${i.name}`));

async function setUp(t, answer) {
  const upstream = await llm(t, answer);
  const call = await new Heardlog({ url: await start(t) }).start('desk');
  const client = new OpenAI({ baseURL: `${upstream.url}/v1`, apiKey: 'any', maxRetries: 0 });
  const runner = new Runner({ modelProvider: new OpenAIProvider({ openAIClient: client, useResponses: false }) });
  return { ...upstream, call, runner, session: new Session(call) };
}

test('the session is the memory as it was heard', async (t) => {
  const { asked, call, runner, session } = await setUp(t, (_, n) => ({ text: n === 1 ? 'The train leaves at nine from platform two.' : 'Yes.' }));
  const desk = new Agent({ name: 'desk', instructions: 'Be brief.', model: 'm' });
  assert.equal(await session.getSessionId(), call.id);
  const first = await runner.run(desk, 'When is my train?', { session, stream: true });
  await first.completed;
  await call.interrupt({ heard: 'The train leaves at nine' });
  const second = await runner.run(desk, 'Is it late?', { session });
  assert.equal(second.finalOutput, 'Yes.');
  assert.deepEqual(
    asked[1].messages.map((m) => `${m.role}: ${m.content[0].text ?? m.content}`),
    ['system: Be brief.', 'user: When is my train?', 'assistant: The train leaves at nine', 'user: Is it late?'],
  );
  assert.deepEqual(texts(await session.getItems()), ['user: When is my train?', 'assistant: The train leaves at nine', 'user: Is it late?', 'assistant: Yes.']);
  assert.deepEqual(texts(await session.getItems(2)), ['user: Is it late?', 'assistant: Yes.']);
  assert.deepEqual(await session.getItems(0), []);
});

test('calls of functions and their results are kept', async (t) => {
  const { asked, runner, session } = await setUp(t, (request) =>
    request.messages.at(-1).role === 'tool' ? { text: 'At nine.' } : { tool: { name: 'timetable', arguments: '{"to":"Bern"}' } },
  );
  const timetable = tool({ name: 'timetable', description: 'When trains leave.', parameters: { type: 'object', properties: { to: { type: 'string' } }, required: ['to'], additionalProperties: false }, execute: async () => '9:00' });
  const desk = new Agent({ name: 'desk', instructions: 'Be brief.', model: 'm', tools: [timetable] });
  for (let i = 0; i < 2; i++) assert.equal((await runner.run(desk, 'When to Bern?', { session })).finalOutput, 'At nine.');
  const turn = ['user: When to Bern?', 'function_call: timetable', 'function_call_result: timetable', 'assistant: At nine.'];
  assert.deepEqual(texts(await session.getItems()), [...turn, ...turn]);
  const again = asked.at(-1).messages;
  assert.deepEqual(again.map((m) => m.role), ['system', 'user', 'assistant', 'tool', 'assistant', 'user', 'assistant', 'tool']);
  assert.equal(again[3].tool_call_id, again[2].tool_calls[0].id);
});

test('items can be taken back, and all of them', async (t) => {
  const { session } = await setUp(t, () => ({}));
  await session.addItems([
    { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'One' }] },
    { type: 'function_call', callId: 'c1', name: 'a', arguments: '{}', status: 'completed' },
    { type: 'function_call', callId: 'c2', name: 'b', arguments: '{}', status: 'completed' },
  ]);
  assert.deepEqual(texts([await session.popItem()]), ['function_call: b']);
  assert.deepEqual(texts(await session.getItems()), ['user: One', 'function_call: a']);
  await session.popItem();
  assert.deepEqual(texts([await session.popItem()]), ['user: One']);
  assert.equal(await session.popItem(), undefined);
  await session.addItems([{ role: 'user', content: 'Two' }]);
  await session.clearSession();
  assert.deepEqual(await session.getItems(), []);
});
