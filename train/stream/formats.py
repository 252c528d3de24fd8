"""What stands around a message: time, host, process, level, thread, class; or the members of a JSON object.

A format is a function of a system that gives a callable from an event to a line. `bare` adds nothing.
"""
import json
from collections import namedtuple
from xml.sax.saxutils import escape

import clock

Event = namedtuple("Event", "level component text attributes title")
FORMATS = {}  # name: (function, weight)
LEVELS = (  # how a system writes debug, info, warn, error
    "DEBUG INFO WARN ERROR", "DEBUG INFO WARNING ERROR", "debug info warn error", "debug info warning err", "D I W E",
    "Debug Info Warn Error", "[D] [I] [W] [E]", "DBG INF WRN ERR", "TRACE NOTICE WARNING SEVERE",
    "FINE INFO WARNING SEVERE", "10 20 30 40", "7 6 4 3", "d.. i.. W.. E!!", "verbose notice alert crit",
    "<debug> <info> <warn> <error>", "DEBUG1 LOG WARNING FATAL", "debug: info: warning: error:")


def fmt(weight):
    def register(f):
        FORMATS[f.__name__] = (f, weight)
        return f
    return register


def levels(s):
    words = s.d.choice(LEVELS).split()
    if s.d.chance(0.3):
        words = [w.ljust(max(map(len, words))) for w in words]
    return dict(zip(("debug", "info", "warn", "error"), words))


def lines(head, text, glue=""):
    """long continuation lines stay as they are; some systems indent them"""
    return head + (text.replace("\n", "\n" + glue) if glue else text)


@fmt(75)
def bare(s):
    return lambda e: e.text


@fmt(5)
def syslog3164(s):
    d, time, host = s.d, clock.syslog(s.clock, s.d), s.host()
    known, pri = {c: d.between(100, 32000) for c in s.components}, d.chance(0.3)
    kind = d.below(3)

    def line(e):
        tag = (e.component + "[%d]" % known[e.component], e.component, 
               "%s/%s[%d]" % (s.lex.product, e.component, known[e.component]))[kind]
        head = "%s %s %s: " % (time(), host(), tag)
        return lines("<%d>" % (8 * 16 + len(e.level)) + head if pri else head, e.text, head if kind == 0 else "")
    return line


@fmt(3)
def syslog5424(s):
    time, host, pid = clock.iso(s.clock, s.d), s.host(), s.clock.pid
    data = s.d.choice(("-", '[meta seq="%d"]', '[origin@%d ip="10.0.0.1"]' % s.d.between(1000, 50000)))
    n = 0

    def line(e):
        nonlocal n
        n += 1
        return "<%d>1 %s %s %s %d %s %s %s" % (
            165 if e.level == "info" else 163, time().replace(" ", "T"), host(), e.component, pid,
            e.level[:2].upper() + "01", data % n if "%" in data else data, e.text.replace("\n", " "))
    return line


@fmt(10)
def plain(s):
    """time, level, message, in one of many orders"""
    d, time, level = s.d, clock.stamp(s.clock, s.d), levels(s)
    pattern = d.choice((
        "%(t)s %(l)s %(m)s", "%(t)s [%(l)s] %(m)s", "[%(t)s] %(l)s: %(m)s", "%(t)s %(l)s %(c)s: %(m)s",
        "%(t)s - %(c)s - %(l)s - %(m)s", "%(t)s|%(l)s|%(c)s|%(m)s", "%(l)s %(t)s %(c)s %(m)s", "%(t)s %(m)s",
        "[%(t)s][%(l)s][%(c)s] %(m)s", "%(t)s;%(l)s;%(c)s;%(m)s", "%(l)s:%(c)s:%(m)s", "%(t)s\t%(l)s\t%(c)s\t%(m)s",
        "(%(t)s) %(c)s> %(m)s", "%(l)s %(c)s - %(m)s", "[%(l)s] %(m)s", "%(t)s: %(m)s", "%(c)s: %(m)s",
        "%(t)s %(c)s.%(l)s %(m)s", "{%(t)s} {%(c)s} %(m)s"))
    return lambda e: pattern % {"t": time(), "l": level[e.level], "c": e.component, "m": e.text}


