// The fleet on one canvas. What can be done by mouse can be done by keyboard, and the table beside it says the same in words.
import { useCanvas } from "./canvas.js";
import { count, number, plural } from "./format.js";
import { html, useMemo, useRef, useState } from "./html.js";
import { drawMap, radiusOf } from "./map_draw.js";
import { layoutOf, projection } from "./map_layout.js";
import { Glyph, lookOf, statesInOrder } from "./palette.js";
import { device, fleet, hovered, places } from "./state.js";

const AS_FITTED = { by: 1, x: 0, y: 0 };

export function FleetMap() {
  const { columns } = fleet.value;
  const many = columns.name.length;
  const layout = useMemo(() => layoutOf(places.value, many), [places.value, many]);
  const [zoom, setZoom] = useState(AS_FITTED);
  const drag = useRef(null);
  const shown = { layout, columns, zoom, selected: device.value, hovered: hovered.value };
  const [canvas, size] = useCanvas(
    (pen, width, height) => drawMap(pen, width, height, shown),
    [fleet.value, layout, zoom, device.value, hovered.value],
  );
  const counts = useMemo(() => countStates(columns.status), [fleet.value]);

  const nearest = (event) => {
    const box = canvas.current.getBoundingClientRect();
    const place = projection(layout, size.width, size.height, zoom);
    const radius = radiusOf(columns, place);
    let [best, least] = [null, Infinity];
    for (let one = 0; one < many; one += 1) {
      const away = Math.hypot(place.x(layout.x[one]) - event.clientX + box.left, place.y(layout.y[one]) - event.clientY + box.top);
      if (away - radius(one) < least) [best, least] = [one, away - radius(one)];
    }
    return least <= 8 ? best : null;
  };
  const zoomBy = (factor) => setZoom((old) => {
    const by = Math.min(Math.max(old.by * factor, 1), 40);
    return by === 1 ? AS_FITTED : { by, x: (old.x * by) / old.by, y: (old.y * by) / old.by };
  });
  const onMove = (event) => {
    if (drag.current === null) {
      hovered.value = nearest(event);
      return;
    }
    const { x, y, from } = drag.current;
    if (Math.hypot(event.clientX - x, event.clientY - y) > 4) drag.current.moved = true;
    if (drag.current.moved) setZoom({ by: from.by, x: from.x + event.clientX - x, y: from.y + event.clientY - y });
  };
  const onUp = (event) => {
    const moved = drag.current?.moved;
    drag.current = null;
    if (!moved) device.value = nearest(event);
  };
  const onKey = (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step !== undefined) hovered.value = ((hovered.value ?? device.value ?? -step) + step + many) % many;
    else if (event.key === "Enter" && hovered.value !== null) device.value = hovered.value;
    else if (event.key === "+" || event.key === "=") zoomBy(1.5);
    else if (event.key === "-") zoomBy(1 / 1.5);
    else if (event.key === "0") setZoom(AS_FITTED);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  return html`<section class="card map" aria-labelledby="map-title">
    <header class="card-head">
      <h2 id="map-title">Map</h2>
      <${Legend} counts=${counts} />
      <div class="step" role="group" aria-label="Zoom">
        <button type="button" onClick=${() => zoomBy(1.5)} aria-label="Closer">+</button>
        <button type="button" onClick=${() => zoomBy(1 / 1.5)} aria-label="Farther">−</button>
        <button type="button" onClick=${() => setZoom(AS_FITTED)} aria-label="Whole fleet" disabled=${zoom === AS_FITTED}>⤢</button>
      </div>
    </header>
    <div class="map-body">
      <canvas ref=${canvas} class="map-canvas" tabindex="0" role="img"
        aria-label=${`Map of ${plural(many, "device")}: ${spoken(counts)}. Arrow keys walk through the devices, Enter opens one.`}
        onPointerDown=${(event) => { drag.current = { x: event.clientX, y: event.clientY, from: zoom, moved: false }; }}
        onPointerMove=${onMove} onPointerUp=${onUp}
        onPointerLeave=${() => { hovered.value = null; drag.current = null; }}
        onBlur=${() => { hovered.value = null; }}
        onKeyDown=${onKey} onWheel=${(event) => { if (event.ctrlKey) { event.preventDefault(); zoomBy(event.deltaY < 0 ? 1.2 : 1 / 1.2); } }}></canvas>
      <${Tip} layout=${layout} zoom=${zoom} size=${size} />
    </div>
    <p class="note">${layout.note ? `${layout.note} ` : ""}Size is the virtual queue, up to ${largestQueue(columns)}.</p>
  </section>`;
}

function Legend({ counts }) {
  return html`<ul class="legend" aria-label="States">
    ${statesInOrder(counts).map(([status, many]) => html`<li key=${status}><${Glyph} status=${status} />${lookOf(status).label} <b>${count(many)}</b></li>`)}
  </ul>`;
}

function Tip({ layout, zoom, size }) {
  const one = hovered.value;
  const { columns } = fleet.value;
  if (one === null || size === null || one >= columns.name.length) return html`<div class="tip" role="status" aria-live="polite" hidden></div>`;
  const place = projection(layout, size.width, size.height, zoom);
  const [x, y] = [place.x(layout.x[one]), place.y(layout.y[one])];
  const left = Math.min(Math.max(x + 14, 4), Math.max(size.width - 190, 4));
  const top = y > size.height - 90 ? y - 84 : y + 12;
  return html`<div class="tip" role="status" aria-live="polite" style=${{ left: `${left}px`, top: `${top}px` }}>
    <strong>${columns.name[one]}</strong>
    <span><${Glyph} status=${columns.status[one]} /> ${lookOf(columns.status[one]).label}</span>
    <span>queue ${number(columns.queue[one])} samples</span>
    <span>mean cost ${number(columns.mean_cost[one])}, chosen ${count(columns.selections[one])}×</span>
  </div>`;
}

function largestQueue({ queue }) {
  const most = queue.reduce((largest, one) => Math.max(largest, one ?? 0), 0);
  return `${number(most)} ${most === 1 ? "sample" : "samples"}`;
}

export function countStates(status) {
  const counts = new Map();
  for (const one of status) counts.set(one, (counts.get(one) ?? 0) + 1);
  return counts;
}

const spoken = (counts) => statesInOrder(counts).map(([status, many]) => `${many} ${lookOf(status).label}`).join(", ");
