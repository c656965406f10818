// The conversation as data, and one streamed request of POST v1/chat/completions. Knows no DOM.
//
// A turn is {role: "user", content} or {role: "assistant", reasoning, content, calls, usage, finish, problem, isStopped}
// with four times. Earlier reasoning goes back with its turn: the prompt then begins as it did, which the prefix cache
// knows.

export function newAnswer() {
  return {
    role: "assistant", reasoning: "", content: "", calls: [], usage: null, finish: null, problem: "", isStopped: false,
    sentAt: performance.now(), firstAt: 0, answerAt: 0, endedAt: 0,
  };
}

// The messages of a request. An answer with neither text nor calls (stopped early, failed) is left out.
export function messagesOf(turns, system) {
  const messages = system ? [{ role: "system", content: system }] : [];
  for (const turn of turns) {
    if (turn.role === "user") {
      messages.push({ role: "user", content: turn.content });
      continue;
    }
    const calls = turn.isStopped ? [] : turn.calls;
    if (turn.content === "" && calls.length === 0) continue;
    const message = { role: "assistant", content: turn.content };
    if (turn.reasoning !== "") message.reasoning_content = turn.reasoning;
    if (calls.length > 0) {
      message.tool_calls = calls.map((call) => (
        { id: call.id, type: "function", function: { name: call.name, arguments: call.arguments } }));
    }
    messages.push(message);
    for (const call of calls) messages.push({ role: "tool", tool_call_id: call.id, content: call.result ?? "" });
  }
  return messages;
}

// Only what is set is sent: the server's defaults stay the server's.
export function requestBody(turns, settings, model) {
  const body = {
    model,
    messages: messagesOf(turns, settings.system),
    stream: true,
    stream_options: { include_usage: true },
    thinking: { type: settings.thinking === "off" ? "disabled" : "enabled" },
  };
  if (settings.thinking !== "off") body.reasoning_effort = settings.thinking;
  for (const name of ["temperature", "top_p", "max_tokens", "seed"]) {
    if (settings[name] !== null) body[name] = settings[name];
  }
  if (settings.tools) body.tools = settings.tools;
  return body;
}

export function authorization(settings) {
  return settings.api_key ? { Authorization: `Bearer ${settings.api_key}` } : {};
}

// The data of each server-sent event.
async function* eventData(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let data = [];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const raw of lines) {
        const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
        if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
        if (line === "" && data.length > 0) {
          yield data.join("\n");
          data = [];
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function addCalls(answer, deltas) {
  for (const delta of deltas) {
    const at = delta.index ?? answer.calls.length;
    const call = (answer.calls[at] ??= { id: "", name: "", arguments: "", result: "" });
    if (delta.id) call.id = delta.id;
    call.name += delta.function?.name ?? "";
    call.arguments += delta.function?.arguments ?? "";
  }
}

function addChunk(answer, chunk) {
  if (chunk.error) throw new Error(chunk.error.message ?? "the server reported an error");
  if (chunk.usage) answer.usage = chunk.usage;
  const choice = chunk.choices?.[0];
  if (!choice) return;
  const delta = choice.delta ?? {};
  const isText = delta.reasoning_content || delta.content || delta.tool_calls;
  if (isText && answer.firstAt === 0) answer.firstAt = performance.now();
  if ((delta.content || delta.tool_calls) && answer.answerAt === 0) answer.answerAt = performance.now();
  answer.reasoning += delta.reasoning_content ?? "";
  answer.content += delta.content ?? "";
  if (delta.tool_calls) addCalls(answer, delta.tool_calls);
  if (choice.finish_reason) answer.finish = choice.finish_reason;
}

async function problemOf(response) {
  const text = await response.text().catch(() => "");
  try {
    return JSON.parse(text).error.message;
  } catch {
    return `the server answered ${response.status}${text ? `: ${text.slice(0, 300)}` : ""}`;
  }
}

// Streams the reply into `answer`, calling `changed` after every event. Never throws: what went wrong is in
// answer.problem; an abort of `signal` is no problem.
export async function stream({ body, settings, answer, signal, changed }) {
  try {
    const response = await fetch("v1/chat/completions", {
      method: "POST", signal, headers: { "Content-Type": "application/json", ...authorization(settings) },
      body: JSON.stringify(body),
    });
    if (!response.ok) throw new Error(await problemOf(response));
    let isDone = false;
    for await (const data of eventData(response.body)) {
      if (data === "[DONE]") {
        isDone = true;
        break;
      }
      addChunk(answer, JSON.parse(data));
      changed();
    }
    if (!isDone) throw new Error("the connection ended before the answer did");
  } catch (error) {
    if (signal.aborted) answer.isStopped = true;
    else answer.problem = error instanceof TypeError ? "the server cannot be reached" : error.message;
  }
  answer.endedAt = performance.now();
}
