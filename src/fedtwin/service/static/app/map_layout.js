// Where every device is drawn, in metres from the edge server; and what is not known of that.
const GOLDEN = Math.PI * (3 - Math.sqrt(5));
const ON_ONE_RING = 36;

export function layoutOf(places, many) {
  if (places?.known === "position") {
    const [x, y] = [Float64Array.from(places.x_m, orZero), Float64Array.from(places.y_m, orZero)];
    return { x, y, metres: true, note: null };
  }
  if (places?.known === "distance") {
    const distances = Float64Array.from(places.distance_m, orZero);
    const x = distances.map((metres, number) => metres * Math.cos(number * GOLDEN));
    const y = distances.map((metres, number) => metres * Math.sin(number * GOLDEN));
    return { x, y, metres: true, note: "Distances are as recorded; directions are not in the records and are drawn evenly." };
  }
  const turn = (number) => (many <= ON_ONE_RING ? (2 * Math.PI * number) / many - Math.PI / 2 : number * GOLDEN);
  const radius = (number) => (many <= ON_ONE_RING ? 1 : Math.sqrt((number + 3) / (many + 3)));
  const numbers = Float64Array.from({ length: many }, (_, number) => number);
  return {
    x: numbers.map((number) => radius(number) * Math.cos(turn(number))),
    y: numbers.map((number) => -radius(number) * Math.sin(turn(number))),
    metres: false,
    note: "The records have no positions: devices are in the order of their numbers.",
  };
}

const orZero = (value) => value ?? 0;

// Metres to pixels: all devices and the edge server in the middle of the picture, then zoomed and moved by the viewer.
export function projection(layout, width, height, zoom) {
  const edges = { left: 0, right: 0, top: 0, bottom: 0 };
  for (let number = 0; number < layout.x.length; number += 1) {
    edges.left = Math.min(edges.left, layout.x[number]);
    edges.right = Math.max(edges.right, layout.x[number]);
    edges.top = Math.max(edges.top, layout.y[number]);
    edges.bottom = Math.min(edges.bottom, layout.y[number]);
  }
  const margin = 34;
  const wide = Math.max(edges.right - edges.left, 1e-9);
  const high = Math.max(edges.top - edges.bottom, 1e-9);
  const scale = Math.max(Math.min((width - 2 * margin) / wide, (height - 2 * margin) / high), 1e-9) * zoom.by;
  const [middleX, middleY] = [(edges.left + edges.right) / 2, (edges.top + edges.bottom) / 2];
  return {
    scale,
    area: wide * high * scale * scale,
    x: (metres) => width / 2 + zoom.x + (metres - middleX) * scale,
    y: (metres) => height / 2 + zoom.y - (metres - middleY) * scale,
  };
}

// Round distances for the rings, two to five of them.
export function ringsOf(layout) {
  let farthest = 0;
  for (let number = 0; number < layout.x.length; number += 1) {
    farthest = Math.max(farthest, Math.hypot(layout.x[number], layout.y[number]));
  }
  if (!layout.metres || farthest === 0) return [];
  const power = 10 ** Math.floor(Math.log10(farthest));
  const step = [0.2, 0.5, 1, 2, 5].map((part) => part * power).find((metres) => farthest / metres <= 5) ?? power;
  return Array.from({ length: Math.ceil(farthest / step) }, (_, ring) => (ring + 1) * step);
}
