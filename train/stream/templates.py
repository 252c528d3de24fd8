"""Templates: sentences and records with fields, in the manner of one system.

A template's `pattern` is a %-format, its `fields` give the values. spec() compiles one from a line such as
"{Opened|Started} @noun <tagged> for <user:1>": one of the alternatives, a word of the system, a value of a kind; a
numbered field has the same value in all lines of a flow.
"""
import re

from values import KINDS, Field, new_field

LEVELS = "debug info info info warn error".split()
WRAPS = ("%", "%", "%", "%", "%", "%", "[%]", "(%)", "'%'", '"%"', "<%>", "#%", "{%}", "`%`", "=%", "%,", "%:", "~%")
FIELDS = (0, 0, 1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 5, 6, 9)
MARK = "\x00"


class Template:
    def __init__(self, pattern, fields, level, component, keys=(), title=""):
        self.pattern, self.fields, self.level, self.component = pattern, fields, level, component
        self.keys, self.title = keys, title or re.sub("%[sd]|%%", "", pattern).strip()
        self.draws = [f.draw for f in fields]

    def text(self):
        return self.pattern % tuple([draw() for draw in self.draws])

    def attributes(self):
        return [(key, draw()) for key, draw in zip(self.keys, self.draws)]


class Style:
    """What the templates of a system have in common, most of the time."""

    def __init__(self, d):
        self.capital, self.end = d.choice((0, 0.2, 0.9)), d.choice(("", "", "", ".", "!", "..."))
        self.equals, self.comma = d.choice(("=", "=", ": ", ":", " = ", " => ",
                                            " ")), d.choice((" ", ", ", "; ", " | ", ","))
        self.wraps = d.some(WRAPS, 3) + ["%"] * d.choice((1, 3, 8))
        self.hinted, self.wordy = d.choice((0.2, 0.6, 0.9)), d.choice((0, 0.05, 0.1, 0.3))
        self.shapes = [d.choice(SHAPES) for _ in range(d.choice((2, 4, 10)))] + [sentence] * d.choice((1, 5, 10))
        self.fields = [d.choice(FIELDS) for _ in range(6)]


def clause(s):
    """some words without a value"""
    x, k = s.lex, s.d.below(16)
    if k == 0:
        return "%s %s %s %s" % (x.noun(), x.past(), s.preposition(), x.noun())
    if k == 1:
        return "%s %s %s" % (x.ing(), x.adjective(), x.noun())
    if k == 2:
        return "%s %s %s" % (s.d.choice(("failed to", "cannot", "unable to", "could not", "will not", "error: can't",
                                         "refusing to", "trying to")), x.verb(), x.noun())
    if k == 3:
        return "%s is %s" % (x.noun(), s.d.choice((x.adjective, x.state))())
    if k == 4:
        return "no %s %s %s" % (x.adjective(), x.noun(), x.past())
    if k == 5:
        return "%s %s %s" % (x.noun(), x.noun(), x.state())
    if k == 6:
        return "%s %s %s" % (x.adjective(), x.noun(), x.past())
    if k == 7:
        return "%s: %s" % (x.noun(), clause(s))
    if k == 8:
        return "%s %s" % (x.verb(), x.noun())
    if k == 9:
        return x.name()
    if k == 10:
        return "%s %s, %s" % (x.noun(), x.past(), x.reason())
    if k == 11:
        return "%s %s" % (x.ing(), x.plural())
    if k == 12:
        return "%s %s %s" % (x.past(), x.adverb(), s.preposition())
    if k == 13:
        return "%s %s" % (x.noun(), x.past())
    if k == 14:
        return "the %s %s %s the %s %s" % (x.noun(), x.third(), s.d.choice(("if", "because", "while", "until", "and")),
                                           x.noun(), x.third())
    return " ".join(x.word() for _ in range(s.d.between(1, 5)))


def hinted(s, field):
    """words for a value, with its place"""
    wrap = s.d.choice(s.style.wraps).replace("%", MARK)
    if s.d.chance(s.style.hinted):
        if field.hints and s.d.chance(0.6):
            before = s.d.choice(field.hints)
        else:
            before = s.lex.noun() if s.d.chance(0.7) else s.lex.key()
        return before + (" " if not wrap.startswith("=") else "") + wrap
    return wrap


