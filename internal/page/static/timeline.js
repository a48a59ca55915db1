// The two lanes of a call on a time axis.

import {html, svg} from "/page/lit-html.js";
import {ghost, interrupted, lost, plain, spoken, split, timeOfDay} from "/page/words.js";

const laneY = {caller: 30, agent: 76, ghosts: 122}, barHeight = 28, left = 72, minScale = 0.012, maxScale = 0.2; // pixels a millisecond

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
      const [heard, rest] = split(m), t = times(m);
      if (!heard && !rest) continue;
      if (t) {
        const to = Math.max(t.cut + spoken(rest), t.words.at(-1)?.to ?? 0);
        out.push({m, lane: "agent", from: t.from, to: rest ? to : t.cut, text: heard, rest, unheardFrom: rest ? t.cut : undefined, words: t.words, exact: true});
        continue;
      }
      const cut = interrupted(m) ? Math.max(m.metadata.interrupt_timestamp ?? 0, m.timestamp + spoken(heard) / 3) : m.timestamp + spoken(heard);
      out.push({m, lane: "agent", from: m.timestamp, to: cut + spoken(rest), text: heard, rest, unheardFrom: rest ? cut : undefined});
    }
  }
  return spread(out);
}

// times returns when an answer was played, by reports of the platform: {from, cut, words}, where cut
// is the end of what was heard; null where nothing was reported.
export function times(m) {
  const list = m.audio ?? [], whole = list.find(a => a.heard_ms != null);
  const pieces = whole?.word_ends_ms ? [whole] : list.filter(a => a !== whole && a.start_ms);
  if (!whole && !pieces.length) return null;
  const at = m.metadata?.interrupt_timestamp, startOf = a => a.start_ms ?? (at ? at - whole.heard_ms : m.timestamp);
  const words = pieces.flatMap(a => {
    const start = startOf(a), ends = a.word_ends_ms ?? [];
    return (a.words ?? "").split(" ").slice(0, ends.length).map((text, i) => ({text, from: start + (ends[i - 1] ?? 0), to: start + ends[i]}));
  });
  const from = Math.min(...(whole ? [startOf(whole)] : []), ...pieces.map(startOf)), last = words.at(-1)?.to;
  const cut = whole ? startOf(whole) + whole.heard_ms : interrupted(m) && at > from ? at : last ?? from + spoken(split(m)[0]);
  return {from, cut, words: words.map(w => ({...w, heard: w.to <= cut}))};
}

// spread moves a bar behind the one before it in its lane, so that estimates do not overlap. Words
// that nobody heard end where the next bar begins, but keep some room. A bar whose times were
// reported stays, and ends the one before.
function spread(list) {
  const before = {}, room = 600;
  for (const b of list) {
    const last = before[b.lane];
    const late = last && !b.exact ? (last.rest ? last.unheardFrom + Math.min(room, last.to - last.unheardFrom) : last.to) - b.from : 0;
    if (late > 0) {
      b.from += late;
      b.to += late;
      if (b.unheardFrom != null) b.unheardFrom += late;
    }
    if (last?.rest || last && b.exact && !last.exact) last.to = Math.max(last.from, Math.min(last.to, b.from));
    if (last?.unheardFrom > last?.to) last.unheardFrom = last.to;
    before[b.lane] = b;
  }
  return list;
}

// ticks chooses round times, about one in 120 pixels.
function ticks(from, to, scale) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600].map(s => s * 1000);
  const step = steps.find(s => s * scale >= 120) ?? steps.at(-1), out = [];
  for (let t = Math.ceil(from / step) * step; t <= to - 70 / scale; t += step) out.push(t); // a label needs 70 pixels
  return out;
}

