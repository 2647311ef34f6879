// How far to believe the twin: its predictions against what happened, and how old what it knows is.
import { runPath, useAnswer } from "./api.js";
import { age, count, number, percent } from "./format.js";
import { Heads, right } from "./heads.js";
import { html, useState } from "./html.js";
import { device, news, runId } from "./state.js";

export const KINDS = [["time_s", "Time", "s"], ["energy_j", "Energy", "J"], ["cost", "Cost", "Ω"]];
const known = (value) => value !== null && value !== undefined;

export function Fidelity() {
  const id = runId.value;
  const { data, error, loading } = useAnswer(runPath(id, "/fidelity"), { subject: id, pulse: Math.floor(news.value / 5) });
  if (error) return html`<p class="says error">${error}</p>`;
  if (!data) return html`<p class="says">${loading ? "The track record is being worked out." : "There is nothing to show."}</p>`;
  return html`<div class="two"><${FleetRecord} data=${data} /><${Ages} ages=${data.ages ?? {}} /></div>
    <${DeviceRecords} devices=${data.devices ?? []} />`;
}

function FleetRecord({ data }) {
  const heads = ["Of", right("Updates"), right("Bias"), right("RMSE"), right("Mean size"), "In the 90 % interval"];
  return html`<section class="card" aria-labelledby="record-title">
    <header class="card-head"><h2 id="record-title">Predictions against what happened</h2><p class="muted small">the whole fleet</p></header>
    <div class="scroll"><table class="grid lines"><${Heads} of=${heads} />
      <tbody>${KINDS.map(([key, label, unit]) => html`<${Row} key=${key} label=${label} unit=${unit} said=${data.fleet?.[key]} />`)}</tbody>
    </table></div>
    <p class="note">${data.predicted ? `Predicted: ${data.predicted}. ` : ""}An error is what happened minus what was predicted; bias is its
      mean. Of 90 % intervals nine in ten should hold.</p>
    ${(data.notes ?? []).map((sentence) => html`<p class="note" key=${sentence}>${sentence}</p>`)}
  </section>`;
}

export function Row({ label, unit, said, short = false }) {
  if (!said?.count) {
    return html`<tr><th scope="row">${label}</th>
      <td class="reason" colspan=${short ? 4 : 5}>${said?.reason ?? "Nothing to compare yet."}</td></tr>`;
  }
  const of = (value) => (known(value) ? `${number(value)} ${unit}` : "–");
  return html`<tr><th scope="row">${label}</th>
    <td class="figure">${count(said.count)}</td><td class="figure">${of(said.bias)}</td><td class="figure">${of(said.rmse)}</td>
    ${!short && html`<td class="figure">${of(said.mean_abs)}</td>`}
    <td>${known(said.coverage90)
      ? html`<${Coverage} value=${said.coverage90} low=${said.coverage90 < 0.8} />`
      : html`<span class="reason">${said.reason ?? "–"}</span>`}</td></tr>`;
}

// Green would say nothing to many: a bar with a mark at nine in ten, and the number.
function Coverage({ value, low = false }) {
  return html`<span class=${`coverage${low ? " low" : ""}`}><svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
    <rect class="ground" width="100" height="10" rx="2" /><rect class="part" width=${100 * value} height="10" rx="2" />
    <line x1="90" x2="90" y1="0" y2="10" /></svg><span>${percent(value)}</span></span>`;
}

function Ages({ ages }) {
  const heads = ["Property", right("Half are under"), right("95 % are under"), right("Oldest")];
  return html`<section class="card" aria-labelledby="ages-title">
    <header class="card-head"><h2 id="ages-title">Age of information</h2><p class="muted small">over the devices, now</p></header>
    <div class="scroll"><table class="grid lines"><${Heads} of=${heads} /><tbody>${Object.entries(ages).map(([name, said]) => html`<tr key=${name}>
      <th scope="row">${name.replaceAll("_", " ")}</th>
      ${known(said?.p50)
        ? [said.p50, said.p95, said.max].map((value, place) => html`<td class="figure" key=${place}>${age(value)}</td>`)
        : html`<td class="reason" colspan="3">${said?.reason ?? "It has not been heard of any device yet."}</td>`}</tr>`)}</tbody></table></div>
  </section>`;
}

const SHOWN = 100;

function worstFirst(a, b) {
  const [failsA, failsB] = [a.trusted === false, b.trusted === false];
  return failsB - failsA || (a.cost?.coverage90 ?? 2) - (b.cost?.coverage90 ?? 2) || a.device - b.device;
}

function DeviceRecords({ devices }) {
  const [all, setAll] = useState(false);
  const worst = [...devices].sort(worstFirst);
  const shown = all ? worst : worst.slice(0, SHOWN);
  const failing = devices.filter((one) => one.trusted === false).length;
  const judged = failing === 0 ? "No device's predictions fail." : `The predictions of ${count(failing)} of ${count(devices.length)} fail.`;
  const heads = KINDS.flatMap(([, label, unit]) => [right(`${label}, bias`, unit), `${label} in the 90 %`]);
  return html`<section class="card" aria-labelledby="each-title">
    <header class="card-head"><h2 id="each-title">Device by device</h2><p class="muted small">${judged} Worst first.</p></header>
    ${devices.length === 0
      ? html`<p class="says">No device has a track record yet.</p>`
      : html`<div class="scroll tall" tabindex="0" role="region" aria-labelledby="each-title"><table class="grid lines">
          <${Heads} of=${["Device", right("Updates"), ...heads, "Judged"]} />
          <tbody>${shown.map((one) => html`<${DeviceRecord} key=${one.device} one=${one} />`)}</tbody></table></div>`}
    ${worst.length > shown.length && html`<button type="button" class="quiet" onClick=${() => setAll(true)}>Show all ${count(worst.length)}</button>`}
  </section>`;
}

function DeviceRecord({ one }) {
  const fails = one.trusted === false;
  return html`<tr class=${fails ? "failing" : ""}>
    <th scope="row"><button type="button" class="plain" onClick=${() => { device.value = one.device; }}>${one.name}</button></th>
    <td class="figure">${count(one.time_s?.count)}</td>
    ${KINDS.map(([key]) => {
      const { bias, coverage90 } = one[key] ?? {};
      return html`<td class="figure" key=${key}>${number(bias)}</td>
        <td key=${`${key} held`}>${known(coverage90) ? html`<${Coverage} value=${coverage90} low=${fails && coverage90 < 0.85} />` : "–"}</td>`;
    })}
    <td class="reason">${fails ? html`<span aria-hidden="true">⚠ </span>` : ""}${one.why ?? ""}</td></tr>`;
}
