(() => {
  const text = (e) => e ? e.textContent.trim() : "";
  const facts = (section) => [...section.querySelectorAll("dl > div")].map((e) => text(e.querySelector("dt")) + ": " + text(e.querySelector("dd")));
  const cells = (row) => {
    const heads = [...row.closest("table").tHead.rows[0].cells].map(text);
    return Object.fromEntries(heads.map((head, n) => [head, text(row.cells[n])]));
  };
  const watcher = (row) => ({
    cells: cells(row),
    attention: row.classList.contains("attention"),
    line: row.querySelector("polyline")?.getAttribute("points") ?? "",
    label: row.querySelector("svg")?.getAttribute("aria-label") ?? "",
  });
  const informer = (section) => ({
    name: text(section.querySelector("h2 bdi")),
    state: text(section.querySelector("h2 .state")),
    attention: section.querySelector("h2 .state").classList.contains("attention"),
    facts: facts(section),
    errors: [...section.querySelectorAll(".error")].map(text),
    watchers: [...section.querySelectorAll("tbody tr")].map(watcher),
  });
  const controller = (section) => ({
    name: text(section.querySelector("h2 bdi")),
    state: text(section.querySelector("h2 .state")),
    attention: section.querySelector("h2 .state").classList.contains("attention"),
    facts: facts(section),
    keys: [...section.querySelectorAll("tbody tr:not(.why)")].map((row) => ({
      cells: cells(row), attention: row.classList.contains("attention"), error: text(row.closest("tbody").querySelector(".why")),
    })),
  });
  return {
    summary: text(document.getElementById("summary")),
    connection: text(document.getElementById("connection")),
    button: text(document.querySelector("button")),
    time: document.querySelector("time").dateTime,
    informers: [...document.querySelectorAll("section.informer")].map(informer),
    controllers: [...document.querySelectorAll("section.controller")].map(controller),
  };
})()
