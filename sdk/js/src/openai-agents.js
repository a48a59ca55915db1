import { given } from './http.js';

/**
 * A session of OpenAI's Agents SDK that is one agent's memory: run(agent, text, { session }).
 * An answer that was cut comes back as it was heard. Messages, function calls and their results are
 * kept; a provider's own items, such as reasoning, are not.
 */
export class Session {
  #agent;

  constructor(agent) {
    this.#agent = agent;
  }

  async getSessionId() {
    return this.#agent.id;
  }

  async getItems(limit) {
    if (limit !== undefined && limit <= 0) return [];
    const items = toItems((await this.#agent.snapshot()).messages);
    return limit === undefined ? items : items.slice(-limit);
  }

  async addItems(items) {
    const messages = toMessages(items);
    if (messages.length > 0) await this.#agent.append(messages);
  }

  async popItem() {
    const memory = await this.#agent.snapshot();
    const last = memory.messages.at(-1);
    if (!last) return undefined;
    const item = toItems(memory.messages).at(-1);
    const calls = last.tool_calls ?? [];
    if (calls.length > 1 || (calls.length === 1 && last.content)) {
      const { tool_calls, ...rest } = last;
      memory.messages[memory.messages.length - 1] = { ...rest, ...given({ tool_calls: calls.length > 1 ? calls.slice(0, -1) : undefined }) };
    } else {
      memory.messages.pop();
    }
    await this.#agent.restore({ messages: memory.messages, summary: memory.summary });
    return item;
  }

  async clearSession() {
    await this.#agent.clear();
  }
}

/** Returns the messages of Heardlog for items. Calls join the answer before them. */
function toMessages(items) {
  const out = [];
  for (const item of items) {
    if (item.type === 'function_call') {
      const call = { id: item.callId, type: 'function', function: { name: item.name, arguments: item.arguments } };
      const last = out.at(-1);
      if (last?.role === 'assistant') (last.tool_calls ??= []).push(call);
      else out.push({ role: 'assistant', content: null, tool_calls: [call] });
    } else if (item.type === 'function_call_result') {
      out.push(given({ role: 'tool', tool_call_id: item.callId, name: item.name, content: outputText(item.output) }));
    } else if (item.type === undefined || item.type === 'message') {
      const text = typeof item.content === 'string' ? item.content : item.content.map((p) => p.text ?? p.refusal ?? p.transcript ?? '').filter(Boolean).join('\n');
      if (text || item.role === 'user') out.push({ role: item.role, content: text });
    }
  }
  return out;
}

function outputText(output) {
  if (typeof output === 'string') return output;
  if (Array.isArray(output)) return output.map((p) => p.text ?? '').join('\n');
  return output?.text ?? JSON.stringify(output ?? null);
}

/** Returns the items of messages in OpenAI's form. */
function toItems(messages) {
  const names = new Map();
  return messages.flatMap((m) => {
    const text = typeof m.content === 'string' ? m.content : (m.content ?? []).map((p) => p.text ?? '').join('\n');
    switch (m.role) {
      case 'user':
      case 'system':
        return [{ type: 'message', role: m.role, content: text }];
      case 'assistant': {
        const said = text ? [{ type: 'message', role: 'assistant', status: 'completed', content: [{ type: 'output_text', text }] }] : [];
        const calls = (m.tool_calls ?? []).map((c) => {
          names.set(c.id, c.function.name);
          return { type: 'function_call', callId: c.id, name: c.function.name, arguments: c.function.arguments, status: 'completed' };
        });
        return [...said, ...calls];
      }
      case 'tool':
        return [{ type: 'function_call_result', callId: m.tool_call_id, name: m.name ?? names.get(m.tool_call_id) ?? 'tool', status: 'completed', output: { type: 'text', text } }];
      default:
        return [];
    }
  });
}
