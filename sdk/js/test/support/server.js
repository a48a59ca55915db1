// Starts a Heardlog server for tests, and an LLM for it.
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../../../..', import.meta.url));

// binary returns the server's program: that of HEARDLOG_BIN, or one built from this tree.
function binary() {
  if (process.env.HEARDLOG_BIN) return process.env.HEARDLOG_BIN;
  const built = join(tmpdir(), `heardlog-${process.pid}`);
  if (!existsSync(built)) {
    execFileSync('go', ['build', '-o', built, './cmd/api'], { cwd: root, stdio: 'inherit' });
    process.on('exit', () => rmSync(built, { force: true }));
  }
  return built;
}

// start runs a server with settings until the test ends, and returns its URL.
export async function start(t, settings = {}) {
  const dir = mkdtempSync(join(tmpdir(), 'heardlog-test-'));
  const child = spawn(binary(), [], {
    env: { PATH: process.env.PATH, HEARDLOG_ADDR: '127.0.0.1:0', HEARDLOG_LOG_FORMAT: 'json', HEARDLOG_STORE: `sqlite:${join(dir, 'db')}`, ...settings },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  t.after(async () => {
    if (child.exitCode === null) {
      child.kill();
      await once(child, 'exit');
    }
    rmSync(dir, { recursive: true, force: true });
  });
  let log = '';
  return new Promise((resolve, reject) => {
    child.stderr.on('data', (piece) => {
      log += piece;
      const found = /"address":"([^"]+)"/.exec(log);
      if (found) resolve(found[1]);
    });
    child.on('exit', (code) => reject(new Error(`the server ended with ${code}:\n${log}`)));
  });
}

// serve answers HTTP requests with handle(body, req, res) until the test ends, and returns its URL.
export async function serve(t, handle) {
  const server = createServer(async (req, res) => {
    const parts = [];
    for await (const part of req) parts.push(part);
    await handle(Buffer.concat(parts), req, res);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => (server.closeAllConnections(), server.close()));
  return `http://127.0.0.1:${server.address().port}`;
}

// llm is an upstream: answer(asked) returns {text, tool, hang} for the body of a request. A stream
// that hangs stays open after its words.
export async function llm(t, answer) {
  const asked = [];
  const url = await serve(t, async (body, req, res) => {
    if (req.method === 'GET') return res.end('{"object":"list","data":[]}');
    const request = JSON.parse(body);
    asked.push(request);
    const { text = '', tool, hang } = answer(request, asked.length);
    const id = `chatcmpl-${asked.length}`;
    const message = { role: 'assistant', content: text, tool_calls: tool && [{ index: 0, id: `call_${asked.length}`, type: 'function', function: tool }] };
    const finish = tool ? 'tool_calls' : 'stop';
    const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 };
    if (!request.stream) {
      res.writeHead(200, { 'content-type': 'application/json' });
      return res.end(JSON.stringify({ id, object: 'chat.completion', created: 1, model: 'm', choices: [{ index: 0, message, finish_reason: finish }], usage }));
    }
    res.writeHead(200, { 'content-type': 'text/event-stream' });
    const send = (delta, finish_reason = null) => res.write(`data: ${JSON.stringify({ id, object: 'chat.completion.chunk', created: 1, model: 'm', choices: [{ index: 0, delta, finish_reason }] })}\n\n`);
    for (const word of text.split(/(?<= )/).filter(Boolean)) send({ role: 'assistant', content: word });
    if (hang) return undefined;
    if (tool) send({ tool_calls: message.tool_calls });
    send({}, finish);
    res.end('data: [DONE]\n\n');
  });
  return { url, asked };
}
