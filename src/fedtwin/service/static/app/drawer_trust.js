// Prediction against measurement, of one device.
import { runPath, useAnswer } from "./api.js";
import { Heads } from "./heads.js";
import { html } from "./html.js";
import { KINDS, Row } from "./fidelity.js";
import { news, runId } from "./state.js";

export function Trust({ number: one }) {
  const id = runId.value;
  const { data, error, loading } = useAnswer(runPath(id, "/fidelity"), { subject: id, pulse: Math.floor(news.value / 10) });
  const mine = data?.devices?.find((row) => row.device === one);
  return html`<section class="drawer-part" aria-labelledby="trust-title" aria-busy=${loading}>
    <h3 id="trust-title">Prediction against measurement <span class="muted small">over the whole run</span></h3>
    ${error && html`<p class="says error">${error}</p>`}
    ${!data && loading && html`<p class="says">The track record is being worked out.</p>`}
    ${data && !mine && html`<p class="says">There is no track record of this device yet.</p>`}
    ${mine && html`<p class=${mine.trusted === false ? "why failing" : "why"}>${mine.why ?? (mine.trusted === null ? "There is too little to judge it by." : "")}</p>
      <table class="facts"><${Heads} of=${["Of", "Updates", "Bias", "RMSE", "In the 90 %"]} />
        <tbody>${KINDS.map(([key, label, unit]) => html`<${Row} key=${key} label=${label} unit=${unit} said=${mine[key]} short=${true} />`)}</tbody></table>`}
  </section>`;
}
