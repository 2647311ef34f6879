// How a state looks: a colour that colour-blind people can tell apart, and a shape for those who cannot use colour at all.
import { html } from "./html.js";

const CIRCLE = "M1 0A1 1 0 1 1-1 0A1 1 0 1 1 1 0Z";
const LOOKS = {
  "in-flight": { label: "in flight", path: "M0-1.15L1.1.8L-1.1.8Z", fill: 1 },
  idle: { label: "idle", path: CIRCLE, fill: 0.22 },
  offline: { label: "offline", path: "M-.85-.85L.85.85M.85-.85L-.85.85", fill: 0 },
  quarantined: { label: "quarantined", path: "M0-1.25L1.25 0L0 1.25L-1.25 0Z", fill: 1 },
  drained: { label: "drained", path: "M-.9-.9H.9V.9H-.9Z", fill: 0.22 },
  "backed-off": { label: "backed off", path: "M-.9-.9H.9L-.9.9H.9Z", fill: 0.5 },
  cut: { label: "cut", path: "M-.9-.9H.9V.9H-.9Z", fill: 1 },
};
const OTHER = { path: "M-.55-.95H.55L1.1 0L.55.95H-.55L-1.1 0Z", fill: 0.22 };

const keyOf = (status) => String(status ?? "unknown").replaceAll(" ", "-");

const looks = new Map(); // there are few states, and thousands of devices ask

export function lookOf(status) {
  if (!looks.has(status)) {
    const key = keyOf(status);
    looks.set(status, { ...(LOOKS[key] ?? { ...OTHER, label: key }), key: LOOKS[key] ? key : "other" });
  }
  return looks.get(status);
}

export const statesInOrder = (counts) => {
  const order = Object.keys(LOOKS);
  const place = (status) => (order.indexOf(keyOf(status)) + 1 || order.length + 1);
  return [...counts.entries()].sort(([a], [b]) => place(a) - place(b));
};

export function Glyph({ status }) {
  const look = lookOf(status);
  return html`<svg class="glyph state-${look.key}" viewBox="-1.5 -1.5 3 3" aria-hidden="true">
    <path d=${look.path} fill="currentColor" fill-opacity=${look.fill} stroke="currentColor" stroke-width=".28" stroke-linejoin="round" />
  </svg>`;
}

export function colours(...names) {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

export const RUN_COLOURS = ["run-1", "run-2", "run-3", "run-4", "run-5", "run-6"];
export const RUN_DASHES = [[], [6, 4], [2, 3], [10, 3, 2, 3], [14, 5], [1, 3]];
