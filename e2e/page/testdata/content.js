(() => {
  const text = (e) => e ? e.textContent.trim() : "";
  const watcher = (row) => {
    const heads = [...row.closest("table").tHead.rows[0].cells].map(text);
    return {
      cells: Object.fromEntries(heads.map((head, n) => [head, text(row.cells[n])])),
      attention: row.classList.contains("attention"),
      line: row.querySelector("polyline").getAttribute("points"),
      label: row.querySelector("svg").getAttribute("aria-label"),
    };
  };
  const informer = (section) => ({
    name: text(section.querySelector("h2 bdi")),
    state: text(section.querySelector("h2 .state")),
    attention: section.querySelector("h2 .state").classList.contains("attention"),
    facts: [...section.querySelectorAll("dl > div")].map((e) => text(e.querySelector("dt")) + ": " + text(e.querySelector("dd"))),
    errors: [...section.querySelectorAll(".error")].map(text),
    watchers: [...section.querySelectorAll("tbody tr")].map(watcher),
  });
  return {
    summary: text(document.getElementById("summary")),
    connection: text(document.getElementById("connection")),
    button: text(document.querySelector("button")),
    time: document.querySelector("time").dateTime,
    informers: [...document.querySelectorAll("section")].map(informer),
  };
})()
