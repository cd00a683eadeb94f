#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The demo model's text tasks: answers, fields, acceptance and perplexity beside its card's.

usage: eval_table.py BINARY MODEL [--draft-depth 3] [--parallel 8] [-- OPTIONS OF lockstep]

Prints a markdown table. Exit 1 when a task has fewer right answers or fields than the card (less
--slack answers), when acceptance is off by more than .02 (2,000 or more tried) or 2.5 standard
errors (fewer), or when the perplexity is off by more than .1.
"""
import argparse
import collections
import json
import math
import os
import subprocess
import sys

import batch_runs

TRIED_ENOUGH = 2000
ACCEPTANCE_OFF_MAX = .02
STANDARD_ERRORS_MAX = 2.5
PERPLEXITY_OFF_MAX = .1


def expected_text(message):
    """What the template would print for this turn: content, then calls."""
    text = (message.get("content") or "").strip()
    for index, call in enumerate(message.get("tool_calls") or []):
        function = call.get("function", call)
        text += ("\n\n" if text else "") if index == 0 else "\n"
        text += f"<tool_call>\n<function={function['name']}>\n"
        for name, value in function["arguments"].items():
            shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            text += f"<parameter={name}>\n{shown}\n</parameter>\n"
        text += "</function>\n</tool_call>"
    return text.strip()


def final_answer(raw_text):
    return raw_text.split("</think>")[-1].replace("<|im_end|>", "").strip()


def parse_json(text):
    try:
        return json.loads(text)
    except ValueError:
        return None


def fields_right(answer, expected):
    """(right, total): items of a JSON object or list; anything else is one field."""
    want = parse_json(expected)
    if isinstance(want, dict):
        got = parse_json(answer)
        got = got if isinstance(got, dict) else {}
        return sum(key in got and got[key] == value for key, value in want.items()), len(want)
    if isinstance(want, list):
        got = parse_json(answer)
        got = got if isinstance(got, list) else []
        right = sum(i < len(got) and got[i] == value for i, value in enumerate(want))
        return right, max(1, len(want))
    return int(answer == expected), 1


class Task:
    """Counts of one task."""

    def __init__(self):
        self.count = self.answers = self.fields = self.fields_total = 0
        self.rounds = self.accepted_all = 0
        self.tried = collections.Counter()
        self.accepted = collections.Counter()

    def add_answer(self, answer, expected):
        self.count += 1
        self.answers += answer == expected
        right, total = fields_right(answer, expected)
        self.fields += right
        self.fields_total += total

    def add_speculation(self, speculation):
        self.rounds += speculation["rounds"]
        self.accepted_all += speculation["accepted"]
        for depth, tried in enumerate(speculation["tried_per_depth"]):
            self.tried[depth] += tried
            self.accepted[depth] += speculation["accepted_per_depth"][depth]

    def acceptance(self, depth):
        return self.accepted[depth] / max(1, self.tried[depth])

    def tokens_per_cycle(self):
        return 1 + self.accepted_all / max(1, self.rounds)


def acceptance_problems(name, task, card):
    """Depths whose acceptance is too far from the card's."""
    for depth, want in enumerate(card["conditional_acceptance"]):
        tried = task.tried[depth]
        if not tried:
            continue
        # Add one success and one failure, so that a card of 100 % still has a spread.
        rate = (want * tried + 1) / (tried + 2)
        error = math.sqrt(rate * (1 - rate) / tried)
        limit = ACCEPTANCE_OFF_MAX if tried >= TRIED_ENOUGH else STANDARD_ERRORS_MAX * error
        if abs(task.acceptance(depth) - want) > limit:
            yield (f"{name}: acceptance at depth {depth + 1} is {task.acceptance(depth):.4f} of "
                   f"{tried}, the card says {want:.4f}, at most {limit:.4f} apart")


def score_problems(name, task, card, slack):
    answers = round(card["exact_answer"] * task.count)
    fields = round(card["fields"] * card["n_fields"])
    if task.answers + slack < answers:
        yield f"{name}: {task.answers} right answers, the card has {answers}"
    if task.fields + slack < fields:
        yield f"{name}: {task.fields} right fields, the card has {fields}"


def percents(values):
    return " / ".join(f"{100 * v:.1f}" for v in values)


def row(name, task, card):
    cells = [name, str(task.count or "-")]
    if task.count:
        cells += [f"{100 * task.answers / task.count:.1f} ({100 * card['exact_answer']:.1f})",
                  f"{100 * task.fields / task.fields_total:.1f} ({100 * card['fields']:.1f})"]
    else:
        cells += ["-", "-"]
    mtp = card.get("mtp", card)
    cells += [percents(task.acceptance(d) for d in range(3)) +
              f" ({percents(mtp['conditional_acceptance'])})",
              f"{task.tokens_per_cycle():.2f} ({mtp['tokens_per_cycle']:.2f})"]
    return "| " + " | ".join(cells) + " |"


def perplexity(binary, model, options):
    path = os.path.join(batch_runs.EVAL_FOLDER, "docs_heldout.json")
    done = subprocess.run([binary, "score", "--model", model, "--json", *options, path], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        raise batch_runs.RunFailed(f"lockstep score ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)["perplexity"]


def measure(arguments):
    """Counts per task, in the order of the set; the documentation prompts last."""
    units = batch_runs.eval_units()
    requests = [request for _, request, _ in units] + batch_runs.docs_requests()
    for request in requests:
        request["draft_depth"] = arguments.draft_depth
    options = ["--parallel", str(arguments.parallel), *arguments.options]
    results = batch_runs.run_batch(arguments.binary, arguments.model, requests, options)
    tasks = {}
    for name, request, message in units:
        result = results[request["id"]]
        task = tasks.setdefault(name, Task())
        task.add_answer(final_answer(result["raw_text"]), expected_text(message))
        task.add_speculation(result["speculation"])
    docs = tasks["docs"] = Task()
    for request in batch_runs.docs_requests():
        docs.add_speculation(results[request["id"]]["speculation"])
    return tasks


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binary")
    parser.add_argument("model")
    parser.add_argument("--draft-depth", type=int, default=3)
    parser.add_argument("--parallel", type=int, default=8)
    parser.add_argument("--slack", type=int, default=0, help="answers a task may have fewer")
    arguments = batch_runs.parse_arguments(parser)
    card = batch_runs.card_scores()
    try:
        tasks = measure(arguments)
        found = perplexity(arguments.binary, arguments.model, arguments.options)
    except batch_runs.RunFailed as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    problems = []
    print("| task | n | answer % (card) | fields % (card) | drafts 1/2/3 % (card) "
          "| tokens/cycle (card) |\n| --- | --- | --- | --- | --- | --- |")
    for name, task in tasks.items():
        want = card["docs_greedy"] if name == "docs" else card["heldout_set"][name]
        print(row(name, task, want))
        if task.count:
            problems += score_problems(name, task, want, arguments.slack)
        if arguments.draft_depth == 3:
            problems += acceptance_problems(name, task, want.get("mtp", want))
    want = card["docs_heldout"]["perplexity"]
    print(f"\nPerplexity of held-out documentation: {found:.3f} (card {want:.3f})")
    if not abs(found - want) <= PERPLEXITY_OFF_MAX:
        problems.append(f"perplexity {found:.3f}, the card says {want:.3f}")
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
