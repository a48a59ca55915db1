// The two lanes of a call on a time axis.

import {html, svg} from "/page/lit-html.js";
import {ghost, interrupted, lost, plain, spoken, split, timeOfDay} from "/page/words.js";

const laneY = {caller: 30, agent: 76, ghosts: 122}, barHeight = 28, left = 72, minScale = 0.012;

// bars places the messages on the axis. The caller's words end when they were recognised. An
// answer begins with its first token; how long it was spoken is estimated where no time is known.
export function bars(messages) {
  const out = [];
  for (const m of messages) {
    if (m.role === "user") {
      const text = plain(m.content), ms = spoken(text);
      out.push({m, lane: "caller", from: m.timestamp - ms, to: m.timestamp, text});
    } else if (m.role === "assistant" && lost(m)) {
      const text = plain(m.generated ?? m.content);
      out.push({m, lane: ghost(m) ? "ghosts" : "agent", from: m.timestamp, to: m.timestamp + spoken(text), text, unheardFrom: ghost(m) ? undefined : m.timestamp});
    } else if (m.role === "assistant") {
      const [heard, rest] = split(m);
      if (!heard && !rest) continue;
      const cut = interrupted(m) ? Math.max(m.metadata.interrupt_timestamp ?? 0, m.timestamp + spoken(heard) / 3) : m.timestamp + spoken(heard);
      out.push({m, lane: "agent", from: m.timestamp, to: cut + spoken(rest), text: heard, rest, unheardFrom: rest ? cut : undefined});
    }
  }
  return spread(out);
}

// spread moves a bar behind the one before it in its lane, so that estimates do not overlap. Words
// that nobody heard end where the next bar begins, but keep some room.
function spread(list) {
  const before = {}, room = 600;
  for (const b of list) {
    const last = before[b.lane];
    const late = last ? (last.rest ? last.unheardFrom + Math.min(room, last.to - last.unheardFrom) : last.to) - b.from : 0;
    if (late > 0) {
      b.from += late;
      b.to += late;
      if (b.unheardFrom != null) b.unheardFrom += late;
    }
    if (last?.rest) last.to = Math.min(last.to, b.from);
    before[b.lane] = b;
  }
  return list;
}

// ticks chooses round times, about one in 120 pixels.
function ticks(from, to, scale) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600].map(s => s * 1000);
  const step = steps.find(s => s * scale >= 120) ?? steps.at(-1), out = [];
  for (let t = Math.ceil(from / step) * step; t <= to; t += step) out.push(t);
  return out;
}

export function timeline(messages, width, selected, onSelect) {
  const list = bars(messages);
  if (!list.length) return "";
  const from = Math.min(...list.map(b => b.from)) - 500, to = Math.max(...list.map(b => b.to)) + 500;
  const scale = Math.max(minScale, (width - left - 16) / (to - from)); // pixels a millisecond
  const x = ms => left + (ms - from) * scale, full = Math.ceil(x(to) + 8);
  const ghosts = list.some(b => b.lane === "ghosts"), height = ghosts ? 156 : 112;
  return html`<div class="timeline" tabindex="0" role="region" aria-label="Time axis">
    <svg width=${full} height=${height} role="presentation">
      ${ticks(from, to, scale).map(t => svg`<g class="tick"><line x1=${x(t)} x2=${x(t)} y1="20" y2=${height}></line><text x=${x(t)} y="12">${timeOfDay(t)}</text></g>`)}
      ${["caller", "agent", ...(ghosts ? ["ghosts"] : [])].map(lane => svg`<text class="lane" x="4" y=${laneY[lane] + 18}>${lane}</text>`)}
      ${list.map(b => bar(b, x, selected, onSelect))}
    </svg></div>`;
}

function bar(b, x, selected, onSelect) {
  const y = laneY[b.lane], cut = b.unheardFrom ?? b.to, on = b.m.seq === selected;
  const part = (from, to, kind, text) => to > from ? svg`<foreignObject x=${x(from)} y=${y} width=${Math.max(3, x(to) - x(from))} height=${barHeight}>
      <div class=${"bar " + kind} xmlns="http://www.w3.org/1999/xhtml" dir="auto">${text}</div></foreignObject>` : "";
  const pick = e => { if (e.type === "click" || e.key === "Enter" || e.key === " ") { e.preventDefault(); onSelect(b.m.seq); } };
  return svg`<g role="button" tabindex="0" aria-pressed=${on} aria-label=${`${b.lane}: ${b.text}${b.rest ? ` ${b.rest.trim()} (not heard from “${b.rest.trim().slice(0, 20)}” on)` : ""}`}
      class=${on ? "on" : ""} @click=${pick} @keydown=${pick}>
    ${part(b.from, cut, b.lane, b.text)}
    ${part(cut, b.to, "unheard", b.rest ?? b.text)}
    ${b.unheardFrom != null && b.text && cut > b.from ? svg`<line class="cut" x1=${x(cut)} x2=${x(cut)} y1=${y - 2} y2=${y + barHeight + 2}></line>` : ""}
  </g>`;
}

// strip draws the share of the model's words that were heard, and of those that nobody heard.
export function strip(heard, unheard) {
  const width = 150, at = width * heard / (heard + unheard || 1);
  return html`<svg class="strip" width=${width} height="8" role="img" aria-label="heard and not heard">
    <rect class="agent" width=${at} height="8"></rect><rect class="unheard" x=${at} width=${width - at} height="8"></rect></svg>`;
}
