// What moves on a page: progress by server-sent events, the estimate of a form, and keys. Every page works without it.
"use strict";

const REFRESH_MS = 2000;

function duration(seconds) {
  if (seconds < 100) return `${Math.round(seconds)} s`;
  return seconds < 6000 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

function showProgress(event) {
  const { job, progress } = JSON.parse(event.data);
  const shown = document.querySelector(`.progress[data-job="${CSS.escape(job)}"]`);
  if (!shown || !progress) return;
  const done = progress.fraction ?? 0;
  shown.querySelector("progress").value = done;
  const left = progress.eta_s == null ? "" : `, about ${duration(progress.eta_s)} left`;
  shown.querySelector(".said").textContent =
    `${Math.round(100 * done)} %, run ${progress.run} of ${progress.runs}, ${progress.phase}${left}`;
}

// Replace what the page shows by what the server shows now; open parts stay open.
async function refresh(live) {
  const response = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!response.ok) return;
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
  const next = fresh.getElementById("main");
  document.title = fresh.title;
  document.getElementById("main").replaceWith(next);
  const now = next.querySelector("[data-events]");
  if (!now && live.source) live.source.close();
}

function follow(path) {
  const live = { source: new EventSource(path), due: null };
  const soon = () => {
    live.due ??= setTimeout(() => { live.due = null; refresh(live); }, REFRESH_MS * (0.25 + Math.random() / 2));
  };
  live.source.addEventListener("progress", showProgress);
  live.source.addEventListener("status", soon);
  window.addEventListener("pagehide", () => live.source.close());
}

// The estimate of a form, as its fields stand.
function estimate(form) {
  const said = form.querySelector(".estimate");
  let due = null;
  const ask = async () => {
    const response = await fetch(`${form.action}/estimate`, { method: "POST", body: new URLSearchParams(new FormData(form)) });
    said.textContent = response.ok || response.status === 422 ? await response.text() : "";
  };
  form.addEventListener("input", () => { clearTimeout(due); due = setTimeout(ask, 400); });
  ask();
}

function moveInList(step) {
  const links = [...document.querySelectorAll("main td:first-child a, main li > a")];
  const at = links.indexOf(document.activeElement);
  links[Math.min(Math.max(at + step, 0), links.length - 1)]?.focus();
}

document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "j" || event.key === "k") moveInList(event.key === "j" ? 1 : -1);
  if (event.key === "/") {
    const search = document.querySelector('[role="search"] select, [role="search"] input');
    event.preventDefault();
    search ? search.focus() : location.assign("/jobs");
  }
});

const followed = document.querySelector("[data-events]");
if (followed) follow(followed.dataset.events);
const form = document.querySelector("form[data-estimate]");
if (form) estimate(form);
