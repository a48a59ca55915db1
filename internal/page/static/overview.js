// The overview: is it getting worse? Figures of a time beside those of the time before. All are
// those of /v1/reports.

import {html, nothing, svg} from "/page/lit-html.js";
import * as api from "/page/api.js";
import {answer, choice, copyLink, empty, failure, keys, skeleton} from "/page/parts.js";
import {about, checks, count, day, exactly, length, moment, neverHeard, percent, platform, reasons, timeOfDay, usd, whole} from "/page/words.js";

const everyMS = 30000, usual = "168h", few = 30; // below so many answers nothing is compared
const spans = [["24h", "Last 24 hours"], ["168h", "Last 7 days"], ["720h", "Last 30 days"], ["2160h", "Last 90 days"], ["8760h", "Last 12 months"]];
const dims = ["platform", "model", "upstream", "name", "language"];

export function overviewPage({draw, go}) {
  const q = new URLSearchParams(location.search);
  const view = {since: q.get("since") ?? usual, by: q.get("by") ?? "", label: q.get("label") ?? "", data: null, error: ""};
  const set = (k, value) => go("/overview" + api.query({since: view.since === usual ? "" : view.since, by: view.by, label: view.label, [k]: value}));
  const redraw = () => draw(template(view, set));
  async function read() {
    const [name, value] = view.label.split("=", 2), filter = name && value ? {["label." + name]: value} : {};
    const interval = ["24h", "168h"].includes(view.since) ? "hour" : "day";
    try {
      const calls = await api.calls({since: view.since, limit: 50, ...filter}), labels = labelsOf(calls.agents).filter(k => k !== "label." + name);
      // The version is what most often explains a change; a report is not grouped by its filter.
      const by = view.by && view.by !== "label." + name ? view.by : labels.includes("label.version") ? "label.version" : "platform";
      const now = await api.report({since: view.since, interval, compare: "previous", group_by: by, ...filter});
      const [before, worst] = await Promise.all([
        api.report({since: now.before.since, until: now.before.until, interval, ...filter}),
        api.callsShaped({since: view.since, sort: "unheard", limit: 5, ...filter}).then(r => r.agents),
      ]);
      Object.assign(view, {data: {now, before, labels, worst}, error: ""});
    } catch (e) { view.error = e.message; }
    redraw();
  }
  const span = by => () => { const i = spans.findIndex(([v]) => v === view.since) + by; if (spans[i]) set("since", spans[i][0] === usual ? "" : spans[i][0]); };
  const timer = setInterval(() => { if (!document.hidden) read(); }, everyMS);
  keys([["[", "shorter", span(-1), true], ["]", "longer time", span(1), true], ["f", "filter", () => document.querySelector("main .label").focus(), true]],
    "Counts are of calls that started in this time and have ended.");
  read();
  redraw();
  return () => clearInterval(timer);
}

const share = n => n == null ? "unknown" : percent(n);
const failed = f => f.answers + f.failures ? f.failures / (f.answers + f.failures) : null;
const p50 = f => f.first_token_ms?.p50, p95 = f => f.first_token_ms?.p95;
const labelsOf = calls => [...new Set(calls.flatMap(a => Object.keys(a.labels ?? {})))].sort().slice(0, 8).map(k => "label." + k);
const naming = (by, value) => by === "platform" ? platform(value) : by.startsWith("label.") ? `${by.slice(6)} ${value}` : value;

function template(v, set) {
  const d = v.data;
  return html`<div class="bar"><h1>Overview</h1>${choice("Time", v.since, spans, s => set("since", s), usual)}<span class="quiet">compared with the time before</span>
      <input class="label" aria-label="Label" placeholder="label=value" .value=${v.label} @change=${e => set("label", e.target.value.trim())}>
      <span class="end">${d ? html`<span class="quiet total">${count(d.now.totals.calls, "call")}, ${count(d.now.totals.answers, "answer")}</span> ` : nothing}<button @click=${copyLink}>Copy link</button></span></div>
    ${failure(v.error)}
    ${d ? d.now.totals.calls || d.before.totals.calls ? report(d, v, set) : nothingYet(d, v) : v.error ? nothing : skeleton(6)}`;
}

