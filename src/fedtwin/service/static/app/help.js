// Keys, and what the page shows, in a dialog.
import { html } from "./html.js";

const KEYS = [
  ["Space", "play, or stop playing"],
  ["← →", "one round back or on"],
  ["L", "to the newest moment"],
  ["/", "filter the devices by name"],
  ["Esc", "close the device"],
  ["1 … 5", "the views, in their order"],
  ["?", "this help"],
];

export function Help() {
  return html`<dialog id="help" aria-labelledby="help-title">
    <h2 id="help-title">Keys</h2>
    <dl class="keys">${KEYS.map(([key, does]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${does}</dd></div>`)}</dl>
    <p class="note">On the map the arrow keys walk through the devices, Enter opens one, + and − change the scale.
      The same numbers are served as JSON: <a href="/openapi.json">/openapi.json</a>.</p>
    <form method="dialog"><button class="main" onClick=${(event) => { event.preventDefault(); document.getElementById("help").close(); }}>Close</button></form>
  </dialog>`;
}
