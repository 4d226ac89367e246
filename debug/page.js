"use strict";
// The server draws the page. This puts a newer one in its place, once a second, until
// somebody asks for a pause: who reads with a magnifier or a screen reader may need one.
const connection = document.getElementById("connection");
const pause = document.createElement("button");
pause.type = "button";
pause.textContent = "Pause";
connection.after(" ", pause);

// Not relative: to an address with a password in it, as of who has typed one, none may go.
const address = location.origin + location.pathname + "?format=html";
let paused = false;
pause.addEventListener("click", () => {
  paused = !paused;
  pause.textContent = paused ? "Go on" : "Pause";
});

async function refresh() {
  const answer = await fetch(address, { cache: "no-store", signal: AbortSignal.timeout(5000) });
  if (!answer.ok) throw new Error(answer.status);
  const next = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (paused) return;
  // Only if it says something new, so that a screen reader does not read it every time.
  const summary = document.getElementById("summary"), says = next.getElementById("summary").textContent;
  if (summary.textContent !== says) summary.textContent = says;
  // What was scrolled stays so, and the focus where it is.
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
