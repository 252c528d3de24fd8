"""Kinds of numbers and marks in a line, and how a field's values are distributed over time.

A kind is a function of a system that gives a callable; each call is one value, as text. `Field` adds which words
stand before such a value ("from", "port", "took"). places.py has the kinds that name things.
"""
from collections import namedtuple

from clock import stamp

Field = namedtuple("Field", "kind draw hints")
KINDS = {}  # name: (function, weight, hints)


def kind(weight, hints=""):
    def register(f):
        KINDS[f.__name__] = (f, weight, hints.split())
        return f
    return register


@kind(6, "count n total found with after")
def small(s):
    d, top = s.d, s.d.choice((1, 3, 9, 20, 64))
    return lambda: str(d.below(top + 1))


@kind(6, "size length count value offset")
def number(s):
    d, low = s.d, s.d.choice((0, 1, 10, 100, 1000, 10000, 1000000))
    high = low * s.d.choice((2, 10, 100)) + s.d.choice((5, 50, 1000))
    return lambda: str(d.between(low, high))


@kind(4, "count bytes length of")
def skewed(s):
    d, high = s.d, s.d.choice((100, 10000, 10000000))
    return lambda: str(d.scaled(0, high))


@kind(5, "seq no. # id number line offset")
def ascending(s):
    d, step = s.d, s.d.choice((1, 1, 1, 2, 10, 64, 512))
    at = d.below(d.choice((1, 2, 100, 10 ** 4, 10 ** 6, 10 ** 9, 10 ** 13)))
    loose, width = d.choice((0, 0, 0.2, 1)), d.choice((0, 0, 0, 4, 6, 8))

    def draw():
        nonlocal at
        at += 1 + d.below(step * 3) if loose and d.chance(loose) else step
        return str(at).zfill(width)
    return draw


@kind(2, "slot lane core cpu shard index")
def cyclic(s):
    n, at, width = s.d.choice((2, 3, 4, 7, 8, 12, 16, 60)), 0, s.d.choice((0, 0, 2, 3))

    def draw():
        nonlocal at
        at = (at + 1) % n
        return str(at).zfill(width)
    return draw


@kind(2, "left remaining in")
def countdown(s):
    top, at = s.d.choice((3, 5, 10, 30, 100)), 0

    def draw():
        nonlocal at
        at = at - 1 if at > 0 else top
        return str(at)
    return draw


@kind(4, "at load level now average value reading")
def walk(s):
    d, at, digits = s.d, s.d.unit() * s.d.choice((1, 100, 1000)), s.d.choice((1, 1, 2, 3, 6))
    step, pattern = at * s.d.choice((0.001, 0.01, 0.1)) + 0.001, "%%.%df" % digits

    def draw():
        nonlocal at
        at += step * d.bell()
        return pattern % at
    return draw


@kind(3, "score factor ratio load value")
def decimal(s):
    d, top, pattern = s.d, s.d.choice((1, 1, 10, 100, 1000)), "%%.%df" % s.d.between(1, 6)
    return lambda: pattern % (d.unit() * top)


@kind(3, "at usage progress done full")
def percent(s):
    d, pattern = s.d, s.d.choice(("%d%%", "%.1f%%", "%d %%", "%.2f%%", "%d percent"))
    return lambda: pattern % (d.unit() * 100)


@kind(2, "of from to")
def constant(s):
    value = s.d.choice((str(s.d.scaled(0, 10000)), s.lex.noun(), s.lex.name(), "-", "0", "null", "N/A", "(none)"))
    return lambda: value


@kind(2, "size width flags")
def power(s):
    d, low, high = s.d, s.d.between(0, 6), s.d.between(7, 26)
    return lambda: str(1 << d.between(low, high))


@kind(3, "code status rc errno exit")
def code(s):
    d = s.d
    codes = d.choice((["0", "0", "0", "1"], ["0", "1", "-1", "2"], ["200", "204", "404", "500"], ["-22", "-5", "-110"],
                      ["0x0", "0x1", "0x80004005"], ["E%03d" % d.below(999) for _ in range(6)]))
    pick = d.ranked(len(codes))
    return lambda: codes[pick()]


