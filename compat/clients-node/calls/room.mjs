// What stands around an AgentSession instead of a room: ears that hear by script, a voice that makes
// PCM at a speaking rate, and a loudspeaker that plays by its own clock and keeps what it played.
import { stt, tts, voice } from '@livekit/agents';
import { AudioFrame } from '@livekit/rtc-node';
import { inside } from './inside.mjs';

export const RATE = 8000;
const { speechHandleStorage, TranscriptionSynchronizer, defaultTextSyncOptions } = await inside();

// Ears is speech recognition by script: hear() and its helpers put events into the open stream.
export class Ears extends stt.STT {
  label = 'ears';
  #open = new Set();
  constructor() {
    super({ streaming: true, interimResults: true });
  }
  async _recognize() {
    throw new Error('not used');
  }
  stream(options) {
    const stream = new EarStream(this, undefined, options?.connOptions);
    this.#open.add(stream);
    return stream;
  }
  hear(type, text) {
    const alternatives = text === undefined ? undefined : [{ language: 'en', text, startTime: 0, endTime: 0, confidence: 1 }];
    for (const stream of this.#open) stream.hear({ type, alternatives });
  }
}

class EarStream extends stt.SpeechStream {
  label = 'ears';
  hear(event) {
    if (!this.queue.closed) this.queue.put(event);
  }
  async run() {
    await new Promise((done) => this.abortController.signal.addEventListener('abort', done, { once: true }));
  }
  close() {
    this.abortController.abort();
    super.close();
  }
}

// Voice speaks each word as long as it takes. The samples of a word have its number as their value,
// so that the loudspeaker knows what it played. spoken maps a number to its word.
export class Voice extends tts.TTS {
  label = 'voice';
  spoken = [null]; // number → {line, index}
  lines = []; // {speech, step, words, heard}
  constructor(r, wordTimes) {
    super(RATE, 1, { streaming: true, alignedTranscript: wordTimes });
    this.r = r;
    this.wordTimes = wordTimes;
    this.pace = r.between(0.85, 1.2);
  }
  synthesize() {
    throw new Error('not used');
  }
  stream(options) {
    const handle = speechHandleStorage.getStore();
    const line = { speech: handle, step: handle?.numSteps, words: [], samples: [], started: 0, stopped: 0 };
    this.lines.push(line);
    return new VoiceStream(this, line, options?.connOptions);
  }
}

class VoiceStream extends tts.SynthesizeStream {
  label = 'voice';
  constructor(owner, line, options) {
    super(owner, options);
    this.owner = owner;
    this.line = line;
  }
  async run() {
    let text = '';
    for await (const piece of this.input) {
      if (this.abortSignal.aborted) return;
      if (piece === tts.SynthesizeStream.FLUSH_SENTINEL) continue;
      text += piece;
      // A word is spoken once the next has begun.
      for (let end; (end = text.search(/\s\S/)) >= 0; text = text.slice(end + 1)) this.speak(text.slice(0, end).trim());
    }
    if (text.trim()) this.speak(text.trim());
    this.queue.put(tts.SynthesizeStream.END_OF_STREAM);
  }
  speak(word) {
    const { owner, line } = this;
    this.markStarted();
    const letters = word.replace(/\W/g, '').length;
    let seconds = (0.14 + 0.055 * letters) * owner.pace * owner.r.between(0.85, 1.15);
    const pause = /[.?!]$/.test(word) ? 0.35 : /,$/.test(word) ? 0.15 : 0.02;
    const start = line.length ?? 0;
    const number = owner.spoken.push({ line, index: line.words.length }) - 1;
    const samples = Math.round(seconds * RATE);
    line.words.push(word);
    line.samples.push({ all: samples, played: 0 });
    line.length = start + seconds + pause;
    const frames = [...cut(samples, number), ...cut(Math.round(pause * RATE), 0)];
    frames.forEach((frame, i) =>
      this.queue.put({
        requestId: 'r',
        segmentId: 's',
        frame,
        final: false,
        timedTranscripts: owner.wordTimes && i === 0 ? [voice.createTimedString({ text: `${word} `, startTime: start, endTime: start + seconds })] : undefined,
      }),
    );
  }
}

// cut returns samples of one value in frames of at most 50 ms.
function cut(samples, value) {
  const frames = [];
  for (let left = samples; left > 0; left -= RATE / 20) {
    const n = Math.min(left, RATE / 20);
    frames.push(new AudioFrame(new Int16Array(n).fill(value), RATE, 1, n));
  }
  return frames;
}

// Loudspeaker plays segments in real time. Its truth: line.samples[i].played of each word.
export class Loudspeaker extends voice.AudioOutput {
  #segments = [];
  #last = 0;
  #paused = false;
  #timer;
  constructor(owner) {
    super(RATE, undefined, { pause: true });
    this.owner = owner;
  }
  async captureFrame(frame) {
    await super.captureFrame(frame);
    let segment = this.#segments.at(-1);
    if (!segment || segment.ended) this.#segments.push((segment = { frames: [], at: 0, offset: 0, played: 0, ended: false, started: false }));
    segment.frames.push({ value: frame.data[0], samples: frame.samplesPerChannel });
    this.#timer ??= setInterval(() => this.#tick(), 20);
    this.#tick();
  }
  flush() {
    super.flush();
    const segment = this.#segments.at(-1);
    if (segment) segment.ended = true;
    this.#tick();
  }
  clearBuffer() {
    this.#tick();
    const segments = this.#segments;
    this.#segments = [];
    for (const s of segments) this.#finish(s, true);
  }
  pause() {
    this.#tick();
    this.#paused = true;
  }
  resume() {
    this.#tick();
    this.#paused = false;
  }
  get playing() {
    return !this.#paused && this.#segments.length > 0 && this.#segments[0].started;
  }
  #tick() {
    const now = performance.now();
    let samples = this.#last && !this.#paused ? Math.round(((now - this.#last) / 1000) * RATE) : 0;
    this.#last = now;
    while (this.#segments.length > 0 && !this.#paused) {
      const s = this.#segments[0];
      if (!s.started && s.frames.length > 0) {
        s.started = true;
        samples = 0; // it begins now
        this.onPlaybackStarted(Date.now());
      }
      while (samples > 0 && s.at < s.frames.length) {
        const frame = s.frames[s.at];
        const n = Math.min(samples, frame.samples - s.offset);
        this.#keep(frame.value, n);
        s.played += n;
        s.offset += n;
        samples -= n;
        if (s.offset === frame.samples) [s.at, s.offset] = [s.at + 1, 0];
      }
      if (!s.ended || s.at < s.frames.length) break;
      this.#segments.shift();
      this.#finish(s, false);
    }
    if (this.#segments.length === 0) {
      clearInterval(this.#timer);
      this.#timer = undefined;
      this.#last = 0;
    }
  }
  #keep(number, samples) {
    if (number === 0) return;
    const { line, index } = this.owner.spoken[number];
    line.samples[index].played += samples;
    line.started ||= Date.now();
    line.stopped = Date.now();
  }
  #finish(segment, interrupted) {
    this.onPlaybackFinished({ playbackPosition: segment.played / RATE, interrupted });
  }
}

class Nowhere {
  async captureText() {}
  flush() {}
  onAttached() {}
  onDetached() {}
}

// outputs gives a session the loudspeaker, with LiveKit's own transcript synchronizer or without.
export function outputs(session, speaker, synchronized) {
  if (!synchronized) {
    session.output.audio = speaker;
    return;
  }
  const sync = new TranscriptionSynchronizer(speaker, new Nowhere(), { ...defaultTextSyncOptions });
  session.output.audio = sync.audioOutput;
  session.output.transcription = sync.textOutput;
}

// heardOf returns how many words of a line were heard: at least half of their samples were played.
export function heardOf(line) {
  return line.samples.filter((s) => s.played * 2 >= s.all).length;
}
