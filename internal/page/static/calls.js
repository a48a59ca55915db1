// The list of calls: which should be opened. Live ones on top, then the newest, or sorted.

import {html, nothing} from "/page/lit-html.js";
import * as api from "/page/api.js";
import {histogram} from "/page/overview.js";
import {answer, copyLink, empty, failure, keys, shape, skeleton} from "/page/parts.js";
import {about, checks, cost, count, cutOff, day, ended, figures, firstWord, length, lengthOf, moment, neverHeard, offset, often, percent, plain, platform, platforms, reasons, split, struck, timeOfDay, when, whole} from "/page/words.js";

const pageSize = 50, everyMS = 3000;
const counts = new Map(); // of the views; they stay while pages change

export function callsPage({draw, go}) {
  const filter = readFilter(location.search);
  const view = {filter, live: [], list: [], cursor: "", error: "", loading: true, at: -1, priced: localStorage.getItem("cost") === "shown", report: null};
  const last = new Map(); // of the calls that were seen: the newest messages, and shape and moments
  const stop = new AbortController();
  let frame = 0, busy = false;
  const redraw = () => { frame = 0; draw(template(view, last, act)); seen(); };
  const soon = () => { frame ||= requestAnimationFrame(redraw); };
  const act = {
    set: change => go("/" + api.query({...filter, ...change})),
    more: () => { if (view.cursor && !busy) read(view.cursor); },
    sort: name => act.set(filter.sort === name || name === "started" && !filter.sort ? {order: filter.order === "asc" ? "" : "asc"} : {sort: name === "started" ? "" : name, order: ""}),
    cost: () => { view.priced = !view.priced; localStorage.setItem("cost", view.priced ? "shown" : ""); soon(); },
    go,
  };
  const find = more => api.calls(query(filter, {limit: pageSize, ...more}), {signal: stop.signal});

  // read reads a page of the list; the first with the live calls. A search may find nothing in what
  // it looked at and still have a cursor: then it goes on, so that a page is never empty for that.
  async function read(cursor) {
    busy = true;
    try {
      const plainList = !cursor && !filter.status && !filter.sort && !filter.order;
      const running = plainList ? find({status: live}) : null;
      let page = await find({cursor}), found = page.agents;
      while (page.next_cursor && found.length < pageSize / 2) {
        page = await find({cursor: page.next_cursor});
        found = [...found, ...page.agents];
      }
      if (running) view.live = (await running).agents;
      view.cursor = page.next_cursor ?? "";
      view.compared = page.compared;
      view.list = cursor ? [...view.list, ...found] : found;
      view.error = "";
    } catch (e) {
      if (stop.signal.aborted) return;
      view.error = e.message;
    }
    busy = false;
    view.loading = false;
    soon();
  }

  // Rows read the end of their call while they are seen, and again after it has grown.
  const shown = new Set();
  const watch = new IntersectionObserver(entries => {
    for (const {isIntersecting, target: {dataset}} of entries) {
      if (dataset.more) { if (isIntersecting) act.more(); } else if (isIntersecting) shown.add(dataset.id); else shown.delete(dataset.id);
    }
    for (const a of rows(view)) if (shown.has(a.agent_id)) fill(a);
  }, {rootMargin: "200px"});
  const seen = () => {
    watch.disconnect(); // rows may show other calls now
    document.querySelectorAll("[data-id],[data-more]").forEach(e => watch.observe(e));
  };
  async function fill({agent_id: id, messages: n, tally, status}) {
    const state = `${n} ${tally.unheard_tokens} ${tally.unheard_words} ${status}`, old = last.get(id);
    if (old?.state === state) return;
    last.set(id, {...old, state});
    const [end, all] = await Promise.all([api.messagesAfter(id, Math.max(0, n - 4), {signal: stop.signal}).catch(() => null), api.call(id, {signal: stop.signal}).catch(() => null)]);
    if (stop.signal.aborted) return; // else the row stays without what could not be read
    last.set(id, {state, list: end?.messages ?? old?.list, shape: all?.shape ?? old?.shape, moments: all?.moments ?? old?.moments});
    soon();
  }

  // The head of the list is read again as long as nothing further down is shown.
  const timer = setInterval(() => { if (!document.hidden && !busy && view.list.length <= pageSize) read(""); }, everyMS);
  read("").then(() => {
    if (stop.signal.aborted) return;
    counted(counts, soon, {signal: stop.signal});
    overview();
  });
  // overview reads the figures above the list: those of the same filters, where a report has them.
  async function overview() {
    const {since, until, label, platform, name, ...rest} = filter;
    if (Object.entries(rest).some(([k, v]) => v && !["sort", "order"].includes(k))) return;
    const wide = since.endsWith("h") ? parseInt(since) : since ? (Date.parse(until || new Date()) - Date.parse(since)) / 36e5 : 168;
    try {
      view.report = await api.report({...query({label, score: "", platform, name}), since: since || "168h", until, interval: wide > 200 ? "day" : "hour", compare: "previous"}, {signal: stop.signal});
      soon();
    } catch { /* the list is shown without */ }
  }

  const move = by => () => {
    const all = document.querySelectorAll("tr[data-id]");
    view.at = Math.max(0, Math.min(all.length - 1, view.at + by));
    all[view.at]?.scrollIntoView({block: "nearest"});
    soon();
  };
  draw(template(view, last, act));
  keys([["j ArrowDown", "next call", move(1), true], ["k ArrowUp", "call before", move(-1), true], ["Enter", "open", () => { const a = rows(view)[view.at]; if (a) open(a, view, go); else return false; }, true],
    ["/", "search", () => document.querySelector("main input[type=search]").focus(), true], ["f", "filter", () => { document.querySelector(".filter-set").open = true; document.getElementById("add-filter").click(); }, true],
    ...views().slice(0, 9).map(([name, q], i) => [String(i + 1), name, () => go("/" + (q && "?" + q))])],
  html`<i class="caller"></i> caller <i class="heard"></i> heard <i class="unheard"></i> never heard`);
  return () => { stop.abort(); clearInterval(timer); watch.disconnect(); };
}

