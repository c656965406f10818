"""The openai package against `pagestate serve`: chat completions, completions, models."""
import json
import time
import unittest

import openai

from harness import ASK_WEATHER, WEATHER, WEATHER_RESULT, Server

TOOLS = [{"type": "function", "function": WEATHER}]
OFF = {"thinking": {"type": "disabled"}}


def setUpModule():
    global SERVER, CLIENT
    SERVER = Server()
    CLIENT = openai.OpenAI(base_url=SERVER.address + "/v1", api_key="unused", max_retries=0)


def tearDownModule():
    SERVER.stop()


def chat(text="Hello", **fields):
    fields = {"model": "tiny", "temperature": 0, "max_tokens": 200, **fields}
    fields.setdefault("messages", [{"role": "user", "content": text}])
    return CLIENT.chat.completions.create(**fields)


class Plain(unittest.TestCase):
    def test_answer_and_usage(self):
        reply = chat(extra_body=OFF)
        choice = reply.choices[0]
        self.assertEqual(choice.finish_reason, "stop")
        self.assertIn("help", choice.message.content)
        self.assertIsNone(getattr(choice.message, "reasoning_content", None))
        usage = reply.usage
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
        self.assertGreater(usage.completion_tokens, 0)
        self.assertTrue(reply.id.startswith("chatcmpl-"))
        self.assertTrue(reply.system_fingerprint.startswith("fp_"))

    def test_a_question_asked_again_is_found_in_the_cache(self):
        text = "Please read this. " + "The cat sat on the mat. " * 80
        first = chat(text, max_tokens=4, extra_body=OFF)
        second = chat(text, max_tokens=4, extra_body=OFF)
        self.assertEqual(first.choices[0].message.content, second.choices[0].message.content)
        self.assertGreater(second.usage.prompt_tokens_details.cached_tokens, 0)
        self.assertEqual(second.usage.model_dump()["prompt_cache_hit_tokens"],
                         second.usage.prompt_tokens_details.cached_tokens)

    def test_a_seed_repeats_and_choices_differ(self):
        fields = {"temperature": 2.0, "seed": 3, "max_tokens": 24, "extra_body": {**OFF, "ignore_eos": True}}
        one = chat("Tell me a story.", **fields).choices[0].message.content
        two = chat("Tell me a story.", n=2, **fields)
        self.assertEqual(two.choices[0].message.content, one)
        self.assertNotEqual(two.choices[1].message.content, one)

    def test_stop_strings(self):
        whole = chat(extra_body=OFF).choices[0].message.content
        word = whole.split()[1]
        reply = chat(stop=[word], extra_body=OFF)
        self.assertEqual(reply.choices[0].message.content, whole[:whole.index(word)])
        self.assertEqual(reply.choices[0].finish_reason, "stop")

    def test_logprobs_spell_the_answer(self):
        reply = chat(logprobs=True, top_logprobs=3, extra_body=OFF)
        tokens = reply.choices[0].logprobs.content
        self.assertEqual(b"".join(bytes(t.bytes) for t in tokens).decode(), reply.choices[0].message.content)
        for token in tokens:
            self.assertEqual(len(token.top_logprobs), 3)
            self.assertLessEqual(token.logprob, token.top_logprobs[0].logprob)

    def test_logit_bias_forbids_a_token(self):
        first = json.loads(CLIENT.post("/../tokenize", body={"prompt": "Hello", "add_special_tokens": False},
                                       cast_to=object).__str__().replace("'", '"').replace("None", "null"))["tokens"][0]
        free = chat(max_tokens=1, logprobs=True, extra_body=OFF)
        self.assertTrue("Hello".startswith(free.choices[0].logprobs.content[0].token))
        forbidden = chat(max_tokens=1, logit_bias={str(first): -100}, extra_body=OFF)
        self.assertNotEqual(forbidden.choices[0].message.content, free.choices[0].message.content)

    def test_json_object(self):
        reply = chat("Answer in json: name and age of a person.", response_format={"type": "json_object"},
                     extra_body=OFF)
        self.assertIn(reply.choices[0].finish_reason, ("stop", "length"))


