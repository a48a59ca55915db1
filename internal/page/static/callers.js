// The callers: whom the calls know, and of whom something waits to be looked at.

import {html, nothing} from "/page/lit-html.js";
import * as api from "/page/api.js";
import {answer, copyLink, empty, failure, keys, shape, skeleton, toast} from "/page/parts.js";
import {count, cutOff, day, lengthOf, moment, neverHeard, offset, reasons, timeOfDay, when, whole} from "/page/words.js";

export function callersPage({draw, go}) {
  const view = {list: null, cursor: "", error: "", at: -1};
  const redraw = () => draw(list(view, read, go));
  async function read() {
    try {
      const page = await api.users(view.cursor);
      view.list = [...(view.list ?? []), ...page.users];
      view.cursor = page.next_cursor ?? "";
    } catch (e) { view.error = e.message; }
    redraw();
  }
  const move = by => () => { view.at = Math.max(0, Math.min(fitting(view).length - 1, view.at + by)); redraw(); document.querySelector("tr.on")?.scrollIntoView({block: "nearest"}); };
  keys([["j ArrowDown", "next caller", move(1), true], ["k ArrowUp", "caller before", move(-1), true], ["Enter", "open", () => { const u = fitting(view)[view.at]; if (u) go(at(u.user_id)); else return false; }, true], ["/", "search", () => document.querySelector("main input[type=search]").focus(), true]]);
  read();
  redraw();
}

const at = name => "/callers/" + encodeURIComponent(name);
export const remembers = {all: "calls and facts", turns: "calls only", none: "nothing"};
const waiting = u => u.facts?.draft ?? 0;
const fitting = v => (v.list ?? []).toSorted((a, b) => Math.sign(waiting(b)) - Math.sign(waiting(a)));

function list(v, more, go) {
  const open = e => { e.preventDefault(); const name = e.target.elements.user.value.trim(); if (name) go(at(name)); };
  const users = fitting(v), drafts = (v.list ?? []).filter(u => waiting(u)), shut = (v.list ?? []).filter(u => u.consent.now !== "all").length, known = v.list?.some(u => u.calls != null);
  return html`<div class="bar"><h1>Callers</h1>
    <form @submit=${open}><input type="search" name="user" aria-label="A caller's name, number or alias" placeholder="Name, number or alias…" autocomplete="off"><button>Open</button></form></div>
    ${failure(v.error)}
    ${v.list?.length ? drafts.length ? answer("bad", html`Of <b>${count(drafts.length, "caller")}</b> ${drafts.length === 1 ? "a fact waits" : "facts wait"} to be looked at: <a href=${at(drafts[0].user_id)} dir="auto">${drafts[0].user_id}</a>${drafts.length > 1 ? ` and ${drafts.length - 1} more` : ""}.${shut ? ` ${count(shut, "caller")} may not be remembered in full.` : ""}`)
      : answer("good", html`No fact waits to be looked at.${shut ? ` ${count(shut, "caller")} may not be remembered in full.` : ""}`) : nothing}
    ${!v.list ? v.error ? nothing : skeleton(8) : users.length ? html`<table class="list one callers"><thead><tr><th scope="col">Caller</th>${known ? html`<th class="n" scope="col">Calls</th><th class="n last" scope="col">Last call</th><th class="n facts-n" scope="col">Facts</th><th class="n" scope="col">Waiting</th>` : nothing}<th scope="col">May be remembered</th></tr></thead>
      <tbody>${users.map((u, i) => html`<tr class=${i === v.at ? "on" : ""}><th scope="row" title=${u.aliases.join(", ")}><a class="over" href=${at(u.user_id)} dir="auto">${u.user_id}</a> <small dir="auto">${u.aliases.join(", ")}</small></th>
        ${known ? html`<td class="n calls-n">${whole(u.calls)}</td><td class="n last" title=${moment(Date.parse(u.last_call_at))}>${u.last_call_at ? when(Date.parse(u.last_call_at)) : "–"}</td><td class="n facts-n">${whole(u.facts?.active)}</td><td class=${"n waiting" + (waiting(u) ? " slow" : " zero")}>${whole(waiting(u))}</td>` : nothing}
        <td class=${"consent " + (u.consent.now === "all" ? "" : "bad")}>${remembers[u.consent.now]}</td></tr>`)}</tbody></table>`
      : empty("No caller is known yet", html`<p>A call names its caller when it starts, or its platform sends the number:</p><pre tabindex="0">{"name": "desk", "properties": {"heardlog": {"scope": {"user_id": "+49 30 901820"}}}}</pre><p><a href="/">All calls</a></p>`)}
    ${v.cursor ? html`<button class="plain" @click=${more}>More callers</button>` : nothing}`;
}

