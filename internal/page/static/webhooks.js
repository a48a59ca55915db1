// Webhooks: what was not delivered, the endpoints and their health, the deliveries by call, and the
// attempts of one delivery.

import {html, nothing} from "/page/lit-html.js";
import * as api from "/page/api.js";
import {answer, choice, copyLink, empty, failure, keys, skeleton, toast} from "/page/parts.js";
import {bytes, count, length, moment, timeOfDay, when} from "/page/words.js";

const everyMS = 3000, pageSize = 200;
const fields = ["endpoint", "state", "agent", "type", "since"];
// names are what the events mean; the four first are the dots of a call.
const names = {
  "agent.joined": "Call started", "agent.interrupted": "Caller cut in: what was heard", "agent.left": "Call ended", "agent.history": "The whole memory", "agent.message": "A message", "agent.turns": "The turns", "agent.metrics": "Figures of the call",
  "agent.scored": "A score", "agent.error": "The model failed", "agent.expiring": "The call is about to expire", "webhook.test": "Test", "delivery.dead": "A delivery was given up", "endpoint.disabled": "An endpoint was disabled",
  "memory.fact.added": "A fact was added", "memory.fact.superseded": "A fact was replaced", "memory.fact.withdrawn": "A fact was withdrawn", "memory.fact.expired": "A fact expired", "user.erased": "A caller was erased",
};
const dots = [["agent.joined", "started"], ["agent.interrupted", "interrupted"], ["agent.left", "ended"], ["agent.history", "memory"]];
export const states = {pending: "waiting", delivered: "delivered", dead: "given up", canceled: "canceled"};

export function webhooksPage({draw, go}) {
  const params = new URLSearchParams(location.search);
  const filter = Object.fromEntries(fields.map(k => [k, params.get(k) ?? ""]));
  const view = {filter, endpoints: null, list: null, cursor: "", chosen: params.get("delivery") ?? "", delivery: null, event: null, error: "", open: new Set(filter.agent ? [filter.agent] : []), calls: new Map(), undelivered: null};
  const redraw = () => draw(template(view, act));
  const attempt = async f => { try { await f(); view.error = ""; } catch (e) { if (view.list) toast(e.message, {bad: true}); else view.error = e.message; } redraw(); };
  const named = async list => {
    const ids = [...new Set(list.map(d => d.agent_id).filter(id => id && !view.calls.has(id)))].slice(0, 50);
    await Promise.all(ids.map(async id => view.calls.set(id, await api.get("/v1/agents/" + encodeURIComponent(id)).catch(() => null))));
  };

  const read = () => attempt(async () => {
    const [hooks, page, dead, waiting] = await Promise.all([api.endpoints(), api.deliveries({...filter, limit: pageSize}), api.deliveries({state: "dead", limit: 100}), api.deliveries({state: "pending", limit: 100})]);
    view.endpoints = hooks.endpoints;
    view.undelivered = [...dead.deliveries, ...waiting.deliveries.filter(d => d.attempt > 0 && !d.in_flight)];
    view.undeliveredMore = dead.next_cursor || waiting.next_cursor;
    if (!(view.list?.length > pageSize)) Object.assign(view, {list: page.deliveries, cursor: page.next_cursor ?? ""});
    if (view.chosen && view.delivery?.state !== "delivered") await open();
    await named(view.list);
  });
  const open = async () => {
    view.delivery = await api.delivery(view.chosen);
    if (view.event?.id !== view.delivery.message_id) view.event = await api.event(view.delivery.message_id).catch(() => null);
  };
  const show = id => attempt(async () => {
    view.chosen = view.chosen === id ? "" : id;
    view.delivery = view.event = null;
    history.replaceState(null, "", location.pathname + api.query({...filter, delivery: view.chosen}));
    if (view.chosen) await open();
  });
  const act = {
    set: (k, value) => go("/webhooks" + api.query({...filter, [k]: value})),
    show,
    fold: (id, on) => { if (on) view.open.add(id); else view.open.delete(id); redraw(); },
    more: () => attempt(async () => {
      const page = await api.deliveries({...filter, limit: pageSize, cursor: view.cursor});
      view.list.push(...page.deliveries);
      view.cursor = page.next_cursor ?? "";
      await named(page.deliveries);
    }),
    endpoint: (id, action) => attempt(async () => {
      const made = await api.endpointAction(id, action);
      await read();
      if (action === "test") await show(made.id); else toast(action === "enable" ? "Enabled." : "Disabled.", {undo: () => act.endpoint(id, action === "enable" ? "disable" : "enable")});
    }),
    delivery: (id, action) => attempt(async () => {
      const made = await api.deliveryAction(id, action);
      await read();
      if (made.id !== view.chosen) await show(made.id); else await open();
    }),
  };

  const step = by => () => {
    const ids = [...document.querySelectorAll("[data-delivery]")].map(e => e.dataset.delivery), i = ids.indexOf(view.chosen) + (view.chosen || by > 0 ? by : 0);
    if (ids[i]) show(ids[i]); else return false;
  };
  keys([["j ArrowDown", "next delivery", step(1), true], ["k ArrowUp", "delivery before", step(-1), true], ["Escape", "close", () => view.chosen ? show(view.chosen) : false, true]]);
  const timer = setInterval(() => { if (!document.hidden) read(); }, everyMS);
  read();
  redraw();
  return () => clearInterval(timer);
}

