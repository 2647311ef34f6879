// The run in one line of numbers, at the moment that is shown.
import { curves, metricName, valueAt } from "./curve_store.js";
import { count, number, percent, seconds } from "./format.js";
import { html } from "./html.js";
import { detail, fleet, moment, nowS, run, runId } from "./state.js";

export function Figures() {
  const { round, seconds: clock_s, model_version, in_flight, total_queue, columns } = fleet.value;
  const summary = detail.value?.summary ?? {};
  const means = moment.value === null && run.value?.finished ? summary : fleet.value;
  const planned = detail.value?.settings?.["run.rounds"];
  const found = curves.value[runId.value];
  const name = metricName(found);
  const metric = valueAt(found?.evaluations?.clock_s, found?.evaluations?.metric, nowS.value);
  return html`<dl class="figures">
    <${Figure} id="round" title="Round" value=${count(round)} note=${planned ? `of ${count(planned)}` : ""} />
    <${Figure} id="clock" title="Clock" value=${seconds(clock_s)} />
    <${Figure} id="in-flight" title="In flight" value=${count(in_flight)} note=${`of ${count(columns.name.length)}`} />
    <${Figure} id="version" title="Model version" value=${count(model_version)} />
    <${Figure} id="queue" title="Total queue" value=${number(total_queue)} note="samples" />
    <${Figure} id="cost" title="Mean cost" value=${number(means.mean_cost)} note="Ω" />
    <${Figure} id="time" title="Mean time" value=${number(means.mean_time_s)} note="s" />
    <${Figure} id="energy" title="Mean energy" value=${number(means.mean_energy_j)} note="J" />
    ${run.value?.trains && html`<${Figure} id="metric" title=${name} value=${name === "Accuracy" ? percent(metric) : number(metric)} />`}
  </dl>`;
}

function Figure({ id, title, value, note }) {
  return html`<div data-figure=${id}><dt>${title}</dt><dd><b>${value}</b>${note && value !== "–" && html` <span class="muted">${note}</span>`}</dd></div>`;
}
