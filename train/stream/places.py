"""Kinds that name something: hosts, addresses, paths, users, classes, threads, ids with a prefix, states."""
from names import ENDINGS
from values import kind

METHODS = "GET GET GET POST PUT DELETE HEAD PATCH".split()
SUFFIXES = ".log .xml .conf .dat .json .tmp .bin .py .c .h .rs .so .jar .yml .csv .gz .db .sock .pid .html .js".split()
ERRNOS = """ENOENT EACCES EIO ENOSPC ETIMEDOUT ECONNREFUSED ECONNRESET EPIPE EAGAIN EINVAL
    EBUSY ENOMEM EPERM EHOSTUNREACH""".split()


@kind(6, "type state mode kind as")
def enum(s):
    d = s.d
    words = d.choice((s.lex.state, s.lex.noun, s.lex.adjective, lambda: s.lex.name("scream", 1, 2),
                      lambda: s.lex.name("pascal", 1, 2),
                      lambda: s.lex.state().upper()))
    known = [words() for _ in range(d.choice((2, 3, 4, 6, 10)))]
    pick = d.ranked(len(known))
    return lambda: known[pick()]


@kind(5, "for of named called")
def name_of(s):
    d = s.d
    known = [s.lex.name() for _ in range(d.choice((2, 5, 12, 40)))]
    pick = d.ranked(len(known))
    return lambda: known[pick()]


@kind(3, "from to state")
def change(s):
    d, style = s.d, s.d.choice(("%s -> %s", "%s->%s", "from %s to %s", "%s => %s", "%s to %s"))
    known = [s.lex.state() for _ in range(d.between(2, 4))]
    return lambda: style % (d.choice(known), d.choice(known))


@kind(6, "from to client peer address on by")
def ip4(s):
    d, n = s.d, s.d.choice((1, 1, 2, 3, 4))
    base = d.choice(([10, d.below(256), d.below(256), d.below(256)], [192, 168, d.below(256), d.below(256)],
                     [172, d.between(16, 31), 0, d.below(256)],
                     [d.between(11, 223), d.below(256), d.below(256), d.below(256)]))[:4 - n]
    if n == 4:
        return lambda: "%d.%d.%d.%d" % (d.between(1, 223), d.below(256), d.below(256), d.below(256))
    head = ".".join(map(str, base))
    if n == 1:
        return lambda: head + ".%d" % d.below(256)
    return lambda: head + "".join(".%d" % d.below(256) for _ in range(n))


@kind(4, "from to peer remote src dest at")
def ip4_port(s):
    d, head, pre = s.d, ip4(s), s.d.choice(("", "", "", "/", "tcp://"))
    if d.chance(0.5):
        port = str(d.choice((22, 80, 443, 5432, 6379, 8080, 9092, d.between(1024, 65535))))
        return lambda: pre + head() + ":" + port
    return lambda: pre + head() + ":" + str(d.between(1024, 65535))


@kind(1, "from to peer address")
def ip6(s):
    d, head, n = s.d, s.d.choice(("fe80::", "2001:db8:%x::" % s.d.bits(16), "fd%02x:%x::" % (s.d.bits(8), s.d.bits(16)),
                                  "::ffff:")), s.d.between(1, 4)
    return lambda: head + ":".join("%x" % d.bits(16) for _ in range(n))


@kind(3, "port on")
def port(s):
    d = s.d
    return lambda: str(d.between(1024, 65535))


@kind(1, "mac station device")
def mac(s):
    d, style = s.d, s.d.choice(("%02x:%02x:%02x:%02x:%02x:%02x", "%02X-%02X-%02X-%02X-%02X-%02X",
                                "%02x%02x.%02x%02x.%02x%02x"))
    head = (d.bits(8), d.bits(8), d.bits(8))
    return lambda: style % (*head, d.bits(8), d.bits(8), d.bits(8))


@kind(5, "host node on from server at")
def host(s):
    """a few hosts that are the same for all fields of the system"""
    d = s.d
    if not s.hosts:
        style, domain, role = d.below(6), s.lex.domain(), s.lex.abbreviation()
        for i in range(d.choice((1, 2, 5, 20, 80))):
            s.hosts.append((role + str(i + 1), "%s-%02d" % (role, i), "%s%d.%s" % (role, i, domain), s.lex.ascii_word(),
                            "ip-10-%d-%d-%d" % (d.below(256), d.below(256), d.below(256)),
                            "%s-%s-%d" % (s.lex.noun(), role, i))[style])
    pick = d.ranked(len(s.hosts))
    return lambda: s.hosts[pick()]


@kind(1, "host domain query")
def domain(s):
    d = s.d
    known = [d.choice(("", "", "www.", "api.", "mail.")) + s.lex.ascii_word() + "." + d.choice(ENDINGS)
             for _ in range(d.choice((3, 12, 60)))]
    pick = d.ranked(len(known))
    return lambda: known[pick()]


@kind(5, "user for by owner login")
def user(s):
    d = s.d
    if not s.users:
        s.users.extend(s.lex.user() for _ in range(d.choice((2, 5, 20, 100))))
    pick = d.ranked(len(s.users))
    return lambda: s.users[pick()]


@kind(1, "for by contact")
def person(s):
    d, style = s.d, s.d.choice(("%s %s", "%s %s", "%.1s. %s", "Dr. %s %s"))

    def draw():
        first, last = s.lex.person()
        return style % (first.capitalize(), last.capitalize())
    return draw


@kind(1, "to from recipient")
def email(s):
    users = user(s)
    domains = [s.lex.domain() for _ in range(s.d.between(1, 4))]
    return lambda: users() + "@" + s.d.choice(domains)


