// Orders to the edge server of a live run: the same as fedtwin admin gives, and like them written into its ledger.
import { runPath, send } from "./api.js";
import { html, useState } from "./html.js";
import { detail, fleet, run, runId } from "./state.js";
import { session } from "./session.js";

const SETTABLE = ["policy.v", "objective.min_mean_samples", "objective.energy_weight", "objective.max_time_s", "objective.max_energy_j", "run.rounds"];

const NOT_HERE = "Orders are for operators, and need a server that knows the broker of the run: fedtwin edge --page, or fedtwin serve --server URL.";

export function Operate() {
  const [said, setSaid] = useState({ words: null, failed: false, busy: false });
  const order = async (body) => {
    setSaid({ words: null, failed: false, busy: true });
    try {
      const answer = await send(runPath(runId.value, "/orders"), body);
      setSaid({ words: answer?.said ?? answer?.words ?? `The edge server has the order ${body.order}.`, failed: false, busy: false });
    } catch (error) {
      setSaid({ words: error.message, failed: true, busy: false });
    }
  };
  if (!session.value.mayOperate) return html`<p class="says">${NOT_HERE}</p>`;
  if (run.value?.kind !== "live") return html`<p class="says">A simulation takes no orders; those of a live run go to its edge server.</p>`;
  if (run.value.finished) return html`<p class="says">This run has ended: there is nobody to give orders to.</p>`;
  return html`<div class="two" aria-busy=${said.busy}>
    <section class="card" aria-labelledby="order-title">
      <header class="card-head"><h2 id="order-title">The run</h2></header>
      <div class="form-end">
        <button type="button" onClick=${() => order({ order: "pause" })}>Pause</button>
        <button type="button" onClick=${() => order({ order: "resume" })}>Resume</button>
        <${Sure} label="End the run" question="End it in good order? This cannot be undone." onSure=${() => order({ order: "finish" })} />
      </div>
      <p class="note">A pause hands out no new tasks; what is in flight is mixed in. The end writes summary, tables and model.</p>
      <${Setting} order=${order} />
    </section>
    <${Devices} order=${order} />
    ${said.words && html`<p class=${`says ${said.failed ? "error" : "done"}`} role="status">${said.words}</p>`}
  </div>`;
}

function Setting({ order }) {
  const [setting, setName] = useState(SETTABLE[0]);
  const settings = { ...detail.value?.settings, ...detail.value?.changed };
  const change = (event) => {
    event.preventDefault();
    order({ order: "set", setting, value: Number(event.target.elements.value.value) });
  };
  return html`<form class="form" onSubmit=${change}>
    <label>Setting <select value=${setting} onChange=${(event) => setName(event.target.value)}>
      ${SETTABLE.map((name) => html`<option key=${name}>${name}</option>`)}</select></label>
    <label>New value <input name="value" type="number" step="any" required placeholder=${settings[setting] ?? ""} /></label>
    <div class="form-end"><button type="submit">Set</button></div>
  </form>`;
}

function Devices({ order }) {
  const { columns } = fleet.value;
  const [name, setName] = useState(columns.name[0] ?? "");
  const status = columns.status[columns.name.indexOf(name)];
  const isOut = status === "quarantined" || status === "drained";
  return html`<section class="card" aria-labelledby="one-title">
    <header class="card-head"><h2 id="one-title">One device</h2></header>
    <div class="form">
      <label>Device <select value=${name} onChange=${(event) => setName(event.target.value)}>
        ${columns.name.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}</select></label>
      <div class="form-end">
        <button type="button" disabled=${isOut} onClick=${() => order({ order: "drain", device: name })}>Drain</button>
        <button type="button" disabled=${!isOut} onClick=${() => order({ order: "release", device: name })}>Release</button>
      </div>
    </div>
    <p class="note">A drained device finishes its task and gets no other. Release takes it back, from quarantine, too.</p>
  </section>`;
}

function Sure({ label, question, onSure }) {
  const [asked, setAsked] = useState(false);
  if (!asked) return html`<button type="button" class="danger" onClick=${() => setAsked(true)}>${label}</button>`;
  return html`<span class="sure" role="group" aria-label=${question}><span>${question}</span>
    <button type="button" class="danger" onClick=${() => { setAsked(false); onSure(); }}>Yes, end it</button>
    <button type="button" onClick=${() => setAsked(false)}>No</button></span>`;
}
