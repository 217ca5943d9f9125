// Has a passkey sign what a form decides, and makes passkeys. The passkey and the browser see to it that
// only pages of this host are signed for; what is signed, the server says, and the worker checks.
const encode = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer)));
const encodeForURL = (buffer) => encode(buffer).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const decode = (text) =>
  Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));

function say(text, link) {
  document.getElementById("unsigned")?.remove();
  const line = document.createElement("p");
  line.id = "unsigned";
  line.className = "problem";
  line.setAttribute("role", "alert");
  line.append(text);
  if (link) {
    const a = document.createElement("a");
    a.href = a.textContent = link;
    line.append(a);
  }
  document.getElementById("main").prepend(line);
  line.scrollIntoView({block: "nearest"});
}

// isReady reports whether passkeys work at this address, and otherwise says what does.
function isReady() {
  const isAddress = /^[0-9.]+$|^\[/.test(location.hostname);
  if (isAddress && (location.hostname.startsWith("127.") || location.hostname === "[::1]")) {
    const there = new URL(location.href);
    there.hostname = "localhost";
    say("A passkey belongs to a name, and this address is none. Go on at ", there.href);
  } else if (isAddress || !isSecureContext || !window.PublicKeyCredential) {
    say("Passkeys work only at https:// and a name, in a browser that knows them.");
  } else {
    return true;
  }
  return false;
}

// send posts a form as it was when it was pressed: the one on the page may be another by now.
function send(action, data) {
  const form = document.createElement("form");
  form.method = "post";
  form.action = action;
  for (const [name, value] of data) {
    const field = document.createElement("textarea");
    field.name = name;
    field.value = value;
    form.append(field);
  }
  form.hidden = true;
  document.body.append(form);
  form.submit();
}

async function sign(action, data) {
  const answer = await fetch(action + "/challenge", {method: "POST", body: new URLSearchParams(data)});
  if (answer.redirected) { location.reload(); return; } // to sign in
  const isTold = answer.headers.get("Content-Type") === "application/json";
  if (!isTold) { throw new Error("the server answered " + answer.status + "; load the page again"); }
  const asked = await answer.json();
  if (!answer.ok) { throw new Error(asked.problem); }
  const {response} = await navigator.credentials.get(
    {publicKey: {challenge: decode(asked.challenge), userVerification: "required"}});
  data.set("at", asked.at);
  data.set("assertion", JSON.stringify({clientData: encode(response.clientDataJSON),
    authenticatorData: encode(response.authenticatorData), signature: encode(response.signature)}));
  send(action, data);
}

async function make(action, data) {
  const name = data.get("as");
  const {response} = await navigator.credentials.create({publicKey: {
    rp: {name: "Unwind"}, user: {id: crypto.getRandomValues(new Uint8Array(16)), name, displayName: name},
    challenge: crypto.getRandomValues(new Uint8Array(16)), pubKeyCredParams: [{type: "public-key", alg: -7}],
    authenticatorSelection: {residentKey: "required", userVerification: "required"}, attestation: "none"}});
  data.set("key", encodeForURL(response.getPublicKey()));
  data.set("host", location.hostname);
  send(action, data);
}

let isAsking = false; // the browser asks for one passkey at a time

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.dataset.passkey) { return; }
  event.preventDefault();
  if (isAsking || !isReady()) { return; }
  isAsking = true;
  try {
    await (form.dataset.passkey === "make" ? make : sign)(form.action, new FormData(form, event.submitter));
  } catch (e) {
    say("Nothing was signed or sent: " + e.message);
  } finally {
    isAsking = false;
  }
});
