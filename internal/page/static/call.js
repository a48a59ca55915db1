// One call: why it went wrong in two sentences, its figures, the time axis, the transcript, and at
// the side what is known of one message.

import {html, nothing, svg} from "/page/lit-html.js";
import * as api from "/page/api.js";
import {axis, layout} from "/page/axis.js";
import {query as listQuery, readFilter, viewOf} from "/page/calls.js";
import {answer, chip, copy, copyLink, empty, failure, keys, skeleton, strip} from "/page/parts.js";
import {callAnswer, checks, clip, cost, count, cutOff, day, ended, evidence, exactly, figures, firstWord, generated, ghost, interrupted, length, lengthOf, lost, moment, neverHeard, offset, plain, platform, reason, split, struck, sure, timeOfDay, usd, whole, words} from "/page/words.js";

const readable = .034; // pixels a millisecond at which the words of most bars can be read

export function callPage({draw, go, args: [id]}) {
  const q = new URLSearchParams(location.search);
  const view = {agent: null, messages: [], findings: [], error: "", live: "", zoom: Number(q.get("zoom")) || 0, scroll: 0, selected: Number(q.get("m") ?? q.get("turn")) || 0, tab: q.get("tab") ?? "", compare: q.get("compare") ?? "",
    from: q.get("in"), t: 0, startAt: Number(q.get("t")) || 0, playing: false, requests: new Map(), place: null};
  let tail, timer, width = 900, playing = 0, moved = true;
  const redraw = () => {
    timer = 0;
    width = document.querySelector(".timeline")?.clientWidth || width;
    if (moved) prepare(view);
    moved = false;
    draw(template(view, width, act));
  };
  const soon = () => { timer ||= requestAnimationFrame(redraw); };
  const changed = () => { moved = true; soon(); };
  const scrollTo = x => { const pane = document.querySelector(".timeline"); if (pane) pane.scrollLeft = x; };
  // usual is the zoom that a call is first shown with: words need room, and a short call all of it.
  const usual = () => view.layout ? Math.max(1, Math.round(100 * readable * (view.layout.stop - view.layout.start) / (width - 24)) / 100) : 1;
  const scale = () => (width - 24) / Math.max(1, view.layout.stop - view.layout.start) * view.zoom;

  // address writes what is chosen into the address. A choice is a step back; a detail is not.
  function address(push) {
    const t = view.layout && view.t > view.layout.start ? ((view.t - view.layout.start) / 1000).toFixed(1) : "";
    const to = location.pathname + api.query({m: view.selected || "", t, zoom: view.zoom === usual() ? "" : Math.round(view.zoom * 100) / 100, tab: view.tab, compare: view.compare}) ;
    const all = view.from == null ? to : to + (to.includes("?") ? "&" : "?") + new URLSearchParams({in: view.from});
    if (push) history.pushState(null, "", all); else history.replaceState(null, "", all);
  }
  const act = {
    select: seq => {
      view.selected = view.selected === seq ? 0 : seq;
      address(false);
      soon();
      given();
    },
    lead: seq => { if (view.selected !== seq) act.select(seq); requestAnimationFrame(() => requestAnimationFrame(() => document.querySelector(`[data-seq="${seq}"]`)?.scrollIntoView({block: "center"}))); },
    choose: change => { Object.assign(view, change); address(false); soon(); },
    zoom: n => {
      const middle = view.t > view.layout.start ? view.t : view.layout.start + (view.scroll + width / 2) / scale();
      view.zoom = Math.max(1, n);
      address(false);
      redraw();
      act.center(middle);
    },
    scroll: x => { view.scroll = x; soon(); },
    center: t => { view.scroll = Math.max(0, (t - view.layout.start) * scale() - width / 2); scrollTo(view.scroll); soon(); },
    seek: t => { view.t = t; address(false); step(); soon(); },
    play: () => {
      view.playing = !view.playing;
      if (view.playing) { if (view.t >= view.layout.stop || view.t <= view.layout.start) view.t = view.layout.start + 1; let last = performance.now(); playing = requestAnimationFrame(function next(now) { view.t += now - last; last = now; if (view.t >= view.layout.stop) view.playing = false; step(); if (view.playing) playing = requestAnimationFrame(next); else { address(false); soon(); } }); } else { cancelAnimationFrame(playing); address(false); }
      soon();
    },
    go,
  };
  // step moves the playhead, and marks the line and the words that it has reached.
  let marked;
  function step() {
    const l = view.layout, head = document.getElementById("playhead"), x = 8 + (view.t - l.start) * scale();
    if (!head) return;
    head.hidden = false;
    head.style.left = x.toFixed(1) + "px";
    head.firstElementChild.textContent = document.getElementById("at").textContent = offset(view.t - l.start, true);
    if (view.zoom > 1 && (x < view.scroll || x > view.scroll + width * .9)) { view.scroll = Math.max(0, x - width * .2); scrollTo(view.scroll); }
    const now = l.bars.findLast(b => b.lane !== "drafts" && b.from <= view.t), line = now && document.querySelector(`.transcript li[data-seq="${now.m.seq}"]`);
    if (line !== marked) {
      marked?.classList.remove("now");
      line?.classList.add("now");
      if (view.playing) line?.scrollIntoView({block: "nearest"});
      marked = line;
    }
    const node = line && document.createTreeWalker(line.querySelector(".text"), NodeFilter.SHOW_TEXT).nextNode();
    if (!globalThis.Highlight || !node) return;
    const share = now.words?.length ? now.words.filter(w => w.to <= view.t).length / now.words.filter(w => w.heard).length : (view.t - now.from) / Math.max(1, now.to - now.from);
    const ahead = new Range();
    ahead.setStart(node, Math.min(node.length, Math.max(0, Math.round(node.length * share))));
    ahead.setEnd(node, node.length);
    CSS.highlights.set("ahead", new Highlight(ahead));
  }
  // given reads what the model was given for the chosen answer, for the one before and the next.
  async function given() {
    const m = view.messages.find(o => o.seq === view.selected && o.role === "assistant");
    if (!m) return;
    const turns = [...new Set(view.messages.map(o => o.turn_id))].sort((a, b) => a - b), at = turns.indexOf(m.turn_id);
    await Promise.all(turns.slice(Math.max(0, at - 1), at + 2).map(async turn => {
      const newest = view.messages.findLast(o => o.turn_id === turn)?.seq, key = turn;
      if (view.requests.get(key)?.upTo === newest) return;
      const list = await api.requests(id, turn).then(r => r.requests, () => []);
      view.requests.set(key, Object.assign(list, {upTo: newest}));
    }));
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
      prepare(view);
      width = Math.max(200, (document.getElementById("main").clientWidth - (view.selected && innerWidth >= 1200 ? 404 : 0)) - 130);
      view.zoom ||= usual();
      if (view.layout && view.startAt) view.t = view.layout.start + 1000 * view.startAt;
      redraw();
      const chosen = view.layout?.bars.find(b => b.m.seq === view.selected);
      if (view.layout && view.t > view.layout.start) { act.center(view.t); step(); } else if (chosen) act.center(chosen.to);
      given();
      findings();
      if (!ended(view.agent)) follow();
      place();
    } catch (e) {
      view.missing = e.status === 404;
      view.error = e.message;
      redraw();
    }
  }
  // place finds the newer and the older call in the list that this one was opened from.
  async function place() {
    const filter = readFilter("?" + (view.from ?? "")), list = (await api.calls(listQuery(filter, {limit: 200})).catch(() => ({agents: []}))).agents, i = list.findIndex(a => a.agent_id === id);
    if (i < 0) return;
    view.place = {i: i + 1, name: viewOf("?" + (view.from ?? "")) ?? "this view", newer: list[i - 1], older: list[i + 1]};
    soon();
  }
  const to = a => a ? go("/calls/" + encodeURIComponent(a.agent_id) + api.query({in: view.from}), false) : false;

  // follow reads the live tail from its beginning, so that nothing falls between the two reads. The
  // browser resumes it by itself after a lost connection.
  function follow() {
    tail = new EventSource(api.tailOf(id, "0"));
    tail.onopen = () => { view.live = "live"; soon(); };
    tail.onerror = () => { view.live = ended(view.agent) ? "" : "reconnecting"; soon(); };
    tail.addEventListener("message", e => { put(JSON.parse(e.data)); refreshFigures(); changed(); });
    tail.addEventListener("evidence", refresh);
    tail.addEventListener("interrupted", refresh);
    tail.addEventListener("agent", e => {
      Object.assign(view.agent, JSON.parse(e.data));
      if (ended(view.agent)) { tail.close(); view.live = ""; refresh(); findings(); }
      changed();
    });
  }
  let reading = false, again = false, figuresTimer = 0;
  async function refresh() {
    again = reading;
    if (reading) return;
    reading = true;
    try { view.messages = await api.messages(id); } catch { /* the tail goes on, and the next event asks again */ }
    reading = false;
    changed();
    refreshFigures();
    if (again) refresh();
  }
  // refreshFigures reads the tally again, at most once in half a second.
  function refreshFigures() {
    figuresTimer ||= setTimeout(async () => {
      figuresTimer = 0;
      try { Object.assign(view.agent, await api.call(id)); soon(); } catch { /* the next event asks again */ }
    }, 500);
  }

  const near = (by, fits) => () => {
    const list = shown(view).filter(fits), at = list.findIndex(m => m.seq >= view.selected), i = view.selected ? (list[at]?.seq === view.selected ? at + by : by > 0 ? at : at - 1) : by > 0 ? 0 : list.length - 1;
    if (list[i]) act.lead(list[i].seq); else return false;
  };
  const quiet = new Set(), odd = m => interrupted(m) || m.failure || quiet.has(m.seq);
  const oddNear = by => () => { quiet.clear(); view.layout?.quiet.filter(s => s.to - s.from >= 2000).forEach(s => quiet.add(s.m.seq)); return near(by, odd)(); };
  const some = f => e => view.layout ? f(e) : false;
  keys([["ArrowUp", "line before", near(-1, () => true)], ["ArrowDown", "next line", near(1, () => true), true], ["n", "next cut or silence", oddNear(1), true], ["p", "cut or silence before", oddNear(-1)],
    [" ", "step through", some(act.play), true], ["+", "zoom in", some(() => act.zoom(view.zoom * 2)), true], ["-", "zoom out", some(() => act.zoom(view.zoom / 2))],
    ["[", "5 s back", some(() => act.seek(Math.max(view.layout.start, view.t - 5000)))], ["]", "5 s on", some(() => act.seek(Math.min(view.layout.stop, Math.max(view.t, view.layout.start) + 5000)))],
    ["k", "newer call", () => to(view.place?.newer)], ["j", "older call", () => to(view.place?.older)], ["Escape", "close", () => { if (view.selected) act.select(view.selected); else go("/" + (view.from ? "?" + view.from : "")); }]]);
  addEventListener("resize", soon);
  load();
  draw(template(view, width, act));
  return () => { tail?.close(); cancelAnimationFrame(playing); clearTimeout(figuresTimer); globalThis.CSS?.highlights?.delete("ahead"); removeEventListener("resize", soon); };
}