class Streams(unittest.TestCase):
    def test_pieces_add_up(self):
        whole = chat(extra_body=OFF).choices[0].message.content
        chunks = list(chat(stream=True, stream_options={"include_usage": True}, extra_body=OFF))
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in chunks), whole)
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual([c.choices[0].finish_reason for c in chunks[:-1]], [None] * (len(chunks) - 1))
        self.assertEqual(chunks[-1].choices[0].finish_reason, "stop")
        self.assertIsNotNone(chunks[-1].usage)
        self.assertTrue(all(c.usage is None for c in chunks[:-1]))

    def test_several_choices(self):
        texts = ["", ""]
        for chunk in chat(stream=True, n=2, extra_body=OFF):
            texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
        self.assertEqual(texts[0], texts[1])  # greedy
        self.assertTrue(texts[0])

    def test_the_sdk_helper_accumulates(self):
        with CLIENT.chat.completions.stream(model="tiny", temperature=0, max_tokens=100, extra_body=OFF,
                                            messages=[{"role": "user", "content": "Hello"}]) as stream:
            final = stream.get_final_completion()
        self.assertEqual(final.choices[0].message.content, chat(extra_body=OFF).choices[0].message.content)

    def test_a_client_that_leaves_frees_its_sequence(self):
        with SERVER.one_cancelled():
            stream = chat("Tell me a story.", stream=True, max_tokens=4000, extra_body={**OFF, "ignore_eos": True})
            next(iter(stream))
            stream.close()

    def test_a_timeout_cancels(self):
        with SERVER.one_cancelled(), self.assertRaises(openai.APITimeoutError):
            CLIENT.with_options(timeout=0.3).chat.completions.create(
                model="tiny", max_tokens=6000, messages=[{"role": "user", "content": "Tell me a story."}],
                extra_body={**OFF, "ignore_eos": True})


class Reasoning(unittest.TestCase):
    def test_on_by_default_and_apart_from_the_answer(self):
        message = chat().choices[0].message
        self.assertTrue(message.reasoning_content)
        self.assertTrue(message.content)
        self.assertNotIn("think>", message.content + message.reasoning_content)

    def test_off_by_effort_and_by_template_arguments(self):
        for fields in ({"reasoning_effort": "none"},
                       {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}):
            with self.subTest(fields):
                self.assertIsNone(getattr(chat(**fields).choices[0].message, "reasoning_content", None))

    def test_the_server_may_default_to_no_thoughts(self):
        server = Server("--default-thinking", "off", "--chat-encoding", "model")
        client = openai.OpenAI(base_url=server.address + "/v1", api_key="unused", max_retries=0)
        ask = lambda **fields: client.chat.completions.create(
            model="tiny", temperature=0, max_tokens=100, messages=[{"role": "user", "content": "Hello"}],
            **fields).choices[0].message
        self.assertIsNone(getattr(ask(), "reasoning_content", None))
        self.assertTrue(ask(reasoning_effort="high").reasoning_content)
        server.stop()

    def test_streams_say_the_same(self):
        whole = chat().choices[0].message
        reasoning = content = ""
        for chunk in chat(stream=True):
            delta = chunk.choices[0].delta
            reasoning += getattr(delta, "reasoning_content", None) or ""
            content += delta.content or ""
        self.assertEqual((reasoning, content), (whole.reasoning_content, whole.content))

    def test_a_thought_that_takes_all_tokens_shows(self):
        reply = chat(max_tokens=4)
        self.assertEqual(reply.choices[0].finish_reason, "length")
        self.assertEqual(reply.choices[0].message.content, "")
        self.assertTrue(reply.choices[0].message.reasoning_content)
        self.assertEqual(reply.usage.completion_tokens_details.reasoning_tokens, 4)


