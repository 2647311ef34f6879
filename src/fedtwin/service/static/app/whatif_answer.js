// Two futures beside each other: numbers with their intervals, curves with their bands, and how far to believe them.
import { Chart } from "./chart.js";
import { count, number, percent } from "./format.js";
import { Heads } from "./heads.js";
import { html, useMemo } from "./html.js";

const MEASURES = [
  ["mean_cost", "Mean cost", "Ω"],
  ["mean_time_s", "Mean time", "s"],
  ["mean_energy_j", "Mean energy", "J"],
  ["least_mean_samples", "Least mean samples", "per round"],
  ["total_queue", "Total queue", "samples"],
];
const CURVES = [["mean_cost", "Mean cost Ω", "Ω"], ["total_queue", "Total queue", "samples"]];

export function Answer({ answer }) {
  const { as_is, what_if, difference = {}, notes = [] } = answer;
  return html`<ul class="legend" aria-label="Futures"><li><i class="key as-is"></i>as it is</li>
      <li><i class="key what-if"></i>what if${changed(answer.question)}</li></ul>
    <div class="scroll"><table class="grid lines futures"><${Heads} of=${["Over the rounds ahead", "As it is", "What if", "Change, world by world", "90 %"]} />
      <tbody>${MEASURES.map(([key, title, unit]) => html`<tr key=${key} data-measure=${key}><th scope="row">${title} <span class="unit">${unit}</span></th>
        <td><${Interval} of=${as_is[key]} /></td><td><${Interval} of=${what_if[key]} /></td><td><${Change} from=${as_is[key]} by=${difference[key]} /></td>
        <td class="intervals"><${Intervals} one=${as_is[key]} two=${what_if[key]} /></td></tr>`)}</tbody></table></div>
    <div class="curve-grid two-curves">${CURVES.map(([key, title, unit]) => html`<${Futures} key=${key} answer=${answer} of=${key} title=${title} unit=${unit} />`)}</div>
    <${Record} fidelity=${answer.fidelity} />
    ${notes.length > 0 && html`<ul class="notes">${notes.map((sentence, place) => html`<li key=${place}>${sentence}</li>`)}</ul>`}`;
}

function changed({ set, without, add }) {
  const parts = Object.entries(set).map(([name, value]) => `${name} = ${value}`);
  if (without.length) parts.push(`without ${without.join(", ")}`);
  if (add) parts.push(`${add} devices more`);
  return parts.length ? `: ${parts.join("; ")}` : ", with nothing changed";
}

function Interval({ of }) {
  if (!of || of.mean === null) return html`<span class="muted">–</span>`;
  return html`<b>${number(of.mean, 4)}</b> <span class="muted range">${number(of.low)} to ${number(of.high)}</span>`;
}

// In percent of what is, where that is not nothing. An interval that holds zero says that nothing may change.
function Change({ from, by }) {
  if (!by || by.mean === null) return html`<span class="muted">–</span>`;
  const part = from?.mean ? (value) => signed((100 * value) / Math.abs(from.mean), 1, " %") : (value) => signed(value, 3, "");
  const open = by.low <= 0 && by.high >= 0;
  return html`<b class=${open ? "muted" : ""}>${part(by.mean)}</b> <span class="muted range">${part(by.low)} to ${part(by.high)}</span>`;
}

const signed = (value, digits, unit) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(digits)}${unit}`;

// What the predictions that this rests on were worth so far.
function Record({ fidelity }) {
  const said = fidelity?.cost;
  if (!said) return null;
  const covered = said.coverage90 === null ? said.reason : `${percent(said.coverage90)} of its 90 % intervals of cost held`;
  const error = said.rmse === null ? "" : `, its error of cost was ${number(said.rmse)} Ω (RMSE of ${count(said.count)} updates)`;
  return html`<p class="note">Track record of this twin: ${covered}${error}.</p>`;
}

// Both 90 % intervals on one scale.
function Intervals({ one, two }) {
  const ends = [one?.low, one?.high, two?.low, two?.high].filter((value) => Number.isFinite(value));
  if (ends.length < 4) return null;
  const [least, most] = [Math.min(...ends), Math.max(...ends)];
  const x = (value) => 4 + (112 * (value - least)) / (most - least || 1);
  const row = (future, y, name) => html`<g class=${name}><line x1=${x(future.low)} x2=${x(future.high)} y1=${y} y2=${y} />
    <circle cx=${x(future.mean)} cy=${y} r="3.5" /></g>`;
  return html`<svg class="interval-plot" viewBox="0 0 120 22" aria-hidden="true">${row(one, 6, "as-is")}${row(two, 16, "what-if")}</svg>`;
}

function Futures({ answer, of, title, unit }) {
  const lines = useMemo(() => [["as_is", "as it is", "as-is", []], ["what_if", "what if", "what-if", [6, 4]]].flatMap(([key, label, colour, dash]) => {
    const curves = answer[key].curves;
    const found = curves?.[of];
    return found ? [{ label, xs: curves.clock_s, ys: found.mean, low: found.low, high: found.high, colour, dash }] : [];
  }), [answer]);
  return html`<figure class="panel" data-future=${of}><figcaption><span>${title}</span></figcaption>
    ${lines.length
      ? html`<${Chart} lines=${lines} height=${210} unit=${unit} xUnit="clock, s" spoken=${`${title}, as it is and what if, with their 90 % intervals.`} />`
      : html`<p class="says">No curve came with this answer.</p>`}</figure>`;
}
