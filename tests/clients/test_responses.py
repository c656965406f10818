"""The openai package against `pagestate serve`: the Responses API."""
import json
import unittest

import openai

from harness import ASK_WEATHER, WEATHER, WEATHER_RESULT, Server

TOOLS = [{"type": "function", "strict": False, **WEATHER}]


def setUpModule():
    global SERVER, CLIENT
    SERVER = Server()
    CLIENT = openai.OpenAI(base_url=SERVER.address + "/v1", api_key="unused", max_retries=0)


def tearDownModule():
    SERVER.stop()


def ask(question="Hello", **fields):
    fields = {"model": "tiny", "input": question, "temperature": 0, "max_output_tokens": 200, **fields}
    return CLIENT.responses.create(**fields)


class Responses(unittest.TestCase):
    def test_answer(self):
        reply = ask()
        self.assertEqual(reply.status, "completed")
        self.assertEqual([item.type for item in reply.output], ["reasoning", "message"])
        self.assertIn("help", reply.output_text)
        self.assertGreater(reply.usage.output_tokens_details.reasoning_tokens, 0)
        self.assertEqual(reply.usage.total_tokens, reply.usage.input_tokens + reply.usage.output_tokens)

    def test_reasoning_off(self):
        self.assertEqual([item.type for item in ask(reasoning={"effort": "none"}).output], ["message"])

    def test_stream(self):
        whole = ask().output_text
        events = list(ask(stream=True))
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
        self.assertEqual("".join(e.delta for e in events if e.type == "response.output_text.delta"), whole)
        self.assertEqual(events[0].type, "response.created")
        self.assertEqual(events[-1].type, "response.completed")
        self.assertEqual(events[-1].response.output_text, whole)

    def test_the_sdk_helper_accumulates(self):
        with CLIENT.responses.stream(model="tiny", input="Hello", temperature=0, max_output_tokens=200) as stream:
            for _ in stream:
                pass
            self.assertEqual(stream.get_final_response().output_text, ask().output_text)

    def test_tools_and_the_turn_after(self):
        items = [{"role": "user", "content": ASK_WEATHER}]
        reply = ask(items, tools=TOOLS)
        call = reply.output[-1]
        self.assertEqual(call.type, "function_call")
        self.assertEqual(json.loads(call.arguments), {"location": "Paris", "unit": "celsius"})
        items += [item.model_dump(exclude_none=True) for item in reply.output]
        items.append({"type": "function_call_output", "call_id": call.call_id, "output": WEATHER_RESULT})
        self.assertIn("21", ask(items, tools=TOOLS).output_text)

    def test_a_forced_tool(self):
        for choice in ("required", {"type": "function", "name": "get_weather"}):
            with self.subTest(choice):
                self.assertEqual(ask(ASK_WEATHER, tools=TOOLS, tool_choice=choice).output[0].type, "function_call")

    def test_thoughts_travel_sealed(self):
        reply = ask(include=["reasoning.encrypted_content"], store=False)
        self.assertEqual(reply.output[0].encrypted_content, "pagestate:" + reply.output[0].content[0].text)
        self.assertFalse(reply.store)

    def test_other_tools_are_left_out(self):
        reply = ask(tools=[{"type": "web_search"}, *TOOLS])
        self.assertEqual([tool.type for tool in reply.tools], ["function"])

    def test_length(self):
        reply = ask(max_output_tokens=3)
        self.assertEqual(reply.status, "incomplete")
        self.assertEqual(reply.incomplete_details.reason, "max_output_tokens")

    def test_errors(self):
        for fields, words in (({"previous_response_id": "resp_1"}, "nothing is stored"),
                              ({"text": {"format": {"type": "json_schema", "name": "x", "schema": {}}}}, "json_object"),
                              ({"truncation": "auto"}, "disabled"), ({"background": True}, "background")):
            with self.subTest(fields), self.assertRaisesRegex(openai.BadRequestError, words):
                ask(**fields)


if __name__ == "__main__":
    unittest.main(verbosity=2)
