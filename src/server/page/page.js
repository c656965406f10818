// The page of `pagestate serve`: a chat beside a live view of the engine. Hand-written, no framework, no build step, no
// request to any other host; works under a Content-Security-Policy without inline script or style.
//
//   chat.js        the conversation as data, and the streamed request
//   transcript.js  the conversation on the page
//   markdown.js    light Markdown as DOM nodes
//   engine.js      the live view
//   page.js        settings, keyboard, and who calls whom
//
// GET v1/engine, which the live view polls once a second, answers with one JSON object:
//   model           name, as the chat request needs it
//   uptime_seconds  the engine's clock, a real number
//   max_context     most tokens of one request, prompt and answer
//   page_tokens     tokens of one PAGE
//   pages           {total, used, cached, images, free}: PAGEs by state; images hold copies of STATE
//   page_map        {pages_per_cell, cells}: one letter per cell, at most 2,048 of them, for pages_per_cell PAGEs in
//                   the order of their ids: "u" one of them is used, else "i" an image, else "c" cached, else "f" free
//   running         [{id, state: "prompt" | "answer", prompt_tokens, cached_tokens, computed_tokens, answer_tokens}],
//                   oldest first; computed_tokens of the prompt are in the cache, cached_tokens of them were found
//   waiting         requests that are not admitted yet
//   totals          since start: {requests, prompt_tokens, cached_tokens, computed_tokens, answer_tokens, steps,
//                   preemptions, evictions}; prompt_tokens were looked up, cached_tokens of them found, computed_tokens
//                   rows of prompts were run
//   memory          [{name, bytes}]: what the plan holds, the largest first
import { newAnswer, requestBody, stream } from "./chat.js";
import { EngineView } from "./engine.js";
import { Transcript } from "./transcript.js";

const byId = (id) => document.getElementById(id);
const kNumbers = ["temperature", "top_p", "max_tokens", "seed"];

// null: the server's default.
const settings = {
  thinking: "high", system: "", tools: null, api_key: "", temperature: null, top_p: null, max_tokens: null, seed: null,
};
const turns = [];
let running = null; // AbortController of the answer on its way
let model = "";

const transcript = new Transcript(byId("transcript"), { retry, returnResults: () => answer() });
const prompt = byId("prompt");

function announce(text) {
  byId("announcer").textContent = text;
}

function showBusy(isBusy) {
  byId("send").hidden = isBusy;
  byId("stop").hidden = !isBusy;
}

async function answer() {
  if (running) return;
  const controller = new AbortController();
  running = controller;
  showBusy(true);
  announce("Answering");
  const turn = newAnswer();
  const asked = turns.slice();
  turns.push(turn);
  transcript.addAnswer(turn);
  const changed = () => { if (running === controller) transcript.changed(); };
  await engine.ready; // it knows the model's name
  const body = requestBody(asked, settings, model || "default");
  await stream({ body, settings, answer: turn, signal: controller.signal, changed });
  if (running !== controller) return; // the conversation was left meanwhile
  running = null;
  showBusy(false);
  transcript.done();
  announce(turn.problem ? "The answer failed" : turn.isStopped ? "Stopped" : "The answer is complete");
}

function send() {
  const text = prompt.value;
  if (running || text.trim() === "") return;
  turns.push({ role: "user", content: text });
  transcript.addUser(text);
  prompt.value = "";
  fitPrompt();
  answer();
}

function retry() {
  if (running || turns.length === 0 || turns[turns.length - 1].role !== "assistant") return;
  turns.pop();
  transcript.removeLast();
  answer();
  prompt.focus();
}

function reset() {
  running?.abort();
  running = null;
  turns.length = 0;
  transcript.clear();
  showBusy(false);
  announce("New conversation");
  prompt.focus();
}

function fitPrompt() {
  prompt.style.height = "auto";
  prompt.style.height = `${prompt.scrollHeight + 2}px`;
}

// Reads the dialog into `settings`; false, with a message, where a field is not legal.
function readSettings() {
  const form = byId("settings-form");
  const problem = byId("settings-problem");
  problem.textContent = "";
  if (!form.reportValidity()) return false;
  let tools = null;
  try {
    if (form.elements.tools.value.trim() !== "") tools = JSON.parse(form.elements.tools.value);
    if (tools !== null && !Array.isArray(tools)) throw new Error("expected an array");
  } catch (error) {
    problem.textContent = `Tools: ${error.message}`;
    return false;
  }
  settings.tools = tools;
  settings.system = form.elements.system.value;
  settings.api_key = form.elements.api_key.value;
  for (const name of kNumbers) {
    const text = form.elements[name].value;
    settings[name] = text === "" ? null : Number(text);
  }
  const changed = kNumbers.filter((name) => settings[name] !== null).map((name) => `${name} ${settings[name]}`);
  if (settings.system) changed.push("system prompt");
  if (tools) changed.push(`${tools.length} tools`);
  byId("changed").textContent = changed.join(", ");
  return true;
}

function wireSettings() {
  const dialog = byId("settings");
  byId("open-settings").addEventListener("click", () => dialog.showModal());
  byId("settings-form").addEventListener("submit", (event) => {
    event.preventDefault();
    if (readSettings()) dialog.close();
  });
  // Escape closes as well: what is legal counts, and the dialog stays where something is not.
  dialog.addEventListener("cancel", (event) => { if (!readSettings()) event.preventDefault(); });
  dialog.addEventListener("close", () => { engine.poll(); prompt.focus(); });
  byId("clear-settings").addEventListener("click", () => {
    byId("settings-form").reset();
    readSettings();
  });
  for (const choice of document.querySelectorAll("input[name=thinking]")) {
    choice.addEventListener("change", () => { settings.thinking = choice.value; });
    if (choice.checked) settings.thinking = choice.value;
  }
}

function wireKeyboard() {
  prompt.addEventListener("input", fitPrompt);
  prompt.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  document.addEventListener("keydown", (event) => {
    if (byId("settings").open) return;
    if (event.key === "Escape" && running) running.abort();
    const isTyping = event.target.matches("input[type=number], input[type=password], textarea");
    if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      prompt.focus();
    }
  });
}

function wireButtons() {
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
    prompt.focus();
  });
  byId("stop").addEventListener("click", () => {
    running?.abort();
    prompt.focus();
  });
  byId("reset").addEventListener("click", reset);
  const toggle = byId("toggle-engine");
  const showEngine = (isShown) => {
    byId("engine").hidden = !isShown;
    toggle.setAttribute("aria-expanded", String(isShown));
  };
  toggle.addEventListener("click", () => showEngine(byId("engine").hidden));
  showEngine(window.matchMedia("(min-width: 62rem)").matches);
}

const engine = new EngineView(document, {
  settings: () => settings,
  onModel: (name) => {
    model = name;
    if (byId("model").textContent !== name) byId("model").textContent = name;
  },
});
wireSettings();
wireKeyboard();
wireButtons();
