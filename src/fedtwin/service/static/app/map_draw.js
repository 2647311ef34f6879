// Draws the fleet: rings of distance, the edge server, who is in flight, every device by its state and its queue.
import { FONT, fitted } from "./canvas.js";
import { number } from "./format.js";
import { projection, ringsOf } from "./map_layout.js";
import { colours, lookOf } from "./palette.js";

const NAMED_UP_TO = 40;
const TINTS = ["in-flight", "idle", "offline", "quarantined", "drained", "backed-off", "cut", "other"].map((key) => `state-${key}`);

// The most that leaves neighbours apart, as far as the scale allows; the area between least and most is the queue.
export function radiusOf(columns, place) {
  const largest = columns.queue.reduce((most, queue) => Math.max(most, queue ?? 0), 0);
  const most = Math.min(Math.max(0.42 * Math.sqrt(place.area / columns.name.length), 2), 15);
  const least = most * 0.35;
  return (device) => least + (most - least) * Math.sqrt(largest > 0 ? (columns.queue[device] ?? 0) / largest : 0);
}

export function drawMap(pen, width, height, { layout, columns, zoom, selected, hovered }) {
  const tint = colours(...TINTS, "text", "muted", "line", "accent", "surface", "warn");
  const place = projection(layout, width, height, zoom);
  const many = columns.name.length;
  const radius = radiusOf(columns, place);
  pen.font = FONT;
  const named = many <= NAMED_UP_TO;
  const rings = ringsOf(layout);
  drawRings(pen, place, rings, tint);
  drawTasks(pen, place, layout, columns, tint);
  drawEdge(pen, place, tint);
  for (const idle of [true, false]) {
    for (let device = 0; device < many; device += 1) {
      if ((columns.status[device] === "idle") !== idle) continue;
      drawDevice(pen, place.x(layout.x[device]), place.y(layout.y[device]), radius(device), columns, device, tint);
    }
  }
  const labels = labelRings(pen, place, rings, tint, named ? layout : null, width, height);
  for (const device of [hovered, selected]) if (device !== null && device < many) mark(pen, place, layout, radius, device, tint);
  if (named) drawNames(pen, place, layout, columns, radius, tint, { width, height, labels, marked: [selected, hovered] });
}

function drawRings(pen, place, rings, tint) {
  pen.strokeStyle = tint.line;
  pen.lineWidth = 1;
  for (const metres of rings) {
    pen.beginPath();
    pen.arc(place.x(0), place.y(0), metres * place.scale, 0, 2 * Math.PI);
    pen.stroke();
  }
}

// Gives back the boxes of the labels. They go into the direction in which they lie on the fewest devices.
function labelRings(pen, place, rings, tint, layout, width, height) {
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  const turn = freest(place, rings, layout);
  const boxes = [];
  for (const metres of rings) {
    const label = `${number(metres)} m`;
    const [x, y] = [place.x(metres * Math.cos(turn)), place.y(metres * Math.sin(turn))];
    if (y > height - 7 || y < 7 || x < 20 || x > width - 20) continue;
    const half = pen.measureText(label).width / 2 + 3;
    pen.globalAlpha = 0.85;
    pen.fillStyle = tint.surface;
    pen.fillRect(x - half, y - 7, 2 * half, 14);
    pen.globalAlpha = 1;
    pen.fillStyle = tint.muted;
    pen.fillText(label, x, y);
    boxes.push([x - half, y - 7, x + half, y + 7]);
  }
  return boxes;
}

function freest(place, rings, layout) {
  if (layout === null) return -Math.PI / 2;
  let [best, fewest] = [0, Infinity];
  for (let step = 0; step < 24; step += 1) {
    const turn = -Math.PI / 2 + (step * Math.PI) / 12;
    let near = 0;
    for (const metres of rings) {
      const [x, y] = [metres * Math.cos(turn), metres * Math.sin(turn)];
      layout.x.forEach((one, device) => {
        const [across, down] = [Math.abs(one - x) * place.scale, Math.abs(layout.y[device] - y) * place.scale];
        if (across < 60 && down < 26) near += 1;
      });
    }
    if (near < fewest) [best, fewest] = [turn, near];
  }
  return best;
}