// rows returns the calls in the order of the list: each once, live ones first.
function rows(v) {
  const on = new Set(v.live.map(a => a.agent_id));
  return [...v.live, ...v.list.filter(a => !on.has(a.agent_id))];
}

// address is that of a call with the view it was opened from.
const address = a => "/calls/" + encodeURIComponent(a.agent_id) + api.query({in: location.search.slice(1)});
function open(a, v, go) { go(address(a)); }

function template(v, last, act) {
  const list = rows(v), f = v.filter, filled = Object.values(f).some(Boolean);
  const narrow = html`<div class="bar">
      <input type="search" aria-label="Words said, heard or never heard" placeholder="Words said, heard or never heard…" .value=${f.q} @change=${e => act.set({q: e.target.value.trim()})}>
      ${tokens(f, act.set)}
      <span class="end"><button aria-pressed=${v.priced} @click=${act.cost}>Cost</button> <button @click=${copyLink}>Copy link</button></span></div>`;
  return html`<h1 class="hidden">Calls${viewOf(location.search) && filled ? `: ${viewOf(location.search)}` : ""}</h1>
    ${tabs(counts, act.go)}
    ${narrow}
    ${failure(v.error)}
    ${v.report?.totals.calls ? sentence(v.report.totals, f) : nothing}
    ${v.report ? histogram(v.report, f, act.set) : nothing}
    ${list.length ? table(v, list, last, act) : v.loading ? skeleton(10) : v.error ? nothing : filled ? html`<div class="card empty line" role="status">No call fits. ${removals(f, act.set)}</div>` : first()}
    ${v.compared && !v.compared.all ? html`<p class="quiet">Sorted are the newest ${v.compared.calls} calls that fit, since ${moment(Date.parse(v.compared.since))}.</p>` : nothing}
    ${v.cursor ? html`<button class="plain" data-more="1" @click=${act.more}>More calls</button>` : nothing}
    ${list.length ? html`<p class="quiet" role="status">${list.length} shown.${v.cursor ? " More are read as you scroll." : ""}</p>` : nothing}`;
}