const shown = v => v.messages.filter(m => m.role !== "system" && m.role !== "developer");

function prepare(v) {
  if (v.agent) v.layout = layout(v.agent, shown(v));
}

function template(v, width, act) {
  const back = "/" + (v.from ? "?" + v.from : "");
  if (v.missing) return empty("There is no such call.", html`<p>It may have been erased, or belong to another project.</p><p><a href=${back}>All calls</a></p>`);
  if (v.error) return html`${failure(v.error)}<p><a href=${back}>All calls</a></p>`;
  if (!v.agent) return skeleton(8);
  const a = v.agent, messages = shown(v), first = v.layout?.start ?? Math.min(Date.parse(a.started_at) || Infinity, messages[0]?.timestamp ?? Infinity), chosen = messages.find(m => m.seq === v.selected);
  const step = (to, label, key) => to ? html`<a class="step" href=${"/calls/" + encodeURIComponent(to.agent_id) + api.query({in: v.from})}>${label} <kbd>${key}</kbd></a>` : nothing;
  return html`<div class=${"split" + (chosen ? " open" : "")}><section class="call">
      <div class="crumbs"><nav aria-label="Where this is"><a href=${back}>Calls</a> / <a href=${back}>${v.place?.name ?? "All"}</a>${v.place ? html` <span class="quiet">${v.place.i}</span>` : nothing}</nav><span>${step(v.place?.newer, "‹ Newer", "k")}${step(v.place?.older, "Older ›", "j")}</span></div>
      <div class="heading"><h1 dir="auto">${a.name || a.agent_id} ${v.live ? html`<span class="badge live" role="status">${v.live}</span>` : nothing}</h1>
        <span class="actions"><button @click=${copyLink}>Copy link</button> <button @click=${() => copy(transcript(messages, first), "The transcript is copied.")}>Copy transcript</button></span></div>
      <p class="about">${facts(a)}</p>
      ${answer(...callAnswer(a, act.lead))}
      ${stats(a)}
      ${a.scores?.some(s => s.turn_id == null) ? html`<p class="chips">${a.scores.filter(s => s.turn_id == null).map(scoreChip)} ${a.scores.filter(s => s.turn_id == null && s.comment).map(s => html`<q dir="auto">${s.comment}</q> <span class="quiet">${[s.author, s.source].filter(Boolean).join(", ")}</span>`)}</p>` : nothing}
      ${v.layout ? axis(v.layout, a, width, v, act) : messages.length ? html`<p class="quiet">There is no time axis: its ${whole(messages.length)} messages came within ${length(lengthOf(a))}, faster than anybody speaks.</p>` : nothing}
      <ol class="transcript">${lines(messages, v, first, act)}</ol>
      ${messages.length ? nothing : html`<p class="quiet">Nothing was said yet.</p>`}
    </section>
    ${chosen ? panel(v, messages, chosen, first, act) : nothing}</div>`;
}

