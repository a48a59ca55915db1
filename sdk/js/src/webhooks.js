// Checks that webhooks come from Heardlog, and reads them. It uses WebCrypto alone.

/** How far an attempt's time may be from this machine's clock, in seconds, in either direction. */
export const TOLERANCE = 300;

const MIN_KEY = 24;
const MAX_KEY = 64;
const MAX_SIGNATURES = 32;

/** The request does not come from a holder of a secret, or is too old. Answer 401. */
export class SignatureError extends Error {
  constructor(message) {
    super(message);
    this.name = 'SignatureError';
  }
}

/** Verifies Standard Webhooks signatures (v1). */
export class Verifier {
  #keys;
  #tolerance;
  #now;

  /** While a secret is being changed, pass the old and the new one. */
  constructor(secrets, { tolerance = TOLERANCE, now = () => Date.now() / 1000 } = {}) {
    const list = Array.isArray(secrets) ? secrets : [secrets];
    if (list.length === 0) throw new TypeError('secrets: a verifier needs a secret');
    if (!(tolerance > 0)) throw new TypeError(`tolerance: must be above 0, not ${tolerance}`);
    this.#keys = list.map((secret, i) => crypto.subtle.importKey('raw', keyOf(secret, i + 1), { name: 'HMAC', hash: 'SHA-256' }, false, ['verify']));
    this.#tolerance = tolerance;
    this.#now = now;
  }

  /** Returns the event of a request: a Fetch Request, or headers and the raw body. */
  async verify(headersOrRequest, body) {
    const request = body === undefined && typeof headersOrRequest?.arrayBuffer === 'function';
    const raw = request ? new Uint8Array(await headersOrRequest.clone().arrayBuffer()) : bytesOf(body);
    const read = reader(request ? headersOrRequest.headers : headersOrRequest);
    const id = read('webhook-id');
    const stamp = read('webhook-timestamp');
    const signatures = read('webhook-signature');
    if (!/^(0|[1-9]\d{0,15})$/.test(stamp)) throw new SignatureError('webhook-timestamp is not a time in Unix seconds');
    if (!(Math.abs(this.#now() - Number(stamp)) <= this.#tolerance)) {
      throw new SignatureError(`webhook-timestamp is more than ${this.#tolerance} s away from the clock here`);
    }
    const head = new TextEncoder().encode(`${id}.${stamp}.`);
    const signed = new Uint8Array(head.length + raw.length);
    signed.set(head);
    signed.set(raw, head.length);
    let fits = false;
    for (const given of signatures.split(/\s+/).slice(0, MAX_SIGNATURES)) {
      const signature = given.startsWith('v1,') ? fromBase64(given.slice(3)) : undefined;
      if (!signature) continue;
      for (const key of this.#keys) fits = (await crypto.subtle.verify('HMAC', await key, signature, signed)) || fits;
    }
    if (!fits) throw new SignatureError('no signature in webhook-signature fits the body and a secret');
    const event = JSON.parse(new TextDecoder().decode(raw));
    if (event === null || typeof event !== 'object' || !('noticeId' in event) || !('eventType' in event)) {
      throw new TypeError('the body is not an event: it has no noticeId or eventType');
    }
    return event;
  }
}

/** Returns the whole event of a thin one, from the bytes that its fetch_url returned. */
export async function thinBody(event, body) {
  const raw = bytesOf(body);
  const sum = new Uint8Array(await crypto.subtle.digest('SHA-256', raw));
  const hex = [...sum].map((b) => b.toString(16).padStart(2, '0')).join('');
  if (raw.length !== event.payload?.bytes || hex !== event.payload?.sha256) {
    throw new SignatureError('the fetched bytes are not those of the event');
  }
  return JSON.parse(new TextDecoder().decode(raw));
}

function bytesOf(body) {
  if (typeof body === 'string') return new TextEncoder().encode(body);
  if (body instanceof ArrayBuffer) return new Uint8Array(body);
  if (ArrayBuffer.isView(body)) return new Uint8Array(body.buffer, body.byteOffset, body.byteLength);
  throw new TypeError(`body: must be the raw bytes, not ${body === null ? 'null' : typeof body}`);
}

// Headers of Fetch, or a plain object as in Node, whose values may be lists.
function reader(headers) {
  const find = typeof headers?.get === 'function' ? (name) => headers.get(name) : (name) => Object.entries(headers ?? {}).find(([k]) => k.toLowerCase() === name)?.[1];
  return (name) => {
    let value = find(name);
    if (Array.isArray(value) && value.length === 1) [value] = value;
    if (typeof value !== 'string' || !value) throw new SignatureError(`${name} is missing`);
    return value;
  };
}

// The errors name a secret by its number and do not show it.
function keyOf(secret, number) {
  if (typeof secret !== 'string') throw new TypeError(`secret ${number}: must be a string, not ${typeof secret}`);
  if (!secret || secret.trim() !== secret) throw new TypeError(`secret ${number}: is empty, or has white space around it`);
  if (/^(v1,|whsk_|whpk_)/.test(secret)) throw new TypeError(`secret ${number}: is not a signing secret: those begin with whsec_, or are plain text`);
  if (!secret.startsWith('whsec_')) return new TextEncoder().encode(secret);
  const key = fromBase64(secret.slice(6));
  if (!key || key.length < MIN_KEY || key.length > MAX_KEY) {
    throw new TypeError(`secret ${number}: begins with whsec_, but what follows is not base64 of ${MIN_KEY} to ${MAX_KEY} bytes`);
  }
  return key;
}

function fromBase64(text) {
  try {
    return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  } catch {
    return undefined;
  }
}