const nothingYet = (d, v) => html`${answer("", "No call has ended in this time.")}${empty("Nothing to count yet", html`<p>${d.now.pending_calls ? `${count(d.now.pending_calls, "call")} are still going on or being counted. ` : ""}<a href=${"/" + api.query({label: v.label})}>All calls</a></p>`)}`;

function report(d, v, set) {
  const t = d.now.totals, b = d.before.totals;
  const to = (filter, label) => html`<a href=${"/" + api.query({since: v.since, label: v.label, ...filter})}>${label}</a>`;
  const why = Object.entries(t.failures_by_upstream ?? {}).map(([k, n]) => `${k} ${whole(n)}`).join(", "), was = f => b.answers >= few ? ` · ${share(f(b))} before` : "";
  const marks = d.now.group_by.startsWith("label.") ? (d.now.groups ?? []).filter(g => g.first_at).map(g => ({at: Date.parse(g.first_at), name: naming(d.now.group_by, g.value)})) : [];
  return html`${sentence(d, v)}
  <div class="cards four">
    ${card("Answers that were cut off", share(t.interrupted_share), change(t, b, f => f.interrupted_share), html`${to({interrupted: "true"}, `${whole(t.interruptions)} of ${count(t.answers, "answer")}`)}${was(f => f.interrupted_share)}`, d, f => f.interrupted_share, share)}
    ${card("Words never heard", share(t.unheard_share), change(t, b, f => f.unheard_share), html`${to({sort: "unheard"}, `${whole(t.unheard_words)} of ${count(t.words, "word")}`)}${was(f => f.unheard_share)}`, d, f => f.unheard_share, share)}
    ${t.cost ? card("Paid for words nobody heard", usd(t.cost.unheard_usd), paid(t, b), html`of <span title=${exactly(t.cost.usd)}>${usd(t.cost.usd)}</span> for the model${b.cost ? ` · ${usd(b.cost.unheard_usd)} before` : ""}`, d, f => f.cost?.unheard_usd, usd)
      : card("Calls", whole(t.calls), nothing, html`${to({}, count(t.turns, "turn"))} · ${count(b.calls, "call")} before`, d, f => f.calls, whole, "quiet")}
    ${card("Failed answers", share(failed(t)), change(t, b, failed), html`${to({failed: "true"}, count(t.failures, "failure"))}${why ? ": " + why : ""}`, d, failed, share)}
  </div>
  ${t.checks ? html`<p class="chips">${Object.entries(t.checks).sort((x, y) => y[1] - x[1]).map(([k, n]) => html`<a class="chip bad" href=${"/" + api.query({since: v.since, label: v.label, check: k})}>${checks[k] ?? k}: ${count(n, "call")}</a>`)}</p>` : nothing}
  <div class="cards wide-narrow">${firstWords(d.now, marks)}${look(d.worst, to)}</div>
  <section class="card differs"><div class="heading"><h2>Where it differs</h2><span class="segments" role="group" aria-label="Split by">${[...d.labels, ...dims].map(k => html`<button aria-pressed=${d.now.group_by === k} @click=${() => set("by", k)}>${k.replace("label.", "")}</button>`)}</span><span class="quiet end"><b class="tick" aria-hidden="true">|</b> the time before</span></div>
    ${d.now.groups?.length ? groups(d.now, v) : html`<p class="quiet pad">No call that has ended has a ${d.now.group_by.replace("label.", "")}.</p>`}</section>
  ${d.now.pending_calls ? html`<p class="quiet">${count(d.now.pending_calls, "call")} ${d.now.pending_calls === 1 ? "is" : "are"} still being counted.</p>` : nothing}`;
}

