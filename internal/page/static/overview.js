// The overview: what the calls of a project did over time.

import {html, nothing, svg} from "/page/lit-html.js";
import * as api from "/page/api.js";
import {choice, failure, length, moment, percent, usd, when} from "/page/words.js";

const everyMS = 10000, usual = "24h", spans = [["1h", "last hour"], ["6h", "last 6 h"], ["24h", "last 24 h"], ["168h", "last 7 days"], ["720h", "last 30 days"]];

export function overviewPage({draw, go, may}) {
  const since = new URLSearchParams(location.search).get("since") ?? usual;
  const view = {since, data: null, error: ""};
  const redraw = () => draw(template(view, may, value => go("/overview" + api.query({since: value}), true)));
  async function read() {
    try { view.data = await api.overview(since); view.error = ""; } catch (e) { view.error = e.message; }
    redraw();
  }
  const timer = setInterval(() => { if (!document.hidden) read(); }, everyMS);
  read();
  redraw();
  return () => clearInterval(timer);
}

const whole = n => n.toLocaleString();
const share = n => n == null ? "–" : percent(n);

function template(v, may, span) {
  const d = v.data;
  return html`<div class="heading"><h1>Overview</h1>${choice("Time", v.since, spans, span, usual)}</div>
    ${failure(v.error)}
    ${d ? panels(d, v.since, may) : v.error ? nothing : html`<p class="quiet">Reading…</p>`}`;
}

function panels(d, since, may) {
  const t = d.totals, calls = "/" + api.query({since}), by = Object.entries(t.failures_by_upstream ?? {});
  const to = (filter, label) => html`<a href=${"/" + api.query({since, ...filter})}>${label}</a>`;
  return html`<div class="charts">
    ${panel("Calls", whole(t.calls), html`<a href=${calls}>${whole(t.turns)} turns</a>`, d, [["caller", b => b.calls]], whole)}
    ${panel("Barge-in rate", share(t.barge_in_rate), to({interrupted: "true"}, `${whole(t.interruptions)} of ${whole(t.answers)} answers`), d, [["agent", b => b.barge_in_rate]], share)}
    ${panel("Never heard", share(t.unheard_share), `${whole(t.unheard_tokens)} of ${whole(t.generated_tokens)} tokens`, d, [["unheard", b => b.unheard_share]], share)}
    ${panel("Time to first token", length(t.first_token_ms?.p50), `p95 ${length(t.first_token_ms?.p95)}`, d, [["quiet", b => b.first_token_ms?.p95], ["caller", b => b.first_token_ms?.p50]], length)}
    ${panel("Failures", whole(t.failures), by.length ? by.map(([name, n]) => `${name} ${whole(n)}`).join(" · ") : to({failed: "true"}, "calls that failed"), d, [["unheard", b => b.failures]], whole)}
    ${panel("Ghosts", whole(t.ghosts), to({ghosts: "true"}, "replaced answers"), d, [["quiet", b => b.ghosts]], whole)}
    ${t.cost ? panel("Cost", usd(t.cost.usd), `${usd(t.cost.unheard_usd)} never heard${t.cost.estimated_usd ? `, ${usd(t.cost.estimated_usd)} estimated` : ""}${t.cost.saved_usd ? `, ${usd(t.cost.saved_usd)} saved by prompt caches` : ""}`, d, [["quiet", b => b.cost?.usd], ["unheard", b => b.cost?.unheard_usd]], usd) : nothing}
  </div>
  <dl class="numbers"><div><dt>prompt tokens</dt><dd>${whole(t.prompt_tokens)}</dd></div><div><dt>completion tokens</dt><dd>${whole(t.completion_tokens)}</dd></div>
    <div><dt>webhooks pending</dt><dd>${hooks(d.webhooks.pending, "pending", may)}</dd></div>
    <div><dt>webhooks dead</dt><dd class=${d.webhooks.dead ? "bad" : ""}>${hooks(d.webhooks.dead, "dead", may)}</dd></div></dl>
  <p class="quiet">Counts are of calls that started in this time, in steps of ${length(d.bucket_seconds * 1000)}. Tokens are counted from the texts.</p>`;
}

const hooks = (n, state, may) => may("webhooks") ? html`<a href=${"/webhooks" + api.query({state})}>${whole(n)}</a>` : whole(n);

// panel is one small chart: bars for one series, and for two the larger behind the smaller.
function panel(title, value, below, d, series, say) {
  const width = 360, height = 76, n = d.buckets.length || 1, step = width / n;
  const top = Math.max(...d.buckets.flatMap(b => series.map(([, of]) => of(b) ?? 0)), 0);
  const bars = ([kind, of]) => d.buckets.map((b, i) => {
    const h = (of(b) ?? 0) / (top || 1) * height;
    return h > 0 ? svg`<rect class=${kind} x=${i * step + .5} width=${Math.max(1, step - 1)} y=${height - h} height=${h}></rect>` : nothing;
  });
  const tips = d.buckets.map((b, i) => svg`<rect class="tip" x=${i * step} width=${step} y="0" height=${height}><title>${moment(Date.parse(b.start_at))}: ${series.map(([, of]) => say(of(b))).reverse().join(", ")}</title></rect>`);
  return html`<section class="card chart"><h2>${title}</h2><b class="big">${value}</b> <span class="quiet">${below}</span>
    <svg viewBox="0 0 ${width} ${height}" preserveAspectRatio="none" role="img" aria-label=${`${title} over time, at most ${say(top)}`}>${series.map(bars)}${tips}</svg>
    <div class="ends quiet"><span>${when(Date.parse(d.since))}</span><span>at most ${say(top)}</span><span>${when(Date.parse(d.until))}</span></div></section>`;
}
