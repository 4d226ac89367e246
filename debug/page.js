"use strict";
// The server renders the page. This script replaces its content with a newer one, once a
// second. The button stops that: readers with a magnifier or a screen reader may need a pause.
const connection = document.getElementById("connection");
const pause = document.createElement("button");
pause.type = "button";
pause.textContent = "Pause";
connection.after(" ", pause);

// Not relative: fetch refuses an address with a password, and the page's own may have one.
const address = location.origin + location.pathname + "?format=html";
let paused = false;
pause.addEventListener("click", () => {
  paused = !paused;
  pause.textContent = paused ? "Resume" : "Pause";
});

async function refresh() {
  const answer = await fetch(address, { cache: "no-store", signal: AbortSignal.timeout(5000) });
  if (!answer.ok) throw new Error(answer.status);
  const next = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (paused) return;
  // Only a new text is set, because a screen reader reads it again each time.
  const summary = document.getElementById("summary"), says = next.getElementById("summary").textContent;
  if (summary.textContent !== says) summary.textContent = says;
  summary.className = next.getElementById("summary").className;
  document.title = next.title;
  // Scroll positions and the focus stay where they are.
  const scrolled = [...document.querySelectorAll(".scroll")].map((s) => s.scrollLeft);
  const reached = ".scroll, main a", focused = [...document.querySelectorAll(reached)].indexOf(document.activeElement);
  document.querySelector("main").replaceWith(next.querySelector("main"));
  document.querySelectorAll(".scroll").forEach((s, n) => { s.scrollLeft = scrolled[n] || 0; });
  if (focused >= 0) document.querySelectorAll(reached)[focused]?.focus({ preventScroll: true });
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
