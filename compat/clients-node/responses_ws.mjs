// OpenAI's own client with the Responses API over one WebSocket. It opens another one where it has
// left an answer.
import OpenAI from 'openai';
import { ResponsesWS } from 'openai/resources/responses/ws';
import { baseURL, lookUp, model, play, system, timetable, unknownURL } from './call.mjs';

const tools = [{ type: 'function', strict: true, ...timetable }];
let previous;
let ws = new ResponsesWS(new OpenAI({ baseURL, apiKey: 'any' }));

// events sends a response.create and yields the events of its response.
async function* events(request) {
  const stream = ws.stream();
  ws.send({ type: 'response.create', model, previous_response_id: previous, ...request });
  for await (const { type, message, error } of stream) {
    if (type === 'error') throw error;
    if (type === 'close') throw new Error('the connection was closed');
    if (type !== 'message') continue;
    if (message.type === 'response.created') previous = message.response.id;
    yield message;
    if (message.type === 'response.completed') return;
  }
}

// ask returns the whole response.
async function ask(request) {
  for await (const event of events(request)) {
    if (event.type === 'response.completed') return event.response;
  }
}

const words = (response) => response.output.flatMap((item) => item.content ?? []).map((part) => part.text).join('');

await play({
  say: async (text) => words(await ask({ instructions: system, input: text })),
  async interrupt(text, n) {
    const pieces = [];
    for await (const event of events({ input: text })) {
      if (event.type === 'response.output_text.delta') pieces.push(event.delta);
      if (pieces.length === n) break;
    }
    ws.close();
    ws = new ResponsesWS(new OpenAI({ baseURL, apiKey: 'any' }));
    return pieces;
  },
  async call(text) {
    const [call] = (await ask({ input: text, tools })).output;
    const output = await lookUp(JSON.parse(call.arguments));
    return words(await ask({ tools, input: [{ type: 'function_call_output', call_id: call.call_id, output }] }));
  },
  async refused() {
    const unknown = await ask({ input: 'x', previous_response_id: 'resp_none_1' }).catch((e) => e.error);
    if (unknown.status !== 400 || unknown.error.code !== 'previous_response_not_found') throw new Error(JSON.stringify(unknown));
    ws.close();
    ws = new ResponsesWS(new OpenAI({ baseURL: unknownURL, apiKey: 'any' }));
    const { status, error } = await ask({ input: 'x', previous_response_id: undefined }).catch((e) => e.error);
    return { status, message: error.message };
  },
});
