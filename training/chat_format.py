"""The V4.1 prompt text of a conversation (encoding.md 2.0 and 2A), as far as the training data uses it.

A message is a dict: role system, user, assistant or tool; content; an assistant may have `reasoning` and `calls`, a list of
(name, arguments). `render` gives one string that ends behind the last assistant's end-of-sentence token, or with the header
of the assistant's turn when the conversation ends with a user or tool message.
"""

from __future__ import annotations

import json
from typing import Any

Message = dict[str, Any]
BOS, EOS, PAD = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"
SYSTEM, USER, ASSISTANT, THINK, UNTHINK = "<｜System｜>", "<｜User｜>", "<｜Assistant｜>", "<think>", "</think>"

_TOOLS = """## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<｜DSML｜ calls>" block like the following:

<｜DSML｜ calls>
<｜DSML｜ invoke name="$TOOL_NAME">
<｜DSML｜ parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜ parameter>
...
</｜DSML｜ invoke>
<｜DSML｜ invoke name="$TOOL_NAME2">
...
</｜DSML｜ invoke>
</｜DSML｜ calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

{schemas}

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
"""


def dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def call_block(calls: list[tuple[str, dict[str, Any]]]) -> str:
    invokes = []
    for name, arguments in calls:
        lines = []
        for key, value in arguments.items():
            text = isinstance(value, str)
            lines.append(f'<｜DSML｜ parameter name="{key}" string="{"true" if text else "false"}">'
                         f'{value if text else dumps(value)}</｜DSML｜ parameter>')
        invokes.append(f'<｜DSML｜ invoke name="{name}">\n' + "\n".join(lines) + "\n</｜DSML｜ invoke>")
    return "<｜DSML｜ calls>\n" + "\n".join(invokes) + "\n</｜DSML｜ calls>"


def render(messages: list[Message], tools: list[Message] | None = None, schema: Message | None = None,
           effort: int | None = None) -> str:
    """`effort` is not None in thinking mode."""
    thinking = effort is not None
    keep_reasoning = bool(tools)  # rule 1: tools switch dropping off
    if (tools or schema) and messages[0]["role"] != "system":
        messages = [{"role": "system", "content": ""}] + messages
    turns: list[Message] = []
    for m in messages:
        if m["role"] == "tool":
            m = {"role": "user", "content": f"<tool_result>{m['content']}</tool_result>"}
        if turns and m["role"] == "user" and turns[-1]["role"] == "user":
            turns[-1] = {"role": "user", "content": turns[-1]["content"] + "\n\n" + m["content"]}
        else:
            turns.append(dict(m))
    last_user = max((i for i, m in enumerate(turns) if m["role"] == "user"), default=-1)
    out = BOS
    if thinking or turns[0]["role"] == "system":
        out += SYSTEM
    if thinking:
        out += f"Reasoning Effort: {effort} (range 1-100, the higher the value, the more thorough the reasoning)\n\n"
    for i, m in enumerate(turns):
        if m["role"] == "system":
            out += m["content"]
            if tools:
                out += "\n\n" + _TOOLS.replace("{schemas}", "\n".join(dumps(t) for t in tools))
            if schema:
                out += "\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n" + dumps(schema)
        elif m["role"] == "user":
            out += USER + m["content"]
            if i + 1 == len(turns) or turns[i + 1]["role"] == "assistant":
                out += ASSISTANT + (THINK if thinking and (keep_reasoning or i >= last_user) else UNTHINK)
        else:
            if thinking and (keep_reasoning or i > last_user):
                out += m.get("reasoning", "") + UNTHINK
            out += m["content"]
            if m.get("calls"):
                out += "\n\n" + call_block(m["calls"])
            out += EOS
    return out