@fmt(7)
def java(s):
    d, level = s.d, levels(s)
    time = d.choice((clock.iso, clock.time_only, clock.numeric))(s.clock, d)
    classes = {c: s.lex.package() + "." + s.lex.class_name() for c in s.components}
    if d.chance(0.4):
        classes = {c: ".".join(p[0] for p in n.split(".")[:-1]) + "." + n.split(".")[-1] for c, n in classes.items()}
    thread = s.field("thread").draw if d.chance(0.8) else lambda: "main"
    pattern = d.choice((
        "%(t)s %(l)s [%(h)s] %(c)s - %(m)s", "%(t)s [%(h)s] %(l)s %(c)s - %(m)s", "%(t)s %(l)s %(c)s: %(m)s",
        "%(t)s %(l)-5s %(p)d --- [%(h)15.15s] %(c)-40.40s : %(m)s", "%(t)s %(l)s %(c)s (%(h)s): %(m)s",
        "[%(t)s] %(l)s %(m)s (%(c)s)", "%(l)s  %(c)s [%(h)s] %(m)s"))
    return lambda e: pattern % {"t": time(), "l": level[e.level], "c": classes[e.component], "h": thread(),
                                "m": e.text, "p": s.clock.pid}


@fmt(3)
def glog(s):
    c, d = s.clock, s.d
    files = {x: "%s.%s:%d" % (x.replace(".", "_"), d.choice(("cc", "go", "cpp", "rs")), d.scaled(10, 900))
             for x in s.components}
    pids = [d.between(1, 40000) for _ in range(d.choice((1, 4, 20)))]

    def line(e):
        _, m, day, _ = c.date()
        return "%s%02d%02d %02d:%02d:%02d.%06d %5d %s] %s" % (
            (e.level[0].upper(), m, day) + c.time() + (c.us % 1000000, d.choice(pids), files[e.component], e.text))
    return line


@fmt(3)
def kernel(s):
    time, both = clock.uptime(s.clock, s.d), s.d.chance(0.3)
    outer, host = clock.syslog(s.clock, s.d), s.host()
    return lambda e: "%s[%s] %s: %s" % (outer() + " " + host() + " kernel: " if both else "", time(), e.component, e.text)


@fmt(2)
def bracketed(s):
    """a web server's error log"""
    d, time, client = s.d, clock.stamp(s.clock, s.d), s.field("ip4_port").draw
    module = d.chance(0.5)
    return lambda e: "[%s] [%s%s] [pid %d] %s%s" % (
        time(), e.component + ":" if module else "", e.level, s.clock.pid,
        "[client %s] " % client() if e.level != "info" else "", e.text)


@fmt(2)
def mobile(s):
    """process, thread, one letter, tag"""
    c, d = s.clock, s.d
    pids = {x: d.between(300, 30000) for x in s.components}

    def line(e):
        _, m, day, _ = c.date()
        p = pids[e.component]
        return "%02d-%02d %02d:%02d:%02d.%03d %5d %5d %s %s: %s" % (
            (m, day) + c.time() + (c.us // 1000 % 1000, p, p + d.below(3) * 7, e.level[0].upper(), e.component,
                                   e.text))
    return line


@fmt(2)
def composed(s):
    """name of a container in an aligned column"""
    width = max(map(len, s.components)) + 2
    return lambda e: lines((e.component + "_1").ljust(width) + "| ", e.text, " " * width + "| ")