// sentence says what went wrong in the calls that the figures are of, worst first.
function sentence(t, f) {
  const to = (filter, text) => html`<a class="bad" href=${"/" + api.query({...f, since: f.since || "168h", ...filter})}>${text}</a>`, said = [];
  if (t.failures) said.push(html`the model failed ${to({failed: "true"}, often(t.failures))}`);
  if (t.unheard_words) said.push(html`${to({sort: "unheard"}, percent(t.unheard_share))} of the words were never heard`);
  if (t.interruptions) said.push(html`the caller cut in on ${to({interrupted: "true"}, `${whole(t.interruptions)} of ${count(t.answers, "answer")}`)}`);
  if (t.first_token_ms?.p95 >= 2000) said.push(html`one first word in twenty took ${to({sort: "first_word"}, `${length(t.first_token_ms.p95)} or more`)}`);
  const which = `${count(t.calls, "call")} of ${spans.some(([k]) => k === (f.since || "168h")) ? `the ${filters.since.text(f.since || "168h")}` : "this time"}`;
  if (said.length) return answer("bad", html`In ${which}, ${said.slice(0, 3).map((s, i, all) => html`${i ? i === all.length - 1 ? " and " : ", " : ""}${s}`)}.`);
  if (t.unheard_share == null) return answer("", `${which}, ${count(t.answers, "answer")}. How much of them was heard is not known.`);
  return answer("good", `Nothing unusual in ${which}: ${count(t.answers, "answer")}, all heard.`);
}

// first is what a server without a call says. Which way works depends on whether it has an LLM.
const models = {asked: false, some: null};
function first() {
  if (!models.asked) {
    models.asked = true;
    api.get("/v1/models").then(r => { models.some = r.data?.length > 0; }, () => { models.some = false; });
  }
  const at = location.origin;
  return empty("No call yet", html`<p>Try the <a href=${document.querySelector("#pages [data-needs='write proxy']")?.getAttribute("href") ?? "/docs"}>demo</a>, or point your agent here:</p><pre tabindex="0">base_url = "${at}/v1"</pre>
    ${models.some === false ? html`<p>This server has no LLM yet. Set <code>HEARDLOG_LLM_URL</code>, or store a call that runs elsewhere:</p>
      <pre tabindex="0">id=$(curl -s ${at}/v1/agents -d '{"name":"first"}' | grep -o '[0-9a-f-]\\{36\\}' | head -1)
curl -s ${at}/v1/agents/$id/messages -d '[{"role":"user","content":"Hello?"},{"role":"assistant","content":"Good morning."}]'</pre>` : nothing}
`);
}

function head(v, name, label, act) {
  const on = name === (v.filter.sort || "started"), up = v.filter.order === "asc";
  return html`<th class="n" scope="col" aria-sort=${on ? up ? "ascending" : "descending" : nothing}><button class="plain" @click=${() => act.sort(name)}>${label}${on ? up ? " ↑" : " ↓" : ""}</button></th>`;
}

function table(v, list, last, act) {
  const groups = [];
  for (const a of list) {
    const name = v.filter.sort ? "" : v.live.includes(a) ? "Live now" : day(Date.parse(a.started_at)).replace("today", "Today");
    if (groups.at(-1)?.name !== name) groups.push({name, calls: []});
    groups.at(-1).calls.push(a);
  }
  let i = 0;
  return html`<table class="list calls" role="table"><thead role="rowgroup"><tr role="row"><th scope="col">Call</th><th scope="col">What happened</th><th scope="col">Last words</th><th class="n" scope="col">Cut off</th>
      ${head(v, "unheard", "Never heard", act)}${head(v, "first_word", "First word", act)}${v.priced ? html`<th class="n" scope="col">Cost</th>` : nothing}<th class="n" scope="col">Length</th>${head(v, "started", "Started", act)}</tr></thead>
    ${groups.map(g => html`<tbody role="rowgroup">${g.name ? html`<tr class="group" role="row"><th scope="rowgroup" colspan=${v.priced ? 9 : 8} role="rowheader"><b>${g.name}</b></th></tr>` : nothing}
      ${g.calls.map(a => row({...a, ...only(last.get(a.agent_id))}, last.get(a.agent_id)?.list, v, i++))}</tbody>`)}</table>`;
}
const only = known => known ? {shape: known.shape, moments: known.moments} : {};

