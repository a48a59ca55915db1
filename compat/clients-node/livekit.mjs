// The LLM of LiveKit Agents' plugin for OpenAI.
import { initializeLogger, llm } from '@livekit/agents';
import { LLM } from '@livekit/agents-plugin-openai';
import { baseURL, lookUp, model, play, system, timetable, unknownURL } from './call.mjs';

initializeLogger({ pretty: false, level: 'silent' });
const modelAt = (baseURL) => new LLM({ model, baseURL, apiKey: 'any' });
const chat = modelAt(baseURL);
const chatCtx = llm.ChatContext.empty();
chatCtx.addMessage({ role: 'system', content: system });

// read reads an answer to its end, keeps it, and returns its text and calls.
async function read(toolCtx) {
  let text = '';
  const calls = [];
  for await (const { delta } of chat.chat({ chatCtx, toolCtx })) {
    text += delta?.content ?? '';
    calls.push(...(delta?.toolCalls ?? []));
  }
  if (text) chatCtx.addMessage({ role: 'assistant', content: text });
  return { text, calls };
}

await play({
  async say(text) {
    chatCtx.addMessage({ role: 'user', content: text });
    return (await read()).text;
  },
  async interrupt(text, n, heard) {
    chatCtx.addMessage({ role: 'user', content: text });
    const stream = chat.chat({ chatCtx });
    const pieces = [];
    for await (const { delta } of stream) {
      if (delta?.content) pieces.push(delta.content);
      if (pieces.length === n) break;
    }
    stream.close();
    chatCtx.addMessage({ role: 'assistant', content: heard, interrupted: true });
    return pieces;
  },
  async call(text) {
    chatCtx.addMessage({ role: 'user', content: text });
    const toolCtx = new llm.ToolContext([llm.tool({ ...timetable, execute: lookUp })]);
    const { calls } = await read(toolCtx);
    for (const { callId, name, args } of calls) {
      chatCtx.insert(new llm.FunctionCall({ callId, name, args }));
      chatCtx.insert(new llm.FunctionCallOutput({ callId, name, output: await lookUp(JSON.parse(args)), isError: false }));
    }
    return (await read(toolCtx)).text;
  },
  // LiveKit reports errors as events. Its classes of errors keep the status only where the package
  // openai is installed once, so this takes it from the text.
  async refused() {
    const lost = modelAt(unknownURL);
    const failed = new Promise((resolve) => lost.on('error', ({ error }) => resolve(error.message)));
    const read = async () => {
      for await (const _ of lost.chat({ chatCtx, connOptions: { maxRetry: 0, retryIntervalMs: 1, timeoutMs: 60000 } }));
    };
    await read().catch(() => {});
    const message = await failed;
    return { status: parseInt(message, 10), message };
  },
});