// One caller: what is known, with the words that prove it; the calls; what the next call is told;
// consent and erasing.

const used = f => f.state === "active" || f.state === "draft";

export function callerPage({draw, go, may, args: [name]}) {
  const view = {name, state: new URLSearchParams(location.search).get("facts") ?? "used", caller: null, facts: null, told: "", toldFacts: [], calls: [], names: new Map(), histories: {}, at: -1, edit: "", error: "", erased: null};
  const redraw = () => draw(one(view, act, may));
  const attempt = async f => { try { await f(); view.error = ""; } catch (e) { if (view.caller) toast(e.message, {bad: true}); else { view.error = e.message; view.missing = e.status === 404; } } redraw(); };
  const read = () => attempt(async () => {
    const [caller, facts, told, calls] = await Promise.all([api.caller(name), api.facts(name, "all"), api.factContext(name), api.callsShaped({user_id: name, limit: 10})]);
    Object.assign(view, {caller, facts: facts.facts, told: told.block, toldFacts: told.facts, calls: calls.agents, more: calls.next_cursor, histories: {}, edit: ""});
    for (const a of calls.agents) view.names.set(a.agent_id, a);
    redraw();
    // The proofs lead to their second: of calls that are not listed here it is asked for.
    const missing = [...new Set(facts.facts.map(f => f.source?.agent_id).filter(id => id && !view.names.has(id)))].slice(0, 20);
    await Promise.all(missing.map(async id => view.names.set(id, await api.call(id).catch(() => null))));
    await Promise.all(facts.facts.filter(f => f.source?.from_seq && view.names.get(f.source.agent_id)).map(async f => {
      f.at ??= (await api.messagesAfter(f.source.agent_id, f.source.from_seq - 1).catch(() => null))?.messages[0]?.timestamp;
    }));
  });
  const then = (promise, said, undo) => attempt(async () => { await promise; await read(); if (said) toast(said, {undo}); });
  const act = {
    states: state => { view.state = state; history.replaceState(null, "", at(name) + api.query({facts: state === "used" ? "" : state})); redraw(); },
    edit: id => { view.edit = view.edit === id ? "" : id; redraw(); document.querySelector("[name=content]")?.focus(); },
    correct: (id, content, old) => then(api.changeFact(name, id, {content, cause: "corrected on the page"}), "Fact corrected.", () => act.correct(id, old, content)),
    accept: id => then(api.acceptFact(name, id), "Fact accepted."),
    undo: id => then(api.undoFact(name, id), "The fact before is used again."),
    remove: id => then(api.deleteFact(name, id), "Fact discarded."),
    history: id => attempt(async () => { view.histories[id] ??= (await api.factHistory(name, id)).events; }),
    aliases: text => then(api.putAliases(name, text.split(",").map(s => s.trim()).filter(Boolean)), "Names saved."),
    consent: remember => { const old = view.caller.consent.remember; then(api.putConsent(name, {...(view.caller.consent.until ? {until: view.caller.consent.until} : {}), remember}), "Consent saved.", () => act.consent(old)); },
    erase: () => attempt(async () => { view.erased = (await api.erase(name)).erased; }),
  };
  const list = () => sorted(view), move = by => () => { view.at = Math.max(0, Math.min(list().length - 1, view.at + by)); redraw(); document.querySelector(".fact.on")?.scrollIntoView({block: "nearest"}); };
  const chosen = f => () => { const fact = list()[view.at]; return fact ? f(fact) : false; };
  keys([["j ArrowDown", "next fact", move(1), true], ["k ArrowUp", "fact before", move(-1), true], ["a", "accept", chosen(f => f.state === "draft" && may("write") ? act.accept(f.id) : false), true], ["e", "correct", chosen(f => f.state === "active" && may("write") ? act.edit(f.id) : false), true],
    ["Enter", "open the proof", chosen(f => f.source?.agent_id ? go(proof(f.source)) : false), true]]);
  read();
  redraw();
}

