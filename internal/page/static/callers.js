// The callers, and what is known of one: facts with the words that prove them, and its calls.

import {html, nothing} from "/page/lit-html.js";
import * as api from "/page/api.js";
import {choice, failure, length, percent, when} from "/page/words.js";

export function callersPage({draw, go}) {
  const view = {list: null, cursor: "", error: ""};
  const redraw = () => draw(list(view, read, go));
  async function read() {
    try {
      const page = await api.users(view.cursor);
      view.list = [...(view.list ?? []), ...page.users];
      view.cursor = page.next_cursor ?? "";
    } catch (e) { view.error = e.message; }
    redraw();
  }
  read();
  redraw();
}

const at = name => "/callers/" + encodeURIComponent(name);
const remembers = {all: "turns and facts", turns: "turns only", none: "nothing"};

function list(v, more, go) {
  const open = e => { e.preventDefault(); const name = e.target.elements.user.value.trim(); if (name) go(at(name)); };
  return html`<h1>Callers</h1>
    <form class="filters" @submit=${open}><input name="user" aria-label="A caller's name, number or alias" placeholder="Open a caller: name, number or alias…" autocomplete="off"><button>Open</button></form>
    ${failure(v.error)}
    <div class="wide-table"><table class="list"><thead><tr><th>Caller</th><th>Other names</th><th>May be remembered</th></tr></thead>
      <tbody>${v.list?.map(u => html`<tr><th scope="row"><a href=${at(u.user_id)} dir="auto">${u.user_id}</a></th><td dir="auto">${u.aliases.join(", ")}</td>
        <td class=${u.consent.now === "all" ? "" : "bad"}>${remembers[u.consent.now]}</td></tr>`) ?? nothing}</tbody></table></div>
    ${v.list?.length === 0 ? html`<p class="quiet">No caller is known yet. A call names its caller with <code>properties.heardlog.scope.user_id</code>, or its platform sends the number.</p>` : nothing}
    ${v.cursor ? html`<button @click=${more}>More callers</button>` : nothing}`;
}

export function callerPage({draw, go, may, args: [name]}) {
  const view = {name, state: new URLSearchParams(location.search).get("facts") ?? "active", caller: null, facts: null, told: "", calls: [], histories: {}, error: "", erased: null};
  const redraw = () => draw(one(view, act, may));
  const attempt = async f => { try { await f(); view.error = ""; } catch (e) { view.error = e.message; } redraw(); };
  const read = () => attempt(async () => {
    const [caller, facts, told, calls] = await Promise.all([api.caller(name), api.facts(name, view.state), api.factContext(name), api.calls({user_id: name, limit: 50})]);
    Object.assign(view, {caller, facts: facts.facts, told: told.block, calls: calls.agents, more: calls.next_cursor, histories: {}});
  });
  const then = promise => attempt(async () => { await promise; await read(); });
  const act = {
    states: state => { view.state = state; history.replaceState(null, "", at(name) + api.query({facts: state === "active" ? "" : state})); read(); },
    correct: (id, content) => then(api.changeFact(name, id, {content, cause: "corrected on the page"})),
    accept: id => then(api.acceptFact(name, id)),
    undo: id => then(api.undoFact(name, id)),
    remove: id => then(api.deleteFact(name, id)),
    history: id => attempt(async () => { view.histories[id] ??= (await api.factHistory(name, id)).events; }),
    aliases: text => then(api.putAliases(name, text.split(",").map(s => s.trim()).filter(Boolean))),
    consent: remember => then(api.putConsent(name, {...(view.caller.consent.until ? {until: view.caller.consent.until} : {}), remember})),
    erase: () => attempt(async () => { view.erased = (await api.erase(name)).erased; }),
  };
  read();
  redraw();
}

