// The overview: how the calls of a project went in a time, and what is different from the time
// before. Its figures are those of /v1/reports.

import {html, nothing, svg} from "/page/lit-html.js";
import * as api from "/page/api.js";
import {checks, choice, ended, failure, length, moment, percent, shareUnheard, usd, when} from "/page/words.js";

const everyMS = 30000, usual = "168h", few = 30; // below so many answers nothing is compared
const spans = [["24h", "last 24 h"], ["168h", "last 7 days"], ["720h", "last 30 days"], ["2160h", "last 90 days"], ["8760h", "last 12 months"]];
const dims = ["platform", "model", "upstream", "name", "language"];

export function overviewPage({draw, go, may}) {
  const q = new URLSearchParams(location.search);
  const view = {since: q.get("since") ?? usual, by: q.get("by") ?? "platform", label: q.get("label") ?? "", data: null, error: ""};
  const set = (k, value) => go("/overview" + api.query({since: view.since === usual ? "" : view.since, by: view.by, label: view.label, [k]: value}), true);
  const redraw = () => draw(template(view, may, set));
  async function read() {
    const [name, value] = view.label.split("=", 2), filter = name && value ? {["label." + name]: value} : {};
    const interval = ["24h", "168h"].includes(view.since) ? "hour" : "day";
    const by = filter["label." + view.by.slice(6)] ? "platform" : view.by; // a report is not grouped by what it is filtered by
    try {
      const now = await api.report({since: view.since, interval, compare: "previous", group_by: by, ...filter});
      const [before, calls, hooks] = await Promise.all([
        api.report({since: now.before.since, until: now.before.until, interval, ...filter}),
        api.calls({since: view.since, interrupted: "true", limit: 50, ...filter}),
        api.overview("1h"),
      ]);
      Object.assign(view, {data: {now, before, calls: calls.agents, worst: await worst(calls.agents), hooks: hooks.webhooks}, error: ""});
    } catch (e) { view.error = e.message; }
    redraw();
  }
  // worst returns the calls in which most was not heard, in words as everywhere on this page. The
  // list has tokens, which choose whose words are read.
  const words = new Map();
  async function worst(calls) {
    const tokens = a => a.tally.generated_tokens ? a.tally.unheard_tokens / a.tally.generated_tokens : 0;
    const some = calls.filter(ended).sort((a, b) => tokens(b) - tokens(a)).slice(0, 10);
    await Promise.all(some.map(async a => {
      const key = `${a.agent_id} ${a.messages} ${a.tally.unheard_tokens}`;
      if (!words.has(key)) words.set(key, await api.messages(a.agent_id).then(shareUnheard, () => 0));
      a.lost = words.get(key);
    }));
    return some.sort((a, b) => b.lost - a.lost).slice(0, 5);
  }
  const timer = setInterval(() => { if (!document.hidden) read(); }, everyMS);
  read();
  redraw();
  return () => clearInterval(timer);
}

const count = (n, what) => `${whole(n)} ${what}${n === 1 ? "" : "s"}`;
const whole = n => n.toLocaleString();
const share = n => n == null ? "–" : percent(n);
const failed = f => f.answers + f.failures ? f.failures / (f.answers + f.failures) : null;
const p95 = f => f.first_token_ms?.p95;

function template(v, may, set) {
  const d = v.data;
  return html`<div class="filters"><h1>Overview</h1>${choice("Time", v.since, spans, s => set("since", s), usual)}
      <input class="label" aria-label="Label" placeholder="label=value" .value=${v.label} @change=${e => set("label", e.target.value.trim())}>
      ${d ? html`<span class="quiet who-am-i">${count(d.now.totals.calls, "call")}, ${count(d.now.totals.answers, "answer")}</span>` : nothing}</div>
    ${failure(v.error)}
    ${d ? report(d, v, may, set) : v.error ? nothing : html`<p class="quiet">Reading…</p>`}`;
}