// timeline draws the axis of a view: zoom is how many times wider it is than usual, scroll where it
// is scrolled to, and selected the chosen message. act changes them. Only the bars around the window
// are drawn, since a long call has thousands.
export function timeline(messages, width, {zoom, scroll, selected}, act) {
  const list = bars(messages);
  if (!list.length) return "";
  const from = Math.min(...list.map(b => b.from)) - 500, to = Math.max(...list.map(b => b.to)) + 500;
  const usual = Math.max(minScale, (width - left - 16) / (to - from)), scale = Math.min(Math.max(usual, maxScale), usual * zoom);
  const x = ms => left + (ms - from) * scale, full = Math.ceil(x(to) + 8);
  const ghosts = list.some(b => b.lane === "ghosts"), height = ghosts ? 156 : 112;
  const zoomed = f => e => {
    const pane = e.target.closest(".axis").querySelector(".timeline"), middle = pane.scrollLeft + pane.clientWidth / 2, wide = pane.scrollWidth;
    act.zoom(zoom * f);
    requestAnimationFrame(() => requestAnimationFrame(() => { pane.scrollLeft = middle * pane.scrollWidth / wide - pane.clientWidth / 2; }));
  };
  return html`<div class="axis"><div class="zoom"><button aria-label="Zoom out" ?disabled=${zoom <= 1} @click=${zoomed(1 / 2)}>−</button>
      <button aria-label="Zoom in" ?disabled=${scale >= maxScale} @click=${zoomed(2)}>+</button></div>
    <div class="timeline" @scroll=${e => act.scroll(e.target.scrollLeft)} tabindex="0" role="region" aria-label="Time axis">
    <svg width=${full} height=${height} role="presentation">
      ${ticks(from, to, scale).map(t => svg`<g class="tick"><line x1=${x(t)} x2=${x(t)} y1="20" y2=${height}></line><text x=${x(t)} y="12">${timeOfDay(t)}</text></g>`)}
      ${["caller", "agent", ...(ghosts ? ["ghosts"] : [])].map(lane => svg`<text class="lane" x="4" y=${laneY[lane] + 18}>${lane}</text>`)}
      ${list.filter(b => x(b.to) > scroll - 2 * width && x(b.from) < scroll + 3 * width).map(b => bar(b, x, selected, act.select))}
    </svg></div></div>`;
}

function bar(b, x, selected, onSelect) {
  const y = laneY[b.lane], cut = b.unheardFrom ?? b.to, on = b.m.seq === selected;
  const fits = b.words?.length && b.words.every(w => x(w.to) - x(w.from) >= room(w.text)); // each word at its own time
  const part = (from, to, kind, text) => to > from ? svg`<foreignObject x=${x(from)} y=${y} width=${Math.max(3, x(to) - x(from))} height=${barHeight}>
      <div class=${"bar " + kind} xmlns="http://www.w3.org/1999/xhtml" dir="auto">${text}</div></foreignObject>` : "";
  const pick = e => { if (e.type === "click" || e.key === "Enter" || e.key === " ") { e.preventDefault(); onSelect(b.m.seq); } };
  return svg`<g role="button" tabindex="0" aria-pressed=${on} aria-label=${`${b.lane}: ${b.text}${b.rest ? ` ${b.rest.trim()} (not heard from “${b.rest.trim().slice(0, 20)}” on)` : ""}`}
      class=${on ? "on" : ""} @click=${pick} @keydown=${pick}>
    ${part(b.from, cut, b.lane, fits ? "" : b.text)}
    ${part(cut, b.to, "unheard", fits ? "" : b.rest ?? b.text)}
    ${(b.words ?? []).map(w => svg`<g class=${"word" + (w.heard ? "" : " gone")}><line x1=${x(w.to)} x2=${x(w.to)} y1=${y + barHeight - (fits ? barHeight : 5)} y2=${y + barHeight}></line>
      ${fits ? svg`<text x=${x((w.from + w.to) / 2)} y=${y + 18}>${w.text}</text>` : ""}</g>`)}
    ${b.unheardFrom != null && b.text && cut > b.from ? svg`<line class="cut" x1=${x(cut)} x2=${x(cut)} y1=${y - 2} y2=${y + barHeight + 2}></line>` : ""}
  </g>`;
}

// room is about how many pixels a word needs.
const room = text => { let n = 0; for (const c of text) n += c.codePointAt(0) >= 0x2e80 ? 12 : 5.6; return n; };

// strip draws the share of the model's words that were heard, and of those that nobody heard.
export function strip(heard, unheard) {
  const width = 150, at = width * heard / (heard + unheard || 1);
  return html`<svg class="strip" width=${width} height="8" role="img" aria-label="heard and not heard">
    <rect class="agent" width=${at} height="8"></rect><rect class="unheard" x=${at} width=${width - at} height="8"></rect></svg>`;
}
