import { given } from './http.js';

/**
 * Returns a middleware for wrapLanguageModel of the AI SDK that keeps one agent's memory: send only
 * what is new. Before each step it puts the conversation as it was heard in front; after it, it
 * stores the new messages and the answer. An answer whose stream was cut is stored as far as it went.
 */
export function memory(agent, { onError = (err) => console.warn(`heardlog: ${err?.message ?? err}`) } = {}) {
  const fresh = new WeakMap(); // what is new of a call's prompt, by its parameters
  const store = async (params, answer, cut) => {
    const messages = (fresh.get(params) ?? []).flatMap(toMessages);
    const calls = answer.calls.map((c) => ({ id: c.toolCallId, type: 'function', function: { name: c.toolName, arguments: c.input } }));
    if (answer.text || calls.length > 0) {
      messages.push(given({ role: 'assistant', content: answer.text || null, tool_calls: calls.length > 0 ? calls : undefined }));
    }
    try {
      const stored = messages.length > 0 ? await agent.append(messages) : [];
      // What was heard is known better once it is reported: agent.interrupt({ heard }).
      if (cut && answer.text) await agent.interrupt({ turnId: stored.at(-1).turn_id });
    } catch (err) {
      onError(err);
    }
  };
  return {
    specificationVersion: 'v4',

    async transformParams({ params }) {
      const system = params.prompt.filter((m) => m.role === 'system');
      const rest = params.prompt.filter((m) => m.role !== 'system');
      const added = rest.slice(rest.findLastIndex((m) => m.role === 'assistant') + 1);
      try {
        const { messages } = await agent.context();
        const out = { ...params, prompt: [...system, ...toPrompt(messages), ...added] };
        fresh.set(out, added);
        return out;
      } catch (err) {
        onError(err);
        fresh.set(params, added);
        return params;
      }
    },

    async wrapGenerate({ doGenerate, params }) {
      const result = await doGenerate();
      const text = result.content.filter((c) => c.type === 'text').map((c) => c.text).join('');
      await store(params, { text, calls: result.content.filter((c) => c.type === 'tool-call' && !c.providerExecuted) }, false);
      return result;
    },

    async wrapStream({ doStream, params }) {
      const answer = { text: '', calls: [] };
      let stored;
      const end = (cut) => (stored ??= store(params, answer, cut));
      params.abortSignal?.addEventListener('abort', () => end(true), { once: true });
      const { stream, ...rest } = await doStream();
      const reader = stream.getReader();
      return {
        ...rest,
        stream: new ReadableStream({
          async pull(controller) {
            try {
              const { done, value } = await reader.read();
              if (done) {
                await end(false);
                controller.close();
                return;
              }
              if (value.type === 'text-delta') answer.text += value.delta;
              if (value.type === 'tool-call' && !value.providerExecuted) answer.calls.push(value);
              if (value.type === 'finish') await end(false); // the next step needs it
              controller.enqueue(value);
            } catch (err) {
              if (answer.text) await end(true);
              controller.error(err);
            }
          },
          async cancel(reason) {
            await Promise.all([end(true), reader.cancel(reason)]);
          },
        }),
      };
    },
  };
}

/** Returns the messages of Heardlog for one message of a prompt. */
function toMessages(m) {
  if (m.role === 'tool') {
    return m.content.filter((p) => p.type === 'tool-result').map((p) => ({ role: 'tool', tool_call_id: p.toolCallId, name: p.toolName, content: resultText(p.output) }));
  }
  const texts = m.content.filter((p) => p.type === 'text');
  if (m.role !== 'user' || texts.length === 0) return [];
  return [{ role: 'user', content: texts.map((p) => p.text).join('\n') }];
}

function resultText(output) {
  if (typeof output?.value === 'string') return output.value;
  return JSON.stringify(output?.value ?? output?.reason ?? null);
}

/** Returns a prompt of the AI SDK for messages in OpenAI's form. */
function toPrompt(messages) {
  const names = new Map();
  const out = [];
  for (const m of messages) {
    const text = typeof m.content === 'string' ? m.content : (m.content ?? []).map((p) => p.text ?? '').join('\n');
    if (m.role === 'system' || m.role === 'developer') {
      out.push({ role: 'system', content: text });
    } else if (m.role === 'user') {
      out.push({ role: 'user', content: [{ type: 'text', text }] });
    } else if (m.role === 'assistant') {
      const calls = (m.tool_calls ?? []).map((c) => {
        names.set(c.id, c.function.name);
        return { type: 'tool-call', toolCallId: c.id, toolName: c.function.name, input: parsed(c.function.arguments) };
      });
      const content = [...(text ? [{ type: 'text', text }] : []), ...calls];
      if (content.length > 0) out.push({ role: 'assistant', content });
    } else if (m.role === 'tool') {
      const result = { type: 'tool-result', toolCallId: m.tool_call_id, toolName: m.name ?? names.get(m.tool_call_id) ?? 'tool', output: { type: 'text', value: text } };
      if (out.at(-1)?.role === 'tool') out.at(-1).content.push(result);
      else out.push({ role: 'tool', content: [result] });
    }
  }
  return out;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}
