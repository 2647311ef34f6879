// Light, dark, or as the system has it. Canvases and charts read their colours from the style sheet, so they watch `darkness`.
import { signal } from "./html.js";

const root = document.documentElement;
const system = matchMedia("(prefers-color-scheme: dark)");

export const theme = signal(["light", "dark"].includes(root.dataset.choice) ? root.dataset.choice : "system");
export const darkness = signal(root.dataset.theme);

function apply() {
  root.dataset.theme = theme.value === "system" ? (system.matches ? "dark" : "light") : theme.value;
  darkness.value = root.dataset.theme;
}

system.addEventListener("change", apply);

export function chooseTheme(name) {
  theme.value = name;
  apply();
  try {
    localStorage.setItem("fedtwin.theme", name);
  } catch {
    // Not kept, then.
  }
}