function one(v, act, may) {
  if (v.erased) return html`<h1 dir="auto">${v.name}</h1><p role="status">Erased: ${v.erased.agents} ${v.erased.agents === 1 ? "call" : "calls"}, ${v.erased.memories} memories, ${v.erased.records} records. <a href="/callers">All callers</a></p>`;
  const c = v.caller;
  if (!c) return v.error ? html`${failure(v.error)}<p><a href="/callers">All callers</a></p>` : html`<p class="quiet">Reading…</p>`;
  return html`<div class="split"><section class="call">
    <h1 dir="auto">${c.user_id}</h1>
    <p class="quiet">${[...c.aliases, `${c.calls} ${c.calls === 1 ? "call" : "calls"}`, c.first_call_at ? `first ${when(Date.parse(c.first_call_at))}` : "", c.last_call_at ? `last ${when(Date.parse(c.last_call_at))}` : ""].filter(Boolean).join(" · ")}</p>
    ${failure(v.error)}
    <div class="heading"><h2>What is known</h2>
      ${choice("State of the facts", v.state, [["active", "active"], ["draft", "drafts"], ["all", "all states"]], act.states)}</div>
    ${v.facts.length ? html`<ul class="cards facts">${v.facts.map(f => fact(f, v, act, may("write")))}</ul>` : html`<p class="quiet">No such fact is stored. Facts come from <code>POST ${"/v1/users/{user}/facts/extract"}</code>.</p>`}
    <h2>Calls</h2>
    ${v.calls.length ? html`<div class="wide-table"><table class="list"><thead><tr><th>Call</th><th class="n">Turns</th><th class="n">Interrupted</th><th class="n">Never heard</th><th class="n">Length</th><th class="n">Started</th></tr></thead>
      <tbody>${v.calls.map(call)}</tbody></table></div>` : html`<p class="quiet">None is kept.</p>`}
    ${v.more ? html`<p><a href=${"/" + api.query({user_id: c.user_id})}>All calls of this caller</a></p>` : nothing}
  </section>
  <aside aria-label="Names and consent"><h2>What the model is told</h2>
    ${v.told ? html`<pre class="told" dir="auto">${v.told}</pre>` : html`<p class="quiet">Nothing: no active fact.</p>`}
    <h3>Other names</h3>
    ${may("write") ? html`<form class="actions" @submit=${e => { e.preventDefault(); act.aliases(e.target.elements.aliases.value); }}>
      <input name="aliases" aria-label="Other names, with commas" placeholder="+4930123456, crm-17" .value=${c.aliases.join(", ")}><button>Save</button></form>` : html`<p>${c.aliases.join(", ") || "none"}</p>`}
    <h3>May be remembered</h3>
    ${may("write") ? choice("May be remembered", c.consent.remember, Object.entries(remembers), act.consent) : html`<p>${remembers[c.consent.remember]}</p>`}
    ${c.consent.until ? html`<p class="quiet">until ${when(Date.parse(c.consent.until))}</p>` : nothing}
    <h3>All of it</h3>
    <p><a href=${api.exportOf(c.user_id)} download="caller.jsonl">Export as lines of JSON</a></p>
    ${may("admin") ? html`<details class="danger"><summary>Erase this caller…</summary>
      <p>This erases the caller's calls, facts, names and consent. It cannot be undone. To confirm, type <b dir="auto">${c.user_id}</b>.</p>
      <form class="actions" @submit=${e => { e.preventDefault(); if (e.target.elements.confirm.value === c.user_id) act.erase(); }}>
        <input name="confirm" aria-label="The caller's name, to confirm" autocomplete="off"><button class="bad">Erase</button></form></details>` : nothing}
  </aside></div>`;
}

function fact(f, v, act, write) {
  const s = f.source, events = v.histories[f.id];
  return html`<li class=${"card " + f.state}><div class="fact" dir="auto">${f.state === "active" || f.state === "draft" ? f.content : html`<s>${f.content}</s>`}</div>
    ${s?.quote ? html`<blockquote dir="auto">“${s.quote}” <a href=${`/calls/${encodeURIComponent(s.agent_id)}?turn=${s.from_seq}`}>${s.speaker === "assistant" ? "the agent" : "the caller"}, in this call</a></blockquote>`
      : html`<p class="quiet">No quote: stored over the API.</p>`}
    <div class="chips"><span class=${"chip" + (f.state === "active" ? " good" : "")}>${f.state}${f.reason ? ": " + f.reason.replace("_", " ") : ""}</span><span class="chip">${f.kind}</span>
      ${f.topics.map(t => html`<span class="chip">${t}</span>`)}<span class="chip">sure ${percent(f.confidence)}</span><span class="quiet">seen ${when(Date.parse(f.last_seen_at))}</span></div>
    <div class="actions">
      ${write && f.state === "draft" ? html`<button @click=${() => act.accept(f.id)}>Accept</button>` : nothing}
      ${write && f.supersedes && f.state === "active" ? html`<button @click=${() => act.undo(f.id)}>Withdraw, restore the one before</button>` : nothing}
      ${write && f.state === "active" ? html`<details><summary>Correct or delete</summary>
        <form class="actions" @submit=${e => { e.preventDefault(); act.correct(f.id, e.target.elements.content.value); }}>
          <input name="content" aria-label="The fact, corrected" maxlength="300" .value=${f.content}><button>Save</button><button type="button" class="bad" @click=${() => act.remove(f.id)}>Delete</button></form></details>` : nothing}
      <details @toggle=${e => { if (e.target.open) act.history(f.id); }}><summary>History</summary>
        <ol class="attempts">${events?.map(h => html`<li>${h.event} <span class="quiet">${when(Date.parse(h.at))}${h.cause ? " · " + h.cause : ""}</span></li>`) ?? nothing}</ol></details>
    </div></li>`;
}

function call(a) {
  const t = a.tally, from = Date.parse(a.started_at), share = t?.generated_tokens ? t.unheard_tokens / t.generated_tokens : null;
  return html`<tr><th scope="row"><a href=${"/calls/" + encodeURIComponent(a.agent_id)}>${a.name || a.agent_id}</a></th><td class="n">${a.turns}</td><td class="n">${t?.interruptions ?? "–"}</td>
    <td class=${"n" + (share > 0 ? " bad" : "")}>${share == null ? "–" : percent(share)}</td><td class="n">${length((Date.parse(a.stopped_at) || Date.now()) - from)}</td><td class="n">${when(from)}</td></tr>`;
}