class Tools(unittest.TestCase):
    def check_call(self, call):
        self.assertEqual(call.function.name, "get_weather")
        self.assertEqual(json.loads(call.function.arguments), {"location": "Paris", "unit": "celsius"})
        self.assertTrue(call.id.startswith("call_"))

    def test_auto_and_the_turn_after(self):
        messages = [{"role": "user", "content": ASK_WEATHER}]
        reply = chat(messages=messages, tools=TOOLS)
        choice = reply.choices[0]
        self.assertEqual(choice.finish_reason, "tool_calls")
        self.check_call(choice.message.tool_calls[0])
        messages.append(choice.message.model_dump(exclude_none=True))
        messages.append({"role": "tool", "tool_call_id": choice.message.tool_calls[0].id, "content": WEATHER_RESULT})
        after = chat(messages=messages, tools=TOOLS)
        self.assertEqual(after.choices[0].finish_reason, "stop")
        self.assertIn("21", after.choices[0].message.content)
        # What the model wrote is found again, byte for byte.
        self.assertGreaterEqual(after.usage.prompt_tokens, reply.usage.prompt_tokens + reply.usage.completion_tokens)

    def test_forced(self):
        for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
            with self.subTest(choice):
                reply = chat(ASK_WEATHER, tools=TOOLS, tool_choice=choice, extra_body=OFF)
                self.check_call(reply.choices[0].message.tool_calls[0])

    def test_none(self):
        message = chat(ASK_WEATHER, tools=TOOLS, tool_choice="none").choices[0].message
        self.assertIsNone(message.tool_calls)

    def test_streamed_arguments_are_json(self):
        name, arguments = "", ""
        for chunk in chat(ASK_WEATHER, tools=TOOLS, stream=True):
            for call in chunk.choices[0].delta.tool_calls or []:
                name += call.function.name or ""
                arguments += call.function.arguments or ""
        self.assertEqual(name, "get_weather")
        self.assertEqual(json.loads(arguments), {"location": "Paris", "unit": "celsius"})

    def test_results_of_parallel_calls_may_come_in_any_order(self):
        call = lambda i: {"id": f"c{i}", "type": "function",
                          "function": {"name": "get_weather", "arguments": '{"location": "Paris", "unit": "celsius"}'}}
        messages = [{"role": "user", "content": ASK_WEATHER},
                    {"role": "assistant", "content": "", "tool_calls": [call(1), call(2)]},
                    {"role": "tool", "tool_call_id": "c2", "content": "2"},
                    {"role": "tool", "tool_call_id": "c1", "content": "1"}]
        self.assertIsNotNone(chat(messages=messages, tools=TOOLS).choices[0].finish_reason)
        with self.assertRaisesRegex(openai.BadRequestError, "insufficient tool messages"):
            chat(messages=messages[:-1], tools=TOOLS)


class Errors(unittest.TestCase):
    def test_bad_requests_say_what_is_legal(self):
        for fields, words in (({"temperature": 3}, "temperature must be in"),
                              ({"messages": []}, "Empty input messages"),
                              ({"n": 1000}, "legal values are 1 to 128"),
                              ({"max_tokens": 10**9}, "8192"),
                              ({"tools": TOOLS, "tool_choice": "required"}, "Thinking mode"),
                              ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}},
                               "json_object"),
                              ({"messages": [{"role": "user", "content": [
                                  {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}]},
                               "images are not supported")):
            with self.subTest(fields), self.assertRaises(openai.BadRequestError) as caught:
                chat(**fields)
            self.assertIn(words, str(caught.exception))
            self.assertEqual(caught.exception.status_code, 400)

    def test_the_api_key_is_asked_for(self):
        server = Server("--api-key", "secret")
        client = openai.OpenAI(base_url=server.address + "/v1", api_key="wrong", max_retries=0)
        with self.assertRaises(openai.AuthenticationError):
            client.models.list()
        client = openai.OpenAI(base_url=server.address + "/v1", api_key="secret", max_retries=0)
        self.assertEqual(len(client.models.list().data), 1)
        server.stop()


class Others(unittest.TestCase):
    def test_models(self):
        models = CLIENT.models.list().data
        self.assertEqual(models[0].id, "tiny")
        self.assertEqual(CLIENT.models.retrieve("tiny").id, "tiny")

    def test_completions(self):
        reply = CLIENT.completions.create(model="tiny", prompt="In the beginning", max_tokens=8, temperature=0)
        self.assertTrue(reply.choices[0].text)
        self.assertEqual(reply.usage.completion_tokens, 8)

    def test_threads_share_the_server(self):
        import concurrent.futures
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(lambda _: chat(extra_body=OFF).choices[0].message.content, range(16)))
        self.assertEqual(len(set(replies)), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
