"""Sources nearer to texts: chats, settings, filings, mails, builds, progress, tests, tickets."""
import clock
from backtraces import backtraces
from templates import clause, random_template


def _said(s):
    """what people of this system say, often in the same words"""
    d = s.d
    known = [random_template(s) if d.chance(0.3) else clause(s) for _ in range(30)]
    pick = d.ranked(len(known))

    def draw():
        if d.chance(0.5):
            return clause(s) + d.choice(("", "", "?", "!", ".", " :)", "..."))
        t = known[pick()]
        return t if isinstance(t, str) else t.text()
    return draw


def chat(s):
    d, time, user, said = s.d, d_time(s), s.field("user").draw, _said(s)
    pattern = d.choice(("[%s] <%s> %s", "%s %s: %s", "%s <@%s> %s", "(%s) %s | %s", "%s\t%s\t%s"))
    talkers = [user() for _ in range(3)]

    def draw():
        s.clock.tick()
        if d.chance(0.1):
            talkers[d.below(3)] = user()
        if d.chance(0.06):
            return "%s *** %s has %s" % (time(), user(), d.choice(("joined", "left", "quit (timeout)", "gone away")))
        who = d.choice(talkers)
        return pattern % (time(), who, d.choice(talkers) + ": " + said() if d.chance(0.15) else said())
    return draw


def d_time(s):
    return s.d.choice((clock.time_only, clock.time_only, clock.iso, clock.spelled))(s.clock, s.d)


def ini(s):
    """sections of settings, one version after another"""
    d, x, queue = s.d, s.lex, []
    kinds = "number name_of path boolean duration ip4_port size constant enum host version url"
    sections = [(x.name(), [[x.key(), s.field(kinds)] for _ in range(d.between(2, 9))])
                for _ in range(d.between(3, 12))]
    values = {}
    equals, mark, head = d.choice(("=", " = ", ": ")), d.choice("#;"), d.choice(("[%s]", "[%s]", "<%s>"))

    def draw():
        if not queue:
            name, keys = d.choice(sections)
            queue.extend(("", head % name))
            for key, field in keys:
                at = name + "/" + key
                if at not in values or d.chance(0.15):
                    values[at] = field.draw()
                    if d.chance(0.1):
                        queue.append(mark + " " + clause(s))
                queue.append(key + equals + values[at])
            queue.reverse()
        return queue.pop()
    return draw


def yaml(s):
    d, x, queue = s.d, s.lex, []

    def tree(depth):
        return [(x.key(), tree(depth + 1) if depth < 4 and d.chance(0.3)
                 else s.field("number name_of boolean duration path version ip4 enum host quoted uuid"),
                 d.chance(0.15)) for _ in range(d.between(1, 5))]
    kinds = [tree(0) for _ in range(d.between(1, 5))]
    pick, dash = d.ranked(len(kinds)), d.chance(0.5)

    def print_out(nodes, depth):
        for key, node, many in nodes:
            lead = "  " * depth
            if isinstance(node, list):
                queue.append(lead + key + ":")
                print_out(node, depth + 1)
            elif many:
                queue.append(lead + key + ":")
                queue.extend(lead + "- " + node.draw() for _ in range(d.between(1, 4)))
            else:
                queue.append(lead + key + ": " + node.draw())

    def draw():
        if not queue:
            queue.append("---" if dash else "# " + clause(s))
            print_out(kinds[pick()], 0)
            queue.reverse()
        return queue.pop()
    return draw


def filing(s):
    """tagged fields of a form, then sentences with amounts"""
    d, x = s.d, s.lex
    tags = [(x.name("scream", 1, 3), s.field("reference amount person number enum moment ascending email name_of"))
            for _ in range(d.between(4, 12))]
    notes = [random_template(s) for _ in range(d.between(4, 25))]
    style, pick = d.below(3), d.ranked(len(notes))

    def draw():
        s.clock.tick()
        body = ["<%s>%s" % (t, f.draw()) if style == 0 else "%s:\t%s" % (t, f.draw()) if style == 1 else "%-28s %s"
                % (t + ".", f.draw()) for t, f in tags]
        text = " ".join(notes[pick()].text() for _ in range(d.between(1, 4)))
        return "\n".join(["<DOCUMENT>" if style == 0 else "-" * 40, *body, text, ""])
    return draw


def mails(s):
    d, said, host, time, mail = s.d, _said(s), s.host(), clock.spelled(s.clock, s.d), s.field("email").draw
    subjects = [clause(s) for _ in range(6)]
    extra = [("X-" + s.lex.name("train", 1, 2), s.field("number enum version boolean").draw) for _ in range(d.below(4))]

    def draw():
        s.clock.tick()
        who, subject = mail(), d.choice(subjects)
        head = ["From " + who, "Received: from %s by %s with ESMTP id %x; %s" % (host(), host(), d.bits(40), time()),
                "From: " + who, "To: " + mail(), "Subject: " + d.choice(("", "Re: ")) + subject,
                "Message-ID: <%x.%d@%s>" % (d.bits(32), d.below(9999), host()), "Date: " + time(),
                *("%s: %s" % (k, f()) for k, f in extra), ""]
        return "\n".join(head + ["> " + said() if d.chance(0.3) else said() for _ in range(d.between(1, 7))] + [""])
    return draw


