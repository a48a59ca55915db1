// OpenAI's own client with the Responses API. It sends only what is new, after previous_response_id.
import OpenAI from 'openai';
import { baseURL, lookUp, model, play, system, timetable, unknownURL } from './call.mjs';

const client = new OpenAI({ baseURL, apiKey: 'any', maxRetries: 0 });
const tools = [{ type: 'function', strict: true, ...timetable }];
let previous;

// ask asks with a stream and returns the whole response.
async function ask(input, more) {
  const response = await client.responses.stream({ model, instructions: system, input, previous_response_id: previous, ...more }).finalResponse();
  previous = response.id;
  return response;
}

await play({
  say: async (text) => (await ask(text)).output_text,
  async interrupt(text, n) {
    const stream = await client.responses.create({ model, input: text, previous_response_id: previous, stream: true });
    const pieces = [];
    for await (const event of stream) {
      if (event.type === 'response.created') previous = event.response.id;
      if (event.type === 'response.output_text.delta') pieces.push(event.delta);
      if (pieces.length === n) break; // which ends the request
    }
    return pieces;
  },
  async call(text) {
    const [call] = (await ask(text, { tools })).output;
    const output = await lookUp(JSON.parse(call.arguments));
    const answer = await client.responses.create({ model, tools, previous_response_id: previous, input: [{ type: 'function_call_output', call_id: call.call_id, output }] });
    previous = answer.id;
    const again = await client.responses.retrieve(previous);
    if (again.output_text !== answer.output_text || again.model !== answer.model) throw new Error(`retrieved ${JSON.stringify(again)}`);
    return answer.output_text;
  },
  async refused() {
    await client.responses.delete(previous); // the goodbye
    for (const use of [(id) => client.responses.retrieve(id), (id) => client.responses.delete(id)]) {
      const e = await use(previous).catch((e) => e);
      if (e.status !== 404 || e.code !== 'not_found' || !e.message.includes(previous)) throw new Error(`a deleted response: ${e}`);
    }
    try {
      await client.responses.create({ model, input: 'x', previous_response_id: 'resp_none_1' });
    } catch (e) {
      if (e.code !== 'previous_response_not_found' || e.status !== 400) throw e;
    }
    try {
      await new OpenAI({ baseURL: unknownURL, apiKey: 'any', maxRetries: 0 }).responses.create({ model, input: 'x' });
    } catch (e) {
      return { status: e.status, message: e.message };
    }
  },
});
