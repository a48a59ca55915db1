// The frame of all pages: which page an address shows, the header, and who has signed in.

import {html, nothing, render} from "/page/lit-html.js";
import * as api from "/page/api.js";
import {callPage} from "/page/call.js";
import {callerPage, callersPage} from "/page/callers.js";
import {callsPage} from "/page/calls.js";
import {demoPage} from "/page/demo.js";
import {overviewPage} from "/page/overview.js";
import {empty, jump, keys, toast} from "/page/parts.js";
import {webhooksPage} from "/page/webhooks.js";

// A page is a function of its address, of draw, which shows a template, and of may, which reports
// whether the credential has a scope. It returns what ends it.
const pages = [
  {path: /^\/$/, name: "Calls", page: callsPage},
  {path: /^\/calls\/([^/]+)$/, name: "Calls", page: callPage},
  {path: /^\/overview$/, name: "Overview", page: overviewPage},
  {path: /^\/callers$/, name: "Callers", page: callersPage},
  {path: /^\/callers\/([^/]+)$/, name: "Callers", page: callerPage},
  {path: /^\/webhooks$/, name: "Webhooks", page: webhooksPage},
  {path: /^\/demo$/, name: "Demo", page: demoPage},
];
const may = scope => Boolean(session?.scopes.includes(scope) || session?.scopes.includes("admin"));

const root = document.getElementById("main");
root.textContent = "";
let end = () => {}, session = null, refused = "", title = "";

async function start() {
  try {
    session = await api.session();
  } catch (e) {
    if (e.status !== 401) refused = e.message;
    session = null;
    frame("");
    keys([]);
    return render(signIn(), root);
  }
  show();
}

const signIn = () => html`<form class="sign-in card" @submit=${enter}><h1>Sign in</h1>
  <p class="quiet">A key with the scope read is enough to look.</p>
  ${refused ? html`<p class="bad" role="alert">${refused}</p>` : ""}
  <label>Key, or id:secret <input name="credential" type="password" autocomplete="current-password" required autofocus></label>
  <button class="main">Sign in</button>${window.sso?.content.cloneNode(1)}</form>`;

async function enter(e) {
  e.preventDefault();
  refused = "";
  try {
    await api.signIn(e.target.elements.credential.value.trim());
  } catch (err) {
    refused = err.message;
  }
  start();
}

async function leave() {
  end();
  const to = await api.signOut().catch(() => {});
  to ? location = to.location : start();
}

function show() {
  end();
  const found = pages.find(p => p.path.test(location.pathname));
  let ended = false;
  const draw = content => {
    if (ended) return;
    render(content, root);
    const h1 = root.querySelector("h1")?.textContent.trim();
    if (h1 && h1 !== title) document.title = (title = h1) + " · Heardlog";
  };
  frame(found?.name ?? "");
  keys([]);
  const args = found?.path.exec(location.pathname).slice(1).map(decodeURIComponent);
  const stop = found ? found.page({draw, go, may, args}) : draw(empty("There is no such page.", html`<p><a href="/">All calls</a></p>`));
  end = () => { ended = true; stop?.(); };
}

// go leads to an address of the pages.
export function go(address, replace = false) {
  const before = location.pathname;
  history[replace ? "replaceState" : "pushState"](null, "", address);
  show();
  if (location.pathname !== before) scrollTo(0, 0);
}

// frame marks the page in the header, and hides those that the credential does not allow.
function frame(name) {
  for (const a of document.querySelectorAll("#pages a")) {
    a.hidden = !session || !(a.dataset.needs ?? "").split(" ").filter(Boolean).every(may);
    if (a.textContent === name) a.setAttribute("aria-current", "page"); else a.removeAttribute("aria-current");
  }
  document.getElementById("pages").hidePopover?.();
  document.getElementById("here").textContent = name || "Pages";
  document.querySelector(".jump").hidden = !session;
  render(session ? html`<span class="name">project <b>${session.project}</b> ${session.person}</span>${session.open ? nothing : html`<button @click=${leave}>Sign out</button>`}` : nothing, document.getElementById("project"));
}

addEventListener("popstate", show);
addEventListener("click", e => {
  const a = e.target.closest?.("a[href]");
  if (!a || e.defaultPrevented || e.button || e.metaKey || e.ctrlKey || e.shiftKey || a.target || a.download) return;
  const url = new URL(a.href);
  if (url.origin !== location.origin || a.getAttribute("href").startsWith("#") || !pages.some(p => p.path.test(url.pathname))) return;
  e.preventDefault();
  go(url.pathname + url.search);
});
// A session may end while a page is open. What a page did not expect is said, and not swallowed.
addEventListener("unhandledrejection", e => { if (e.reason?.status === 401) start(); else if (e.reason?.status) toast(e.reason.message, {bad: true}); });
jump(go);
start();
