// Tasks on the run's clock: who computes, who uploads, what came of it. One row per channel that is taken.
import { runPath, useAnswer } from "./api.js";
import { FONT, fitted, useCanvas } from "./canvas.js";
import { number, plural, seconds } from "./format.js";
import { html, useMemo, useRef, useState } from "./html.js";
import { shortName } from "./map_draw.js";
import { colours } from "./palette.js";
import { detail, device, endS, fleet, lastRound, moment, news, nowS, run, runId } from "./state.js";

const LIMIT = 2000;
const MOST_TASKS = 900;
const LEFT = 8;
const AXIS = 22;
const TROUBLE = { dropped: "dropped", late: "late", "given-up": "given up", refused: "refused" };

export function Gantt() {
  const [zoom, setZoom] = useState(1);
  const widthS = useWidth() * zoom;
  const now = nowS.value;
  const toS = moment.value === null ? Math.max(now, widthS) : Math.max(now + widthS / 4, widthS);
  const fromS = toS - widthS;
  const step = widthS / 2; // asked in steps, so that a moving slider does not ask at every pixel
  const [askFrom, askTo] = [Math.max(Math.floor(fromS / step) * step, 0), Math.ceil(toS / step) * step];
  const id = runId.value;
  const path = endS.value > 0 && detail.value !== null ? runPath(id, `/tasks?from_s=${askFrom}&to_s=${askTo}&limit=${LIMIT}`) : null;
  const { data, error, loading } = useAnswer(path, { subject: id, pulse: moment.value === null ? news.value : 0 });
  const tasks = useMemo(() => inLanes(data?.tasks ?? []), [data]);
  const rows = tasks.reduce((most, task) => Math.max(most, task.lane + 1), 1);
  const height = Math.min(rows * (rows < 4 ? 24 : 17), 260) + AXIS + 4;
  const [hover, setHover] = useState(null);
  const [canvas, size] = useCanvas(
    (pen, width, tall) => draw(pen, width, tall, { tasks, rows, fromS, toS, now, chosen: device.value }),
    [tasks, fromS, toS, now, device.value, height],
  );
  const find = (event) => {
    if (size === null) return null;
    const box = canvas.current.getBoundingClientRect();
    const at = fromS + ((event.clientX - box.left - LEFT) / (size.width - 2 * LEFT)) * (toS - fromS);
    const lane = Math.floor((event.clientY - box.top) / ((size.height - AXIS) / rows));
    return tasks.find((task) => task.lane === lane && task.sent_s <= at && at <= endOf(task, now)) ?? null;
  };
  const inFlight = plural(fleet.value.in_flight, "task");
  const hint = tasks.length === 0 && !loading ? "No task in this window." : "Point at a task to read it; a click opens its device.";
  return html`<section class="card gantt" aria-labelledby="gantt-title">
    <header class="card-head">
      <h2 id="gantt-title">Tasks</h2>
      <p class="muted small" role="status">${inFlight} in flight${data?.left_off ? `, ${plural(data.left_off, "task")} of this window not drawn` : ""}</p>
      <ul class="legend"><li><i class="key compute"></i>computes</li><li><i class="key upload"></i>uploads</li><li><i class="key trouble"></i>came to nothing</li></ul>
      <div class="step" role="group" aria-label="Width of the window">
        <button type="button" onClick=${() => setZoom(Math.max(zoom / 2, 1 / 16))} aria-label="Less time">+</button>
        <button type="button" onClick=${() => setZoom(Math.min(zoom * 2, 16))} aria-label="More time">−</button>
      </div>
    </header>
    <canvas ref=${canvas} class="gantt-canvas" role="img" style=${{ height: `${height}px` }}
      aria-label=${`Tasks from ${seconds(fromS)} to ${seconds(toS)}: ${inFlight} in flight at ${seconds(now)}.`}
      onPointerMove=${(event) => setHover(find(event))} onPointerLeave=${() => setHover(null)}
      onClick=${(event) => { const task = find(event); if (task) device.value = task.device; }}></canvas>
    <p class="note" role="status">${error ?? (hover ? told(hover) : hint)}</p>
  </section>`;
}

function told({ name, round, sent_s, end_s, outcome, cost }) {
  const end = end_s === null ? "still open" : `${TROUBLE[outcome] ?? outcome} at ${seconds(end_s)}, after ${number(end_s - sent_s)} s`;
  return `${name}, round ${round}: sent at ${seconds(sent_s)}, ${end}${cost === null ? "" : `, cost ${number(cost)} Ω`}.`;
}

const endOf = (task, now) => task.end_s ?? now;

