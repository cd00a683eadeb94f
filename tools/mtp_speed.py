#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Decoding speed with MTP (depth auto) against plain decoding, per task, in alternating pairs.

usage: mtp_speed.py BINARY MODEL [--pairs 9] [--requests 12] [--tasks arith,docs] [--depth auto]
                    [-- OPTIONS OF lockstep]

The ratio of a pair is plain decode time over MTP decode time for the same answers, pooled over the
task's requests. Prints the median, its range over the pairs and the 95 % bootstrap interval of the
median. Exit 1 when token ids differ, or when the upper end of the interval is below .98.
"""
import argparse
import random
import statistics
import sys

import batch_runs

RATIO_MIN = .98
BOOTSTRAPS = 10000


def task_requests(per_task):
    tasks = {}
    for name, request, _ in batch_runs.eval_units():
        tasks.setdefault(name, []).append(request)
    tasks["docs"] = batch_runs.docs_requests()
    return {name: requests[:per_task] for name, requests in tasks.items()}


def paired_requests(requests, pairs, depth):
    """All requests plain and drafted, once per pair, the order turned around at every pair."""
    out = []
    for pair in range(pairs):
        for policy in (("plain", "mtp") if pair % 2 == 0 else ("mtp", "plain")):
            for request in requests:
                out.append({**request, "id": f"{pair}/{policy}/{request['id']}",
                            "draft_depth": 0 if policy == "plain" else depth})
    return out


def interval(ratios):
    """95 % interval of the median by resampling the pairs; the seed is fixed."""
    generator = random.Random(1)
    medians = sorted(statistics.median(generator.choices(ratios, k=len(ratios)))
                     for _ in range(BOOTSTRAPS))
    return medians[int(.025 * BOOTSTRAPS)], medians[int(.975 * BOOTSTRAPS)]


def measure(arguments, requests):
    """(ratios, tokens per second plain, with MTP, ids that differ) of one task."""
    # The first pair warms up and is not counted.
    batch = paired_requests(requests, arguments.pairs + 1, arguments.depth)
    results = batch_runs.run_batch(arguments.binary, arguments.model, batch,
                                   ["--parallel", "1", *arguments.options])
    ratios, plain_speeds, mtp_speeds, differing = [], [], [], set()
    for pair in range(1, arguments.pairs + 1):
        seconds = {"plain": 0., "mtp": 0.}
        tokens = 0
        for request in requests:
            both = {p: results[f"{pair}/{p}/{request['id']}"] for p in seconds}
            if both["plain"]["token_ids"] != both["mtp"]["token_ids"]:
                differing.add(request["id"])
            for policy, result in both.items():
                seconds[policy] += result["timings"]["decode_s"]
            tokens += both["plain"]["completion_tokens"] - 1  # the first is of the prefill
        ratios.append(seconds["plain"] / seconds["mtp"])
        plain_speeds.append(tokens / seconds["plain"])
        mtp_speeds.append(tokens / seconds["mtp"])
    return ratios, statistics.median(plain_speeds), statistics.median(mtp_speeds), differing


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binary")
    parser.add_argument("model")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--requests", type=int, default=12, help="per task")
    parser.add_argument("--tasks", default="", help="comma-separated; all if empty")
    parser.add_argument("--depth", default="auto")
    arguments = batch_runs.parse_arguments(parser)
    if arguments.depth.isdigit():
        arguments.depth = int(arguments.depth)
    tasks = task_requests(arguments.requests)
    wanted = [name for name in arguments.tasks.split(",") if name] or list(tasks)
    unknown = [name for name in wanted if name not in tasks]
    if unknown or arguments.pairs < 1 or arguments.requests < 1:
        parser.error(f"tasks are {', '.join(tasks)}; pairs and requests at least 1")
    print("| task | plain tok/s | MTP tok/s | ratio (range, pairs) | 95 % of the median | ids |\n"
          "| --- | --- | --- | --- | --- | --- |", flush=True)
    failed, medians = False, []
    for name in wanted:
        try:
            ratios, plain, mtp, differing = measure(arguments, tasks[name])
        except batch_runs.RunFailed as failure:
            print(f"error: {failure}", file=sys.stderr)
            return 1
        low, high = interval(ratios)
        median = statistics.median(ratios)
        medians.append(median)
        failed |= bool(differing) or high < RATIO_MIN
        print(f"| {name} | {plain:.1f} | {mtp:.1f} | {median:.2f} ({min(ratios):.2f}.."
              f"{max(ratios):.2f}, {len(ratios)}) | {low:.2f}..{high:.2f} | "
              f"{'equal' if not differing else 'DIFFER: ' + ' '.join(sorted(differing))} |",
              flush=True)
    print(f"\nMedian gain over {len(medians)} tasks: {statistics.median(medians):.2f}x "
          f"({min(medians):.2f}..{max(medians):.2f})")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
