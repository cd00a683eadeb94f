#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""House rules that no compiler checks: prints file:line: rule: reason, exit 1 if one is broken.

usage: tidy.py [--root DIR] [--rules] [FILE...]

With files, only those are checked, and their paths are taken as relative to the root. A line, a
function or a file that needs an exception says why:
  // tidy: long because ...        the function or line below or beside it, or (on top) the file
  // tidy: allow RULE because ...  one line
"""
import argparse
import os
import re
import sys

LAYERS = {
    "base": 0, "io": 1, "quant": 1, "media": 1, "text": 2, "spec": 2, "ops": 2, "convert": 3,
    "model": 4, "decode": 5, "verify": 6, "bench": 6, "eval": 6, "server": 6, "cli": 7,
}
# Rooms that include less than their layer would let them.
NARROWED = {
    "io": {"io", "base"},
    "quant": {"quant", "base"},
    "media": {"media", "base"},
    "ops": {"ops", "quant", "base"},
    "text": {"text", "io", "base"},
    "spec": {"spec", "io", "quant", "base"},
}
LINE_MAX = 100
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 600
SKIPPED_FOLDERS = {".git", ".venv", "build", "target", "__pycache__", "corpus", "golden", "models"}
BAD_ON_PURPOSE = ("tools/tidy.py", "tests/tidy/tidy_test.py")
CODE = (".h", ".cpp")
HASH_COMMENTED = (".py", ".sh", ".cmake", "Cargo.toml", "CMakeLists.txt", "dev", ".ci/run")
MACHINE_PATH = re.compile(r"(?<![\w.$}/])/(?:work|root|tmp|home)/\w")

# (name, pattern, where it holds, reason). Patterns see code without comments and strings.
BANNED = [
    ("prints", re.compile(r"\b(?:std::)?(?:printf|puts|fprintf|vprintf|vfprintf|fputs)\s*\(|"
                          r"\bstd::(?:cout|cerr|clog)\b"),
     lambda f: f.library and f.path != "lockstep/base/check.cpp",
     "only cli/ prints; return a value or an error"),
    ("using-namespace", re.compile(r"\busing\s+namespace\b"), lambda f: f.path.endswith(".h"),
     "a header must not open a namespace for its readers"),
    ("throws", re.compile(r"\bthrow\b(?!\s*\()"), lambda f: f.product,
     "we throw nothing; return Result<T>"),
    # A smart pointer may take the object of a private constructor in the same expression.
    ("raw-new", re.compile(r"(?<!>\()(?<!operator )\bnew\s+[\w:(<]|"
                           r"(?<!= )(?<!operator )\bdelete\s*(?:\[\s*\]\s*)?[\w:(*]"),
     lambda f: f.product, "own memory with containers or std::unique_ptr"),
    ("c-random", re.compile(r"\b(?:std::)?s?rand\s*\("), lambda f: f.code,
     "use Philox, whose stream is a function of the seed"),
    ("regex", re.compile(r"\bstd::w?(?:regex|smatch|cmatch|regex_\w+)\b"), lambda f: f.product,
     "std::regex recurses on its input"),
]
# Name of a mutable namespace-scope variable at the start of a line, outside any braces.
GLOBAL = re.compile(r"^(?:static\s+|thread_local\s+|inline\s+)*"
                    r"(?!(?:using|typedef|return|extern|friend|template|namespace|class|struct|"
                    r"enum|union|static_assert|constexpr|const|concept|public|private|protected|"
                    r"case|goto|default|requires|operator)\b)"
                    r"[\w:]+(?:<[^;(){}]*>)?[\s*&]+(\w+)(?:\[[^\]]*\])?\s*(?:=[^=].*|\{.*\})?;\s*$")
TOLERANCE = re.compile(r"(?<![\w.])(?:\d+(?:\.\d*)?|\.\d+)e-\d+f?\b|(?<![\w.])0?\.0{2,}\d+f?\b")
UNFINISHED = re.compile(r"\b(?:" + "TO" + "DO|FIX" + "ME|XX" + "X)\\b")
FAST_MATH = "-ffast" + "-math"


class File:
    """One file's text, its code without comments and strings, and what kind of file it is."""

    def __init__(self, root, path):
        self.path = path
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as stream:
            self.text = stream.read()
        self.lines = self.text.split("\n")
        self.code = path.endswith(CODE)
        outside = path.startswith(("tests/", "fuzz/", "benchmarks/"))
        self.test = outside or path.endswith("_test.cpp")
        self.product = self.code and path.startswith("lockstep/") and not self.test
        self.library = self.product and not path.startswith("lockstep/cli/")
        self.bare = strip(self.text).split("\n") if self.code else self.lines

    def allows(self, index, rule):
        """True when line `index` (from 0), or the one above, carries an exception with a reason."""
        mark = re.compile(r"tidy: allow " + re.escape(rule) + r" because \w+")
        return any(mark.search(line) for line in self.lines[max(0, index - 1):index + 1])


