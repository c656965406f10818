"""The anthropic package against `pagestate serve`: messages and token counting."""
import unittest

import anthropic

from harness import ASK_WEATHER, WEATHER, WEATHER_RESULT, Server

TOOLS = [{"name": WEATHER["name"], "description": WEATHER["description"], "input_schema": WEATHER["parameters"]}]
OFF = {"type": "disabled"}


def setUpModule():
    global SERVER, CLIENT
    SERVER = Server()
    CLIENT = anthropic.Anthropic(base_url=SERVER.address + "/anthropic", api_key="unused", max_retries=0)


def tearDownModule():
    SERVER.stop()


def fields_of(text="Hello", **fields):
    # Sampling fields that the package does not name for every model travel as extra fields.
    fields = {"model": "claude-sonnet-4-5", "max_tokens": 200, "extra_body": {"temperature": 0}, **fields}
    fields.setdefault("messages", [{"role": "user", "content": text}])
    return fields


def ask(text="Hello", **fields):
    return CLIENT.messages.create(**fields_of(text, **fields))


class Messages(unittest.TestCase):
    def test_answer_and_usage(self):
        reply = ask(thinking=OFF)
        self.assertEqual(reply.stop_reason, "end_turn")
        self.assertEqual([block.type for block in reply.content], ["text"])
        self.assertIn("help", reply.content[0].text)
        self.assertGreater(reply.usage.output_tokens, 0)
        self.assertEqual(reply.model, "claude-sonnet-4-5")

    def test_thinking(self):
        reply = ask(thinking={"type": "enabled", "budget_tokens": 1024})
        self.assertEqual([block.type for block in reply.content], ["thinking", "text"])
        self.assertTrue(reply.content[0].thinking)
        self.assertEqual(reply.content[0].signature, reply.id)

    def test_stream(self):
        whole = ask()
        kinds = []
        with CLIENT.messages.stream(**fields_of()) as stream:
            for event in stream:
                kinds.append(event.type)
            final = stream.get_final_message()
        self.assertEqual(final.content[0].thinking, whole.content[0].thinking)
        self.assertEqual(final.content[1].text, whole.content[1].text)
        self.assertEqual(final.stop_reason, "end_turn")
        self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)
        self.assertEqual(kinds[0], "message_start")
        self.assertEqual(kinds[-1], "message_stop")

    def test_system_blocks_and_cache(self):
        system = [{"type": "text", "text": "x-anthropic-billing-header: cch=%d;"},
                  {"type": "text", "text": "You help. " * 300, "cache_control": {"type": "ephemeral"}}]
        first = ask(system=system, thinking=OFF)
        system[0]["text"] = "x-anthropic-billing-header: cch=2;"
        second = ask(system=system, thinking=OFF)
        self.assertEqual(first.content[0].text, second.content[0].text)
        self.assertGreater(second.usage.cache_read_input_tokens, second.usage.input_tokens)

    def test_stop_sequence(self):
        whole = ask(thinking=OFF).content[0].text
        word = whole.split()[1]
        reply = ask(thinking=OFF, stop_sequences=[word])
        self.assertEqual((reply.stop_reason, reply.stop_sequence), ("stop_sequence", word))
        self.assertEqual(reply.content[0].text, whole[:whole.index(word)])

    def test_max_tokens(self):
        self.assertEqual(ask(max_tokens=2).stop_reason, "max_tokens")

    def test_prefill(self):
        whole = ask(thinking=OFF).content[0].text
        begun = whole.split()[0]
        reply = ask(messages=[{"role": "user", "content": "Hello"}, {"role": "assistant", "content": begun}])
        self.assertEqual(begun + reply.content[0].text, whole)

    def test_tools_and_the_turn_after(self):
        messages = [{"role": "user", "content": ASK_WEATHER}]
        reply = ask(messages=messages, tools=TOOLS)
        self.assertEqual(reply.stop_reason, "tool_use")
        use = reply.content[-1]
        self.assertEqual((use.name, use.input), ("get_weather", {"location": "Paris", "unit": "celsius"}))
        messages.append({"role": "assistant", "content": [block.model_dump(exclude_none=True)
                                                          for block in reply.content]})
        messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id,
                                                      "content": WEATHER_RESULT}]})
        after = ask(messages=messages, tools=TOOLS)
        self.assertEqual(after.stop_reason, "end_turn")
        self.assertIn("21", after.content[-1].text)

    def test_tool_choice(self):
        for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"},
                       {"type": "any", "disable_parallel_tool_use": True}):
            with self.subTest(choice):
                reply = ask(ASK_WEATHER, tools=TOOLS, tool_choice=choice)
                self.assertEqual(reply.content[0].type, "tool_use")
        reply = ask(ASK_WEATHER, tools=TOOLS, tool_choice={"type": "none"})
        self.assertNotIn("tool_use", [block.type for block in reply.content])

    def test_streamed_tool_input(self):
        with CLIENT.messages.stream(**fields_of(ASK_WEATHER, tools=TOOLS)) as stream:
            final = stream.get_final_message()
        self.assertEqual(final.content[-1].input, {"location": "Paris", "unit": "celsius"})

    def test_count_tokens(self):
        messages = [{"role": "user", "content": ASK_WEATHER}]
        count = CLIENT.messages.count_tokens(model="m", messages=messages, tools=TOOLS).input_tokens
        usage = ask(messages=messages, tools=TOOLS, max_tokens=1).usage
        self.assertEqual(count, usage.input_tokens + usage.cache_read_input_tokens)

    def test_a_client_that_leaves_frees_its_sequence(self):
        with CLIENT.messages.stream(**fields_of("Tell me a story.", max_tokens=4000, thinking=OFF)) as stream:
            for _ in stream:
                break
        SERVER.wait_until_idle()

    def test_errors(self):
        for fields, words in (({"max_tokens": 9000, "timeout": 60}, "8192"),
                              ({"stop_sequences": ["x"] * 17}, "at most 16"),
                              ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools.0..type"),
                              ({"tools": TOOLS, "tool_choice": {"type": "any"},
                                "thinking": {"type": "enabled", "budget_tokens": 1024}}, "forced tool"),
                              ({"messages": [{"role": "user", "content": [
                                  {"type": "image", "source": {"type": "base64", "media_type": "image/png",
                                                               "data": "AAAA"}}]}]}, "images are not supported")):
            with self.subTest(fields):
                with self.assertRaisesRegex(anthropic.BadRequestError, words) as caught:
                    ask(**fields)
                self.assertEqual(caught.exception.body["error"]["type"], "invalid_request_error")


if __name__ == "__main__":
    unittest.main(verbosity=2)
