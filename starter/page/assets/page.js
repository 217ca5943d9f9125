// Keeps the page up to date: the server sends its content whenever that has changed. What somebody
// is typing, or has ticked, is not replaced: the page then only says that it is out of date.
const main = document.querySelector("main[data-stream]");
let touched = false;
main.addEventListener("input", () => { touched = true; });

function sayStale() {
  if (document.getElementById("stale")) { return; }
  const line = document.createElement("p"), again = document.createElement("a");
  line.id = "stale";
  line.className = "told";
  line.setAttribute("role", "status");
  again.href = location.href;
  again.textContent = "Load it again";
  line.append("Meanwhile this has changed. ", again);
  main.prepend(line);
}

new EventSource(main.dataset.stream).onmessage = (event) => {
  if (touched) { sayStale(); return; }
  const kept = [...main.querySelectorAll(":scope > .told, :scope > .problem")];
  const open = [...main.querySelectorAll("details[open][id]")].map((d) => d.id);
  const focused = document.activeElement?.id;
  main.innerHTML = event.data;
  main.prepend(...kept);
  for (const id of open) { document.getElementById(id)?.setAttribute("open", ""); }
  if (focused) { document.getElementById(focused)?.focus(); }
};
