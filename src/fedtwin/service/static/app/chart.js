// A line chart over the run's clock. Lines: { label, xs, ys, colour, dash, low, high }; colours are names in the style sheet.
import uPlot from "../vendor/uplot.js";
import { number } from "./format.js";
import { html, useEffect, useRef } from "./html.js";
import { colours } from "./palette.js";
import { darkness } from "./theme.js";

const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';

export function Chart({ lines, height = 150, unit, xUnit = "s", at = null, onTravel = null, together = null, spoken, points = false }) {
  const box = useRef(null);
  const plot = useRef(null);
  const line = useRef(at);
  const travel = useRef(onTravel);
  travel.current = onTravel;
  line.current = at;
  const shape = JSON.stringify([lines.map(({ label, colour, dash, low }) => [label, colour, dash, Boolean(low)]), unit, xUnit, height, points]);
  const dark = darkness.value;
  useEffect(() => {
    const node = box.current;
    const options = optionsOf({ lines, height, unit, xUnit, together, points, line, travel, width: Math.max(node.clientWidth, 50) });
    plot.current = new uPlot(options, tableOf(lines), node);
    const observer = new ResizeObserver(() => plot.current?.setSize({ width: Math.max(node.clientWidth, 50), height }));
    observer.observe(node);
    return () => {
      observer.disconnect();
      plot.current.destroy();
      plot.current = null;
    };
  }, [shape, dark]);
  useEffect(() => plot.current?.setData(tableOf(lines)), [lines]);
  useEffect(() => plot.current?.redraw(false), [at]);
  return html`<div ref=${box} class="chart" role="img" aria-label=${spoken} style=${{ minHeight: `${height}px` }}></div>`;
}

// All lines over one axis; a line that has a band is three columns.
function tableOf(lines) {
  const tables = lines.map(({ xs, ys, low, high }) => (low ? [xs, ys, low, high] : [xs, ys]));
  return tables.length === 1 ? tables[0] : uPlot.join(tables);
}

function optionsOf({ lines, height, unit, xUnit, together, points, line, travel, width }) {
  const tint = colours("text", "muted", "line", "accent", ...lines.map(({ colour }) => colour));
  const series = [{ label: xUnit }];
  const bands = [];
  for (const { label, colour, dash = [], low } of lines) {
    series.push({ label, stroke: tint[colour], width: 1.75, dash, spanGaps: true, points: { show: points, size: 4, fill: tint[colour] } });
    if (!low) continue;
    const edge = { stroke: "transparent", width: 0, spanGaps: true, points: { show: false } };
    series.push({ ...edge, label: `${label}, low` }, { ...edge, label: `${label}, high` });
    bands.push({ series: [series.length - 1, series.length - 2], fill: faint(tint[colour]) });
  }
  const axis = { stroke: tint.muted, grid: { stroke: tint.line, width: 1 }, ticks: { show: false }, font: FONT, labelFont: FONT };
  const values = (_, ticks) => ticks.map(tick);
  return {
    width,
    height,
    series,
    bands,
    legend: { show: false },
    scales: { x: { time: false }, y: { range: rangeOf } },
    axes: [
      { ...axis, grid: { show: false }, values, label: xUnit, labelSize: 15, labelGap: 0, size: 24, gap: 4, space: 60 },
      { ...axis, values, label: unit, labelSize: 15, labelGap: 2, size: widthOf, gap: 4, space: 28 },
    ],
    padding: [8, 12, 0, 0],
    cursor: { drag: { x: false, y: false }, points: { size: 6 }, ...(together ? { sync: { key: together } } : {}) },
    hooks: {
      draw: [(plot) => drawMoment(plot, line.current, tint.accent)],
      ready: [(plot) => plot.over.addEventListener("click", () => {
        const { left } = plot.cursor;
        if (left >= 0) travel.current?.(plot.posToVal(left, "x"));
      })],
    },
  };
}

const faint = (colour) => (colour.startsWith("#") ? `${colour.slice(0, 7)}2e` : colour);

function rangeOf(_, low, high) {
  if (low === null || high === null) return [0, 1];
  if (low === high) return [low - Math.abs(low || 1) * 0.1, high + Math.abs(high || 1) * 0.1];
  const room = (high - low) * 0.08;
  return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
}

function tick(value) {
  if (value === null) return "";
  const size = Math.abs(value);
  if (size >= 1e9) return `${trimmed(value / 1e9)} G`;
  if (size >= 1e6) return `${trimmed(value / 1e6)} M`;
  if (size >= 1e4) return `${trimmed(value / 1e3)} k`;
  return size !== 0 && size < 1e-3 ? number(value, 2) : trimmed(value);
}

const trimmed = (value) => String(Number(value.toPrecision(6))).replace("-", "−");

function widthOf(_, texts) {
  return 10 + 6.2 * (texts ?? []).reduce((longest, text) => Math.max(longest, text.length), 2);
}

function drawMoment(plot, seconds, colour) {
  if (seconds === null || seconds === undefined) return;
  const x = plot.valToPos(seconds, "x", true);
  const { left, top, width, height } = plot.bbox;
  if (x < left || x > left + width) return;
  const pen = plot.ctx;
  pen.save();
  pen.strokeStyle = colour;
  pen.lineWidth = window.devicePixelRatio || 1;
  pen.beginPath();
  pen.moveTo(x, top);
  pen.lineTo(x, top + height);
  pen.stroke();
  pen.restore();
}
