// Keeps the page up to date: the server sends its content whenever that has changed. What somebody
// is typing, or has ticked, is not replaced, nor is what they may have read by another change to
// decide about: the page then only says that it is out of date.
const main = document.querySelector("main[data-stream]");
let touched = false, held = false, latest = null;
main.addEventListener("input", () => { touched = true; });

// A button that goes away while it is pressed loses the click: an update waits until it is over.
for (const press of ["pointerdown", "keydown"]) { main.addEventListener(press, () => { held = true; }); }
for (const end of ["pointerup", "pointercancel", "keyup", "blur"]) {
  addEventListener(end, () => setTimeout(() => { held = false; update(); }));
}

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

const decidesAbout = (root) => root.querySelector("input[name=digest]")?.value;
let read = decidesAbout(main); // what this page is about, from when it is first known

// selectorOf finds what is focused again in another content: a link by where it leads, a button by its
// value and the batch that it decides about.
function selectorOf(e) {
  if (e?.id) { return "#" + CSS.escape(e.id); }
  if (e?.hasAttribute("href")) { return `[href="${CSS.escape(e.getAttribute("href"))}"]`; }
  return e?.hasAttribute("value") ? batchOf(e) + ` [value="${CSS.escape(e.getAttribute("value"))}"]` : null;
}
function batchOf(e) {
  const batch = e.closest("section[id]");
  return batch ? "#" + CSS.escape(batch.id) : "";
}

function update() {
  if (held || latest === null) { return; }
  const next = document.createElement("template");
  next.innerHTML = latest;
  latest = null;
  const coming = decidesAbout(next.content);
  if (touched || read && coming && read !== coming) { sayStale(); return; }
  read ??= coming;
  const placed = (box) => batchOf(box) + " " + box.value;
  const seen = new Set([...main.querySelectorAll("input[name=about]")].map(placed));
  for (const box of next.content.querySelectorAll("input[name=about]")) {
    box.checked = seen.has(placed(box)); // nobody has read what is new in a batch
  }
  const open = [...main.querySelectorAll("details[open][id]")].map((d) => d.id);
  const focused = main.contains(document.activeElement) ? selectorOf(document.activeElement) : null;
  main.replaceChildren(...main.querySelectorAll(":scope > .told:not(#stale), :scope > .problem"), next.content);
  for (const id of open) { document.getElementById(id)?.setAttribute("open", ""); }
  const again = focused ? main.querySelectorAll(focused) : [];
  if (again.length === 1 || again[0]?.hasAttribute("href")) { again[0].focus(); }
}

// A browser has six connections to a server, and keeps those of pages that were left or that nobody
// sees: a seventh page would never load. So only a page that is seen is kept up to date.
let stream = null;
const at = new URL(main.dataset.stream, location.href);
function follow() {
  if (stream || document.hidden) { return; }
  stream = new EventSource(at);
  stream.onmessage = (event) => {
    at.searchParams.set("shown", event.lastEventId);
    latest = event.data;
    update();
  };
}
function rest() { stream?.close(); stream = null; }
addEventListener("pagehide", rest);
addEventListener("pageshow", () => { held = false; follow(); }); // a key that left the page was released elsewhere
document.addEventListener("visibilitychange", () => document.hidden ? rest() : follow());
follow();
