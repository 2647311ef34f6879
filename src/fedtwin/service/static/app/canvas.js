// A canvas that is as sharp as the screen, and is drawn anew when its size, the theme or what it shows has changed.
import { useEffect, useLayoutEffect, useRef, useState } from "./html.js";
import { darkness } from "./theme.js";

export function useCanvas(draw, watched) {
  const canvas = useRef(null);
  const [size, setSize] = useState(null);
  const dark = darkness.value;
  useEffect(() => {
    const node = canvas.current;
    const observer = new ResizeObserver(() => setSize({ width: node.clientWidth, height: node.clientHeight }));
    observer.observe(node);
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(() => {
    if (size === null || size.width === 0) return;
    const node = canvas.current;
    const scale = window.devicePixelRatio || 1;
    const [width, height] = [Math.round(size.width * scale), Math.round(size.height * scale)];
    if (node.width !== width || node.height !== height) [node.width, node.height] = [width, height];
    const pen = node.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, size.width, size.height);
    draw(pen, size.width, size.height);
  }, [size, dark, ...watched]);
  return [canvas, size];
}

export const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';

// As much of the text as fits.
export function fitted(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let kept = text.slice(0, 40);
  while (kept.length > 1 && pen.measureText(`${kept}…`).width > width) kept = kept.slice(0, -1);
  return pen.measureText(`${kept}…`).width <= width ? `${kept}…` : "";
}
