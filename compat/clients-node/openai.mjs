// OpenAI's own client.
import OpenAI from 'openai';
import { baseURL, lookUp, model, play, system, timetable, unknownURL } from './call.mjs';

const client = new OpenAI({ baseURL, apiKey: 'any', maxRetries: 0 });
const messages = [{ role: 'system', content: system }];
const ask = (content) => messages.push({ role: 'user', content });

await play({
  async say(text) {
    ask(text);
    const answer = await client.chat.completions.stream({ model, messages, stream_options: { include_usage: true } }).finalContent();
    messages.push({ role: 'assistant', content: answer });
    return answer;
  },
  async interrupt(text, n, heard) {
    ask(text);
    const stream = await client.chat.completions.create({ model, messages, stream: true });
    const pieces = [];
    for await (const chunk of stream) {
      pieces.push(chunk.choices[0].delta.content);
      if (pieces.length === n) break; // which ends the request
    }
    messages.push({ role: 'assistant', content: heard });
    return pieces;
  },
  async call(text) {
    ask(text);
    const tools = [{ type: 'function', function: { ...timetable, parse: JSON.parse, function: lookUp } }];
    const runner = client.chat.completions.runTools({ model, messages, tools, stream: true });
    const answer = await runner.finalContent();
    messages.splice(0, messages.length, ...runner.messages);
    return answer;
  },
  async refused() {
    const models = await client.models.list();
    if (models.data[0].id !== model) throw new Error(`models: ${JSON.stringify(models)}`);
    try {
      await new OpenAI({ baseURL: unknownURL, apiKey: 'any', maxRetries: 0 }).chat.completions.create({ model, messages });
    } catch (e) {
      return { status: e.status, message: e.message };
    }
  },
});
