// OpenAI's Agents SDK, with the API that the variable API names: chat_completions or responses.
import { Agent, assistant, OpenAIProvider, run, Runner, setDefaultOpenAIClient, setOpenAIAPI, setTracingDisabled, tool, user } from '@openai/agents';
import OpenAI from 'openai';
import { baseURL, lookUp, model, play, system, take, timetable, unknownURL } from './call.mjs';

const clientAt = (baseURL) => new OpenAI({ baseURL, apiKey: 'any', maxRetries: 0 });
setOpenAIAPI(process.env.API);
setTracingDisabled(true);
setDefaultOpenAIClient(clientAt(baseURL));

const agent = new Agent({ name: 'desk', instructions: system, model });
const withTool = new Agent({ name: 'desk', instructions: system, model, tools: [tool({ ...timetable, execute: lookUp })] });
let messages = [];

async function say(agent, text) {
  const result = await run(agent, [...messages, user(text)], { stream: true });
  await result.completed;
  messages = result.history;
  return result.finalOutput;
}

await play({
  say: (text) => say(agent, text),
  async interrupt(text, n, heard) {
    const leave = new AbortController();
    const asked = [...messages, user(text)];
    const result = await run(agent, asked, { stream: true, signal: leave.signal });
    const pieces = await take(result.toTextStream(), n);
    leave.abort();
    messages = [...asked, assistant(heard)];
    return pieces;
  },
  call: (text) => say(withTool, text),
  async refused() {
    const modelProvider = new OpenAIProvider({ openAIClient: clientAt(unknownURL), useResponses: process.env.API === 'responses' });
    try {
      await new Runner({ modelProvider }).run(agent, messages);
    } catch (e) {
      return { status: e.status, message: e.message };
    }
  },
});
