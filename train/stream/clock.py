"""A system's clock in microseconds, and the ways to print its time."""
from datetime import date

EPOCH = date(1970, 1, 1).toordinal()
MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
DAYS = "Mon Tue Wed Thu Fri Sat Sun".split()
ZONES = ("+00:00", "Z", "+01:00", "+02:00", "-05:00", "+05:30", "-0800", "+0900")


class Clock:
    """tick() once for each event; gaps are bursty or even, from microseconds to minutes on average."""

    def __init__(self, d):
        self.d = d
        self.us = d.between(946684800, 1861920000) * 1000000 + d.below(1000000)
        self.start = self.us
        self.gap = d.choice((300, 5000, 40000, 300000, 1000000, 4000000, 30000000, 120000000))
        self.even, self.still = d.chance(0.25), d.choice((0, 0.2, 0.5, 0.8))
        self.pid, self.day, self.parts = d.between(2, 65000), None, None

    def tick(self):
        u = self.d.unit()
        if self.even:
            self.us += self.gap
        elif u >= self.still:
            self.us += 1 + int(self.gap * 2 * u * self.d.unit() / (1.02 - self.d.unit()))

    def date(self):
        """-> year, month, day, day of the week (0: Monday)"""
        day = self.us // 86400000000
        if day != self.day:
            d = date.fromordinal(EPOCH + day)
            self.day, self.parts = day, (d.year, d.month, d.day, d.weekday())
        return self.parts

    def time(self):
        """-> hour, minute, second"""
        s = self.us // 1000000 % 86400
        return s // 3600, s // 60 % 60, s % 60


def iso(c, d):
    between, digits, zone = d.choice("T "), d.choice((0, 0, 3, 3, 6)), d.choice(ZONES + ("",))
    mark = d.choice(".,")

    def say():
        y, m, day, _ = c.date()
        fraction = mark + ("%06d" % (c.us % 1000000))[:digits] if digits else ""
        return "%d-%02d-%02d%s%02d:%02d:%02d%s%s" % ((y, m, day, between) + c.time() + (fraction, zone))
    return say


def syslog(c, d):
    def say():
        _, m, day, _ = c.date()
        return "%s %2d %02d:%02d:%02d" % ((MONTHS[m - 1], day) + c.time())
    return say


def access(c, d):
    zone = d.choice(("+0000", "+0200", "-0500"))

    def say():
        y, m, day, _ = c.date()
        return "%02d/%s/%d:%02d:%02d:%02d %s" % ((day, MONTHS[m - 1], y) + c.time() + (zone,))
    return say


def spelled(c, d):
    pattern = d.choice(("%(w)s %(b)s %(d)02d %(t)s %(y)d", "%(w)s, %(d)d %(b)s %(y)d %(t)s +0000",
                        "%(d)d-%(b)s-%(y)d %(t)s",
                        "%(b)s %(d)d, %(y)d %(t)s"))

    def say():
        y, m, day, w = c.date()
        return pattern % {"w": DAYS[w], "b": MONTHS[m - 1], "d": day, "y": y, "t": "%02d:%02d:%02d" % c.time()}
    return say


def numeric(c, d):
    pattern = d.choice(("%(d)02d.%(m)02d.%(y)d %(t)s", "%(y)d/%(m)02d/%(d)02d %(t)s", "%(m)02d/%(d)02d/%(y)d %(t)s",
                        "%(y)d%(m)02d%(d)02d %(t)s", "%(m)02d-%(d)02d %(t)s.%(ms)03d", "%(y)d.%(m)02d.%(d)02d-%(t)s",
                        "%(y)d%(m)02d%(d)02dT%(c)s", "%(y)d-%(m)02d-%(d)02d-%(c)s"))

    def say():
        y, m, day, _ = c.date()
        h = c.time()
        return pattern % {"y": y, "m": m, "d": day, "t": "%02d:%02d:%02d" % h, "c": "%02d%02d%02d" % h,
                          "ms": c.us // 1000 % 1000}
    return say


def time_only(c, d):
    digits, mark = d.choice((0, 3, 6)), d.choice(".,:")
    return lambda: "%02d:%02d:%02d" % c.time() + (mark + ("%06d" % (c.us % 1000000))[:digits] if digits else "")


def epoch(c, d):
    k = d.below(4)
    return (lambda: str(c.us // 1000000), lambda: str(c.us // 1000),
            lambda: "%d.%03d" % (c.us // 1000000, c.us // 1000 % 1000),
            lambda: str(c.us))[k]


def uptime(c, d):
    return lambda: "%5d.%06d" % ((c.us - c.start) // 1000000 % 100000, c.us % 1000000)


STAMPS = (iso, iso, iso, syslog, spelled, numeric, numeric, time_only, epoch)


def stamp(c, d):
    return d.choice(STAMPS)(c, d)
