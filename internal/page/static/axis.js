// The time axis of a call: where each bar stands, and how it is drawn.

import {html, nothing} from "/page/lit-html.js";
import {count, ended, ghost, interrupted, length, lost, offset, plain, platform, speech, split, words} from "/page/words.js";

const quietFrom = 1000, namedFrom = 2000; // silence is hatched, and named, from so many ms
const stub = 86; // pixels of the words that nobody heard: they took no time

// times returns when an answer was played, by reports of the platform: {from, cut, words}, where cut
// is the end of what was heard; null where nothing was reported.
export function times(m) {
  const list = m.audio ?? [], whole = list.find(a => a.heard_ms != null);
  const pieces = whole?.word_ends_ms ? [whole] : list.filter(a => a !== whole && a.start_ms);
  if (!whole && !pieces.length) return null;
  const at = m.metadata?.interrupt_timestamp, startOf = a => a.start_ms ?? (at ? at - whole.heard_ms : m.timestamp);
  const said = pieces.flatMap(a => {
    const start = startOf(a), ends = a.word_ends_ms ?? [];
    return (a.words ?? "").split(" ").slice(0, ends.length).map((text, i) => ({text, from: start + (ends[i - 1] ?? 0), to: start + ends[i]}));
  });
  const from = Math.min(...(whole ? [startOf(whole)] : []), ...pieces.map(startOf)), last = said.at(-1)?.to;
  const cut = whole ? startOf(whole) + whole.heard_ms : interrupted(m) && at > from ? at : last ?? from + speech(split(m)[0]);
  return {from, cut, words: said.map(w => ({...w, heard: w.to <= cut}))};
}

// layout places what was said, run and thought. Caller's words end when they were recognised; an
// answer begins with its first word. The other ends are reported, or estimated and fitted between
// those that are known: an estimate has exact false and never reaches past what came next. It
// returns null where the times leave no room for the speech: then the call was not spoken.
export function layout(agent, messages) {
  const start = Math.min(Date.parse(agent.started_at) || Infinity, messages[0]?.timestamp ?? Infinity);
  const stop = Date.parse(agent.stopped_at) || (ended(agent) ? messages.at(-1)?.timestamp : Date.now());
  const said = [], bars = [], tools = [], model = [], open = new Map();
  for (const m of messages) {
    if (m.role === "user") said.push({m, lane: "caller", to: m.timestamp, need: speech(plain(m.content)), text: plain(m.content)});
    else if (m.role === "tool") { const t = open.get(m.tool_call_id); if (t) { t.to = m.timestamp; open.delete(m.tool_call_id); } }
    if (m.role !== "assistant") continue;
    const t = times(m), [heard, rest] = split(m), s = m.timings;
    for (const c of m.tool_calls ?? []) { const tool = {m, from: m.timestamp, to: null, name: c.function?.name ?? "tool"}; open.set(c.id, tool); tools.push(tool); }
    if (s?.start_ms && s.total_ms) model.push({m, from: s.start_ms, to: s.start_ms + s.total_ms});
    if (ghost(m)) { bars.push({m, lane: "drafts", from: m.timestamp, to: m.timestamp, text: rest}); continue; }
    if (!heard && !rest) continue;
    const at = m.metadata?.interrupt_timestamp, cutAt = interrupted(m) && at >= m.timestamp ? at : null;
    said.push({m, lane: "agent", from: t?.from ?? m.timestamp, to: lost(m) ? m.timestamp : t?.cut ?? cutAt, need: lost(m) ? 0 : speech(heard), text: heard, rest: rest.trim(), words: t?.words, exact: Boolean(t)});
  }
  const need = said.slice(0, -1).reduce((n, b) => n + b.need, 0);
  if (!said.length || !said.some(b => b.exact) && said.at(-1).m.timestamp - start < need / 4) return null;
  // Ends are fitted from left to right: b may use the time until the next known one, which an
  // estimated beginning after it shares by the length of both.
  let reached = start, played = 0;
  said.forEach((b, i) => {
    const next = said[i + 1];
    if (b.from == null) b.from = Math.max(Math.min(b.to - b.need, b.to), Math.min(reached, b.to));
    if (!b.exact && b.lane === "agent") b.from = Math.max(b.from, played);
    if (b.to == null) {
      const limit = next?.from ?? next?.to ?? stop, room = Math.max(0, limit - b.from), share = next && next.from == null ? room * b.need / (b.need + next.need || 1) : room;
      b.to = b.from + Math.min(b.need, b.need + (next?.from == null && next ? next.need : 0) > room ? share : b.need);
      b.soft = true;
    }
    b.from = Math.min(b.from, stop);
    b.to = Math.min(Math.max(b.from, b.to), stop);
    if (b.lane === "agent") played = b.to;
    if (b.lane === "agent" && !b.rest || b.lane === "caller" || b.to > reached) reached = Math.max(reached, b.to);
    bars.push(b);
  });
  const quiet = [];
  said.forEach((b, i) => {
    const next = said[i + 1];
    if (b.lane === "caller" && next?.lane === "agent" && next.from - b.to >= quietFrom) quiet.push({from: b.to, to: next.from, m: next.m});
  });
  for (const t of tools) t.to ??= null;
  return {start, stop, bars, tools, model, quiet, exact: said.filter(b => b.exact).length, agents: said.filter(b => b.lane === "agent").length};
}