@kind(4, "id hash ref key")
def hexadecimal(s):
    d, n = s.d, s.d.choice((2, 4, 6, 8, 8, 12, 16))
    pattern = s.d.choice(("%%0%dx", "%%0%dx", "0x%%0%dx", "%%0%dX", "0x%%0%dX")) % n
    return lambda: pattern % d.bits(4 * n)


@kind(2, "at addr pc ip sp address")
def pointer(s):
    d, base, span = s.d, s.d.choice((0x7f0000000000, 0xffffffff80000000, 0x400000,
                                     0x55d000000000)), s.d.choice((12, 20, 28))
    base += s.d.bits(24) << 8
    return lambda: "0x%x" % (base + d.bits(span) * 8)


@kind(3, "id request trace uuid")
def uuid(s):
    d, pattern = s.d, s.d.choice(("%08x-%04x-4%03x-%04x-%012x", "%08x-%04x-4%03x-%04x-%012x",
                                  "{%08X-%04X-4%03X-%04X-%012X}"))
    return lambda: pattern % (d.bits(32), d.bits(16), d.bits(12), 0x8000 | d.bits(14), d.bits(48))


@kind(1, "commit digest sha checksum")
def digest(s):
    d, n, pre = s.d, s.d.choice((7, 10, 40, 64)), s.d.choice(("", "", "sha256:", "md5:"))
    return lambda: pre + ("%%0%dx" % n) % d.bits(4 * n)


@kind(1, "token nonce cursor signature")
def base64(s):
    d, n, tail = s.d, s.d.choice((6, 11, 22, 43)), s.d.choice(("", "", "=", "=="))
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789" + s.d.choice(("+/", "-_"))
    return lambda: "".join(letters[b & 63] for b in d.bits(8 * n).to_bytes(n, "big")) + tail


@kind(5, "in after took elapsed within duration")
def duration(s):
    d, top = s.d, s.d.choice((9, 100, 5000, 90000))
    unit = d.choice(("ms", "ms", " ms", "s", " s", "us", "µs", "ns", " seconds", " sec", " msec", " minutes", "m", "h",
                     " days"))
    if d.chance(0.4):
        pattern = "%%.%df" % d.between(1, 6) + unit
        return lambda: pattern % (d.unit() * top)
    return lambda: str(d.scaled(0, top)) + unit


@kind(2, "for after uptime elapsed")
def long_duration(s):
    d, k = s.d, s.d.below(5)
    return (lambda: "%02d:%02d:%02d" % (d.below(24), d.below(60), d.below(60)),
            lambda: "%dm%ds" % (d.below(60), d.below(60)),
            lambda: "%dh%02dm" % (d.below(72), d.below(60)),
            lambda: "%d days, %d:%02d" % (d.below(400), d.below(24), d.below(60)),
            lambda: "PT%dM%dS" % (d.below(60), d.below(60)))[k]


@kind(4, "size of read wrote used free allocated")
def size(s):
    d, top = s.d, s.d.choice((10, 512, 4096, 100000))
    unit = d.choice((" bytes", "B", " B", "kB", " kB", "KiB", " MB", "MB", "MiB", "M", "G", " GB", "GiB", "k", " pages",
                     " blocks"))
    if d.chance(0.35):
        return lambda: "%.1f" % (d.unit() * top) + unit
    return lambda: str(d.scaled(1, top)) + unit


@kind(2, "at rate throughput speed")
def rate(s):
    d, unit = s.d, s.d.choice(("MB/s", " MB/s", "/s", " req/s", " ops/sec", " rpm", "kbps", " Mbit/s", " events/min"))
    top = s.d.choice((10, 1000, 50000))
    return lambda: "%.*f" % (top < 1000, d.unit() * top) + unit


@kind(2, "at reading measured limit")
def measure(s):
    d, mid = s.d, s.d.choice((1, 20, 37, 100, 400, 3000))
    unit = d.choice((" C", "°C", " V", " mV", " A", " kW", " bar", " kPa", " Hz", " mmHg", " bpm", " mg/dL", " kg",
                     " mm", " %", "dBm", " lux"))
    pattern = d.choice(("%d", "%.1f", "%.2f", "%+.1f", "%.3f"))
    return lambda: pattern % (mid + mid * d.bell() / 8) + unit


