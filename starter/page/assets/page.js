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

// selectorOf finds what is focused again in another content.
function selectorOf(e) {
  if (e?.id) { return "#" + CSS.escape(e.id); }
  const name = e?.hasAttribute("href") ? "href" : "value";
  return e?.hasAttribute(name) ? `[${name}="${CSS.escape(e.getAttribute(name))}"]` : null;
}

function update() {
  if (held || latest === null) { return; }
  const next = document.createElement("template");
  next.innerHTML = latest;
  latest = null;
  const coming = decidesAbout(next.content);
  if (touched || read && coming && read !== coming) { sayStale(); return; }
  read ??= coming;
  const seen = new Set([...main.querySelectorAll("input[name=about]")].map((box) => box.value));
  for (const box of next.content.querySelectorAll("input[name=about]")) {
    box.checked = seen.has(box.value); // nobody has read what is new
  }
  const open = [...main.querySelectorAll("details[open][id]")].map((d) => d.id);
  const focused = main.contains(document.activeElement) ? selectorOf(document.activeElement) : null;
  main.replaceChildren(...main.querySelectorAll(":scope > .told:not(#stale), :scope > .problem"), next.content);
  for (const id of open) { document.getElementById(id)?.setAttribute("open", ""); }
  const again = focused ? main.querySelectorAll(focused) : [];
  if (again.length === 1) { again[0].focus(); }
}

new EventSource(main.dataset.stream).onmessage = (event) => { latest = event.data; update(); };