// So much time that a task is about as wide as its name; it stays until a run that grows has twice as many rounds.
function useWidth() {
  const kept = useRef({ id: null, rounds: 0, widthS: 1 });
  const devices = Math.max(run.value.devices ?? 0, 1);
  const rounds = lastRound.value;
  const isOld = kept.current.id !== runId.value || rounds >= 2 * kept.current.rounds;
  if (isOld && endS.value > 0 && rounds > 0) {
    const channels = detail.value?.settings?.["fleet.channels"] ?? Math.min(devices, 15);
    const perTask = (endS.value * Math.min(channels, devices)) / rounds;
    const widthS = Math.min((perTask * window.innerWidth) / 100, (MOST_TASKS * perTask) / channels, endS.value);
    kept.current = { id: detail.value ? runId.value : null, rounds, widthS };
  }
  return kept.current.widthS;
}

// A task goes into the first row that is free when it is sent.
function inLanes(tasks) {
  const freeAt = [];
  return [...tasks].sort((a, b) => a.sent_s - b.sent_s || a.device - b.device).map((task) => {
    let lane = freeAt.findIndex((until) => until <= task.sent_s + 1e-9);
    if (lane < 0) lane = freeAt.length;
    freeAt[lane] = endOf(task, Infinity);
    return { ...task, lane };
  });
}

function draw(pen, width, height, { tasks, rows, fromS, toS, now, chosen }) {
  const tint = colours("compute", "upload", "warn", "text", "muted", "line", "accent", "surface", "on-compute");
  const x = (second) => LEFT + ((second - fromS) / (toS - fromS)) * (width - 2 * LEFT);
  const rowHeight = (height - AXIS) / rows;
  const bar = Math.max(rowHeight - 3, 2);
  pen.font = FONT;
  drawAxis(pen, x, width, height, fromS, toS, tint);
  pen.textBaseline = "middle";
  pen.textAlign = "left";
  for (const task of tasks) {
    const [left, right] = [Math.max(x(task.sent_s), LEFT), Math.min(x(endOf(task, now)), width - LEFT)];
    if (right <= left || task.sent_s > toS) continue;
    const y = task.lane * rowHeight + 1;
    const computed = Math.min(Math.max(x(Math.min(task.compute_until_s ?? task.sent_s, endOf(task, now))), left), right);
    const future = task.sent_s > now;
    pen.globalAlpha = future ? 0.35 : 1;
    pen.fillStyle = tint.compute;
    pen.fillRect(left, y, Math.max(computed - left, 0.5), bar);
    pen.fillStyle = tint.upload;
    pen.fillRect(computed, y, Math.max(right - computed - 1, 0.5), bar);
    if (TROUBLE[task.outcome]) hatch(pen, left, y, right - left - 1, bar, tint.warn);
    if (task.device === chosen) {
      pen.strokeStyle = tint.accent;
      pen.lineWidth = 2;
      pen.strokeRect(left, y, right - left - 1, bar);
    }
    if (bar >= 11 && right - left > 16) {
      const label = fitted(pen, shortName(task.name), right - left - 8);
      if (TROUBLE[task.outcome]) {
        pen.fillStyle = tint.surface;
        pen.fillRect(left + 2, y + 1, pen.measureText(label).width + 4, bar - 2);
      }
      pen.fillStyle = tint["on-compute"];
      pen.fillText(label, left + 4, y + bar / 2 + 0.5);
    }
    pen.globalAlpha = 1;
  }
  pen.strokeStyle = tint.accent;
  pen.lineWidth = 1.5;
  pen.beginPath();
  pen.moveTo(x(now), 0);
  pen.lineTo(x(now), height - AXIS + 4);
  pen.stroke();
}

function hatch(pen, left, top, width, height, colour) {
  pen.save();
  pen.beginPath();
  pen.rect(left, top, width, height);
  pen.clip();
  pen.strokeStyle = colour;
  pen.lineWidth = 1.2;
  pen.beginPath();
  for (let at = left - height; at < left + width; at += 7) {
    pen.moveTo(at, top + height);
    pen.lineTo(at + height, top);
  }
  pen.stroke();
  pen.restore();
}

function drawAxis(pen, x, width, height, fromS, toS, tint) {
  const rough = ((toS - fromS) * 90) / width;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((part) => part * power).find((one) => one >= rough);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  pen.strokeStyle = tint.line;
  pen.fillStyle = tint.muted;
  pen.lineWidth = 1;
  pen.textAlign = "center";
  pen.textBaseline = "bottom";
  for (let at = Math.ceil(fromS / step) * step; at <= toS; at += step) {
    pen.beginPath();
    pen.moveTo(x(at), 0);
    pen.lineTo(x(at), height - AXIS + 4);
    pen.stroke();
    if (x(at) > 24 && x(at) < width - 24) pen.fillText(`${at.toFixed(digits)} s`, x(at), height - 3);
  }
}
