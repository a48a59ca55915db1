import { HeardlogError } from './errors.js';
import { authorization, baseUrl, call, environment, given, path, text } from './http.js';

/** A client of one Heardlog server, for one project. */
export class Heardlog {
  #secret;

  constructor({ url, secret, timeout = 30_000, retries = 3, headers = {}, fetch } = {}) {
    this.url = baseUrl(url);
    this.#secret = (secret ?? environment('HEARDLOG_SECRET') ?? '').trim();
    if (!/^[\x20-\x7e]*$/.test(this.#secret)) throw new TypeError('secret: must be printable ASCII');
    if (!Number.isInteger(retries) || retries < 0) throw new TypeError(`retries: must be a whole number from 0, not ${retries}`);
    this.timeout = timeout;
    this.retries = retries;
    this.headers = { ...headers };
    this.fetch = fetch ?? ((...args) => globalThis.fetch(...args));
  }

  /** Makes a call of the API that has no method here. */
  request(method, where, options = {}) {
    return call({ url: this.url, secret: this.#secret, timeout: this.timeout, retries: this.retries, headers: this.headers, fetch: this.fetch }, method, where, options);
  }

  /** Starts an agent: one call. A name that a running agent has is a conflict, unless reuse is set. */
  async start(name, { userId, sessionId, system, greeting, labels, keys, idleTimeout, remember, properties, reuse = false, idempotencyKey = crypto.randomUUID() } = {}) {
    const own = given({
      scope: userId === undefined && sessionId === undefined ? undefined : given({ user_id: userId, session_id: sessionId }),
      keys,
      remember,
    });
    const llm = given({ system_messages: system === undefined ? undefined : [{ role: 'system', content: system }], greeting_message: greeting });
    const made = given({
      labels,
      idle_timeout: idleTimeout,
      llm: Object.keys(llm).length > 0 ? llm : undefined,
      heardlog: Object.keys(own).length > 0 ? own : undefined,
    });
    const all = merged(made, properties ?? {});
    const body = given({ name: text('name', name), properties: Object.keys(all).length > 0 ? all : undefined });
    try {
      return new Agent(this, (await this.request('POST', '/join', { body, key: idempotencyKey })).agent_id);
    } catch (err) {
      if (reuse && err instanceof HeardlogError && err.status === 409 && err.agentId) return new Agent(this, err.agentId);
      throw err;
    }
  }

  /** Returns the agent with an ID, without a call. */
  agent(id) {
    return new Agent(this, text('id', id));
  }

  /** Finds what was said in any call of a caller. */
  recall(userId, query, fields = {}) {
    return this.request('POST', '/recall', { body: { user_id: text('userId', userId), query: text('query', query), ...fields }, repeatable: true });
  }

  /** Returns the facts about a caller. */
  facts(userId) {
    return new Facts(this, text('userId', userId));
  }

  /** Reports what was heard with an event of a voice platform. Headers, or the event, name the call. */
  evidence(platform, event, { headers } = {}) {
    return this.request('POST', `/evidence${path(text('platform', platform))}`, { body: event, headers, repeatable: true });
  }

  /** Returns the options of an OpenAI client whose requests name their call by headers. */
  openai(headers = {}) {
    return openaiOptions(this.url, this.#secret, { ...this.headers, ...headers });
  }

  /** Returns the options of an OpenAI client that talks for one agent. */
  _openaiOf(url) {
    return openaiOptions(url, this.#secret, this.headers);
  }
}

// OpenAI's client needs a key. A server without credentials takes any.
function openaiOptions(baseURL, secret, headers) {
  const auth = authorization(secret);
  return { baseURL, apiKey: secret || 'unused', defaultHeaders: auth?.startsWith('Basic ') ? { ...headers, authorization: auth } : headers };
}

/** One call, from its start to its end. */
export class Agent {
  #log;
  #path;

  constructor(log, id) {
    this.#log = log;
    this.id = id;
    this.#path = `/agents${path(id)}`;
  }

  /** Base URL for OpenAI clients that talk for this agent. */
  get url() {
    return this.#log.url + this.#path;
  }

  /** Headers that name this agent in a request to the server's base URL. */
  get headers() {
    return { 'X-Agent-Id': this.id };
  }

  /** Returns the options of an OpenAI client that talks for this agent. */
  openai() {
    return this.#log._openaiOf(this.url);
  }

  /** Returns what is known of the agent: status, caller, labels, tally and settings. */
  info() {
    return this.#log.request('GET', this.#path);
  }

  /** Appends a message or a list of them, all or none. They are on disk when the call answers. */
  async append(messages, { idempotencyKey = crypto.randomUUID() } = {}) {
    const list = Array.isArray(messages) ? messages : [messages];
    return (await this.#log.request('POST', `${this.#path}/messages`, { body: { messages: list }, key: idempotencyKey })).messages;
  }

  /** Cuts the answer in progress, or else the last one, and reports what was heard of it. */
  interrupt({ heard, heardMs, turnId, at } = {}) {
    return this.#log.request('POST', `${this.#path}/interrupt`, { body: given({ heard, heard_ms: heardMs, turn_id: turnId, at }), repeatable: true });
  }

  /** Reports what was heard with an event of a voice platform. */
  evidence(platform, event) {
    return this.#log.request('POST', `${this.#path}/evidence${path(text('platform', platform))}`, { body: event, repeatable: true });
  }

  /** Returns the conversation as it was heard, oldest first: all of it, or the newest messages. */
  async history({ limit, confidence } = {}) {
    const out = [];
    for (let cursor; ; ) {
      const page = await this.#log.request('GET', `${this.#path}/history`, { query: { limit: limit ?? 'all', confidence: confidence || undefined, cursor } });
      out.push(...page.contents);
      cursor = page.next_cursor;
      if (limit !== undefined || !cursor) return out;
    }
  }

  /** Yields the whole ledger: what was generated, sent and heard, and the evidence for it. */
  async *messages({ afterSeq } = {}) {
    for (let cursor; ; ) {
      const page = await this.#log.request('GET', `${this.#path}/messages`, { query: { after_seq: cursor ? undefined : afterSeq, cursor, limit: 1000 } });
      yield* page.messages;
      cursor = page.next_cursor;
      if (!cursor) return;
    }
  }

  /** Returns the messages that an LLM would get now. It changes and stores nothing. */
  context({ utterance, policy, format, ...fields } = {}) {
    return this.#log.request('POST', `${this.#path}/context`, { body: given({ utterance, policy, format, ...fields }), repeatable: true });
  }

  /** Finds what was said in other calls of this agent's caller. */
  recall(query, fields = {}) {
    return this.#log.request('POST', `${this.#path}/recall`, { body: { query: text('query', query), ...fields }, repeatable: true });
  }

  /** Returns the whole memory as one value. */
  snapshot() {
    return this.#log.request('GET', `${this.#path}/snapshot`);
  }

  /** Replaces the memory by a snapshot, or by a list of messages. The ledger stays. */
  restore(memory) {
    return this.#log.request('PUT', `${this.#path}/snapshot`, { body: memory });
  }

  /** Empties the memory. The ledger stays. */
  async clear() {
    await this.#log.request('POST', `${this.#path}/clear`, { repeatable: true });
  }

  /** Ends the call. Its memory stays. An agent that has ended already is left as it is. */
  async leave() {
    await this.#log.request('POST', '/leave', { headers: this.headers, repeatable: true });
  }
}

/** What is held to be true of a caller. */
export class Facts {
  #log;
  #path;

  constructor(log, userId) {
    this.#log = log;
    this.#path = `/users${path(userId)}/facts`;
  }

  /** Yields the facts, the last seen first. */
  async *list({ topic, kind, state, asOf } = {}) {
    for (let cursor; ; ) {
      const page = await this.#log.request('GET', this.#path, { query: { topic, kind, state, as_of: asOf, cursor } });
      yield* page.facts;
      cursor = page.next_cursor;
      if (!cursor) return;
    }
  }

  /** Stores a fact. */
  add(content, { idempotencyKey = crypto.randomUUID(), ...fields } = {}) {
    return this.#log.request('POST', this.#path, { body: { content: text('content', content), ...fields }, key: idempotencyKey });
  }

  /** Finds facts by their words. */
  search(query, fields = {}) {
    return this.#log.request('POST', `${this.#path}/search`, { body: { query: text('query', query), ...fields }, repeatable: true });
  }

  /** Deletes a fact. */
  async delete(id) {
    await this.#log.request('DELETE', this.#path + path(text('id', id)));
  }
}

/** Returns a with the fields of b, objects field by field. */
function merged(a, b) {
  const out = { ...a };
  const plain = (v) => typeof v === 'object' && v !== null && !Array.isArray(v);
  for (const [name, value] of Object.entries(b)) out[name] = plain(out[name]) && plain(value) ? merged(out[name], value) : value;
  return out;
}