const host = url => { try { return new URL(url).host; } catch { return url; } };

// sentence says what was not delivered, and why.
function sentence(v) {
  const hook = new Map(v.endpoints.map(e => [e.id, e])), by = new Map();
  for (const d of v.undelivered) by.set(d.endpoint_id, [...(by.get(d.endpoint_id) ?? []), d]);
  const off = v.endpoints.filter(e => e.disabled), failing = v.endpoints.find(e => e.first_failure_at && !e.disabled);
  const [id, list] = [...by].sort((a, b) => b[1].length - a[1].length)[0] ?? [];
  if (list) {
    const e = hook.get(id), last = list.toSorted((a, b) => Date.parse(b.created_at) - Date.parse(a.created_at))[0], since = e?.first_failure_at ? ` since ${when(Date.parse(e.first_failure_at))}` : "";
    return answer("bad", html`<b>${list.length}${v.undeliveredMore ? "+" : ""} ${list.length === 1 ? "event was" : "events were"} not delivered</b> to ${host(e?.url ?? "an endpoint that was removed")}: ${last.last_status ? `it answers ${last.last_status}` : last.last_error_class ? `no answer, ${last.last_error_class.replaceAll("_", " ")}` : "no answer"}${since}.`);
  }
  if (off.length) return answer("bad", html`<b>${host(off[0].url)}</b> is disabled${off[0].disabled_reason ? `: ${off[0].disabled_reason}` : ""}. Its events wait.`);
  if (failing) return answer("bad", html`<b>${host(failing.url)}</b> has taken nothing since ${when(Date.parse(failing.first_failure_at))}: it is tried again.`);
  if (!v.list.length) return answer("", "No event was sent yet.");
  return answer("good", "Everything was delivered, or is on its way for the first time.");
}

function template(v, act) {
  const set = Object.values(v.filter).some(Boolean);
  return html`<div class=${"split" + (v.delivery ? " open" : "")}><section class="call">
    <div class="bar"><h1>Webhooks</h1><span class="end"><button @click=${copyLink}>Copy link</button></span></div>
    ${failure(v.error)}
    ${v.list ? v.endpoints.length || v.list.length ? sentence(v) : nothing : v.error ? nothing : skeleton(6)}
    ${v.endpoints?.length === 0 ? empty("There is no endpoint yet", html`<p>An endpoint is where events are sent. Set <code>HEARDLOG_WEBHOOK_URL</code>, or create one:</p>
      <pre tabindex="0">curl -s ${location.origin}/v1/webhooks/endpoints -H 'Content-Type: application/json' -d '{"url":"http://127.0.0.1:9090/hook","events":["agent.*"]}'</pre><p><a href="/docs/guide/guides/webhooks.md">How webhooks work</a></p>`) : nothing}
    <ul class="endpoints">${v.endpoints?.map(e => endpoint(e, act)) ?? nothing}</ul>
    ${v.endpoints?.length || v.list?.length ? html`<div class="bar" role="search" aria-label="Deliveries"><h2>Deliveries</h2>
      ${choice("State", v.filter.state, [["", "any state"], ...Object.entries(states)], s => act.set("state", s))}
      ${choice("Event", v.filter.type, [["", "any event"], ...Object.entries(names)], s => act.set("type", s))}
      ${[["agent", "one call"], ["endpoint", "one endpoint"], ["since", "since " + v.filter.since]].map(([k, text]) => v.filter[k] ? html`<button class="set" @click=${() => act.set(k, "")}>${text} ×</button>` : nothing)}</div>
    ${v.list?.length ? html`<ul class="card by-call">${groups(v.list).map(g => g.agent ? group(g, v, act) : html`<li>${g.list.map(d => row(d, v, act))}</li>`)}</ul>` : v.list ? html`<div class="card empty line" role="status">${set ? html`No delivery fits. <a href="/webhooks">Remove all filters</a>` : "Nothing was sent yet: the next call will be."}</div>` : nothing}
    ${v.cursor ? html`<button class="plain" @click=${act.more}>More deliveries</button>` : nothing}` : nothing}
  </section>${v.delivery ? aside(v, act) : nothing}</div>`;
}

