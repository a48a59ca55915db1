// A text call that can be interrupted: the product in one minute, without a phone.

import {html, nothing} from "/page/lit-html.js";
import * as api from "/page/api.js";
import {interrupted, plain, split, struck} from "/page/words.js";

const wordMS = 240; // a voice says about four words a second

export function playgroundPage({draw}) {
  const view = {id: "", messages: [], answer: "", spoken: 0, generating: false, error: "", context: null};
  let request, voice;
  const redraw = () => draw(template(view, {say, barge, end, seek}));

  async function say(text) {
    if (!text.trim() || view.generating || view.spoken < count(view.answer)) return;
    view.error = "";
    try {
      view.id ||= (await api.join({name: "playground-" + Math.random().toString(36).slice(2, 10)})).agent_id;
      view.messages.push({role: "user", content: text});
      Object.assign(view, {answer: "", spoken: 0, generating: true});
      request = new AbortController();
      voice = setInterval(() => { if (view.spoken < count(view.answer)) { view.spoken++; redraw(); } else if (!view.generating) heardAll(); }, wordMS);
      redraw();
      await api.chat(view.id, text, piece => { view.answer += piece; redraw(); }, request.signal);
    } catch (e) {
      if (e.name !== "AbortError") { view.error = e.message; clearInterval(voice); Object.assign(view, {answer: "", spoken: 0}); }
    }
    view.generating = false;
    redraw();
  }
  function heardAll() {
    clearInterval(voice);
    Object.assign(view, {answer: "", spoken: 0});
    refresh();
  }
  // barge stops the voice at once. What was heard is what the voice had said by then.
  async function barge() {
    clearInterval(voice);
    const heard = words(view.answer).slice(0, view.spoken).join("").trimEnd();
    request?.abort();
    view.generating = false;
    try {
      await api.interrupt(view.id, {heard});
    } catch (e) { view.error = e.message; }
    Object.assign(view, {answer: "", spoken: 0});
    await refresh();
  }
  const seek = n => { view.spoken = n; redraw(); };
  async function refresh() {
    try {
      view.messages = await api.messages(view.id);
      view.context = (await api.context(view.id, {})).messages;
    } catch (e) { view.error = e.message; }
    redraw();
  }
  async function end() {
    clearInterval(voice);
    request?.abort();
    try { await api.leave(view.id); } catch (e) { view.error = e.message; }
    Object.assign(view, {ended: view.id, id: "", messages: [], answer: "", spoken: 0, context: null});
    redraw();
  }
  redraw();
  return () => { clearInterval(voice); request?.abort(); if (view.id) api.leave(view.id).catch(() => {}); };
}

const words = text => text.match(/\s*\S+/g) ?? [];
const count = text => words(text).length;

function template(v, act) {
  const speaking = v.answer && (v.generating || v.spoken < count(v.answer));
  const said = words(v.answer);
  return html`<div class="split"><section class="call"><h1>Playground</h1>
    <p class="quiet">Ask something, then interrupt the answer while the voice is speaking. The model writes faster than a voice speaks; what nobody heard is struck through, and the model is told only the rest.</p>
    ${v.error ? html`<p class="error" role="alert">${v.error}</p>` : nothing}
    <ol class="transcript" aria-live="polite">${v.messages.filter(m => m.role === "user" || m.role === "assistant").map(m => {
      const [heard, rest] = m.role === "assistant" ? split(m) : [plain(m.content), ""];
      return html`<li><span class="row"><span class=${"who " + m.role}>${m.role === "user" ? "You" : "Agent"}</span>
        <span class="said"><span class="text" dir="auto">${heard}${struck(rest)}</span>${interrupted(m) ? html`<span class="chip bad">interrupted</span>` : nothing}</span></span></li>`;
    })}${v.answer ? html`<li><span class="row"><span class="who assistant">Agent</span><span class="said" dir="auto">${said.slice(0, v.spoken).join("")}<span class="quiet">${said.slice(v.spoken).join("")}</span></span></span></li>` : nothing}</ol>
    <form class="filters" @submit=${e => { e.preventDefault(); const input = e.target.elements.text; act.say(input.value); input.value = ""; }}>
      <input name="text" aria-label="What you say" placeholder="What you say…" autocomplete="off" autofocus ?disabled=${speaking}>
      <button ?disabled=${speaking}>Say it</button>
      <button type="button" class="barge" ?disabled=${!speaking} @click=${act.barge}>Barge in</button>
      <button type="button" ?disabled=${!v.id} @click=${act.end}>Hang up</button></form>
    ${v.answer ? html`<label class="slider quiet">Heard so far: ${v.spoken} of ${said.length} words
      <input type="range" min="0" max=${said.length} .value=${String(v.spoken)} @input=${e => act.seek(Number(e.target.value))}></label>` : nothing}
    ${v.ended ? html`<p><a href=${"/calls/" + v.ended}>Look at the last call</a></p>` : v.id ? html`<p><a href=${"/calls/" + v.id} target="_blank">Look at this call</a></p>` : nothing}
    </section>
    ${v.context ? html`<aside aria-label="What the model is told next"><h2>What the model is told next</h2>
      <pre class="told">${v.context.map(m => html`<b>${m.role}</b> ${plain(m.content)}\n`)}</pre></aside>` : nothing}</div>`;
}
