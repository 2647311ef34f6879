// What is looked at is in the address, so that it can be sent to somebody.
import { batch, effect } from "./html.js";
import { device, moment, others, runId, view } from "./state.js";

export const VIEWS = [
  ["fleet", "Fleet"],
  ["whatif", "What if"],
  ["fidelity", "Fidelity"],
  ["refusals", "Refusals"],
  ["runs", "Runs"],
  ["operate", "Operate"],
];

const whole = (text) => (/^\d+$/.test(text ?? "") ? Number(text) : null);

function readAddress(hash) {
  const asked = new URLSearchParams(hash.slice(1));
  const [kind, value] = (asked.get("at") ?? "").split(":");
  batch(() => {
    runId.value = asked.get("run") ?? runId.value;
    view.value = VIEWS.some(([name]) => name === asked.get("view")) ? asked.get("view") : "fleet";
    device.value = whole(asked.get("device"));
    others.value = (asked.get("with") ?? "").split(",").filter((id) => id !== "");
    moment.value = null;
    if (kind === "round" && whole(value) !== null) moment.value = { round: whole(value) };
    if (kind === "seconds" && Number.isFinite(Number.parseFloat(value))) moment.value = { seconds: Number.parseFloat(value) };
  });
}

function address() {
  const now = new URLSearchParams();
  if (runId.value !== null) now.set("run", runId.value);
  if (view.value !== "fleet") now.set("view", view.value);
  if (device.value !== null) now.set("device", device.value);
  if (others.value.length) now.set("with", others.value.join(","));
  if (moment.value !== null) now.set("at", Object.entries(moment.value)[0].join(":"));
  return `#${now}`.replaceAll("%3A", ":").replaceAll("%2C", ",");
}

export function keepAddress() {
  readAddress(location.hash);
  window.addEventListener("hashchange", ({ newURL }) => readAddress(new URL(newURL).hash));
  let waiting = null;
  effect(() => {
    const next = address();
    clearTimeout(waiting);
    waiting = setTimeout(() => history.replaceState(null, "", next), 150);
  });
}
