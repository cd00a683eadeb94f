# SPDX-License-Identifier: Apache-2.0
"""Writes cases.json beside it: templates rendered by Python's jinja2 in the environment that Hugging
Face transformers makes for chat templates, and the ids of PyPI tokenizers for the demo tokenizer.

    pip install jinja2==3.1.6 tokenizers==0.23.3
    python tests/golden/template/generate.py        (from the repository root)
"""
import itertools
import json
import pathlib

import jinja2
import tokenizers
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = pathlib.Path(__file__).parent


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


TOOL = {"type": "function", "function": {
    "name": "weather", "description": "Wetter in \u00e9 \u4e2d <b> & 'quotes' \"double\"\u2028 \\",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                   "required": ["city"]}}}
VALUES = {"s": "text", "empty": "", "i": 5, "neg": -7, "f": 1.5, "whole": 2.0, "big": 1e16, "small": 1e-05,
          "e": 1.25e-07, "max": 1.7976931348623157e308, "t": True, "n": None, "list": [1, "a", None, False, []],
          "map": {"z": 1, "a": {"k": "\u00fc\n\t\"\x01\x7f"}}, "long": 9007199254740993, "emoji": "\U0001f600"}


def call(**arguments):
    return {"type": "function", "function": {"name": "weather", "arguments": arguments}}


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


CONVERSATIONS = {
    "one": [user("Hello")],
    "system": [{"role": "system", "content": "  Be brief.\n"}, user("Hello \n")],
    "empty system": [{"role": "system", "content": ""}, user("x")],
    "turns": [user("a"), assistant("b", reasoning_content="\nr1\n"), user("c"), assistant("d", reasoning_content="r2")],
    "split": [user("a"), assistant("<think>\nold\n</think>\n\nb"), user("c"), assistant("<think>\n\nnew \n\n</think>\n\n\nd")],
    "split once": [user("a"), assistant("no opening\n</think>\n\nb")],
    "split odd": [user("a"), assistant("x<think>y</think>z</think>\n\n w <think>v")],
    "split empty": [user("a"), assistant("<think>\n\n</think>\n\nb")],
    "split spaces": [user("a"), assistant(" <think> p </think> q ")],
    "split and field": [user("a"), assistant("<think>p</think>q", reasoning_content="field")],
    "split parts": [user("a"), assistant([{"type": "text", "text": "<think>p"}, {"type": "text", "text": "</think>\nq"}])],
    "no content": [user("a"), assistant(None, tool_calls=[call(city="Oslo")]), {"role": "tool", "content": "ok"}],
    "tools": [user("a"), assistant("Wait.", reasoning_content="need", tool_calls=[call(city="Oslo", days=3), call(**VALUES)]),
              {"role": "tool", "content": "1"}, {"role": "tool", "content": "{\"t\": 2}"}, assistant("done"),
              user("more"), assistant("", tool_calls=[{"name": "weather", "arguments": {}}]),
              {"role": "tool", "content": [{"type": "text", "text": "3"}]}],
    "parts": [user([{"type": "image", "image": "x"}, {"type": "text", "text": "A "}, {"type": "video", "video": "v"},
                    {"type": "image_url", "image_url": {"url": "u"}}, {"type": "text", "text": "b"}]),
              assistant("ok"), user([{"type": "image"}])],
    "unicode": [user("na\u00efve \u4e2d\u6587 \U0001f600 e\u0301 \u00a0x\u3000"), assistant("\u2003\u00fc\x1c")],
    "raises": [user("a"), {"role": "system", "content": "late"}],
    "no query": [{"role": "system", "content": "s"}],
    "role": [user("a"), {"role": "developer", "content": "b"}],
    "none": [],
}

