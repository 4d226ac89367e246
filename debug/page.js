"use strict";
// The server renders the page. This script replaces its content with a newer one, once a
// second. The button stops that: readers with a magnifier or a screen reader may need a pause.
const connection = document.getElementById("connection");
const pause = document.createElement("button");
pause.type = "button";
pause.textContent = "Pause";
connection.after(" ", pause);
const filter = document.createElement("input");
filter.type = "search";
filter.placeholder = filter.ariaLabel = "Filter by name";
pause.parentElement.append(" ", filter);

// Not relative: fetch refuses an address with a password, and the page's own may have one.
const address = location.origin + location.pathname + "?format=html";
let paused = false;
pause.addEventListener("click", () => {
  paused = !paused;
  pause.textContent = paused ? "Resume" : "Pause";
});

// sift hides what has another name than the filter, and no watcher and no key of that name.
function sift(main) {
  const wanted = filter.value.trim().toLowerCase();
  for (const part of main.querySelectorAll("section, li")) {
    part.hidden = wanted && ![...part.querySelectorAll("h2 bdi, [scope=row] bdi, a bdi")].some((name) => name.textContent.toLowerCase().includes(wanted));
  }
}
filter.addEventListener("input", () => sift(document.querySelector("main")));

// byID calls f for each element that css selects in main, with its place: the part that contains it,
// and its number there.
function byID(main, css, f) {
  for (const part of main.querySelectorAll("section, li")) part.querySelectorAll(css).forEach((e, n) => f(e, part.id + " " + n));
}

async function refresh() {
  const answer = await fetch(address, { cache: "no-store", signal: AbortSignal.timeout(5000) });
  if (!answer.ok) throw new Error(answer.status);
  const next = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (paused) return;
  // Only a new text is set, because a screen reader reads it again each time.
  const summary = document.getElementById("summary"), newer = next.getElementById("summary");
  if (summary.innerHTML !== newer.innerHTML) {
    const link = [...summary.children].indexOf(document.activeElement);
    summary.innerHTML = newer.innerHTML;
    summary.children[link]?.focus({ preventScroll: true });
  }
  summary.className = newer.className;
  document.title = next.title;
  // Scroll positions, the focus, and what was opened or closed stay.
  const old = document.querySelector("main"), main = next.querySelector("main");
  const scrolled = new Map(), chosen = new Map(), reached = "a, summary, .scroll, form button";
  let focused;
  byID(old, ".scroll", (e, place) => scrolled.set(place, e.scrollLeft));
  byID(old, "details", (e, place) => { if (e.open !== e.classList.contains("open")) chosen.set(place, e.open); });
  byID(old, reached, (e, place) => { if (e === document.activeElement) focused = place; });
  byID(main, "details", (e, place) => { e.open = chosen.get(place) ?? e.open; });
  sift(main);
  old.replaceWith(main);
  byID(main, ".scroll", (e, place) => { e.scrollLeft = scrolled.get(place) || 0; });
  byID(main, reached, (e, place) => { if (place === focused) e.focus({ preventScroll: true }); });
}

async function follow() {
  if (!paused && !document.hidden) {
    try {
      await refresh();
      connection.textContent = "";
    } catch {
      connection.textContent = "No answer: what is shown is old.";
    }
  }
  setTimeout(follow, 1000);
}
setTimeout(follow, 1000);
