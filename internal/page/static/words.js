// What the pages say about texts, times and shares, and the small parts that they share.

import {html, nothing} from "/page/lit-html.js";

const clock = new Intl.DateTimeFormat(undefined, {hour: "2-digit", minute: "2-digit", second: "2-digit"});
const day = new Intl.DateTimeFormat(undefined, {month: "short", day: "numeric", hour: "2-digit", minute: "2-digit"});
const short = new Intl.DateTimeFormat(undefined, {hour: "2-digit", minute: "2-digit"});

const full = new Intl.DateTimeFormat(undefined, {month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit"});

// moment is a time to the second, in the viewer's zone.
export const moment = ms => ms ? full.format(ms) : "–";

export const timeOfDay = ms => clock.format(ms);

// when names a time in the viewer's zone: today's without the date.
export function when(ms) {
  if (!ms) return "";
  return new Date(ms).toDateString() === new Date().toDateString() ? short.format(ms) : day.format(ms);
}

// offset is a time into a call: 0:07, 1:02:03.
export function offset(ms) {
  const s = Math.max(0, Math.floor(ms / 1000)), two = n => String(n).padStart(2, "0");
  const h = Math.floor(s / 3600), m = Math.floor(s / 60) % 60;
  return h ? `${h}:${two(m)}:${two(s % 60)}` : `${m}:${two(s % 60)}`;
}

// length is a duration in words: 412 ms, 15.9 s, 3 min 12 s.
export function length(ms) {
  if (ms == null) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(1)} s`;
  const min = Math.floor(ms / 60000), s = Math.round(ms / 1000) % 60;
  return min < 60 ? `${min} min${s ? ` ${s} s` : ""}` : `${Math.floor(min / 60)} h ${min % 60} min`;
}

// usd is an amount of money, with two digits that count where it is less than a cent.
export const usd = n => n == null ? "–" : n === 0 ? "$0" : n >= 0.01 ? "$" + n.toFixed(2) : n < 0.000001 ? "< $0.000001" : "$" + n.toFixed(Math.ceil(-Math.log10(n)) + 1).replace(/0$/, "");

export const percent = share => `${Math.round(share * 100)} %`;

export function median(values) {
  if (!values.length) return null;
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor((sorted.length - 1) / 2)];
}

// plain is a message's content as text.
export function plain(content) {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content.map(part => part.text ?? `[${part.type}]`).join(" ");
}

// split divides an answer into what was heard and the rest that was not. The platform may have
// reported other words than the model wrote; then the rest begins after as many words.
export function split(m) {
  const heard = plain(m.heard ?? m.content), generated = plain(m.generated ?? m.metadata?.original ?? m.content);
  if (!lost(m)) {
    return m.metadata?.interrupted && generated !== heard ? cut(heard, generated) : [heard || generated, ""];
  }
  return ["", generated];
}

// ended reports whether a call is over.
export const ended = a => ["STOPPED", "FAILED"].includes(a?.status);

// lost reports whether nothing of an answer was heard.
export const lost = m => ["superseded", "unplayed", "replaced"].includes(m.state);
export const ghost = m => m.state === "superseded";
export const interrupted = m => Boolean(m.metadata?.interrupted);

function cut(heard, generated) {
  if (generated.startsWith(heard)) return [heard, generated.slice(heard.length)];
  const words = generated.split(/(?<=\s)/), n = heard.trim() ? heard.trim().split(/\s+/).length : 0;
  return [heard, words.slice(n).join("")];
}

// spoken estimates how long a text takes to say, in milliseconds: 15 letters a second, and 5 of
// the scripts that write a syllable or a word as one sign.
export function spoken(text) {
  let ms = 0;
  for (const c of text) ms += c.codePointAt(0) >= 0x2e80 ? 200 : 67;
  return ms;
}

// shareUnheard is the share of the model's words that nobody heard.
export function shareUnheard(messages) {
  let all = 0, rest = 0;
  for (const m of messages) {
    if (m.role !== "assistant" || m.generated == null && !lost(m)) continue;
    const [heard, unheard] = split(m);
    all += heard.length + unheard.length;
    rest += unheard.length;
  }
  return all ? rest / all : 0;
}

export const firstTokens = messages => messages.map(m => m.timings?.first_token_ms).filter(ms => ms != null);

const methods = {
  vendor_text: "heard text from the platform",
  word_times: "word times from the platform",
  audio_ms: "length of the audio that was played",
  echo_diff: "echo in a later request",
  disconnect_only: "what was sent until the connection ended",
  assumed_full: "assumed: nothing says otherwise",
};
// checks are what the page says for the checks that have found something.
export const checks = {repeated: "said again what was heard", unheard: "referred to what was not heard", talked_over: "talked over the caller", silence: "kept the caller waiting", asked_again: "asked again"};

export const method = name => methods[name] ?? name;

// bytes is a size: 812 B, 1.4 kB.
export const bytes = n => n < 1000 ? `${n} B` : n < 1e6 ? `${(n / 1000).toFixed(1)} kB` : `${(n / 1e6).toFixed(1)} MB`;

// choice is a select of [value, text] pairs. A value other than the usual one is marked.
export const choice = (label, value, options, set, usual = options[0][0]) => html`<select aria-label=${label} class=${value !== usual ? "set" : ""} @change=${e => set(e.target.value)}>
  ${options.map(([v, text]) => html`<option value=${v} ?selected=${v === value}>${text}</option>`)}</select>`;

export const failure = text => text ? html`<p class="error" role="alert">${text}</p>` : nothing;

// struck shows words that nobody heard, after those that were.
export const struck = rest => rest ? html`${/^\s/.test(rest) ? " " : ""}<del>${rest.trimStart()}</del>` : nothing;

// copy writes to the clipboard. Browsers have one for pages only over https and on this machine.
export const copy = text => navigator.clipboard ? navigator.clipboard.writeText(text) : prompt("Copy this:", text);
