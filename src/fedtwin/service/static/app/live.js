// Follows a run that goes on by its stream of events. The browser reconnects by itself and says which event it saw last.
import { runPath } from "./api.js";
import { batch, effect, signal } from "./html.js";
import { loadDetail, loadRuns, startOver, wantFleet } from "./load.js";
import { endS, failure, fleet, goesOn, lastRound, link, moment, news, runId } from "./state.js";

const FRESH_EVERY_MS = 1000;
const AGAIN_AFTER_MS = 3000;
// A browser opens few connections to one server, so a page that nobody sees gives its stream back.
const seen = signal(!document.hidden);
const tries = signal(0);
document.addEventListener("visibilitychange", () => {
  seen.value = !document.hidden;
});
let stream = null;
let changes = [];
let drawing = false;
let freshAt = 0;
let freshLater = null;

export function followRun() {
  effect(() => {
    const id = goesOn.value && seen.value ? runId.value : null;
    tries.value; // watched: a stream that was refused is asked for again
    stream?.close();
    stream = null;
    changes = [];
    link.value = "off";
    if (id !== null) stream = open(id);
  });
}

function open(id) {
  const source = new EventSource(runPath(id, "/events"));
  source.onopen = () => {
    link.value = "live";
  };
  source.onerror = () => {
    link.value = "lost";
    if (source.readyState === EventSource.CLOSED) setTimeout(() => { tries.value += 1; }, AGAIN_AFTER_MS);
  };
  source.addEventListener("trouble", (event) => {
    failure.value = JSON.parse(event.data).error;
  });
  source.addEventListener("state", (event) => {
    changes.push(JSON.parse(event.data));
    if (!drawing) requestAnimationFrame(applyChanges);
    drawing = true;
  });
  source.addEventListener("evaluation", tellViews);
  source.addEventListener("refusal", tellViews);
  source.addEventListener("finished", () => {
    source.close();
    link.value = "ended";
    loadRuns().then(() => {
      loadDetail();
      if (moment.value === null) wantFleet();
    });
    news.value += 1;
  });
  return source;
}

function applyChanges() {
  drawing = false;
  const last = changes.at(-1);
  if (last === undefined) return;
  if (fleet.value?.columns.name.length === 0 && last.revision > fleet.value.revision) {
    changes = [];
    startOver();
    return;
  }
  batch(() => {
    endS.value = Math.max(endS.value, last.seconds ?? 0);
    lastRound.value = Math.max(lastRound.value, last.round ?? 0);
    if (moment.value === null && fleet.value !== null) {
      fleet.value = changes.reduce((shown, said) => (said.revision > shown.revision ? later(shown, said) : shown), fleet.value);
    }
  });
  changes = [];
  tellViews();
}

// Who is not named has grown in queue, in age and in staleness only, by as much as the rounds, the clock and the model's version tell. Everything is made anew,
// because what is the same object is not drawn again.
function later(shown, { changed = {}, ...said }) {
  const columns = { ...shown.columns };
  for (const name of Object.keys(columns)) columns[name] = [...columns[name]];
  const more = (said.queue_round - shown.queue_round) * said.min_mean_samples;
  const wait = said.now_s - shown.now_s;
  const versions = said.model_version - shown.model_version;
  columns.queue = columns.queue.map((queue) => queue + more);
  for (const name of ["gain_age_s", "cpu_age_s"]) columns[name] = columns[name].map((age) => (age === null ? null : age + wait));
  columns.staleness = columns.staleness.map((behind) => (behind === null ? null : behind + versions));
  for (const [number, fields] of Object.entries(changed)) {
    for (const [name, value] of Object.entries(fields)) if (columns[name]) columns[name][number] = value;
  }
  return { ...shown, ...said, columns };
}

// Views that are costly to make (curves, tasks, ages of all devices) are told at most once in a while.
function tellViews() {
  clearTimeout(freshLater);
  const wait = freshAt + FRESH_EVERY_MS - performance.now();
  if (wait > 0) {
    freshLater = setTimeout(tellViews, wait);
    return;
  }
  freshAt = performance.now();
  news.value += 1;
  if (moment.value === null) wantFleet();
}