def strip(text):
    """Blanks comments, string and character literals; keeps the line structure."""
    pattern = re.compile(
        r'R"(\w*)\((?:.|\n)*?\)\1"|//[^\n]*|/\*(?:.|\n)*?\*/|"(?:\\.|[^"\\\n])*"|'
        r"(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'")

    def blank(match):
        found = match.group(0)
        keep = '""' if found[0] in 'R"' else "''" if found[0] == "'" else ""
        return keep + "\n" * found.count("\n")

    return pattern.sub(blank, text)


# ---- rules: each yields (line number from 1, reason) ------------------------------------------

def rule_layer(file):
    """A folder includes only itself and lower layers."""
    parts = file.path.split("/")
    if not file.code or parts[0] != "lockstep" or len(parts) < 3:
        return
    room = parts[1]
    if room not in LAYERS:
        yield 1, f"folder lockstep/{room} has no layer; name it in tools/tidy.py"
        return
    for number, line in enumerate(file.lines, 1):
        match = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
        if not match:
            continue
        target = match.group(1).split("/")
        if target[0] not in ("lockstep", "bridge"):
            yield number, f'"{match.group(1)}": include paths start at the repository root'
        elif target[0] == "bridge":
            if room != "text":
                yield number, "only lockstep/text includes the bridge"
        else:
            if not may_include(room, target[1]):
                yield number, f"{room}/ may not include {target[1]}/"


def may_include(room, target):
    if target == room:
        return True
    if target not in LAYERS or LAYERS[target] >= LAYERS[room]:
        return False
    return room not in NARROWED or target in NARROWED[room]


def rule_pragma_once(file):
    """Headers begin with #pragma once; *_inl.h are meant to be included again, bridge.h is C."""
    if not file.path.endswith(".h") or file.path.endswith("_inl.h"):
        return
    guarded = file.path.startswith("bridge/") and "#ifndef " in file.text
    if file.lines.count("#pragma once") != 1 and not guarded:
        yield 1, "a header needs #pragma once, once"


def rule_spdx(file):
    """Source files name their licence on top."""
    if file.path.endswith(CODE + (".rs",)) or file.path.endswith(HASH_COMMENTED):
        if not any("SPDX-License-Identifier: Apache-2.0" in line for line in file.lines[:2]):
            yield 1, "the first or second line must be the SPDX licence line"


def rule_line_length(file):
    """Lines fit 100 columns."""
    if not file.path.endswith(CODE + HASH_COMMENTED + (".rs",)):
        return
    for number, line in enumerate(file.lines, 1):
        if len(line) > LINE_MAX and "://" not in line and not explained_long(file, number - 1):
            yield number, f"{len(line)} columns, at most {LINE_MAX}"


def explained_long(file, index):
    """A reason beside the line, above it, or above the block of lines that it stands in."""
    mark = re.compile(r"tidy: long because \w+")
    while index >= 0 and file.lines[index].strip():
        if mark.search(file.lines[index]):
            return True
        index -= 1
    return False


