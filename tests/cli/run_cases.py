#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the program as a user would, and checks what it prints and how it ends.

usage: run_cases.py PROGRAM DEMO CASES... [--only WORD]

A case begins with `case: NAME` and is a list of lines `directive: value`; `#` begins a comment.
Words are split as a shell does. $DEMO is the demo model, $GOLDEN its goldens, $TMP the case's own
empty folder, where the program also runs. Of what stands before a `run`:

  file: PATH TEXT           writes a file; TEXT in one line, with \\n, \\r and \\xNN
  lines: PATH               ... or the lines that follow, each after `| `
  demo: DIR                 a copy of the demo model
  cut: FILE BYTES           shortens a file to BYTES, or by -BYTES
  remove: FILE              removes it
  replace: FILE OLD NEW     changes the first OLD in a text file
  copy: FROM TO             copies a file, after the runs before
  stdin: TEXT               standard input of the next run (else empty)
  env: NAME VALUE           of the next run
  killed: FILE N            the next run is killed (SIGKILL) as soon as FILE has N lines
  run: ARGUMENTS            runs the program; what follows checks this run

  exit: CODE
  stdout: TEXT              exactly; `stdout: ""` for nothing
  stdout has: REGEX         somewhere
  stdout lacks: REGEX
  stderr: TEXT
  stderr has: REGEX
  json: PATH OP VALUE       of stdout as JSON; PATH such as error.code or tokens.0.id;
                            OP: == != >= <= has (contains) len type, or ~ VALUE TOLERANCE
  same: PATH                equal to the first run of the case, there
  differs: PATH             not equal
  prefix: PATH              the beginning of that of the first run, and shorter
  jsonl FILE: KEY VALUE     FILE is JSON lines; one has `id` KEY and holds the text VALUE
  jsonl count: FILE N       FILE has N whole lines
  jsonl same: FILE OTHER    equal lines by id, times left out
