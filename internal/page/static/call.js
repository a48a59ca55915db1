// One call: the time axis, the transcript, and what is known of one message.

import {html, nothing} from "/page/lit-html.js";
import * as api from "/page/api.js";
import {timeline} from "/page/timeline.js";
import {firstTokens, ghost, interrupted, length, lost, median, method, offset, percent, plain, shareUnheard, split, when} from "/page/words.js";

export function callPage({draw, args: [id]}) {
  const view = {agent: null, messages: [], error: "", live: "", selected: Number(new URLSearchParams(location.search).get("turn")) || 0, context: null, note: ""};
  let tail, timer, width = 900;
  const redraw = () => { timer = 0; width = document.getElementById("main")?.querySelector(".call")?.clientWidth || width; draw(template(view, width, select)); };
  const soon = () => { timer ||= requestAnimationFrame(redraw); };

  const select = seq => {
    view.selected = view.selected === seq ? 0 : seq;
    view.context = null;
    history.replaceState(null, "", location.pathname + api.query({turn: view.selected || ""}));
    soon();
  };
  const put = m => {
    const at = view.messages.findIndex(o => o.seq === m.seq);
    if (at < 0) view.messages.push(m); else view.messages[at] = {...view.messages[at], ...m};
  };

  async function load() {
    try {
      [view.agent, view.messages] = await Promise.all([api.call(id), api.messages(id)]);
      redraw();
      if (!ended(view.agent)) follow();
    } catch (e) {
      view.error = e.message;
      redraw();
    }
  }

  // follow reads the live tail from its beginning, so that nothing falls between the two reads. The
  // browser resumes it by itself after a lost connection.
  function follow() {
    tail = new EventSource(api.tailOf(id, "0"));
    tail.onopen = () => { view.live = "live"; soon(); };
    tail.onerror = () => { view.live = ended(view.agent) ? "" : "reconnecting"; soon(); };
    tail.addEventListener("message", e => { put(JSON.parse(e.data)); soon(); });
    tail.addEventListener("evidence", refresh);
    tail.addEventListener("interrupted", refresh);
    tail.addEventListener("state", e => { view.state = JSON.parse(e.data).state; soon(); });
    tail.addEventListener("agent", e => {
      Object.assign(view.agent, JSON.parse(e.data));
      if (ended(view.agent)) { tail.close(); view.live = ""; refresh(); }
      soon();
    });
  }
  let reading = false, again = false;
  async function refresh() {
    again = reading;
    if (reading) return;
    reading = true;
    try { view.messages = await api.messages(id); } catch { /* the tail goes on, and the next event asks again */ }
    reading = false;
    soon();
    if (again) refresh();
  }

  addEventListener("resize", soon);
  load();
  draw(template(view, width, select));
  return () => { tail?.close(); removeEventListener("resize", soon); };
}

const ended = a => ["STOPPED", "FAILED"].includes(a?.status);

function template(v, width, select) {
  if (v.error) return html`<p class="error" role="alert">${v.error}</p>`;
  if (!v.agent) return html`<p class="quiet">Reading…</p>`;
  const shown = v.messages.filter(m => m.role !== "system" && m.role !== "developer");
  const first = shown[0]?.timestamp ?? 0, chosen = shown.find(m => m.seq === v.selected);
  return html`<div class="split"><section class="call">
      <h1>${v.agent.name || v.agent.agent_id} ${v.live ? html`<span class="badge live" role="status">${v.live}</span>` : nothing}</h1>
      <p class="quiet">${facts(v.agent, shown).map(f => html`<span>${f}</span> `)}</p>
      <dl class="numbers">${numbers(shown).map(([value, label, bad]) => html`<div><dt>${label}</dt><dd class=${bad ? "bad" : ""}>${value}</dd></div>`)}</dl>
      ${timeline(shown, width, v.selected, select)}
      <ol class="transcript">${shown.filter(m => !ghost(m)).map(m => line(m, first, m.seq === v.selected, select))}</ol>
      ${shown.length ? html`<button @click=${() => copy(transcript(shown, first))}>Copy transcript</button>` : html`<p class="quiet">Nothing was said yet.</p>`}
    </section>
    ${chosen ? aside(v.agent, chosen, v.messages) : nothing}</div>`;
}

function facts(a, messages) {
  const out = [a.user_id ?? "", a.platform ?? "", a.channel ?? ""].filter(Boolean);
  const start = Date.parse(a.started_at);
  if (start) out.push("started " + when(start));
  const last = messages.at(-1)?.timestamp;
  if (last && start) out.push(length(last - start));
  for (const [k, value] of Object.entries(a.labels ?? {})) out.push(`${k}=${value}`);
  return out.map((text, i) => i ? "· " + text : text);
}

function numbers(messages) {
  const unheard = shareUnheard(messages), turns = new Set(messages.map(m => m.turn_id)).size;
  const failures = messages.filter(m => m.metadata?.source === "llm_failure").length;
  return [
    [turns, "turns"],
    [messages.filter(interrupted).length, "interrupted"],
    [percent(unheard), "never heard", unheard > 0],
    [length(median(firstTokens(messages))), "first token p50"],
    [messages.filter(ghost).length, "ghosts"],
    [failures, "failures", failures > 0],
  ];
}

