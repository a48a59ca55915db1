import type { Agent } from './index.js';

/** A session of OpenAI's Agents SDK that is one agent's memory: run(agent, text, { session }). */
export class Session {
  constructor(agent: Agent);
  getSessionId(): Promise<string>;
  /** Returns the memory as items, or the newest ones. A cut answer comes back as it was heard. */
  getItems(limit?: number): Promise<any[]>;
  addItems(items: any[]): Promise<void>;
  popItem(): Promise<any | undefined>;
  clearSession(): Promise<void>;
}
