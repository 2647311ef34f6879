// The page: header, the view that was chosen, the device that was chosen, and time.
import { keepCurvesLoaded } from "./curve_store.js";
import { Curves } from "./curves.js";
import { Drawer } from "./drawer.js";
import { Fidelity } from "./fidelity.js";
import { Figures } from "./figures.js";
import { Gantt } from "./gantt.js";
import { Header } from "./header.js";
import { Help } from "./help.js";
import { html, render } from "./html.js";
import { listenToKeys } from "./keys.js";
import { followRun } from "./live.js";
import { keepFleetLoaded, keepRunLoaded, keepRunsLoaded } from "./load.js";
import { LogIn } from "./log_in.js";
import { FleetMap } from "./map.js";
import { Operate } from "./operate.js";
import { keepPlaying } from "./playing.js";
import { Refusals } from "./refusals.js";
import { keepAddress } from "./route.js";
import { Runs } from "./runs.js";
import { session } from "./session.js";
import { detail, device, failure, fleet, runId, runs, view } from "./state.js";
import { FleetTable } from "./table.js";
import { TimeBar } from "./timebar.js";
import { WhatIf } from "./whatif.js";

const OTHER_VIEWS = { whatif: WhatIf, fidelity: Fidelity, refusals: Refusals, runs: Runs, operate: Operate };

function Page() {
  const open = device.value !== null && fleet.value !== null;
  return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>To the content</a>
    <${Header} />
    <main id="main" tabindex="-1" class=${open ? "with-drawer" : ""}><${Content} /></main>
    <${Drawer} />
    ${fleet.value !== null && html`<${TimeBar} />`}
    <${Help} />`;
}

function Content() {
  if (session.value.needsToken) return html`<${LogIn} />`;
  if (runs.value === null) return html`<p class="says">The runs are loading.</p>`;
  if (runs.value.length === 0) return html`<p class="says error">${failure.value ?? "No run is served. Start the server with the folder of one: fedtwin serve RUN."}</p>`;
  const Other = OTHER_VIEWS[view.value];
  if (view.value === "runs") return html`<h1 class="unseen">Runs</h1><${Runs} />`;
  if (fleet.value === null) return failure.value ? html`<p class="says error">${failure.value}</p>` : html`<p class="says">The run ${runId.value} is being read.</p>`;
  return html`<h1 class="unseen">${`Run ${runId.value}`}</h1>
    ${failure.value && html`<p class="says error" role="alert">${failure.value}</p>`}
    ${(detail.value?.notes ?? []).map((sentence) => html`<p class="remark" key=${sentence}>${sentence}</p>`)}
    ${Other ? html`<${Other} key=${runId.value} />` : html`<${Fleet} key=${runId.value} />`}`;
}

function Fleet() {
  if (fleet.value.columns.name.length === 0) return html`<p class="says">No device has joined yet. The page goes on by itself when one does.</p>`;
  return html`<${Figures} /><div class="fleet"><${FleetMap} /><${FleetTable} /></div><${Gantt} /><${Curves} />`;
}

window.addEventListener("error", ({ message }) => {
  if (!message.startsWith("ResizeObserver")) failure.value = `The page has met an error of its own: ${message}. Load it again.`;
});
const place = document.getElementById("page");
place.replaceChildren();
render(html`<${Page} />`, place);
keepAddress();
keepRunLoaded();
keepFleetLoaded();
keepCurvesLoaded();
followRun();
keepPlaying();
listenToKeys();
keepRunsLoaded();
