# SPDX-License-Identifier: Apache-2.0
"""Runs `lockstep batch` from Python, and turns the demo model's evaluation set into requests."""
import json
import os
import subprocess
import sys
import tempfile

EVAL_FOLDER = os.path.join(os.path.dirname(__file__), "..", "tests", "golden", "demo", "eval")
ANSWER_TOKENS_MAX = 320  # longer than every reference answer of the set


def parse_arguments(parser):
    """The arguments before "--"; those behind it become `options`, for lockstep itself."""
    arguments = sys.argv[1:]
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    parsed = parser.parse_args(arguments[:cut])
    parsed.options = arguments[cut + 1:]
    return parsed


class RunFailed(Exception):
    """`lockstep` ended with an error, or an answer is missing."""


def write_requests(requests, path):
    with open(path, "w", encoding="utf-8") as stream:
        for request in requests:
            stream.write(json.dumps(request, ensure_ascii=False) + "\n")


def read_results(requests, path):
    """Results by id. Every request must have exactly one, without an error."""
    results = {}
    with open(path, encoding="utf-8") as stream:
        for line in stream:
            result = json.loads(line)
            if "error" in result:
                raise RunFailed(f"request {result.get('id')}: {result['error']}")
            results[result["id"]] = result
    missing = [request["id"] for request in requests if request["id"] not in results]
    if missing:
        raise RunFailed(f"{len(missing)} answers are missing, the first is {missing[0]}")
    return results


def command_line(binary, model, folder, options):
    return [binary, "batch", "--model", model, *options, os.path.join(folder, "in.jsonl"),
            os.path.join(folder, "out.jsonl")]


def run_batch(binary, model, requests, options=()):
    """Runs all requests in one process and returns their results by id."""
    with tempfile.TemporaryDirectory(prefix="lockstep-") as folder:
        write_requests(requests, os.path.join(folder, "in.jsonl"))
        done = subprocess.run(command_line(binary, model, folder, options), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        if done.returncode:
            raise RunFailed(f"lockstep batch ended with {done.returncode}: {done.stderr[-2000:]}")
        return read_results(requests, os.path.join(folder, "out.jsonl"))


def text_samples():
    """The samples of the evaluation set that have no pictures."""
    with open(os.path.join(EVAL_FOLDER, "eval.jsonl"), encoding="utf-8") as stream:
        samples = [json.loads(line) for line in stream]
    return [s for s in samples if not s.get("images") and not s.get("videos")]


def turns(sample):
    """(index, message) of the assistant turns to be answered: those after the last question."""
    messages = sample["messages"]
    last_question = max(i for i, m in enumerate(messages) if m["role"] == "user")
    return [(i, m) for i, m in enumerate(messages)
            if i > last_question and m["role"] == "assistant"]


def eval_units():
    """One (task, request, expected message) per turn, greedy."""
    units = []
    for sample in text_samples():
        for index, message in turns(sample):
            request = {"id": f"{sample['id']}/{index}", "messages": sample["messages"][:index],
                       "thinking": sample["thinking"], "temperature": 0,
                       "max_tokens": ANSWER_TOKENS_MAX}
            if sample.get("tools"):
                request["tools"] = sample["tools"]
            units.append((sample["task"], request, message))
    return units


def docs_requests():
    """Held-out documentation to be continued; the head is often wrong there."""
    with open(os.path.join(EVAL_FOLDER, "docs_heldout.json"), encoding="utf-8") as stream:
        docs = json.load(stream)
    stride, length = docs["prompt_stride"], docs["prompt_tokens"]
    return [{"id": f"docs/{i}", "prompt_ids": docs["ids"][i * stride:i * stride + length],
             "temperature": 0, "max_tokens": 96} for i in range(docs["prompts"])]


def card_scores():
    """The model card's numbers."""
    with open(os.path.join(EVAL_FOLDER, "scores.json"), encoding="utf-8") as stream:
        return json.load(stream)
