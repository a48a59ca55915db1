// The same agent twice: one whose model is told what was generated, and one whose model is told
// what was heard. The product in two minutes, without a phone.

import {html, nothing, svg} from "/page/lit-html.js";
import * as api from "/page/api.js";
import {plain} from "/page/words.js";
import {canSpeak, speak, words} from "/page/voice.js";

const system = "You are the desk of Central Station. Answer in two sentences.";
const questions = ["Can I change my booking?", "What did you tell me about a fee?", "And before noon?", "Book me the early one."];
const steps = ["Ask something", "Interrupt while it speaks", "Ask what it told you", "Hang up, and see the webhook"];
const events = [["agent.joined", "Call started"], ["agent.interrupted", "Caller cut in: what was heard"], ["agent.left", "Call ended"], ["agent.history", "The whole memory"]];
const random = () => crypto.getRandomValues(new Uint32Array(1))[0].toString(36);

// A turn is a question, the answer of each side, and of the one that the voice says how many words
// were said, and whether the caller cut in. The left answer is missing if it is the same.
export function demoPage({draw, may}) {
  const caller = "demo-" + random();
  const fresh = () => ({turns: [], told: null, events: [], call: "", body: "", chosen: "", shown: "", busy: false, speaking: false, ended: false, error: ""});
  const view = {...fresh(), calls: 0, aloud: canSpeak(), both: true};
  let left = "", right = "", voice, poll, over = false;
  const redraw = () => { if (!over) draw(template(view, act)); };
  const fails = e => { view.error = e.message; };

  async function start() {
    view.calls++;
    const body = (name, labels, heardlog) => ({name: `${name}-${random()}`, properties: {labels, llm: {system_messages: [{role: "system", content: system}]}, heardlog}});
    right = (await api.join(body("demo", {demo: "heardlog"}, {scope: {user_id: caller}, remember: {recall: "auto"}}))).agent_id;
    left = (await api.join(body("demo-direct", {demo: "direct"}))).agent_id;
    view.call = right;
    watch();
  }

  async function ask(text) {
    if (!text.trim() || view.busy || view.speaking) return;
    Object.assign(view, {busy: true, error: ""});
    const turn = {you: text, right: "", said: 0}, turns = view.turns;
    try {
      if (!right) await start();
      const differ = view.turns.some(cut) || view.calls > 1;
      view.turns.push(turn);
      view.speaking = true;
      voice = speak({aloud: view.aloud, onWord: n => { turn.said = n; redraw(); }, onEnd: () => { turn.all = true; view.speaking = false; redraw(); }});
      redraw();
      // The left agent sends its whole history each time, as most platforms do.
      const direct = differ ? api.chat(left, history(view.turns, text), piece => { turn.left = (turn.left ?? "") + piece; redraw(); }) : null;
      turn.written = api.chat(right, [{role: "user", content: text}], piece => { turn.right += piece; voice.more(piece); redraw(); });
      await Promise.all([turn.written, direct]);
      if (view.turns !== turns) return; // it was started again
      voice.done();
      if (differ) view.told = await prompts(view.turns, text);
    } catch (e) {
      if (view.turns !== turns) return;
      fails(e);
      voice?.stop();
      view.turns = view.turns.filter(t => t !== turn || t.right);
      view.speaking = false;
    }
    view.busy = false;
    redraw();
  }

  // prompts returns what each model was given for the last question.
  async function prompts(turns, text) {
    const [mine, theirs] = await Promise.all([right, left].map(async id => (await api.requests(id, await lastTurn(id))).requests.at(-1)?.messages ?? []));
    return {left: theirs, right: mine, lost: turns.filter(cut).map(rest), next: false, text};
  }
  const lastTurn = async id => (await api.messages(id)).at(-1).turn_id;

  // barge stops the voice at once, and reports what it had said.
  async function barge() {
    if (!view.speaking) return;
    const turns = view.turns, turn = turns.at(-1);
    turn.said = voice.stop();
    turn.cut = true;
    view.speaking = false;
    redraw();
    try {
      await turn.written; // most models write faster than a voice speaks
      if (!cut(turn) || view.turns !== turns) return;
      await api.interrupt(right, {heard: words(turn.right).slice(0, turn.said).join("")});
      view.told = {left: history(view.turns), right: (await api.context(right, {})).messages, lost: view.turns.filter(cut).map(rest), next: true};
    } catch (e) { fails(e); }
    redraw();
  }

  async function hangUp() {
    voice?.stop();
    Object.assign(view, {speaking: false, ended: true});
    redraw();
    await Promise.all([right, left].map(id => api.leave(id).catch(fails)));
    redraw();
  }

  // callAgain is the same caller in a new call: the left agent starts with nothing.
  async function callAgain() {
    Object.assign(view, fresh());
    left = right = "";
    await ask(questions[1]);
  }

  // watch reads the deliveries of the call, until the last has come.
  function watch() {
    clearInterval(poll);
    if (!may("webhooks")) return;
    const id = right;
    poll = setInterval(async () => {
      try {
        const {deliveries} = await api.deliveries({agent: id, limit: 50});
        if (id !== right) return;
        view.events = deliveries.reverse();
        if (view.ended && deliveries.some(d => d.event === "agent.history" && d.state !== "pending")) clearInterval(poll);
        if (!view.chosen) await show(view.events.findLast(d => d.event === "agent.interrupted" || d.event === "agent.history"), false);
        redraw();
      } catch (e) { fails(e); clearInterval(poll); redraw(); }
    }, 700);
  }
  async function show(d, chosen = true) {
    if (!d || d.id === view.shown) return;
    view.shown = d.id;
    if (chosen) view.chosen = d.id;
    const e = await api.event(d.message_id);
    view.body = JSON.stringify(e.body?.payload ?? e.body, null, 2);
    redraw();
  }

  const act = {
    ask, barge, hangUp, callAgain, show,
    restart() { close(); Object.assign(view, fresh(), {calls: 0}); redraw(); },
    toggle(name) { view[name] = !view[name]; redraw(); },
    repeat(text) { const v = speak({aloud: true, onWord() {}, onEnd() {}}); v.more(text); v.done(); },
  };
  function close() {
    voice?.stop();
    clearInterval(poll);
    for (const id of [left, right]) if (id && !view.ended) api.leave(id).catch(() => {});
    left = right = "";
  }
  const keys = e => {
    if (e.code !== "Space" || !view.speaking || e.target.closest("input, button, a, [role=button]")) return;
    e.preventDefault();
    barge();
  };
  addEventListener("keydown", keys);
  // Voices are known a moment after the page.
  const voices = () => { view.aloud = canSpeak(); redraw(); };
  globalThis.speechSynthesis?.addEventListener("voiceschanged", voices, {once: true});
  redraw();
  return () => { over = true; close(); removeEventListener("keydown", keys); globalThis.speechSynthesis?.removeEventListener("voiceschanged", voices); };
}

