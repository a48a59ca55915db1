// The server's texts begin with the field at fault: "messages[0].role: must be one of …".
const FIELD = /^([A-Za-z_][\w-]*(?:\.[\w-]+|\[\d+\]|\[[\w-]+\])*): /;

/** A call that Heardlog refused, or that did not reach it. */
export class HeardlogError extends Error {
  /** @param {string} detail @param {object} [about] */
  constructor(detail, { status = 0, reason = '', field, requestId, agentId, cause } = {}) {
    const notes = [status || '', reason, requestId ? `request ${requestId}` : ''].filter(Boolean).join(', ');
    super(notes ? `${detail} (${notes})` : detail, cause === undefined ? undefined : { cause });
    this.name = 'HeardlogError';
    this.detail = detail;
    this.status = status;
    this.reason = reason;
    this.field = field;
    this.requestId = requestId;
    this.agentId = agentId;
  }
}

/** Returns the error in an answer whose status is not 2xx. */
export function errorOf(res, text) {
  let body;
  try {
    body = JSON.parse(text);
  } catch {}
  const about = { status: res.status, requestId: res.headers.get('x-request-id') ?? undefined };
  let detail = `the server answered ${res.status} ${res.statusText}`.trimEnd();
  if (typeof body?.error?.message === 'string') {
    detail = body.error.message;
    about.reason = body.error.code ?? '';
    about.field = body.error.param ?? undefined;
  } else if (typeof body?.detail === 'string') {
    detail = body.detail;
    about.reason = body.reason ?? '';
    about.agentId = body.agent_id;
    if (res.status < 500) about.field = FIELD.exec(detail)?.[1];
  }
  return new HeardlogError(detail, about);
}
