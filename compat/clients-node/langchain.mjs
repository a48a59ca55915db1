// LangChain's chat model for OpenAI.
import { AIMessage, HumanMessage, SystemMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { ChatOpenAI } from '@langchain/openai';
import { baseURL, lookUp, model, play, system, timetable, unknownURL } from './call.mjs';

const modelAt = (baseURL) => new ChatOpenAI({ model, apiKey: 'any', maxRetries: 0, configuration: { baseURL } });
const chat = modelAt(baseURL);
const messages = [new SystemMessage(system)];

// read reads a stream to its end, and returns the message that its pieces make.
async function read(stream) {
  let whole;
  for await (const piece of stream) whole = whole ? whole.concat(piece) : piece;
  messages.push(whole);
  return whole;
}

await play({
  async say(text) {
    messages.push(new HumanMessage(text));
    return (await read(await chat.stream(messages))).text;
  },
  async interrupt(text, n, heard) {
    messages.push(new HumanMessage(text));
    const leave = new AbortController();
    const pieces = [];
    try {
      for await (const piece of await chat.stream(messages, { signal: leave.signal })) {
        if (piece.text) pieces.push(piece.text);
        if (pieces.length === n) leave.abort();
      }
    } catch (e) {
      if (!leave.signal.aborted) throw e;
    }
    messages.push(new AIMessage(heard));
    return pieces;
  },
  async call(text) {
    const lookup = tool(lookUp, { name: timetable.name, description: timetable.description, schema: timetable.parameters });
    const withTool = chat.bindTools([lookup]);
    messages.push(new HumanMessage(text));
    const { tool_calls } = await read(await withTool.stream(messages));
    for (const call of tool_calls) messages.push(await lookup.invoke(call));
    return (await read(await withTool.stream(messages))).text;
  },
  async refused() {
    try {
      await modelAt(unknownURL).invoke(messages);
    } catch (e) {
      return { status: e.status, message: e.message };
    }
  },
});