// groups puts the deliveries of a call together, where its newest one is.
function groups(list) {
  const out = [], by = new Map();
  for (const d of list) {
    const g = d.agent_id && by.get(d.agent_id);
    if (g) g.list.push(d); else { const made = {agent: d.agent_id, list: [d]}; out.push(made); if (d.agent_id) by.set(d.agent_id, made); }
  }
  return out;
}

const bad = d => d.state === "dead" || d.state === "pending" && d.attempt > 0;
const kindOf = list => !list.length ? "none" : list.some(bad) ? "bad" : list.every(d => d.state === "delivered") ? "good" : "open";
const dotName = {none: "not sent", bad: "not delivered", good: "delivered", open: "waiting"};

function group(g, v, act) {
  const a = v.calls.get(g.agent), on = v.open.has(g.agent) || g.list.some(d => d.id === v.chosen), failed = g.list.filter(bad).length;
  return html`<li><details ?open=${on} @toggle=${e => { if (e.target.open !== on) act.fold(g.agent, e.target.open); }}><summary><b dir="auto">${a?.name || g.agent.slice(-8)}</b>
      <span class="dots">${dots.map(([event, name]) => { const k = kindOf(g.list.filter(d => d.event === event)); return html`<span class=${k} title=${`${name}: ${dotName[k]}`}><i aria-hidden="true"></i>${name}<span class="hidden">: ${dotName[k]}</span></span>`; })}</span>
      <span class=${failed ? "bad" : "quiet"}>${failed ? `▲ ${count(failed, "delivery", "deliveries")} failed` : count(g.list.length, "delivery", "deliveries")}</span><span class="quiet n">${when(Date.parse(g.list[0].created_at))}</span></summary>
    ${on ? html`${g.list.map(d => row(d, v, act))}<p class="pad"><a href=${"/calls/" + encodeURIComponent(g.agent)}>Open the call</a></p>` : nothing}</details></li>`;
}

function row(d, v, act) {
  return html`<button class=${"delivery" + (d.id === v.chosen ? " on" : "")} data-delivery=${d.id} aria-pressed=${d.id === v.chosen} @click=${() => act.show(d.id)}><span class="quiet">${timeOfDay(Date.parse(d.created_at))}</span>
    <span class="what"><b>${names[d.event] ?? d.event}</b> <code>${d.event}</code>${d.replay_of ? html` <span class="chip">sent again</span>` : nothing}</span>
    <span>${stateChip(d)}</span><span class="quiet n">${d.last_status || (d.last_error_class ?? "").replaceAll("_", " ") || "–"}${d.attempt > 1 ? `, ${d.attempt} attempts` : ""}</span></button>`;
}
const stateChip = d => html`<span class=${"chip " + (bad(d) ? "bad" : d.state === "delivered" ? "good" : "")}>${d.in_flight ? "under way" : d.state === "pending" && d.attempt > 0 ? "trying again" : states[d.state] ?? d.state}</span>`;

// health is an endpoint's state in a word, and what explains it.
function health(e) {
  if (e.disabled) return ["bad", "disabled", [e.disabled_reason, e.kept_until ? `events are kept until ${when(Date.parse(e.kept_until))}` : ""].filter(Boolean).join("; ")];
  if (e.first_failure_at) return ["bad", "failing", "only failures since " + when(Date.parse(e.first_failure_at))];
  if (e.last_success_at) return ["good", "healthy", "last success " + when(Date.parse(e.last_success_at))];
  return ["", "not used yet", ""];
}

