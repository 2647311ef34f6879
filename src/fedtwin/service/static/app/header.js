// Which run, in which state, and which view of it.
import { html, useRef } from "./html.js";
import { plural } from "./format.js";
import { loadRuns } from "./load.js";
import { VIEWS } from "./route.js";
import { logOut, session } from "./session.js";
import { detail, link, lookAt, others, run, runId, runs, view } from "./state.js";
import { chooseTheme, theme } from "./theme.js";

export function Header() {
  const many = runs.value?.length ?? 0;
  return html`<header class="top">
    <a class="brand" href="#" aria-label="fedtwin, to the fleet"><img src="/static/icon.svg" alt="" width="22" height="22" /><span>fedtwin</span></a>
    ${many > 0 && html`<label class="pick"><span class="unseen">Run</span>
      <select value=${runId.value} onChange=${(event) => lookAt(event.target.value)}>
        ${runs.value.map((one) => html`<option key=${one.id} value=${one.id}>${one.id}</option>`)}
      </select></label>`}
    <${RunState} />
    <${Views} />
    <div class="top-end">
      ${session.value.byToken && html`<button type="button" class="quiet" onClick=${() => logOut().then(loadRuns)}>Sign out</button>`}
      <${ThemeSwitch} />
      <button type="button" class="quiet" onClick=${() => document.getElementById("help").showModal()} aria-label="Keys and help">?</button>
    </div>
  </header>`;
}

function RunState() {
  if (run.value === null) return null;
  const { devices, finished, kind: what, paused, scheme, stopped, unreadable } = run.value;
  const waits = unreadable && what === null;
  const kind = waits ? "waiting" : unreadable ? "unreadable" : finished ? "finished" : link.value === "lost" ? "connection lost"
    : stopped ? "stopped" : paused ? "paused" : "running";
  const said = waits ? [] : [what === "live" ? "live run" : "simulation", scheme, plural(devices ?? 0, "device")];
  return html`<p class="run-state"><span class=${`pill ${kind.replace(" ", "-")}`} role="status">${kind}</span>
    <span class="muted about">${said.filter(Boolean).join(" · ")}</span></p>`;
}

function Views() {
  const bar = useRef(null);
  const refused = detail.value?.summary?.refusals ?? 0;
  const steers = session.value.mayOperate && run.value?.kind === "live";
  const shown = VIEWS.filter(([name]) => name !== "operate" || steers || view.value === "operate");
  const badges = {
    refusals: refused > 0 && html` <span class="badge">${refused}</span>`,
    runs: others.value.length > 0 && html` <span class="badge calm">+${others.value.length}</span>`,
  };
  const walk = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const tabs = [...bar.current.querySelectorAll("button")];
    tabs[(tabs.indexOf(event.target) + step + tabs.length) % tabs.length].focus();
  };
  if (session.value.needsToken) return html`<span class="views"></span>`;
  return html`<nav class="views" aria-label="Views" ref=${bar} onKeyDown=${walk}>
    ${shown.map(([name, label]) => html`<button type="button" key=${name} aria-current=${view.value === name ? "page" : undefined}
      onClick=${() => { view.value = name; }}>${label}${badges[name]}</button>`)}
  </nav>`;
}

function ThemeSwitch() {
  const next = { system: "light", light: "dark", dark: "system" }[theme.value];
  const sign = { system: "◐", light: "☀", dark: "☾" }[theme.value];
  return html`<button type="button" class="quiet" onClick=${() => chooseTheme(next)}
    aria-label=${`Theme: ${theme.value}. Change to ${next}.`} title=${`Theme: ${theme.value}`}>${sign}</button>`;
}
