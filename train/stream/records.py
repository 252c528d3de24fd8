"""Sources of records rather than messages: access logs, metrics, tables, slow queries."""
import clock
from backtraces import backtraces
from places import METHODS

AGENTS = ("Mozilla/5.0 (X11; Linux x86_64; rv:%d.0) Gecko/20100101 Firefox/%d.0",
          "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/%d.36 (KHTML, like Gecko) Chrome/%d.0.0.0",
          "curl/%d.%d.0", "python-requests/%d.%d.1", "Go-http-client/%d.%d", "%dbot/%d.1 (+http://example.com/bot)",
          "okhttp/%d.%d.0")
QUANTITIES = "number walk decimal skewed ascending percent small size duration measure power"
TRAITS = "enum name_of host device path method code cyclic user ip4 tagged version"


def access(s):
    """combined, common, and with what proxies add; answers go with their paths"""
    d, time, client, user = s.d, clock.access(s.clock, s.d), s.field("ip4").draw, s.field("user").draw
    routes = [(s.field("url").draw(), d.scaled(0, 60000), d.choice(METHODS),
               d.choice(("200", "200", "200", "200", "304", "302", "404", "201")))
              for _ in range(d.choice((4, 15, 60)))]
    pick, agents = d.ranked(len(routes)), [d.choice(AGENTS) % (d.between(5, 140), d.between(5, 140))
                                           for _ in range(d.choice((1, 4, 20)))]
    agent, combined, timed, host = d.ranked(len(agents)), d.chance(0.6), d.chance(0.4), s.lex.domain()
    http, fixed, query, last = d.choice(("1.1", "2.0", "1.0")), d.chance(0.5), d.chance(0.3), [client()]

    def draw():
        s.clock.tick()
        route, size, method, status = routes[pick()]
        if d.chance(0.02):
            status = d.choice(("500", "503", "403", "499", "400"))
        if not d.chance(0.6):
            last[0] = client()
        line = '%s - %s [%s] "%s %s%s HTTP/%s" %s %d' % (
            last[0], user() if d.chance(0.05) else "-", time(), method, route,
            "?page=%d" % d.scaled(1, 200) if query and "?" not in route else "", http, status,
            size if fixed else size + d.scaled(0, 9999))
        if combined:
            line += ' "%s" "%s"' % ("https://%s%s" % (host, routes[pick()][0]) if d.chance(0.4) else "-",
                                    agents[agent()])
        return line + " %.3f" % (d.unit() * d.unit() * 2) if timed else line
    return draw


def _series(s, n):
    """metric names with labels, and a value that goes on from the last"""
    x, d = s.lex, s.d
    found = []
    for _ in range(n):
        name = x.name("snake", 2, 4)
        traits = [(x.key(), s.field(TRAITS).draw) for _ in range(d.below(4))]
        for _ in range(d.between(1, 6)):
            found.append((name, [(k, draw()) for k, draw in traits],
                          s.field("walk ascending decimal number skewed").draw))
    return found