const proof = s => "/calls/" + encodeURIComponent(s.agent_id) + api.query({m: s.from_seq});
const order = {draft: 0, active: 1};
const shows = {used, withdrawn: f => !used(f), all: () => true};
const sorted = v => (v.facts ?? []).filter(shows[v.state] ?? used).sort((a, b) => (order[a.state] ?? 2) - (order[b.state] ?? 2));

function one(v, act, may) {
  if (v.erased) return html`<h1 dir="auto">${v.name}</h1>${answer("good", html`<span role="status">Erased: ${count(v.erased.agents, "call")}, ${count(v.erased.memories, "memory", "memories")}, ${count(v.erased.records, "record")}.</span> <a href="/callers">All callers</a>`)}`;
  const c = v.caller, write = may("write");
  if (v.missing) return empty("This caller is not known.", html`<p>It may have been erased, or belong to another project.</p><p><a href="/callers">All callers</a></p>`);
  if (!c) return v.error ? html`${failure(v.error)}<p><a href="/callers">All callers</a></p>` : skeleton(8);
  const n = {active: 0, draft: 0, gone: 0};
  for (const f of v.facts) n[f.state in n ? f.state : "gone"]++;
  const facts = sorted(v);
  return html`<div class="sides"><section>
    <div class="crumbs"><nav aria-label="Where this is"><a href="/callers">Callers</a> / <span dir="auto">${c.user_id}</span></nav></div>
    <div class="heading"><h1 dir="auto">${c.user_id}</h1><span class="actions"><button @click=${copyLink}>Copy link</button> <a class="button" href=${api.exportOf(c.user_id)} download="caller.jsonl">Export</a></span></div>
    <p class="about">${[count(c.calls, "call") + (c.first_call_at ? ` since ${day(Date.parse(c.first_call_at))}` : ""), c.last_call_at ? `last ${day(Date.parse(c.last_call_at))} ${timeOfDay(Date.parse(c.last_call_at))}` : ""].filter(Boolean).join(" · ")}${c.aliases.length ? html` · also known as ${c.aliases.map(a => html`<span class="chip" dir="auto">${a}</span> `)}` : nothing}</p>
    ${failure(v.error)}
    ${summary(v, n)}
    <section class="card"><div class="heading"><h2>Facts <span class="quiet">with the words that prove them</span></h2><span class="segments" role="group" aria-label="Which facts">${[["used", `Used ${n.active}, waiting ${n.draft}`], ["withdrawn", `Withdrawn ${n.gone}`], ["all", "All"]].map(([key, text]) => html`<button aria-pressed=${v.state === key} @click=${() => act.states(key)}>${text}</button>`)}</span></div>
      ${facts.length ? html`<ul class="facts">${facts.map((f, i) => fact(f, v, act, write, i === v.at))}</ul>` : html`<p class="quiet pad">No such fact is stored. Facts come from <code>POST ${"/v1/users/{user}/facts/extract"}</code>.</p>`}</section>
    <section class="card"><div class="heading"><h2>Calls</h2><a href=${"/" + api.query({user_id: c.user_id})}>all ${c.calls > 1 ? whole(c.calls) : ""} in the list</a></div>
      ${v.calls.length ? html`<table class="list one of-caller"><thead><tr><th scope="col">Call</th><th scope="col">What happened</th><th class="n" scope="col">Cut off</th><th class="n" scope="col">Never heard</th><th class="n long" scope="col">Length</th></tr></thead><tbody>${v.calls.map(call)}</tbody></table>` : html`<p class="quiet pad">None is kept.</p>`}</section>
  </section>
  <div class="side-cards"><section class="card pad"><h2>What the next call is told</h2>
    ${v.told ? html`<pre class="told-next" dir="auto" tabindex="0">${v.told}</pre><p class="quiet">${count(v.toldFacts.length, "fact")}.${n.draft || n.gone ? " What waits is not in it." : ""}</p>` : html`<p class="quiet">${c.consent.now !== "all" ? "Nothing: the consent does not allow it." : "Nothing: no fact is used."}</p>`}</section>
  <section class="card pad"><h2>Other names</h2>
    ${write ? html`<form class="inline" @submit=${e => { e.preventDefault(); act.aliases(e.target.elements.aliases.value); }}>
      <input name="aliases" aria-label="Other names, with commas" placeholder="+4930123456, crm-17" .value=${c.aliases.join(", ")}><button>Save</button></form>` : html`<p>${c.aliases.join(", ") || "none"}</p>`}</section>
  <section class="card pad"><h2>May be remembered</h2>
    ${write ? html`<fieldset class="consent"><legend class="hidden">May be remembered</legend>${Object.entries(remembers).map(([key, text]) => html`<label><input type="radio" name="remember" value=${key} .checked=${c.consent.remember === key} @change=${() => act.consent(key)}><span><b>${text.replace(/^./, s => s.toUpperCase())}</b><small>${consents[key]}</small></span></label>`)}</fieldset>` : html`<p>${remembers[c.consent.remember]}</p>`}
    ${c.consent.until ? html`<p class="quiet">Until ${day(Date.parse(c.consent.until))}, then nothing.${c.consent.now !== c.consent.remember ? " That time is over." : ""}</p>` : nothing}
    <p class="quiet">${c.consent.set_by ? `Set on ${day(Date.parse(c.consent.set_at))} by ${c.consent.set_by}.` : c.consent.remember === "all" && !c.consent.until ? "Nobody has set it: this is the default." : ""}</p></section>
  ${may("admin") ? html`<section class="card pad danger"><h2>Erase <span dir="auto">${c.user_id}</span></h2>
      <p>This deletes for good, on every server and in every waiting webhook: ${count(c.calls, "call")}, ${count(v.facts.length, "fact")} with their history, ${count(c.aliases.length + 1, "name")}, and the consent.</p>
      <p>Type <b dir="auto">${c.user_id}</b> to confirm. Backups keep these until they expire.</p>
      <form class="inline" @submit=${e => { e.preventDefault(); if (e.target.elements.confirm.value === c.user_id) act.erase(); }}>
        <input name="confirm" aria-label="The caller's name, to confirm" placeholder=${c.user_id} autocomplete="off"><button class="bad">Erase</button></form></section>` : nothing}
  </div></div>`;
}
const consents = {all: "facts are taken from calls, and used", turns: "no facts are taken from them, none are used", none: "new calls start as with a stranger"};

