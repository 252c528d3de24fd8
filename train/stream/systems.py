#!/usr/bin/env python3
"""Invented systems and what they log, without end: training texts for models that read streams.

    systems.py SEED BYTES > file

The same seed gives the same bytes on any machine and Python from 3.9 on. A document is one system, from its first
line on: one source of lines, or a few that alternate. No word, template or value comes from any real log.
"""
import sys

import places  # noqa: F401  registers its kinds of values
import prose
import records
from clock import Clock
from dice import Dice
from formats import FORMATS
from names import Lexicon
from schedule import messages
from services import SERVICES, service
from templates import Style
from values import KINDS, new_field
from words import PREPOSITIONS

MIN_BYTES, MAX_BYTES = 20_000, 200_000
LONGEST_LINE = 4000  # bytes; longer ones are cut

SOURCES = {name: (messages(name), weight * 10) for name, (_, weight) in FORMATS.items()}
assert not FORMATS.keys() & SERVICES.keys()
SOURCES.update((name, (service(name), 18)) for name in SERVICES)
SOURCES.update((f.__name__, (f, 14)) for f in (
    records.access, records.prometheus, records.metrics, records.csv, records.table, records.slow_queries,
                                               records.traces, records.telegrams,
    prose.chat, prose.ini, prose.yaml, prose.filing, prose.mails, prose.progress, prose.build, prose.tests, prose.diff))


class System:
    """What the sources of one system share: dice, words, clock, and pools of hosts, users and fields."""

    def __init__(self, d):
        self.d, self.lex, self.clock = d, Lexicon(d), Clock(d)
        self.hosts, self.users, self.shared = [], [], []
        self.calm, self.sharing = d.choice((0.3, 1, 1, 2)), d.choice((0.1, 0.3, 0.5))
        kinds = list(KINDS)
        if d.chance(0.7):  # most systems print few kinds of values
            kinds = d.some(kinds, d.choice((4, 8, 16, 30)))
        self.any_kind = d.weighted([(name, KINDS[name][1]) for name in kinds])
        self.shared.extend(new_field(self) for _ in range(d.choice((0, 2, 4, 8))))
        self.components = [self.lex.name() for _ in range(d.choice((1, 2, 4, 8, 20)))]
        self.prepositions = d.some(PREPOSITIONS, 6)
        self.style = Style(d)

    def preposition(self):
        return self.d.choice(self.prepositions)

    def field(self, names):
        return new_field(self, names)

    def host(self):
        """-> who writes: half of the systems are one machine, the others several"""
        draw = KINDS["host"][0](self)
        if self.d.chance(0.5):
            return draw
        name = draw()
        return lambda: name


def _interleaved(d, sources, stay):
    at = 0
    while True:
        if d.unit() >= stay:
            at = d.below(len(sources))
        yield sources[at]()


def plan(seed):
    """-> names of the sources of the document of that seed, its dice"""
    d = Dice(seed)
    pick = d.weighted([(name, weight) for name, (_, weight) in SOURCES.items()])
    return [pick() for _ in range(d.choice((1, 1, 1, 1, 1, 1, 2, 3)))], d


def document(seed, size=None):
    """-> UTF-8 bytes of whole lines: `size` and at most one event more; by default 20 to 200 kB"""
    names, d = plan(seed)
    if size is None:
        size = int(MIN_BYTES + (MAX_BYTES - MIN_BYTES) * d.unit() * d.unit())
    system, sources = System(d), []
    for name in names:
        if sources and d.chance(0.5):
            system = System(d)  # its own words and clock
        source = SOURCES[name][0](system)
        if len(names) > 1 and d.chance(0.3):
            source = _tagged(source, system.lex.product)
        sources.append(source)
    stay, lines, n = d.choice((0, 0.5, 0.9, 0.98)), [], 0
    for text in _interleaved(d, sources, stay):
        line = text.encode() + b"\n"
        if len(line) > LONGEST_LINE:
            line = b"".join(_cut(part) + b"\n" for part in line.split(b"\n")[:-1])
        lines.append(line)
        n += len(line)
        if n >= size:
            return b"".join(lines)


def _tagged(source, tag):
    return lambda: tag + ": " + source()


def _cut(line):
    return line if len(line) < LONGEST_LINE else line[:LONGEST_LINE - 1].decode(errors="ignore").encode()


def streams(seed):
    """documents without end: document("seed/0"), document("seed/1"), …"""
    i = 0
    while True:
        yield document("%s/%d" % (seed, i))
        i += 1


def main():
    if len(sys.argv) != 3 or not sys.argv[2].isdigit():
        sys.exit(__doc__)
    left = int(sys.argv[2])
    for text in streams(sys.argv[1]):
        if len(text) >= left:  # the last document ends with a whole line, at or before BYTES
            sys.stdout.buffer.write(text[:text.rfind(b"\n", 0, left) + 1])
            return
        sys.stdout.buffer.write(text)
        left -= len(text)


if __name__ == "__main__":
    main()