@fmt(4)
def logfmt(s):
    d, time = s.d, clock.iso(s.clock, s.d)
    t, l, m, c = d.choice((("time", "level", "msg", "component"), ("ts", "lvl", "msg", "logger"), ("t", "l", "m", "src"),
                           ("@time", "severity", "message", "caller")))
    fixed = d.chance(0.7)

    def quote(v):
        return '"%s"' % v.replace('"', '\\"').replace("\n", "\\n") if v == "" or any(ch in v for ch in ' ="\n') else v

    def line(e):
        head = [(t, time()), (l, e.level), (c, e.component), (m, e.title if fixed else e.text)]
        return " ".join("%s=%s" % (k, quote(v)) for k, v in head + (e.attributes if fixed else []))
    return line


def typed(v):
    if v.isdigit() and v.isascii() and (v[0] != "0" or v == "0") and len(v) < 16:
        return int(v)
    return {"true": True, "false": False, "null": None}.get(v, v)


@fmt(5)
def ndjson(s):
    return _json(s, False)


@fmt(4)
def ndjson_nested(s):
    return _json(s, True)


def _json(s, nested):
    d, time, level, host = s.d, s.d.choice((clock.iso, clock.epoch))(s.clock, s.d), levels(s), s.host()
    names = d.choice(("time level msg logger host", "@timestamp log.level message log.logger host.name",
                      "ts severity text src node", "t l m c h", "Timestamp Level Message Category Machine")).split()
    order, ascii_only, fixed = d.shuffled(range(5))[:d.between(2, 5)], d.chance(0.5), d.chance(0.7)
    tight = (",", ":") if d.chance(0.7) else (", ", ": ")
    outer, inner, number = s.lex.key(), s.lex.key(), typed if d.chance(0.8) else str
    encode = json.JSONEncoder(ensure_ascii=ascii_only, separators=tight).encode
    if 2 not in order:
        order[0] = 2

    def line(e):
        values = (typed(time()), level[e.level].strip(), e.title if fixed else e.text, e.component, host())
        record = {names[i]: values[i] for i in order}
        found = {k: number(v) for k, v in e.attributes}
        if nested:
            record[outer] = {"id": s.clock.pid, inner: found} if found else None
            record["tags"] = [e.component, e.level]
        else:
            record.update(found)
        return encode(record)
    return line


@fmt(2)
def security(s):
    """a header of fields between bars, then pairs"""
    maker, product = s.lex.company.capitalize(), s.lex.product
    return lambda e: "CEF:0|%s|%s|1.%d|%d|%s|%d|%s" % (
        maker, product, len(product), 100 + len(e.title), e.title, len(e.level),
        " ".join("%s=%s" % a for a in e.attributes))


@fmt(2)
def xml(s):
    d, time, tag, level = s.d, clock.iso(s.clock, s.d), s.lex.name("pascal", 1, 1), levels(s)
    n = d.between(1, 90000)

    def line(e):
        nonlocal n
        n += 1
        data = "".join('<Data Name="%s">%s</Data>' % (k, escape(v)) for k, v in e.attributes)
        data = data or "<Text>" + escape(e.title) + "</Text>"
        return '<%s id="%d" time="%s" level="%s"><Source>%s</Source>%s</%s>' % (
            tag, n, time(), level[e.level].strip("<>"), e.component, data, tag)
    return line


@fmt(2)
def separated(s):
    """rows with a mark between, a running number first"""
    d, time, level, mark, n = s.d, clock.stamp(s.clock, s.d), levels(s), s.d.choice(",;|\t"), s.d.scaled(0, 10 ** 6)
    quote = d.choice(('"%s"', "%s"))

    def line(e):
        nonlocal n
        n += 1
        text = e.text.replace("\n", " ").replace('"', '""')
        return mark.join((str(n), time(), level[e.level], e.component, quote % text))
    return line


@fmt(1)
def block(s):
    """several lines for each event, and an empty one"""
    time, keys = clock.stamp(s.clock, s.d), [s.lex.key() for _ in range(3)]
    return lambda e: "%s: %s\n%s: %s\n%s: %s\n" % (keys[0], time(), keys[1], e.component, keys[2], e.text)
