// Live parts of pages: progress by server-sent events, estimates in forms, and shortcuts. All pages work without this.
"use strict";

const REFRESH_MS = 2000;
const FOLLOW_AGAIN_MS = 15000;

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

// A selector that finds the same link, button or checkbox in a newer version of the page.
function selectorOf(element) {
  if (element.matches("button")) return `form[action="${CSS.escape(element.form.getAttribute("action"))}"] button`;
  const name = element.matches("a") ? "href" : "value";
  return `${element.localName}[${name}="${CSS.escape(element.getAttribute(name) ?? "")}"]`;
}

// Replace the content of the page with the server's current version. Open parts stay open, chosen results stay chosen,
// and the focused link keeps the focus.
async function refresh() {
  const main = document.getElementById("main");
  if (main.contains(document.activeElement) && document.activeElement.matches("select, input:not([type=checkbox])")) return true;
  const response = await fetch(location.href, { headers: { Accept: "text/html", "X-Dyno-Refresh": "1" } }).catch(() => null);
  if (response?.redirected || response?.status === 404) {  // the session has ended, or the job was deleted
    location.reload();
    return true;
  }
  if (!response?.ok) return false;
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
  const next = fresh.getElementById("main");
  const open = [...main.querySelectorAll("details")].filter((each) => each.open).map((each) => each.querySelector("summary").textContent);
  const focused = main.contains(document.activeElement) && selectorOf(document.activeElement);
  for (const each of next.querySelectorAll("details")) {
    if (open.includes(each.querySelector("summary").textContent)) each.open = true;
  }
  for (const each of main.querySelectorAll("input[type=checkbox]:checked")) {
    next.querySelector(selectorOf(each))?.setAttribute("checked", "");
  }
  if (document.title !== fresh.title) document.getElementById("news").textContent = fresh.title;  // for screen readers
  document.title = fresh.title;
  main.replaceWith(next);
  if (focused) next.querySelector(focused)?.focus();
  return true;
}

// A hidden tab follows no events: a browser opens only a few connections to one server.
const live = { source: null, due: null };

function follow() {
  const followed = document.querySelector("[data-events]");
  if (!followed || live.source || document.hidden) return;
  live.source = new EventSource(followed.dataset.events);
  live.source.addEventListener("progress", showProgress);
  live.source.addEventListener("status", soon);
  if ("figures" in followed.dataset) live.source.addEventListener("partial_metric", soon);
  live.source.addEventListener("error", () => {
    if (live.source?.readyState !== EventSource.CLOSED) return;  // the browser reconnects
    stop();  // the service refused: the session has ended, or too many streams are open
    soon();
    setTimeout(follow, FOLLOW_AGAIN_MS);
  });
}

function stop() {
  live.source?.close();
  live.source = null;
}

function soon() {
  live.due ??= setTimeout(async () => {
    live.due = null;
    const done = await refresh();
    if (!done) soon();
    else if (!document.querySelector("[data-events]")) stop();
  }, REFRESH_MS * (0.25 + Math.random() / 2));
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) return stop();
  if (document.querySelector("[data-events]")) soon();
  follow();
});
window.addEventListener("pagehide", stop);
window.addEventListener("pageshow", (event) => { if (event.persisted) { soon(); follow(); } });

// Show the estimate for the current values of a form.
function estimate(form) {
  const said = form.querySelector(".estimate");
  let due = null;
  const ask = async () => {
    const response = await fetch(`${form.action}/estimate`, { method: "POST", body: new URLSearchParams(new FormData(form)) });
    const answers = !response.redirected && (response.ok || response.status === 422);
    said.textContent = answers ? await response.text() : "";
  };
  form.addEventListener("input", () => { clearTimeout(due); due = setTimeout(ask, 400); });
  ask();
}

function moveInList(step) {
  const links = [...document.querySelectorAll("main tbody td:nth-child(-n+2) > span > a, main li > a")];
  const at = links.indexOf(document.activeElement);
  links[Math.min(Math.max(at + step, 0), links.length - 1)]?.focus();
}

const searchField = () => document.querySelector('[role="search"] select, [role="search"] input');

document.addEventListener("keydown", (event) => {
  if (event.target.matches("input:not([type=checkbox]), select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "j" || event.key === "k") moveInList(event.key === "j" ? 1 : -1);
  if (event.key === "/") {
    event.preventDefault();
    searchField() ? searchField().focus() : location.assign("/jobs#search");
  }
});

follow();
if (location.hash === "#search") searchField()?.focus();
const form = document.querySelector("form[data-estimate]");
if (form) estimate(form);
