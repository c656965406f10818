// The conversation on the page: one node per turn, brought up to date while an answer grows.
import { copyText, renderMarkdown } from "./markdown.js";

const seconds = (milliseconds) => `${(milliseconds / 1000).toFixed(milliseconds < 9950 ? 1 : 0)} s`;
const count = new Intl.NumberFormat("en");

function element(name, className, text) {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function pretty(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json; // still on its way, or malformed: shown as it is
  }
}

// "312 tokens, 41.2 per second, first after 0.2 s; 256 of 301 prompt tokens from the cache"
function figures(answer) {
  const parts = [];
  const usage = answer.usage;
  if (usage) {
    const tokens = usage.completion_tokens;
    const decode = (answer.endedAt - answer.firstAt) / 1000;
    parts.push(`${count.format(tokens)} tokens`);
    if (tokens > 1 && decode > 0) parts.push(`${((tokens - 1) / decode).toFixed(1)} per second`);
    if (answer.firstAt > 0) parts.push(`first after ${seconds(answer.firstAt - answer.sentAt)}`);
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    parts.push(`${count.format(cached)} of ${count.format(usage.prompt_tokens)} prompt tokens from the cache`);
  }
  if (answer.isStopped) parts.push("stopped");
  if (answer.finish === "length") parts.push("cut off at the most tokens");
  return parts.join(", ");
}

class AnswerView {
  // actions: {retry(), returnResults()}
  constructor(answer, actions) {
    this.answer = answer;
    this.actions = actions;
    this.node = element("article", "turn assistant");
    this.node.setAttribute("aria-label", "Answer");
    this.reasoning = element("details", "reasoning");
    this.summary = element("summary");
    this.thought = element("div", "text");
    this.reasoning.append(this.summary, this.thought);
    this.body = element("div", "answer");
    this.calls = element("div", "calls");
    this.callNodes = [];
    this.problem = element("p", "problem");
    this.problem.setAttribute("role", "alert");
    this.footer = element("footer");
    this.node.append(this.reasoning, this.body, this.calls, this.problem, this.footer);
    this.update(false);
  }

  update(isDone) {
    const answer = this.answer;
    this.node.setAttribute("aria-busy", String(!isDone));
    this.reasoning.hidden = answer.reasoning === "";
    setText(this.thought, answer.reasoning);
    const until = answer.answerAt || answer.endedAt || performance.now();
    const thought = seconds(until - (answer.firstAt || answer.sentAt));
    setText(this.summary, answer.answerAt || isDone ? `Thought for ${thought}` : `Thinking, ${thought}`);
    renderMarkdown(this.body, answer.content);
    answer.calls.forEach((call, at) => this.updateCall(call, at));
    setText(this.problem, answer.problem);
    if (isDone) this.finish();
  }

  updateCall(call, at) {
    if (!this.callNodes[at]) {
      const node = element("section", "call");
      const title = element("h3", "", "calls ");
      const name = element("code");
      title.append(name);
      const args = element("pre");
      node.append(title, args);
      this.calls.append(node);
      this.callNodes[at] = { node, name, args };
    }
    setText(this.callNodes[at].name, call.name);
    setText(this.callNodes[at].args, pretty(call.arguments));
  }

  finish() {
    const answer = this.answer;
    if (answer.calls.length > 0 && !answer.isStopped && !answer.problem) this.askForResults();
    const copy = element("button", "plain", "Copy");
    copy.type = "button";
    copy.addEventListener("click", () => copyText(answer.content, copy));
    const retry = element("button", "plain retry", "Try again");
    retry.type = "button";
    retry.addEventListener("click", () => this.actions.retry());
    this.footer.replaceChildren(element("span", "figures-line", figures(answer)), copy, retry);
    copy.hidden = answer.content === "";
  }

  askForResults() {
    this.answer.calls.forEach((call, at) => {
      const label = element("label", "", "Result");
      const field = element("textarea");
      field.rows = 2;
      field.addEventListener("input", () => { call.result = field.value; });
      label.append(field);
      this.callNodes[at].node.append(label);
    });
    this.returner = element("button", "return-results", "Return the results");
    this.returner.type = "button";
    this.returner.addEventListener("click", () => this.actions.returnResults());
    this.calls.append(this.returner);
  }

  // The conversation went on: what only its end offers goes away.
  settle() {
    this.footer.querySelector(".retry")?.remove();
    this.returner?.remove();
    for (const field of this.calls.querySelectorAll("textarea")) field.readOnly = true;
  }
}

export class Transcript {
  constructor(container, actions) {
    this.container = container;
    this.hint = container.querySelector(".hint");
    this.actions = actions;
    this.last = null;
    this.frame = 0;
  }

  addUser(text) {
    this.last?.settle();
    this.last = null;
    const node = element("article", "turn user", text);
    node.setAttribute("aria-label", "You");
    this.append(node);
  }

  addAnswer(answer) {
    this.last?.settle();
    this.last = new AnswerView(answer, this.actions);
    this.append(this.last.node);
  }

  append(node) {
    this.hint.hidden = true;
    this.container.append(node);
    this.container.scrollTop = this.container.scrollHeight;
  }

  // Shows what came since, once per frame; follows the text while the reader is at its end.
  changed() {
    if (this.frame === 0) this.frame = requestAnimationFrame(() => this.draw(false));
  }

  done() {
    this.draw(true);
  }

  draw(isDone) {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    if (!this.last) return;
    const box = this.container;
    const isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 48;
    this.last.update(isDone);
    if (isAtEnd) box.scrollTop = box.scrollHeight;
  }

  removeLast() {
    this.last?.node.remove();
    this.last = null;
  }

  clear() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.last = null;
    this.container.replaceChildren(this.hint);
    this.hint.hidden = false;
  }
}