function report(d, v, may, set) {
  const t = d.now.totals, b = d.before.totals, name = v.label.split("=", 1)[0];
  const to = (filter, label) => html`<a href=${"/" + api.query({since: v.since, label: v.label, ...filter})}>${label}</a>`;
  const reasons = Object.entries(t.failures_by_upstream ?? {}).map(([k, n]) => `${k} ${whole(n)}`).join(", ");
  return html`<p class="card answer" role="status">${sentence(d)}</p>
  <div class="charts four">
    ${card("Answers that were cut off", share(t.interrupted_share), change(t, b, f => f.interrupted_share), to({interrupted: "true"}, `${whole(t.interruptions)} of ${count(t.answers, "answer")}`), d, f => f.interrupted_share, share)}
    ${card("Words never heard", share(t.unheard_share), change(t, b, f => f.unheard_share), `${whole(t.unheard_words)} of ${count(t.words, "word")}`, d, f => f.unheard_share, share)}
    ${t.cost ? card("Paid for words never heard", usd(t.cost.unheard_usd), nothing, `of ${usd(t.cost.usd)} for the model${b.cost ? ` · ${usd(b.cost.unheard_usd)} before` : ""}`, d, f => f.cost?.unheard_usd, usd)
      : card("Calls", whole(t.calls), nothing, `${count(t.turns, "turn")} · ${count(b.calls, "call")} before`, d, f => f.calls, whole)}
    ${card("Failed answers", share(failed(t)), change(t, b, failed), to({failed: "true"}, `${count(t.failures, "failure")}${reasons ? ": " + reasons : ""}`), d, failed, share)}
  </div>
  ${t.checks ? html`<p class="chips">${Object.entries(t.checks).sort((x, y) => y[1] - x[1]).map(([k, n]) => html`<a class="chip bad" href=${"/" + api.query({since: v.since, label: v.label, check: k})}>${checks[k] ?? k}: ${count(n, "call")}</a>`)}</p>` : nothing}
  <div class="charts two">${times(d)}${look(d.worst, v)}</div>
  <section class="card"><div class="filters"><h2>Where it differs</h2>${[...dims, ...labels(d.calls)].filter(k => k !== "label." + name).map(k => html`<button aria-pressed=${d.now.group_by === k} class=${d.now.group_by === k ? "set" : ""} @click=${() => set("by", k)}>${k.replace("label.", "")}</button>`)}</div>
    ${d.now.groups?.length ? groups(d.now) : html`<p class="quiet">No call that has ended has a ${d.now.group_by.replace("label.", "")}.</p>`}</section>
  <p class="quiet">Counts are of calls that started in this time and have ended; ▲ and ▼ compare with ${when(Date.parse(d.before.since))} to ${when(Date.parse(d.before.until))}.
    ${d.now.pending_calls ? `${count(d.now.pending_calls, "call")} ${d.now.pending_calls === 1 ? "is" : "are"} still being counted. ` : nothing}
    Webhooks: ${hooks(d.hooks.pending, "pending", may)} pending, ${hooks(d.hooks.dead, "dead", may)} dead.</p>`;
}

const hooks = (n, state, may) => may("webhooks") ? html`<a href=${"/webhooks" + api.query({state})}>${whole(n)}</a>` : whole(n);
const labels = calls => [...new Set(calls.flatMap(a => Object.keys(a.labels ?? {})))].slice(0, 8).map(k => "label." + k);
const enough = (t, b) => t.answers >= few && b?.answers >= few;

// change says how a share has changed, in points.
function change(t, b, of) {
  if (!enough(t, b)) return nothing;
  const points = Math.round(100 * ((of(t) ?? 0) - (of(b) ?? 0)));
  if (!points) return html`<span class="chip">as before</span>`;
  return html`<span class=${"chip " + (points > 0 ? "bad" : "good")}>${points > 0 ? "▲" : "▼"} ${Math.abs(points)} ${Math.abs(points) === 1 ? "point" : "points"}</span>`;
}

