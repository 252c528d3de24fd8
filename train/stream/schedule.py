"""When which template speaks: frequent and rare ones, chains, flows, nested sessions, bursts, heartbeats, and change.

A source is a callable that gives the next event's text, one line or several.
"""
from backtraces import backtraces
from formats import FORMATS, Event
from templates import cell, random_template, reworded
from values import new_field


def event(template, text=None):
    return Event(template.level, template.component, template.text() if text is None else text, template.attributes(),
                 template.title)


class Flow:
    """Lines that share values, in order, with steps that are left out or repeated: a request, a shipment, a session."""

    def __init__(self, s, steps=None, cells=None):
        self.d = s.d
        if steps is None:
            kinds = "uuid tagged hexadecimal user ip4 path ascending name_of number ip4_port reference"
            cells = [cell(new_field(s, kinds)) for _ in range(s.d.between(1, 3))]
            steps = [random_template(s, cells) for _ in range(s.d.between(2, 9))]
        self.cells, self.steps = list(cells), steps
        self.leave, self.again = s.d.choice((0, 0, 0.1, 0.3)), s.d.choice((0, 0, 0.2, 0.6))
        self.fail = random_template(s, self.cells) if s.d.chance(0.5) else None

    def opened(self):
        """-> values, templates still to come (the last one first)"""
        d, steps = self.d, []
        for step in self.steps:
            if not d.chance(self.leave):
                steps.append(step)
                while d.chance(self.again) and len(steps) < 40:
                    steps.append(step)
        if self.fail and d.chance(0.05):
            steps[d.below(len(steps) + 1):] = [self.fail]
        return [c.fresh() for c in self.cells], steps[::-1]

    def set(self, values):
        for c, value in zip(self.cells, values):
            c.value = value


class Nest:
    """begin … end, one within the other, in some systems with an indent"""

    def __init__(self, s):
        self.d, self.component, self.stack = s.d, s.components[0], []
        self.begin, self.end = s.d.choice((("begin %s", "end %s"), ("enter %s", "leave %s"), (">> %s", "<< %s"),
                                           ("%s {", "} // %s"), ("BEGIN %s;", "COMMIT; -- %s"), ("start: %s", "done: %s")))
        self.scopes, self.indent = [s.lex.name() for _ in range(8)], s.d.choice(("", "  ", "\t", ".."))

    def __call__(self):
        if self.stack and (len(self.stack) > 5 or self.d.chance(0.5)):
            text = self.end % self.stack.pop()
            text = self.indent * len(self.stack) + text
        else:
            self.stack.append(self.d.choice(self.scopes))
            text = self.indent * (len(self.stack) - 1) + self.begin % self.stack[-1]
        return Event("debug", self.component, text, [], text)


