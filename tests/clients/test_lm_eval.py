"""lm-eval's local-completions against `pagestate serve`, on a task of a few lines that lies in a temporary folder.

Its log-likelihoods must be those that the server gives for the same tokens, and those that `pagestate eval` finds
without a server.
"""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest
import urllib.request

os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"

import lm_eval  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

from harness import PROGRAM, TINY, Server  # noqa: E402

# What `pagestate eval` puts in front of a text; clients spell it.
BEGIN = "<｜begin▁of▁sentence｜>"
DOCUMENTS = [
    {"text": BEGIN + "In the beginning God created the", "choices": [" heaven", " banana", " dog"], "gold": 0},
    {"text": BEGIN + "And God said, Let there be", "choices": [" light", " seventeen"], "gold": 0},
    {"text": BEGIN + "The opposite of hot is", "choices": [" cold", " blue"], "gold": 0},
]
TASK = """task: tiny_choice
dataset_path: json
dataset_kwargs:
  data_files: {{test: {file}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{text}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: gold
target_delimiter: ""
metric_list:
  - metric: acc
"""


def post(address, path, body):
    request = urllib.request.Request(address + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as reply:
        return json.load(reply)


class LmEval(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        documents = self.folder / "test.jsonl"
        documents.write_text("".join(json.dumps(d) + "\n" for d in DOCUMENTS))
        (self.folder / "tiny_choice.yaml").write_text(TASK.format(file=documents))
        # The tokenizer alone: the library does not know this model.
        self.tokenizer = self.folder / "tokenizer"
        self.tokenizer.mkdir()
        shutil.copy(pathlib.Path(TINY) / "tokenizer.json", self.tokenizer)
        (self.tokenizer / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
        self.server = Server()
        self.addCleanup(self.server.stop)

    def likelihood(self, text, continuation):
        """Sum over the continuation's tokens, straight from the server."""
        tokens = lambda t: post(self.server.address, "/tokenize", {"prompt": t, "add_special_tokens": False})["tokens"]
        ids = tokens(text + continuation)
        reply = post(self.server.address, "/v1/completions",
                     {"prompt": ids, "echo": True, "logprobs": 1, "max_tokens": 0, "temperature": 0})
        logprobs = reply["choices"][0]["logprobs"]["token_logprobs"]
        self.assertEqual(len(logprobs), len(ids))
        return sum(logprobs[len(tokens(text)):])

    def losses(self, texts):
        """Of whole texts, by `pagestate eval`: the sum of what it did not expect."""
        suite, report = self.folder / "suite.jsonl", self.folder / "report.json"
        suite.write_text("".join(json.dumps({"kind": "text", "id": f"text-{i}", "source": "test", "ends": False,
                                             "text": text.removeprefix(BEGIN)}) + "\n"
                                 for i, text in enumerate(texts)))
        subprocess.run([PROGRAM, "eval", "--model", TINY, "--suite", str(suite), "--json", str(report)], check=True,
                       stdout=subprocess.DEVNULL, timeout=300)
        return {text: case["loss"] for text, case in zip(texts, json.loads(report.read_text())["text_cases"])}

    def test_likelihoods_are_those_of_the_server_and_of_eval(self):
        result = lm_eval.simple_evaluate(
            model="local-completions", tasks=["tiny_choice"], log_samples=True, bootstrap_iters=0,
            task_manager=TaskManager(include_path=str(self.folder), include_defaults=False),
            model_args={"model": "tiny", "base_url": self.server.address + "/v1/completions", "num_concurrent": 2,
                        "tokenizer": str(self.tokenizer), "tokenizer_backend": "huggingface",
                        "tokenized_requests": True, "max_length": 2048})
        samples = sorted(result["samples"]["tiny_choice"], key=lambda s: s["doc_id"])
        self.assertEqual(len(samples), len(DOCUMENTS))
        losses = self.losses([t for d in DOCUMENTS for t in [d["text"], *(d["text"] + c for c in d["choices"])]])
        for sample, document in zip(samples, DOCUMENTS):
            for response, choice in zip(sample["filtered_resps"], document["choices"]):
                with self.subTest(document["text"] + choice):
                    found = float(response[0])
                    self.assertAlmostEqual(found, self.likelihood(document["text"], choice), places=4)
                    whole, context = losses[document["text"] + choice], losses[document["text"]]
                    self.assertAlmostEqual(found, context - whole, places=3)
        self.assertGreaterEqual(result["results"]["tiny_choice"]["acc,none"], 2 / 3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
