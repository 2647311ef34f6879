// Talks to the server: JSON in and out, and every failure one sentence.
import { useEffect, useState } from "./html.js";

export class Failure extends Error {
  constructor(sentence, status) {
    super(sentence);
    this.status = status;
  }
}

export async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure("The server does not answer. Is fedtwin serve still running?", 0);
  }
  const text = await response.text();
  let data = null;
  try {
    data = text === "" ? null : JSON.parse(text);
  } catch {
    throw new Failure(`The server answered ${response.status} with something that is no JSON.`, response.status);
  }
  if (!response.ok) throw new Failure(data?.error ?? `The server answered ${response.status}.`, response.status);
  return data;
}

export const send = (path, body, options = {}) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), ...options });

export const runPath = (run, rest = "") => `/api/runs/${encodeURIComponent(run)}${rest}`;
export const thingPath = (run, name, rest = "") => `/api/2/things/${encodeURIComponent(`${run}:${name}`)}${rest}`;

const NOTHING = { data: null, error: null, loading: true, of: null };

// What is at a path, asked again when the path or `pulse` changes. While the next answer is on its way the last one of the same
// `subject` stays; that of another subject does not.
export function useAnswer(path, { subject = null, pulse = 0 } = {}) {
  const [state, setState] = useState(NOTHING);
  useEffect(() => {
    if (path === null) {
      setState({ ...NOTHING, loading: false });
      return undefined;
    }
    const control = new AbortController();
    setState((old) => (old.of === subject ? { ...old, loading: true } : NOTHING));
    ask(path, { signal: control.signal }).then(
      (data) => setState({ data, error: null, loading: false, of: subject }),
      (error) => {
        if (error.name !== "AbortError") setState({ data: null, error: error.message, loading: false, of: subject });
      },
    );
    return () => control.abort();
  }, [path, subject, pulse]);
  return state;
}
