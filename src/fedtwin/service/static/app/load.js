// Fetches the runs, and of the run that is looked at what all views share.
import { ask, runPath } from "./api.js";
import { batch, effect } from "./html.js";
import { session } from "./session.js";
import { detail, endS, failure, fleet, goesOn, lastRound, moment, momentName, news, places, runId, runs } from "./state.js";

export async function loadRuns() {
  try {
    const answer = await ask("/api/runs");
    batch(() => {
      session.value = { mayOperate: answer.role === "operator", needsToken: false, byToken: answer.by_token };
      runs.value = answer.runs;
      if (!answer.runs.some((one) => one.id === runId.value)) {
        runId.value = (answer.runs.find((one) => !one.unreadable) ?? answer.runs[0])?.id ?? null;
      }
      failure.value = answer.runs.find((one) => one.id === runId.value)?.unreadable ?? null;
    });
  } catch (error) {
    batch(() => {
      if (error.status === 401) session.value = { mayOperate: false, needsToken: true, byToken: false };
      failure.value = error.message;
      runs.value ??= [];
    });
  }
}

// Runs that have not begun, stop, pause or go on tell of nothing by themselves.
const RUNS_EVERY_MS = 3000;
export function keepRunsLoaded() {
  loadRuns();
  setInterval(() => {
    if (!document.hidden && !session.value.needsToken && runs.value?.some((one) => !one.finished)) loadRuns();
  }, RUNS_EVERY_MS);
}

const AGAIN_EVERY = 3; // news
const AGAIN_AFTER_MS = 1500;

async function loadRun(id, still) {
  try {
    const [about, where] = await Promise.all([ask(runPath(id)), ask(runPath(id, "/places"))]);
    if (!still()) return;
    batch(() => {
      detail.value = about;
      places.value = where;
      endS.value = Math.max(endS.value, about.end_s ?? 0);
    });
  } catch (error) {
    if (still()) failure.value = error.message;
  }
}

let shown = null; // the run that has been loaded
// What was loaded of a run before anybody had joined, or before it had ended, is not what it is by now.
export const startOver = () => {
  shown = null;
  return loadRuns();
};
export const loadDetail = () => loadRun(runId.value, () => shown === runId.value);

export function keepRunLoaded() {
  let later = null;
  effect(() => {
    const id = runId.value;
    const found = runs.value?.find((one) => one.id === id);
    if (!found || shown === id) return;
    const isThere = !found.unreadable || found.kind !== null; // what was read before trouble came stays
    shown = isThere ? id : null;
    batch(() => {
      detail.value = places.value = fleet.value = null;
      failure.value = found.unreadable ?? null;
      endS.value = found.end_s ?? 0;
      lastRound.value = found.rounds ?? 0;
    });
    document.title = `${id} · fedtwin`;
    if (!found.unreadable) loadRun(id, () => shown === id);
  });
  effect(() => {
    const id = runId.value;
    const again = () => loadRun(id, () => shown === id);
    clearTimeout(later);
    if (news.value === 0 || !goesOn.value) return;
    if (news.value % AGAIN_EVERY === 0) again();
    else later = setTimeout(again, AGAIN_AFTER_MS); // the last news of a run that was paused, too
  });
}

// One request at a time, and then the newest wish: a slider that is dragged shows moments as fast as they come.
let busy = false;
let wanted = null;

export async function wantFleet() {
  wanted = runId.value === null ? null : { id: runId.value, at: momentName() };
  if (busy) return;
  busy = true;
  while (wanted !== null) {
    const { id, at } = wanted;
    wanted = null;
    try {
      const answer = await ask(runPath(id, `/fleet?at=${encodeURIComponent(at)}`));
      if (id === runId.value) take(answer);
    } catch (error) {
      if (id === runId.value && at === momentName()) failure.value = error.message;
    }
  }
  busy = false;
}

function take(answer) {
  batch(() => {
    fleet.value = answer;
    failure.value = null;
    if (moment.value !== null) return;
    endS.value = Math.max(endS.value, answer.seconds ?? 0);
    lastRound.value = Math.max(lastRound.value, answer.round ?? 0);
  });
}

export function keepFleetLoaded() {
  effect(() => {
    const readable = runs.value?.some((one) => one.id === runId.value && !one.unreadable);
    momentName();
    if (readable) wantFleet();
  });
}
