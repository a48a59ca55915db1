// What the model was given for an answer, compared with the turn before, and what it cost in time.

import {html, nothing, svg} from "/page/lit-html.js";
import {copy, length, plain} from "/page/words.js";

const reasons = {
  limit: "beyond the policy's limit", platform: "the platform no longer sends it", cleared: "the memory was cleared", superseded: "a ghost: another answer took its place",
  empty: "no words", unheard: "nobody heard it", replaced: "replaced", dropped: "dropped by the policy", merged: "part of a summary", removed: "removed",
  draft: "a draft", discarded: "discarded", instruction: "an instruction for one turn",
};

// told shows one request to an LLM. before is the request of the turn before, or undefined.
export function told(r, before) {
  const words = r.messages.map(text), old = before?.messages.map(text) ?? [];
  return html`<h3>What the model was given</h3>
    ${r.exact ? nothing : html`<p class="quiet">The request was too long to be kept.</p>`}
    ${r.messages.some(m => m.changed) ? html`<p class="quiet">The marked messages have another text today.</p>` : nothing}
    <ol class="told" aria-label="Messages">${diff(old, words).map(([kind, i]) => said(kind, kind === "gone" ? before.messages[i] : r.messages[i], before))}</ol>
    ${before ? html`<p class="key quiet"><span class="new">new</span> and <span class="gone">gone</span> since the turn before</p>` : nothing}
    ${r.left_out?.length ? html`<details><summary>Left out: ${r.left_out.length}</summary><ul class="left">${r.left_out.map(m =>
      html`<li><b class=${"who " + m.role}>${m.role}</b> <span dir="auto">${plain(m.content) || "no words"}</span> <span class="quiet">${reasons[m.reason] ?? m.reason}</span></li>`)}</ul></details>` : nothing}
    ${r.policy ? html`<p class="quiet">Policy: ${[r.policy.strategy, r.policy.max_messages ? `${r.policy.max_messages} messages` : "", r.policy.max_tokens ? `${r.policy.max_tokens} tokens` : ""].filter(Boolean).join(", ")}</p>` : nothing}
    ${raw("Raw request", r.body)}${r.response ? raw("Raw answer", JSON.stringify(r.response)) : nothing}
    <button @click=${() => copy(curl(r))}>Copy as curl</button>`;
}

const text = m => JSON.stringify([m.role, m.content, m.tool_calls ?? 0]);

function said(kind, m, before) {
  const calls = (m.tool_calls ?? []).map(c => `${c.function?.name}(${c.function?.arguments ?? ""})`).join(" ");
  const shown = [plain(m.content), calls].filter(Boolean).join(" ");
  return html`<li class=${before ? kind : ""}><b class=${"who " + m.role}>${m.role}</b> <span dir="auto">${shown}</span>${m.changed ? html` <span class="chip">changed since</span>` : nothing}</li>`;
}

// raw shows a body. JSON is indented, so that it can be read.
function raw(label, body) {
  let shown = body;
  try { shown = JSON.stringify(JSON.parse(body), null, 2); } catch { /* shown as it is */ }
  return html`<details><summary>${label}</summary><pre>${shown}</pre></details>`;
}

const quoted = s => "'" + s.replaceAll("'", `'\\''`) + "'";
const curl = r => `curl ${quoted(r.url)} -H 'Content-Type: application/json' -H "Authorization: Bearer $LLM_API_KEY" -d ${quoted(r.body)}`;

// diff compares two lists by their longest common subsequence. It returns [kind, index] of each
// element of both, in order: "same" and "new" with the index in b, "gone" with that in a.
export function diff(a, b) {
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  const n = a.length - head, m = b.length - head, w = m + 1, best = new Uint32Array((n + 1) * w);
  for (let i = n - 1; i >= 0; i--)
    for (let j = m - 1; j >= 0; j--)
      best[i * w + j] = a[head + i] === b[head + j] ? best[(i + 1) * w + j + 1] + 1 : Math.max(best[(i + 1) * w + j], best[i * w + j + 1]);
  const out = b.slice(0, head).map((_, i) => ["same", i]);
  for (let i = 0, j = 0; i < n || j < m;) {
    if (i < n && j < m && a[head + i] === b[head + j]) { out.push(["same", head + j]); i++; j++; }
    else if (i < n && (j === m || best[(i + 1) * w + j] >= best[i * w + j + 1])) out.push(["gone", head + i++]);
    else out.push(["new", head + j++]);
  }
  return out;
}

// steps names what an answer waited for, as [name, from, to] in ms after the request was received.
export function steps(m, r) {
  const t = r?.timings, old = m.timings;
  const at = t ? [["memory", t.sent_ms], ["upstream, to its first byte", t.first_byte_ms], ["to the first token", t.first_token_ms], ["to the first sentence", t.first_sentence_ms], ["to the end", t.total_ms]]
    : old ? [["to the upstream's first byte", old.upstream_first_byte_ms], ["to the first token", old.first_token_ms], ["to the first sentence", old.first_sentence_ms], ["to the end", old.total_ms]] : [];
  const out = [];
  let from = 0;
  for (const [name, to] of at) {
    if (to == null || to < from) continue;
    out.push([name, from, to]);
    from = to;
  }
  return out;
}

export function waterfall(list) {
  const width = 130, all = Math.max(1, list.at(-1)[2]);
  return html`<table class="waterfall"><thead class="hidden"><tr><th>Step</th><th>When</th><th>Took</th></tr></thead><tbody>${list.map(([name, from, to]) => html`<tr><th scope="row">${name}</th>
    <td><svg width=${width} height="10" role="presentation">${svg`<rect x=${from * (width - 2) / all} width=${Math.max(2, (to - from) * width / all)} height="10" rx="2"></rect>`}</svg></td><td>${length(to - from)}</td></tr>`)}</tbody></table>`;
}
