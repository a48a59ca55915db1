// Uses the package as a program in TypeScript does. It is checked, and not run.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { voice } from '@livekit/agents';
import { run, Agent as Assistant, type Session as AgentsSession } from '@openai/agents';
import { wrapLanguageModel } from 'ai';
import { Heardlog, HeardlogError, Reporter, type Agent } from 'heardlog';
import { memory } from 'heardlog/ai-sdk';
import { attach, llmOptions } from 'heardlog/livekit';
import { Session } from 'heardlog/openai-agents';
import { Verifier, type Event } from 'heardlog/webhooks';
import OpenAI from 'openai';

const log = new Heardlog({ url: 'http://127.0.0.1:8080', secret: 's' });
const agent: Agent = await log.start('desk', { userId: 'anna', labels: { a: 'b' } });
export const client = new OpenAI(agent.openai());
const stored = await agent.append([{ role: 'user', content: 'Hello' }]);
export const seq: number = stored[0].seq;
for await (const m of agent.messages({ afterSeq: 1 })) console.log(m.heard);
await agent.interrupt({ heard: 'Hel' });
export const model = wrapLanguageModel({ model: createOpenAICompatible({ name: 'x', baseURL: 'http://x' }).chatModel('m'), middleware: memory(agent) });
const session: AgentsSession = new Session(agent);
await run(new Assistant({ name: 'a' }), 'Hello', { session });
const call = new voice.AgentSession({});
export const attached = attach(call, { jobId: 'AJ_1', client: log, join: { userId: 'anna' } });
export const options: ConstructorParameters<typeof OpenAI>[0] = llmOptions('AJ_1');
export const event: Event = await new Verifier(['whsec_x']).verify(new Request('http://x'));
const reporter = new Reporter(log, 'livekit', { 'X-LiveKit-Job-ID': 'AJ_1' }, { limit: 10 });
reporter.send({ type: 'close' });
try {
  await log.facts('anna').add('x', { topics: ['y'] });
} catch (err) {
  if (err instanceof HeardlogError) console.log(err.field, err.reason, err.requestId);
}
// @ts-expect-error: a name is a text
await log.start(5);