function row(a, messages, v, i) {
  const said = messages?.findLast(o => (o.role === "assistant" || o.role === "user") && o.state !== "superseded" && (plain(o.content) || plain(o.generated)));
  const [heard, rest] = said?.role === "assistant" ? split(said) : [plain(said?.content), ""];
  const gone = neverHeard(a), cut = cutOff(a), first = firstWord(a), money = cost(a), why = reasons(a), from = Date.parse(a.started_at), on = !ended(a), failed = figures(a).failures > 0;
  const names = about(a).join(" · ");
  return html`<tr data-id=${a.agent_id} role="row" class=${i === v.at ? "on" : ""}>
    <th scope="row" role="rowheader" class="call-name" title=${`${a.name || a.agent_id}\n${names}`}><span class="mark">${on ? html`<span class="live" role="img" aria-label="live"></span>` : failed ? html`<span class="bad" role="img" aria-label="model failed">▲</span>` : nothing}</span>
      <a class="over" href=${address(a)} dir="auto">${a.name || a.agent_id}</a><small dir="auto">${names}</small></th>
    <td role="cell" class="happened">${shape(a.shape)}<small class=${failed ? "bad" : ""} title=${why.join(" · ")}>${why.join(" · ")}</small></td>
    <td role="cell" class="words" title=${heard + rest}><small>${said ? `${said.role === "user" ? "Caller" : "Agent"}, ${on ? when(said.timestamp) : "last words"}` : ""}</small><span dir="auto">${heard}${struck(rest)}</span></td>
    <td role="cell" class="n cut"><b>${cut.n}</b> <span class="quiet">${cut.of}</span></td>
    <td role="cell" class="n gone" title=${gone.title ?? nothing}><span class=${gone.kind}>${gone.share}</span><small>${gone.of}</small></td>
    <td role="cell" class="n first">${first?.p50 ?? "–"}<small>${first ? `slowest ${first.slowest}` : "no first word"}</small></td>
    ${v.priced ? html`<td role="cell" class="n" title=${money?.title ?? nothing}>${money?.usd ?? "–"}<small>${money?.unheard ? `${money.unheard} unheard` : ""}</small></td>` : nothing}
    <td role="cell" class="n long" title=${length(lengthOf(a))}>${offset(lengthOf(a))}</td>
    <td role="cell" class="n started" title=${moment(from)}>${v.filter.sort ? when(from) : timeOfDay(from)}</td></tr>`;
}

// What the list of calls can be narrowed to: saved views, and filters as tokens. All of it is in
// the address.

export const live = "running,starting,recovering,stopping,idle";
const spans = [["", "any time"], ["1h", "last hour"], ["24h", "last 24 hours"], ["168h", "last 7 days"], ["720h", "last 30 days"]];

// The filters: what a token is called, and what it says; options are what can be chosen.
const filters = {
  q: {name: "words", text: v => `“${v}”`},
  since: {name: "started", text: v => Object.fromEntries(spans)[v] ?? `from ${moment(Date.parse(v))}`, options: spans.slice(1)},
  until: {name: "until", text: v => moment(Date.parse(v))},
  status: {name: "status", text: v => ({[live]: "live", stopped: "ended", failed: "failed to run"})[v] ?? v, options: [[live, "live"], ["stopped", "ended"], ["failed", "failed to run"]]},
  platform: {name: "platform", text: platform, options: Object.entries(platforms)},
  label: {name: "label", text: v => v.replace("=", " = "), ask: "name=value"},
  name: {name: "agent", text: v => v, ask: "its name"},
  user_id: {name: "caller", text: v => v, ask: "name, number or alias"},
  score: {name: "score", text: v => v.replace("=", " = "), ask: "name=value"},
  check: {name: "finding", text: v => checks[v] ?? v, options: Object.entries(checks)},
  interrupted: {name: "answers", text: () => "cut off in the middle", options: [["true", "cut off in the middle"]]},
  unheard_min: {name: "never heard", text: v => `${Math.round(v * 100)} % or more`, options: [["0.1", "10 % or more"], ["0.5", "50 % or more"]]},
  first_word_min: {name: "slowest first word", text: v => `${v / 1000} s or more`, options: [["1000", "1 s or more"], ["2000", "2 s or more"]]},
  failed: {name: "model", text: () => "failed", options: [["true", "failed"]]},
  tool_without_result: {name: "tool", text: () => "without a result", options: [["true", "without a result"]]},
  ghosts: {name: "drafts", text: () => "thrown away", options: [["true", "thrown away"]]},
};
export const fields = [...Object.keys(filters), "sort", "order"];

// read returns the filters of an address; query what the server is asked for.
export const readFilter = search => { const q = new URLSearchParams(search); return Object.fromEntries(fields.map(k => [k, q.get(k) ?? ""])); };
export function query(filter, more) {
  const {label, score, ...rest} = filter, [name, value] = label.split("=", 2), q = {...rest, ...more};
  if (score) q["score." + score.split("=", 1)[0]] = score.slice(score.indexOf("=") + 1);
  if (name && value) q["label." + name] = value;
  return q;
}