def sentence(s, fields):
    parts = [clause(s)] if s.d.chance(0.85) or not fields else []
    for field in fields:
        if s.d.chance(s.style.wordy):
            parts.append(clause(s))
        parts.append(hinted(s, field))
    if s.d.chance(s.style.wordy / 2):
        parts.append(clause(s))
    return " ".join(parts)


def pairs(s, fields):
    lead = clause(s) + s.d.choice((" ", ": ", " - ", ", ")) if s.d.chance(0.5) else ""
    return lead + s.style.comma.join(s.lex.key() + s.style.equals + s.d.choice(s.style.wraps[-2:]).replace("%", MARK)
                                     for _ in fields)


def behind(s, fields):
    inner = ", ".join(s.lex.key() + s.style.equals + MARK for _ in fields)
    return clause(s) + s.d.choice((" (%s)", " [%s]", " {%s}", " <%s>", ": %s")) % inner


def call(s, fields):
    target = s.lex.name("camel", 1, 3)
    if s.d.chance(0.5):
        target = s.lex.class_name() + s.d.choice((".", "#", "::", "->")) + target
    inner, result = fields, ""
    if fields and s.d.chance(0.5):
        inner, result = fields[:-1], s.d.choice((" -> ", " = ", " returned ", ": ")) + MARK
    return target + "(" + ", ".join((s.lex.key() + "=" if s.d.chance(0.3) else "") + MARK for _ in inner) + ")" + result


def located(s, fields):
    return s.d.choice(("%s: ", "[%s] ", "%s - ", "<%s> ", "(%s) ", "%s> ",
                       "%s | ")) % s.lex.name() + sentence(s, fields)


def first(s, fields):
    return " ".join([MARK] + ([sentence(s, fields[1:])] if len(fields) > 1 else [clause(s)])) if fields else clause(s)


def salad(s, fields):
    parts = s.d.shuffled([s.lex.name() if s.d.chance(0.3) else s.lex.word() for _ in range(s.d.between(1, 12))]
                         + [hinted(s, f) for f in fields])
    return " ".join(p + s.d.choice(("", "", "", "", "", ",", ":", ".", " -", ";")) for p in parts)


def counts(s, fields):
    return clause(s) + ": " + ", ".join(MARK + " " + s.d.choice((s.lex.plural, s.lex.state, s.lex.past))()
                                        for _ in fields)


def columns(s, fields):
    return s.d.choice((" ", ",", "|", " | ", "\t", ";", ":",
                       "  ")).join([s.lex.name("scream", 1, 2)] * s.d.below(2)
                                   + [MARK for _ in fields]) if fields else clause(s)


def banner(s, fields):
    line = s.d.choice(("***", "=====", "---", "###", "!!!", ">>>", "+++"))
    return "%s %s %s" % (line, sentence(s, fields[:1]).upper() if s.d.chance(0.5) else sentence(s, fields[:1]), line)


def command(s, fields):
    return s.d.choice(("exec ", "+ ", "$ ", "running: ", "cmd: ", "")) + s.lex.noun() + "".join(
        " --%s%s%s" % (s.lex.name("kebab", 1, 2), s.d.choice((" ", "=")),
                       MARK) if s.d.chance(0.6) else " -%s %s" % (s.lex.noun()[0], MARK) for _ in fields)


def markup(s, fields):
    tag = s.lex.name("camel", 1, 2)
    attributes = "".join(' %s="%s"' % (s.lex.key(), MARK) for _ in fields)
    return "<%s%s/>" % (tag, attributes) if s.d.chance(0.5) else "<%s%s>%s</%s>" % (tag, attributes, clause(s), tag)


def payload(s, fields):
    inner = ",".join('"%s":%s' % (s.lex.key(), MARK if f.kind in NUMERIC else '"' + MARK + '"') for f in fields)
    return s.d.choice(("", clause(s) + " ", clause(s) + ": ")) + "{" + inner + "}"


