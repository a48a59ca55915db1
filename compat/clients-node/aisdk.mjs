// Vercel's AI SDK, with the provider that the variable PROVIDER names: openai, compatible, or
// responses, which is openai's default.
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, isStepCount, jsonSchema, streamText, tool } from 'ai';
import { baseURL, lookUp, model, play, system, take, timetable, unknownURL } from './call.mjs';

function modelAt(baseURL) {
  if (process.env.PROVIDER === 'responses') return createOpenAI({ baseURL, apiKey: 'any' })(model);
  if (process.env.PROVIDER === 'openai') return createOpenAI({ baseURL, apiKey: 'any' }).chat(model);
  return createOpenAICompatible({ name: 'heardlog', baseURL, apiKey: 'any' }).chatModel(model);
}

const settings = { model: modelAt(baseURL), instructions: system, maxRetries: 0 };
const messages = [];
const ask = (content) => messages.push({ role: 'user', content });

await play({
  async say(text) {
    ask(text);
    const result = streamText({ ...settings, messages });
    const answer = await result.text;
    messages.push(...(await result.response).messages);
    return answer;
  },
  async interrupt(text, n, heard) {
    ask(text);
    const leave = new AbortController();
    const result = streamText({ ...settings, messages, abortSignal: leave.signal });
    const pieces = await take(result.textStream, n);
    leave.abort();
    messages.push({ role: 'assistant', content: heard });
    return pieces;
  },
  async call(text) {
    ask(text);
    const tools = { [timetable.name]: tool({ description: timetable.description, inputSchema: jsonSchema(timetable.parameters), execute: lookUp }) };
    const result = streamText({ ...settings, messages, tools, stopWhen: isStepCount(2) });
    const answer = await result.text;
    messages.push(...(await result.response).messages);
    return answer;
  },
  async refused() {
    try {
      await generateText({ ...settings, model: modelAt(unknownURL), messages });
    } catch (e) {
      return { status: e.statusCode, message: e.message };
    }
  },
});
