#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A first look at the product: the demo model opens, answers, and drafts without a trace.

usage: demo.py BINARY MODEL

Runs each command as a user would, in pairs with and without MTP, and compares the token ids.
"""
import json
import shlex
import statistics
import subprocess
import sys

PROMPTS = [
    "Explain speculative decoding.",
    "Write a Python function total(xs) that returns the sum of the squares of a list.",
    'Add 187 and 236. Reply with JSON only: {"sum":N,"check":"ok"}.',
]
PAIRS = 5


def run(command, echo=False):
    if echo:
        print("$ " + shlex.join(command), flush=True)
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        print(f"error: '{shlex.join(command)}' ended with {done.returncode}", file=sys.stderr)
        sys.exit(1)
    return done.stdout


def answer(binary, model, prompt, depth):
    return json.loads(run([binary, "generate", "--model", model, "--prompt", prompt, "--thinking",
                           "off", "--temperature", "0", "--draft-depth", depth, "--json"]))


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    binary, model = sys.argv[1:]
    print(run([binary, "inspect", model], echo=True))
    for prompt in PROMPTS:
        print(run([binary, "generate", "--model", model, "--prompt", prompt, "--thinking", "off",
                   "--temperature", "0"], echo=True).rstrip() + "\n", flush=True)
    print(f"Decoding speed without and with MTP, median of {PAIRS} alternating pairs:\n")
    print(f"{'plain tok/s':>12} {'MTP tok/s':>10} {'gain':>6} {'accepted':>10}  token ids")
    all_equal = True
    for prompt in PROMPTS:
        runs = [(answer(binary, model, prompt, "0"), answer(binary, model, prompt, "auto"))
                for _ in range(PAIRS)]
        plain, mtp = (statistics.median(r[i]["timings"]["decode_tokens_per_s"] for r in runs)
                      for i in (0, 1))
        equal = len({tuple(r["token_ids"]) for pair in runs for r in pair}) == 1
        all_equal &= equal
        last = runs[-1][1]["speculation"]
        print(f"{plain:12.1f} {mtp:10.1f} {mtp / plain:5.2f}x "
              f"{last['accepted']:5d}/{last['drafted']:<4d}  {'equal' if equal else 'DIFFERENT'}")
    print("\nThe answers are the same with and without drafts." if all_equal else
          "\nerror: the answers differ; please report this")
    return 0 if all_equal else 1


if __name__ == "__main__":
    sys.exit(main())