function line(m, first, on, select) {
  const [heard, rest] = m.role === "assistant" ? split(m) : [plain(m.content), ""];
  const chips = [];
  if (interrupted(m)) chips.push(["bad", m.metadata.interrupt_timestamp ? `interrupted at ${offset(m.metadata.interrupt_timestamp - first)}` : "interrupted"]);
  else if (lost(m)) chips.push(["bad", m.state]);
  if (m.evidence && m.evidence.method !== "assumed_full") chips.push(["", m.evidence.method.replace("_", " ") + (m.evidence.confidence ? ` · ${m.evidence.confidence} %` : "")]);
  for (const c of m.tool_calls ?? []) chips.push(["", `calls ${c.function?.name}`]);
  return html`<li class=${on ? "on" : ""}>
    <button class="row" aria-pressed=${on} @click=${() => select(m.seq)}>
      <time>${offset(m.timestamp - first)}</time>
      <span class=${"who " + m.role}>${{user: "Caller", assistant: "Agent", tool: "Tool"}[m.role] ?? m.role}</span>
      <span class="said" dir="auto">${heard}${rest ? html`<del>${rest}</del>` : nothing}
        ${chips.length ? html`<span class="chips">${chips.map(([kind, text]) => html`<span class=${"chip " + kind}>${text}</span>`)}</span>` : nothing}</span>
      <span class="quiet side">${m.timings ? `${length(m.timings.first_token_ms)} first` : m.metadata?.source ?? ""}</span>
    </button></li>`;
}

function aside(agent, m, messages) {
  const text = (label, value) => value == null ? nothing : html`<h3>${label}</h3><p dir="auto">${plain(value) || html`<span class="quiet">nothing</span>`}</p>`;
  const e = m.evidence, t = m.timings, path = `/v1/agents/${agent.agent_id}`;
  return html`<aside aria-label="The chosen message"><h2>Turn ${m.turn_id} · ${{user: "caller", assistant: "answer"}[m.role] ?? m.role}</h2>
    ${m.role === "assistant" ? html`${text("Generated", m.generated)}${text("Sent", m.sent)}${text("Heard", m.heard ?? m.content)}` : text("Said", m.content)}
    <dl class="pairs">
      ${e ? html`<dt>Evidence</dt><dd>${method(e.method)}${e.confidence ? `, ${e.confidence} %` : ""}</dd>` : nothing}
      ${(e?.earlier ?? []).map(old => html`<dt>Before that</dt><dd>${method(old.method)}${old.heard ? html`: “${old.heard}”` : nothing}</dd>`)}
      ${m.upstream ? html`<dt>Upstream</dt><dd>${m.upstream}</dd>` : nothing}
      ${m.finish_reason ? html`<dt>Ended with</dt><dd>${m.finish_reason}</dd>` : nothing}
      <dt>State</dt><dd>${m.state ?? "final"}</dd>
      ${m.metadata?.source ? html`<dt>Source</dt><dd>${m.metadata.source}</dd>` : nothing}
    </dl>
    ${t ? html`<h3>Where the time went</h3>${waterfall(t)}` : nothing}
    <details><summary>As JSON</summary><pre>${JSON.stringify(messages.find(o => o.seq === m.seq), null, 2)}</pre></details>
    <button @click=${() => copy(`curl -s '${location.origin}${path}/messages?after_seq=${m.seq - 1}&limit=1'`)}>Copy as curl</button></aside>`;
}

function waterfall(t) {
  const steps = [["to the upstream's first byte", 0, t.upstream_first_byte_ms], ["to the first token", t.upstream_first_byte_ms, t.first_token_ms],
    ["to the first sentence", t.first_token_ms, t.first_sentence_ms], ["to the end", t.first_sentence_ms ?? t.first_token_ms, t.total_ms]].filter(s => s[2] != null && s[2] >= s[1]);
  const all = Math.max(1, t.total_ms ?? 0);
  return html`<table class="waterfall">${steps.map(([label, from, to]) => html`<tr><th scope="row">${label}</th>
    <td><svg width="120" height="10" role="presentation"><rect x=${from * 120 / all} width=${Math.max(2, (to - from) * 120 / all)} height="10"></rect></svg></td><td>${length(to - from)}</td></tr>`)}</table>`;
}

// transcript is the call as text: what was heard, and in brackets what was not.
function transcript(messages, first) {
  return messages.filter(m => (m.role === "user" || m.role === "assistant") && !ghost(m)).map(m => {
    const [heard, rest] = m.role === "assistant" ? split(m) : [plain(m.content), ""];
    return `${offset(m.timestamp - first)} ${m.role === "user" ? "Caller" : "Agent"}: ${heard}${rest ? ` [not heard:${rest.startsWith(" ") ? "" : " "}${rest}]` : ""}`;
  }).join("\n") + "\n";
}

// Browsers have a clipboard for pages only over https and on this machine.
const copy = text => navigator.clipboard ? navigator.clipboard.writeText(text) : prompt("Copy this:", text);