function facts(a) {
  const start = Date.parse(a.started_at), labels = Object.entries(a.labels ?? {});
  const out = [a.user_id ? html`<a href=${"/callers/" + encodeURIComponent(a.user_id)} dir="auto">${a.user_id}</a>` : "", platform(a.platform), a.channel, html`<span title=${moment(start)}>${day(start)} ${timeOfDay(start)}</span>`, length(lengthOf(a)),
    a.reason && a.reason !== "OK" ? a.reason : "", a.hosted?.cost_usd !== undefined ? `${usd(a.hosted.cost_usd)} at the platform` : "", /^https?:/.test(a.hosted?.recording_url) ? html`<a href=${a.hosted.recording_url} rel="noreferrer" target="_blank">recording</a>` : ""];
  return html`${out.filter(Boolean).map((part, i) => html`${i ? " · " : ""}${part}`)} ${labels.map(([k, value]) => html`<a class="chip" dir="auto" href=${"/" + api.query({label: `${k}=${value}`})}>${k} ${value}</a> `)}`;
}

function stats(a) {
  const f = figures(a), gone = neverHeard(a), cut = cutOff(a), first = firstWord(a), money = cost(a);
  return strip([
    [whole(f.answers), "", f.answers === 1 ? "answer" : "answers"],
    [cut.n, cut.of, "cut off by the caller"],
    [gone.share, gone.of, "never heard", gone.kind, gone.title],
    [first?.p50 ?? "–", first ? `slowest ${first.slowest}` : "", "to first word", "", "from the request to the model's first word"],
    [whole(f.ghosts), "", f.ghosts === 1 ? "draft thrown away" : "drafts thrown away"],
    ...(f.failures ? [[whole(f.failures), "", f.failures === 1 ? "failure of the model" : "failures of the model", "bad"]] : []),
    ...(money ? [[money.usd, money.unheard ? `${money.unheard} unheard` : "", "cost of the model", "", money.title]] : []),
  ]);
}

