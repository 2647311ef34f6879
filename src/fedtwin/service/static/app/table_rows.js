// The columns of the table, and which devices it shows in which order.
import { age, count, decibel, hertz, number } from "./format.js";
import { lookOf } from "./palette.js";

export const COLUMNS = [
  { key: "name", title: "Device", text: String },
  { key: "status", title: "State", text: (value) => lookOf(value).label },
  { key: "queue", title: "Queue", unit: "samples", text: (value) => number(value) },
  { key: "mean_cost", title: "Mean cost", unit: "Ω", text: (value) => number(value) },
  { key: "selections", title: "Chosen", unit: "times", text: count },
  { key: "declines", title: "Declined", unit: "times", text: count },
  { key: "samples", title: "Samples", unit: "own", text: count },
  { key: "gain", title: "Gain", unit: "last heard", text: decibel },
  { key: "gain_age_s", title: "Age", unit: "of gain", text: age },
  { key: "cpu_hz", title: "CPU", unit: "last heard", text: hertz },
];

export function rowsOf(columns, { text, status, sort }) {
  const wanted = text.trim().toLowerCase();
  const rows = [];
  for (let device = 0; device < columns.name.length; device += 1) {
    if (status === "untrusted" ? columns.trusted?.[device] !== false : status !== "" && columns.status[device] !== status) continue;
    if (wanted === "" || String(columns.name[device]).toLowerCase().includes(wanted)) rows.push(device);
  }
  if (sort === null) return rows;
  const values = columns[sort.key];
  const sign = sort.up ? 1 : -1;
  return rows.sort((a, b) => compare(values[a], values[b], sign) || a - b);
}

// What is not known comes last, whichever way.
function compare(a, b, sign) {
  const [noA, noB] = [a === null || a === undefined, b === null || b === undefined];
  if (noA || noB) return noA - noB;
  if (typeof a === "string") return sign * a.localeCompare(b, undefined, { numeric: true });
  return sign * (a - b);
}
