// Parts that the pages share: chips, fields, the bar with the shape of a call, toasts, what stands
// in place of data that is missing or not here yet.

import {html, nothing, render} from "/page/lit-html.js";
import * as api from "/page/api.js";

export const chip = (kind, text, title) => html`<span class=${"chip " + kind} title=${title ?? nothing}>${text}</span>`;

// choice is a select of [value, text] pairs. A value other than the usual one is marked.
export const choice = (label, value, options, set, usual = options[0][0]) => html`<select aria-label=${label} class=${value !== usual ? "set" : ""} @change=${e => set(e.target.value)}>
  ${options.map(([v, text]) => html`<option value=${v} ?selected=${v === value}>${text}</option>`)}</select>`;

export const failure = text => text ? html`<p class="card error" role="alert"><span aria-hidden="true">▲</span> ${text}</p>` : nothing;

// answer is the line above a page that answers its question. kind is bad, good or nothing.
export const answer = (kind, text) => html`<p class=${"card answer " + kind}><span class="mark" aria-hidden="true">${kind === "bad" ? "◆" : kind === "good" ? "✓" : "●"}</span><span>${text}</span></p>`;

// strip shows figures side by side: [value, small, label, kind, title].
export const strip = cells => html`<dl class="stats">${cells.map(([value, small, label, kind = "", title]) => html`<div title=${title ?? nothing}><dt>${label}</dt>
  <dd class=${value === "0" || value === "0 %" || value === "–" || value === "unknown" ? "zero" : kind}><b>${value}</b> ${small ? html`<small>${small}</small>` : nothing}</dd></div>`)}</dl>`;

// shape draws a call from left to right: who spoke, what nobody heard at half height, and silence
// empty. Words that nobody heard took no time, but are shown with the length of their speech.
export function shape(list) {
  if (!list?.length) return html`<span class="shape none" title="not read"></span>`;
  const all = list.reduce((n, [, ms]) => n + ms, 0) || 1;
  return html`<span class="shape" role="img" aria-label=${said(list)}>${list.map(([kind, ms]) => html`<i class=${kind} .style=${`flex:${(100 * ms / all).toFixed(2)} 0 0`}></i>`)}</span>`;
}
const said = list => "From start to end: " + list.map(([kind]) => kind).join(", ");

// skeleton stands in for rows that are being read; CSS shows it after 200 ms.
export const skeleton = (rows = 6) => html`<div class="skeleton card" role="status" aria-label="Reading">${Array.from({length: rows}, () => html`<div><i></i><i></i><i></i></div>`)}</div>`;

export const empty = (title, content) => html`<div class="card empty"><h2>${title}</h2>${content}</div>`;

// toast says one sentence at the bottom for 5 s. A failure stays until it is closed. undo is a
// function that takes back what was done.
export function toast(text, {bad = false, undo} = {}) {
  let place = document.getElementById("toast");
  if (!place) {
    place = document.createElement("div");
    place.id = "toast";
    place.setAttribute("role", "status");
    document.body.append(place);
  }
  clearTimeout(place.timer);
  const close = () => render(nothing, place);
  render(html`<div class=${bad ? "bad" : ""}>${bad ? html`<span aria-hidden="true">▲</span>` : nothing} ${text}
    ${undo ? html`<button @click=${() => { close(); undo(); }}>Undo</button>` : nothing}${bad ? html`<button aria-label="Close" @click=${close}>×</button>` : nothing}</div>`, place);
  if (!bad) place.timer = setTimeout(close, 5000);
}

// copy writes to the clipboard. Browsers have one for pages only over https and on this machine.
export async function copy(text, what = "Copied.") {
  if (!navigator.clipboard) return prompt("Copy this:", text);
  try { await navigator.clipboard.writeText(text); toast(what); } catch { prompt("Copy this:", text); }
}
export const copyLink = () => copy(location.href, "The link is copied.");

// The keyboard: the keys of the page that is shown, those of every page, and the list of all.

let here = [];
const always = [["⌘K", "search or jump", () => field()?.focus()], ["/", "search", () => (document.querySelector("main input[type=search]") ?? field())?.focus()],
  ["c", "copy link", copyLink], ["?", "all keys", help]];
const field = () => document.querySelector(".jump input");

// keys sets the keys of a page: [key, what it does, function]. A key may be several, as "j ArrowDown".
// Those with a fourth value stand at the bottom of the page.
export function keys(list, legend) {
  here = list;
  render(html`${[...list.filter(k => k[3]), ["?", "all keys"]].map(([key, what]) => html`<span>${names(key)} ${what}</span>`)}
    ${legend ? html`<span class="legend">${legend}</span>` : nothing}`, document.getElementById("keys"));
}

const signs = {ArrowDown: "↓", ArrowUp: "↑", ArrowLeft: "←", ArrowRight: "→", Enter: "↵", Escape: "Esc", " ": "space"};
const names = key => key === " " ? html`<kbd>space</kbd>` : key.split(" ").map(k => html`<kbd>${signs[k] ?? k}</kbd> `);

function help() {
  const dialog = document.createElement("dialog");
  dialog.setAttribute("aria-label", "All keys");
  render(html`<h2>All keys</h2><dl>${[...here, ...always].map(([key, what]) => html`<div><dt>${names(key)}</dt><dd>${what}</dd></div>`)}</dl>
    <form method="dialog"><button>Close</button></form>`, dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", e => { if (e.target === dialog) dialog.close(); });
  document.body.append(dialog);
  dialog.showModal();
}

addEventListener("keydown", e => {
  if ((e.metaKey || e.ctrlKey) && e.key.toLowerCase() === "k") { e.preventDefault(); return field()?.focus(); }
  const t = e.target, inField = t.closest?.("input, select, textarea, dialog");
  if (e.metaKey || e.ctrlKey || e.altKey || e.defaultPrevented) return;
  if (inField) { if (e.key === "Escape" && t.blur) t.blur(); return; }
  if ((e.key === " " || e.key === "Enter") && t.closest?.("button, a, summary, [role=button]")) return;
  const found = [...here, ...always].find(([key]) => key === e.key || key.length > 1 && key.split(" ").includes(e.key));
  if (found?.[2] && found[2](e) !== false) e.preventDefault();
});

// jump makes the field of the header lead to what its words name: a call, a page, a caller, or else
// all calls in which they were said.
export function jump(go) {
  document.querySelector(".jump").addEventListener("submit", async e => {
    e.preventDefault();
    const input = field(), q = input.value.trim(), low = q.toLowerCase();
    if (!q) return;
    input.value = "";
    input.blur();
    const page = [...document.querySelectorAll("#pages a:not([hidden])")].find(a => a.textContent.toLowerCase() === low);
    if (/^[0-9a-f]{8}-[0-9a-f-]{27}$/.test(low)) return go("/calls/" + low);
    if (page) return page.click();
    go(await api.caller(q).then(u => u.calls ? "/callers/" + encodeURIComponent(q) : "/" + api.query({q}), () => "/" + api.query({q})));
  });
}