// sentence says in words what is worse or better than before, the largest change first.
function sentence({now, before}) {
  const t = now.totals, b = before.totals;
  if (!t.calls) return "No call has ended in this time.";
  if (t.answers < few) return `Too few answers to compare: ${whole(t.answers)}. From ${few} on, this says what has changed.`;
  if (b.answers < few) return `${share(t.interrupted_share)} of the answers were cut off, and ${share(t.unheard_share)} of the words never heard. There are too few answers before to compare with.`;
  const list = [
    ["Answers are cut off", f => f.interrupted_share, share, .03],
    ["Words are never heard", f => f.unheard_share, share, .03],
    ["Answers fail", failed, share, .01],
  ].map(([what, of, say, least]) => ({of, say, by: ((of(t) ?? 0) - (of(b) ?? 0)) / least, text: more => `${what} ${more > 0 ? "more" : "less"} often: ${say(of(t))}, ${say(of(b))} before.`}));
  if (p95(t) && p95(b)) list.push({of: p95, say: length, by: (p95(t) / p95(b) - 1) / .2, text: () => `One first word in twenty takes ${length(p95(t))} or more, ${length(p95(b))} before.`});
  const worst = list.sort((x, y) => y.by - x.by)[0], best = list.at(-1);
  const found = worst.by >= 1 ? worst : best.by <= -1 ? best : null;
  if (!found) return `As before: ${share(t.interrupted_share)} of the answers were cut off, and ${share(t.unheard_share)} of the words never heard.`;
  // The group that differs most in the same direction.
  const sign = Math.sign(found.by), apart = g => sign * ((found.of(g.totals) ?? 0) - (found.of(t) ?? 0));
  const most = (now.groups ?? []).filter(g => g.totals.answers >= few && g.totals.calls < t.calls && apart(g) > 0).sort((x, y) => apart(y) - apart(x))[0];
  return html`<b class=${sign > 0 ? "bad" : "good"}>${sign > 0 ? "Worse" : "Better"} than before.</b> ${found.text(sign)}
    ${most ? html` Most with ${now.group_by.replace("label.", "")} <b>${most.value}</b>: ${found.say(found.of(most.totals))}.` : nothing}`;
}

const width = 360, height = 60;

// path draws values at their times as a line; a time without one interrupts it.
function path(r, of, top, h) {
  const from = Date.parse(r.since), wide = Date.parse(r.until) - from, step = r.interval === "day" ? 864e5 : 36e5;
  let last = 0;
  return (r.points ?? []).map(p => {
    const at = Date.parse(p.start_at), value = of(p);
    if (value == null) return "";
    const joined = at - last <= 2 * step;
    last = at;
    return `${joined ? "L" : "M"}${((at - from) / wide * width).toFixed(1)} ${(h - value / top * h).toFixed(1)}${joined ? "" : "h4"}`;
  }).join("");
}

// card is a figure with its change and its course; the dashed line is the time before.
function card(title, value, chip, below, d, of, say) {
  const top = Math.max(...[...(d.now.points ?? []), ...(d.before.points ?? [])].map(p => of(p) ?? 0), 1e-9);
  return html`<section class="card chart"><h2>${title}</h2><b class="big">${value}</b> ${chip}<div class="quiet">${below}</div>
    <svg viewBox="0 0 ${width} ${height}" preserveAspectRatio="none" role="img" aria-label=${`${title} over time, at most ${say(top < 1e-8 ? 0 : top)}`}>
      <path class="before" d=${path(d.before, of, top, height)}></path><path class="unheard" d=${path(d.now, of, top, height)}></path></svg></section>`;
}

