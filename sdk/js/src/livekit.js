import { Heardlog } from './client.js';
import { HeardlogError } from './errors.js';
import { text } from './http.js';
import { Reporter } from './reporter.js';

// The session's events that say who spoke, when, and what was heard.
const EVENTS = [
  'conversation_item_added',
  'agent_state_changed',
  'user_state_changed',
  'user_input_transcribed',
  'speech_created',
  'agent_false_interruption',
  'function_tools_executed',
  'metrics_collected',
];

// Where a frame of audio has the words that begin in it.
const TIMED = 'lk.timed_transcripts';

const headersOf = (jobId) => ({ 'X-LiveKit-Job-ID': text('jobId', jobId) });

// How long a request waits for the job's agent to be started, and for earlier events, in ms.
const START = 2000;
const EARLIER = 300;

const waits = new Map(); // by the job's ID

/**
 * Returns the options of an OpenAI client whose requests name the call by the job's ID:
 * new LLM({ client: new OpenAI(llmOptions(jobId)), model }). A request waits a moment for the events
 * before it, since its prompt depends on them.
 */
export function llmOptions(jobId, { client = new Heardlog() } = {}) {
  const fetch = async (...args) => {
    await waits.get(jobId)?.();
    return client.fetch(...args);
  };
  return { ...client.openai(headersOf(jobId)), fetch };
}

/**
 * Starts the job's agent and forwards the session's events in their order. Call it before
 * session.start(). It returns a handle: await its close() when the job shuts down.
 */
export function attach(session, { jobId, client = new Heardlog(), join = {}, ...settings }) {
  const headers = headersOf(jobId);
  const log = settings.log ?? ((line) => console.warn(line));
  const ready = join === false ? Promise.resolve() : start(client, jobId, join, log);
  const reporter = new Reporter(client, 'livekit', headers, { ...settings, log, after: ready });
  const wait = async () => {
    await within(START, ready);
    await reporter.flush(EARLIER);
  };
  waits.set(jobId, wait);
  const played = new Playback(session);
  const tagged = new WeakSet();
  let running = false;
  for (const type of EVENTS) {
    session.on(type, (event) => {
      running = true;
      try {
        tag(session.llm, tagged);
        tag(agentOf(session)?.llm, tagged); // an agent may have its own
        played.listen();
        const made = shape(type, event, played);
        if (made) reporter.send(made);
      } catch (err) { // never into the session
        log(`heardlog: ${type}: ${err?.message ?? err}`);
      }
    });
  }
  let over;
  const ended = new Promise((resolve) => (over = resolve));
  session.on('close', ({ reason, createdAt }) => {
    over();
    reporter.send({ type: 'close', created_at: createdAt, reason: String(reason), chat_history: snake(session.history.toJSON({ excludeTimestamp: false })) });
  });
  tag(session.llm, tagged);
  return {
    reporter,
    ready,
    flush: (timeout) => reporter.flush(timeout),
    async close(timeout = 5000) {
      const end = Date.now() + timeout;
      if (running) await within(timeout, ended); // the session may still be closing
      await reporter.close(Math.max(0, end - Date.now()));
      if (waits.get(jobId) === wait) waits.delete(jobId);
    },
  };
}

function agentOf(session) {
  try {
    return session.currentAgent;
  } catch {
    return undefined; // it is not running
  }
}

function within(ms, promise) {
  let timer;
  return Promise.race([promise, new Promise((resolve) => (timer = setTimeout(resolve, ms)))]).finally(() => clearTimeout(timer));
}

// start joins the job's agent, so that events before the first request have one. If a request was
// faster, the agent is there already.
async function start(client, jobId, { name, keys = [], ...options }, log) {
  const key = `livekit.job:${jobId}`;
  try {
    await client.start(name ?? key, { ...options, keys: [key, ...keys] });
  } catch (err) {
    if (!(err instanceof HeardlogError && err.status === 409)) log(`heardlog: the agent of ${key} could not be started: ${err?.message ?? err}`);
  }
}