def progress(s):
    """steps that count up to their end, in one of the usual manners"""
    d, x, k = s.d, s.lex, s.d.below(5)
    names, state = [x.name() for _ in range(d.choice((3, 10, 40)))], [0, 10, ""]
    speed = s.field("rate").draw

    def draw():
        s.clock.tick()
        if state[0] >= state[1]:
            state[:] = [0, d.choice((4, 10, 25, 100, 733)), d.choice(names)]
        state[0] = min(state[1], state[0] + d.between(1, 1 + state[1] // 15))
        at, end, name = state
        if k == 0:
            return "[%3d%%] %s %s" % (at * 100 // end, name, d.choice(names))
        if k == 1:
            return "%s: %3d%%|%s| %d/%d [%s]" % (name, at * 100 // end, ("#" * (at * 20 // end)).ljust(20), at, end,
                                                 speed())
        if k == 2:
            return "step %d/%d  loss %.4f  lr %.2e  %s" % (at, end, 3 / (1 + at / end) + d.unit() / 9,
                                                           1e-3 * (1 - at / (end + 1)), speed())
        if k == 3:
            return "(%d/%d) %s %s" % (at, end, d.choice(("fetching", "unpacking", "checking")), d.choice(names))
        return "%s %s %d of %d" % (name, "." * (at * 30 // end), at, end)
    return draw


def build(s):
    """compilers, their complaints, and the end"""
    d, x = s.d, s.lex
    files = ["%s/%s" % (x.noun(), x.name("snake", 1, 2)) for _ in range(d.choice((8, 40)))]
    ends, tool = d.choice(((".c", ".o"), (".cpp", ".o"), (".rs", ".rlib"), (".ts", ".js"),
                           (".java", ".class"))), d.choice(("cc", "  CC   ", "tsc", "Compiling", "g++ -O2 -c", "[CXX]"))
    complaints = ["unused %s '%s'" % (x.noun(), x.name("snake", 1, 2))
                  for _ in range(6)] + [x.reason() for _ in range(4)]
    at = 0

    def draw():
        nonlocal at
        at += 1
        f = files[at % len(files)]
        u = d.unit()
        if u < 0.12:
            line, column = d.scaled(1, 900), d.between(1, 70)
            return "%s%s:%d:%d: %s: %s\n%s%s;\n%s^" % (f, ends[0], line, column,
                                                       d.choice(("warning", "warning", "error", "note")),
                                                       d.choice(complaints), " " * 4, x.name("snake"),
                                                       " " * (column // 4))
        if u < 0.16:
            return "%s: Entering directory '/%s'" % (d.choice(("make", "make[1]", "ninja")), f)
        if at % len(files) == 0:
            return "%s %d files in %.2fs, %d warnings" % (d.choice(("built", "Finished", "linked")), len(files),
                                                          d.unit() * 60, d.scaled(0, 30))
        return "%s %s%s -o out/%s%s" % (tool, f, ends[0], f, ends[1])
    return draw


def tests(s):
    d, x, k = s.d, s.lex, s.d.below(4)
    suites = [(x.class_name(), [x.name(None, 2, 4) for _ in range(d.between(2, 12))]) for _ in range(d.between(3, 12))]
    queue, trace, n = [], backtraces(s), 0

    def draw():
        nonlocal n
        if not queue:
            suite, cases = d.choice(suites)
            queue.append(("running %d tests of %s", "=== %d %s", "1..%d # %s", "Suite (%d): %s")[k]
                         % (len(cases), suite))
            for case in cases:
                n += 1
                good = d.chance(0.96)
                queue.append(("test %s::%s ... %s" % (suite, case, "ok" if good else "FAILED"),
                              "--- %s: %s/%s (%.2fs)" % ("PASS" if good else "FAIL", suite, case, d.unit()),
                              "%s %d - %s" % ("ok" if good else "not ok", n, case),
                              "  %s %s (%d ms)" % ("✓" if good else "✗", case, d.scaled(1, 900)))[k])
                if not good:
                    queue.extend(trace())
            queue.reverse()
        return queue.pop()
    return draw


def diff(s):
    """changes of settings and sources, as a version control prints them"""
    d, x = s.d, s.lex
    files = ["%s/%s.%s" % (x.noun(), x.name("snake", 1, 2), d.choice(("py", "c", "yml", "txt"))) for _ in range(8)]
    texts = [x.name("snake", 1, 2) + d.choice((" = %d", "(%d)", ": %d")) % d.scaled(0, 999) for _ in range(40)]

    def draw():
        s.clock.tick()
        f, a = d.choice(files), d.scaled(1, 400)
        first, last = s.lex.person()
        head = ["commit %040x" % d.bits(160), "Author: %s %s <%s@%s>"
                % (first.capitalize(), last.capitalize(), first, s.lex.product), "", "    " + clause(s), "",
                "--- a/" + f, "+++ b/" + f, "@@ -%d,%d +%d,%d @@" % (a, 6, a, 7)]
        return "\n".join(head + [d.choice(("  ", "  ", "+ ", "- ")) + d.choice(texts) for _ in range(d.between(3, 9))]
                         + [""])
    return draw
