// The list of calls: newest first, with what happened in each.

import {html, nothing} from "/page/lit-html.js";
import * as api from "/page/api.js";
import {strip} from "/page/timeline.js";
import {firstTokens, interrupted, length, median, percent, plain, shareUnheard, split, when} from "/page/words.js";

const pageSize = 50, everyMS = 3000;
const fields = ["q", "status", "since", "label"];

export function callsPage({draw, go}) {
  const filter = Object.fromEntries(fields.map(k => [k, new URLSearchParams(location.search).get(k) ?? ""]));
  const view = {filter, list: [], cursor: "", error: "", loading: true};
  const past = new Map(); // messages by call, for the rows that were seen
  const stop = new AbortController();
  const redraw = () => draw(template(view, past, set, more, seen));
  const set = (k, value) => go("/" + api.query({...filter, [k]: value}), true);

  const query = cursor => {
    const {label, ...rest} = filter, [name, value] = label.split("=", 2), q = {...rest, limit: pageSize, cursor};
    if (name && value) q["label." + name] = value;
    return q;
  };
  async function read(cursor) {
    try {
      const answer = await api.calls(query(cursor), {signal: stop.signal});
      const list = answer.agents;
      view.cursor = answer.next_cursor ?? "";
      view.list = cursor ? [...view.list, ...list] : list;
      view.error = "";
    } catch (e) {
      if (stop.signal.aborted) return;
      view.error = e.message;
    }
    view.loading = false;
    redraw();
  }
  const more = () => { if (view.cursor && !view.loading) { view.loading = true; read(view.cursor); } };

  // Rows read their messages once they are seen.
  const watch = new IntersectionObserver(entries => {
    for (const e of entries) {
      if (!e.isIntersecting) continue;
      if (e.target.dataset.more) more(); else if (!past.has(e.target.dataset.id)) fill(e.target.dataset.id);
    }
  }, {rootMargin: "200px"});
  const seen = () => queueMicrotask(() => {
    watch.disconnect(); // rows may show other calls now
    document.querySelectorAll("[data-id],[data-more]").forEach(e => watch.observe(e));
  });
  async function fill(id) {
    past.set(id, past.get(id) ?? null);
    try {
      past.set(id, await api.messages(id, {signal: stop.signal}));
      redraw();
    } catch { /* the row stays without its strip */ }
  }

  // The head of the list is read again as long as nothing further down is shown, and live calls move.
  const timer = setInterval(() => {
    if (document.hidden) return;
    if (view.list.length <= pageSize) read("");
    for (const a of view.list.slice(0, pageSize)) if (live(a) && past.has(a.agent_id)) fill(a.agent_id);
  }, everyMS);

  read("");
  redraw();
  return () => { stop.abort(); clearInterval(timer); watch.disconnect(); };
}

const live = a => !["STOPPED", "FAILED"].includes(a.status);

function template(v, past, set, more, seen) {
  seen();
  return html`<h1 class="hidden">Calls</h1>
    <form class="filters" role="search" @submit=${e => e.preventDefault()}>
      <input type="search" aria-label="Search what was said or heard, or an ID" placeholder="Search what was said or heard, or an ID…"
        .value=${v.filter.q} @change=${e => set("q", e.target.value.trim())}>
      ${choice("since", "Time", [["", "any time"], ["1h", "last hour"], ["24h", "last 24 h"], ["168h", "last 7 days"], ["720h", "last 30 days"]], v, set)}
      ${choice("status", "Status", [["", "any status"], ["running", "live"], ["stopped", "ended"], ["failed", "failed"]], v, set)}
      <input class="label" aria-label="Label" placeholder="label=value" .value=${v.filter.label} @change=${e => set("label", e.target.value.trim())}>
    </form>
    ${v.error ? html`<p class="error" role="alert">${v.error}</p>` : nothing}
    <table class="calls"><thead><tr><th>Call</th><th class="wide">What happened</th><th class="wide">Last words</th>
      <th class="n">Turns</th><th class="n">Interrupted</th><th class="n">Never heard</th><th class="n wide">First token</th><th class="n">Started</th></tr></thead>
      <tbody>${v.list.map(a => row(a, past.get(a.agent_id)))}</tbody></table>
    ${v.loading ? html`<p class="quiet">Reading…</p>` : v.list.length ? nothing : html`<p class="quiet">No call fits. Start one in the <a href="/playground">playground</a>, or with <code>POST /v1/agents</code>.</p>`}
    ${v.cursor ? html`<button data-more="1" @click=${more}>More calls</button>` : nothing}`;
}

const choice = (name, label, options, v, set) => html`<select aria-label=${label} class=${v.filter[name] ? "set" : ""} @change=${e => set(name, e.target.value)}>
  ${options.map(([value, text]) => html`<option value=${value} ?selected=${v.filter[name] === value}>${text}</option>`)}</select>`;

function row(a, messages) {
  const m = messages ?? [], last = m.findLast(o => o.role === "assistant" || o.role === "user");
  const [heard, rest] = last?.role === "assistant" ? split(last) : [plain(last?.content), ""];
  const unheard = shareUnheard(m), failed = m.some(o => o.metadata?.source === "llm_failure");
  const tags = [a.platform, ...Object.values(a.labels ?? {})].filter(Boolean);
  return html`<tr data-id=${a.agent_id}>
    <th scope="row"><a href=${"/calls/" + encodeURIComponent(a.agent_id)}>${a.name || a.agent_id}</a> ${live(a) ? html`<span class="badge live">live</span>` : nothing}
      <span class="quiet">${a.user_id ?? ""}</span></th>
    <td class="wide"><span class="chips">${tags.map(t => html`<span class="chip">${t}</span>`)}${failed ? html`<span class="chip bad">LLM failed</span>` : nothing}</span>${messages ? strip(m) : nothing}</td>
    <td class="wide words" dir="auto">${heard}${rest ? html`<del>${rest}</del>` : nothing}</td>
    <td class="n">${a.turns}</td>
    <td class="n">${messages ? m.filter(interrupted).length : ""}</td>
    <td class=${"n" + (unheard > 0 ? " bad" : "")}>${messages ? percent(unheard) : ""}</td>
    <td class="n wide">${messages ? length(median(firstTokens(m))) : ""}</td>
    <td class="n">${when(Date.parse(a.started_at))}</td></tr>`;
}
