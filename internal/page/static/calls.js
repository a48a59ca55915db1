// The list of calls: live ones on top, then the newest, with what happened in each.

import {html, nothing} from "/page/lit-html.js";
import * as api from "/page/api.js";
import {strip} from "/page/timeline.js";
import {checks, choice, ended, failure, length, percent, plain, split, struck, usd, when} from "/page/words.js";

const pageSize = 50, everyMS = 3000, live = "running,starting,recovering,stopping,idle";
const fields = ["q", "status", "since", "platform", "label", "score", "check", "user_id", "interrupted", "failed", "ghosts"];

export function callsPage({draw, go}) {
  const filter = Object.fromEntries(fields.map(k => [k, new URLSearchParams(location.search).get(k) ?? ""]));
  const view = {filter, live: [], list: [], cursor: "", error: "", loading: true};
  const last = new Map(); // of the calls that were seen: how many messages, and the newest few
  const stop = new AbortController();
  let frame = 0;
  const redraw = () => { frame = 0; draw(template(view, last, set, more, seen)); };
  const soon = () => { frame ||= requestAnimationFrame(redraw); };
  const set = (k, value) => go("/" + api.query({...filter, [k]: value}), true);

  const query = more => {
    const {label, score, ...rest} = filter, [name, value] = label.split("=", 2), q = {...rest, limit: pageSize, ...more};
    if (score) q["score." + score.split("=", 1)[0]] = score.slice(score.indexOf("=") + 1);
    if (name && value) q["label." + name] = value;
    return q;
  };
  const find = more => api.calls(query(more), {signal: stop.signal});

  // read reads a page of the list; the first with the live calls. A search may find nothing in what
  // it looked at and still have a cursor: then it goes on, so that a page is never empty for that.
  async function read(cursor) {
    try {
      const running = cursor || filter.status ? null : find({status: live});
      let page = await find({cursor}), found = page.agents;
      while (page.next_cursor && found.length < pageSize / 2) {
        view.searching = page.next_cursor;
        page = await find({cursor: page.next_cursor});
        found = [...found, ...page.agents];
      }
      if (running) view.live = (await running).agents;
      view.cursor = page.next_cursor ?? "";
      view.list = cursor ? [...view.list, ...found] : found;
      view.error = "";
    } catch (e) {
      if (stop.signal.aborted) return;
      view.error = e.message;
    }
    view.loading = false;
    soon();
  }
  const more = () => { if (view.cursor && !view.loading) { view.loading = true; soon(); read(view.cursor); } };

  // Rows read the end of their call while they are seen, and again after it has grown.
  const shown = new Set();
  const watch = new IntersectionObserver(entries => {
    for (const {isIntersecting, target: {dataset}} of entries) {
      if (dataset.more) { if (isIntersecting) more(); } else if (isIntersecting) shown.add(dataset.id); else shown.delete(dataset.id);
    }
    for (const a of rows(view)) if (shown.has(a.agent_id)) fill(a);
  }, {rootMargin: "200px"});
  const seen = () => queueMicrotask(() => {
    watch.disconnect(); // rows may show other calls now
    document.querySelectorAll("[data-id],[data-more]").forEach(e => watch.observe(e));
  });
  async function fill({agent_id: id, messages: count, tally}) {
    const state = count + " " + tally.unheard_tokens;
    if (last.get(id)?.state === state) return;
    last.set(id, {list: last.get(id)?.list, state});
    try {
      last.set(id, {state, list: (await api.messagesAfter(id, Math.max(0, count - 4), {signal: stop.signal})).messages});
      soon();
    } catch { /* the row stays without its last words */ }
  }

  // The head of the list is read again as long as nothing further down is shown.
  const timer = setInterval(() => {
    if (document.hidden || view.loading) return;
    if (view.list.length <= pageSize) read("");
  }, everyMS);

  read("");
  draw(template(view, last, set, more, seen));
  return () => { stop.abort(); clearInterval(timer); watch.disconnect(); };
}

// rows returns the calls in the order of the list: each once, live ones first.
function rows(v) {
  const on = new Set(v.live.map(a => a.agent_id));
  return [...v.live, ...v.list.filter(a => !on.has(a.agent_id))];
}

const spans = [["", "any time"], ["1h", "last hour"], ["24h", "last 24 h"], ["168h", "last 7 days"], ["720h", "last 30 days"]];
const states = [["", "any status"], [live, "live"], ["stopped", "ended"], ["failed", "failed to run"]];
const platforms = ["agora", "elevenlabs", "livekit", "openai", "pipecat", "retell", "twilio", "vapi"];

