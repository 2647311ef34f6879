// What was refused and why, and who is left out of the run.
import { runPath, useAnswer } from "./api.js";
import { count, plural, seconds } from "./format.js";
import { Heads, right } from "./heads.js";
import { html } from "./html.js";
import { device, news, runId, travelTo, view } from "./state.js";

const LIMIT = 200;

export function Refusals() {
  const id = runId.value;
  const { data, error, loading } = useAnswer(runPath(id, `/refusals?limit=${LIMIT}`), { subject: id, pulse: news.value });
  if (error) return html`<p class="says error">${error}</p>`;
  if (!data) return html`<p class="says">${loading ? "Refusals are loading." : "There is nothing to show."}</p>`;
  return html`<div class="two"><${Quarantine} devices=${data.quarantined} /><${Refused} refusals=${data.refusals} leftOff=${data.left_off} /></div>`;
}

function Quarantine({ devices }) {
  return html`<section class="card" aria-labelledby="quarantine-title">
    <header class="card-head"><h2 id="quarantine-title">In quarantine</h2><p class="muted small">now</p></header>
    ${devices.length === 0
      ? html`<p class="says">No device is in quarantine.</p>`
      : html`<div class="scroll"><table class="grid lines"><${Heads} of=${["Device", "Since", "Reason"]} />
          <tbody>${devices.map(({ name, since_s, reason }) => html`<tr key=${name}>
            <th scope="row">${name}</th><td>${seconds(since_s)}</td><td class="reason">${reason}</td></tr>`)}</tbody></table></div>`}
  </section>`;
}

function Refused({ refusals, leftOff }) {
  const many = `${plural(refusals.length + leftOff, "refusal")}${leftOff ? `, the last ${count(refusals.length)} shown` : ""}`;
  return html`<section class="card" aria-labelledby="refused-title">
    <header class="card-head"><h2 id="refused-title">Refused uploads and messages</h2><p class="muted small">${many}</p></header>
    ${refusals.length === 0
      ? html`<p class="says">Nothing was refused: every upload had the right shape and finite values.</p>`
      : html`<div class="scroll"><table class="grid lines"><${Heads} of=${["Clock", right("Round"), "Device", "Reason"]} />
          <tbody>${refusals.map((one, place) => html`<${Refusal} key=${place} one=${one} />`)}</tbody></table></div>`}
  </section>`;
}

function Refusal({ one }) {
  const toThen = () => {
    travelTo(one.clock_s);
    view.value = "fleet";
  };
  const open = () => { device.value = one.device; };
  return html`<tr>
    <td><button type="button" class="plain" onClick=${toThen} title="To this moment">${seconds(one.clock_s)}</button></td>
    <td class="figure">${count(one.round)}</td>
    <th scope="row">${one.device >= 0 ? html`<button type="button" class="plain" onClick=${open}>${one.name}</button>` : one.name}</th>
    <td class="reason">${one.reason}</td></tr>`;
}
