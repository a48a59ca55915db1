import { HeardlogError } from './errors.js';
import { path, pause, sleep } from './http.js';

/**
 * An ordered queue of a platform's events. send() never waits and never throws. One event after
 * another is posted, so they arrive in the order in which they were sent. An event is repeated after
 * network errors and after 408, 429 and 5xx. One that is given up or refused is logged and left out.
 */
export class Reporter {
  #client;
  #where;
  #headers;
  #limit;
  #giveUp;
  #log;
  #events = [];
  #running;
  #full = false;
  #stop = new AbortController();

  constructor(client, platform, headers, { limit = 10_000, giveUp = 60_000, log = (line) => console.warn(line), after } = {}) {
    this.#client = client;
    this.#where = `/evidence${path(platform)}`;
    this.#headers = { ...headers };
    this.#limit = limit;
    this.#giveUp = giveUp;
    this.#log = log;
    this.#running = Promise.resolve(after).catch(() => {});
    this.dropped = 0;
  }

  /** Adds an event to the queue. */
  send(event) {
    try {
      if (this.#stop.signal.aborted) return this.#drop('the reporter is closed');
      if (this.#events.length >= this.#limit) {
        this.dropped++;
        if (!this.#full) this.#log(`heardlog: ${this.#limit} events wait for ${this.#where}; more are dropped`);
        this.#full = true;
        return;
      }
      this.#events.push(JSON.parse(JSON.stringify(event))); // a copy: it may change later
      this.#running = this.#running.then(() => this.#next());
    } catch (err) {
      this.#drop(String(err?.message ?? err)); // such as an event that is not JSON
    }
  }

  /** Waits until all events are delivered or given up, or for timeout ms. It returns whether the queue is empty. */
  async flush(timeout) {
    const done = this.#running.then(() => true);
    if (timeout === undefined) return done;
    let timer;
    const late = new Promise((resolve) => (timer = setTimeout(resolve, timeout, false)));
    return Promise.race([done, late]).finally(() => clearTimeout(timer));
  }

  /** Flushes for at most timeout ms, and stops. What is left is dropped. */
  async close(timeout = 5000) {
    await this.flush(timeout);
    this.#stop.abort(new HeardlogError('the reporter was closed'));
    if (this.#events.length > 0) this.#log(`heardlog: ${this.#events.length} events for ${this.#where} were not delivered`);
    this.dropped += this.#events.length;
    this.#events = [];
    await this.#running;
  }

  async #next() {
    const event = this.#events.shift();
    if (event === undefined) return;
    if (this.#events.length < this.#limit / 2) this.#full = false;
    const end = Date.now() + this.#giveUp;
    for (let attempt = 0; ; attempt++) {
      try {
        await this.#client.request('POST', this.#where, { body: event, headers: this.#headers, retries: 0, signal: this.#stop.signal });
        return;
      } catch (err) {
        const again = err instanceof HeardlogError && (err.status === 0 || err.status === 408 || err.status === 429 || err.status >= 500) && !this.#stop.signal.aborted;
        const wait = pause(attempt);
        if (!again || Date.now() + wait > end) return this.#drop(err?.message ?? String(err));
        await sleep(wait, this.#stop.signal).catch(() => {});
      }
    }
  }

  #drop(why) {
    this.dropped++;
    this.#log(`heardlog: an event for ${this.#where} was dropped: ${why}`);
  }
}
