"""Renders templates with Jinja2 in the settings of transformers' apply_chat_template, for a test to compare with.

Reads JSON from standard input, a list of {"source": text, "context": object}, and writes a list: {"text": text} or {"error": words}.
"""

import datetime
import json
import sys

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

sys.setrecursionlimit(1000)


class Generation(Extension):
    """{% generation %}: transformers marks what is inside; the text is that of the body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_written"), [], [], body).set_lineno(line)

    def _written(self, caller):
        return caller()


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def strftime_now(form):
    return datetime.datetime(2025, 3, 7).strftime(form)


ENVIRONMENT = ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
)
ENVIRONMENT.filters["tojson"] = tojson
ENVIRONMENT.globals["raise_exception"] = raise_exception
ENVIRONMENT.globals["strftime_now"] = strftime_now


def judged(source, context):
    try:
        text = ENVIRONMENT.from_string(source).render(**context)
        text.encode()
        return {"text": text}
    except BaseException as error:  # Python raises what it likes: a RecursionError, a SyntaxError.
        return {"error": f"{type(error).__name__}: {error}"[:300]}


if __name__ == "__main__":
    cases = json.load(sys.stdin)
    json.dump([judged(case["source"], case["context"]) for case in cases], sys.stdout)