const enough = (t, b) => t.answers >= few && b?.answers >= few;
const changed = (more, text, good) => html`<span class=${"chip " + (more === 0 ? "" : more > 0 ? "bad" : "good")}>${more ? (more > 0 ? "▲ " : "▼ ") : ""}${text}</span>`;

// change says how a share has changed, in points.
function change(t, b, of) {
  if (!enough(t, b)) return html`<span class="chip">too few to compare</span>`;
  const now = of(t), was = of(b);
  if (now == null || was == null) return nothing;
  const points = Math.round(100 * (now - was));
  return points ? changed(points, count(Math.abs(points), "point")) : changed(0, "as before");
}
function paid(t, b) {
  if (!enough(t, b) || !b.cost) return nothing;
  const more = t.cost.unheard_usd - b.cost.unheard_usd;
  return Math.abs(more) >= .005 ? changed(more, usd(Math.abs(more))) : changed(0, "as before");
}

// sentence says in words what is worse or better than before, the largest change first.
function sentence({now, before: old}, v) {
  const t = now.totals, b = old.totals, link = filter => html` <a href=${"/" + api.query({since: v.since, label: v.label, ...filter})}>Show these calls</a>`;
  if (!t.calls) return answer("", "No call has ended in this time.");
  const state = `${share(t.interrupted_share)} of the answers were cut off, and ${t.unheard_share == null ? "how many words were never heard is unknown" : `${share(t.unheard_share)} of the words never heard`}`;
  if (t.answers < few) return answer("", `Too few answers to compare: ${whole(t.answers)}. From ${few} on, this says what has changed. So far ${state}.`);
  if (b.answers < few) return answer("", `${state.replace(/^./, c => c.toUpperCase())}. There are too few answers before to compare with.`);
  const list = [
    {what: "Answers are cut off", of: f => f.interrupted_share, say: share, least: .03, to: {interrupted: "true"}},
    {what: "Words are never heard", of: f => f.unheard_share, say: share, least: .03, to: {sort: "unheard"}},
    {what: "Answers fail", of: failed, say: share, least: .01, to: {failed: "true"}},
  ].filter(c => c.of(t) != null && c.of(b) != null).map(c => ({...c, by: (c.of(t) - c.of(b)) / c.least, text: more => html`${c.what} ${more > 0 ? "more" : "less"} often: <b>${c.say(c.of(t))}</b>, ${c.say(c.of(b))} before.`}));
  if (p95(t) && p95(b)) list.push({of: p95, say: length, by: (p95(t) / p95(b) - 1) / .2, to: {sort: "first_word"}, text: () => html`One first word in twenty takes <b>${length(p95(t))}</b> or more, ${length(p95(b))} before.`});
  const sorted = list.sort((x, y) => y.by - x.by), worst = sorted[0], best = sorted.at(-1);
  const found = worst?.by >= 1 ? worst : best?.by <= -1 ? best : null;
  if (!found) return answer("good", html`<b>As before.</b> ${state.replace(/^./, c => c.toUpperCase())}.`);
  // The group that differs most in the same direction.
  const sign = Math.sign(found.by), apart = g => sign * ((found.of(g.totals) ?? 0) - (found.of(t) ?? 0));
  const most = (now.groups ?? []).filter(g => g.totals.answers >= few && g.totals.calls < t.calls && apart(g) > 0).sort((x, y) => apart(y) - apart(x))[0];
  const began = most?.first_at && Date.parse(most.first_at) > Date.parse(now.since) ? ` It began ${moment(Date.parse(most.first_at))}.` : "";
  return answer(sign > 0 ? "bad" : "good", html`<b>${sign > 0 ? "Worse" : "Better"} than the time before.</b> ${found.text(sign)}${most ? html` It is mostly <b>${naming(now.group_by, most.value)}</b>: ${found.say(found.of(most.totals))}.${began}` : nothing}${sign > 0 ? link({...found.to, ...(most ? groupFilter(now.group_by, most.value) : {})}) : nothing}`);
}