// The transcript of a call: one line for each message, drafts and tools folded.

const isTool = m => m.role === "tool" || m.tool_calls?.length > 0 && !plain(m.content);

// lines shows the messages from the time first on.
export function lines(messages, v, first, act) {
  const out = [], scores = v.agent.scores ?? [];
  for (let i = 0; i < messages.length; i++) {
    const fold = f => { const from = i; while (i + 1 < messages.length && f(messages[i + 1])) i++; return messages.slice(from, i + 1); };
    const kind = ghost(messages[i]) ? ghost : isTool(messages[i]) ? isTool : null;
    if (kind) { const group = fold(kind); out.push(folded(group, kind === ghost, v, first, act)); continue; }
    const m = messages[i], given = messages[i + 1]?.turn_id === m.turn_id ? [] : scores.filter(s => s.turn_id === m.turn_id);
    out.push(line(m, v, first, act, given, waited(messages, i)));
  }
  return out;
}

// waited is the silence before an answer, where it is long: from the caller's last words to it.
function waited(messages, i) {
  if (messages[i].role !== "assistant" || lost(messages[i])) return 0;
  const before = messages.slice(Math.max(0, i - 12), i).findLast(m => m.role === "user" || m.role === "assistant" && plain(m.content) && !ghost(m));
  return before?.role === "user" ? messages[i].timestamp - before.timestamp : 0;
}

function folded(group, drafts, v, first, act) {
  const inside = group.some(m => m.seq === v.selected);
  return html`<li class="fold"><details ?open=${inside}><summary>${drafts
    ? html`<span aria-hidden="true">◌</span> ${count(group.length, "draft")} thrown away: the caller went on speaking. <span dir="auto">“${clip(generated(group[0]).trim(), 60)}”</span>`
    : html`<span aria-hidden="true">⌘</span> ${tools(group)}`}</summary>
    <ol>${group.map(m => line(m, v, first, act, [], 0))}</ol></details></li>`;
}

// tools names what was called, the beginning of each result, and how long it took.
function tools(group) {
  const results = new Map(group.filter(m => m.role === "tool").map(m => [m.tool_call_id, m]));
  const calls = group.flatMap(m => (m.tool_calls ?? []).map(c => [m, c]));
  if (!calls.length) return "result of a tool";
  return calls.map(([m, c], i) => {
    const r = results.get(c.id), ms = r ? r.timestamp - m.timestamp : 0;
    return html`${i ? " · " : ""}<code>${c.function?.name}(${clip(args(c.function?.arguments), 60)})</code> → ${r ? clip(plain(r.content), 60) : html`<b class="bad">no result</b>`} ${ms >= 1000 ? html`<span class="slow">took ${length(ms)}</span>` : nothing}`;
  });
}
function args(text) {
  try { return Object.entries(JSON.parse(text)).map(([k, v]) => `${k}: ${typeof v === "string" ? v : JSON.stringify(v)}`).join(", "); } catch { return text ?? ""; }
}

export const scoreChip = s => chip("score", `${s.name} ${s.value}`, [s.comment, s.author, s.source].filter(Boolean).join(" · ") || undefined);

