// What the twin knows of a device: every property with its value, its age and where it comes from.
import { thingPath, useAnswer } from "./api.js";
import { age, decibel, quantity } from "./format.js";
import { Heads } from "./heads.js";
import { html } from "./html.js";
import { lookOf } from "./palette.js";
import { fleet, isLive, momentName, news, runId } from "./state.js";

const UNITS = { _s: "s", _j: "J", _hz: "Hz", _w: "W", _m: "m", _bits: "bit" };

const unitOf = (name, said) => said ?? Object.entries(UNITS).find(([ending]) => name.endsWith(ending))?.[1];
const wordsOf = (name) => name.replace(/_(s|j|hz|w|m)$/, "").replaceAll("_", " ");

export function Estimates({ name }) {
  const id = runId.value;
  const path = thingPath(id, name, `?at=${encodeURIComponent(momentName())}`);
  const { data, error, loading } = useAnswer(path, { subject: `${id}:${name}`, pulse: isLive.value ? news.value : fleet.value?.revision });
  const features = Object.entries(data?.features ?? {});
  return html`<section class="drawer-part" aria-labelledby="knows-title" aria-busy=${loading}>
    <h3 id="knows-title">What the twin knows</h3>
    ${error && html`<p class="says error">${error}</p>`}
    ${!data && loading && html`<p class="says">The twin is being asked.</p>`}
    ${features.length > 0 && html`<table class="facts">
      <${Heads} of=${["Property", "Value", "Age", "From"]} />
      ${features.map(([feature, { properties }]) => html`<tbody key=${feature}>
        <tr class="group"><th scope="rowgroup" colspan="4">${feature}</th></tr>
        ${Object.entries(properties ?? {}).map(([key, fact]) => html`<${Fact} key=${key} name=${key} fact=${fact} />`)}
      </tbody>`)}
    </table>`}
    ${data && features.length === 0 && html`<p class="says">Nothing is known of this device yet.</p>`}
  </section>`;
}

function Fact({ name, fact }) {
  const value = fact !== null && typeof fact === "object" && "value" in fact ? fact.value : fact;
  const nothing = value === null || value === undefined;
  const shown = name === "status" ? lookOf(value).label : name.includes("gain") && typeof value === "number" ? decibel(value) : plain(value, unitOf(name, fact?.unit));
  const from = nothing ? null : fact?.provenance;
  return html`<tr><th scope="row">${wordsOf(name)}</th><td>${shown}</td><td>${age(fact?.age_s)}</td>
    <td>${from ? html`<span class=${`from ${from}`}>${from}</span>` : "–"}</td></tr>`;
}

const plain = (value, unit) => (value !== null && typeof value === "object" ? JSON.stringify(value) : quantity(value, unit));