class Schedule:
    def __init__(self, s, line, templates=None, flows=None):
        """line: a format's callable. Templates and flows are random ones where none are given."""
        d = self.d = s.d
        self.s, self.line, self.n = s, line, 0
        if templates is None:
            templates = [random_template(s) for _ in range(d.choice((3, 5, 8, 12, 20, 40, 80, 160, 300)))]
        self.templates = templates
        self.flows = [Flow(s) for _ in range(d.choice((0, 0, 1, 2, 4)))] if flows is None else flows
        self.open, self.at_once = [], d.choice((1, 2, 5, 20))
        self.beats = [(d.between(5, 200), d.below(5), random_template(s)) for _ in range(d.choice((0, 0, 1, 3)))]
        self.nest = Nest(s) if d.chance(0.12) else None
        # how likely, at each event: the last one again, a flow's step, the template that follows the last, …
        self.p_same, self.p_flow = d.choice((0, 0, 0, 0, 0.1, 0.4)), d.choice((0.2, 0.6, 0.95)) if self.flows else 0
        self.p_chain, self.p_burst = d.choice((0, 0.3, 0.6, 0.9)), d.choice((0, 0, 0.002, 0.01, 0.05))
        self.p_odd, self.p_change = d.choice((0, 0.001, 0.005, 0.02, 0.08)), d.choice((0.0002, 0.001, 0.004))
        self.p_trace, self.p_new = d.choice((0, 0, 0, 0.003, 0.02)), d.choice((0.003, 0.01, 0.04))
        self.trace = backtraces(s) if self.p_trace else None
        # alive: templates in use, the most frequent first; hidden: those to come (again)
        known = len(templates) if d.chance(0.5) else max(2, len(templates) // 4)
        self.alive, self.hidden = list(range(len(templates)))[:known], list(range(len(templates)))[known:]
        self.power = d.choice(("flat", "half", "half", "one", "one", "more"))
        self.after = {i: d.below(len(templates)) for i in range(len(templates))}
        self.queue, self.last, self.at = [], None, 0
        self._rank()

    def _rank(self):
        self.pick = self.d.ranked(len(self.alive), self.power)

    def __call__(self):
        self.s.clock.tick()
        if self.queue:
            return self.line(self.queue.pop())
        return self.line(self._event())

    def _event(self):
        d = self.d
        self.n += 1
        for period, place, template in self.beats:
            if self.n % period == place:
                return event(template)
        u = d.unit()
        if u < self.p_change:
            self._change()
        if self.last and d.unit() < self.p_same:
            return self.last
        u = d.unit()
        if u < self.p_burst:
            return self._burst()
        u -= self.p_burst
        if u < self.p_odd:
            return event(random_template(self.s))
        u -= self.p_odd
        if u < self.p_trace:
            template = d.choice(self.templates)
            return event(template, template.text() + "\n" + "\n".join(self.trace()))
        if self.nest and d.unit() < 0.3:
            return self.nest()
        if d.unit() < self.p_flow:
            return self._flow()
        if self.hidden and d.unit() < self.p_new:
            self.alive.append(self.hidden.pop(0))
            self._rank()
            self.at = self.alive[-1]
        elif d.unit() < self.p_chain and self.after[self.at] in self.alive:
            self.at = self.after[self.at]
        else:
            self.at = self.alive[self.pick()]
        self.last = event(self.templates[self.at])
        return self.last

    def _flow(self):
        d = self.d
        if len(self.open) < self.at_once and (not self.open or d.chance(0.3)):
            flow = d.choice(self.flows)
            self.open.append((flow, *flow.opened()))
        i = d.below(len(self.open))
        flow, values, steps = self.open[i]
        if not steps:
            del self.open[i]
            return event(d.choice(self.templates))
        flow.set(values)
        step = steps.pop()
        if not steps:
            del self.open[i]
        return event(step)

    def _burst(self):
        """many equal lines, or many of one template"""
        template, n = self.templates[self.alive[self.pick()]], self.d.scaled(3, 60)
        first = event(template)
        same = self.d.chance(0.6)
        self.queue.extend(first if same else event(template) for _ in range(n))
        return first

    def _change(self):
        """a new version's words, other frequencies, a template that goes (and may come back), a new one"""
        d, k = self.d, self.d.below(5)
        i = d.below(len(self.templates))
        if k == 0:
            self.templates[i] = reworded(self.s, self.templates[i])
        elif k == 1:
            self.alive = d.shuffled(self.alive)
        elif k == 2 and len(self.alive) > 2:
            self.hidden.append(self.alive.pop(d.below(len(self.alive))))
        elif k == 3:
            for j in range(len(self.templates)):
                if d.chance(0.3):
                    self.templates[j] = reworded(self.s, self.templates[j])
        else:
            self.templates.append(random_template(self.s))
            self.alive.append(len(self.templates) - 1)
            self.after[self.alive[-1]] = i
        self._rank()


def messages(name):
    """the source of messages of random templates in the format of that name"""
    def source(s):
        return Schedule(s, FORMATS[name][0](s))
    return source
