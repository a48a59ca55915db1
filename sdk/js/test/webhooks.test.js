import assert from 'node:assert/strict';
import { createHmac, createHash } from 'node:crypto';
import { test } from 'node:test';
import { Heardlog } from 'heardlog';
import { SignatureError, Verifier, thinBody } from 'heardlog/webhooks';
import { serve, start } from './support/server.js';

const secret = `whsec_${Buffer.from('0123456789abcdef0123456789abcdef').toString('base64')}`;

test('the events of a real call pass, and those of another secret do not', async (t) => {
  const verifier = new Verifier(['another plain secret', secret]);
  const stranger = new Verifier('whsec_' + 'A'.repeat(40));
  const events = [];
  let ended;
  const over = new Promise((resolve) => (ended = resolve));
  const hook = await serve(t, async (body, req, res) => {
    await assert.rejects(stranger.verify(req.headers, body), SignatureError);
    const event = await verifier.verify(req.headers, body);
    events.push(event.eventType);
    res.end('{}');
    if (event.eventType === 103) ended(event);
  });
  const url = await start(t, { HEARDLOG_WEBHOOK_URL: hook, HEARDLOG_WEBHOOK_SECRET: secret });
  const agent = await new Heardlog({ url }).start('Jürgen 😀');
  await agent.append({ role: 'user', content: '<b>Wo?</b>  🚉' });
  await agent.leave();
  const event = await over;
  assert.equal(event.sid, agent.id);
  assert.equal(event.payload.contents[0].content, '<b>Wo?</b>  🚉');
  assert.ok(events.includes(101));
});

function signed(body, { key = Buffer.from('plain secret'), stamp = Math.floor(Date.now() / 1000), id = 'msg_1' } = {}) {
  const mac = createHmac('sha256', key).update(`${id}.${stamp}.`).update(body).digest('base64');
  return { 'webhook-id': id, 'webhook-timestamp': String(stamp), 'webhook-signature': `v1,AAAA v1,${mac}` };
}

test('what is refused', async () => {
  const verifier = new Verifier('plain secret');
  const body = JSON.stringify({ noticeId: 'n', eventType: 101, sid: 'a', payload: {} });
  assert.equal((await verifier.verify(signed(body), body)).noticeId, 'n');
  const request = new Request('http://x/', { method: 'POST', headers: signed(body), body });
  assert.equal((await verifier.verify(request)).sid, 'a');
  const refused = (headers, b = body) => assert.rejects(verifier.verify(headers, b), SignatureError);
  await refused(signed(body), `${body} `);
  await refused(signed(body, { stamp: Math.floor(Date.now() / 1000) - 301 }));
  await refused(signed(body, { stamp: Math.floor(Date.now() / 1000) + 301 }));
  await refused({ ...signed(body), 'webhook-timestamp': '1e9' });
  await refused({ ...signed(body), 'webhook-id': 'msg_2' });
  await refused({ ...signed(body), 'webhook-signature': 'v1,' });
  await refused({});
  await assert.rejects(verifier.verify(signed('[]'), '[]'), /not an event/);
  await assert.rejects(verifier.verify(signed(body), JSON.parse(body)), /raw bytes/);
});

test('secrets are checked, and not shown', () => {
  for (const wrong of ['', ' x', 'whsec_short', 'whpk_abc', 5]) {
    assert.throws(() => new Verifier(wrong), (err) => /secret 1: /.test(err.message) && !(typeof wrong === 'string' && wrong.length > 3 && err.message.includes(wrong)));
  }
  assert.throws(() => new Verifier([]), /needs a secret/);
});

test('the body of a thin event', async () => {
  const whole = Buffer.from('{"noticeId":"n","eventType":103}');
  const payload = { bytes: whole.length, sha256: createHash('sha256').update(whole).digest('hex') };
  assert.equal((await thinBody({ payload }, whole)).eventType, 103);
  await assert.rejects(thinBody({ payload }, Buffer.from('{"noticeId":"n","eventType":104}')), SignatureError);
});