function template(v, last, set, more, seen) {
  seen();
  const list = rows(v), f = v.filter, toggle = (name, label, title) => html`<button aria-pressed=${f[name] === "true"} class=${f[name] ? "set" : ""} title=${title}
    @click=${() => set(name, f[name] ? "" : "true")}>${label}</button>`;
  return html`<h1 class="hidden">Calls</h1>
    <div class="filters" role="search">
      <input type="search" aria-label="Search what was said or heard, or an ID" placeholder="Search what was said, heard or generated…"
        .value=${f.q} @change=${e => set("q", e.target.value.trim())}>
      ${choice("Time", f.since, spans, s => set("since", s))}
      ${choice("Status", f.status, states, s => set("status", s))}
      ${choice("Platform", f.platform, [["", "any platform"], ...platforms.map(p => [p, p])], s => set("platform", s))}
      <input class="label" aria-label="Label" placeholder="label=value" .value=${f.label} @change=${e => set("label", e.target.value.trim())}>
      ${toggle("interrupted", "interrupted", "Calls in which the caller interrupted an answer")}
      ${toggle("failed", "LLM failed", "Calls in which the LLM failed")}
      ${toggle("ghosts", "ghosts", "Calls with answers that were replaced before they were heard")}
      ${f.score ? html`<button class="set" aria-label="Calls with any score" @click=${() => set("score", "")}>${f.score.replace("=", " ")} ×</button>` : nothing}
      ${f.check ? html`<button class="set" aria-label="Calls with any findings" @click=${() => set("check", "")}>${checks[f.check] ?? f.check} ×</button>` : nothing}
      ${f.user_id ? html`<button class="set" aria-label="Calls of every caller" @click=${() => set("user_id", "")}>${f.user_id} ×</button>` : nothing}
    </div>
    ${failure(v.error)}
    <table class="list calls"><thead><tr><th>Call</th><th class="wide">What happened</th><th>Last words</th>
      <th class="n wide">Turns</th><th class="n wide">Barge-ins</th><th class="n">Never heard</th><th class="n wide">First token</th>${priced(list) ? html`<th class="n wide">Cost</th>` : nothing}<th class="n wide">Length</th><th class="n">Started</th></tr></thead>
      <tbody>${list.map(a => row(a, last.get(a.agent_id)?.list, set, priced(list)))}</tbody></table>
    ${v.loading ? html`<p class="quiet" role="status">Reading…</p>` : list.length ? nothing : empty(f)}
    ${v.cursor ? html`<button data-more="1" @click=${more}>More calls</button>` : nothing}`;
}

const empty = f => Object.values(f).some(Boolean) ? html`<p class="quiet">No call fits. <a href="/">All calls</a></p>`
  : html`<div class="card start"><h2>No call yet</h2><p>Talk to the model in the <a href="/playground">playground</a>, and interrupt it. Or send a chat completion:</p>
    <pre>curl -s ${location.origin}/v1/chat/completions -H 'X-Agent-Id: first' -d '{"messages":[{"role":"user","content":"Hello"}]}'</pre></div>`;

const priced = list => list.some(a => a.tally?.cost);

function row(a, messages, set, priced) {
  const last = messages?.findLast(o => (o.role === "assistant" || o.role === "user") && (plain(o.content) || plain(o.generated)));
  const [heard, rest] = last?.role === "assistant" ? split(last) : [plain(last?.content), ""];
  const t = a.tally ?? {}, unheard = t.generated_tokens ? t.unheard_tokens / t.generated_tokens : null, first = t.first_token_ms;
  const from = Date.parse(a.started_at), to = Date.parse(a.stopped_at) || Date.now();
  return html`<tr data-id=${a.agent_id}>
    <th scope="row"><a href=${"/calls/" + encodeURIComponent(a.agent_id)}>${a.name || a.agent_id}</a> ${ended(a) ? nothing : html`<span class="badge live">live</span>`}
      ${a.user_id ? html`<a class="quiet" href=${"/callers/" + encodeURIComponent(a.user_id)}>${a.user_id}</a>` : nothing}</th>
    <td class="wide"><span class="chips">${a.platform ? html`<span class="chip">${a.platform}</span>` : nothing}
      ${Object.entries(a.labels ?? {}).map(([k, value]) => html`<button class="chip" title=${`Calls with ${k}=${value}`} @click=${() => set("label", `${k}=${value}`)}>${value}</button>`)}
      ${(a.scores ?? []).filter(s => s.turn_id == null).map(s => html`<button class="chip score" title=${`Calls with the score ${s.name} ${s.value}`} @click=${() => set("score", `${s.name}=${s.value}`)}>${s.name} ${String(s.value)}</button>`)}
      ${(a.checks ?? []).map(c => html`<button class="chip bad" title="Calls with this finding" @click=${() => set("check", c)}>${checks[c] ?? c}</button>`)}
      ${t.failures ? html`<span class="chip bad">LLM failed</span>` : nothing}${t.ghosts ? html`<span class="chip">${t.ghosts} ${t.ghosts === 1 ? "ghost" : "ghosts"}</span>` : nothing}</span>${t.generated_tokens ? strip(t.generated_tokens - t.unheard_tokens, t.unheard_tokens) : nothing}</td>
    <td class="words"><div dir="auto">${heard}${struck(rest)}</div></td>
    <td class="n wide">${a.turns}</td>
    <td class="n wide">${t.interruptions ?? ""}</td>
    <td class=${"n" + (unheard > 0 ? " bad" : "")}>${unheard == null ? "–" : percent(unheard)}</td>
    <td class="n wide">${first ? html`${length(first.p50)}<span class="quiet below">p95 ${length(first.p95)}</span>` : "–"}</td>
    ${priced ? html`<td class="n wide">${usd(t.cost?.usd)}${t.cost?.unheard_usd ? html`<span class="below bad">${usd(t.cost.unheard_usd)} unheard</span>` : nothing}</td>` : nothing}
    <td class="n wide">${length(to - from)}</td>
    <td class="n">${when(from)}</td></tr>`;
}
