// What the page knows and shows. Everything that is drawn follows from these signals.
import { batch, computed, signal } from "./html.js";

export const runs = signal(null); // null until the server has answered
export const runId = signal(null);
export const others = signal([]); // runs whose curves are laid over
export const view = signal("fleet");
export const device = signal(null); // number of the device in the drawer
export const hovered = signal(null);
export const moment = signal(null); // null: the newest; otherwise { seconds } or { round }

export const detail = signal(null);
export const places = signal(null);
export const fleet = signal(null);
export const endS = signal(0);
export const lastRound = signal(0);
export const failure = signal(null); // a sentence about the run or its fleet
export const link = signal("off"); // the stream of events: off, live, lost, ended
export const news = signal(0); // counts up, once in a while, when a run that goes on has written more

export const run = computed(() => runs.value?.find((one) => one.id === runId.value) ?? null);
export const goesOn = computed(() => run.value !== null && !run.value.finished && !run.value.unreadable);
export const isLive = computed(() => goesOn.value && moment.value === null);
export const nowS = computed(() => fleet.value?.seconds ?? endS.value);

export function momentName() {
  const at = moment.value;
  if (at === null) return "latest";
  return at.round === undefined ? `seconds:${at.seconds}` : `round:${at.round}`;
}

// Another run has other devices and another clock.
export const lookAt = (id) => batch(() => {
  others.value = others.value.filter((one) => one !== id);
  moment.value = device.value = hovered.value = null;
  runId.value = id;
});

export const travelTo = (seconds) => {
  moment.value = { seconds: Math.min(Math.max(seconds, 0), endS.value) };
};

// A view by its second, or the newest, is of after its round was decided: one back is that round as the policy saw it.
export function stepRounds(by) {
  if (fleet.value === null) return;
  const next = (moment.value?.round ?? fleet.value.round + (by < 0 ? 1 : 0)) + by;
  moment.value = { round: Math.min(Math.max(next, 0), lastRound.value) };
}