function endpoint(e, act) {
  const [kind, word, why] = health(e), signed = e.secrets.filter(s => s.live);
  return html`<li class="card"><div><b class="url">${e.url}</b> <span class=${"chip " + kind}>${word}</span><small>${[e.description, why, e.fixed ? "from the settings" : ""].filter(Boolean).join(" · ")}</small>
    <span class="chips">${(e.events.length ? e.events : ["default events"]).map(t => html`<span class="chip">${t}</span>`)}
      <span class="chip">${signed.length ? `signed with ${signed.length === 1 ? signed[0].kind : signed.length + " secrets"}` : "not signed"}</span>${e.payload === "thin" ? html`<span class="chip">thin</span>` : nothing}</span></div>
    <div class="actions"><button @click=${() => act.endpoint(e.id, "test")}>Send a test</button>
      <button @click=${() => act.endpoint(e.id, e.disabled ? "enable" : "disable")}>${e.disabled ? "Enable" : "Disable"}</button>
      <button @click=${() => act.set("endpoint", e.id)}>Its deliveries</button></div></li>`;
}

function aside(v, act) {
  const d = v.delivery, hook = v.endpoints?.find(e => e.id === d.endpoint_id), a = v.calls.get(d.agent_id);
  return html`<aside class="panel" aria-label="The chosen delivery" tabindex="0"><div class="heading"><h2>${names[d.event] ?? d.event} ${stateChip(d)}</h2><button class="close" aria-label="Close" @click=${() => act.show(d.id)}>×</button></div>
    <dl class="pairs"><dt>Event</dt><dd><code>${d.event}</code>, ${moment(Date.parse(d.event_at))}</dd><dt>To</dt><dd>${hook?.url ?? d.endpoint_id}</dd>
      ${d.agent_id ? html`<dt>Call</dt><dd><a href=${"/calls/" + encodeURIComponent(d.agent_id)} dir="auto">${a?.name || "open"}</a> · <button class="link" @click=${() => act.set("agent", d.agent_id)}>its deliveries</button></dd>` : nothing}
      ${d.state === "pending" && d.due_at ? html`<dt>Due</dt><dd>${moment(Date.parse(d.due_at))}</dd>` : nothing}
      ${d.reason ? html`<dt>Reason</dt><dd>${d.reason}</dd>` : nothing}</dl>
    <div class="actions"><button @click=${() => act.delivery(d.id, "replay")}>Send again</button>
      ${d.state === "pending" ? html`<button @click=${() => act.delivery(d.id, "cancel")}>Cancel</button>` : nothing}</div>
    <h3>Attempts</h3>
    ${d.attempts?.length ? html`<ol class="attempts">${d.attempts.map(t => attempt(t, d.message_id))}</ol>` : html`<p class="quiet">None yet.</p>`}
    <h3>Body${d.bytes ? `, ${bytes(d.bytes)}` : ""}</h3>
    ${v.event?.body !== undefined ? html`<pre tabindex="0">${JSON.stringify(v.event.body, null, 2)}</pre>` : html`<p class="quiet">The event is no longer kept.</p>`}
  </aside>`;
}

function attempt(a, id) {
  const ok = a.status >= 200 && a.status < 300;
  return html`<li><b class=${ok ? "good" : "bad"}>${a.status || a.error_class}</b> <span class="quiet">${moment(Date.parse(a.started_at))} · ${length(a.ms)}
      ${a.connect_ms + a.tls_ms > 0 ? `· connect ${length(a.connect_ms + a.tls_ms)}` : ""}</span>
    ${a.error ? html`<div class="bad">${a.error}</div>` : nothing}
    ${a.signature_headers.length ? html`<details><summary>Signatures</summary><pre tabindex="0">webhook-id: ${id}\n${a.signature_headers.map(h => `${h.name}: ${h.value}\n`)}</pre></details>` : nothing}
    ${a.response || a.response_headers?.length ? html`<details><summary>Answer</summary><pre tabindex="0">${a.response_headers.map(h => `${h.name}: ${h.value}\n`)}\n${a.response}${a.response_truncated ? "…" : ""}</pre></details>` : nothing}</li>`;
}
