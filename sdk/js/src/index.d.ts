/** A value of JSON as the API returns it: names are in snake_case. */
export type Json = Record<string, any>;

export interface Settings {
  /** Base URL of the API. Default: HEARDLOG_URL, or http://127.0.0.1:8080/v1. Without a path, /v1 is added. */
  url?: string;
  /** Secret of a key, or id:secret. Default: HEARDLOG_SECRET. A server without credentials needs none. */
  secret?: string;
  /** How long to wait for an answer, in ms. Default: 30,000. */
  timeout?: number;
  /** How often a call is repeated after a network error or a 408, 429, 502, 503 or 504. Default: 3. */
  retries?: number;
  /** Headers to send with each call. */
  headers?: Record<string, string>;
  /** Used instead of the global fetch. */
  fetch?: typeof globalThis.fetch;
}

export interface RequestOptions {
  body?: unknown;
  query?: Record<string, string | number | boolean | undefined>;
  headers?: Record<string, string>;
  /** The Idempotency-Key. A POST with one is repeated after a failure. */
  key?: string;
  /** Whether a POST may be repeated without a key. */
  repeatable?: boolean;
  retries?: number;
  signal?: AbortSignal;
}

export interface StartOptions {
  /** Whose call it is: memory, recall and facts belong to the caller. */
  userId?: string;
  sessionId?: string;
  /** The system message. */
  system?: string;
  greeting?: string;
  labels?: Record<string, string>;
  /** Keys by which requests and events find the agent, such as "vapi.call:91c3". */
  keys?: string[];
  /** Seconds of silence after which the agent ends by itself. */
  idleTimeout?: number;
  /** What of the caller's earlier calls goes into prompts: properties.heardlog.remember. */
  remember?: Json | string;
  /** Further properties. They win over the options above. */
  properties?: Json;
  /** Take the running agent that has the name, instead of an error. */
  reuse?: boolean;
  idempotencyKey?: string;
}

/** The options of an OpenAI client: new OpenAI(log.openai(…)). */
export interface OpenAIOptions {
  baseURL: string;
  apiKey: string;
  defaultHeaders: Record<string, string>;
}

/** A client of one Heardlog server, for one project. */
export class Heardlog {
  constructor(settings?: Settings);
  readonly url: string;
  /** Makes a call of the API that has no method here. */
  request(method: string, where: string, options?: RequestOptions): Promise<any>;
  /** Starts an agent: one call. */
  start(name: string, options?: StartOptions): Promise<Agent>;
  /** Returns the agent with an ID, without a call. */
  agent(id: string): Agent;
  /** Finds what was said in any call of a caller. */
  recall(userId: string, query: string, fields?: Json): Promise<Json>;
  /** Returns the facts about a caller. */
  facts(userId: string): Facts;
  /** Reports what was heard with an event of a voice platform. Headers, or the event, name the call. */
  evidence(platform: string, event: Json, options?: { headers?: Record<string, string> }): Promise<Json>;
  /** Returns the options of an OpenAI client whose requests name their call by headers. */
  openai(headers?: Record<string, string>): OpenAIOptions;
}

export interface NewMessage {
  role: 'user' | 'assistant' | 'tool' | 'system' | 'developer';
  content?: string | object[] | null;
  [field: string]: unknown;
}

/** One call, from its start to its end. */
export class Agent {
  readonly id: string;
  /** Base URL for OpenAI clients that talk for this agent. */
  readonly url: string;
  /** Headers that name this agent in a request to the server's base URL. */
  readonly headers: Record<string, string>;
  /** Returns the options of an OpenAI client that talks for this agent. Send only what is new. */
  openai(): OpenAIOptions;
  /** Returns what is known of the agent: status, caller, labels and tally. */
  info(): Promise<Json>;
  /** Appends a message or a list of them, all or none. They are on disk when the call answers. */
  append(messages: NewMessage | NewMessage[], options?: { idempotencyKey?: string }): Promise<Json[]>;
  /** Cuts the answer in progress, or else the last one, and reports what was heard of it. */
  interrupt(report?: { heard?: string; heardMs?: number; turnId?: number; at?: number }): Promise<Json>;
  /** Reports what was heard with an event of a voice platform. */
  evidence(platform: string, event: Json): Promise<Json>;
  /** Returns the conversation as it was heard, oldest first: all of it, or the newest messages. */
  history(options?: { limit?: number; confidence?: boolean }): Promise<Json[]>;
  /** Yields the whole ledger: what was generated, sent and heard, and the evidence for it. */
  messages(options?: { afterSeq?: number }): AsyncGenerator<Json>;
  /** Returns the messages that an LLM would get now. It changes and stores nothing. */
  context(options?: { utterance?: string; policy?: Json; format?: 'standard' | 'custom'; [field: string]: unknown }): Promise<Json>;
  /** Finds what was said in other calls of this agent's caller. */
  recall(query: string, fields?: Json): Promise<Json>;
  /** Returns the whole memory as one value. */
  snapshot(): Promise<Json>;
  /** Replaces the memory by a snapshot, or by a list of messages. The ledger stays. */
  restore(memory: Json | Json[]): Promise<Json>;
  /** Empties the memory. The ledger stays. */
  clear(): Promise<void>;
  /** Ends the call. Its memory stays. An agent that has ended already is left as it is. */
  leave(): Promise<void>;
}

/** What is held to be true of a caller. */
export class Facts {
  /** Yields the facts, the last seen first. */
  list(options?: { topic?: string; kind?: string; state?: string; asOf?: string }): AsyncGenerator<Json>;
  /** Stores a fact. */
  add(content: string, fields?: Json & { idempotencyKey?: string }): Promise<Json>;
  /** Finds facts by their words. */
  search(query: string, fields?: Json): Promise<Json>;
  /** Deletes a fact. */
  delete(id: string): Promise<void>;
}

/** A call that Heardlog refused, or that did not reach it. */
export class HeardlogError extends Error {
  /** What is wrong, in words. It holds no secret. */
  readonly detail: string;
  /** The HTTP status, or 0 if there was no answer. */
  readonly status: number;
  /** One of a few words that never change, such as InvalidFieldValue. */
  readonly reason: string;
  /** The field at fault, such as messages[0].role. */
  readonly field?: string;
  /** The ID under which the server's log has the call. */
  readonly requestId?: string;
  /** The running agent that has the name, if a name is taken. */
  readonly agentId?: string;
}

export interface ReporterOptions {
  /** How many events may wait. Further ones are dropped, which is logged. Default: 10,000. */
  limit?: number;
  /** How long one event is tried, in ms. Default: 60,000. */
  giveUp?: number;
  log?: (line: string) => void;
  /** Events wait until this is settled. */
  after?: Promise<unknown>;
}

/** An ordered queue of a platform's events. send() never waits and never throws. */
export class Reporter {
  constructor(client: Heardlog, platform: string, headers: Record<string, string>, options?: ReporterOptions);
  /** How many events were not delivered: refused, given up, or beyond the limit. */
  dropped: number;
  send(event: Json): void;
  /** Waits until all events are delivered or given up, or for timeout ms. It returns whether the queue is empty. */
  flush(timeout?: number): Promise<boolean>;
  /** Flushes for at most timeout ms (default 5,000), and stops. What is left is dropped. */
  close(timeout?: number): Promise<void>;
}
