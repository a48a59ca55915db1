// Webhooks: the endpoints and their health, the deliveries, and the attempts of one delivery.

import {html, nothing} from "/page/lit-html.js";
import * as api from "/page/api.js";
import {bytes, choice, failure, length, moment, when} from "/page/words.js";

const everyMS = 3000, pageSize = 50;
const fields = ["endpoint", "state", "agent", "type", "since"];

export function webhooksPage({draw, go}) {
  const params = new URLSearchParams(location.search);
  const filter = Object.fromEntries(fields.map(k => [k, params.get(k) ?? ""]));
  const view = {filter, endpoints: null, list: null, cursor: "", chosen: params.get("delivery") ?? "", delivery: null, event: null, error: ""};
  const redraw = () => draw(template(view, act));
  const attempt = async f => { try { await f(); view.error = ""; } catch (e) { view.error = e.message; } redraw(); };

  const read = () => attempt(async () => {
    const [hooks, page] = await Promise.all([api.endpoints(), api.deliveries({...filter, limit: pageSize})]);
    view.endpoints = hooks.endpoints;
    const more = view.list?.length > pageSize;
    if (!more) Object.assign(view, {list: page.deliveries, cursor: page.next_cursor ?? ""});
    if (view.chosen && view.delivery?.state !== "delivered") await open();
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
    set: (k, value) => go("/webhooks" + api.query({...filter, [k]: value}), true),
    show,
    more: () => attempt(async () => {
      const page = await api.deliveries({...filter, limit: pageSize, cursor: view.cursor});
      view.list.push(...page.deliveries);
      view.cursor = page.next_cursor ?? "";
    }),
    endpoint: (id, action) => attempt(async () => {
      const made = await api.endpointAction(id, action);
      await read();
      if (action === "test") await show(made.id);
    }),
    delivery: (id, action) => attempt(async () => {
      const made = await api.deliveryAction(id, action);
      await read();
      if (made.id !== view.chosen) await show(made.id); else await open();
    }),
  };

  const timer = setInterval(() => { if (!document.hidden) read(); }, everyMS);
  read();
  redraw();
  return () => clearInterval(timer);
}

function template(v, act) {
  const kinds = [...new Set((v.list ?? []).map(d => d.event))].sort();
  if (v.filter.type && !kinds.includes(v.filter.type)) kinds.push(v.filter.type);
  return html`<div class="split"><section class="call">
    <h1>Webhooks</h1>
    ${failure(v.error)}
    ${v.endpoints?.length === 0 ? html`<p class="quiet">There is no endpoint yet. Set <code>HEARDLOG_WEBHOOK_URL</code>, or create one with <code>POST /v1/webhooks/endpoints</code>.</p>` : nothing}
    <ul class="cards">${v.endpoints?.map(e => endpoint(e, act)) ?? nothing}</ul>
    <h2>Deliveries</h2>
    <div class="filters" role="search">
      ${choice("Endpoint", v.filter.endpoint, [["", "any endpoint"], ...(v.endpoints ?? []).map(e => [e.id, e.url])], s => act.set("endpoint", s))}
      ${choice("State", v.filter.state, [["", "any state"], ["pending", "pending"], ["delivered", "delivered"], ["dead", "dead"], ["canceled", "canceled"]], s => act.set("state", s))}
      ${choice("Event", v.filter.type, [["", "any event"], ...kinds.map(k => [k, k])], s => act.set("type", s))}
      ${choice("Time", v.filter.since, [["", "any time"], ["1h", "last hour"], ["24h", "last 24 h"], ["168h", "last 7 days"]], s => act.set("since", s))}
      ${v.filter.agent ? html`<button class="set" @click=${() => act.set("agent", "")}>one call ×</button>` : nothing}
    </div>
    <div class="wide-table"><table class="list"><thead><tr><th>Event</th><th>State</th><th class="wide">Call</th><th class="n">Attempts</th><th class="n">Last answer</th><th class="n wide">Size</th><th class="n">Made</th></tr></thead>
      <tbody>${v.list?.map(d => row(d, v.chosen, act)) ?? nothing}</tbody></table></div>
    ${v.list?.length === 0 ? html`<p class="quiet">No delivery fits.</p>` : nothing}
    ${v.cursor ? html`<button @click=${act.more}>More deliveries</button>` : nothing}
  </section>${v.delivery ? aside(v, act) : nothing}</div>`;
}

// health is an endpoint's state in a word, and what explains it.
function health(e) {
  if (e.disabled) return ["bad", "disabled", [e.disabled_reason, e.kept_until ? `events are kept until ${when(Date.parse(e.kept_until))}` : ""].filter(Boolean).join("; ")];
  if (e.first_failure_at) return ["bad", "failing", "only failures since " + when(Date.parse(e.first_failure_at))];
  if (e.last_success_at) return ["good", "healthy", "last success " + when(Date.parse(e.last_success_at))];
  return ["", "not used yet", ""];
}

function endpoint(e, act) {
  const [kind, word, why] = health(e), live = e.secrets.filter(s => s.live);
  return html`<li class="card"><div><b class="url">${e.url}</b> <span class=${"chip " + kind}>${word}</span></div>
    <p class="quiet">${[e.description, why, e.fixed ? "from the settings" : ""].filter(Boolean).join(" · ")}</p>
    <div class="chips">${(e.events.length ? e.events : ["default events"]).map(t => html`<span class="chip">${t}</span>`)}
      <span class="chip">${live.length ? `signed with ${live.length === 1 ? live[0].kind : live.length + " secrets"}` : "not signed"}</span>${e.payload === "thin" ? html`<span class="chip">thin</span>` : nothing}</div>
    <div class="actions"><button @click=${() => act.endpoint(e.id, "test")}>Send a test</button>
      <button @click=${() => act.endpoint(e.id, e.disabled ? "enable" : "disable")}>${e.disabled ? "Enable" : "Disable"}</button>
      <button @click=${() => act.set("endpoint", e.id)}>Its deliveries</button></div></li>`;
}

// kind is the class of the chip with the state of a delivery.
const kind = d => "chip" + (d.state === "dead" || d.state === "pending" && d.attempt > 0 ? " bad" : d.state === "delivered" ? " good" : "");

function row(d, chosen, act) {
  return html`<tr class=${d.id === chosen ? "on" : ""}><th scope="row"><button class="link" aria-pressed=${d.id === chosen} @click=${() => act.show(d.id)}>${d.event}</button></th>
    <td><span class=${kind(d)}>${d.in_flight ? "under way" : d.state}</span>${d.replay_of ? html` <span class="chip">replay</span>` : nothing}</td>
    <td class="wide">${d.agent_id ? html`<a href=${"/calls/" + encodeURIComponent(d.agent_id)}>${d.agent_id.slice(-8)}</a>` : "–"}</td>
    <td class="n">${d.attempt}</td><td class="n">${d.last_status || d.last_error_class || "–"}</td><td class="n wide">${bytes(d.bytes)}</td><td class="n">${when(Date.parse(d.created_at))}</td></tr>`;
}

function aside(v, act) {
  const d = v.delivery, hook = v.endpoints?.find(e => e.id === d.endpoint_id);
  return html`<aside aria-label="The chosen delivery" tabindex="0"><h2>${d.event} <span class=${kind(d)}>${d.state}</span></h2>
    <dl class="pairs"><dt>To</dt><dd>${hook?.url ?? d.endpoint_id}</dd>
      <dt>Event</dt><dd>${moment(Date.parse(d.event_at))}</dd>
      ${d.agent_id ? html`<dt>Call</dt><dd><a href=${"/calls/" + encodeURIComponent(d.agent_id)}>open</a> · <button class="link" @click=${() => act.set("agent", d.agent_id)}>its deliveries</button></dd>` : nothing}
      ${d.state === "pending" && d.due_at ? html`<dt>Due</dt><dd>${moment(Date.parse(d.due_at))}</dd>` : nothing}
      ${d.reason ? html`<dt>Reason</dt><dd>${d.reason}</dd>` : nothing}</dl>
    <div class="actions"><button @click=${() => act.delivery(d.id, "replay")}>Send again</button>
      ${d.state === "pending" ? html`<button @click=${() => act.delivery(d.id, "cancel")}>Cancel</button>` : nothing}</div>
    <h3>Attempts</h3>
    ${d.attempts?.length ? html`<ol class="attempts">${d.attempts.map(a => attempt(a, d.message_id))}</ol>` : html`<p class="quiet">None yet.</p>`}
    <h3>Body${d.bytes ? `, ${bytes(d.bytes)}` : ""}</h3>
    ${v.event?.body !== undefined ? html`<pre>${JSON.stringify(v.event.body, null, 2)}</pre>` : html`<p class="quiet">The event is no longer kept.</p>`}
  </aside>`;
}

function attempt(a, id) {
  const ok = a.status >= 200 && a.status < 300;
  return html`<li><b class=${ok ? "" : "bad"}>${a.status || a.error_class}</b> <span class="quiet">${moment(Date.parse(a.started_at))} · ${length(a.ms)}
      ${a.connect_ms + a.tls_ms > 0 ? `· connect ${length(a.connect_ms + a.tls_ms)}` : ""}</span>
    ${a.error ? html`<div class="bad">${a.error}</div>` : nothing}
    ${a.signature_headers.length ? html`<details><summary>Signatures</summary><pre>webhook-id: ${id}\n${a.signature_headers.map(h => `${h.name}: ${h.value}\n`)}</pre></details>` : nothing}
    ${a.response || a.response_headers?.length ? html`<details><summary>Answer</summary><pre>${a.response_headers.map(h => `${h.name}: ${h.value}\n`)}\n${a.response}${a.response_truncated ? "…" : ""}</pre></details>` : nothing}</li>`;
}