function line(m, v, first, act, given, ms) {
  const [heard, rest] = m.role === "assistant" ? split(m) : [plain(m.content), ""], on = m.seq === v.selected, at = m.metadata?.interrupt_timestamp, chips = [];
  if (ghost(m)) chips.push(chip("", "draft thrown away"));
  else if (m.state === "unplayed") chips.push(chip("bad", "never played"));
  else if (m.state === "replaced") chips.push(chip("bad", "the platform said other words"));
  else if (interrupted(m)) chips.push(chip("bad", at ? `caller cut in at ${offset(at - first, true)}` : "caller cut in"));
  if (ms >= 2000) chips.push(chip("slow", `${length(ms)} of silence before it`));
  if (m.failure) chips.push(chip("bad", `model failed: ${clip(reason(m.failure.message ?? m.failure.code ?? ""), 60)}`));
  if (m.evidence && !ghost(m) && (rest || m.evidence.confidence < 70)) chips.push(chip(m.evidence.confidence ? "how" : "how open", `${evidence(m.evidence, v.agent.platform)[0]} · ${sure(m.evidence)}`, m.evidence.confidence ? `${m.evidence.confidence} %` : undefined));
  for (const c of plain(m.content) ? m.tool_calls ?? [] : []) chips.push(chip("", `calls ${c.function?.name}`));
  for (const f of v.findings) if (f.at.seq === m.seq) chips.push(chip("bad", what(f), `${before[f.check]} in turn ${f.before.turn_id}: ${f.before.text}`));
  const wait = m.timings?.first_token_ms;
  return html`<li class=${on ? "on" : ""} data-seq=${m.seq}><button class="row" aria-pressed=${on} @click=${() => act.select(m.seq)}>
      <time>${offset(m.timestamp - first)}</time><span class=${"who " + m.role}>${{user: "Caller", assistant: "Agent", tool: "Tool"}[m.role] ?? m.role}</span>
      <span class="said"><span class="text" dir="auto">${heard}${struck(rest)}</span>${chips.length || given.length ? html`<span class="chips">${chips}${given.map(scoreChip)}</span>` : nothing}</span>
      <span class="side" title="first word of the model">${wait && !ghost(m) ? html`<span class=${wait >= 2000 ? "slow" : ""}>${length(wait)}</span> to first word` : nothing}</span></button></li>`;
}

// what says what a check has found, and before what it is compared with.
export const what = f => f.check === "asked_again" ? `${f.by === "user" ? "caller" : "agent"} asked again` : `${checks[f.check] ?? f.check}${f.ms ? ` for ${length(f.ms)}` : ""}`;
export const before = {repeated: "said before", unheard: "not heard", talked_over: "the caller said", silence: "after", asked_again: "asked before"};

// transcript is the call as text: what was heard, and in brackets what was not.
export function transcript(messages, first) {
  return messages.filter(m => (m.role === "user" || m.role === "assistant") && !ghost(m) && (plain(m.content) || generated(m))).map(m => {
    const [heard, rest] = m.role === "assistant" ? split(m) : [plain(m.content), ""];
    return `${offset(m.timestamp - first)} ${m.role === "user" ? "Caller" : "Agent"}: ${heard}${rest ? ` [not heard:${rest.startsWith(" ") ? "" : " "}${rest}]` : ""}`;
  }).join("\n") + "\n";
}

// What is known of one message of a call, at the side of it.

