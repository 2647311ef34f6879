// The heads of a table: texts, or `right(text, unit)` above a column of figures.
import { html } from "./html.js";

export const right = (text, unit = null) => ({ text, unit, figure: true });

export function Heads({ of }) {
  const shown = of.map((one) => (typeof one === "string" ? { text: one } : one));
  return html`<thead><tr>${shown.map(({ text, unit, figure }) => html`<th scope="col" key=${text} class=${figure ? "figure" : ""}>
    ${text}${unit && html` <span class="unit">${unit}</span>`}</th>`)}</tr></thead>`;
}