"""
import argparse
import json
import operator
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

TIMEOUT_S = 300


class Failed(Exception):
    """A check that does not hold."""


def unescape(text):
    names = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\"}
    out = b""
    for piece in re.split(r"(\\x[0-9a-f]{2}|\\[nrt\\])", text):
        if piece.startswith("\\x"):
            out += bytes([int(piece[2:], 16)])
        elif re.fullmatch(r"\\[nrt\\]", piece):
            out += names[piece[1]]
        else:
            out += piece.encode()
    return out


def walk(value, path):
    """The value at a dotted path."""
    for part in path.split("."):
        try:
            value = value[int(part)] if isinstance(value, list) else value[part]
        except (KeyError, IndexError, TypeError, ValueError):
            raise Failed(f"no '{path}' in {json.dumps(value)[:300]}") from None
    return value


def shorten(text):
    return text if len(text) < 1500 else text[:700] + " ... " + text[-700:]


class Case:
    def __init__(self, name, place):
        self.name = name
        self.place = place
        self.steps = []  # (directive, value, line number)


def parse(path):
    cases = []
    with open(path, encoding="utf-8") as stream:
        for number, line in enumerate(stream, 1):
            line = line.rstrip("\n")
            if not line.strip() or line.startswith("#"):
                continue
            if line.startswith("|"):
                cases[-1].steps.append(("|", line[2:], number))
                continue
            directive, colon, value = line.partition(": ")
            if not colon:
                directive, value = line.rstrip(":"), ""
            if directive == "case":
                cases.append(Case(value, f"{os.path.basename(path)}:{number}"))
            else:
                cases[-1].steps.append((directive, value, number))
    return cases


class Runner:
    def __init__(self, program, demo, folder):
        self.program = program
        self.folder = folder
        self.demo = demo
        self.names = {"DEMO": demo, "TMP": folder,
                      "GOLDEN": os.path.join(os.getcwd(), "tests", "golden", "demo")}
        self.first = self.last = None
        self.input = b""
        self.env = {}
        self.kill = None
        self.lines_of = None

    def expand(self, text):
        return re.sub(r"\$(DEMO|TMP|GOLDEN)\b", lambda m: self.names[m.group(1)], text)

    def path(self, name):
        return os.path.join(self.folder, name)

    # ---- preparing ----

    def do_file(self, value):
        name, _, text = value.partition(" ")
        with open(self.path(name), "wb") as out:
            out.write(unescape(self.expand(text)))

    def do_lines(self, value):
        self.lines_of = self.path(value)
        with open(self.lines_of, "wb"):
            pass

    def add_line(self, text):
        with open(self.lines_of, "ab") as out:
            out.write(self.expand(text).encode() + b"\n")

    def do_demo(self, value):
        os.mkdir(self.path(value))
        for name in os.listdir(self.demo):
            target = self.path(os.path.join(value, name))
            try:
                os.link(os.path.join(self.demo, name), target)
            except OSError:
                shutil.copyfile(os.path.join(self.demo, name), target)

    def rewrite(self, name, change):
        """Replaces a file by a changed copy; the original may be shared by a link."""
        with open(self.path(name), "rb") as stream:
            data = stream.read()
        changed = change(data)
        if changed == data:
            raise Failed(f"{name} was not changed")
        os.unlink(self.path(name))
        with open(self.path(name), "wb") as out:
            out.write(changed)

    def do_cut(self, value):
        name, size = shlex.split(value)
        self.rewrite(name, lambda data: data[:int(size)])

    def do_remove(self, value):
        os.unlink(self.path(value))

    def do_replace(self, value):
        name, old, new = shlex.split(value)
        self.rewrite(name, lambda data: data.replace(old.encode(), new.encode(), 1))

    def do_copy(self, value):
        source, target = shlex.split(value)
        shutil.copyfile(self.path(source), self.path(target))

    def do_stdin(self, value):
        self.input = unescape(value)

    def do_env(self, value):
        name, _, text = value.partition(" ")
        self.env[name] = self.expand(text)

    def do_killed(self, value):
        name, count = shlex.split(value)
        self.kill = (self.path(name), int(count))

    # ---- running ----

    def do_run(self, value):
        command = [self.program] + shlex.split(self.expand(value))
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, cwd=self.folder,
                              env={**os.environ, **self.env}) as process:
            if self.kill:
                self.kill_at_lines(process, *self.kill)
            try:
                out, err = process.communicate(self.input, timeout=TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise Failed(f"took longer than {TIMEOUT_S} s: {value}") from None
        self.last = {"out": out.decode(errors="replace"), "err": err.decode(errors="replace"),
                     "exit": process.returncode}
        if self.first is None:
            self.first = self.last
        self.input, self.env, self.kill = b"", {}, None

    @staticmethod
    def kill_at_lines(process, path, count):
        end = time.monotonic() + TIMEOUT_S
        while time.monotonic() < end and process.poll() is None:
            if os.path.exists(path):
                with open(path, "rb") as stream:
                    if stream.read().count(b"\n") >= count:
                        break
            time.sleep(0.002)
        process.kill()

    # ---- checking ----

    def do_exit(self, value):
        if self.last["exit"] != int(value):
            raise Failed(f"exit code {self.last['exit']}, expected {value}\n"
                         f"stdout: {shorten(self.last['out'])}\n"
                         f"stderr: {shorten(self.last['err'])}")

    def exactly(self, stream, value):
        expected = unescape(self.expand(value)).decode()
        if expected == '""':
            expected = ""
        if self.last[stream] != expected:
            raise Failed(f"std{stream} is {self.last[stream]!r}, expected {expected!r}")

    def matches(self, stream, value):
        if not re.search(self.expand(value), self.last[stream], re.MULTILINE | re.DOTALL):
            raise Failed(f"std{stream} has no match of {value!r}: {shorten(self.last[stream])}")

    def lacks(self, value):
        if re.search(self.expand(value), self.last["out"], re.MULTILINE):
            raise Failed(f"stdout has a match of {value!r}: {shorten(self.last['out'])}")

    @staticmethod
    def parsed(run):
        try:
            return json.loads(run["out"])
        except ValueError as error:
            raise Failed(f"stdout is no JSON ({error}): {shorten(run['out'])}") from None

    def do_json(self, value):
        path, op, rest = (value.split(" ", 2) + [""])[:3]
        found = walk(self.parsed(self.last), path)
        if op == "~":
            wanted, tolerance = (float(x) for x in rest.split())
            good = abs(found - wanted) <= tolerance
        elif op == "type":
            kinds = {"int": int, "float": float, "str": str, "list": list, "dict": dict,
                     "null": type(None)}
            good = isinstance(found, kinds[rest])
        else:
            wanted = json.loads(rest)
            operations = {"==": operator.eq, "!=": operator.ne, ">=": operator.ge,
                          "<=": operator.le, "has": lambda f, w: w in f,
                          "len": lambda f, w: len(f) == w}
            good = operations[op](found, wanted)
        if not good:
            raise Failed(f"{path} is {json.dumps(found)[:500]}, expected {op} {rest}")

    def both(self, path):
        return (walk(self.parsed(run), path) for run in (self.first, self.last))

    def do_same(self, path):
        first, last = self.both(path)
        if first != last:
            raise Failed(f"{path} is {last}, and was {first} in the first run")

    def do_differs(self, path):
        first, last = self.both(path)
        if first == last:
            raise Failed(f"{path} is {last} in both runs")

    def do_prefix(self, path):
        first, last = self.both(path)
        if first[:len(last)] != last or len(last) >= len(first):
            raise Failed(f"{path} is {last}, no proper prefix of {first}")

    def read_jsonl(self, name):
        with open(self.path(name), encoding="utf-8") as stream:
            text = stream.read()
        if text and not text.endswith("\n"):
            raise Failed(f"{name} ends in the middle of a line")
        return [json.loads(line) for line in text.splitlines()]

    def jsonl_has(self, name, value):
        key, text = shlex.split(value)
        found = [entry for entry in self.read_jsonl(name) if str(entry["id"]) == key]
        if not any(text in json.dumps(entry) for entry in found):
            raise Failed(f"no line of {name} with id {key} holds {text!r}: {found}")

    def jsonl_count(self, value):
        name, count = shlex.split(value)
        found = len(self.read_jsonl(name))
        if found != int(count):
            raise Failed(f"{name} has {found} lines, expected {count}")

    def jsonl_same(self, value):
        def by_id(name):
            keep = ("id", "line", "error", "text", "raw_text", "token_ids", "seed", "finish_reason")
            entries = [{k: e[k] for k in keep if k in e} for e in self.read_jsonl(name)]
            return sorted(json.dumps(entry, sort_keys=True) for entry in entries)
        one, other = (by_id(name) for name in shlex.split(value))
        if one != other:
            raise Failed(f"{value}: {[e for e in one + other if (e in one) != (e in other)]}")

    def step(self, directive, value):
        if directive == "|":
            self.add_line(value)
        elif directive in ("stdout", "stderr"):
            self.exactly(directive[3:], value)
        elif directive in ("stdout has", "stderr has"):
            self.matches(directive[3:6], value)
        elif directive == "stdout lacks":
            self.lacks(value)
        elif directive == "jsonl count":
            self.jsonl_count(value)
        elif directive == "jsonl same":
            self.jsonl_same(value)
        elif directive.startswith("jsonl "):
            self.jsonl_has(directive[6:], value)
        else:
            perform = getattr(self, "do_" + directive, None)
            if perform is None:
                raise Failed("is no directive")
            perform(value)


def run_case(case, program, demo):
    """None, or what is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(program, demo, folder)
        for directive, value, number in case.steps:
            try:
                runner.step(directive, value)
            except Failed as failure:
                return f"line {number}: {directive}: {value}\n    {failure}"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("demo")
    parser.add_argument("cases", nargs="+")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    program, demo = os.path.abspath(options.program), os.path.abspath(options.demo)
    failed = count = 0
    for path in options.cases:
        for case in parse(path):
            if options.only not in case.name:
                continue
            count += 1
            wrong = run_case(case, program, demo)
            if wrong:
                failed += 1
                print(f"FAILED {case.place} {case.name}: {wrong}", flush=True)
            else:
                print(f"ok     {case.place} {case.name}", flush=True)
    print(f"{count} cases, {failed} failed")
    return 1 if failed or not count else 0


if __name__ == "__main__":
    sys.exit(main())