// panel shows a message. v.requests holds what was sent to the LLM, by turn.
export function panel(v, shown, m, first, act) {
  const i = shown.indexOf(m), title = m.role === "user" ? "The caller" : m.role === "tool" ? "The result of a tool" : ghost(m) ? "A draft" : "An answer";
  const all = [...v.requests.values()].flat(), own = all.find(r => r.seq === m.seq), next = m.role === "assistant" ? all.filter(r => r.seq > m.seq).sort((a, b) => a.seq - b.seq)[0] : undefined;
  const earlier = own && all.filter(r => r.seq < m.seq).sort((a, b) => b.seq - a.seq)[0];
  const bases = (r, prior, upTo) => [...(r.messages.some(o => o.seqs?.length) ? [["", "what was generated", asGenerated(r, v.messages, upTo)]] : []), ...(prior ? [["before", "the turn before", prior.messages]] : [])];
  const stages = steps(m, own), scores = (v.agent.scores ?? []).filter(s => s.turn_id === m.turn_id), found = v.findings.filter(f => f.at.seq === m.seq);
  return html`<aside class="panel" aria-label="The chosen message" tabindex="0">
    <div class="heading"><h2>${title} <span class="quiet">at ${offset(m.timestamp - first)}</span></h2><span><button aria-label="Message before" ?disabled=${i <= 0} @click=${() => act.select(shown[i - 1].seq)}>↑</button>
      <button aria-label="Next message" ?disabled=${i === shown.length - 1} @click=${() => act.select(shown[i + 1].seq)}>↓</button> <button class="close" aria-label="Close" @click=${() => act.select(m.seq)}>×</button></span></div>
    ${m.role === "assistant" ? shades(m) : html`<p class="spoken" dir="auto">${plain(m.content) || "no words"}</p>`}
    ${m.failure ? html`<p class="bad" dir="auto">Model failed: ${reason(m.failure.message ?? "")}${m.failure.code ? ` (${m.failure.code})` : ""}</p>` : nothing}
    ${found.length ? html`<ul class="found" aria-label="Findings">${found.map(f => html`<li><b class="bad">${what(f)}</b> <q dir="auto">${f.at.text}</q> <span class="quiet">${before[f.check]} in turn ${f.before.turn_id}: <q dir="auto">${f.before.text}</q></span></li>`)}</ul>` : nothing}
    ${scores.length ? html`<h3>Scores of this turn</h3><p class="chips">${scores.map(scoreChip)}</p>${scores.filter(s => s.comment).map(s => html`<p><q dir="auto">${s.comment}</q> <span class="quiet">${[s.author, s.source].filter(Boolean).join(", ")}</span></p>`)}` : nothing}
    ${m.evidence ? how(m, v.agent, first) : nothing}
    ${next ? told("The model was told next", next, bases(next, own, m.seq), v, act.choose) : nothing}
    ${own ? html`<details class="given" ?open=${!next}><summary>What the model was given for this answer</summary>${told("It was given", own, bases(own, earlier, m.seq), v, act.choose)}</details>` : nothing}
    ${stages.length ? html`<section><h3>${m.timings?.first_token_ms ? `Why the first word took ${length(m.timings.first_token_ms)}` : "Where the time went"}</h3>${waterfall(stages)}
      ${own?.attempts?.length > 1 ? html`<ol class="attempts">${own.attempts.map(a => html`<li>${a.upstream} <span class=${a.error ? "bad" : "quiet"}>${a.error ? reason(a.error) : "answered"}, asked after ${length(a.sent_ms)}</span></li>`)}</ol>` : nothing}
      ${own?.filler ? html`<p class="quiet">Meanwhile: “${own.filler}”</p>` : nothing}</section>` : nothing}
    ${details(m)}
    <div class="actions">${own ? html`<button @click=${() => copyCurl(own)}>Copy as curl</button>` : nothing}
      ${own?.response ? html`<details><summary>Raw answer</summary><pre tabindex="0">${JSON.stringify(own.response, null, 2)}</pre></details>` : nothing}
      <details><summary>Message as JSON</summary><pre tabindex="0">${JSON.stringify(m, null, 2)}</pre></details></div></aside>`;
}

// shades shows the words in three shades, heard, sent and only generated, and counts them.
function shades(m) {
  const made = generated(m), [heard, rest] = split(m), sentAll = plain(m.sent ?? made), after = made.startsWith(sentAll) ? Math.max(0, sentAll.length - (made.length - rest.length)) : rest.length;
  const sent = rest.slice(0, after), only = rest.slice(after), n = {heard: words(heard), sent: words(sent), only: words(only)}, all = Math.max(1, n.heard + n.sent + n.only);
  const part = (x, w, kind) => w ? svg`<rect class=${kind} x=${200 * x / all} width=${200 * w / all} height="8"></rect>` : nothing;
  const line = (name, upTo, total, kind) => html`<tr class=${kind}><th scope="row">${name}</th><td><svg viewBox="0 0 200 8" preserveAspectRatio="none" aria-hidden="true"><rect class="back" width="200" height="8"></rect>${part(0, n.heard, "heard")}${upTo > 0 ? part(n.heard, n.sent, "unheard") : nothing}${upTo > 1 ? part(n.heard + n.sent, n.only, "only") : nothing}</svg></td><td>${count(total, "word")}</td></tr>`;
  return html`<p class="spoken" dir="auto">${heard}${sent.trim() ? html` <del><span class="hidden">not heard: </span>${sent.trim()}</del>` : nothing}${only.trim() ? html` <del class="only"><span class="hidden">not even sent: </span>${only.trim()}</del>` : nothing}</p>
    ${made ? html`<table class="shares"><thead class="hidden"><tr><th>What</th><th>Share</th><th>Words</th></tr></thead><tbody>${line("Generated", 2, n.heard + n.sent + n.only, "")}${line("Sent", 1, n.heard + n.sent, "")}${line("Heard", 0, n.heard, "last")}</tbody></table>` : nothing}`;
}

// how lists the evidence: what decides, and what was known before it.
function how(m, agent, first) {
  const e = m.evidence, at = m.metadata?.interrupt_timestamp, cut = interrupted(m) && at ? offset(at - first, true) : "";
  return html`<section><h3>How we know what was heard</h3><ol class="proofs">
    <li class=${e.confidence ? "" : "old"}><span aria-hidden="true">${e.confidence ? "✓" : "○"}</span><span>${lost(m) ? lostWhy[m.state] : evidence(e, agent.platform, cut)[1]}</span><b title=${e.confidence ? `${e.confidence} %` : nothing}>${sure(e)}</b></li>
    ${(e.earlier ?? []).map((old, i) => html`<li class="old"><span>${i + 2}</span><span>${evidence(old, agent.platform)[1]}${old.heard ? html` Then: <q dir="auto">${old.heard}</q>` : nothing}</span><b>${sure(old)}</b></li>`)}</ol>
    </section>`;
}
const lostWhy = {superseded: "A later answer to the same words took its place.", unplayed: "The platform never played it.", replaced: "The platform said other words."};

