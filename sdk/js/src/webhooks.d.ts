/** An event. The payload depends on eventType: pass over types that you do not know. */
export interface Event {
  /** The event's ID: drop repeats of it. Delivery is at least once. */
  noticeId: string;
  productId: number;
  /** Such as 103, the memory of a call that has ended. */
  eventType: number;
  notifyMs: number;
  /** The agent's ID. */
  sid: string;
  payload: Record<string, any>;
}

type Body = string | ArrayBuffer | ArrayBufferView;
type IncomingHeaders = Headers | Record<string, string | string[] | undefined>;

/** How far an attempt's time may be from this machine's clock, in seconds. */
export const TOLERANCE: number;

/** The request does not come from a holder of a secret, or is too old. Answer 401. */
export class SignatureError extends Error {}

/** Verifies Standard Webhooks signatures (v1). */
export class Verifier {
  /** While a secret is being changed, pass the old and the new one. */
  constructor(secrets: string | string[], options?: { tolerance?: number; now?: () => number });
  /** Returns the event of a request. Pass the raw body: the bytes as they arrived. */
  verify(request: Request): Promise<Event>;
  verify(headers: IncomingHeaders, body: Body): Promise<Event>;
}

/** Returns the whole event of a thin one, from the bytes that its fetch_url returned. */
export function thinBody(event: Event, body: Body): Promise<Event>;