const usual = [["All", ""], ["Live", "status=" + encodeURIComponent(live)], ["Cut off in the middle", "interrupted=true"], ["Heard less than half", "unheard_min=0.5"],
  ["Slow first word", "first_word_min=2000"], ["Model failed", "failed=true"], ["Tool without a result", "tool_without_result=true"]];
const kept = () => { try { return JSON.parse(localStorage.getItem("views")) ?? []; } catch { return []; } };
export const views = () => [...usual, ...kept()];
const same = (a, b) => fields.every(k => (new URLSearchParams(a).get(k) ?? "") === (new URLSearchParams(b).get(k) ?? ""));
export const viewOf = search => views().find(([, q]) => same(q, search))?.[0];

// keep saves the view that is shown under a name, or forgets one.
function keep(go) {
  const name = prompt("Name of this view:")?.trim();
  if (!name) return;
  const q = new URLSearchParams(location.search);
  localStorage.setItem("views", JSON.stringify([...kept().filter(v => v[0] !== name), [name, q.toString()]]));
  go(location.pathname + location.search, true);
}
function forget(name, go) {
  localStorage.setItem("views", JSON.stringify(kept().filter(v => v[0] !== name)));
  go("/");
}

// tabs shows the saved views, each with how many calls it has, once that is known.
export function tabs(counts, go) {
  const here = viewOf(location.search), own = kept().some(v => v[0] === here);
  return html`<nav class="tabs" aria-label="Views">${views().map(([name, q]) => html`<a href=${"/" + (q && "?" + q)} aria-current=${name === here ? "page" : nothing}>${name}
    ${counts.has(q) ? html`<small>${counts.get(q)}</small>` : nothing}</a>`)}
    ${!here ? html`<button class="plain" @click=${() => keep(go)}>+ Save this view</button>` : own ? html`<button class="plain" @click=${() => forget(here, go)}>Forget this view</button>` : nothing}</nav>`;
}

// counted reads how many calls each view has. A view that cannot be counted has no number.
export async function counted(counts, soon, options) {
  for (const [, q] of views()) {
    try {
      const r = await api.calls({...query(readFilter(q)), count: "true", limit: 1}, options);
      if (r.total != null) { counts.set(q, whole(r.total) + (r.total_more ? "+" : "")); soon(); }
    } catch (e) { if (options.signal.aborted) return; }
  }
}

// tokens shows the filters that are set, and a menu of those that can be.
export function tokens(filter, set) {
  const on = Object.keys(filters).filter(k => k !== "q" && filter[k]);
  return html`<details class="filter-set" ?open=${matchMedia("(min-width: 821px)").matches}><summary>Filters ${on.length || ""}</summary><div class="tokens">
    ${on.map(k => html`<span class="token"><span>${filters[k].name}</span>${filters[k].options?.length > 1 && filters[k].options.some(([v]) => v === filter[k])
      ? html`<select aria-label=${filters[k].name} @change=${e => set({[k]: e.target.value})}>${filters[k].options.map(([v, text]) => html`<option value=${v} ?selected=${v === filter[k]}>${text}</option>`)}</select>`
      : html`<b dir="auto">${filters[k].text(filter[k])}</b>`}<button aria-label=${`Remove ${filters[k].name} ${filters[k].text(filter[k])}`} @click=${() => set({[k]: ""})}>×</button></span>`)}
    <button class="plain" id="add-filter" popovertarget="filters">+ Filter <kbd>f</kbd></button>
    <div id="filters" popover class="card">${Object.entries(filters).filter(([k, f]) => (f.options || f.ask) && !filter[k]).map(([k, f], i) => html`<div><span>${f.name}</span>
      ${f.options ? f.options.map(([v, text], j) => html`<button ?autofocus=${i + j === 0} @click=${() => set({[k]: v})}>${text}</button>`)
        : html`<form @submit=${e => { e.preventDefault(); set({[k]: e.target.elements.value.value.trim()}); }}><input name="value" aria-label=${f.name} placeholder=${f.ask} autocomplete="off"><button>Add</button></form>`}</div>`)}</div></div></details>`;
}

// removals are the tokens of a view that found nothing, as buttons that take them away.
export const removals = (filter, set) => Object.keys(filters).filter(k => filter[k]).map(k => html`<button @click=${() => set({[k]: ""})}>remove ${filters[k].name} ${filters[k].text(filter[k])} ×</button>`);