// groupFilter leads to the calls of a group, where the list can be narrowed to it.
const groupFilter = (by, value) => by === "platform" || by === "name" ? {[by]: value} : by.startsWith("label.") ? {label: `${by.slice(6)}=${value}`} : {};

const card = (title, value, chip, below, d, of, say, kind = "unheard") => html`<section class="card figure"><h2>${title}</h2><div><b class="big">${value}</b> ${chip}</div><p>${below}</p>${spark(title, d, of, say, kind)}</section>`;

// look lists the calls in which most was never heard.
function look(list, to) {
  return html`<section class="card look"><div class="heading"><h2>Calls to look at</h2>${to({sort: "unheard"}, "all")}</div>${list.length ? html`<ul>${list.map(a => html`<li><a class="over" href=${"/calls/" + encodeURIComponent(a.agent_id)} dir="auto">${a.name || a.agent_id}, ${a.user_id || "withheld"}</a> <b class="bad">${neverHeard(a).share} never heard</b>
      <small>${reasons(a).slice(0, 2).join(" · ")} · ${about(a).slice(1).join(" · ")}</small></li>`)}</ul>` : html`<p class="quiet pad">No words went unheard.</p>`}</section>`;
}

function groups(r, v) {
  const cell = (g, of, say, kind, points) => {
    const now = of(g.totals), was = of(g.before ?? {}), top = Math.max(...r.groups.flatMap(o => [of(o.totals) ?? 0, of(o.before ?? {}) ?? 0]), 1e-9);
    let word = "", bad = false;
    if (g.totals.answers < few) word = "too few";
    else if (!(g.before?.answers >= few)) word = "new";
    else if (now != null && was != null) {
      const by = points ? Math.round(100 * (now - was)) : Math.round((now - was) / 100) / 10;
      word = by ? `${by > 0 ? "▲" : "▼"} ${Math.abs(by)}` : "=";
      bad = by > 0;
    }
    return html`<td>${meter(kind, (now ?? 0) / top, was != null && g.before?.answers >= few ? was / top : null)} <span class="value">${now == null ? "–" : say(now)}</span> <small class=${bad ? "bad" : ""}>${word}</small></td>`;
  };
  const money = r.groups.some(g => g.totals.cost);
  return html`<div class="scroll" role="region" aria-label="Table" tabindex="0"><table class="list one"><thead><tr><th scope="col">${r.group_by.replace("label.", "")}</th><th class="n" scope="col">Answers</th><th scope="col">Cut off</th><th scope="col">Never heard</th><th scope="col">First word p50</th><th scope="col">First word p95</th>${money ? html`<th class="n" scope="col">Paid, unheard</th>` : nothing}</tr></thead>
    <tbody>${r.groups.slice(0, 20).map(g => html`<tr><th scope="row">${Object.keys(groupFilter(r.group_by, g.value)).length ? html`<a href=${"/" + api.query({since: v.since, label: v.label, ...groupFilter(r.group_by, g.value)})} dir="auto">${naming(r.group_by, g.value)}</a>` : g.value}</th><td class="n">${whole(g.totals.answers)}</td>
      ${cell(g, f => f.interrupted_share, share, "unheard", true)}${cell(g, f => f.unheard_share, share, "unheard", true)}${cell(g, p50, length, "caller")}${cell(g, p95, length, "amber")}
      ${money ? html`<td class="n" title=${exactly(g.totals.cost?.unheard_usd)}>${usd(g.totals.cost?.unheard_usd)}</td>` : nothing}</tr>`)}</tbody></table></div>`;
}

// Drawings of figures over time.