# Small templates for single points of Python's semantics. `v` is in the messages: messages[0].v
SNIPPETS = [
    "{{ v.s }}|{{ v.t }}|{{ v.n }}|{{ v.i }}|{{ v.f }}|{{ v.whole }}|{{ v.missing }}|{{ v.list }}",
    "{{ 'a' ~ v.t ~ v.n ~ v.i ~ v.whole }}",
    "{{ v | tojson }}",
    "{{ v | tojson(indent=2) }}",
    "{{ v | tojson(ensure_ascii=true) }}",
    "{{ v | tojson(separators=(',', ':')) }}",
    "{{ v.map | tojson(sort_keys=true) }}|{{ [] | tojson(indent=1) }}|{{ {} | tojson(indent=1) }}",
    "{{ v.list | tojson(indent=4) }}",
    "{% for k, w in v.map.items() %}{{ k }}={{ w }};{% endfor %}",
    "{% for k, w in v | items %}{{ k }};{% endfor %}",
    "{% for k in v %}{{ k }}{% if not loop.last %},{% endif %}{% endfor %}",
    "{% for x in v.list %}{% if loop.index0 == 1 %}{% continue %}{% endif %}{% if loop.index > 3 %}{% break %}{% endif %}{{ x }};{% endfor %}",
    "{{ v.get('s') }}|{{ v.get('zz') }}|{{ v.get('zz', 'd') }}|{{ v['s'] }}|{{ 's' in v }}|{{ 'q' not in v }}",
    "{{ ' x y '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'aab'.lstrip('a') }}|{{ 'abb'.rstrip('b') }}",
    "{{ '\\x1c a \\x1f' | trim }}|{{ 'xay' | trim('xy') }}|{{ '\\u00a0a\\u3000'.strip() }}|{{ 5 | trim }}",
    "{{ 'a,b,,c'.split(',') | join('|') }}|{{ ' a  b '.split() | join('|') }}|{{ 'a,b,c'.split(',', 1) | join('|') }}",
    "{{ 'abc'.startswith('ab') }}|{{ 'abc'.endswith(('x', 'c')) }}|{{ 'abc'.find('c') }}|{{ 'aXa'.replace('a', 'b') }}",
    "{{ 'abc'.upper() }}|{{ 'ABC'.lower() }}|{{ 'hello world'.title() }}|{{ 'hELLO'.capitalize() }}",
    "{{ 'hELLO' | capitalize }}|{{ 'x' | upper }}|{{ 'abc' | length }}|{{ v.list | length }}|{{ v.emoji | length }}",
    "{{ 'abcdef'[1:3] }}|{{ 'abcdef'[-2:] }}|{{ 'abc'[::-1] }}|{{ v.list[-1] }}|{{ v.list[:2] }}",
    "{{ v.s is string }}|{{ v.i is number }}|{{ v.map is mapping }}|{{ v.list is sequence }}|{{ v.s is iterable }}|{{ v.n is none }}|{{ v.zz is undefined }}|{{ v.t is true }}|{{ v.i is true }}|{{ v.t is boolean }}|{{ v.i is integer }}|{{ v.f is float }}",
    "{{ v.zz | default('d') }}|{{ v.n | default('d') }}|{{ v.empty | default('d', true) }}|{{ v.n or 'x' }}|{{ v.s and 'y' }}",
    "{% set ns = namespace(a=1, b='x') %}{% for i in range(3) %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}",
    "{% set x %}a {{ v.s }} b{% endset %}[{{ x }}]",
    "{% macro m(a, b='d') %}({{ a }},{{ b }}){% endmacro %}{{ m(1) }}{{ m(2, b=3) }}{{ m('x', 'y') }}",
    "{% if v.list and v.map and not v.empty %}yes{% else %}no{% endif %}",
    "a\n  {% if true %}\nb\n  {% endif %}\nc\n   {{ 'd' }}\n{#- x -#}\n e\n",
    "{{ 7 // 2 }}|{{ 7 / 2 }}|{{ 7 % 3 }}|{{ 2 ** 5 }}|{{ -7 // 2 }}|{{ 1 + 1.5 }}|{{ 'ab' * 2 }}|{{ 3 > 2 > 1 }}",
    "{{ v.list | first }}|{{ v.list | last }}|{{ [3, 1, 2] | sort | join }}|{{ [1, 2, 1] | unique | join }}|{{ [1, 2, 3] | sum }}",
    "{{ messages | map(attribute='role') | join(',') }}|{{ messages | selectattr('role', 'equalto', 'user') | list | length }}|{{ messages | rejectattr('role', 'equalto', 'user') | list | length }}",
    "{{ v.map | dictsort }}|{{ {'b': 1, 'a': 2} | dictsort | first }}",
    "{{ 'a\nb' | indent(2) }}|{{ 'a\nb'.splitlines() | join('+') }}|{{ '%s-%d' | format('x', 3) }}|{{ '{}-{}'.format('a', 1) }}",
    "{{ [1, 'a', true, none, 1.0, {'k': 'v'}, ('t', 1)] }}|{{ \"it's\" }}|{{ [\"it's\", 'q\"', 'n\n'] }}",
    "{{ v.list | string }}|{{ v.i | string + 'x' }}|{{ '5' | int + 1 }}|{{ '1.5' | float }}|{{ 'x' | int(7) }}",
    "{{ 'x' if v.t else 'y' }}|{{ 'x' if v.n }}|{{ (v.i == 5) and v.s != 'z' }}|{{ v.i in [5, 6] }}",
    "{% for m in messages %}{{ loop.index }}/{{ loop.length }}/{{ loop.revindex }}/{{ loop.cycle('o', 'e') }} {% endfor %}",
    "{% for a, b in [(1, 2), (3, 4)] if b > 2 %}{{ a }}{{ b }}{% else %}none{% endfor %}|{% for x in [] %}{% else %}none{% endfor %}",
    "{% generation_missing %}",
    "{{ v.s.no_such_method() }}",
    "{{ v.zz.deeper }}",
    "{{ raise_exception('stop: ' ~ v.s) }}",
    "{{ bos_token }}{{ eos_token }}|{{ add_generation_prompt }}|{{ tools is none }}|{{ documents is none }}|{{ enable_thinking is defined }}",
]