const cut = t => t.cut && t.said < words(t.right).length;
const heard = t => words(t.right).slice(0, t.said).join("");
const rest = t => words(t.right).slice(t.said).join("");

// history is what a platform re-sends: all that was generated, and the next question.
function history(turns, text) {
  const all = turns.flatMap(t => [{role: "user", content: t.you}, {role: "assistant", content: t.left ?? t.right}]);
  return text == null ? all : [...all.slice(0, -2), {role: "user", content: text}];
}

function template(v, act) {
  const last = v.turns.at(-1), done = [v.turns.length > 0, v.turns.some(cut), v.turns.some((t, i) => i > 0 && v.turns.slice(0, i).some(cut)), v.ended];
  const step = v.speaking ? (done[1] ? 2 : 1) : done.indexOf(false) < 0 ? 4 : done.indexOf(false);
  return html`<div class="demo ${v.both ? "" : "one"}">
    <div class="demo-head"><div><h1>The same agent, twice</h1>
      <p class="second">One model, one voice. Left: its own history. Right: through Heardlog. Interrupt it, then ask what it told you.</p></div>
      <p class="actions"><button aria-pressed=${v.aloud} @click=${() => act.toggle("aloud")} ?disabled=${!canSpeak() && !v.aloud}>${v.aloud ? "♪ Voice on" : "Voice off"}</button>
        <button aria-pressed=${!v.both} @click=${() => act.toggle("both")}>Only Heardlog</button><button @click=${act.restart}>↺ Start again</button></p></div>
    ${v.error ? html`<p class="bad" role="alert">${v.error}</p>` : nothing}
    <ol class="steps">${steps.map((s, i) => html`<li aria-current=${i === step ? "step" : "false"} class=${done[i] ? "done" : ""}><span aria-hidden="true">${done[i] ? "✓" : i + 1}</span> ${s}${done[i] ? html`<span class="hidden">, done</span>` : nothing}</li>`)}</ol>
    ${last ? strip(last, v, act) : nothing}
    <div class="panes">${v.both ? pane("Direct to the model", "history of what was generated", "direct", v) : nothing}${pane("Through Heardlog", "history of what was heard", "heardlog", v)}</div>
    ${say(v, step, act)}
    ${v.call ? received(v, act) : nothing}
    <p class="third">The left agent sends all that was generated, as most platforms do. The model of make demo repeats the last answer in its prompt; where that stops before its end, it says so and goes on. A real model answers in its own words.</p></div>`;
}