function drawTasks(pen, place, layout, columns, tint) {
  pen.strokeStyle = tint["state-in-flight"];
  pen.globalAlpha = columns.name.length > 200 ? 0.25 : 0.45;
  pen.lineWidth = 1;
  pen.setLineDash([3, 3]);
  pen.beginPath();
  columns.status.forEach((status, device) => {
    if (lookOf(status).key !== "in-flight") return;
    pen.moveTo(place.x(0), place.y(0));
    pen.lineTo(place.x(layout.x[device]), place.y(layout.y[device]));
  });
  pen.stroke();
  pen.setLineDash([]);
  pen.globalAlpha = 1;
}

function drawEdge(pen, place, tint) {
  pen.fillStyle = tint.text;
  pen.strokeStyle = tint.surface;
  pen.lineWidth = 2;
  pen.beginPath();
  pen.roundRect(place.x(0) - 6, place.y(0) - 6, 12, 12, 3);
  pen.fill();
  pen.stroke();
}

const paths = new Map();

function pathOf(look) {
  if (!paths.has(look.path)) paths.set(look.path, new Path2D(look.path));
  return paths.get(look.path);
}

function drawDevice(pen, x, y, size, columns, device, tint) {
  const look = lookOf(columns.status[device]);
  const colour = tint[`state-${look.key}`];
  pen.save();
  pen.translate(x, y);
  pen.scale(size, size);
  pen.lineWidth = Math.min(1.6, size / 2) / size;
  pen.lineJoin = "round";
  pen.fillStyle = pen.strokeStyle = colour;
  pen.globalAlpha = look.fill;
  if (look.fill) pen.fill(pathOf(look));
  pen.globalAlpha = 1;
  pen.stroke(pathOf(look));
  if (columns.trusted?.[device] === false) {
    pen.strokeStyle = tint.warn;
    pen.setLineDash([3 / size, 2 / size]);
    pen.beginPath();
    pen.arc(0, 0, 1 + 4 / size, 0, 2 * Math.PI);
    pen.stroke();
  }
  pen.restore();
}

function mark(pen, place, layout, radius, device, tint) {
  pen.strokeStyle = tint.accent;
  pen.lineWidth = 2;
  pen.beginPath();
  pen.arc(place.x(layout.x[device]), place.y(layout.y[device]), radius(device) + 6, 0, 2 * Math.PI);
  pen.stroke();
}

// A name is left out where it would lie on another one or on a device.
function drawNames(pen, place, layout, columns, radius, tint, { width, height, labels, marked }) {
  const boxes = columns.name.map((_, device) => {
    const [x, y, r] = [place.x(layout.x[device]), place.y(layout.y[device]), radius(device) + (marked.includes(device) ? 6 : 0)];
    return [x - r, y - r, x + r, y + r];
  });
  boxes.push(...labels, [place.x(0) - 8, place.y(0) - 8, place.x(0) + 8, place.y(0) + 8]);
  pen.fillStyle = tint.muted;
  pen.textBaseline = "middle";
  pen.textAlign = "left";
  columns.name.forEach((name, device) => {
    const text = fitted(pen, shortName(name), 96);
    const wide = pen.measureText(text).width;
    const [left, top, right, bottom] = boxes[device];
    const middle = (left + right) / 2;
    const tries = [
      [right + 4, (top + bottom) / 2],
      [left - 4 - wide, (top + bottom) / 2],
      [middle - wide / 2, bottom + 8],
      [middle - wide / 2, top - 8],
    ];
    for (const [x, y] of tries) {
      const box = [x - 2, y - 7, x + wide + 2, y + 7];
      if (box[0] < 2 || box[2] > width - 2 || box[1] < 2 || box[3] > height - 2) continue;
      if (boxes.some((other, owner) => owner !== device && overlap(box, other))) continue;
      boxes.push(box);
      pen.fillText(text, x, y);
      break;
    }
  });
}

const overlap = (a, b) => a[0] < b[2] && a[2] > b[0] && a[1] < b[3] && a[3] > b[1];

// Devices without a name of their own are numbers on the map.
export const shortName = (name) => String(name).replace(/^device-(\d+)$/, "$1");