def lengthy(s, fields):
    parts = [clause(s).capitalize() + "." for _ in range(s.d.between(1, 4))]
    return " ".join(parts + [sentence(s, fields).capitalize() + "."])


def path_like(s, fields):
    return "/".join([s.lex.noun()] + [p for _ in fields for p in (MARK, s.lex.noun())]) + " " + s.lex.state()


NUMERIC = {"small", "number", "skewed", "decimal", "walk", "countdown", "power"}
SHAPES = (sentence, sentence, sentence, pairs, pairs, behind, call, located, located, first, salad, counts, columns,
          banner, command, markup, payload,
          lengthy, path_like)


def random_template(s, cells=()):
    """cells: fields that several templates share; they are taken for half of the fields where there are any"""
    d, fields = s.d, []
    for _ in range(d.choice(s.style.fields)):
        if cells and d.chance(0.5):
            fields.append(d.choice(cells))
        elif s.shared and d.chance(s.sharing):
            fields.append(d.choice(s.shared))
        else:
            fields.append(new_field(s))
    text = d.choice(s.style.shapes)(s, fields)
    if d.chance(s.style.capital) and not text.startswith(MARK):
        text = text[:1].upper() + text[1:]
    text = re.sub(" ([,;:.])", r"\1", text[:700]) + (s.style.end if d.chance(0.8) else "")
    n = text.count(MARK)
    return Template(text.replace("%", "%%").replace(MARK, "%s"), fields[:n], d.choice(LEVELS), d.choice(s.components),
                    [s.lex.key() for _ in range(n)], clause(s))


def reworded(s, template):
    """The template as the system's next version has it: a word exchanged, a field more, another order of words."""
    d, pattern, fields = s.d, template.pattern, list(template.fields)
    spots = [m.span() for m in re.finditer(r"(?<![%\w])[A-Za-z]{3,}", pattern)]
    k = d.below(3)
    if spots and k < 2:
        for a, b in sorted(d.some(spots, d.between(1, 2)), reverse=True):
            pattern = pattern[:a] + s.lex.word() + pattern[b:]
    else:
        pattern += d.choice((", %s %%s", " %s=%%s", " (%s %%s)", " [%s: %%s]")) % s.lex.noun().replace("%", "")
        fields.append(new_field(s))
    return Template(pattern, fields, template.level, template.component, [*template.keys, s.lex.key()], template.title)


def spec(s, line, cells=None):
    """cells: {number: Field} of a flow, filled as numbers are met"""
    d, fields = s.d, []
    level, _, body = line.rpartition("!!")

    def word(match):
        return {"noun": s.lex.noun, "verb": s.lex.verb, "past": s.lex.past, "adj": s.lex.adjective,
                "Class": s.lex.class_name, "name": s.lex.name,
                "state": s.lex.state, "NAME": lambda: s.lex.name("scream", 1, 2), "clause": lambda: clause(s),
                "word": s.lex.ascii_word}[match.group(1)]()

    def place(match):
        name, _, number = match.group(1).partition(":")
        if number:
            if number not in cells:
                cells[number] = cell(new_kind(s, name))
            fields.append(cells[number])
        else:
            fields.append(new_kind(s, name))
        return MARK
    body = body.replace("\\<", "{<}").replace("\\>", "{>}")
    body = re.sub(r"\{([^{}]*)\}", lambda m: d.choice(m.group(1).split("|")), body)
    body = re.sub(r"@(noun|verb|past|adj|Class|name|state|NAME|clause|word)\b", word, body)
    body = re.sub(r"<(\w+(?::\d+)?)>", place, body)
    return Template(body.replace("%", "%%").replace(MARK, "%s"), fields, level or "info", d.choice(s.components),
                    [s.lex.key() for _ in fields], clause(s))


def new_kind(s, name):
    make, _, hints = KINDS[name]
    return Field(name, make(s), hints)


class cell:
    """A field that keeps its value until it is set again: what the lines of one flow have in common."""

    def __init__(self, field):
        self.kind, self.hints, self.fresh, self.value = field.kind, field.hints, field.draw, field.draw()

    def draw(self):
        return self.value
