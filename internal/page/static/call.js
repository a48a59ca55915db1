// One call: the time axis, the transcript, and what is known of one message.

import {html, nothing} from "/page/lit-html.js";
import * as api from "/page/api.js";
import {times, timeline} from "/page/timeline.js";
import {steps, told, waterfall} from "/page/told.js";
import {checks, copy, ended, failure, firstTokens, ghost, interrupted, length, lost, median, method, offset, percent, plain, shareUnheard, split, struck, usd, when} from "/page/words.js";

export function callPage({draw, args: [id]}) {
  const view = {agent: null, messages: [], findings: [], error: "", live: "", zoom: 1, scroll: 0, selected: Number(new URLSearchParams(location.search).get("turn")) || 0, requests: new Map()};
  let tail, timer, width = 900;
  const redraw = () => { timer = 0; width = document.getElementById("main")?.querySelector(".call")?.clientWidth || width; draw(template(view, width, act)); };
  const soon = () => { timer ||= requestAnimationFrame(redraw); };

  const act = {
    select: seq => {
      view.selected = view.selected === seq ? 0 : seq;
      history.replaceState(null, "", location.pathname + api.query({turn: view.selected || ""}));
      soon();
      given();
    },
    zoom: n => { view.zoom = n; redraw(); },
    scroll: x => { if (Math.abs(x - view.scroll) > width) { view.scroll = x; soon(); } },
  };
  // given reads what the model was given for the chosen answer, and for the turn before.
  async function given() {
    const m = view.messages.find(o => o.seq === view.selected && o.role === "assistant");
    if (!m) return;
    const turns = [...new Set(view.messages.map(o => o.turn_id))].filter(t => t <= m.turn_id).sort((a, b) => b - a).slice(0, 2);
    for (const turn of turns) {
      if (view.requests.get(turn)?.some(r => turn !== m.turn_id || r.seq === m.seq)) continue;
      try { view.requests.set(turn, (await api.requests(id, turn)).requests); } catch { view.requests.set(turn, []); }
    }
    soon();
  }
  // findings reads what the checks have found, which a call's end and late evidence change.
  async function findings() {
    try { view.findings = await api.findings(id); soon(); } catch { /* the call is shown without */ }
  }
  const put = m => {
    const at = view.messages.findIndex(o => o.seq === m.seq);
    if (at < 0) view.messages.push(m); else view.messages[at] = {...view.messages[at], ...m};
  };

  async function load() {
    try {
      [view.agent, view.messages] = await Promise.all([api.call(id), api.messages(id)]);
      redraw();
      given();
      findings();
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
      if (ended(view.agent)) { tail.close(); view.live = ""; refresh(); findings(); }
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
  draw(template(view, width, act));
  return () => { tail?.close(); removeEventListener("resize", soon); };
}

function template(v, width, act) {
  const {select} = act;
  if (v.error) return html`${failure(v.error)}<p><a href="/">All calls</a></p>`;
  if (!v.agent) return html`<p class="quiet">Reading…</p>`;
  const shown = v.messages.filter(m => m.role !== "system" && m.role !== "developer");
  const first = shown[0]?.timestamp ?? 0, chosen = shown.find(m => m.seq === v.selected);
  return html`<div class="split"><section class="call">
      <h1>${v.agent.name || v.agent.agent_id} ${v.live ? html`<span class="badge live" role="status">${v.live}</span>` : nothing}</h1>
      <p class="quiet">${facts(v.agent, shown)}</p>
      <dl class="numbers">${numbers(v.agent, v.messages, shown).map(([value, label, bad]) => html`<div><dt>${label}</dt><dd class=${bad ? "bad" : ""}>${value}</dd></div>`)}</dl>
      ${scores(v.agent.scores?.filter(s => s.turn_id == null))}
      ${found(v.findings, select)}
      ${timeline(shown, width, v, act)}
      <ol class="transcript">${lines(shown, first, v.selected, select, v.agent.scores)}</ol>
      ${shown.length ? html`<button @click=${() => copy(transcript(shown, first))}>Copy transcript</button>` : html`<p class="quiet">Nothing was said yet.</p>`}
    </section>
    ${chosen ? aside(v, chosen, () => select(chosen.seq)) : nothing}</div>`;
}

function facts(a, messages) {
  const start = Date.parse(a.started_at), to = Date.parse(a.stopped_at) || (ended(a) ? messages.at(-1)?.timestamp : Date.now());
  const out = [a.user_id ? html`<a href=${"/callers/" + encodeURIComponent(a.user_id)}>${a.user_id}</a>` : "", a.platform, a.channel, start ? "started " + when(start) : "",
    start && to > start ? length(to - start) : "", ...Object.entries(a.labels ?? {}).map(([k, value]) => `${k}=${value}`), a.reason && a.reason !== "OK" ? a.reason : ""];
  return out.filter(Boolean).map((part, i) => html`${i ? " · " : ""}<span>${part}</span>`);
}

// found lists what the checks have found, each with the words that show it.
const found = (list, select) => list.length ? html`<ul class="look" aria-label="Findings">${list.map(f => html`<li><button class="chip bad" title=${f.check} @click=${() => select(f.at.seq)}>${what(f)}</button>
  <q dir="auto">${f.at.text}</q> <span class="quiet">${before[f.check]} in turn ${f.before.turn_id}: <q dir="auto">${f.before.text}</q></span></li>`)}</ul>` : nothing;
const what = f => f.check === "asked_again" ? `${f.by === "user" ? "caller" : "agent"} asked again` : `${checks[f.check] ?? f.check}${f.ms ? ` for ${length(f.ms)}` : ""}`;
const before = {repeated: "said before", unheard: "not heard", talked_over: "the caller said", silence: "after", asked_again: "asked before"};

// scores shows scores as chips, with comments and authors in their titles.
const scores = list => list?.length ? html`<p class="chips">${list.map(scoreChip)}</p>` : nothing;
const scoreChip = s => html`<span class="chip score" title=${[s.comment, s.author, s.source].filter(Boolean).join(" · ")}>${s.name} ${String(s.value)}</span>`;

function numbers(a, all, messages) {
  const costs = all.map(m => m.cost).filter(Boolean), sum = k => costs.reduce((n, c) => n + (c[k] ?? 0), 0);
  const unheard = shareUnheard(messages), turns = new Set(messages.map(m => m.turn_id)).size;
  const failures = all.filter(m => m.failure).length;
  return [
    [turns, "turns"],
    [messages.filter(interrupted).length, "interrupted"],
    [percent(unheard), "never heard", unheard > 0],
    [length(median(firstTokens(messages))), "first token p50"],
    [messages.filter(ghost).length, "ghosts"],
    [failures, "failures", failures > 0],
    ...costs.length ? [[usd(sum("usd")), sum("unheard_usd") ? `cost, ${usd(sum("unheard_usd"))} unheard` : "cost"]] : [],
    ...sum("saved_usd") ? [[usd(sum("saved_usd")), "saved by the prompt cache"]] : [],
  ];
}

// lines folds ghosts, and tools with their results, into one line each, where they happened.
function lines(messages, first, selected, select, given) {
  const out = [];
  for (let i = 0; i < messages.length; i++) {
    const fold = f => { const from = i; while (i + 1 < messages.length && f(messages[i + 1])) i++; return messages.slice(from, i + 1); };
    const tool = m => m.role === "tool" || m.tool_calls?.length > 0 && !plain(m.content);
    const kind = ghost(messages[i]) ? ghost : tool(messages[i]) ? tool : null;
    if (!kind) { out.push(line(messages[i], first, messages[i].seq === selected, select, scoresAt(messages, i, given))); continue; }
    const group = fold(kind), inside = group.some(m => m.seq === selected);
    out.push(html`<li class="fold"><details ?open=${inside}><summary>${kind === ghost ? `${group.length} ${group.length === 1 ? "ghost" : "ghosts"}: made, and replaced before anybody heard it` : tools(group)}</summary>
      <ol>${group.map(m => line(m, first, m.seq === selected, select))}</ol></details></li>`);
  }
  return out;
}

// scoresAt returns the scores of a turn at the last of its messages.
const scoresAt = (messages, i, given) => messages[i + 1]?.turn_id === messages[i].turn_id ? [] : (given ?? []).filter(s => s.turn_id === messages[i].turn_id);

// tools names what was called, with the beginning of each result.
function tools(group) {
  const results = new Map(group.filter(m => m.role === "tool").map(m => [m.tool_call_id, m]));
  return group.flatMap(m => m.tool_calls ?? []).map(c => {
    const result = results.get(c.id), text = plain(result?.content);
    return `tool ${c.function?.name}${result ? ` → ${text.length > 40 ? text.slice(0, 40) + "…" : text}` : ", no result"}`;
  }).join(" · ") || "tool result";
}

function line(m, first, on, select, given = []) {
  const [heard, rest] = m.role === "assistant" ? split(m) : [plain(m.content), ""];
  const chips = [];
  if (interrupted(m)) chips.push(["bad", m.metadata.interrupt_timestamp ? `interrupted at ${offset(m.metadata.interrupt_timestamp - first)}` : "interrupted"]);
  else if (lost(m)) chips.push(["bad", m.state]);
  if (m.failure) chips.push(["bad", "LLM failed"]);
  if (m.evidence && m.evidence.method !== "assumed_full") chips.push(["", m.evidence.method.replace("_", " ") + (m.evidence.confidence ? ` · ${m.evidence.confidence} %` : "")]);
  for (const c of m.tool_calls ?? []) chips.push(["", `calls ${c.function?.name}`]);
  return html`<li class=${on ? "on" : ""}>
    <button class="row" aria-pressed=${on} @click=${() => select(m.seq)}>
      <time>${offset(m.timestamp - first)}</time>
      <span class=${"who " + m.role}>${{user: "Caller", assistant: "Agent", tool: "Tool"}[m.role] ?? m.role}</span>
      <span class="said"><span class="text" dir="auto">${heard}${struck(rest)}</span>
        ${chips.length || given.length ? html`<span class="chips">${chips.map(([kind, text]) => html`<span class=${"chip " + kind}>${text}</span>`)}${given.map(scoreChip)}</span>` : nothing}</span>
      <span class="quiet side">${m.timings?.first_token_ms ? `${length(m.timings.first_token_ms)} first` : m.metadata?.source ?? ""}</span>
    </button></li>`;
}

function aside(v, m, close) {
  const text = (label, value) => value == null ? nothing : html`<h3>${label}</h3><p dir="auto">${plain(value) || html`<span class="quiet">nothing</span>`}</p>`;
  const e = m.evidence, r = v.requests.get(m.turn_id)?.find(o => o.seq === m.seq);
  const before = v.requests.get(v.messages.findLast(o => o.turn_id < m.turn_id)?.turn_id)?.at(-1), list = steps(m, r);
  const {words, from} = times(m) ?? {};
  return html`<aside aria-label="The chosen message" tabindex="0"><button class="close" aria-label="Close" @click=${close}>×</button><h2>Turn ${m.turn_id} · ${{user: "caller", assistant: "answer"}[m.role] ?? m.role}</h2>
    ${m.role === "assistant" ? html`${text("Generated", m.generated)}${text("Sent", m.sent)}${text("Heard", m.heard ?? m.content)}` : text("Said", m.content)}
    <dl class="pairs">
      ${m.failure ? html`<dt>Failure</dt><dd class="bad" dir="auto">${reason(m.failure.message)}${m.failure.code ? ` (${m.failure.code})` : ""}</dd>` : nothing}
      ${e ? html`<dt>Evidence</dt><dd>${method(e.method)}${e.confidence ? `, ${e.confidence} %` : ""}</dd>` : nothing}
      ${(e?.earlier ?? []).map(old => html`<dt>Before that</dt><dd>${method(old.method)}${old.heard ? html`: “${old.heard}”` : nothing}</dd>`)}
      ${m.model ? html`<dt>Model</dt><dd>${m.model}</dd>` : nothing}
      ${m.upstream ? html`<dt>Upstream</dt><dd>${m.upstream}</dd>` : nothing}
      ${m.usage ? html`<dt>Tokens</dt><dd>${tokens(m.usage)}</dd>` : nothing}
      ${m.cost ? html`<dt>Cost</dt><dd>${m.cost.estimated_usd ? "about " : ""}${usd(m.cost.usd)}${m.cost.unheard_usd ? html`, <span class="bad">${usd(m.cost.unheard_usd)} unheard</span>` : nothing}</dd>` : nothing}
      ${m.finish_reason ? html`<dt>Ended with</dt><dd>${m.finish_reason}</dd>` : nothing}
      <dt>State</dt><dd>${m.state ?? "final"}</dd>
      ${m.metadata?.source ? html`<dt>Source</dt><dd>${m.metadata.source}</dd>` : nothing}
    </dl>
    ${words?.length ? html`<h3>When each word ended</h3><ol class="times" dir="auto">${words.map(w => html`<li class=${w.heard ? "" : "gone"}>${w.text} <span class="quiet">${length(w.to - from)}</span></li>`)}</ol>` : nothing}
    ${list.length ? html`<h3>Where the time went</h3>${waterfall(list)}` : nothing}
    ${r?.attempts?.length > 1 ? html`<ol class="attempts">${r.attempts.map(a => html`<li>${a.upstream} <span class=${a.error ? "bad" : "quiet"}>${a.error ? reason(a.error) : "answered"}, asked after ${length(a.sent_ms)}</span></li>`)}</ol>` : nothing}
    ${r?.filler ? html`<p class="quiet">Meanwhile: “${r.filler}”</p>` : nothing}
    ${r ? told(r, before) : nothing}
    <details><summary>As JSON</summary><pre>${JSON.stringify(m, null, 2)}</pre></details></aside>`;
}

// reason returns the message in an upstream's error, which is often a JSON object.
function reason(text) {
  try {
    const e = JSON.parse(text);
    return e.error?.message ?? e.message ?? text;
  } catch { return text; }
}

// tokens names what the model counted.
function tokens(u) {
  const cached = u.prompt_tokens_details?.cached_tokens;
  return [u.prompt_tokens != null ? `${u.prompt_tokens} in${cached ? ` (${cached} cached)` : ""}` : "", u.completion_tokens != null ? `${u.completion_tokens} out` : ""].filter(Boolean).join(", ");
}

// transcript is the call as text: what was heard, and in brackets what was not.
function transcript(messages, first) {
  return messages.filter(m => (m.role === "user" || m.role === "assistant") && !ghost(m)).map(m => {
    const [heard, rest] = m.role === "assistant" ? split(m) : [plain(m.content), ""];
    return `${offset(m.timestamp - first)} ${m.role === "user" ? "Caller" : "Agent"}: ${heard}${rest ? ` [not heard:${rest.startsWith(" ") ? "" : " "}${rest}]` : ""}`;
  }).join("\n") + "\n";
}
