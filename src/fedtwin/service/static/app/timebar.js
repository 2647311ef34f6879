// One slider over the whole run: any past moment, or the newest. Play walks through it.
import { curves } from "./curve_store.js";
import { count, seconds } from "./format.js";
import { html } from "./html.js";
import { playing, SPEEDS, speed } from "./playing.js";
import { endS, fleet, goesOn, link, moment, nowS, run, runId, stepRounds, travelTo } from "./state.js";

const WHOLE = 1000;

export function TimeBar() {
  const at = moment.value?.seconds ?? nowS.value;
  const place = endS.value > 0 ? Math.round((WHOLE * at) / endS.value) : WHOLE;
  const onKey = (event) => {
    const rounds = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
    const parts = { PageUp: 0.05, PageDown: -0.05 }[event.key];
    if (rounds !== undefined) stepRounds(rounds);
    else if (parts !== undefined) travelTo(at + parts * endS.value);
    else if (event.key === "Home") travelTo(0);
    else if (event.key === "End") moment.value = null;
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return html`<footer class="timebar" aria-label="Time" role="region">
    <button type="button" class="round-button" onClick=${() => { playing.value = !playing.value; }} aria-label=${playing.value ? "Stop playing" : "Play"}
      disabled=${endS.value === 0}>${playing.value ? html`<${Pause} />` : html`<${Triangle} />`}</button>
    <select aria-label="Speed" value=${speed.value} onChange=${(event) => { speed.value = event.target.value; }}>
      ${SPEEDS.map(([name, label]) => html`<option key=${name} value=${name}>${label}</option>`)}
    </select>
    <div class="step" role="group" aria-label="Round by round">
      <button type="button" onClick=${() => stepRounds(-1)} aria-label="One round back">‹</button>
      <button type="button" onClick=${() => stepRounds(1)} aria-label="One round on">›</button>
    </div>
    <output class="moment" for="time">
      <b>${seconds(fleet.value?.seconds ?? at)}</b>
      <span class="muted">round ${count(fleet.value?.round)}</span>
    </output>
    <div class="track">
      <${Skyline} />
      <input id="time" type="range" min="0" max=${WHOLE} step="1" value=${place} aria-label="Moment of the run"
        aria-valuetext=${`${seconds(at)} of ${seconds(endS.value)}, round ${count(fleet.value?.round)}`}
        onInput=${(event) => slideTo(Number(event.target.value))} onKeyDown=${onKey} />
    </div>
    <span class="end muted">${seconds(endS.value)}</span>
    <${Newest} />
  </footer>`;
}

// The very end is the newest moment, which moves on where a run goes on.
function slideTo(place) {
  playing.value = false;
  if (place === WHOLE) moment.value = null;
  else travelTo((place / WHOLE) * endS.value);
}

function Newest() {
  const lost = (link.value === "lost" || run.value?.stopped) && goesOn.value;
  return html`<button type="button" class=${`newest${moment.value === null ? " on" : ""}${lost ? " lost" : ""}`} aria-pressed=${moment.value === null}
    onClick=${() => { playing.value = false; moment.value = null; }}><span class="dot" aria-hidden="true"></span>${lost && !run.value?.stopped ? "Connection lost" : run.value?.stopped ? "Stopped" : goesOn.value ? "Live" : "End"}</button>`;
}

// The total queue over the run, small, behind the slider.
function Skyline() {
  const data = curves.value[runId.value];
  const values = data?.total_queue ?? [];
  const most = values.reduce((largest, value) => Math.max(largest, value ?? 0), 0);
  if (most === 0 || endS.value === 0 || values.length < 3) return html`<svg class="skyline" aria-hidden="true"></svg>`;
  const points = values.map((value, place) => `${(1000 * data.clock_s[place]) / endS.value},${100 - (96 * (value ?? 0)) / most}`);
  const lastX = (1000 * (data.clock_s.at(-1) ?? 0)) / endS.value;
  return html`<svg class="skyline" viewBox="0 0 1000 100" preserveAspectRatio="none" aria-hidden="true"><path d=${`M0,100L${points.join("L")}L${lastX},100Z`} /></svg>`;
}

const Triangle = () => html`<svg viewBox="0 0 16 16" aria-hidden="true"><path d="M4 2.5v11l9.5-5.5z" fill="currentColor" /></svg>`;
const Pause = () => html`<svg viewBox="0 0 16 16" aria-hidden="true"><path d="M3.5 2.5h3v11h-3zM9.5 2.5h3v11h-3z" fill="currentColor" /></svg>`;
