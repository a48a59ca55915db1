import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Heardlog, Reporter } from 'heardlog';

// A server that keeps the events it takes. status(n) is what it answers to the n-th request.
function server(status) {
  const taken = [];
  let n = 0;
  const fetch = async (url, init) => {
    const answer = status(++n);
    if (answer === 'lost') throw new TypeError('fetch failed');
    if (answer === 200) taken.push({ path: new URL(url).pathname, call: init.headers['X-LiveKit-Job-ID'], ...JSON.parse(init.body) });
    return new Response('{"detail":"no","reason":"NotFound"}', { status: answer });
  };
  const said = [];
  const reporter = new Reporter(new Heardlog({ url: 'http://127.0.0.1:1', fetch }), 'livekit', { 'X-LiveKit-Job-ID': 'j' }, { limit: 5, log: (line) => said.push(line) });
  return { taken, said, reporter };
}

test('events arrive in order, and are repeated after failures', async () => {
  const { taken, reporter } = server((n) => [503, 'lost', 429][n - 1] ?? 200);
  const event = { n: 1 };
  reporter.send(event);
  event.n = 99;
  reporter.send({ n: 2 });
  reporter.send({ n: 3 });
  assert.equal(await reporter.flush(), true);
  assert.deepEqual(taken.map((e) => e.n), [1, 2, 3]);
  assert.deepEqual(taken[0], { path: '/v1/evidence/livekit', call: 'j', n: 1 });
  assert.equal(reporter.dropped, 0);
});

test('a refused event is left out, and those after it are sent', async () => {
  const { taken, said, reporter } = server((n) => (n === 1 ? 404 : 200));
  reporter.send({ n: 1 });
  reporter.send({ n: 2 });
  await reporter.flush();
  assert.deepEqual(taken.map((e) => e.n), [2]);
  assert.equal(reporter.dropped, 1);
  assert.match(said[0], /was dropped/);
});

test('nothing is thrown into the platform, and nothing waits for ever', async () => {
  const { said, reporter } = server(() => 503);
  const circle = {};
  circle.self = circle;
  reporter.send(circle);
  for (let i = 0; i < 10; i++) reporter.send({ i });
  assert.equal(await reporter.flush(10), false);
  await reporter.close(10);
  reporter.send({ late: true });
  assert.equal(said.filter((l) => l.includes('more are dropped')).length, 1);
  assert.equal(reporter.dropped, 12); // the circle, five beyond the limit, five that waited, and the late one
});
