#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each house rule catches its bad snippet and lets its good twin pass."""
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "tools"))
import tidy  # noqa: E402  (the path is set above)

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"
HEADER = SPDX + "#pragma once\n"


def body(lines, first="int f() {"):
    return first + "\n" + "  step();\n" * (lines - 2) + "}\n"


# (rule, path, bad text, good text)
CASES = [
    ("layer", "lockstep/base/a.cpp", SPDX + '#include "lockstep/io/json.h"\n',
     SPDX + '#include "lockstep/base/json.h"\n'),
    ("layer", "lockstep/io/a.cpp", SPDX + '#include "lockstep/quant/format.h"\n',
     SPDX + '#include "lockstep/base/result.h"\n'),
    ("layer", "lockstep/quant/a.cpp", SPDX + '#include "lockstep/io/json.h"\n',
     SPDX + '#include "lockstep/quant/format.h"\n'),
    ("layer", "lockstep/ops/cpu/a.cpp", SPDX + '#include "lockstep/io/json.h"\n',
     SPDX + '#include "lockstep/quant/format.h"\n'),
    ("layer", "lockstep/text/a.cpp", SPDX + '#include "lockstep/spec/config.h"\n',
     SPDX + '#include "lockstep/io/json.h"\n'),
    ("layer", "lockstep/model/a.cpp", SPDX + '#include "lockstep/decode/engine.h"\n',
     SPDX + '#include "lockstep/spec/config.h"\n'),
    ("layer", "lockstep/model/a.cpp", SPDX + '#include "bridge/bridge.h"\n', SPDX),
    ("layer", "lockstep/model/a.cpp", SPDX + '#include "model.h"\n',
     SPDX + '#include "lockstep/model/model.h"\n'),
    ("layer", "lockstep/attic/a.cpp", SPDX, None),
    ("pragma-once", "lockstep/base/a.h", SPDX, HEADER),
    ("spdx", "lockstep/base/a.cpp", "int a();\n", SPDX),
    ("spdx", "lockstep/base/CMakeLists.txt", "project(x)\n",
     "# SPDX-License-Identifier: Apache-2.0\n"),
    ("line-length", "lockstep/base/a.cpp", SPDX + "// " + "x" * 98 + "\n",
     SPDX + "// " + "x" * 97 + "\n"),
    ("line-length", "lockstep/base/a.cpp", SPDX + "int a;  // " + "x" * 98 + "\n",
     SPDX + "// tidy: long because a table reads better in columns\nf(" + "1, " * 40 + ");\n"),
    ("function-length", "lockstep/base/a.cpp", SPDX + body(71), SPDX + body(70)),
    ("function-length", "lockstep/base/a.cpp", SPDX + "struct A {\n" + body(71, "A() : a_(1) {") +
     "};\n", SPDX + "struct A {\n" + "  int a();\n" * 80 + "};\n"),
    ("function-length", "lockstep/base/a.cpp", SPDX + body(75, "auto f(const A<B>& a) -> int {"),
     SPDX + "// tidy: long because one switch per format\n" + body(75)),
    ("file-length", "lockstep/base/a.cpp", SPDX + "int a();\n" * 600,
     SPDX + "// tidy: long because generated\n" + "int a();\n" * 600),
    ("banned", "lockstep/model/a.cpp", SPDX + 'void f() { printf("x"); }\n',
     SPDX + '// printf("x")\nconst char* k = "printf(x)"; int snprintf(char*);\n'),
    ("banned", "lockstep/model/a.cpp", SPDX + "void f() { std::cerr << 1; }\n",
     SPDX + "void f(std::ostream& out) { out << 1; }\n"),
    ("banned", "lockstep/model/a.h", HEADER + "using namespace std;\n", HEADER + "using std::size_t;\n"),
    ("banned", "lockstep/model/a.cpp", SPDX + "void f() { throw 1; }\n",
     SPDX + "// rethrown\nvoid f() noexcept;\n"),
    ("banned", "lockstep/model/a.cpp", SPDX + "int* f() { return new int[3]; }\n",
     SPDX + "auto f() { return std::unique_ptr<A>(new A(1)); }\n"),
    ("banned", "lockstep/model/a.cpp", SPDX + "void f(int* p) { delete p; }\n",
     SPDX + "struct A { A(const A&) = delete; };\nvoid f(int* p) { ::operator delete[](p); }\n"),
    ("banned", "lockstep/model/a.cpp", SPDX + "int f() { return rand(); }\n",
     SPDX + "int f() { return operand(); }\n"),
    ("banned", "lockstep/model/a.cpp", SPDX + "std::regex r;\n", SPDX),
    ("globals", "lockstep/model/a.cpp", SPDX + "namespace a {\nint counter = 0;\n}\n",
     SPDX + "namespace a {\nconstexpr int kCount = 0;\nint f(int a,\n      int b);\nenum class E { kA };\n"
     "struct S {\n  int field = 0;\n};\nstruct T;\n}\n"),
    ("globals", "lockstep/model/a.cpp", SPDX + "static std::vector<int> cache;\n",
     SPDX + "static int f(std::vector<int> cache);\nusing A = int;\n"),
    ("tolerance", "lockstep/model/a_test.cpp", SPDX + "\n\n\nEXPECT_LT(error, 1e-3);\n",
     SPDX + "\n\n\n// sqrt(k) * 2^-24, k terms of one sum\nEXPECT_LT(error, 6e-8);\n"),
    ("unfinished", "lockstep/model/a.cpp", SPDX + "// TODO: more\n", SPDX + "// done\n"),
    ("machine-path", "docs/a.md", "# A\n\nSee /root/a.\n", "# A\n\nSee docs/work/a and $ROOT/root/a.\n"),
    ("title", "docs/a.md", "# A\n\n# B\n", "# A\n\n```sh\n# comment\n```\n"),
    ("title", "docs/a.md", "text\n", "# A\n"),
]


def rules_hit(files):
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as stream:
                stream.write(text)
        return [finding[2] for finding in tidy.check(root, list(tidy.walk(root)), True)]


class RuleTest(unittest.TestCase):
    def test_bad_snippets_are_caught_and_good_ones_pass(self):
        for rule, path, bad, good in CASES:
            with self.subTest(rule=rule, path=path, bad=bad[-60:]):
                self.assertIn(rule, rules_hit({path: bad}))
                if good is not None:
                    self.assertNotIn(rule, rules_hit({path: good}))

    def test_every_rule_has_a_bad_snippet(self):
        self.assertEqual(set(tidy.FILE_RULES), {case[0] for case in CASES})

    def test_sources_must_be_listed(self):
        lists = "# SPDX-License-Identifier: Apache-2.0\nlockstep_module(SOURCES a.cpp cpu/b.cpp)\n"
        tree = {"lockstep/base/CMakeLists.txt": lists, "lockstep/base/a.cpp": SPDX,
                "lockstep/base/cpu/b.cpp": SPDX}
        self.assertEqual(rules_hit(tree), [])
        self.assertIn("listed", rules_hit({**tree, "lockstep/base/a_test.cpp": SPDX}))

    def test_folder_names_say_what_is_inside(self):
        self.assertIn("folder-name", rules_hit({"lockstep/base/utils/a.h": HEADER}))


if __name__ == "__main__":
    unittest.main()