// strip is what the caller has heard of the last answer.
function strip(t, v, act) {
  const all = words(t.right), loud = i => 6 + (all[i].trim().length * 7 + i * 5) % 17;
  return html`<section class="card strip" aria-label="What you heard">
    <svg width="336" height="44" viewBox="0 0 336 44" aria-hidden="true">${all.slice(0, 84).map((w, i) => {
      const step = Math.min(14, 330 / all.length), h = i < t.said ? 2 * loud(i) : loud(i);
      return mark(i < t.said ? "yes" : cut(t) ? "no" : "", i * step, h, Math.max(2, step * .5));
    })}</svg>
    <p><span class="third" role="status">What you heard: ${t.said} of ${all.length} words</span><br><span class="spoken" dir="auto">${heard(t)}</span>${cut(t) ? html` <b class="cut-in" aria-hidden="true">│</b><span class="third"> you cut in</span>` : nothing}</p>
    <p class="actions"><button ?disabled=${v.speaking || !v.aloud} @click=${() => act.repeat(heard(t))}>▶ Hear it again</button>
      <button class="barge ${v.speaking ? "main" : ""}" ?disabled=${!v.speaking} @click=${act.barge}>Interrupt <kbd>space</kbd></button></p></section>`;
}

// mark is one word of the strip: its height is no measurement.
function mark(kind, x, h, w) {
  return svg`<rect class=${kind} x=${x} y=${22 - h / 2} width=${w} height=${h} rx="1.5"></rect>`;
}

function pane(title, chip, side, v) {
  const answer = t => side === "direct" ? t.left ?? t.right : t.right;
  return html`<section class="card pane ${side}"><h2>${title} <span class="chip ${side === "heardlog" ? "good" : ""}">${chip}</span></h2>
    <ol aria-live="polite">${v.turns.map(t => html`<li><b class="who user">You</b> <span dir="auto">${t.you}</span></li>
      <li><b class="who assistant">Agent</b> <span dir="auto" class=${t.left != null ? "asked" : ""}>${t.left != null && side === "direct" ? t.left : html`${heard(t)}${unheard(t)}`}</span></li>
      ${t.left != null && t === v.turns.at(-1) && v.told && !v.told.next ? verdict(side, v) : nothing}`)}</ol>
    ${v.turns.length ? nothing : html`<p class="third">${side === "direct" ? "As most platforms do it: the model believes that it said all that it wrote." : "The model is told what you heard."}</p>`}
    ${v.told ? prompt(v.told, side) : nothing}</section>`;
}

