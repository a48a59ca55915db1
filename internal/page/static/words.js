// How the pages write times, amounts and shares, and what they read in a message.

import {html, nothing} from "/page/lit-html.js";

const clock = new Intl.DateTimeFormat("en-GB", {hour: "2-digit", minute: "2-digit"});
const date = new Intl.DateTimeFormat("en-GB", {day: "numeric", month: "short"});
const year = new Intl.DateTimeFormat("en-GB", {day: "numeric", month: "short", year: "numeric"});
const full = new Intl.DateTimeFormat("en-GB", {day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit"});

// moment is a time to the second, in the viewer's zone.
export const moment = ms => ms ? full.format(ms) : "–";
export const timeOfDay = ms => clock.format(ms);

const sameDay = (a, b) => new Date(a).toDateString() === new Date(b).toDateString();

// when names a time in short: 14:02 today, else 18 Nov.
export const when = ms => !ms ? "" : sameDay(ms, Date.now()) ? clock.format(ms) : day(ms);

// day names a day: today, 18 Nov, 18 Nov 2025.
export const day = ms => sameDay(ms, Date.now()) ? "today" : new Date(ms).getFullYear() === new Date().getFullYear() ? date.format(ms) : year.format(ms);

// offset is a time into a call: 0:07, 1:02:03; with tenths 0:13.6.
export function offset(ms, tenths = false) {
  const t = Math.max(0, tenths ? Math.round(ms / 100) / 10 : Math.floor(ms / 1000)), two = n => String(n).padStart(2, "0");
  const h = Math.floor(t / 3600), m = Math.floor(t / 60) % 60, s = t % 60;
  const last = tenths ? (s < 10 ? "0" : "") + s.toFixed(1) : two(s);
  return h ? `${h}:${two(m)}:${last}` : `${m}:${last}`;
}

// length is a duration in words: 12 ms, 0.8 s, 3 min 12 s.
export function length(ms) {
  if (ms == null) return "–";
  if (ms < 95) return `${Math.round(ms)} ms`;
  if (ms < 59950) return `${(ms / 1000).toFixed(1)} s`;
  const s = Math.round(ms / 1000), min = Math.floor(s / 60);
  return min < 60 ? `${min} min${s % 60 ? ` ${s % 60} s` : ""}` : `${Math.floor(min / 60)} h ${min % 60} min`;
}

// usd is an amount of money in whole cents; exactly is all of it, for a title.
export const usd = n => n == null ? "–" : n === 0 ? "$0" : n < 0.005 ? "< $0.01" : "$" + n.toLocaleString("en", {minimumFractionDigits: 2, maximumFractionDigits: 2});
export const exactly = n => n == null ? "" : "$" + n.toLocaleString("en", {maximumSignificantDigits: 6});

// percent is a share in whole percents; what is more than nothing is never 0 %.
export const percent = share => share > 0 && share < .005 ? "< 1 %" : `${Math.round(share * 100)} %`;
export const whole = n => (n ?? 0).toLocaleString("en");

// count says how many: 1 call, 2 calls, 1,284 calls.
export const count = (n, one, more = one + "s") => `${whole(n)} ${n === 1 ? one : more}`;
const times = ["never", "once", "twice"];
export const often = n => times[n] ?? `${whole(n)} times`;

export const bytes = n => n < 1000 ? `${n} B` : n < 1e6 ? `${(n / 1000).toFixed(1)} kB` : `${(n / 1e6).toFixed(1)} MB`;

export const clip = (text, n) => text.length > n ? text.slice(0, n).trimEnd() + "…" : text;

// plain is a message's content as text.
export function plain(content) {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content.map(part => part.text ?? `[${part.type}]`).join(" ");
}

export const ended = a => ["STOPPED", "FAILED"].includes(a?.status);

// lost reports whether nothing of an answer was heard; a ghost is an answer that another replaced.
export const lost = m => ["superseded", "unplayed", "replaced"].includes(m.state);
export const ghost = m => m.state === "superseded";
export const interrupted = m => Boolean(m.metadata?.interrupted);

// split divides an answer into what was heard and the rest that was not. The platform may have
// reported other words than the model wrote; then the rest begins after as many words.
export function split(m) {
  const heard = plain(m.heard ?? m.content), made = generated(m);
  if (lost(m)) return ["", made];
  return interrupted(m) && made !== heard ? cut(heard, made) : [heard || made, ""];
}
export const generated = m => plain(m.generated ?? m.metadata?.original ?? m.content);

function cut(heard, made) {
  if (made.startsWith(heard)) return [heard, made.slice(heard.length)];
  const words = made.split(/(?<=\s)/), n = heard.trim() ? heard.trim().split(/\s+/).length : 0;
  return [heard, words.slice(n).join("")];
}

// words counts the words of one text by the server's rule: what stands between spaces, and each
// letter of the scripts that are written without spaces.
export function words(text) {
  let n = 0, inside = false;
  for (const c of text) {
    if (/\s/.test(c)) inside = false;
    else if (c >= "\u2e80" && /[\p{sc=Han}\p{sc=Hira}\p{sc=Kana}]/u.test(c)) { n++; inside = false; }
    else if (!inside && /[\p{L}\p{N}]/u.test(c)) { n++; inside = true; }
  }
  return n;
}

// speech estimates how long a text takes to say, in milliseconds: 15 letters a second, and 5 of
// the scripts that write a syllable or a word as one sign.
export function speech(text) {
  let ms = 0;
  for (const c of text) ms += c.codePointAt(0) >= 0x2e80 ? 200 : 67;
  return ms;
}

export const platforms = {agora: "Agora", elevenlabs: "ElevenLabs", livekit: "LiveKit", openai: "OpenAI", pipecat: "Pipecat", retell: "Retell", telnyx: "Telnyx", twilio: "Twilio", vapi: "Vapi"};
export const platform = name => platforms[name] ?? name ?? "";

// checks are what the pages say for the checks that have found something.
export const checks = {repeated: "said again what was heard", unheard: "referred to what was not heard", talked_over: "talked over the caller", silence: "kept the caller waiting", asked_again: "asked again"};

// evidence says how it is known what was heard: on a chip, and in a sentence.
export function evidence(e, name, cut) {
  const p = platform(name) || "The platform";
  const mine = name ? p : "the platform";
  return {
    vendor_text: [`${mine}'s heard text`, `${p} reported the words that were heard.`],
    word_times: [`${mine} timed every word`, `${p} reported when each word was played.${cut ? ` The last ended at ${cut}.` : ""}`],
    audio_ms: ["length that was played", `${p} reported how long was played. The words are estimated from it.`],
    echo_diff: ["words of the next request", "The next request repeated these words."],
    disconnect_only: ["at most this", "The connection was closed here. No more can have been heard."],
    rate_estimate: ["estimated from the pace", "The words are estimated from the pace of the voice."],
    assumed_full: ["assumed heard", "No report came. Taken as heard in full."],
  }[e.method] ?? [e.method, e.method];
}

// sure says in words how certain evidence is.
export function sure(e) {
  const c = e.confidence;
  if (e.method === "disconnect_only" && !c) return "upper limit";
  if (!c) return "assumed";
  return c >= 97 ? "sure" : c >= 90 ? "nearly sure" : c >= 70 ? "fairly sure" : c >= 50 ? "a guess, within a few words" : "cut, unknown where";
}

// reason returns the message in an upstream's error, which is often a JSON object.
export function reason(text) {
  try {
    const e = JSON.parse(text);
    return e.error?.message ?? e.message ?? text;
  } catch { return text; }
}

// struck shows words that nobody heard, after those that were.
export const struck = rest => rest ? html`${/^\s/.test(rest) ? " " : ""}<del><span class="hidden">not heard: </span>${rest.trim()}</del>` : nothing;

// The figures of a call, and what is said of it in words. They are the server's: every page shows
// those of a call's tally, and no page counts by itself. What the server does not know is unknown.

// figures returns what a tally says: share is null if unknown.
export function figures(a) {
  const t = a?.tally ?? {};
  return {...t, share: t.unheard_share ?? null, cut: t.interruptions ?? 0, first: t.first_token_ms, cost: t.cost};
}

// worst returns the worst of a kind that happened in a call.
const worst = (a, kind) => a.moments?.find(m => m.kind === kind);

// neverHeard is the figure of a call in three parts: the share, of how many words, and its colour.
export function neverHeard(a) {
  const f = figures(a);
  if (f.share == null) return {share: "unknown", of: f.answers ? f.answers_with_evidence === 0 ? "no report" : "not counted" : "no answer", kind: "zero"};
  return {share: percent(f.share), of: `${whole(f.unheard_words)} of ${count(f.words, "word")}`, kind: f.unheard_words ? "bad" : "zero",
    title: f.ghost_words ? `${whole(f.ghost_words)} of the words are of drafts that were thrown away` : undefined};
}

export const cutOff = a => ({of: `of ${whole(figures(a).answers ?? 0)}`, n: whole(figures(a).cut)});

// firstWord is the time to the first word: the median, and the slowest.
export function firstWord(a) {
  const t = figures(a).first;
  return t ? {p50: length(t.p50), slowest: length(t.max ?? t.p95)} : null;
}

export const cost = a => {
  const c = figures(a).cost;
  return c ? {usd: usd(c.usd), unheard: c.unheard_usd ? usd(c.unheard_usd) : "", title: [exactly(c.usd), c.unheard_usd && `${exactly(c.unheard_usd)} unheard`, c.saved_usd && `${exactly(c.saved_usd)} saved by the prompt cache`, c.estimated_usd && `${exactly(c.estimated_usd)} estimated`].filter(Boolean).join(", ")} : null;
};

// lengthOf is how long a call took; from there on a live one grows.
export const lengthOf = a => (Date.parse(a.stopped_at) || Date.now()) - Date.parse(a.started_at);

const failed = m => [reason(m.error ?? ""), m.status].filter(Boolean).slice(0, 1).join("").replaceAll("_", " ");

// reasons says in a few words why a call may be worth opening, worst first.
export function reasons(a) {
  const f = figures(a), out = [], fail = worst(a, "failure"), quiet = worst(a, "silence");
  if (f.failures) out.push(`model failed${fail && failed(fail) ? ": " + clip(failed(fail), 40) : ""}`);
  if (f.cut) out.push(f.cut === f.answers && f.cut > 1 ? "cut off every time" : `cut off ${often(f.cut)}`);
  if (quiet) out.push(`${length(quiet.ms)} silence`);
  if (f.tool_calls_without_result) out.push("tool without a result");
  for (const c of a.checks ?? []) out.push(checks[c] ?? c);
  if (f.ghosts) out.push(count(f.ghosts, "draft"));
  if (!out.length && f.answers && f.share == null) out.push(f.answers_with_evidence === 0 ? "heard is assumed: no report came" : "heard is unknown");
  return out.length ? out : [!a.messages ? "nothing was said yet" : !ended(a) ? "going on" : "nothing unusual"];
}

// callAnswer says in at most two sentences why a call went wrong. lead leads to a message.
export function callAnswer(a, lead) {
  const f = figures(a), fail = worst(a, "failure"), gone = worst(a, "unheard"), quiet = worst(a, "silence"), tool = worst(a, "tool_without_result"), slow = worst(a, "first_token");
  const at = (m, text, kind) => html`<a href="#" class=${kind} @click=${e => { e.preventDefault(); lead(m.seq); }}>${text}</a>`;
  const said = [];
  if (f.failures) said.push(html`The model failed <b>${often(f.failures)}</b>${fail && failed(fail) ? html`: ${at(fail, clip(failed(fail), 80), "bad")}` : nothing}.`);
  const cutIn = f.cut ? html`The caller cut in on <b>${whole(f.cut)} of ${count(f.answers, "answer")}</b>` : nothing;
  if (f.unheard_words) {
    said.push(html`${f.cut ? html`${cutIn}, and <b>${whole(f.unheard_words)} of ${count(f.words, "word")}</b> were never heard` : html`<b>${whole(f.unheard_words)} of ${count(f.words, "word")}</b> were never heard`}${f.ghost_words && f.ghost_words >= f.unheard_words
      ? ", all of them in drafts that were thrown away" : gone ? html`, among them ${at(gone, `“${clip(gone.text, 90)}”`, "bad")}` : nothing}.`);
  } else if (f.cut) said.push(html`${cutIn}.`);
  if (quiet) said.push(html`The longest silence took ${at(quiet, length(quiet.ms), "slow")}${quiet.tool ? html`, while <code>${quiet.tool}</code> ran` : nothing}.`);
  if (f.tool_calls_without_result) said.push(html`${tool ? html`The tool ${at(tool, tool.tool, "slow")}` : "A tool"} was called and gave no result.`);
  if (slow?.ms >= 2000 && !quiet) said.push(html`The slowest first word took ${at(slow, length(slow.ms), "slow")}.`);
  if (said.length) return ["bad", said.slice(0, 2).map((s, i) => html`${i ? " " : ""}${s}`)];
  if (!a.messages) return ["", "Nothing was said yet."];
  if (!f.answers) return ["", "The agent has given no answer."];
  if (f.share == null) return ["", f.answers_with_evidence === 0 ? `${count(f.answers, "answer")}. No report says what the caller heard of them: it is assumed, and not known.` : `${count(f.answers, "answer")}. How much of them was heard is not known.`];
  return ["good", `Nothing unusual: ${count(f.answers, "answer")}, all heard${f.first ? `, first word within ${length(f.first.max ?? f.first.p95)}` : ""}.`];
}

// names of a call: its caller, platform and the values of its labels.
export const about = a => [a.user_id || "withheld", platform(a.platform), ...Object.values(a.labels ?? {})].filter(Boolean);