function times({now}) {
  const t = now.totals.first_token_ms, top = Math.max(...(now.points ?? []).map(p => p.first_token_ms?.p99 ?? 0), 1), h = 160;
  const lines = [["caller", "p50"], ["amber", "p95"], ["quiet", "p99"]];
  return html`<section class="card chart"><h2>Time to first token <span>${lines.map(([kind, p]) => html`<span class=${"key " + kind}>${p} <b>${length(t?.[p])}</b></span> `)}</span></h2>
    <svg class="tall" viewBox="0 0 ${width} ${h}" preserveAspectRatio="none" role="img" aria-label=${`Time to first token over time, p99 at most ${length(top)}`}>
      ${lines.map(([kind, p]) => svg`<path class=${kind} d=${path(now, f => f.first_token_ms?.[p], top, h)}></path>`)}
      ${(now.points ?? []).map(p => svg`<rect class="tip" x=${(Date.parse(p.start_at) - Date.parse(now.since)) / (Date.parse(now.until) - Date.parse(now.since)) * width} width="4" y="0" height=${h}><title>${moment(Date.parse(p.start_at))}: p50 ${length(p.first_token_ms?.p50)}, p95 ${length(p95(p))}, p99 ${length(p.first_token_ms?.p99)}</title></rect>`)}</svg>
    <div class="ends quiet"><span>${when(Date.parse(now.since))}</span><span>at most ${length(top)}</span><span>${when(Date.parse(now.until))}</span></div></section>`;
}

// look lists calls that were cut off.
function look(list, v) {
  return html`<section class="card"><h2>Calls to look at</h2>${list.length ? html`<ul class="look">${list.map(a => html`<li><a href=${"/calls/" + encodeURIComponent(a.agent_id)}>${a.name || a.agent_id}</a> <span class="bad">${percent(a.lost)} never heard</span>
      <div class="quiet">${[`cut off ${a.tally.interruptions} of ${a.tally.answers}`, a.platform, ...Object.values(a.labels ?? {})].filter(Boolean).join(" · ")}</div></li>`)}</ul>
    <a href=${"/" + api.query({since: v.since, label: v.label, interrupted: "true"})}>all that were cut off</a>` : html`<p class="quiet">No answer was cut off.</p>`}</section>`;
}

function groups(r) {
  const cell = (g, of, say, points) => {
    const now = of(g.totals), was = of(g.before ?? {}), top = Math.max(...r.groups.flatMap(o => [of(o.totals) ?? 0, of(o.before ?? {}) ?? 0]), 1e-9);
    let word = "";
    if (g.totals.answers < few) word = "too few";
    else if (!(g.before?.answers >= few)) word = "new";
    else if (now != null && was != null) {
      const by = points ? Math.round(100 * (now - was)) : Math.round((now - was) / 100) / 10;
      word = by ? `${by > 0 ? "▲" : "▼"} ${Math.abs(by)}` : "=";
    }
    return html`<td class="n"><svg class="meter" viewBox="0 0 60 10" aria-hidden="true"><rect width="60" height="10" rx="3"></rect><rect class="unheard" width=${60 * (now ?? 0) / top} height="10" rx="3"></rect>
      ${was != null ? svg`<rect class="tick" x=${Math.min(58, 60 * was / top)} width="2" height="10"></rect>` : nothing}</svg> ${now == null ? "–" : say(now)} <span class=${word.startsWith("▲") ? "bad" : "quiet"}>${word}</span></td>`;
  };
  const paid = r.groups.some(g => g.totals.cost);
  return html`<div class="wide-table" role="region" aria-label="Table" tabindex="0"><table class="list"><thead><tr><th>${r.group_by.replace("label.", "")}</th><th class="n">Answers</th><th class="n">Cut off</th><th class="n">Never heard</th><th class="n">First token p50</th><th class="n">First token p95</th>${paid ? html`<th class="n">Paid, unheard</th>` : nothing}</tr></thead>
    <tbody>${r.groups.slice(0, 20).map(g => html`<tr><th scope="row">${g.value}</th><td class="n">${whole(g.totals.answers)}</td>
      ${cell(g, f => f.interrupted_share, share, true)}${cell(g, f => f.unheard_share, share, true)}${cell(g, f => f.first_token_ms?.p50, length)}${cell(g, p95, length)}
      ${paid ? html`<td class="n">${usd(g.totals.cost?.unheard_usd)}</td>` : nothing}</tr>`)}</tbody></table></div>`;
}