def rule_file_length(file):
    """Files fit 600 lines."""
    if file.path.endswith(CODE) and len(file.lines) > FILE_LINES_MAX:
        if not any(re.search(r"tidy: long because \w+", line) for line in file.lines[:12]):
            yield FILE_LINES_MAX, f"{len(file.lines)} lines, at most {FILE_LINES_MAX}"


def rule_function_length(file):
    """Functions fit a screen."""
    if not file.code:
        return
    for begin, end in function_bodies(file.bare):
        if end - begin + 1 > FUNCTION_LINES_MAX and not explained_long(file, begin):
            yield begin + 1, f"function of {end - begin + 1} lines, at most {FUNCTION_LINES_MAX}"


def function_bodies(lines):
    """(first, last) line index of each outermost function body, its head included."""
    stack, head = [], ""
    for index, line in enumerate(lines):
        for char in line:
            if char == "{":
                inside = any(kind == "function" for kind, _ in stack)
                stack.append((block_kind(head, inside), index - head.count("\n")))
                head = ""
            elif char == "}":
                if stack:
                    kind, begin = stack.pop()
                    if kind == "function":
                        yield begin, index
                head = ""
            elif char == ";":
                head = ""
            elif char != "\n":
                head = head + char if head.strip() else char
        if line.lstrip().startswith("#"):
            head = ""
        elif head.strip():
            head += "\n"


def block_kind(head, inside):
    if inside:
        return "block"
    flat = " ".join(head.split())
    scope = r"\b(namespace|class|struct|enum|union|extern)\b(?!.*\))"
    if "(" not in flat or re.search(scope, flat):
        return "scope"
    return "scope" if re.search(r"=\s*$", flat) else "function"


def rule_banned(file):
    """Calls and constructs that the house does not use."""
    if not file.code:
        return
    for number, line in enumerate(file.bare, 1):
        if number > 1 and file.bare[number - 2].endswith("("):
            line = file.bare[number - 2].rstrip()[-2:] + line.lstrip()
        for name, pattern, holds, reason in BANNED:
            if holds(file) and pattern.search(line) and not file.allows(number - 1, name):
                yield number, f"{name}: {reason}"


def rule_globals(file):
    """No mutable objects at namespace scope."""
    if not file.product:
        return
    depth = [0]
    scopes = []
    for number, line in enumerate(file.bare, 1):
        at_namespace = all(kind == "namespace" for kind in scopes)
        if at_namespace and depth[0] == 0 and GLOBAL.match(line):
            if not file.allows(number - 1, "globals"):
                yield number, "mutable object at namespace scope; pass it as an argument"
        if line.lstrip().startswith("#"):
            continue
        opener = "namespace" if re.match(r"\s*(inline\s+)?namespace\b", line) else "other"
        for char in line:
            if char == "{":
                scopes.append(opener)
            elif char == "}" and scopes:
                scopes.pop()
            elif char == "(":
                depth[0] += 1
            elif char == ")":
                depth[0] = max(0, depth[0] - 1)


def rule_tolerance(file):
    """A tolerance in a test is derived, and the derivation is named beside it."""
    if not file.path.endswith("_test.cpp"):
        return
    for number, line in enumerate(file.bare, 1):
        compared = re.search(r"NEAR|_L[ET]\(|toleran|\bbound|\s<=?\s", line)
        if not compared or not TOLERANCE.search(line):
            continue
        near = file.lines[max(0, number - 4):number]
        if not any("//" in text for text in near):
            yield number, "bare tolerance: name its derivation in a comment beside it"


def rule_unfinished(file):
    """Nothing is left for later in the tree."""
    if file.path in BAD_ON_PURPOSE:
        return
    for number, line in enumerate(file.lines, 1):
        if UNFINISHED.search(line):
            yield number, "unfinished work is finished, or said in an issue"
        if FAST_MATH in line and file.path.endswith(CODE + (".cmake", ".txt", ".json", "dev")):
            yield number, "fast-math breaks the written order of operations"