@kind(2, "version release build from to")
def version(s):
    d = s.d
    style = d.choice(("%d.%d.%d", "v%d.%d.%d", "%d.%d-%d", "%d.%d.%d-rc1", "%d.%d.%d.el9", "r%d.%d_%d"))
    known = [style % (d.below(12), d.below(30), d.below(40)) for _ in range(d.choice((1, 2, 6)))]
    return lambda: d.choice(known)


@kind(2, "enabled ok success cached secure")
def boolean(s):
    d, (no, yes), p = s.d, s.d.choice((("false", "true"), ("no", "yes"), ("False", "True"), ("off", "on"), ("N", "Y"),
                                       ("0", "1"))), s.d.unit()
    return lambda: yes if d.chance(p) else no


@kind(2, "attempt retry part step page")
def fraction(s):
    d, top = s.d, s.d.choice((3, 5, 10, 32, 400))
    style = d.choice(("%d/%d", "%d of %d", "%d/%d", "(%d/%d)"))
    return lambda: style % (d.between(1, top), top)


@kind(1, "range blocks pages lines")
def interval(s):
    d, unit, style = s.d, s.d.choice((1, 16, 4096)), s.d.choice(("%d-%d", "[%d, %d)", "%d..%d", "0x%x-0x%x", "%d+%d"))

    def draw():
        a = d.below(4000) * unit
        return style % (a, a + d.between(1, 9) * unit)
    return draw


@kind(2, "amount total balance price fee")
def amount(s):
    d, unit, top = s.d, s.d.choice(("%s EUR", "$%s", "%s", "USD %s", "%s CHF", "€%s",
                                    "-%s")), s.d.choice((10, 1000, 100000))
    return lambda: unit % ("%.2f" % (d.unit() * top))


@kind(1, "position at location")
def coordinates(s):
    d, a, b = s.d, s.d.unit() * 120 - 60, s.d.unit() * 300 - 150
    style = d.choice(("%.5f,%.5f", "(%.3f, %.3f)", "lat=%.4f lon=%.4f"))
    return lambda: style % (a + d.bell() / 10, b + d.bell() / 10)


@kind(1, "ids parts members list")
def listing(s):
    d, item = s.d, new_field(s, "small number enum name_of hexadecimal").draw
    style, comma = d.choice(("[%s]", "[%s]", "{%s}", "(%s)", "%s")), d.choice((", ", ",", " "))
    return lambda: style % comma.join(item() for _ in range(d.scaled(0, 6)))


@kind(1, "since at until expires")
def moment(s):
    return stamp(s.clock, s.d)


@kind(2, "ref order case ticket id")
def reference(s):
    """letters and digits of one shape, as ABC-1234/X"""
    d = s.d
    shape = d.choice(("AA-9999", "AAA999", "99-9999-9", "A9999999", "AAAA/99/999", "999-99", "A99.9", "9999 9999",
                      "AA99AA99", "9A9A9A"))
    return lambda: "".join("ABCDEFGHKLMNPRSTUVWXYZ"[d.below(22)] if c == "A" else "0123456789"[d.below(10)] if c == "9"
                           else c for c in shape)


def sticky(d, draw, stay):
    last = draw()

    def again():
        nonlocal last
        if d.unit() >= stay:
            last = draw()
        return last
    return again


def pooled(d, draw, n):
    known, pick = [draw() for _ in range(n)], d.ranked(n)
    return lambda: known[pick()]


def recalled(d, draw, fresh, span):
    """new values, and those of a moment ago once more: ids that several lines mention"""
    known = [draw()]

    def again():
        if d.unit() < fresh:
            known.append(draw())
            del known[:-span]
            return known[-1]
        return d.choice(known)
    return again


def new_field(s, names=None):
    """A field of one of the kinds named (else of any): values as they come, of a pool, sticky, or recalled."""
    d = s.d
    name = d.choice(names.split()) if names else s.any_kind()
    make, _, hints = KINDS[name]
    draw, u = make(s), d.unit()
    u /= s.calm
    if u < 0.18:
        draw = pooled(d, draw, d.choice((1, 2, 3, 5, 10, 30, 100, 300)))
    elif u < 0.24:
        draw = sticky(d, draw, d.choice((0.3, 0.7, 0.95)))
    elif u < 0.34:
        draw = recalled(d, draw, d.choice((0.1, 0.3, 0.6)), d.choice((3, 10, 50)))
    return Field(name, draw, hints)
