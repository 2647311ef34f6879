// Before the first paint: the theme that was chosen here last, or the system's.
(() => {
  let chosen = "system";
  try {
    chosen = localStorage.getItem("fedtwin.theme") ?? "system";
  } catch {
    // Without storage the system's theme holds.
  }
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.choice = chosen;
  document.documentElement.dataset.theme = chosen === "light" || chosen === "dark" ? chosen : dark ? "dark" : "light";
})();
