#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random requests through `lockstep batch`, compared with the same requests alone and undrafted.

usage: soak.py BINARY MODEL [--minutes 60] [--requests 120] [--seed N] [-- OPTIONS OF lockstep]

A round draws requests (prompts, lengths, stops, sampling, seeds, draft depths), runs them
stepped together, N at a time, and again one by one with depth 0. Token ids and finish reasons must
be equal. Resident memory is sampled; it may not grow while a round lasts. Exit 1 on a difference,
on growth, or when lockstep fails (a sanitizer's report ends it).
"""
import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time

import batch_runs

SAMPLE_PERIOD_S = .25
MIB = 1 << 20
# Over the second quarter's largest: an eighth for luck in what runs together, and allocator slack.
GROWTH_SHARE_MAX, GROWTH_BYTES_MAX = 1 / 8, 32 * MIB


def random_request(generator, index, prompts):
    """A request whose answer depends on nothing but itself."""
    request = dict(generator.choice(prompts))
    request["id"] = f"r{index}"
    request["max_tokens"] = generator.choice([1, 2, 3, 5, 8, 17, 33, 64, 96])
    request["seed"] = generator.getrandbits(32)
    request["draft_depth"] = generator.choice(["auto", *range(9)])
    request["temperature"] = generator.choice([0, 0, .3, .7, 1, 1.5])
    if generator.random() < .5:
        request["top_k"] = generator.choice([1, 5, 20, 100])
    if generator.random() < .5:
        request["top_p"] = generator.choice([.3, .8, .95])
    if generator.random() < .3:
        request["min_p"] = generator.choice([.01, .1])
    if generator.random() < .3:
        request["presence_penalty"] = generator.choice([-.5, .5, 1.5])
    if generator.random() < .3:
        request["frequency_penalty"] = generator.choice([-.5, .5, 1.5])
    if generator.random() < .3:
        request["repetition_penalty"] = generator.choice([.9, 1.1, 1.4])
    if generator.random() < .3:
        request["stop"] = [generator.choice(["e", " the", "\n", "ing", "}", ". "])]
    if generator.random() < .3:
        request["ignore_eos"] = True
    return request


def prompts():
    """The evaluation set's questions and the held-out documentation, without their settings."""
    kept = ("messages", "tools", "thinking", "prompt_ids")
    requests = [request for _, request, _ in batch_runs.eval_units()] + batch_runs.docs_requests()
    return [{key: request[key] for key in kept if key in request} for request in requests]


def resident_bytes(pid):
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as stream:
            return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def run_watched(binary, model, requests, options):
    """(results by id, resident bytes over time)."""
    samples = []
    with tempfile.TemporaryDirectory(prefix="lockstep-soak-") as folder:
        batch_runs.write_requests(requests, os.path.join(folder, "in.jsonl"))
        command = batch_runs.command_line(binary, model, folder, options)
        # A small quarantine, so that memory kept by the sanitizer does not look like growth.
        environment = {"ASAN_OPTIONS": "quarantine_size_mb=8:detect_leaks=1", **os.environ}
        with subprocess.Popen(command, env=environment, text=True, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE) as process:
            errors = []
            reader = threading.Thread(target=lambda: errors.append(process.stderr.read()))
            reader.start()
            while process.poll() is None:
                samples.append(resident_bytes(process.pid))
                time.sleep(SAMPLE_PERIOD_S)
            reader.join()
        if process.returncode:
            raise batch_runs.RunFailed(f"lockstep ended with {process.returncode}:\n"
                                       f"{errors[0][-8000:]}")
        results = batch_runs.read_results(requests, os.path.join(folder, "out.jsonl"))
    return results, [s for s in samples if s]


def grown(samples):
    """Bytes by which the last quarter's largest exceeds what the second quarter's allows."""
    quarter = len(samples) // 4
    if quarter < 4:
        return 0
    early = max(samples[quarter:2 * quarter])
    return max(0, max(samples[-quarter:]) - early * (1 + GROWTH_SHARE_MAX) - GROWTH_BYTES_MAX)


def one_round(arguments, generator, pool):
    """(requests, tokens, differences as text, bytes grown, largest resident bytes)."""
    requests = [random_request(generator, i, pool) for i in range(arguments.requests)]
    parallel = generator.choice([2, 3, 4, 8, 16])
    threads = generator.choice([1, 2, 4])
    together, samples = run_watched(
        arguments.binary, arguments.model, requests,
        ["--parallel", str(parallel), "--threads", str(threads), *arguments.options])
    plain = [{**request, "draft_depth": 0} for request in requests]
    alone, more = run_watched(arguments.binary, arguments.model, plain,
                              ["--parallel", "1", *arguments.options])
    differences = []
    for request in requests:
        a, b = together[request["id"]], alone[request["id"]]
        if (a["token_ids"], a["finish_reason"]) != (b["token_ids"], b["finish_reason"]):
            differences.append(f"parallel {parallel}, threads {threads}, request {request}: "
                               f"{a['token_ids']} {a['finish_reason']}, alone and plain "
                               f"{b['token_ids']} {b['finish_reason']}")
    tokens = sum(len(result["token_ids"]) for result in together.values())
    return len(requests), tokens, differences, max(grown(samples), grown(more)), max(samples + more)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binary")
    parser.add_argument("model")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--requests", type=int, default=120, help="of one round")
    parser.add_argument("--seed", type=int, default=None)
    arguments = batch_runs.parse_arguments(parser)
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().getrandbits(32)
    print(f"seed {seed}", flush=True)
    generator, pool = random.Random(seed), prompts()
    started = time.monotonic()
    rounds = requests = tokens = differing = 0
    grew, peaks = False, []
    while rounds == 0 or time.monotonic() - started < 60 * arguments.minutes:
        try:
            count, more, differences, growth, peak = one_round(arguments, generator, pool)
        except batch_runs.RunFailed as failure:
            print(f"error: round {rounds}, seed {seed}: {failure}", file=sys.stderr)
            return 1
        rounds, requests, tokens = rounds + 1, requests + count, tokens + more
        differing += len(differences)
        grew |= growth > 0
        peaks.append(peak)
        for difference in differences[:5]:
            print(f"error: {difference}", file=sys.stderr)
        print(f"round {rounds}: {count} requests, {more} tokens, {len(differences)} differences, "
              f"{peak / MIB:.0f} MiB at most" + (f", GREW by {growth / MIB:.0f} MiB" if growth
                                                  else ""), flush=True)
    print(f"{(time.monotonic() - started) / 60:.1f} minutes, {rounds} rounds, {requests} requests, "
          f"{tokens} tokens, {differing} differences, resident at most "
          f"{peaks[0] / MIB:.0f} MiB in the first round and {max(peaks) / MIB:.0f} MiB in any")
    return 1 if differing or grew else 0


if __name__ == "__main__":
    sys.exit(main())
