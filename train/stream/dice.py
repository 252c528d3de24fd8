"""Draws that are the same on every machine and Python from 3.9 on.

Of the standard library's generator only random() and getrandbits() are used (MT19937, both pinned by the language's
documentation); choices(), sample(), gauss() and float powers follow the version or the C library. No sum() of floats
and no iteration over sets anywhere in this folder, for the same reason.
"""
import random
from bisect import bisect_right
from math import sqrt

POWERS = {"flat": lambda i: 1, "half": sqrt, "one": float, "more": lambda i: i * sqrt(i), "two": lambda i: i * i}


class Dice:
    def __init__(self, seed):
        generator = random.Random(str(seed))
        self.unit, self.bits = generator.random, generator.getrandbits

    def below(self, n):
        """0 … n − 1; n < 2⁵³"""
        return int(self.unit() * n)

    def between(self, low, high):
        """low … high, both included"""
        return low + int(self.unit() * (high - low + 1))

    def chance(self, p):
        return self.unit() < p

    def choice(self, items):
        return items[int(self.unit() * len(items))]

    def shuffled(self, items):
        items = list(items)
        for i in range(len(items) - 1, 0, -1):
            j = self.below(i + 1)
            items[i], items[j] = items[j], items[i]
        return items

    def some(self, items, k):
        """k different items, or all where there are fewer"""
        items = list(items)
        k = min(k, len(items))
        for i in range(k):
            j = i + self.below(len(items) - i)
            items[i], items[j] = items[j], items[i]
        return items[:k]

    def bell(self):
        """about normal, mean 0, deviation 0.58, within ±2"""
        return self.unit() + self.unit() + self.unit() + self.unit() - 2

    def scaled(self, low, high):
        """low … high, small ones oftener: each doubling about equally likely"""
        top = low
        while top < high and self.unit() < 0.8:
            top = min(high, top * 2 + 1)
        return self.between(low, top)

    def weighted(self, pairs):
        """-> a callable that draws from [(item, integer weight)]"""
        items = [item for item, _ in pairs]
        pick = self._picker([weight for _, weight in pairs])
        return lambda: items[pick()]

    def ranked(self, n, power=None):
        """-> a callable that draws 0 … n − 1, by Zipf's law with one of a few exponents"""
        f = POWERS[power or self.choice(("flat", "half", "one", "one", "more", "two"))]
        return self._picker([1 + int(1e6 / f(i + 1)) for i in range(n)])

    def _picker(self, weights):
        sums, total = [], 0
        for weight in weights:
            total += weight
            sums.append(total)
        unit = self.unit
        return lambda: bisect_right(sums, int(unit() * total))
