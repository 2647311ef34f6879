// Keys that hold wherever nothing else takes them.
import { playing } from "./playing.js";
import { VIEWS } from "./route.js";
import { device, moment, stepRounds, view } from "./state.js";

const takesKeys = (node) =>
  node instanceof HTMLElement && node.type !== "range" && (/^(INPUT|SELECT|TEXTAREA)$/.test(node.tagName) || node.closest("dialog[open]") !== null);

export function listenToKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.key === "Escape" && device.value !== null && !document.querySelector("dialog[open]")) {
      device.value = null;
      return;
    }
    if (takesKeys(event.target)) return;
    const pressed = event.target instanceof HTMLElement && event.target.tagName === "BUTTON";
    if (event.key === " " && !pressed) playing.value = !playing.value;
    else if (event.key === "ArrowLeft") stepRounds(-1);
    else if (event.key === "ArrowRight") stepRounds(1);
    else if (event.key === "l" || event.key === "L") { playing.value = false; moment.value = null; }
    else if (event.key === "/") document.getElementById("filter")?.focus();
    else if (event.key === "?") document.getElementById("help").showModal();
    else if (/^[1-5]$/.test(event.key)) view.value = VIEWS[Number(event.key) - 1][0];
    else return;
    event.preventDefault();
  });
}
