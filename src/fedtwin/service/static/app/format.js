// Numbers for people. A number that is not known is a dash, never a zero.
const DASH = "–";
const THIN = "\u202f";

const known = (value) => typeof value === "number" && Number.isFinite(value);

export function number(value, digits = 3) {
  if (!known(value)) return DASH;
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return count(value);
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) return withPower(value, digits);
  const decimals = Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
  return grouped(value.toFixed(Math.min(decimals, 6)));
}

export function count(value) {
  return known(value) ? grouped(String(Math.round(value))) : DASH;
}

function grouped(text) {
  const [whole, rest] = text.replace("-", "−").split(".");
  const spaced = whole.length > 4 + (whole[0] === "−") ? whole.replace(/\B(?=(\d{3})+$)/g, THIN) : whole;
  return rest === undefined ? spaced : `${spaced}.${rest}`;
}

const RAISED = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

function withPower(value, digits) {
  const [mantissa, power] = value.toExponential(digits - 1).split("e");
  const raised = [...power.replace("+", "")].map((sign) => RAISED[sign]).join("");
  return `${mantissa.replace("-", "−")}·10${raised}`;
}

export function seconds(value) {
  if (!known(value)) return DASH;
  if (value < 1000) return `${grouped(value.toFixed(value < 100 ? 2 : 1))} s`;
  const whole = Math.floor(value);
  const two = (part) => String(part).padStart(2, "0");
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor(whole / 60) % 60;
  return hours ? `${grouped(String(hours))} h ${two(minutes)} min` : `${minutes} min ${two(whole % 60)} s`;
}

export function age(value) {
  if (!known(value)) return DASH;
  if (value < 0.05) return "now";
  if (value < 60) return `${value.toFixed(value < 10 ? 1 : 0)} s`;
  if (value < 3600) return `${(value / 60).toFixed(value < 600 ? 1 : 0)} min`;
  return `${(value / 3600).toFixed(1)} h`;
}

export const percent = (value) => (known(value) ? `${(100 * value).toFixed(1)} %` : DASH);
export const hertz = (value) => (known(value) ? `${(value / 1e9).toFixed(2)} GHz` : DASH);
export const decibel = (value) => (known(value) && value > 0 ? `${(10 * Math.log10(value)).toFixed(1).replace("-", "−")} dB` : DASH);

// By the unit that the server names; a bare number where it names none.
export function quantity(value, unit) {
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "string") return value;
  if (!known(value)) return DASH;
  if (unit === "Hz") return hertz(value);
  return unit && unit !== "1" ? `${number(value, 4)} ${unit}` : number(value, 4);
}

export const plural = (many, one, more = `${one}s`) => `${count(many)} ${many === 1 ? one : more}`;