def render(env, source, **variables):
    try:
        return {"text": env.from_string(source).render(tools=variables.pop("tools", None), documents=None, **variables)}
    except jinja2.exceptions.TemplateError as e:
        return {"error": str(e)}


def main():
    env = environment()
    tokenizer = tokenizers.Tokenizer.from_file("models/demo/tokenizer.json")

    def ids(result):
        if "text" in result:
            result["ids"] = tokenizer.encode(result["text"], add_special_tokens=False).ids
        return result

    family = (HERE / "family.jinja").read_text()
    conversations = []
    for name, messages in CONVERSATIONS.items():
        flags = itertools.product([None, False], [None, True], [False, True], [True, False])
        for thinking, preserve, with_tools, prompt in flags:
            if prompt is False and thinking is False:
                continue
            options = {"add_generation_prompt": prompt, "add_vision_id": name == "parts" and preserve is True}
            if thinking is not None:
                options["enable_thinking"] = thinking
            if preserve is not None:
                options["preserve_thinking"] = preserve
            tools = [TOOL, {"name": "bare"}] if with_tools else None
            result = render(env, family, messages=messages, tools=tools, **options)
            conversations.append({"name": name, "messages": messages, "tools": tools, **options, **ids(result)})
    snippets = []
    messages = [{"role": "user", "content": "x", "v": VALUES}, {"role": "tool", "content": "y"}]
    for source in SNIPPETS:
        variables = {"messages": messages, "add_generation_prompt": True, "add_vision_id": False,
                     "eos_token": "<|im_end|>"}
        prelude = "{%- set v = messages[0].v -%}"
        result = render(env, prelude + source, **variables)
        snippets.append({"template": prelude + source, "messages": messages, **ids(result)})
    versions = f"jinja2 {jinja2.__version__}, tokenizers {tokenizers.__version__}"
    document = {"made_by": f"tests/golden/template/generate.py, {versions}",
                "conversations": conversations, "snippets": snippets}
    lines = [json.dumps(document["made_by"])]
    with open(HERE / "cases.json", "w", encoding="utf-8") as out:
        out.write('{"made_by": ' + lines[0])
        for key in ("conversations", "snippets"):
            rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in document[key])
            out.write(f',\n"{key}": [\n{rows}\n]')
        out.write("}\n")


main()