@kind(5, "file path open in to")
def path(s):
    d = s.d
    root = d.choice(("/var/lib/", "/opt/", "/usr/share/", "/data/", "/home/", "/etc/", "/tmp/", "C:\\Program Files\\",
                     "./", "/mnt/", "s3://", "/"))
    slash = "\\" if "\\" in root else "/"
    folders = [root + slash.join(s.lex.name(None, 1, 2) for _ in range(d.between(1, 4)))
               for _ in range(d.choice((1, 2, 5)))]
    ends = d.some(SUFFIXES, 3) + [""]
    if d.chance(0.6):
        known = [d.choice(folders) + slash + s.lex.name() + d.choice(ends) for _ in range(d.choice((1, 3, 10, 40)))]
        pick = d.ranked(len(known))
        return lambda: known[pick()]
    stem, width = s.lex.name(), d.choice((1, 3, 5, 8))
    return lambda: "%s%s%s-%0*d%s" % (d.choice(folders), slash, stem, width, d.below(10 ** width), ends[0])


@kind(3, "url GET uri fetch endpoint")
def url(s):
    d, base = s.d, s.d.choice(("", "", "https://" + s.lex.domain(), "http://" + s.lex.domain() + ":8080"))
    routes = [base + "/" + d.choice(("", "api/", "api/v%d/" % d.between(1, 4), "static/"))
              + "/".join(s.lex.name("kebab", 1, 2) for _ in range(d.between(1, 3)))
              for _ in range(d.choice((3, 8, 30)))]
    pick, tail = d.ranked(len(routes)), d.below(4)
    key = s.lex.key()
    return (lambda: routes[pick()], lambda: routes[pick()] + "/%d" % d.scaled(1, 100000),
            lambda: routes[pick()] + "?%s=%d" % (key, d.scaled(0, 999)),
            lambda: routes[pick()] + d.choice((".html", ".js", ".png", "/")))[tail]


@kind(1, "command method")
def method(s):
    return lambda: s.d.choice(METHODS)


@kind(3, "in class by of")
def class_name(s):
    d, package = s.d, s.lex.package() + "." if s.d.chance(0.5) else ""
    known = [package + s.lex.class_name() for _ in range(d.choice((2, 6, 25)))]
    pick, tail = d.ranked(len(known)), d.choice(("", "", "@%x", "$%d", "#%d"))
    return (lambda: known[pick()] + tail % d.bits(28)) if tail else (lambda: known[pick()])


@kind(2, "thread on in")
def thread(s):
    d, n = s.d, s.d.choice((1, 4, 16, 200))
    style = d.choice(("%s-%%d" % s.lex.noun(), "pool-%d-thread-%%d" % d.between(1, 9), "Thread-%d",
                      "%s-exec-%%d" % s.lex.name("kebab"), "%s[%%d]" % s.lex.name(),
                      "tid=%d", "%s Worker #%%d" % s.lex.noun().capitalize(), "%s:%%d" % s.lex.noun()))
    return lambda: style % d.between(1, n)


@kind(5, "id task job object")
def tagged(s):
    """a prefix and a number, as part-00042, tx_8812345 or volume-77-3"""
    d = s.d
    pre = d.choice((s.lex.abbreviation(), s.lex.noun(), s.lex.noun().upper(), s.lex.noun()[:1].upper(),
                    s.lex.ascii_word())) + d.choice(("-", "_", "", "#", ":", "/"))
    k, n, at, run = d.below(5), d.between(2, 12), d.below(1000), d.between(10 ** 9, 10 ** 12)
    if k == 0:
        return lambda: pre + str(d.below(10 ** n))
    if k == 1:
        return lambda: pre + "%0*d" % (n, d.below(300))
    if k == 2:
        return lambda: pre + "%0*x" % (n, d.bits(4 * n))

    def next_one():
        nonlocal at
        at += d.chance(0.5)
        return "%s%d_%04d" % (pre, run, at) if k == 3 else "%s%d" % (pre, at)
    return next_one


@kind(2, "device dev on interface")
def device(s):
    d = s.d
    style = d.choice(("sd%c%d", "eth%d", "/dev/%s%%d" % s.lex.abbreviation(), "%s%%d" % s.lex.abbreviation(),
                      "nvme%dn1", "%02x:%02x.%x", "wlan%d", "usb %d-%d"))
    n = style.count("%")
    if "%c" in style:
        return lambda: style % ("abcdefgh"[d.below(8)], d.between(1, 4))
    return lambda: style % tuple(d.below(4) for _ in range(n))


@kind(1, "at location slot")
def location(s):
    """a place in a plant, as R07-M1-U12 or rack 3 / unit 12"""
    d, letters = s.d, s.d.some("ABCDFGHKLMNPRSTUXYZ", 4)
    sizes, joint = [d.choice((2, 4, 16, 40)) for _ in range(d.between(2, 4))], d.choice(("-", "/", ".", ":"))
    widths = [d.choice((1, 2, 2)) for _ in sizes]
    return lambda: joint.join("%s%0*d" % (c, w, d.below(n)) for c, w, n in zip(letters, widths, sizes))


@kind(1, "error cause errno")
def errno(s):
    known = s.d.some(ERRNOS, 5)
    return lambda: s.d.choice(known)


@kind(2, "because reason cause error")
def reason(s):
    known = [s.lex.reason() for _ in range(s.d.between(2, 6))]
    return lambda: s.d.choice(known)


@kind(1, "text message query title")
def quoted(s):
    """some words of a person"""
    d = s.d
    return lambda: " ".join(s.lex.word() for _ in range(d.between(1, 6)))