function details(m) {
  const u = m.usage, cached = u?.prompt_tokens_details?.cached_tokens, c = m.cost;
  const rows = [["Model", [m.model, m.upstream].filter(Boolean).join(" at ")], ["Tokens", u ? [u.prompt_tokens != null ? `${whole(u.prompt_tokens)} in${cached ? ` (${whole(cached)} cached)` : ""}` : "", u.completion_tokens != null ? `${whole(u.completion_tokens)} out` : ""].filter(Boolean).join(", ") : ""],
    ["Cost", c ? html`${c.estimated_usd ? "about " : ""}<span title=${exactly(c.usd)}>${usd(c.usd)}</span>${c.unheard_usd ? html`, <span class="bad" title=${exactly(c.unheard_usd)}>${usd(c.unheard_usd)} unheard</span>` : nothing}` : ""],
    ["Ended with", m.finish_reason]].filter(([, value]) => value !== "" && value != null);
  return html`<dl class="pairs">${rows.map(([k, value]) => html`<dt>${k}</dt><dd>${value}</dd>`)}</dl>`;
}

// What the model was told: a request to an LLM as changes against what was generated or against
// the turn before, in full, or as it was sent; and where the time of an answer went.

const reasons = {
  limit: "beyond the policy's limit", platform: "the platform no longer sends it", cleared: "the memory was cleared", superseded: "a draft: another answer took its place",
  empty: "no words", unheard: "nobody heard it", replaced: "the platform said other words", dropped: "dropped by the policy", merged: "part of a summary", removed: "removed",
  draft: "a draft", discarded: "discarded", instruction: "an instruction for one turn",
};
const short = {limit: "beyond the limit", superseded: "draft", unheard: "never played", merged: "in a summary"};

// asGenerated is a request as it would be without Heardlog: each answer as the model wrote it, and
// nothing after the place upTo.
export function asGenerated(r, messages, upTo) {
  const bySeq = new Map(messages.map(m => [m.seq, m]));
  return r.messages.filter(m => !m.seqs?.length || m.seqs.some(s => s <= upTo)).map(m => {
    const made = m.role === "assistant" && m.seqs?.length === 1 ? bySeq.get(m.seqs[0]) : null;
    return made && generated(made).trim() && typeof m.content === "string" ? {...m, content: generated(made).trim()} : m;
  });
}

// told shows a request. bases are what it can be compared with, as [key, name, messages]; view has
// the chosen tab and comparison, and choose changes them.
export function told(title, r, bases, view, choose) {
  const tab = view.tab || "changes", base = bases.find(([key]) => key === view.compare) ?? bases[0], others = bases.filter(b => b !== base);
  const list = base ? diff(base[2].map(text), r.messages.map(text)).map(([kind, i]) => [kind, kind === "gone" ? base[2][i] : r.messages[i]]) : r.messages.map(m => ["same", m]);
  const tabs = [["changes", "Changes"], ["all", "All"], ["raw", "Raw"]];
  return html`<section><div class="heading"><h3>${title}</h3><span class="segments" role="group" aria-label=${title}>${tabs.map(([key, name]) => html`<button aria-pressed=${key === tab} @click=${() => choose({tab: key === "changes" ? "" : key})}>${name}</button>`)}</span></div>
    ${r.exact ? nothing : html`<p class="quiet">The request was too long to be kept.</p>`}
    ${tab === "raw" ? html`<pre tabindex="0">${indented(r.body)}</pre>` : html`<ol class="told" aria-label="Messages">${tab === "all" ? r.messages.map(m => said("same", m)) : changes(list)}
      ${left(r, list)}</ol>`}
    ${base && tab === "changes" ? html`<p class="quiet">Compared with ${base[1]}. ${others.map(([key, name]) => html`<button class="link" @click=${() => choose({compare: key})}>Compare with ${name}</button>`)}</p>` : nothing}
    ${r.left_out?.length ? html`<details><summary>Left out: ${r.left_out.length}, and why</summary><ul class="left">${r.left_out.map(m =>
      html`<li><b>${m.role}</b> <span dir="auto">${plain(m.content) || "no words"}</span> <span class="quiet">${reasons[m.reason] ?? m.reason}</span></li>`)}</ul></details>` : nothing}
    </section>`;
}

const text = m => JSON.stringify([m.role, typeof m.content === "string" ? m.content.trim() : m.content, m.tool_calls ?? 0]);

