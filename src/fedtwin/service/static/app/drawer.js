// Everything about one device, at the moment that is shown.
import { runPath, useAnswer } from "./api.js";
import { count, number, seconds } from "./format.js";
import { html, useEffect, useRef } from "./html.js";
import { Glyph, lookOf } from "./palette.js";
import { device, fleet, moment, nowS, runId } from "./state.js";
import { Estimates } from "./drawer_estimates.js";
import { History } from "./drawer_history.js";
import { Trust } from "./drawer_trust.js";
import { Why } from "./drawer_why.js";

export function Drawer() {
  const number_ = device.value;
  const columns = fleet.value?.columns;
  const box = useRef(null);
  const opener = useRef(null);
  const open = number_ !== null && columns !== undefined;
  useEffect(() => {
    if (!open) return undefined;
    opener.current = document.activeElement;
    return () => opener.current?.isConnected && opener.current.focus({ preventScroll: true });
  }, [open]);
  if (!open) return null;
  if (number_ >= columns.name.length) {
    return html`<aside class="drawer" aria-label="Device"><${Close} />
      <p class="says">This run has no device ${number_}; it has ${count(columns.name.length)}.</p></aside>`;
  }
  const name = columns.name[number_];
  const status = columns.status[number_];
  return html`<aside class="drawer" ref=${box} aria-labelledby="drawer-title">
    <header class="drawer-head">
      <h2 id="drawer-title">${name}</h2>
      <p class="drawer-state"><${Glyph} status=${status} />${lookOf(status).label}
        <span class="muted">at ${seconds(nowS.value)}${moment.value === null ? ", the newest" : ""}</span></p>
      <${Close} />
    </header>
    <dl class="figures small-figures">
      <div><dt>Queue</dt><dd><b>${number(columns.queue[number_])}</b> <span class="muted">samples</span></dd></div>
      <div><dt>Mean cost Ω</dt><dd><b>${number(columns.mean_cost[number_])}</b></dd></div>
      <div><dt>Chosen</dt><dd><b>${count(columns.selections[number_])}</b> <span class="muted">times</span></dd></div>
      <div><dt>Declined</dt><dd><b>${count(columns.declines[number_])}</b> <span class="muted">times</span></dd></div>
    </dl>
    ${status === "quarantined" && html`<${Quarantine} name=${name} />`}
    <${Why} number=${number_} name=${name} />
    <${Estimates} name=${name} />
    <${History} name=${name} />
    <${Trust} number=${number_} />
  </aside>`;
}

function Quarantine({ name }) {
  const { data } = useAnswer(runPath(runId.value, "/refusals?limit=1"), { subject: runId.value });
  const found = data?.quarantined.find((one) => one.name === name);
  return found ? html`<p class="why failing">In quarantine since ${seconds(found.since_s)}: ${found.reason}.</p>` : null;
}

const Close = () => html`<button type="button" class="quiet close" aria-label="Close the device" onClick=${() => { device.value = null; }}>✕</button>`;
