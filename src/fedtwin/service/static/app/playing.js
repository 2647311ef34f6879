// Time that goes by itself. It never runs ahead of what the server has answered.
import { effect, signal } from "./html.js";
import { endS, failure, fleet, moment, nowS, travelTo } from "./state.js";

export const SPEEDS = [
  ["whole", "in 30 s"],
  ["slow", "in 2 min"],
  ["1", "1 ×"],
  ["10", "10 ×"],
  ["100", "100 ×"],
];
export const playing = signal(false);
export const speed = signal("whole");

const perSecond = () => ({ whole: endS.value / 30, slow: endS.value / 120 })[speed.value] ?? Number(speed.value);

export function keepPlaying() {
  effect(() => {
    if (!playing.value) return;
    if (moment.peek() === null || nowS.peek() >= endS.peek()) moment.value = { seconds: 0 };
    requestAnimationFrame((now) => step(now, now));
  });
}

let shown = null;

function step(before, now) {
  if (!playing.value) return;
  if (failure.value !== null) {
    playing.value = false;
    return;
  }
  const at = moment.value?.seconds ?? nowS.value;
  const answered = fleet.value !== shown;
  if (answered) {
    shown = fleet.value;
    const next = at + ((now - before) / 1000) * perSecond();
    if (next >= endS.value) {
      playing.value = false;
      moment.value = null;
      return;
    }
    travelTo(next);
  }
  const since = answered ? now : before;
  requestAnimationFrame((later) => step(since, later));
}
