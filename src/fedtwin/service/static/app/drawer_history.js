// One property of a device over the whole run: mean, least and most of each stretch of time.
import { thingPath, useAnswer } from "./api.js";
import { Chart } from "./chart.js";
import { html, useMemo, useState } from "./html.js";
import { moment, news, nowS, runId, travelTo } from "./state.js";

const BUCKETS = 60;
const PROPERTIES = [
  ["features/link/properties/gain", "Channel gain"],
  ["features/compute/properties/cpu_hz", "CPU frequency"],
  ["features/energy/properties/mean_cost", "Cost"],
  ["features/energy/properties/mean_time_s", "Time"],
  ["features/energy/properties/mean_energy_j", "Energy"],
  ["features/training/properties/queue", "Queue"],
];
const inDecibel = (value) => (value > 0 ? 10 * Math.log10(value) : null);

export function History({ name }) {
  const [property, setProperty] = useState(PROPERTIES[0][0]);
  const id = runId.value;
  const path = thingPath(id, name, `/history?property=${encodeURIComponent(property)}&buckets=${BUCKETS}`);
  const { data, error, loading } = useAnswer(path, { subject: `${id}:${name}`, pulse: news.value });
  const gain = property.endsWith("gain");
  const lines = useMemo(() => {
    const full = (data?.buckets ?? []).filter((bucket) => bucket.count > 0);
    const of = (key) => full.map((bucket) => (gain ? inDecibel(bucket[key]) : bucket[key]));
    if (full.length === 0 || data.property !== property) return [];
    const xs = full.map(({ from_s, to_s }) => (from_s + to_s) / 2);
    return [{ label: name, xs, ys: of("mean"), low: of("min"), high: of("max"), colour: "run-1" }];
  }, [data]);
  const unit = gain ? "dB" : data?.unit ?? "";
  return html`<section class="drawer-part" aria-labelledby="history-title" aria-busy=${loading}>
    <h3 id="history-title">History
      <select aria-label="Property" value=${property} onChange=${(event) => setProperty(event.target.value)}>
        ${PROPERTIES.map(([value, label]) => html`<option key=${value} value=${value}>${label}</option>`)}
      </select></h3>
    ${error && html`<p class="says error">${error}</p>`}
    ${!error && lines.length > 0 && html`<${Chart} lines=${lines} height=${150} unit=${unit} xUnit="clock, s" at=${moment.value === null ? null : nowS.value}
      onTravel=${travelTo} points=${lines[0].xs.length < 40} spoken=${`History of ${property.split("/").at(-1)} of ${name}.`} />
      <p class="note">The line is the mean of each stretch of time, the band reaches from the least to the most.</p>`}
    ${!error && lines.length === 0 && html`<p class="says">${loading ? "The history is loading." : "Nothing was heard of this yet."}</p>`}
  </section>`;
}
