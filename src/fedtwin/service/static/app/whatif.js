// What if: the twin as it stands is simulated ahead, as it is and with something changed.
import { send } from "./api.js";
import { count, plural, seconds } from "./format.js";
import { html, useRef, useState } from "./html.js";
import { detail, fleet, isLive, moment, runId } from "./state.js";
import { Answer } from "./whatif_answer.js";

const FIELDS = [
  { name: "policy.v", label: "V", hint: "weight of the cost against the queues" },
  { name: "objective.energy_weight", label: "Energy weight", hint: "0 only time counts, 1 only energy" },
  { name: "objective.min_mean_samples", label: "Samples D_min", hint: "least mean per round" },
  { name: "objective.max_time_s", label: "Longest time", hint: "s per update" },
  { name: "objective.max_energy_j", label: "Most energy", hint: "J per update" },
  { name: "fleet.channels", label: "Channels", hint: "updates at a time" },
];
const POLICIES = ["cu-ucb", "queue-only", "fairness", "random", "twin-dpp"];

const said = (form, name) => form.elements.namedItem(name)?.value.trim() ?? "";

function questionOf(form) {
  const set = {};
  for (const { name } of FIELDS) if (said(form, name) !== "") set[name] = Number(said(form, name));
  if (said(form, "policy.name") !== "") set["policy.name"] = said(form, "policy.name");
  const names = said(form, "without").split(",").map((name) => name.trim()).filter((name) => name !== "");
  const { columns, round } = fleet.value;
  const without = names.map((name) => (columns.name.includes(name) ? columns.name.indexOf(name) : /^\d+$/.test(name) ? Number(name) : name));
  const question = { run: runId.value, set, without, add: Number(said(form, "add") || 0), rounds: Number(said(form, "rounds")), worlds: Number(said(form, "worlds")) };
  return moment.value === null ? question : { ...question, at: round };
}

export function WhatIf() {
  const form = useRef(null);
  const [state, setState] = useState({ answer: null, error: null, busy: false });
  const settings = detail.value?.settings ?? {};
  const ask = async (event) => {
    event.preventDefault();
    setState((old) => ({ ...old, error: null, busy: true }));
    try {
      const question = questionOf(form.current);
      const answer = await send("/api/whatif", question);
      setState({ answer: { ...answer, question }, error: null, busy: false });
      document.getElementById("answer-title").scrollIntoView({ block: "nearest" });
    } catch (error) {
      setState((old) => ({ ...old, error: error.message, busy: false }));
    }
  };
  const from = `${isLive.value ? "now" : seconds(fleet.value.seconds)}, round ${count(fleet.value.round)}`;
  return html`<div class="whatif">
    <section class="card" aria-labelledby="ask-title">
      <header class="card-head"><h2 id="ask-title">What if</h2><p class="muted small">from ${from}</p></header>
      <form ref=${form} onSubmit=${ask} class="form">
        <label>Policy <select name="policy.name"><option value="">${settings["policy.name"] ?? "as it is"}, as it is</option>
          ${POLICIES.filter((name) => name !== settings["policy.name"]).map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select></label>
        ${FIELDS.map(({ name, label, hint }) => html`<label key=${name}>${label} <span class="hint">${hint}</span>
          <input name=${name} type="number" step="any" min="0" inputmode="decimal" placeholder=${settings[name] ?? ""} /></label>`)}
        <label>Without <span class="hint">devices lost, with commas</span><input name="without" type="text" placeholder=${fleet.value.columns.name[0] ?? ""} /></label>
        <label>Devices more <span class="hint">like those there are</span><input name="add" type="number" min="0" step="1" placeholder="0" /></label>
        <label>Rounds <span class="hint">ahead</span><input name="rounds" type="number" min="1" step="1" defaultValue="1000" required /></label>
        <label>Worlds <span class="hint">sampled</span><input name="worlds" type="number" min="2" step="1" defaultValue="100" required /></label>
        <div class="form-end"><button type="submit" class="main" disabled=${state.busy}>${state.busy ? "Simulating…" : "Ask the twin"}</button>
          <button type="reset" class="quiet">As it is</button></div>
      </form>
      <p class="note">Nothing on the devices changes: the twin as it stands is copied and simulated in worlds drawn from what it knows, never from the truth.</p>
    </section>
    <section class="card answer" aria-labelledby="answer-title" aria-live="polite" aria-busy=${state.busy}>
      <header class="card-head"><h2 id="answer-title">Both futures</h2>${state.answer && html`<${About} answer=${state.answer} />`}</header>
      ${state.error && html`<p class="says error">${state.error}</p>`}
      ${!state.answer && !state.error && html`<p class="says">${state.busy ? "The futures are being simulated." : HINT}</p>`}
      ${state.answer && html`<${Answer} answer=${state.answer} />`}
    </section>
  </div>`;
}

const HINT = "Change something and ask: the run as it is and as it would be are drawn here, each with its 90 % interval.";

function About({ answer: { rounds, worlds, at_round } }) {
  return html`<p class="muted small">${plural(rounds, "round")} ahead in ${plural(worlds, "world")}, from round ${count(at_round)}</p>`;
}