def prometheus(s):
    d, stamped, queue = s.d, s.d.chance(0.3), []
    series = _series(s, d.between(3, 25))
    kinds = {name: d.choice(("counter", "gauge", "histogram")) for name, _, _ in series}
    helped, sparse = d.chance(0.6), d.chance(0.3)

    def draw():
        if not queue:
            s.clock.us += 15000000
            done = set()
            for name, labels, value in series:
                if helped and name not in done:
                    queue.extend(("# HELP %s %s %s" % (name, name.replace("_", " "), kinds[name]),
                                  "# TYPE %s %s" % (name, kinds[name])))
                    done.add(name)
                if not sparse or d.chance(0.7):
                    inner = ",".join('%s="%s"' % label for label in labels)
                    queue.append("%s%s %s%s" % (name, "{" + inner + "}" if inner else "", value(),
                                                " %d" % (s.clock.us // 1000) if stamped else ""))
            queue.reverse()
        return queue.pop() if queue else "# EOF"
    return draw


def metrics(s):
    """statsd, graphite, influx, collectd"""
    d, series, k = s.d, _series(s, s.d.between(3, 20)), s.d.below(4)
    pick, host = d.ranked(len(series)), s.host()
    types = {name: d.choice(("c", "ms", "g", "h", "c|@0.1")) for name, _, _ in series}

    def draw():
        s.clock.tick()
        name, labels, value = series[pick()]
        if k == 0:
            return "%s.%s:%s|%s" % (s.lex.product, name.replace("_", "."), value(),
                                    types[name]) + ("|#" + ",".join("%s:%s" % l for l in labels) if labels else "")
        if k == 1:
            return "%s.%s%s %s %d" % (host(), name.replace("_", "."), "".join("." + v for _, v in labels), value(),
                                      s.clock.us // 1000000)
        if k == 2:
            return "%s%s value=%s %d000" % (name, "".join(",%s=%s" % l for l in labels), value(), s.clock.us)
        return "PUTVAL \"%s/%s\" interval=10 N:%s" % (host(), name, value())
    return draw


def csv(s):
    d, mark = s.d, s.d.choice((",", ",", ";", "\t"))
    fields = [s.field(QUANTITIES + " " + TRAITS + " moment uuid ip4_port amount boolean reference person email")
              for _ in range(d.between(3, 14))]
    names, fresh, quote = [s.lex.key() for _ in fields], True, d.chance(0.3)
    again = d.choice((0, 0, 0.002))

    def draw():
        nonlocal fresh
        s.clock.tick()
        if fresh or d.chance(again):
            fresh = False
            return mark.join(names)
        cells = [f.draw() for f in fields]
        return mark.join('"%s"' % v.replace('"', '""') if quote or mark in v else v for v in cells)
    return draw


def table(s):
    """aligned columns under a header, printed again and again, as ps, df or a report has them"""
    d, fields = s.d, [s.field(QUANTITIES + " " + TRAITS + " boolean hexadecimal") for _ in range(s.d.between(3, 9))]
    names = [s.lex.name("scream", 1, 1)[:12] if d.chance(0.6) else s.lex.noun()[:12] for _ in fields]
    rows, style, right = d.choice((3, 8, 20, 40)), d.below(4), [d.chance(0.5) for _ in fields]
    key, title = s.field(TRAITS), s.lex.name("pascal")
    fields[0], keys = key, [key.draw() for _ in range(rows)]
    widths = [max(len(n), max(len(f.draw()) for _ in range(6))) + 1 for n, f in zip(names, fields)]
    queue, bar = [], d.choice((" ", " ", "|", "│", "  "))

    def row(cells):
        text = bar.join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right))
        return "| " + text + " |" if style == 1 else text.rstrip()

    def draw():
        if not queue:
            s.clock.tick()
            queue.extend(("", "%s %s" % (title, clock.iso(s.clock, d)()) if style == 2 else "", row(names)))
            if style in (1, 3):
                queue.append("+".join("-" * w for w in widths))
            queue.extend(row([key, *(f.draw() for f in fields[1:])])
                         for key in (keys if d.chance(0.8) else d.some(keys, rows // 2 + 1)))
            queue.reverse()
        return queue.pop()
    return draw


def slow_queries(s):
    """comments with time, user and cost, then the statement"""
    d, x, time = s.d, s.lex, clock.stamp(s.clock, s.d)
    tables = [x.name("snake", 1, 2) for _ in range(6)]
    host, user, took, rows = (s.field(names).draw for names in ("host", "user", "walk decimal", "skewed"))
    style = d.below(3)

    def statement():
        t, keys = d.choice(tables), [x.name("snake", 1, 2) for _ in range(5)]
        text = d.choice(("SELECT %s, %s FROM %s WHERE %s = %%s", "SELECT %s, COUNT(%s) FROM %s GROUP BY %s LIMIT %%s",
                         "UPDATE %s SET %s = 1 WHERE %s = %%s AND %s IS NULL", "DELETE FROM %s WHERE %s < %%s",
                         "INSERT INTO %s (%s, %s) VALUES (%%s, NULL)",
                         "SELECT * FROM %s a JOIN %s b ON a.%s = b.%s WHERE a.id = %%s ORDER BY 1"))
        names = {"S": [keys[0], keys[1], t, keys[2]], "U": [t, *keys], "D": [t, *keys], "I": [t, *keys]}[text[0]]
        if "JOIN" in text:
            names = [t, d.choice(tables), *keys]
        n = text.replace("%%", "").count("%s")
        return text % tuple(names[:n]), s.field("number ascending uuid tagged skewed").draw
    known = [statement() for _ in range(d.choice((3, 10, 30)))]
    pick = d.ranked(len(known))

    def draw():
        s.clock.tick()
        text, value = known[pick()]
        v = value()
        text = text % (v if v.isdigit() else "'" + v + "'")
        if style == 0:
            return "# Time: %s\n# User: %s @ %s\n# Query_time: %s  Lock_time: 0.000%d  Rows_examined: %s\n%s;" % (
                time(), user(), host(), took(), d.below(1000), rows(), text)
        if style == 1:
            return "%s %s@%s LOG:  duration: %s ms  statement: %s" % (time(), user(), s.lex.product, took(), text)
        return "-- %s (%s rows, %ss)\n%s;\n" % (time(), rows(), took(),
                                                text.replace(" FROM", "\n  FROM").replace(" WHERE", "\n WHERE"))
    return draw


def traces(s):
    """little but stack traces, each under a line with its time"""
    d, time, draws = s.d, clock.stamp(s.clock, s.d), [backtraces(s) for _ in range(s.d.between(1, 3))]
    lead = [s.lex.class_name() + ": " + s.lex.reason() for _ in range(5)]

    def draw():
        s.clock.tick()
        return "%s ERROR %s\n%s" % (time(), d.choice(lead), "\n".join(d.choice(draws)()))
    return draw


def telegrams(s):
    """lines of devices: a letter code, values by position, a check sum of the line"""
    d, mark = s.d, s.d.choice((",", ";", " ", ":"))
    kinds = [(s.lex.abbreviation().upper(), [s.field(QUANTITIES + " hexadecimal location boolean").draw
                                             for _ in range(d.between(2, 12))]) for _ in range(d.between(1, 8))]
    pick, lead, summed = d.ranked(len(kinds)), d.choice(("$", "!", "", ">", "@")), d.chance(0.5)

    def draw():
        code, draws = kinds[pick()]
        body = code + mark + mark.join(f() for f in draws)
        total = 0
        for b in body.encode():
            total ^= b
        return lead + body + ("*%02X" % total if summed else "")
    return draw


