import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';
import { Heardlog, HeardlogError } from 'heardlog';
import { llm, start } from './support/server.js';

test('a call from its start to its end', async (t) => {
  const log = new Heardlog({ url: await start(t) });
  const agent = await log.start('desk', { userId: 'anna', sessionId: 's1', system: 'Be brief.', greeting: 'Hello.', labels: { a: 'b' }, keys: ['test.call:1'], idleTimeout: 60, properties: { llm: { max_history: 9 } } });
  const shown = await agent.info();
  assert.deepEqual([shown.name, shown.user_id, shown.labels.a], ['desk', 'anna', 'b']);
  const stored = await agent.append([
    { role: 'user', content: 'When is my train?' },
    { role: 'assistant', content: 'The train leaves at nine from platform two.' },
  ]);
  assert.equal(stored.length, 2);
  await agent.append({ role: 'user', content: 'Wait!' });
  const cut = await agent.interrupt({ heard: 'The train leaves', turnId: stored[1].turn_id });
  assert.equal(cut.interrupted[0].heard.trim(), 'The train leaves');
  const history = await agent.history({ confidence: true });
  assert.deepEqual(history.map((m) => m.content.trim()).slice(-3), ['When is my train?', 'The train leaves', 'Wait!']);
  assert.equal((await agent.history({ limit: 1 })).length, 1);
  const ledger = [];
  for await (const m of agent.messages({ afterSeq: stored[0].seq })) ledger.push(m);
  assert.equal(ledger[0].generated, 'The train leaves at nine from platform two.');
  const context = await agent.context({ utterance: 'And now?' });
  assert.equal(context.messages[0].content, 'Be brief.');
  assert.equal(context.messages.at(-1).content, 'And now?');
  assert.equal((await log.recall('anna', 'train')).hits.length > 0, true);
  assert.equal(Array.isArray((await agent.recall('train')).hits), true);
  await log.agent(agent.id).leave();
  await agent.leave();
  assert.equal((await agent.info()).status, 'STOPPED');
});

test('memory as one value', async (t) => {
  const log = new Heardlog({ url: await start(t) });
  const a = await log.start('a');
  await a.append({ role: 'user', content: 'Hello' });
  const b = await log.start('b');
  await b.restore(await a.snapshot());
  assert.deepEqual((await b.history()).map((m) => m.content), ['Hello']);
  await b.clear();
  assert.deepEqual(await b.history(), []);
});

test('facts', async (t) => {
  const log = new Heardlog({ url: await start(t) });
  const facts = log.facts('anna/1');
  const fact = await facts.add('Likes window seats.', { topics: ['travel'] });
  const list = [];
  for await (const f of facts.list({ topic: 'travel' })) list.push(f.content);
  assert.deepEqual(list, ['Likes window seats.']);
  assert.equal((await facts.search('window')).facts?.length > 0, true);
  await facts.delete(fact.id);
  for await (const f of facts.list()) assert.fail(f.content);
});

test('the options of an OpenAI client', async (t) => {
  const upstream = await llm(t, () => ({ text: 'At nine.' }));
  const log = new Heardlog({ url: await start(t, { HEARDLOG_LLM_URL: `${upstream.url}/v1` }) });
  const agent = await log.start('desk');
  const ask = async ({ baseURL, apiKey, defaultHeaders }, content) => {
    const res = await fetch(`${baseURL}/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${apiKey}`, ...defaultHeaders },
      body: JSON.stringify({ model: 'm', messages: [{ role: 'user', content }] }),
    });
    assert.equal(res.headers.get('x-heardlog-agent'), agent.id);
    return (await res.json()).choices[0].message.content;
  };
  assert.equal(await ask(agent.openai(), 'When?'), 'At nine.');
  assert.equal(await ask(log.openai(agent.headers), 'And the next?'), 'At nine.');
  assert.equal(agent.openai().baseURL, agent.url);
  assert.equal(upstream.asked[1].messages.length, 3);
});