const W = 1000, step = r => r.interval === "day" ? 864e5 : 36e5;
const spanName = {"1h": "the last hour", "24h": "the last 24 hours", "168h": "the last 7 days", "720h": "the last 30 days"};

// histogram draws the calls of a report over time, red for the words that nobody heard. Dragging
// over it chooses a time.
export function histogram(r, filter, set) {
  const from = Date.parse(r.since), to = Date.parse(r.until), points = r.points ?? [], t = r.totals, b = r.before?.totals, most = Math.max(1, ...points.map(p => p.calls));
  if (!t.calls) return nothing;
  const wide = W * step(r) / (to - from), x = ms => W * (ms - from) / (to - from);
  let start = null;
  const at = e => { const box = e.currentTarget.getBoundingClientRect(); return from + (to - from) * Math.max(0, Math.min(1, (e.clientX - box.left) / box.width)); };
  const drag = e => {
    if (e.type === "pointerdown") { start = at(e); e.currentTarget.setPointerCapture(e.pointerId); }
    if (start == null) return;
    const [a, z] = [start, at(e)].sort((p, q) => p - q), brush = e.currentTarget.querySelector(".brush"), round = ms => new Date(ms).toISOString().slice(0, 19) + "Z";
    brush.setAttribute("x", x(a));
    brush.setAttribute("width", x(z) - x(a));
    if (e.type !== "pointerup") return;
    start = null;
    if (z - a > (to - from) / 200) set({since: round(a), until: round(z)});
  };
  const span = filter.until ? `${moment(from)} to ${moment(to)}` : spanName[filter.since || "168h"] ?? `since ${moment(from)}`;
  return html`<section class="card histogram" aria-label="Calls over time">
    <div><b class="big">${count(t.calls, "call")}</b><span class="quiet">ended in ${span}, ${r.interval === "day" ? "a day" : "an hour"} a bar</span></div>
    <svg viewBox=${`0 0 ${W} 60`} preserveAspectRatio="none" role="img" aria-label=${`Calls of ${span}, at most ${most} in ${r.interval === "day" ? "a day" : "an hour"}`}
      @pointerdown=${drag} @pointermove=${drag} @pointerup=${drag}>${points.map(p => {
        const h = 56 * p.calls / most, gone = h * (p.unheard_share ?? 0), left = x(Date.parse(p.start_at)), w = Math.max(2, wide * .8);
        return svg`<g><title>${moment(Date.parse(p.start_at))}: ${count(p.calls, "call")}, ${p.unheard_share == null ? "unknown" : percent(p.unheard_share)} never heard</title><rect class="back" x=${left} width=${w} y=${60 - h} height=${h}></rect><rect class="unheard" x=${left} width=${w} y=${60 - h} height=${gone}></rect></g>`;
      })}<rect class="brush" y="0" height="60" width="0"></rect></svg>
    <div class="n"><b class=${"big " + (t.unheard_words ? "bad" : "")}>${t.unheard_share == null ? "unknown" : percent(t.unheard_share)} never heard</b><span class="quiet">${b?.calls ? b.unheard_share == null ? "unknown before" : `${percent(b.unheard_share)} in the time before` : "no call in the time before"}</span></div></section>`;
}

// path draws values at their times as a line over a width; a time without one interrupts it.
export function path(r, of, top, h, width = W) {
  const from = Date.parse(r.since), wide = Date.parse(r.until) - from;
  let last = 0;
  return (r.points ?? []).map(p => {
    const at = Date.parse(p.start_at), value = of(p);
    if (value == null) return "";
    const joined = at - last <= 2 * step(r);
    last = at;
    return `${joined ? "L" : "M"}${((at - from) / wide * width).toFixed(1)} ${(h - value / top * h).toFixed(1)}${joined ? "" : "h" + (width / 100)}`;
  }).join("");
}

