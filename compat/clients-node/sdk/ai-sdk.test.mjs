// The middleware of heardlog/ai-sdk in Vercel's AI SDK, with a model that is asked directly.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, isStepCount, jsonSchema, streamText, tool, wrapLanguageModel } from 'ai';
import { Heardlog } from 'heardlog';
import { memory } from 'heardlog/ai-sdk';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { llm, start } from '../../../sdk/js/test/support/server.js';

const contents = (messages) => messages.map((m) => `${m.role}: ${m.content ?? ''}${m.tool_calls ? ` (${m.tool_calls[0].function.name})` : ''}`);

async function setUp(t, answer, options) {
  const upstream = await llm(t, answer);
  const agent = await new Heardlog({ url: await start(t) }).start('desk');
  const model = wrapLanguageModel({
    model: createOpenAICompatible({ name: 'fake', baseURL: `${upstream.url}/v1`, apiKey: 'any' }).chatModel('m'),
    middleware: memory(agent, options),
  });
  return { ...upstream, agent, settings: { model, maxRetries: 0 } };
}

test('only what is new is sent, and what was heard comes back', async (t) => {
  const { agent, asked, settings } = await setUp(t, (_, n) => ({ text: n === 1 ? 'The train leaves at nine from platform two.' : 'Yes.' }));
  const first = streamText({ ...settings, instructions: 'Be brief.', prompt: 'When is my train?' });
  assert.equal(await first.text, 'The train leaves at nine from platform two.');
  await agent.interrupt({ heard: 'The train leaves at nine' });
  const second = await generateText({ ...settings, instructions: 'Be brief.', prompt: 'Is it late?' });
  assert.equal(second.text, 'Yes.');
  assert.deepEqual(contents(asked[1].messages), ['system: Be brief.', 'user: When is my train?', 'assistant: The train leaves at nine', 'user: Is it late?']);
  assert.deepEqual((await agent.history()).map((m) => m.content), ['When is my train?', 'The train leaves at nine', 'Is it late?', 'Yes.']);
});

test('tools run, and each step is stored once', async (t) => {
  const { agent, asked, settings } = await setUp(t, (request) =>
    request.messages.at(-1).role === 'tool' ? { text: 'At nine.' } : { text: 'Let me look. ', tool: { name: 'timetable', arguments: '{"to":"Bern"}' } },
  );
  const tools = { timetable: tool({ description: 'When trains leave.', inputSchema: jsonSchema({ type: 'object', properties: { to: { type: 'string' } } }), execute: async ({ to }) => ({ to, at: '9:00' }) }) };
  for (const ask of [streamText, generateText]) {
    const result = await ask({ ...settings, tools, stopWhen: isStepCount(3), prompt: 'When to Bern?' });
    assert.equal(await result.text, 'At nine.');
  }
  const turn = ['user: When to Bern?', 'assistant: Let me look. (timetable)', 'tool: {"to":"Bern","at":"9:00"}', 'assistant: At nine.'];
  const ledger = [];
  for await (const m of agent.messages()) ledger.push(m);
  assert.deepEqual(contents(ledger).map((s) => s.replace('  ', ' ')), [...turn, ...turn]);
  assert.equal(asked[1].messages.at(-1).tool_call_id, asked[1].messages.at(-2).tool_calls[0].id);
  assert.deepEqual(contents(asked[3].messages).length, 7);
});

test('an answer that was cut is stored as far as it went, and better evidence counts', async (t) => {
  const { agent, settings } = await setUp(t, () => ({ text: 'one two three ', hang: true }));
  const leave = new AbortController();
  const result = streamText({ ...settings, prompt: 'Count.', abortSignal: leave.signal, onError: () => {} });
  let n = 0;
  for await (const _ of result.textStream) if (++n === 3) leave.abort();
  let history = [];
  for (const end = Date.now() + 5000; !history.at(-1)?.metadata.interrupted && Date.now() < end; ) history = await agent.history();
  assert.deepEqual(history.map((m) => m.content.trim()), ['Count.', 'one two three']);
  assert.equal(history[1].metadata.interrupted, true);
  await agent.interrupt({ heard: 'one' });
  assert.equal((await agent.history())[1].content, 'one');
});

test('without Heardlog the model still answers', async (t) => {
  const upstream = await llm(t, () => ({ text: 'Yes.' }));
  const faults = [];
  const agent = new Heardlog({ url: 'http://127.0.0.1:1', retries: 0 }).agent('a');
  const model = wrapLanguageModel({
    model: createOpenAICompatible({ name: 'fake', baseURL: `${upstream.url}/v1`, apiKey: 'any' }).chatModel('m'),
    middleware: memory(agent, { onError: (err) => faults.push(err) }),
  });
  assert.equal((await generateText({ model, prompt: 'Well?' })).text, 'Yes.');
  assert.equal(faults.length, 2);
});
