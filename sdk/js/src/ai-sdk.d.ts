import type { Agent } from './index.js';

/** A middleware for wrapLanguageModel of the AI SDK (specification v4). */
export interface Middleware {
  readonly specificationVersion: 'v4';
  transformParams: (options: any) => Promise<any>;
  wrapGenerate: (options: any) => Promise<any>;
  wrapStream: (options: any) => Promise<any>;
}

/**
 * Returns a middleware that keeps one agent's memory: send only what is new. If Heardlog cannot be
 * reached, onError is called and the model is asked without the memory.
 */
export function memory(agent: Agent, options?: { onError?: (error: unknown) => void }): Middleware;
