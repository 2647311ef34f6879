// Why the device was or was not chosen in the round that is shown: the parts of its score beside the winner's.
import { runPath, useAnswer } from "./api.js";
import { count, number } from "./format.js";
import { html } from "./html.js";
import { device, fleet, isLive, runId } from "./state.js";

export function Why({ number: one }) {
  const opened = fleet.value?.round ?? 0;
  const round = isLive.value ? opened - 1 : opened; // in the newest round of a run that goes on nobody may have been asked yet
  const id = runId.value;
  const path = round >= 1 ? runPath(id, `/decision?round=${round}&device=${one}`) : null;
  const { data, error, loading } = useAnswer(path, { subject: `${id} ${one}` });
  const taken = data?.all_chosen ?? [data?.chosen]; // in a synchronous round several are
  const verdict = data === null ? "" : taken.includes(one) ? "it was chosen" : "it was not chosen";
  return html`<section class="drawer-part" aria-labelledby="why-title" aria-busy=${loading}>
    <h3 id="why-title">Why ${verdict} <span class="muted">round ${count(data?.round ?? round)}</span></h3>
    ${path === null && html`<p class="says">Before round 1 nothing has been decided.</p>`}
    ${error && html`<p class="says error">${error}</p>`}
    ${!data && loading && html`<p class="says">The decision is being looked up.</p>`}
    ${data && html`<p class="why">${data.why}</p><${Scores} data=${data} one=${one} />`}
  </section>`;
}

function Scores({ data, one }) {
  const { columns } = fleet.value;
  const asked = [one, data.chosen, data.runner_up].filter((number_, place, all) => number_ !== null && number_ !== undefined && all.indexOf(number_) === place);
  const known = asked.filter((number_) => data.scores?.[number_] !== undefined && data.scores[number_] !== null);
  if (known.length === 0) return null;
  const parts = data.parts ? [...new Set(known.flatMap((number_) => Object.keys(data.parts[number_] ?? {})))] : [];
  const largest = Math.max(...parts.flatMap((part) => known.map((number_) => Math.abs(data.parts[number_]?.[part] ?? 0))), 1e-300);
  const role = (number_) => (number_ === data.chosen ? "chosen" : number_ === data.runner_up ? "runner-up" : "this device");
  const nameOf = (number_) => (number_ === one
    ? html`<span>${columns.name[number_]}</span>`
    : html`<button type="button" class="plain" onClick=${() => { device.value = number_; }}>${columns.name[number_]}</button>`);
  return html`<table class="scores">
    <thead><tr><th scope="col">Part</th>${known.map((number_) => html`<th scope="col" key=${number_} class=${number_ === one ? "mine" : ""}>
      <span class="muted">${role(number_)}</span>${nameOf(number_)}</th>`)}</tr></thead>
    <tbody>
      ${parts.map((part) => html`<tr key=${part}><th scope="row">${part}</th>
        ${known.map((number_) => html`<td key=${number_}><${Bar} value=${data.parts[number_]?.[part] ?? null} largest=${largest} /></td>`)}</tr>`)}
      <tr class="sum"><th scope="row">score</th>${known.map((number_) => html`<td key=${number_}>${number(data.scores[number_], 4)}</td>`)}</tr>
    </tbody>
  </table>
  <p class="note">The available device of least score is asked.${data.rank ? ` This one was number ${count(data.rank)}.` : ""}
    ${parts.length === 0 ? " This policy does not say what its score is made of." : ""}</p>`;
}

function Bar({ value, largest }) {
  if (value === null) return html`<span class="muted">–</span>`;
  const width = `${(50 * Math.abs(value)) / largest}%`;
  const [name, style] = value < 0 ? ["down", { right: "50%", width }] : ["up", { left: "50%", width }];
  return html`<span class="bar" aria-hidden="true"><i class=${name} style=${style}></i></span><span>${number(value)}</span>`;
}
