"""Texts that state facts and ask for them later, and the lists that inference makes of a long one.

A fact is `The key of the blue door is 7319.`; it is asked for by `What is the key of the blue door?`, and answered by
`The key of the blue door is<RETRIEVE> 7319.`: where the digits are wanted the decoder has to know which, so there its
hidden vector says it. <SUMMARIZE> stands between topics: pieces of different books.
"""
import numpy as np

from model import RETRIEVE, SUMMARIZE

NAMES = "key code number price weight age name-day size height depth rank date cost score mark load".split()
KINDS = ("blue red green black white silver golden old new small large tall broken quiet northern southern eastern "
         "western wooden iron stone second third last").split()
THINGS = ("door house ship garden tower bridge river table lamp horse wagon letter book clock mill farm castle road "
          "market island forest chapel harbour mountain").split()


def octets(text):
    return np.frombuffer(text.encode(), np.uint8).astype(np.int64)


class Fact:
    def __init__(self, rng, near=None):
        """near: a fact that may share up to two of the three words"""
        self.words = [int(rng.randint(len(words))) for words in (NAMES, KINDS, THINGS)]
        if near is not None:
            own = rng.randint(3)
            self.words = [w if i == own or rng.rand() < 0.4 else n
                          for i, (w, n) in enumerate(zip(self.words, near.words))]
        name, kind, thing = (words[i] for words, i in zip((NAMES, KINDS, THINGS), self.words))
        self.what = f"{name} of the {kind} {thing}"
        self.value = "".join(str(rng.randint(10)) for _ in range(4))

    def said(self):
        return octets(f" The {self.what} is {self.value}. ")

    def asked(self):
        """-> ids of question and answer, where the digits stand in them"""
        question = octets(f"\nWhat is the {self.what}? The {self.what} is")
        answer = octets(f" {self.value}.\n")
        ids = np.concatenate([question, [RETRIEVE], answer])
        return ids, len(ids) - 6 + np.arange(4)


def facts(rng, count):
    """`count` facts of different things; some are easily confused"""
    found = {}
    while len(found) < count:
        others = list(found.values())
        fact = Fact(rng, others[rng.randint(len(others))] if others and rng.rand() < 0.3 else None)
        found.setdefault(fact.what, fact)
    return list(found.values())