/** Returns what is sent of an event, or undefined if it says nothing. */
function shape(type, event, played) {
  const out = { type, created_at: event.createdAt };
  switch (type) {
    case 'conversation_item_added': {
      const item = snake(event.item.toJSON());
      if (item.content) item.content = item.content.filter((part) => typeof part === 'string' || part.transcript); // no pictures or sound
      if (item.role === 'assistant') out.playback = played.of(event.item);
      return { ...out, item };
    }
    case 'user_input_transcribed':
      if (!event.isFinal) return undefined;
      return { ...out, transcript: event.transcript, is_final: true, language: event.language, item_id: event.itemId };
    case 'speech_created':
      return { ...out, user_initiated: event.userInitiated, source: event.source, speech_id: event.speechHandle.id };
    case 'agent_false_interruption':
      return { ...out, resumed: event.resumed };
    case 'function_tools_executed':
      return { ...out, function_calls: event.functionCalls.map((c) => snake(c.toJSON())), function_call_outputs: event.functionCallOutputs.map((o) => o && snake(o.toJSON())) };
    case 'metrics_collected':
      if (!event.metrics.speechId) return undefined; // those of voice detection come all the time
      return { ...out, metrics: snake(event.metrics) };
    default:
      return { ...out, old_state: event.oldState, new_state: event.newState };
  }
}

// snake returns a value with the names of its members in snake_case, as LiveKit in Python has them.
// What a provider added (extra) stays as it is.
function snake(value) {
  if (Array.isArray(value)) return value.map(snake);
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([name, v]) => [name.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`), name === 'extra' ? v : snake(v)]));
}

// tag lets each answer name the stream that it came from. LiveKit keeps a chunk's extra in the
// committed item, and sends the member livekit of it back with later requests.
function tag(llm, tagged) {
  if (!llm || tagged.has(llm) || typeof llm.chat !== 'function') return;
  tagged.add(llm);
  const chat = llm.chat;
  llm.chat = function (...args) {
    const stream = chat.apply(this, args);
    const next = stream.next;
    stream.next = async function () {
      const result = await next.call(this);
      const chunk = result.value;
      if (chunk?.id && chunk.delta) chunk.delta.extra = { ...chunk.delta.extra, livekit: { ...chunk.delta.extra?.livekit, heardlog: chunk.id } };
      return result;
    };
    return stream;
  };
}

// Playback keeps how much of each stretch of audio was played, and its words if the voice gives
// their times. The output may be set at any time.
class Playback {
  #session;
  #output;
  #words = []; // of the stretch that is being captured or played
  #ended = [];

  constructor(session) {
    this.#session = session;
  }

  listen() {
    const output = this.#session.output?.audio;
    if (!output || output === this.#output || typeof output.captureFrame !== 'function') return;
    this.#output = output;
    const capture = output.captureFrame;
    output.captureFrame = (frame, ...more) => {
      for (const { text, startTime, endTime } of frame?.userdata?.[TIMED] ?? []) {
        if (endTime !== undefined) this.#words.push({ text, start: startTime ?? endTime, end: endTime });
      }
      return capture.call(output, frame, ...more);
    };
    output.on('playbackFinished', ({ playbackPosition, interrupted, synchronizedTranscript }) => {
      this.#ended.push({ at: Date.now(), position: playbackPosition, interrupted: !!interrupted, words: this.#words, transcript: synchronizedTranscript });
      this.#words = [];
      if (this.#ended.length > 100) this.#ended.shift();
    });
  }

  /** Returns what was played of an item, which is committed right after: seconds, and words with their times. */
  of(item) {
    const started = (item.metrics?.startedSpeakingAt ?? Infinity) * 1000;
    const own = this.#ended.filter(({ at }) => at >= started);
    this.#ended = [];
    if (own.length === 0) return undefined;
    let position = 0;
    const words = [];
    for (const stretch of own) {
      for (const { text, start, end } of stretch.words) words.push({ text, start: position + start, end: position + end });
      position += stretch.position;
    }
    const said = own.map(({ transcript }) => transcript ?? '').join('').trim();
    return {
      playback_position: position,
      interrupted: own.at(-1).interrupted,
      words: words.length > 0 ? words : undefined,
      synchronized: said !== '' && said === (item.textContent ?? '').trim(), // otherwise LiveKit has kept all of the text
    };
  }
}
