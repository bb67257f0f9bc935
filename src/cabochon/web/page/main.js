/** The page: load a package, talk with it, see how fast it is. `window.cabochon` is the engine, for tests and scripts. */
import { Conversation } from "./conversation.js";
import { heap, load } from "./engine/client.js";
import { textAlone } from "./engine/embedder.js";
import * as words from "./words.js";

const MANIFEST = "web.json";
const element = (/** @type {string} */ id) => /** @type {any} */ (document.getElementById(id));
const conversation = new Conversation(element("log"));

/** @type {import("./engine/client.js").RemoteModel | null} */
let model = null;
/** @type {AbortController | null} */
let loading = null;
/** @type {AbortController | null} */
let answering = null;

Object.assign(window, {
  cabochon: {
    load,
    get model() {
      return model;
    },
  },
});

function fail(/** @type {unknown} */ error) {
  if (Object(error).name === "AbortError") return;
  element("error").textContent = String(error);
  element("error").hidden = false;
}

function forgive() {
  element("error").hidden = true;
}

/** Which controls can be used now. */
function enable() {
  element("load").disabled = loading !== null;
  element("device").disabled = loading !== null || model !== null;
  element("load").hidden = model !== null;
  element("cancel").hidden = loading === null;
  element("progress").hidden = loading === null;
  element("send").disabled = element("fresh").disabled = answering !== null;
  element("stop").disabled = answering === null;
}

/** What the package is, before any of it is downloaded. */
async function introduce() {
  const response = await fetch(MANIFEST);
  if (!response.ok) throw new Error(`${MANIFEST}: the server answers ${response.status}; serve the package with \`cabochon web PACKAGE\``);
  const { name, target, precision, total_bytes: total, generation } = await response.json();
  element("name").textContent = document.title = name;
  element("about").textContent = `${precision} for ${target}, ${words.bytes(total)}`;
  const { temperature = 1, top_k: topK = 0, top_p: topP = 1 } = generation;
  Object.entries({ temperature, topK, topP }).forEach(([id, value]) => (element(id).value = value));
  element("greedy").checked = !generation.do_sample;
}

async function open() {
  forgive();
  loading = new AbortController();
  enable();
  try {
    const { signal } = loading;
    model = await load(MANIFEST, { device: element("device").value, signal, onProgress: showProgress });
    showModel(model);
  } catch (error) {
    element("stage").value = "";
    fail(error);
  } finally {
    loading = null;
    enable();
  }
}

function showProgress(/** @type {import("./engine/files.js").Progress} */ made) {
  const bar = element("progress");
  if (made.stage === "download") bar.value = made.total ? made.loaded / made.total : 0;
  else bar.removeAttribute("value"); // how long a session takes to open is not known
  element("stage").value = words.progress(made);
}

function showModel(/** @type {import("./engine/client.js").RemoteModel} */ opened) {
  element("stage").value = "";
  element("loading").hidden = true;
  element("conversation").hidden = element("figures").hidden = false;
  element("deviceShown").textContent = words.device(opened);
  element("speculating").hidden = element("draftedLine").hidden = !opened.speculates;
  showRemarks(opened.remarks);
  showMemory();
  element("prompt").focus();
}

function showRemarks(/** @type {string[]} */ remarks) {
  const items = remarks.map((remark) => Object.assign(document.createElement("li"), { textContent: remark }));
  element("remarks").replaceChildren(...items);
  element("remarks").hidden = !items.length;
}

async function showMemory() {
  if (!model) return;
  const held = await model.memory();
  element("memory").textContent = words.memory(held);
  const taken = await heap(); // a browser may take a minute
  element("memory").textContent = words.memory(held, taken);
}

/** What the controls say of drawing tokens. */
function options() {
  const number = (/** @type {string} */ id) => (element(id).value === "" ? undefined : Number(element(id).value));
  const greedy = element("greedy").checked;
  const drawn = greedy ? {} : { temperature: number("temperature"), topK: number("topK"), topP: number("topP") };
  const speculation = model?.speculates ? element("speculation").checked : undefined;
  return { ...drawn, greedy, seed: number("seed"), maxNewTokens: number("maxNewTokens"), speculation };
}

async function send() {
  const text = element("prompt").value.trim();
  if (!text || !model || answering) return;
  forgive();
  element("prompt").value = "";
  conversation.say("user", text);
  const answer = conversation.answer();
  answering = new AbortController();
  enable();
  try {
    const prompt = model.chats ? conversation.messages : text;
    const made = await model.generate(prompt, { ...options(), signal: answering.signal, onToken: answer.add });
    answer.end(made.text, words.ending(made.stopped));
    element("speed").textContent = words.speed(made);
    element("drafted").textContent = words.drafted(made);
    showRemarks([...model.remarks, ...made.remarks]);
  } catch (error) {
    answer.drop();
    element("prompt").value = conversation.takeBack();
    fail(error);
  } finally {
    answering = null;
    enable();
    element("prompt").focus();
  }
  showMemory();
}

/** A picture or a sound that is pasted or dropped. */
function refuseFiles(/** @type {Event} */ event, /** @type {DataTransfer | null} */ given) {
  if (!given?.files.length) return;
  event.preventDefault();
  fail(textAlone(given.files[0].name));
}

element("loading").addEventListener("submit", (event) => {
  event.preventDefault();
  open();
});
element("cancel").addEventListener("click", () => loading?.abort());
element("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
element("prompt").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
});
element("prompt").addEventListener("paste", (event) => refuseFiles(event, event.clipboardData));
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => refuseFiles(event, event.dataTransfer));
document.addEventListener("keydown", (event) => event.key === "Escape" && answering?.abort());
element("stop").addEventListener("click", () => answering?.abort());
element("fresh").addEventListener("click", () => {
  conversation.clear();
  model?.forget();
  element("prompt").focus();
});

enable();
introduce().catch(fail);