// unheard shows the words that were not said: yet, or because the caller cut in.
const unheard = t => cut(t) ? html` <del><span class="hidden">not heard: </span>${rest(t).trim()}</del>` : html`<span class="coming">${rest(t)}</span>`;

// verdict compares a prompt with what was heard. It does not judge the answer.
function verdict(side, v) {
  const n = v.told.lost.reduce((sum, text) => sum + words(text).length, 0);
  if (v.calls > 1) return html`<li class="verdict ${side === "direct" ? "wrong" : "right"}">${side === "direct" ? "✕ Its prompt has nothing of your last call." : "✓ Its prompt has what you heard in your last call."}</li>`;
  return side === "direct" ? html`<li class="verdict wrong">✕ Its prompt has ${n} words that you never heard.</li>` : html`<li class="verdict right">✓ Its prompt ends where you cut in.</li>`;
}

function prompt(told, side) {
  const list = told[side === "direct" ? "left" : "right"].map(m => [m.role, plain(m.content)]);
  const lost = told.lost.map(s => s.trim());
  return html`<div class="told"><h3>What this model ${told.next ? "is told next" : "was told"}</h3><table><tbody>${list.map(([role, text]) => {
    const over = role === "assistant" && lost.find(s => text.endsWith(s)), cutHere = side === "heardlog" && role === "assistant" && told.lost.length;
    return html`<tr class=${over ? "wrong" : cutHere ? "right" : ""}><th scope="row">${role}</th><td dir="auto">${over ? html`${text.slice(0, -over.length)}<mark>${over}</mark>` : text}</td></tr>`;
  })}</tbody></table></div>`;
}

function say(v, step, act) {
  const quiet = v.speaking || v.busy;
  if (v.ended) return html`<p class="say"><button class="main" @click=${act.callAgain}>Call again: does it still know you?</button> <a class="button" href=${"/calls/" + v.call}>Look at the call</a></p>`;
  const next = v.calls > 1 || step === 2 ? questions[1] : step > 2 ? questions[2] : questions[0];
  return html`<form class="say" @submit=${e => { e.preventDefault(); const f = e.target.elements.text; act.ask(f.value || next); f.value = ""; }}>
    <input name="text" aria-label="What you say" placeholder=${next} autocomplete="off" ?disabled=${quiet}>
    ${questions.filter(q => q !== next).slice(-2).map(q => html`<button type="button" ?disabled=${quiet} @click=${() => act.ask(q)}>${q}</button>`)}
    <button class=${quiet || step === 3 ? "" : "main"} ?disabled=${quiet}>Say it <kbd>↵</kbd></button>
    <button type="button" class=${step === 3 && !quiet ? "main" : ""} ?disabled=${!v.call || v.busy} @click=${act.hangUp}>Hang up</button></form>`;
}

function received(v, act) {
  const newest = new Map(v.events.map(d => [d.event, d]));
  const delivered = events.filter(([name]) => newest.get(name)?.state === "delivered").length;
  return html`<section class="card hooks"><div><h2>What your server receives ${delivered ? html`<span class="chip good">✓ ${delivered} signed and delivered</span>` : nothing}</h2>
    <table><tbody>${events.map(([name, plainName]) => {
      const d = newest.get(name);
      return html`<tr aria-selected=${d?.id === v.shown && Boolean(d)}><td>${d ? new Date(d.event_at).toLocaleTimeString([], {hour12: false}) : "–"}</td>
        <th scope="row">${d ? html`<button class="plain" @click=${() => act.show(d)}>${plainName}</button>` : plainName} <code>${name}</code></th><td>${d ? d.last_status ?? d.state : "later"}</td></tr>`;
    })}</tbody></table></div>${v.body ? html`<pre tabindex="0">${v.body}</pre>` : html`<p class="third">${v.events.length ? "" : "An endpoint for these events is needed: HEARDLOG_WEBHOOK_URL, or one of the page Webhooks."}</p>`}</section>`;
}
