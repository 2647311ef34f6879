// The fleet in words: sorted, filtered, and only as many rows in the document as can be seen.
import { count, plural } from "./format.js";
import { html, useEffect, useMemo, useRef, useState } from "./html.js";
import { countStates } from "./map.js";
import { Glyph, lookOf, statesInOrder } from "./palette.js";
import { device, fleet, hovered } from "./state.js";
import { COLUMNS, rowsOf } from "./table_rows.js";

const ROW_PX = 32;
const SPARE = 8;

export function FleetTable() {
  const { columns } = fleet.value;
  const [text, setText] = useState("");
  const [status, setStatus] = useState("");
  const [sort, setSort] = useState(null);
  const rows = useMemo(() => rowsOf(columns, { text, status, sort }), [fleet.value, text, status, sort]);
  const box = useRef(null);
  const [seen, setSeen] = useState({ top: 0, height: 480 });
  const look = () => box.current && setSeen({ top: box.current.scrollTop, height: box.current.clientHeight });
  useEffect(() => {
    const observer = new ResizeObserver(look);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    const at = rows.indexOf(device.value);
    if (at < 0) return;
    const top = at * ROW_PX;
    const { scrollTop, clientHeight } = box.current;
    if (top < scrollTop || top + 2 * ROW_PX > scrollTop + clientHeight) box.current.scrollTop = Math.max(top - clientHeight / 2, 0);
  }, [device.value]);

  const first = Math.max(Math.floor(seen.top / ROW_PX) - SPARE, 0);
  const last = Math.min(Math.ceil((seen.top + seen.height) / ROW_PX) + SPARE, rows.length);
  const states = statesInOrder(countStates(columns.status));
  const noneTrusted = columns.trusted?.some((one) => one === false);
  const walk = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step === undefined || !event.target.dataset.place) return;
    event.preventDefault();
    event.stopPropagation();
    const place = Math.min(Math.max(Number(event.target.dataset.place) + step, 0), rows.length - 1);
    const top = place * ROW_PX;
    const { scrollTop, clientHeight } = box.current;
    if (top < scrollTop) box.current.scrollTop = top;
    if (top + 2 * ROW_PX > scrollTop + clientHeight) box.current.scrollTop = top + 2 * ROW_PX - clientHeight;
    look();
    requestAnimationFrame(() => box.current?.querySelector(`[data-place="${place}"]`)?.focus());
  };

  return html`<section class="card table-card" aria-labelledby="table-title">
    <header class="card-head">
      <h2 id="table-title">Devices</h2>
      <p class="muted small" role="status">${rows.length < columns.name.length ? `${count(rows.length)} of ` : ""}${plural(columns.name.length, "device")}</p>
      <div class="filters">
        <input type="search" id="filter" placeholder="Name" aria-label="Filter by name" value=${text} onInput=${(event) => setText(event.target.value)} />
        <select aria-label="Filter by state" value=${status} onChange=${(event) => setStatus(event.target.value)}>
          <option value="">All states</option>
          ${states.map(([name]) => html`<option key=${name} value=${name}>${lookOf(name).label}</option>`)}
          ${noneTrusted && html`<option value="untrusted">predictions fail</option>`}
        </select>
      </div>
    </header>
    <div class="table-box" ref=${box} onScroll=${look} tabindex="0" role="region" aria-labelledby="table-title">
      <table class="grid" aria-rowcount=${rows.length + 1}>
        <thead><tr aria-rowindex="1">${COLUMNS.map((column) => html`<${Head} key=${column.key} column=${column} sort=${sort} setSort=${setSort} />`)}</tr></thead>
        <tbody onKeyDown=${walk}>
          <${Space} rows=${first} />
          ${rows.slice(first, last).map((one, place) => html`<${Row} key=${one} one=${one} place=${first + place} columns=${columns} />`)}
          <${Space} rows=${rows.length - last} />
        </tbody>
      </table>
      ${rows.length === 0 && html`<p class="says">No device fits this filter.</p>`}
    </div>
  </section>`;
}

// As high as the rows that are not in the document.
function Space({ rows }) {
  if (rows === 0) return null;
  return html`<tr aria-hidden="true" class="spacer"><td colspan=${COLUMNS.length} style=${{ height: `${rows * ROW_PX}px` }}></td></tr>`;
}

function Head({ column, sort, setSort }) {
  const mine = sort?.key === column.key;
  const turn = () => setSort(!mine ? { key: column.key, up: true } : sort.up ? { key: column.key, up: false } : null);
  return html`<th scope="col" aria-sort=${mine ? (sort.up ? "ascending" : "descending") : "none"} class=${column.key}>
    <button type="button" onClick=${turn}>${column.title}
      ${mine && html`<span class="arrow" aria-hidden="true">${sort.up ? " ▲" : " ▼"}</span>`}
      ${column.unit && html` <span class="unit">${column.unit}</span>`}</button>
  </th>`;
}

function Row({ one, place, columns }) {
  return html`<tr aria-rowindex=${place + 2} class=${`row${device.value === one ? " chosen" : ""}${hovered.value === one ? " hovered" : ""}`}
    onClick=${() => { device.value = one; }} onPointerEnter=${() => { hovered.value = one; }} onPointerLeave=${() => { hovered.value = null; }}>
    ${COLUMNS.map((column) => {
      const value = columns[column.key]?.[one];
      if (column.key === "name") return html`<${Name} value=${value} place=${place} one=${one} failing=${columns.trusted?.[one] === false} />`;
      if (column.key === "status") return html`<td class="status"><${Glyph} status=${value} />${column.text(value)}</td>`;
      return html`<td class=${`figure ${column.key}`}>${column.text(value)}</td>`;
    })}
  </tr>`;
}

function Name({ value, place, one, failing }) {
  return html`<th scope="row" class="name"><button type="button" class="plain" data-place=${place} data-device=${one}>${value}</button>
    ${failing && html`<span class="failing" title="Its predictions fail">⚠<span class="unseen"> predictions fail</span></span>`}</th>`;
}
