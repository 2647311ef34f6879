// How the run went: metric, cost, energy, queue and staleness over its clock, and those of other runs laid over them.
import { Chart } from "./chart.js";
import { curves, curvesFailure, metricName, runsShown, valueAt } from "./curve_store.js";
import { number, percent } from "./format.js";
import { html, useMemo } from "./html.js";
import { RUN_COLOURS, RUN_DASHES } from "./palette.js";
import { moment, nowS, run, runId, runs, travelTo } from "./state.js";

const ofRows = (key) => (found) => [found.clock_s, found[key]];
const PANELS = [
  { key: "mean_cost", title: "Mean cost", unit: "Ω", of: ofRows("mean_cost") },
  { key: "metric", of: ({ evaluations }) => [evaluations?.clock_s, evaluations?.metric] },
  { key: "energy_j", title: "Energy per update", unit: "J", of: ofRows("energy_j") },
  { key: "total_queue", title: "Total queue", unit: "samples", of: ofRows("total_queue") },
  { key: "staleness", title: "Staleness", unit: "uploads", of: ofRows("staleness") },
];

export function Curves({ height = 150 }) {
  const ids = runsShown.value;
  const trains = ids.some((id) => runs.value.find((one) => one.id === id).trains);
  const panels = PANELS.filter(({ key }) => trains || key !== "metric");
  return html`<section class="card curves" aria-labelledby="curves-title">
    <header class="card-head">
      <h2 id="curves-title">Curves</h2>
      ${ids.length > 1 && html`<${RunLegend} ids=${ids} />`}
      <p class="muted small">${trains ? "" : "No model is trained, so there is no metric. "}A click goes to that moment.</p>
    </header>
    ${curvesFailure.value
      ? html`<p class="says error">${curvesFailure.value}</p>`
      : html`<div class="curve-grid">${panels.map((panel) => html`<${Panel} key=${panel.key} panel=${panel} ids=${ids} height=${height} />`)}</div>`}
  </section>`;
}

function RunLegend({ ids }) {
  return html`<ul class="legend" aria-label="Runs">${ids.map((id, place) => html`<li key=${id}><${Stroke} place=${place} />${id}</li>`)}</ul>`;
}

export function Stroke({ place }) {
  return html`<svg class=${`stroke ${RUN_COLOURS[place % 6]}`} viewBox="0 0 24 6" aria-hidden="true">
    <line x1="0" x2="24" y1="3" y2="3" stroke="currentColor" stroke-width="2.5" stroke-dasharray=${RUN_DASHES[place % 6].join(" ")} /></svg>`;
}

function Panel({ panel, ids, height }) {
  const all = curves.value;
  const lines = useMemo(() => ids.flatMap((id, place) => {
    const [xs, ys] = (all[id] && panel.of(all[id])) ?? [];
    if (!xs?.length || !ys?.some((value) => value !== null)) return [];
    return [{ label: id, xs, ys, colour: RUN_COLOURS[place % 6], dash: RUN_DASHES[place % 6] }];
  }), [all, ids.join(" ")]);
  const title = panel.title ?? metricName(all[ids.find((id) => all[id]?.evaluations?.name)]);
  const unit = panel.unit ?? title.toLowerCase();
  const mine = lines.find(({ label }) => label === runId.value);
  const here = valueAt(mine?.xs, mine?.ys, nowS.value);
  const shown = title === "Accuracy" ? percent(here) : `${number(here)}${panel.unit ? ` ${panel.unit}` : ""}`;
  const about = ["energy_j", "total_queue", "staleness"].includes(panel.key) ? "≈ " : "";
  return html`<figure class="panel" data-curve=${panel.key}>
    <figcaption><span>${title}</span><b title=${about ? "mean of the stretch around this moment" : null}>${here === null ? "" : about + shown}</b></figcaption>
    ${lines.length
      ? html`<${Chart} lines=${lines} height=${height} unit=${unit} xUnit="clock, s" at=${moment.value === null ? null : nowS.value} onTravel=${travelTo}
          together="clock" points=${lines[0].xs.length < 40} spoken=${`${title} over the clock of the run; ${about ? "around" : "at"} this moment ${shown}.`} />`
      : html`<p class="says" style=${{ minHeight: `${height}px` }}>${whyEmpty(panel.key, all[runId.value])}</p>`}
  </figure>`;
}

function whyEmpty(key, found) {
  if (found === undefined) return "The curves are loading.";
  if (key === "metric") return "The model has not been evaluated yet.";
  if (key === "staleness" && run.value?.mode === "sync") return "In synchronous rounds nothing is stale.";
  return "Nothing is recorded yet.";
}
