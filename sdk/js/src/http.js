import { HeardlogError, errorOf } from './errors.js';

const RETRIED = new Set([408, 429, 502, 503, 504]);

/** Returns a setting from the environment, where there is one. */
export const environment = (name) => globalThis.process?.env?.[name] || undefined;

/** Returns the base URL of the API, without a slash at its end. */
export function baseUrl(given) {
  let url;
  try {
    url = new URL(given ?? environment('HEARDLOG_URL') ?? 'http://127.0.0.1:8080/v1');
  } catch {
    throw new TypeError('url: is not a URL');
  }
  if (!/^https?:$/.test(url.protocol)) throw new TypeError(`url: must begin with http:// or https://, not ${url.protocol}`);
  if (url.username || url.password) throw new TypeError('url: must not contain credentials; pass them as secret');
  if (url.search || url.hash) throw new TypeError('url: must not have a query or a fragment');
  const path = url.pathname.replace(/\/+$/, '');
  return url.origin + (path || '/v1');
}

/** Returns a path of the parts, each of them escaped. */
export const path = (...parts) => parts.map((p) => `/${encodeURIComponent(p)}`).join('');

/** Returns the fields that are not undefined. */
export const given = (fields) => Object.fromEntries(Object.entries(fields).filter(([, v]) => v !== undefined));

/** Returns value if it is a text that is not empty. */
export function text(name, value) {
  if (typeof value !== 'string') throw new TypeError(`${name}: must be a string, not ${value === null ? 'null' : typeof value}`);
  if (!value) throw new TypeError(`${name}: must not be empty`);
  return value;
}

/** Returns a value for the header Authorization, or undefined. */
export function authorization(secret) {
  if (!secret) return undefined;
  return secret.includes(':') ? `Basic ${btoa(secret)}` : `Bearer ${secret}`;
}

/** Returns how many ms to wait before a retry: what the server asks for, or 100, 200, 400 … with some chance. */
export function pause(attempt, retryAfter) {
  const asked = retryAfter ? (/^\d+(\.\d+)?$/.test(retryAfter) ? Number(retryAfter) * 1000 : Date.parse(retryAfter) - Date.now()) : NaN;
  if (!Number.isNaN(asked)) return Math.min(Math.max(asked, 0), 8000);
  return Math.min(100 * 2 ** attempt, 8000) * (0.75 + Math.random() / 2);
}

export const sleep = (ms, signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener('abort', () => (clearTimeout(timer), reject(signal.reason)), { once: true });
  });

/**
 * Makes one call and returns its answer, or undefined if that has no body. It repeats a call after a
 * network error and after the statuses that a repeat may mend. A POST is repeated only with an
 * Idempotency-Key, or if it is marked as repeatable.
 */
export async function call(client, method, where, { body, query, headers, key, repeatable, retries = client.retries, signal } = {}) {
  const url = new URL(client.url + where);
  for (const [name, value] of Object.entries(query ?? {})) if (value !== undefined) url.searchParams.set(name, String(value));
  const again = method !== 'POST' || repeatable || key !== undefined;
  const sent = {
    method,
    headers: given({
      accept: 'application/json',
      'content-type': body === undefined ? undefined : 'application/json',
      authorization: authorization(client.secret),
      'idempotency-key': key,
      ...client.headers,
      ...headers,
    }),
    body: body === undefined ? undefined : JSON.stringify(body),
  };
  for (let attempt = 0; ; attempt++) {
    signal?.throwIfAborted();
    const limit = AbortSignal.timeout(client.timeout);
    let failed;
    let retryAfter;
    try {
      const res = await client.fetch(url, { ...sent, signal: signal ? AbortSignal.any([signal, limit]) : limit });
      const answer = await res.text();
      if (res.ok) return answer ? parse(answer, res) : undefined;
      failed = errorOf(res, answer);
      if (!RETRIED.has(res.status)) throw failed;
      retryAfter = res.headers.get('retry-after');
    } catch (err) {
      if (signal?.aborted) throw signal.reason;
      if (err instanceof HeardlogError && err !== failed) throw err;
      if (err === failed) throw err;
      failed = new HeardlogError(limit.aborted ? `no answer within ${client.timeout} ms` : `the server could not be reached: ${err?.cause?.message ?? err?.message ?? err}`, { cause: err });
    }
    if (!again || attempt >= retries) throw failed;
    await sleep(pause(attempt, retryAfter), signal);
  }
}

function parse(answer, res) {
  try {
    return JSON.parse(answer);
  } catch (cause) {
    throw new HeardlogError('the answer is not JSON: is the url that of Heardlog?', { status: res.status, requestId: res.headers.get('x-request-id') ?? undefined, cause });
  }
}
