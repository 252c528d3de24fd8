"""Stack traces of several runtimes. A system fails in few ways, so the same few stacks come again and again."""


def java(s):
    x, d = s.lex, s.d
    frames = ["\tat %s.%s.%s(%s)" % (x.package(), c, x.name("camel", 1, 2), "%s.java:%d" % (c, d.scaled(10, 900))
                                     if d.chance(0.8) else "Native Method")
              for c in [x.class_name() for _ in range(d.between(3, 14))]]
    head = "%s.%sException: %s" % (x.package(), x.name("pascal", 1, 2), x.reason())
    if d.chance(0.4):
        frames += ["Caused by: %s.%sError: %s" % (x.package(), x.name("pascal", 1, 1), x.reason()), *frames[:2],
                   "\t... %d more" % d.between(3, 40)]
    return [head, *frames]


def python(s):
    x, d = s.lex, s.d
    lines = ["Traceback (most recent call last):"]
    for _ in range(d.between(2, 6)):
        lines += ['  File "/%s/%s.py", line %d, in %s' % (x.noun(), x.name("snake", 1, 2), d.scaled(3, 700),
                                                          x.name("snake", 1, 2)),
                  "    %s = self.%s(%s)" % (x.noun(), x.name("snake", 1, 2), x.noun())]
    return lines + ["%sError: %s" % (x.name("pascal", 1, 2), x.reason())]


def go(s):
    x, d = s.lex, s.d
    lines = ["panic: %s" % x.reason(), "", "goroutine %d [running]:" % d.scaled(1, 9000)]
    for _ in range(d.between(2, 7)):
        lines += ["%s.%s(%s)" % (x.name("flat", 1, 1), x.name("pascal", 1, 2),
                                 ", ".join("0x%x" % d.bits(36) for _ in range(d.between(0, 3)))),
                  "\t/%s/%s/%s.go:%d +0x%x" % (x.noun(), x.noun(), x.name("snake", 1, 2), d.scaled(5, 600), d.bits(9))]
    return lines + ["exit status 2"]


def node(s):
    x, d = s.lex, s.d
    return ["%sError: %s" % (x.name("pascal", 0, 1) or "Type", x.reason()),
            *("    at %s%s (/app/%s/%s.js:%d:%d)" % (d.choice(("", "async ", "new ")), x.name("camel", 1, 2), x.noun(),
                                                     x.name("kebab", 1, 2), d.scaled(2, 400), d.between(3, 60))
              for _ in range(d.between(3, 9)))]


def native(s):
    x, d = s.lex, s.d
    return [d.choice(("*** stack:", "Segmentation fault", "Backtrace:",
                      "terminate called after throwing an instance of '%s'" % x.name("colons"))),
            *("#%-2d 0x%012x in %s (%s=%s) at %s.cpp:%d" % (i, 0x550000000000 + d.bits(36), x.name("colons", 1, 3),
                                                            x.noun(), d.choice(("0x0", "1", "<optimized out>")),
                                                          x.name("snake", 1, 2), d.scaled(8, 900))
              for i in range(d.between(3, 10)))]


def dotnet(s):
    x, d = s.lex, s.d
    return ["Unhandled exception. %s.%sException: %s" % (x.name("pascal"), x.name("pascal"), x.reason()),
            *("   at %s.%s.%s(%s %s) in /src/%s.cs:line %d" % (x.name("pascal"), x.class_name(), x.name("pascal"),
                                                               x.name("pascal", 1, 1), x.noun(), x.name("pascal"),
                                                               d.scaled(9, 400))
              for _ in range(d.between(2, 8)))]


def hexdump(s):
    d, width = s.d, 16
    return [s.lex.noun() + " dump:", *("%08x  %s"
                                       % (i * width,
                                          " ".join("%02x" % (d.bits(8) if d.chance(0.5) else 0) for _ in range(width)))
                                       for i in range(d.between(2, 6)))]


KINDS = (java, java, python, go, node, native, dotnet, hexdump)


def backtraces(s):
    """-> a callable that gives the lines of a trace: one of the system's few, now and then cut short or a new one"""
    make, d = s.d.choice(KINDS), s.d
    known = [make(s) for _ in range(d.between(1, 5))]
    pick = d.ranked(len(known))

    def draw():
        if d.chance(0.03):
            return make(s)
        lines = known[pick()]
        return lines[:d.between(2, len(lines))] if d.chance(0.1) else lines
    return draw