def rule_machine_path(file):
    """No path of one person's machine."""
    if file.path in BAD_ON_PURPOSE:
        return
    for number, line in enumerate(file.lines, 1):
        if MACHINE_PATH.search(line) and not file.allows(number - 1, "machine-path"):
            yield number, "a path of one machine; use a relative path or a temporary folder"


def rule_title(file):
    """A page has one title, and it comes first."""
    if not file.path.endswith(".md"):
        return
    fenced, titles = False, []
    for number, line in enumerate(file.lines, 1):
        fenced ^= line.lstrip().startswith("```")
        if not fenced and re.match(r"# \S", line):
            titles.append(number)
    if titles != [1]:
        yield (titles[1] if len(titles) > 1 else 1), "a page has exactly one '# ' title, on line 1"


FILE_RULES = {
    "layer": rule_layer, "pragma-once": rule_pragma_once, "spdx": rule_spdx,
    "line-length": rule_line_length, "file-length": rule_file_length,
    "function-length": rule_function_length, "banned": rule_banned, "globals": rule_globals,
    "tolerance": rule_tolerance, "unfinished": rule_unfinished, "machine-path": rule_machine_path,
    "title": rule_title,
}


def tree_rules(root, paths):
    """Rules over the whole tree: yields (path, line, rule, reason)."""
    listed = {}
    for path in paths:
        if os.path.basename(path) == "CMakeLists.txt":
            with open(os.path.join(root, path), encoding="utf-8") as stream:
                listed[os.path.dirname(path)] = stream.read()
        for part in path.split("/")[:-1]:
            if part in ("utils", "util", "helpers", "misc", "common"):
                yield path, 1, "folder-name", f"folder '{part}' says nothing; name what is in it"
    for path in paths:
        if path.endswith(".cpp") and not is_listed(path, listed):
            yield path, 1, "listed", "no CMakeLists.txt above it names this file"


def is_listed(path, listed):
    folder = os.path.dirname(path)
    while True:
        if folder in listed:
            name = os.path.relpath(path, folder or ".")
            stem = re.escape(re.sub(r"(_fuzz|_benchmark)?\.cpp$", "", os.path.basename(name)))
            if re.search(r"(?<![\w/])" + re.escape(name) + r"(?!\w)", listed[folder]):
                return True
            if re.search(r"_(fuzz|benchmark)\(\s*" + stem + r"\b", listed[folder]):
                return True
        if not folder:
            return False
        folder = os.path.dirname(folder)


def walk(root):
    for folder, names, files in os.walk(root):
        names[:] = sorted(n for n in names if n not in SKIPPED_FOLDERS)
        relative = os.path.relpath(folder, root)
        for name in sorted(files):
            path = os.path.normpath(os.path.join(relative, name)).replace(os.sep, "/")
            if path.endswith(CODE + HASH_COMMENTED + (".rs", ".md")):
                yield path


def check(root, paths, whole_tree):
    """All findings as (path, line, rule, reason)."""
    findings = []
    for path in paths:
        file = File(root, path)
        for rule, function in FILE_RULES.items():
            findings += [(path, line, rule, reason) for line, reason in function(file)]
    if whole_tree:
        findings += tree_rules(root, paths)
    return sorted(findings)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", default=os.path.join(os.path.dirname(__file__), ".."))
    parser.add_argument("--rules", action="store_true", help="list the rules and stop")
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    if arguments.rules:
        for name, function in FILE_RULES.items():
            print(f"{name}: {function.__doc__}")
        return 0
    paths = arguments.files or list(walk(arguments.root))
    findings = check(arguments.root, paths, not arguments.files)
    for path, line, rule, reason in findings:
        print(f"{path}:{line}: {rule}: {reason}")
    print(f"tidy: {len(paths)} files, {len(findings)} findings", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