class Documents:
    """Pieces of books with facts put between their words."""

    def __init__(self, texts, seed):
        self.texts, self.rng = texts, np.random.RandomState(seed)
        sizes = np.array([len(t) for t in texts], float)
        self.chance = sizes / sizes.sum()

    def piece(self, length):
        text = self.texts[self.rng.choice(len(self.texts), p=self.chance)]
        at = self.rng.randint(0, max(1, len(text) - length))
        return np.asarray(text[at:at + length]).astype(np.int64)

    def book(self, length):
        """-> ids [length]; now and then another book begins, behind <SUMMARIZE>"""
        if length > 64 and self.rng.rand() < 0.2:
            cut = self.rng.randint(32, length - 16)
            return np.concatenate([self.piece(cut), [SUMMARIZE], self.piece(length)])[:length]
        return self.piece(length)

    def told(self, length, count):
        """Facts in prose, asked for behind all of it -> ids, digits (where the asked digits stand), statements
        [(from, to)] of the facts in the order of the questions."""
        rng, chosen = self.rng, facts(self.rng, count)
        parts, at, said = [], 0, {}
        room = max(0, length - sum(len(f.said()) for f in chosen))
        cuts = np.sort(rng.randint(0, room + 1, count))
        text = self.book(room)
        gone = 0
        for fact, cut in zip(chosen, cuts):
            parts.append(text[gone:cut])
            at += cut - gone
            gone = cut
            ids = fact.said()
            said[fact.what] = (at, at + len(ids))
            parts.append(ids)
            at += len(ids)
        parts.append(text[gone:])
        at += len(text) - gone
        return parts, at, chosen, said

    def window(self, length, count):
        """`count` facts and their questions, shuffled, in exactly `length` ids -> ids [length + 1], the digits that are
        asked for: [(where the first is, where the first of the statement is)]"""
        rng = self.rng
        size = 90 * count + 64
        parts, at, chosen, said = self.told(max(0, length - size), count)
        digits = []
        for i in rng.permutation(count):
            ids, where = chosen[i].asked()
            if rng.rand() < 0.3:
                gap = self.piece(rng.randint(8, 40))
                parts.append(gap)
                at += len(gap)
            digits.append((at + int(where[0]), said[chosen[i].what][1] - 6))
            parts.append(ids)
            at += len(ids)
        parts.append(self.book(max(length + 1 - at, 1)))
        ids = np.concatenate(parts)[:length + 1]
        return ids, [d for d in digits if d[0] + 3 < length]

    def repeated(self, length):
        """A random string again and again, with prose between"""
        rng = self.rng
        string = rng.randint(33, 127, rng.randint(8, 64)).astype(np.int64)
        parts, at = [], 0
        while at <= length:
            parts += [string, self.piece(rng.randint(4, 120))]
            at += len(parts[-1]) + len(string)
        return np.concatenate(parts)[:length + 1]

    def stitched(self, length, block, window, sinks, most=3):
        """The list of a session that asks for a fact which has left its window: the first tokens, some earlier blocks
        with that of the fact among them, the last tokens. -> ids [length + 1], digits as of `window`, weights [length]
        (0 where the next id is one that does not follow)"""
        rng = self.rng
        count = rng.randint(1, 4) if rng.rand() < 0.3 else rng.randint(8, 25)
        far = rng.randint(window + 4 * block, 40 * block)
        parts, at, chosen, said = self.told(far, count)
        text = np.concatenate(parts)
        asked = chosen[rng.randint(count)]
        question, where = asked.asked()
        tail = self.book(rng.randint(0, 2 * block))
        text = np.concatenate([text, tail, question, self.book(block)])
        before = len(text) - block - len(question) + int(where[0])  # of the first digit
        whole = (before // block) * block
        begin = max(0, whole - window + block)  # of the window
        needed = {b for b in range(said[asked.what][0] // block, (said[asked.what][1] - 1) // block + 1)}
        others = [b for b in range(begin // block) if b not in needed]
        # What is brought back beside the right block states facts too, else it would not have been found.
        telling = {(to - 1) // block for _, to in said.values()}
        others = sorted(rng.permutation(others), key=lambda b: b not in telling) if rng.rand() < 0.7 else \
            rng.permutation(others)
        extra = others[:max(0, rng.randint(0, most + 1) - len(needed))]
        blocks = sorted({*(b for b in needed if (b + 1) * block <= begin), *map(int, extra)})
        pieces = [np.arange(sinks), *(np.arange(max(sinks, b * block), (b + 1) * block) for b in blocks)]
        at = np.concatenate([*pieces, np.arange(begin, len(text))])
        at = at[len(at) - length - 1:] if len(at) > length + 1 else at
        ids = text[at]
        weights = (np.diff(at) == 1).astype(np.float32)
        digits = [tuple(int(np.flatnonzero(at == place)[0]) for place in (before, said[asked.what][1] - 6))]
        if len(ids) < length + 1:  # the shape of a batch is fixed: what follows is another text, and counts nothing
            pad = length + 1 - len(ids)
            ids = np.concatenate([ids, self.piece(pad)])
            weights = np.concatenate([weights, np.zeros(pad, np.float32)])
        return ids, [d for d in digits if d[0] + 3 < length], weights[:length]

    def statements(self, length, count):
        """`count` facts in prose -> ids [length], facts, where the first digit of each stands"""
        parts, _, chosen, said = self.told(length, count)
        ids = np.concatenate(parts)[:length]
        return ids, chosen, [min(said[f.what][1] - 6, length - 4) for f in chosen]

    def questions(self, length, asked):
        """Questions and answers in prose -> ids [length], where <RETRIEVE> of each stands (−1: behind the end)"""
        parts, at, where = [], 0, []
        room = max(0, length - 100 * len(asked))
        for fact in asked:
            prose = self.book(self.rng.randint(0, 2 * room // max(1, len(asked)) + 1))
            ids, digits = fact.asked()
            if self.rng.rand() < 0.5:  # an answer that was not found looks otherwise
                ids[digits] = octets("".join(str(self.rng.randint(10)) for _ in range(4)))
            parts += [prose, ids]
            place = at + len(prose) + int(np.flatnonzero(ids == RETRIEVE)[0])
            where.append(place if place < length else -1)
            at += len(prose) + len(ids)
        parts.append(self.book(max(1, length - at)))
        return np.concatenate(parts)[:length], where
