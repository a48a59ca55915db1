// The frame of all pages: which page an address shows, and the navigation.

import {html, render} from "/page/lit-html.js";
import * as api from "/page/api.js";
import {callsPage} from "/page/calls.js";
import {callPage} from "/page/call.js";
import {callerPage, callersPage} from "/page/callers.js";
import {overviewPage} from "/page/overview.js";
import {playgroundPage} from "/page/playground.js";
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
  {path: /^\/playground$/, name: "Playground", page: playgroundPage},
];
// The navigation, with the scopes that a page needs beside read.
const nav = [["/", "Calls"], ["/overview", "Overview"], ["/callers", "Callers"], ["/webhooks", "Webhooks", "webhooks"],
  ["/playground", "Playground", "write", "proxy"], ["/docs", "API"]];
const may = scope => Boolean(session?.scopes.includes(scope) || session?.scopes.includes("admin"));

const root = document.createElement("div");
root.id = "root";
document.body.append(root);
let end = () => {}, session = null, refused = "";

async function start() {
  try {
    session = await api.session();
  } catch (e) {
    if (e.status !== 401) refused = e.message;
    return render(frame("", signIn()), root);
  }
  show();
}

const signIn = () => html`<form class="sign-in" @submit=${enter}><h1>Sign in</h1>
  <p class="quiet">This server asks for credentials. A key with the scope read is enough to look.</p>
  ${refused ? html`<p class="error" role="alert">${refused}</p>` : ""}
  <label>Key, or id:secret <input name="credential" type="password" autocomplete="current-password" required autofocus></label>
  <button>Sign in</button></form>`;

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
  await api.signOut().catch(() => {});
  session = null;
  start();
}

function show() {
  end();
  const found = pages.find(p => p.path.test(location.pathname));
  let ended = false;
  const draw = content => { if (!ended) render(frame(found?.name, content), root); };
  const stop = found ? found.page({draw, go, may, args: found.path.exec(location.pathname).slice(1).map(decodeURIComponent)}) : draw(html`<p>There is no such page.</p>`);
  end = () => { ended = true; stop?.(); };
}

// go leads to an address of the pages.
export function go(address, replace = false) {
  history[replace ? "replaceState" : "pushState"](null, "", address);
  show();
}

const frame = (name, content) => html`
  <a class="skip" href="#main">To the content</a>
  <header><a class="brand" href="/">heard<b>log</b></a>
    <nav aria-label="Pages">${nav.filter(([, , ...scopes]) => session && scopes.every(may)).map(([href, label]) => html`<a href=${href} aria-current=${label === name ? "page" : "false"}>${label}</a>`)}</nav>
    ${session ? html`<span class="who-am-i">project <b>${session.project}</b> ${session.open ? "" : html`<button @click=${leave}>Sign out</button>`}</span>` : ""}</header>
  <main id="main" tabindex="-1">${content}</main>`;

addEventListener("popstate", show);
addEventListener("click", e => {
  const a = e.target.closest?.("a[href]");
  if (!a || e.defaultPrevented || e.button || e.metaKey || e.ctrlKey || e.shiftKey || a.target) return;
  const url = new URL(a.href);
  if (url.origin !== location.origin || a.getAttribute("href").startsWith("#") || !pages.some(p => p.path.test(url.pathname))) return;
  e.preventDefault();
  go(url.pathname + url.search);
});
// A session may end while a page is open.
addEventListener("unhandledrejection", e => { if (e.reason?.status === 401) start(); });
start();