// changes folds what is as before, and shows an answer that was cut beside what it was.
function changes(list) {
  const out = [];
  for (let i = 0; i < list.length;) {
    let to = i;
    while (to < list.length && list[to][0] === "same") to++;
    if (to - i > 0) {
      const same = list.slice(i, to).map(([, m]) => m);
      out.push(html`<li class="same"><details><summary>${count(same.length, "line")} as before: ${[...new Set(same.map(m => m.role))].join(", ")}</summary><ol>${same.map(m => said("same", m))}</ol></details></li>`);
      i = to;
      continue;
    }
    const [kind, m] = list[i], other = list[i + 1];
    if (kind === "gone" && other?.[0] === "new" && other[1].role === m.role && other[1].content) {
      const a = plain(m.content), b = plain(other[1].content), parts = inside(a, b);
      out.push(said("gone", m, parts.map(([k, t]) => k === "new" ? nothing : k === "gone" ? html`<mark>${t}</mark>` : t)), said("new", other[1], parts.map(([k, t]) => k === "gone" ? nothing : k === "new" ? html`<mark>${t}</mark>` : t)));
      i += 2;
      continue;
    }
    out.push(said(kind, m));
    i++;
  }
  return out;
}

// inside compares two texts word by word. What both begin with is cut to its end.
function inside(a, b) {
  const x = a.match(/\s*\S+\s*/g) ?? [], y = b.match(/\s*\S+\s*/g) ?? [], out = [];
  if (x.length * y.length > 4e6) return [["gone", a], ["new", b]];
  for (const [kind, i] of diff(x.map(w => w.trim()), y.map(w => w.trim()))) {
    const word = (kind === "gone" ? x[i] : y[i]).trim() + " ";
    if (out.at(-1)?.[0] === kind) out.at(-1)[1] += word; else out.push([kind, word]);
  }
  if (out[0]?.[0] === "same" && out[0][1].length > 60) out[0][1] = "…" + out[0][1].slice(-44).replace(/^\S*\s/, "");
  return out;
}

function said(kind, m, shown) {
  const calls = (m.tool_calls ?? []).map(c => `${c.function?.name}(${c.function?.arguments ?? ""})`).join(" ");
  const mark = {gone: "−", new: "+"}[kind] ?? " ";
  return html`<li class=${"line " + kind}><span aria-hidden="true">${mark}</span><b><span class="hidden">${{gone: "gone: ", new: "new: "}[kind] ?? ""}</span>${m.role}</b><span dir="auto">${shown ?? [plain(m.content), calls].filter(Boolean).join(" ")}${m.changed ? html` <i>changed since</i>` : nothing}</span></li>`;
}

// left says in short what the model was not told.
function left(r, list) {
  const gone = list.reduce((n, [kind, m], i) => n + (kind === "gone" && list[i + 1]?.[0] === "new" ? Math.max(0, words(plain(m.content)) - words(plain(list[i + 1][1].content))) : 0), 0), by = {};
  for (const m of r.left_out ?? []) { const why = short[m.reason] ?? reasons[m.reason] ?? m.reason; by[why] = (by[why] ?? 0) + 1; }
  const parts = [gone ? `${count(gone, "word")} nobody heard` : "", ...Object.entries(by).map(([why, n]) => why === "draft" ? count(n, "draft") : `${count(n, "message")} ${why}`)].filter(Boolean);
  return parts.length ? html`<li class="same">Left out: ${parts.join(", ")}</li>` : nothing;
}

export function indented(body) {
  try { return JSON.stringify(JSON.parse(body), null, 2); } catch { return body; }
}

const quoted = s => "'" + s.replaceAll("'", `'\\''`) + "'";
export const copyCurl = r => copy(`curl ${quoted(r.url)} -H 'Content-Type: application/json' -H "Authorization: Bearer $LLM_API_KEY" -d ${quoted(r.body)}`, "The command is copied.");

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

// steps names what an answer waited for, as [name, from, to] in ms after the request was received:
// only what was measured.
export function steps(m, r) {
  const t = r?.timings, old = m.timings;
  const at = t ? [["Heardlog", t.sent_ms], ["Model, first byte", t.first_byte_ms], ["First word", t.first_token_ms]]
    : old ? [["Model, first byte", old.upstream_first_byte_ms], ["First word", old.first_token_ms]] : [];
  const out = [];
  let from = 0;
  for (const [name, to] of at) {
    if (to == null || to < from) continue;
    if (to > from || name === "Heardlog") out.push([name, from, to]);
    from = to;
  }
  return out;
}

export function waterfall(list) {
  const width = 150, all = Math.max(1, list.at(-1)[2]);
  return html`<table class="waterfall"><thead class="hidden"><tr><th>Step</th><th>When</th><th>Took</th></tr></thead><tbody>${list.map(([name, from, to]) => html`<tr><th scope="row">${name}</th>
    <td><svg viewBox=${`0 0 ${width} 8`} preserveAspectRatio="none" aria-hidden="true"><rect class="back" width=${width} height="8" rx="3"></rect>${svg`<rect x=${from * (width - 2) / all} width=${Math.max(2, (to - from) * width / all)} height="8" rx="2"></rect>`}</svg></td><td>${length(to - from)}</td></tr>`)}</tbody></table>`;
}
