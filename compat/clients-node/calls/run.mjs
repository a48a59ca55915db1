// Plays calls of real LiveKit sessions against a Heardlog server and compares the record with what
// the loudspeaker played.
//
//   node calls/run.mjs --api PATH [--calls 60] [--seed 1]
//     [--series words,estimate,none] [--events on,off] [--at-once 20] [--trace FOLDER] [--out FILE]
//
// PATH is the server's binary; it runs with a new store. FOLDER gets what went over the wire.
import { initializeLogger } from '@livekit/agents';
import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { attached } from './attached.mjs';
import { play } from './call.mjs';
import { inside } from './inside.mjs';
import { judge, summary } from './judge.mjs';
import { upstream } from './llm.mjs';
import { random } from './words.mjs';

const { values: o } = parseArgs({
  options: {
    api: { type: 'string' },
    calls: { type: 'string', default: '60' },
    seed: { type: 'string', default: '1' },
    series: { type: 'string', default: 'words,estimate,none' },
    events: { type: 'string', default: 'on,off' },
    'at-once': { type: 'string', default: '20' },
    turns: { type: 'string', default: '6' },
    trace: { type: 'string' },
    out: { type: 'string' },
    log: { type: 'string', default: 'silent' },
  },
});
initializeLogger({ pretty: false, level: o.log });
process.on('unhandledRejection', (err) => console.error('unhandled:', err?.message ?? err));
const { speechHandleStorage } = await inside();
const calls = new Map();
const llm = await upstream(calls);
const dir = mkdtempSync(join(tmpdir(), 'calls-'));
const server = await startServer();
if (o.trace) mkdirSync(o.trace, { recursive: true });

const results = [];
try {
  for (const series of o.series.split(','))
    for (const events of o.events.split(',')) {
      const jobs = Array.from({ length: Number(o.calls) }, (_, i) => i);
      const judged = [];
      await Promise.all(
        Array.from({ length: Number(o['at-once']) }, async (_, worker) => {
          await new Promise((done) => setTimeout(done, worker * 400));
          for (let i; (i = jobs.shift()) !== undefined; ) judged.push(await one(series, events === 'on', i));
        }),
      );
      const row = { series, events: events === 'on', ...summary(judged) };
      results.push({ row, judged });
      console.log(JSON.stringify(row));
    }
} finally {
  server.stop();
  llm.close();
}
console.log(table(results.map(({ row }) => row)));
if (o.out) writeFileSync(o.out, JSON.stringify(results, null, 1));
process.exit(0);

// one plays a call, reads its record and judges it.
async function one(series, events, i) {
  const name = `${series}-${events ? 'on' : 'off'}-${o.seed}-${i}`;
  const seed = Number(o.seed) * 100003 + i;
  const heardlog = attached({ base: `${server.url}/v1`, name, events });
  const { call, run } = await play({
    name,
    seed,
    r: random(seed + 104729),
    wordTimes: series === 'words',
    synchronized: series !== 'none',
    turns: Number(o.turns),
    model: heardlog.model,
    connect: heardlog.connect,
    speechNow: () => speechHandleStorage.getStore(),
  });
  calls.set(name, call);
  const truth = await run();
  const record = await heardlog.record();
  const verdict = judge(truth, record);
  if (o.trace) {
    const lines = [
      ...heardlog.wire.map((w) => JSON.stringify(w)),
      ...truth.requests.map((q) => JSON.stringify({ at: q.at, upstream: q.id, text: q.text, messages: q.messages })),
    ].sort((a, b) => JSON.parse(a).at - JSON.parse(b).at);
    writeFileSync(join(o.trace, `${name}.jsonl`), `${lines.join('\n')}\n`);
    writeFileSync(join(o.trace, `${name}.truth.json`), JSON.stringify({ kinds: truth.kinds, notes: truth.notes, said: truth.said, verdict, record: record.messages }, null, 1));
  }
  return { name, refused: heardlog.wire.filter((w) => w.status >= 400).length, ...verdict };
}

async function startServer() {
  const child = spawn(o.api, [], {
    env: { PATH: process.env.PATH, HEARDLOG_ADDR: '127.0.0.1:0', HEARDLOG_LOG_FORMAT: 'json', HEARDLOG_STORE: `sqlite:${join(dir, 'heardlog.db')}`, HEARDLOG_LLM_URL: `${llm.url}/v1`, HEARDLOG_RATE_LIMIT: '0' },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let log = '';
  const url = await new Promise((resolve, reject) => {
    child.stderr.on('data', (piece) => {
      log = (log + piece).slice(-100000);
      const found = /"address":"([^"]+)"/.exec(log);
      if (found) resolve(found[1]);
    });
    child.on('exit', (code) => reject(new Error(`the server ended with ${code}: ${log}`)));
  });
  const stop = () => {
    child.kill();
    rmSync(dir, { recursive: true, force: true });
  };
  return { url, stop };
}

// table formats rows as a Markdown table, one series a column.
function table(rows) {
  const keys = Object.keys(rows[0]).filter((k) => k !== 'series' && k !== 'events');
  const head = rows.map((r) => `${{ words: 'word times', estimate: 'estimate', none: 'no synchronizer' }[r.series]}${r.events ? ' + events' : ''}`);
  return [`| | ${head.join(' | ')} |`, `|---|${head.map(() => '---|').join('')}`, ...keys.map((k) => `| ${k} | ${rows.map((r) => r[k]).join(' | ')} |`)].join('\n');
}
