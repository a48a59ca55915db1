import type { Heardlog, OpenAIOptions, Reporter, ReporterOptions, StartOptions } from './index.js';

/** What attach uses of an AgentSession of @livekit/agents. */
export interface Session {
  on(event: any, listener: (event: any) => void): unknown;
  readonly history: { toJSON(options?: object): any };
}

export interface AttachOptions extends Omit<ReporterOptions, 'after'> {
  /** The ID of the job: ctx.job.id. It names the call. */
  jobId: string;
  client?: Heardlog;
  /** How the job's agent is started, or false if it is started elsewhere, or by the first request. */
  join?: (StartOptions & { name?: string }) | false;
}

export interface Attached {
  readonly reporter: Reporter;
  /** Settled when the agent is started. Requests wait for it. */
  readonly ready: Promise<void>;
  flush(timeout?: number): Promise<boolean>;
  /** Waits until the session is closed and everything has arrived, for at most timeout ms (default 5,000). */
  close(timeout?: number): Promise<void>;
}

/** Starts the job's agent and forwards the session's events in their order. Call it before session.start(). */
export function attach(session: Session, options: AttachOptions): Attached;

/**
 * Returns the options of an OpenAI client whose requests name the call by the job's ID. A request waits
 * a moment for the events before it, since its prompt depends on them.
 */
export function llmOptions(jobId: string, options?: { client?: Heardlog }): OpenAIOptions & { fetch: typeof globalThis.fetch };