test('errors say what is wrong, and no secret', async (t) => {
  const url = await start(t, { HEARDLOG_CREDENTIALS: 'p1=key:s3cr3t-s3cr3t-s3cr3t' });
  const log = new Heardlog({ url, secret: 'key:s3cr3t-s3cr3t-s3cr3t' });
  const agent = await log.start('desk');
  await assert.rejects(agent.append({ role: 'nobody', content: 'x' }), (err) => {
    assert.ok(err instanceof HeardlogError);
    assert.equal(err.status, 400);
    assert.match(err.field, /role$/);
    assert.equal(err.reason, 'InvalidFieldValue');
    assert.ok(err.requestId);
    return true;
  });
  await assert.rejects(log.start('desk'), { status: 409, reason: 'Conflict', agentId: agent.id });
  assert.equal((await log.start('desk', { reuse: true })).id, agent.id);
  await assert.rejects(log.agent('nobody').history(), { status: 404, reason: 'NotFound' });
  await assert.rejects(new Heardlog({ url, secret: 'wrong-wrong' }).start('x'), (err) => err.status === 401 && !String(err.stack).includes('wrong-wrong'));
  assert.ok(!JSON.stringify(log).includes('s3cr3t'));
  assert.equal(log.openai().defaultHeaders.authorization.startsWith('Basic '), true);
  assert.throws(() => new Heardlog({ url: 'ftp://x' }), /url: must begin with/);
  assert.throws(() => new Heardlog({ url: 'http://a:b@x' }), /credentials/);
  assert.equal(new Heardlog({ url: 'http://127.0.0.1:1' }).url, 'http://127.0.0.1:1/v1');
});

test('a call is repeated with the same key, and stored once', async (t) => {
  const url = await start(t);
  const keys = [];
  // The first answer of each POST is lost on its way back.
  const lossy = async (where, init) => {
    const res = await fetch(where, init);
    if (init.method !== 'POST') return res;
    keys.push(init.headers['idempotency-key']);
    if (keys.length % 2 === 1) {
      await res.arrayBuffer();
      throw new TypeError('fetch failed');
    }
    return res;
  };
  const log = new Heardlog({ url, fetch: lossy });
  const agent = await log.start('desk');
  await agent.append({ role: 'user', content: 'Once.' });
  assert.deepEqual((await agent.history()).map((m) => m.content), ['Once.']);
  assert.equal(keys.length, 4);
  assert.ok(keys[0] && keys[0] === keys[1] && keys[2] === keys[3] && keys[0] !== keys[2]);
});

test('what a repeat cannot mend is not repeated', async () => {
  let calls = 0;
  const answer = (status) => async () => (calls++, new Response('{"detail":"busy","reason":"ServiceUnavailable"}', { status, headers: { 'x-request-id': 'r1', 'retry-after': '0' } }));
  await assert.rejects(new Heardlog({ fetch: answer(503), retries: 2 }).agent('a').history(), { status: 503, requestId: 'r1' });
  assert.equal(calls, 3);
  calls = 0;
  await assert.rejects(new Heardlog({ fetch: answer(422) }).agent('a').history(), { status: 422 });
  assert.equal(calls, 1);
  calls = 0;
  await assert.rejects(new Heardlog({ fetch: answer(503) }).request('POST', '/anything', { body: {} }), { status: 503 });
  assert.equal(calls, 1);
});

test('the package imports nothing but itself', () => {
  const src = new URL('../src/', import.meta.url);
  for (const file of readdirSync(src).filter((f) => f.endsWith('.js'))) {
    const text = readFileSync(new URL(file, src), 'utf8');
    for (const [, from] of text.matchAll(/^(?:import|export) .* from '(.+)';$/gm)) assert.match(from, /^\.\//, file);
    assert.doesNotMatch(text, /\b(?:require|import)\(|\bBuffer\b|(?<!globalThis\.)\bprocess\./, file);
  }
});

test('lists are read to their last page', async () => {
  const asked = [];
  const pages = async (url) => {
    const cursor = new URL(url).searchParams.get('cursor');
    asked.push(new URL(url).search);
    const row = { n: cursor ?? 'first' };
    return Response.json({ contents: [row], messages: [row], facts: [row], ...(cursor === 'c2' ? {} : { next_cursor: cursor ? 'c2' : 'c1' }) });
  };
  const log = new Heardlog({ url: 'http://127.0.0.1:1', fetch: pages });
  const all = ['first', 'c1', 'c2'];
  assert.deepEqual((await log.agent('a').history()).map((m) => m.n), all);
  assert.deepEqual((await log.agent('a').history({ limit: 1 })).map((m) => m.n), ['first']);
  assert.deepEqual(await collect(log.agent('a').messages({ afterSeq: 7 })), all);
  assert.deepEqual(await collect(log.facts('u').list()), all);
  assert.ok(asked.includes('?after_seq=7&limit=1000'));
});

async function collect(list) {
  const out = [];
  for await (const { n } of list) out.push(n);
  return out;
}