// summary says what is known of the caller, and what waits.
function summary(v, n) {
  const c = v.caller, first = v.facts.find(f => f.state === "draft"), facts = v.facts.filter(f => f.state === "active");
  if (n.draft) return answer("bad", html`<b>${count(n.draft, "fact")}</b> ${n.draft === 1 ? "waits" : "wait"} to be looked at, first “<span dir="auto">${first.content}</span>”: ${why(first)}. ${count(n.active, "fact")} ${n.active === 1 ? "is" : "are"} used.`);
  if (c.consent.now !== "all") return answer("", html`${c.consent.now === "none" ? "Nothing may be remembered of this caller" : "Calls may be remembered of this caller, facts not"}: the next call is told no fact.`);
  if (!n.active) return answer("", `Nothing is known of this caller but ${count(c.calls, "call")}.`);
  return answer("good", html`<b>${count(n.active, "fact")}</b> ${n.active === 1 ? "is" : "are"} used, and nothing waits. The newest: “<span dir="auto">${facts.sort((a, b) => Date.parse(b.updated_at) - Date.parse(a.updated_at))[0].content}</span>”.`);
}

const certain = c => c >= .8 ? "certain" : c >= .5 ? "likely" : "unsure";
// why says why a fact waits, or why it is no longer used.
function why(f) {
  return (causes[f.reason] ?? (f.reason ?? "").replaceAll("_", " ")) || (f.state === "draft" ? "it was stored to be looked at" : f.state === "superseded" ? "another fact took its place" : "");
}
const causes = {no_proof: "no words prove it", no_source: "no words prove it", weak_evidence: "heard is only assumed", unheard: "it was never heard", undone: "it was taken back"};

