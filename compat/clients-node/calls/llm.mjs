// The LLM behind Heardlog: it answers by the plan of each call and keeps what it was asked.
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { answer } from './words.mjs';

// upstream starts the LLM. calls has, for each call's name, {r, plan}: plan(text) returns what to do
// with the caller's words. The model of a request names the call.
export async function upstream(calls) {
  const server = createServer(async (req, res) => {
    let body = '';
    for await (const piece of req) body += piece;
    if (req.method === 'GET') return res.end('{"object":"list","data":[]}');
    const asked = JSON.parse(body);
    const call = calls.get(asked.model);
    const entry = { at: Date.now(), id: `chatcmpl-${asked.model}-${call.requests.length}`, messages: asked.messages, text: '' };
    call.requests.push(entry);
    const last = asked.messages.at(-1) ?? {};
    const plan = last.role === 'user' ? call.plan(String(last.content)) : undefined;
    res.writeHead(200, { 'content-type': 'text/event-stream' });
    const send = (delta, finish = null) =>
      res.write(`data: ${JSON.stringify({ id: entry.id, object: 'chat.completion.chunk', created: Math.floor(entry.at / 1000), model: asked.model, choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`);
    await sleep(call.r.between(80, 400));
    if (plan?.words !== '') {
      entry.text = plan?.words ?? answer(call.r);
      const pieces = entry.text.split(/(?<= )/);
      for (let i = 0; i < pieces.length && !res.destroyed; i += 2) {
        send({ role: 'assistant', content: pieces.slice(i, i + 2).join('') });
        await sleep(call.r.between(2, 20));
      }
    }
    if (plan?.tool && asked.tools?.some((t) => t.function.name === plan.tool)) {
      entry.tool = plan.tool;
      send({ role: 'assistant', tool_calls: [{ index: 0, id: `call_${entry.id}`, type: 'function', function: { name: plan.tool, arguments: '{}' } }] });
      send({}, 'tool_calls');
    } else {
      send({}, 'stop');
    }
    res.end('data: [DONE]\n\n');
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  return { url: `http://127.0.0.1:${server.address().port}`, close: () => server.close() };
}
