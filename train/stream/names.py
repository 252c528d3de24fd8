"""The words of one system, and the names that it makes of them.

A system knows few words and uses some of them all the time. A share of them, none to all, is invented out of the
system's own syllables, so a model can't lean on the list in words.py.
"""
import words

ONSETS = """b c d f g h j k l m n p r s t v w z br ch cl cr dr fl gl gr kr ph pl pr qu sh sk sl sp st str th
    tr tw""".split()
NUCLEI = "a e i o u a e i o ai au ea ee ei ia io oa oo ou y".split()
CODAS = ["", "", "", "", *"b ck d g k l m n p r s t x ld lk lm nd ng nk nt rd rk rm rn rt ss st th".split()]
FOREIGN = {  # letters beyond ASCII, two to four bytes each
    "north": ("å ä ö ø æ é".split(), "b d f g h k l m n r s t v".split()),
    "south": ("á é í ó ú ã ç ñ".split(), "b c d f g l m n p r s t v".split()),
    "east": ("á ě í ů ý a e o".split(), "č ř š ž d k l m n p t v ł ż".split()),
    "cyrillic": ("а е и о у я ю ы".split(), "б в г д ж з к л м н п р с т ф х ц ч ш".split()),
    "greek": ("α ε η ι ο υ ω".split(), "β γ δ θ κ λ μ ν π ρ σ τ φ χ".split()),
    "signs": (["", "", ""], "山 川 水 火 木 金 土 日 月 門 車 電 力 機 口 手 目 心 石 田 番 号 通 信 更 新".split()),
}
CONVENTIONS = {
    "camel": lambda ws: ws[0] + "".join(w.capitalize() for w in ws[1:]),
    "pascal": lambda ws: "".join(w.capitalize() for w in ws),
    "snake": "_".join,
    "kebab": "-".join,
    "dotted": ".".join,
    "flat": "".join,
    "scream": lambda ws: "_".join(ws).upper(),
    "train": lambda ws: "-".join(w.capitalize() for w in ws),
    "colons": "::".join,
    "short": lambda ws: "".join(w[:3] for w in ws),
}
CLASS_ENDS = """Manager Handler Service Controller Factory Task Worker Listener Store Client Server Impl Provider
    Registry Scheduler Monitor Executor Channel Filter Context Helper Driver Session Pool Cache Queue""".split()
TOPS = "com org net io de fr cz app sys".split()
ENDINGS = "com net org io dev local internal lan example test de cz fr jp".split()


class Lexicon:
    def __init__(self, d):
        self.d = d
        self.made = d.choice((0, 0, 0.1, 0.1, 0.3, 0.5, 1))
        self.foreign = d.choice(sorted(FOREIGN)) if d.chance(0.07) else None
        self.onsets, self.nuclei, self.codas = d.some(ONSETS, 9), d.some(NUCLEI, 5), d.some(CODAS, 7)
        self.topics = d.some(sorted(words.NOUNS), d.between(1, 3))
        real = [w for topic in self.topics for w in words.NOUNS[topic]]
        size = d.choice((12, 20, 35, 60, 120))
        nouns = self._mix(real, size)
        verbs = self._mix(words.VERBS, max(8, size // 2))
        adjectives = self._mix(words.ADJECTIVES, max(6, size // 3))
        self.noun, self.verb, self.adjective = self._drawer(nouns), self._drawer(verbs), self._drawer(adjectives)
        self.adverb, self.state = self._drawer(d.some(words.ADVERBS, 6)), self._drawer(d.some(words.STATES, 8))
        self.reason = self._drawer(d.some(words.REASONS, 8))
        self.conventions = d.some(sorted(CONVENTIONS), d.between(1, 3))
        self.key_convention = d.choice(("snake", "camel", "flat", "kebab", "short", "pascal", "dotted", "scream"))
        self.product = self.invented()
        self.company = self.ascii_word()
        self.top = d.choice(TOPS)

    def _mix(self, real, size):
        return [self.invented() if self.d.chance(self.made) else w for w in self.d.some(real, size)]

    def _drawer(self, items):
        pick = self.d.ranked(len(items), self.d.choice(("flat", "half", "one")))
        return lambda: items[pick()]

    def ascii_word(self):
        d = self.d
        return "".join(d.choice(self.onsets) + d.choice(self.nuclei) + (d.choice(self.codas) if d.chance(0.6) else "")
                       for _ in range(d.choice((1, 2, 2, 2, 3))))

    def invented(self):
        if not self.foreign or self.d.chance(0.2):
            return self.ascii_word()
        d, (vowels, consonants) = self.d, FOREIGN[self.foreign]
        return "".join(d.choice(consonants) + d.choice(vowels) for _ in range(d.choice((2, 2, 3, 3, 4))))

    def word(self):
        k = self.d.unit()
        return self.noun() if k < 0.6 else self.verb() if k < 0.8 else self.adjective()

    def past(self):
        return words.past(self.verb())

    def ing(self):
        return words.ing(self.verb())

    def third(self):
        return words.third(self.verb())

    def plural(self):
        return words.plural(self.noun())

    def name(self, convention=None, low=1, high=3):
        """an identifier of low … high words"""
        parts = list(dict.fromkeys(self.word() for _ in range(self.d.between(low, high))))  # no word twice
        return CONVENTIONS[convention or self.d.choice(self.conventions)](parts)

    def key(self):
        return self.name(self.key_convention, 1, 2)

    def class_name(self):
        return self.name("pascal", 1, 2) + (self.d.choice(CLASS_ENDS) if self.d.chance(0.7) else "")

    def package(self):
        inner = [self.ascii_word() if self.d.chance(0.3) else self.noun() for _ in range(self.d.between(0, 3))]
        return ".".join([self.top, self.company, *inner])

    def abbreviation(self):
        n = self.noun()
        return n[:self.d.between(1, 4)]

    def person(self):
        return self.d.choice(words.FIRST_NAMES), self.d.choice(words.LAST_NAMES)

    def user(self):
        first, last = self.person()
        k = self.d.below(8)
        return (first, first[0] + last, first + "." + last, last, self.noun(), first + str(self.d.below(100)),
                "svc-" + self.noun(), self.ascii_word())[k]

    def domain(self):
        return (self.company if self.d.chance(0.6) else self.ascii_word()) + "." + self.d.choice(ENDINGS)
