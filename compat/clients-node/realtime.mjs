// OpenAI's own client in realtime mode.
import OpenAI from 'openai';
import { OpenAIRealtimeWS } from 'openai/realtime/ws';

const [baseURL, apiKey] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey });
const rt = new OpenAIRealtimeWS({ model: 'gpt-realtime' }, client);
const next = (type) => new Promise((resolve) => rt.once(type, resolve));
rt.on('error', (e) => {
  console.log(`error ${e.message}`);
  process.exit(1);
});
await next('session.created');
rt.send({ type: 'session.update', session: { type: 'realtime', instructions: 'Be kind.' } });
await next('session.updated');
rt.send({ type: 'input_audio_buffer.append', audio: Buffer.alloc(4800).toString('base64') });
rt.send({ type: 'input_audio_buffer.commit' });
await next('conversation.item.input_audio_transcription.completed');
const done = next('response.done');
rt.send({ type: 'response.create' });
const { response } = await done;
const truncated = next('conversation.item.truncated');
rt.send({ type: 'conversation.item.truncate', item_id: response.output[0].id, content_index: 0, audio_end_ms: 1100 });
await truncated;
console.log(`done ${response.output[0].content[0].transcript}`);
rt.close();
process.exit(0);