// spark is the course of a figure; the dashed line is the time before.
export function spark(title, d, of, say, kind) {
  const top = Math.max(...[...(d.now.points ?? []), ...(d.before.points ?? [])].map(p => of(p) ?? 0), 1e-9) * 1.05;
  return html`<svg class="spark" viewBox=${`0 0 ${W} 100`} preserveAspectRatio="none" role="img" aria-label=${`${title} over time, at most ${say(top < 1e-8 ? 0 : top / 1.05)}`}>
    <path class="before" d=${path(d.before, of, top, 96)}></path><path class=${kind} d=${path(d.now, of, top, 96)}></path></svg>`;
}

// firstWords draws p50, p95 and p99 of the time to the first word, with a line where a value of a
// label began.
export function firstWords(now, marks) {
  const t = now.totals.first_token_ms, top = niceTop(Math.max(...(now.points ?? []).map(p => p.first_token_ms?.p99 ?? 0), 1)), from = Date.parse(now.since), to = Date.parse(now.until), h = 200;
  const lines = [["caller", "p50"], ["amber", "p95"], ["quiet", "p99"]], at = ms => 100 * (ms - from) / (to - from);
  const days = ticks(from, to);
  return html`<section class="card chart"><div class="heading"><h2>Time to first word <span class="quiet">of the model; p95: 95 of 100 are faster</span></h2><span class="legend">${lines.map(([kind, p]) => html`<span class=${"key " + kind}>${p} <b>${length(t?.[p])}</b></span> `)}</span></div>
    <div class="plot"><div class="ys" aria-hidden="true">${[1, .75, .5, .25, 0].map(f => html`<span>${f ? length(top * f) : "0"}</span>`)}</div>
      <div class="area"><svg viewBox=${`0 0 ${W} ${h}`} preserveAspectRatio="none" role="img" aria-label=${`Time to first word over time, p99 at most ${length(top)}`}>
        ${[0, .25, .5, .75].map(f => svg`<line class="grid" x1="0" x2=${W} y1=${h * f} y2=${h * f}></line>`)}
        ${lines.map(([kind, p]) => svg`<path class=${kind} d=${path(now, f => f.first_token_ms?.[p], top, h)}></path>`)}
        ${(now.points ?? []).map(p => svg`<rect class="tip" x=${(Date.parse(p.start_at) - from) / (to - from) * W} width=${Math.max(4, W * step(now) / (to - from))} y="0" height=${h}><title>${moment(Date.parse(p.start_at))}: p50 ${length(p.first_token_ms?.p50)}, p95 ${length(p.first_token_ms?.p95)}, p99 ${length(p.first_token_ms?.p99)}</title></rect>`)}</svg>
        ${marks.filter(m => m.at > from && m.at < to).map(m => html`<span class=${"began" + (at(m.at) > 70 ? " left" : "")} .style=${`left:${at(m.at)}%`}><b>first call of ${m.name}</b></span>`)}</div></div>
    <div class="xs" aria-hidden="true">${days.map(d => html`<span>${d}</span>`)}</div></section>`;
}
function niceTop(ms) {
  const unit = 10 ** Math.floor(Math.log10(ms));
  return [1, 2, 4, 5, 8, 10].map(n => n * unit).find(n => n >= ms) ?? ms;
}
function ticks(from, to) {
  return [0, .2, .4, .6, .8, 1].map(f => { const ms = from + f * (to - from); return to - from <= 864e5 * 1.1 ? timeOfDay(ms) : day(ms); });
}

// meter is a bar with a tick where the time before was.
export const meter = (kind, share, was) => html`<svg class="meter" viewBox="0 0 60 10" preserveAspectRatio="none" aria-hidden="true"><rect class="back" width="60" y="2" height="6" rx="3"></rect><rect class=${kind} width=${60 * Math.min(1, share)} y="2" height="6" rx="3"></rect>
  ${was != null ? svg`<rect class="tick" x=${Math.min(58, 60 * was)} width="2" height="10"></rect>` : nothing}</svg>`;
