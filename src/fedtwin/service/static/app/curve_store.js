// The curves of all runs that are shown, fetched once for whoever draws them.
import { ask, runPath } from "./api.js";
import { computed, effect, signal } from "./html.js";
import { failure, fleet, news, others, runId, runs } from "./state.js";

const POINTS = 180;

export const curves = signal({}); // by run
export const curvesFailure = signal(null);
export const runsShown = computed(() => {
  const readable = new Set((runs.value ?? []).filter((one) => !one.unreadable).map((one) => one.id));
  return [runId.value, ...others.value.filter((id) => id !== runId.value)].filter((id) => readable.has(id));
});

export function keepCurvesLoaded() {
  const seen = new Map(); // run to the news it was fetched at; a finished run is fetched once
  effect(() => {
    const pulse = news.value;
    if (fleet.value === null && failure.value === null) return; // the fleet first: making curves keeps the server busy
    if (fleet.value?.columns.name.length === 0) return; // nobody has joined: there is nothing to draw
    for (const id of runsShown.value) {
      const finished = runs.value.find((one) => one.id === id).finished;
      const stand = finished ? "finished" : pulse;
      if (seen.get(id) === stand) continue;
      seen.set(id, stand);
      load(id);
    }
  });
}

async function load(id) {
  try {
    const found = await ask(runPath(id, `/curves?points=${POINTS}`));
    curves.value = { ...curves.peek(), [id]: found };
    curvesFailure.value = null;
  } catch (error) {
    curvesFailure.value = error.message;
  }
}

// The last value at or before a second.
export function valueAt(xs, ys, second) {
  if (!xs?.length) return null;
  let [low, high] = [0, xs.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= second) low = middle + 1;
    else high = middle;
  }
  for (let place = low - 1; place >= 0; place -= 1) if (ys[place] !== null) return ys[place];
  return null;
}

export const metricName = (found) => {
  const name = found?.evaluations?.name ?? "metric";
  return name.charAt(0).toUpperCase() + name.slice(1).replaceAll("_", " ");
};