function fact(f, v, act, write, on) {
  const s = f.source, events = v.histories[f.id], a = s && v.names.get(s.agent_id), gone = !used(f), agent = s?.speaker === "assistant";
  const state = f.state === "active" ? `Used, ${certain(f.confidence)}` : {draft: "Waiting", superseded: "Replaced", withdrawn: "Withdrawn", expired: "Expired"}[f.state] ?? f.state;
  const where = a ? `${f.at ? offset(f.at - Date.parse(a.started_at)) + " in " : ""}${a.name || "a call"}, ${day(Date.parse(a.started_at))}` : "in this call";
  return html`<li class=${`fact ${f.state}${on ? " on" : ""}`}><div class="what"><b dir="auto" class="content">${gone ? html`<s>${f.content}</s>` : f.content}</b>
      ${s?.quote ? html`<span class="proof">${agent ? "Agent" : "Caller"}: <q class=${gone && agent ? "lost" : agent ? "heard" : "caller"} dir="auto">${s.quote}</q> <a href=${proof(s)}>${where}</a></span>` : html`<span class="proof">No quote: stored over the API.</span>`}</div>
    <div class="state"><b>${state}</b><small>${f.state === "active" ? `said ${f.hits ? count(f.hits + 1, "time") : "once"}, last ${when(Date.parse(f.last_seen_at))}` : why(f)}</small></div>
    <div class="actions">
      ${write && f.state === "draft" ? html`<button class="main" @click=${() => act.accept(f.id)}>Accept</button><button @click=${() => act.remove(f.id)}>Discard</button>` : nothing}
      ${write && f.state === "active" ? html`<button aria-expanded=${v.edit === f.id} @click=${() => act.edit(f.id)}>Correct</button>` : nothing}
      <details @toggle=${e => { if (e.target.open) act.history(f.id); }}><summary>History</summary><div>
        <p class="quiet">${[f.kind, ...f.topics].join(" · ")}</p>
        <ol class="attempts">${events?.map(h => html`<li>${h.event} <span class="quiet" title=${moment(Date.parse(h.at))}>${when(Date.parse(h.at))}${h.cause ? " · " + h.cause : ""}</span></li>`) ?? nothing}</ol>
        ${write && f.supersedes && f.state === "active" ? html`<button @click=${() => act.undo(f.id)}>Withdraw, restore the one before</button>` : nothing}
        ${write && f.state === "active" ? html`<button class="bad" @click=${() => act.remove(f.id)}>Delete</button>` : nothing}</div></details></div>
    ${v.edit === f.id ? html`<form class="inline" @submit=${e => { e.preventDefault(); act.correct(f.id, e.target.elements.content.value, f.content); }}>
      <input name="content" aria-label="The fact, corrected" maxlength="300" required .value=${f.content}><button class="main">Save</button></form>` : nothing}</li>`;
}

function call(a) {
  const gone = neverHeard(a), cut = cutOff(a), from = Date.parse(a.started_at), why = reasons(a).join(" · ");
  return html`<tr><th scope="row" title=${moment(from)}><a class="over" href=${"/calls/" + encodeURIComponent(a.agent_id) + api.query({in: new URLSearchParams({user_id: a.user_id})})} dir="auto">${a.name || a.agent_id}, ${day(from)} ${timeOfDay(from)}</a></th>
    <td class="happened" title=${why}>${shape(a.shape)}<span>${why}</span></td><td class="n"><b>${cut.n}</b> <span class="quiet">${cut.of}</span></td><td class=${"n " + gone.kind} title=${gone.of}>${gone.share}</td><td class="n long">${offset(lengthOf(a))}</td></tr>`;
}
