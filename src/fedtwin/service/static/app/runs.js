// Runs side by side: what each came to, in which settings they differ, and their curves over one another.
import { ask, runPath } from "./api.js";
import { runsShown } from "./curve_store.js";
import { Curves, Stroke } from "./curves.js";
import { count, number, percent, seconds } from "./format.js";
import { Heads, right } from "./heads.js";
import { html, useEffect, useState } from "./html.js";
import { lookAt, others, runId, runs } from "./state.js";

const MEASURES = [
  ["mean_cost", "Mean cost", "Ω", number],
  ["mean_time_s", "Mean time", "s", number],
  ["mean_energy_j", "Mean energy", "J", number],
  ["total_queue", "Total queue", "samples", number],
  ["mean_staleness", "Staleness", "uploads", number],
  ["test_metric", "Metric", "", number],
];

function useDetails(ids) {
  const [details, setDetails] = useState({});
  useEffect(() => {
    for (const id of ids) {
      if (details[id]) continue;
      ask(runPath(id)).then((about) => setDetails((old) => ({ ...old, [id]: about })), () => {});
    }
  }, [ids.join(" ")]);
  return details;
}

export function Runs() {
  const readable = runs.value.filter((one) => !one.unreadable).map((one) => one.id);
  const details = useDetails(readable);
  const shown = runsShown.value;
  const lay = (id, on) => { others.value = on ? [...others.value, id] : others.value.filter((one) => one !== id); };
  const heads = ["Looked at", "Laid over", "Run", "Scheme", ...["Seed", "Devices", "Rounds", "Clock"].map((text) => right(text))];
  const measures = MEASURES.map(([, title, unit]) => right(title, unit));
  const hint = runs.value.length === 1 ? "One run is served; give fedtwin serve more folders to compare them." : "Tick runs to lay their curves over one another.";
  return html`<section class="card" aria-labelledby="runs-title">
      <header class="card-head"><h2 id="runs-title">Runs</h2><p class="muted small">${hint}</p></header>
      <div class="scroll"><table class="grid lines"><${Heads} of=${[...heads, ...measures]} /><tbody>${runs.value.map((one) => html`<${Line}
        key=${one.id} one=${one} summary=${details[one.id]?.summary} place=${shown.indexOf(one.id)} lay=${lay} />`)}</tbody></table></div>
    </section>
    <${Differences} ids=${shown} details=${details} />
    <${Curves} height=${220} />`;
}

function Line({ one, summary, place, lay }) {
  const mine = one.id === runId.value;
  if (one.unreadable) return html`<tr><td></td><td></td><th scope="row">${one.id}</th><td class="reason" colspan="11">${one.unreadable}</td></tr>`;
  const shown = (key, text) => (key === "test_metric" && summary?.metric === "accuracy"
    ? percent(summary.test_metric ?? summary.test_accuracy)
    : text(summary?.[key]));
  return html`<tr class=${mine ? "chosen" : ""}>
    <td><input type="radio" name="run" checked=${mine} aria-label=${`Look at ${one.id}`} onChange=${() => lookAt(one.id)} /></td>
    <td><input type="checkbox" checked=${mine || place > 0} disabled=${mine} aria-label=${`Lay ${one.id} over`}
      onChange=${(event) => lay(one.id, event.target.checked)} /></td>
    <th scope="row">${place >= 0 && html`<${Stroke} place=${place} />`}${one.id}</th>
    <td>${one.scheme}${one.finished ? "" : html` <span class="pill running">running</span>`}</td>
    ${[count(one.seed), count(one.devices), count(one.rounds), seconds(one.end_s)].map((text, at) => html`<td class="figure" key=${at}>${text}</td>`)}
    ${MEASURES.map(([key, , , text]) => html`<td class="figure" key=${key}>${shown(key, text)}</td>`)}
  </tr>`;
}

function Differences({ ids, details }) {
  if (ids.length < 2) return null;
  const settings = ids.map((id) => details[id]?.settings ?? {});
  const names = [...new Set(settings.flatMap((one) => Object.keys(one)))].sort();
  const differ = names.filter((name) => new Set(settings.map((one) => JSON.stringify(one[name]))).size > 1);
  return html`<section class="card" aria-labelledby="differ-title">
    <header class="card-head"><h2 id="differ-title">Settings that differ</h2></header>
    ${differ.length === 0
      ? html`<p class="says">These runs have the same settings.</p>`
      : html`<div class="scroll"><table class="grid lines">
          <thead><tr><th scope="col">Setting</th>${ids.map((id, place) => html`<th scope="col" key=${id}><${Stroke} place=${place} />${id}</th>`)}</tr></thead>
          <tbody>${differ.map((name) => html`<tr key=${name}><th scope="row"><code>${name}</code></th>
            ${settings.map((one, place) => html`<td key=${ids[place]} class="value" title=${String(one[name] ?? "")}>${String(one[name] ?? "–")}</td>`)}</tr>`)}
          </tbody></table></div>`}
  </section>`;
}
