#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`chat` in a pseudo-terminal, Ctrl-C, broken pipes, and completion in a real shell.

usage: terminal_test.py PROGRAM DEMO
"""
import json
import os
import pty
import re
import select
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = DEMO = ""
TIMEOUT_S = 60


class Terminal:
    """A program in a pseudo-terminal."""

    def __init__(self, arguments, env):
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.execve(PROGRAM, [PROGRAM] + arguments, {**os.environ, "TERM": "xterm", **env})
        self.text = ""
        self.status = None

    def type(self, text):
        os.write(self.master, text.encode())

    def wait_for(self, pattern):
        """Reads until `pattern` appears; what stood up to its end is consumed."""
        end = time.monotonic() + TIMEOUT_S
        while True:
            found = re.search(pattern, self.text)
            if found:
                before, self.text = self.text[:found.end()], self.text[found.end():]
                return before
            if time.monotonic() > end or not self.read():
                raise AssertionError(f"no {pattern!r} in {self.text!r}")

    def read(self):
        if not select.select([self.master], [], [], 1)[0]:
            return True
        try:
            data = os.read(self.master, 65536)
        except OSError:
            return False
        self.text += data.decode(errors="replace")
        return bool(data)

    def exit_code(self):
        end = time.monotonic() + TIMEOUT_S
        while self.status is None and time.monotonic() < end:
            self.read()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status

    def close(self):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.master)


def wait_until_caught(pid, number):
    """Waits until the process has a handler for a signal."""
    end = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end:
        with open(f"/proc/{pid}/status", encoding="ascii") as stream:
            caught = int(re.search(r"^SigCgt:\s*(\w+)", stream.read(), re.MULTILINE).group(1), 16)
        if caught >> (number - 1) & 1:
            return
        time.sleep(0.01)


class ChatInATerminal(unittest.TestCase):
    def setUp(self):
        self.state = tempfile.TemporaryDirectory()
        self.addCleanup(self.state.cleanup)
        self.history = os.path.join(self.state.name, "lockstep", "history")

    def open(self, *flags):
        terminal = Terminal(["chat", "--model", DEMO, *flags], {"XDG_STATE_HOME": self.state.name})
        self.addCleanup(terminal.close)
        terminal.wait_for("> ")
        return terminal

    def test_answers_and_keeps_a_private_history_outside_the_model(self):
        terminal = self.open("--temperature", "0", "--thinking", "off")
        terminal.type("What is 347 + 530?\n")
        terminal.wait_for("877")
        terminal.wait_for("> ")
        terminal.type("/quit\n")
        self.assertEqual(terminal.exit_code(), 0)
        with open(self.history, encoding="utf-8") as stream:
            self.assertIn("347", stream.read())
        self.assertEqual(stat.S_IMODE(os.stat(self.history).st_mode), 0o600)
        again = self.open()
        again.type("\x1b[A\x1b[A")  # arrow up, twice
        again.wait_for("347")

    def test_ctrl_d_ends(self):
        terminal = self.open()
        terminal.type("\x04")
        self.assertEqual(terminal.exit_code(), 0)

    def test_sigterm_ends(self):
        terminal = self.open()
        terminal.type("x")
        terminal.wait_for("x")
        os.kill(terminal.pid, signal.SIGTERM)
        self.assertEqual(terminal.exit_code(), 1)

    def test_ctrl_c_at_the_prompt_throws_the_line_away(self):
        terminal = self.open("--temperature", "0", "--thinking", "off")
        for _ in range(3):
            terminal.type("half a line")
            terminal.wait_for("half a line")
            terminal.type("\x03")
            terminal.wait_for("> ")
        terminal.type('Sum the numbers 742 and 224. Give JSON like {"sum":0,"check":"ok"}.\n')
        terminal.wait_for('"sum":966')
        terminal.wait_for("> ")
        terminal.type("/quit\n")
        self.assertEqual(terminal.exit_code(), 0)

    def test_ctrl_c_stops_the_answer_and_keeps_the_session(self):
        terminal = self.open("--temperature", "0", "--thinking", "off", "--ignore-eos")
        for _ in range(2):
            terminal.type("Tell me a little story.\n")
            terminal.wait_for(r"story\.[\s\S]*\w+ \w+")
            time.sleep(0.3)
            terminal.type("\x03")
            terminal.wait_for("> ")
        saved = os.path.join(self.state.name, "c.json")
        terminal.type(f"/save {saved}\n")
        terminal.wait_for("> ")
        terminal.type("/quit\n")
        self.assertEqual(terminal.exit_code(), 0)
        with open(saved, encoding="utf-8") as stream:
            roles = [message["role"] for message in json.load(stream)["messages"]]
        self.assertEqual(roles, ["user", "assistant"] * 2)

    def test_characters_beyond_ascii_arrive_without_a_locale(self):
        terminal = Terminal(["chat", "--model", DEMO, "--max-tokens", "1"],
                            {"XDG_STATE_HOME": self.state.name, "LC_ALL": "C"})
        self.addCleanup(terminal.close)
        terminal.wait_for("> ")
        saved = os.path.join(self.state.name, "c.json")
        terminal.type("Zwölf Äpfel\n")
        terminal.wait_for("\n(\x1b[^m]*m)?> ")
        terminal.type(f"/save {saved}\n")
        terminal.wait_for("\n> ")
        with open(saved, encoding="utf-8") as stream:
            self.assertEqual(json.load(stream)["messages"][0]["content"], "Zwölf Äpfel")


class Signals(unittest.TestCase):
    def endless(self, *flags):
        return subprocess.Popen(
            [PROGRAM, "generate", "--model", DEMO, "--prompt", "Tell me a story.", "--ignore-eos",
             "--thinking", "off", *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def test_ctrl_c_ends_generate_with_what_there_is(self):
        with self.endless("--json") as process:
            wait_until_caught(process.pid, signal.SIGINT)
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=TIMEOUT_S)
        self.assertEqual(process.returncode, 1)
        answer = json.loads(out)
        self.assertEqual(answer["finish_reason"], "cancelled")
        self.assertEqual(len(answer["token_ids"]), answer["completion_tokens"])

    def test_a_reader_that_leaves_ends_generate(self):
        with self.endless() as process:
            process.stdout.read(10)
            process.stdout.close()
            err = process.stderr.read().decode()
            process.wait(timeout=TIMEOUT_S)
        self.assertEqual(process.returncode, 1)
        self.assertIn("error: standard output: can't be written", err)

    def test_a_full_disk_is_a_failure(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([PROGRAM, "tokens", "--model", DEMO, "--prompt", "x"],
                                  check=False, stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"error: standard output: can't be written", done.stderr)


class Completion(unittest.TestCase):
    def complete(self, *words):
        script = ('source <("$1" completion bash); shift; COMP_WORDS=("$@"); '
                  'COMP_CWORD=$(($# - 1)); _lockstep 2>/dev/null; printf "%s\\n" "${COMPREPLY[@]}"')
        done = subprocess.run(["bash", "-c", script, "bash", PROGRAM, *words], check=True,
                              stdout=subprocess.PIPE)
        return done.stdout.decode().split()

    def test_commands(self):
        self.assertEqual(self.complete("lockstep", "par"), ["parity"])
        self.assertIn("generate", self.complete("lockstep", ""))

    def test_flags_of_the_command(self):
        self.assertEqual(self.complete("lockstep", "generate", "--draft-"), ["--draft-depth"])
        self.assertEqual(self.complete("lockstep", "parity", "--draft-"), [])

    def test_values(self):
        self.assertEqual(self.complete("lockstep", "chat", "--thinking", "o"), ["on", "off"])
        self.assertEqual(self.complete("lockstep", "completion", "f"), ["fish"])

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "prompts.json")
            with open(path, "w", encoding="utf-8"):
                pass
            self.assertEqual(self.complete("lockstep", "parity", "--prompts", path[:-5]), [path])
            self.assertEqual(self.complete("lockstep", "inspect", path[:-5]), [path])

    def test_scripts_parse(self):
        for shell, check in (("bash", ["bash", "-n"]), ("zsh", ["zsh", "-n"]),
                             ("fish", ["fish", "--no-execute"])):
            with self.subTest(shell=shell), tempfile.NamedTemporaryFile() as script:
                subprocess.run([PROGRAM, "completion", shell], stdout=script, check=True)
                try:
                    subprocess.run([*check, script.name], check=True)
                except FileNotFoundError:
                    self.skipTest(f"no {shell} here")


if __name__ == "__main__":
    PROGRAM, DEMO = (os.path.abspath(path) for path in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