// said names a bar for who cannot see it.
function label(b, start) {
  const who = {caller: "Caller", agent: "Agent", drafts: "Draft thrown away"}[b.lane], n = words(b.text) + words(b.rest ?? "");
  return `${who}, ${offset(b.from - start)}${b.to > b.from ? ` to ${offset(b.to - start, true)}` : ""}${b.rest ? `, heard ${words(b.text)} of ${n} words` : ""}: ${b.text || b.rest}`;
}

const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600].map(s => s * 1000);

// axis draws a layout. v holds zoom (1: all of the call in the width), scroll, the chosen message
// and the time t of the playhead; act changes them. Only bars around the window are drawn.
export function axis(l, agent, width, v, act) {
  const total = Math.max(1, l.stop - l.start), usual = (width - 24) / total, scale = usual * v.zoom, x = ms => 8 + (ms - l.start) * scale, wide = Math.ceil(x(l.stop)) + 16;
  const near = b => x(b.to ?? b.from) > v.scroll - width && x(b.from) < v.scroll + 2 * width;
  const lane = (name, all, draw) => all.length ? html`<div class=${"lane " + name}>${all.filter(near).map(draw)}</div>` : nothing;
  const place = (from, w) => `left:${x(from).toFixed(1)}px;width:${w.toFixed(1)}px`;
  const bars = name => l.bars.filter(b => b.lane === name);
  const step = steps.find(s => s * scale >= 90) ?? steps.at(-1), ticks = [];
  for (let t = Math.ceil(Math.max(0, (v.scroll - width) / scale) / step) * step; t <= Math.min(total, (v.scroll + 2 * width) / scale); t += step) ticks.push(t);
  const drafts = bars("drafts"), source = l.exact ? platform(agent.platform) || "the platform" : "";
  const known = l.exact === l.agents ? `times from ${source}` : l.exact ? `${l.exact} of ${l.agents} answers timed by ${source}` : "ends of speech are estimated";
  const zoom = f => html`<button aria-label=${f < 1 ? "Zoom out" : "Zoom in"} ?disabled=${f < 1 ? v.zoom <= 1 : scale >= .3} @click=${() => act.zoom(v.zoom * f)}>${f < 1 ? "−" : "+"}</button>`;
  return html`<section class="card axis" aria-label="Time axis">
    <div class="bar"><button @click=${act.play} aria-pressed=${v.playing}>${v.playing ? "❚❚" : "▶"}<span class="wide"> ${v.playing ? "Pause" : "Step through"}</span></button>
      <span class="quiet clock"><span id="at">${offset(v.t - l.start, true)}</span> of ${offset(total)}</span>
      <span class="end legend"><i class="caller"></i> caller <i class="heard"></i> heard <i class="unheard"></i> never heard <span class="chip">${known}</span></span>
      <span class="zoom">${zoom(.5)}<button ?disabled=${v.zoom === 1} @click=${() => act.zoom(1)}>Fit</button>${zoom(2)}</span></div>
    ${map(l, width, v, scale, act)}
    <div class="lanes"><div class="names" aria-hidden="true"><span></span><span class="two">Caller</span><span class="two">Agent</span>${l.tools.length ? html`<span>Tools</span>` : nothing}${l.model.length ? html`<span class="thin">Model</span>` : nothing}${drafts.length ? html`<span>Drafts</span>` : nothing}</div>
    <div class="timeline" tabindex="0" role="region" aria-label="What happened when" @scroll=${e => act.scroll(e.target.scrollLeft)}><div class="inside" .style=${`width:${wide}px`} @click=${e => { if (!e.target.closest("button")) act.seek(l.start + (e.clientX - e.currentTarget.getBoundingClientRect().left - 8) / scale); }}>
      <div class="ticks" aria-hidden="true">${ticks.map(t => html`<span .style=${`left:${x(l.start + t)}px`}>${offset(t)}</span>`)}</div>
      <div class="lane caller">${l.quiet.filter(near).map(q => html`<span class="silence" .style=${place(q.from, x(q.to) - x(q.from))}>${q.to - q.from >= namedFrom ? html`<b>${length(q.to - q.from)} silence</b>` : nothing}</span>`)}
        ${bars("caller").filter(near).map(b => bar(b, l, v, act, place(b.from, Math.max(3, x(b.to) - x(b.from) - 1))))}</div>
      <div class="lane agent">${spoken(bars("agent").filter(near), x).map(([b, w, gone]) => html`${w ? bar(b, l, v, act, place(b.from, w), x) : nothing}
        ${gone ? html`<button class=${"bar unheard" + (b.text ? " cut" : "")} tabindex=${w ? "-1" : "0"} aria-hidden=${w ? "true" : nothing} aria-label=${w ? nothing : label(b, l.start)} title=${b.rest} @click=${() => act.select(b.m.seq)} .style=${`left:${(x(b.from) + w + (w ? 1 : 0)).toFixed(1)}px;width:${gone.toFixed(1)}px`}>${gone > 40 ? html`<span>${count(words(b.rest), "word")}<br>never heard</span>` : nothing}</button>` : nothing}`)}</div>
      ${lane("tools", l.tools, t => html`<button class="bar tool" @click=${() => act.select(t.m.seq)} title=${t.name} .style=${place(t.from, Math.max(30, Math.min(t.to ? Math.max(150, x(t.to) - x(t.from)) : 170, x(l.tools[l.tools.indexOf(t) + 1]?.from ?? l.stop + 1e9) - x(t.from) - 2)))}>${t.name} ${t.to == null ? html`<b class="bad">no result</b>` : t.to - t.from >= quietFrom ? html`<b>${length(t.to - t.from)}</b>` : t.to > t.from + 94 ? length(t.to - t.from) : nothing}</button>`)}
      ${lane("model", l.model, t => html`<i title=${`the model wrote for ${length(t.to - t.from)}`} .style=${place(t.from, Math.max(3, x(t.to) - x(t.from)))}></i>`)}
      ${lane("drafts", drafts, b => bar(b, l, v, act, place(b.from, Math.max(10, Math.min(150, x(drafts[drafts.indexOf(b) + 1]?.from ?? l.stop + 1e9) - x(b.from) - 2)))))}
      <div class="playhead" id="playhead" aria-hidden="true" .style=${`left:${x(v.t).toFixed(1)}px`} ?hidden=${v.t <= l.start}><b>${offset(v.t - l.start, true)}</b></div>
    </div></div></div></section>`;
}

// spoken returns the answers with their width and that of the words nobody heard, which stop where
// the next answer begins.
const spoken = (list, x) => list.map((b, i) => {
  const next = list[i + 1], end = next ? x(next.from) : Infinity, w = b.text && b.to > b.from ? Math.max(4, Math.min(x(b.to), b.rest ? end - 10 : end) - x(b.from)) : 0;
  return [b, w, b.rest ? Math.max(8, Math.min(stub, end - x(b.from) - w - 2)) : 0];
});

// fits reports whether each word that was heard has room at its own time.
const fits = (b, x) => b.words?.length && b.words.filter(w => w.heard).every(w => x(w.to) - x(w.from) >= 6 * w.text.length + 4);

const bar = (b, l, v, act, style, x) => html`<button class=${`bar ${b.lane}${b.soft ? " soft" : ""}${b.m.seq === v.selected ? " on" : ""}`} aria-label=${label(b, l.start)} aria-pressed=${b.m.seq === v.selected}
  dir="auto" .style=${style} @click=${() => act.select(b.m.seq)}>${x && fits(b, x) ? b.words.filter(w => w.heard).map(w => html`<i class="word" aria-hidden="true" .style=${`left:${(x(w.from) - x(b.from)).toFixed(1)}px`}>${w.text} </i>`) : html`<span aria-hidden="true">${b.text}</span>`}</button>`;

// map draws the whole call in one line, with the window that the axis shows.
function map(l, width, v, scale, act) {
  const total = Math.max(1, l.stop - l.start), at = ms => `${(100 * Math.max(0, ms - l.start) / total).toFixed(2)}%`, part = ms => `${(100 * ms / total).toFixed(2)}%`;
  const left = v.scroll / scale, shown = Math.min(total, (width - 24) / scale);
  const seek = e => {
    if (e.type === "pointermove" && !e.buttons) return;
    const box = e.currentTarget.getBoundingClientRect();
    act.center(l.start + total * (e.clientX - box.left) / box.width);
  };
  return html`<div class="map"><span>0:00</span><div @pointerdown=${seek} @pointermove=${seek}>${l.bars.filter(b => b.lane !== "drafts").map(b => html`<i class=${b.lane === "agent" ? "heard" : b.lane} .style=${`left:${at(b.from)};width:${part(Math.max(b.to - b.from, total / 400))}`}></i>${b.rest ? html`<i class="unheard" .style=${`left:${at(b.to)};width:${part(total / 120)}`}></i>` : nothing}`)}
    ${v.zoom > 1 ? html`<i class="window" .style=${`left:${at(l.start + left)};width:${part(shown)}`}></i>` : nothing}</div><span>${offset(total)} ${ended(v.agent) ? "ended" : "now"}</span></div>`;
}
