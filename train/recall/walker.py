#!/usr/bin/env python3
"""Trains the walker of the memory graph: from the nearest topic to the block that a question asks for.

    walker.py --out run --data texts corpus --exclude … --steps 600

Graphs are those that inference builds: blocks of texts one after another, put in by the gardener. A walk is labelled at
each node with the next one of a shortest way to the block of the fact, and once it is collected with the most likely
other block, since a walker cannot know that it is there and further blocks cost no more. Half of the walks go where the
walker would go, so that it learns to come back from there (Ross et al. 2011, "DAgger").
At the end: how often the block is among those collected, and the distances computed, beside the flat index.
"""
import os
import sys
import time
from collections import deque

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from data import Corpus  # noqa: E402

from base import save  # noqa: E402
from index import common_arguments, frozen_base, lesson, load_index, pooled  # noqa: E402
from modules import Walker, similarity, tensors_of, warm  # noqa: E402
from texts import Documents  # noqa: E402

COLLECTED = 3  # retrieval.blocks where the graph is walked
GRAPH = {"max_virtual": 64, "new_distance": 1.1, "drift_min": 0.02, "split_variance": 0.8, "split_min": 16,
         "split_iterations": 4, "merge_distance": 0.05, "fan": 8, "max_hops": 6}


def squared(a, b):
    return float(((a - b) ** 2).sum())


class Graph:
    """Topics over blocks: each block joins the nearest center, which drifts; wide topics are split, near ones merged."""

    def __init__(self, width):
        slots = GRAPH["max_virtual"]
        self.x, self.member = [], []
        self.center, self.n, self.s = np.zeros((slots, width)), np.zeros(slots, int), np.zeros(slots)

    def active(self):
        return np.flatnonzero(self.n)

    def members(self, v):
        return [b for b, m in enumerate(self.member) if m == v]

    def insert(self, x):
        self.x.append(x)
        active = self.active()
        distances = ((self.center[active] - x) ** 2).sum(-1)
        free = np.flatnonzero(self.n == 0)
        if len(active) == 0 or (distances.min() > GRAPH["new_distance"] and len(free)):
            v = int(free[0])
            self.center[v], self.n[v], self.s[v] = x, 1, 0.0
            self.member.append(v)
        else:
            v = int(active[distances.argmin()])
            self.member.append(v)
            self.n[v] += 1
            rate = max(1 / self.n[v], GRAPH["drift_min"])
            self.center[v] += rate * (x - self.center[v])
            self.s[v] = (1 - rate) * (self.s[v] + rate * distances.min())
            if self.n[v] >= GRAPH["split_min"] and self.s[v] > GRAPH["split_variance"] and len(free):
                self.split(v, int(free[0]))
        self.merge()

    def split(self, v, new):
        members = self.members(v)
        far = lambda c: self.x[max(members, key=lambda b: (squared(self.x[b], c), -b))]
        first = far(self.center[v])
        centers = [first, far(first)]
        sides = ([], [])
        for _ in range(GRAPH["split_iterations"]):
            sides = ([], [])
            for b in members:
                sides[squared(self.x[b], centers[0]) > squared(self.x[b], centers[1])].append(b)
            centers = [np.mean([self.x[b] for b in side], 0) if side else c for side, c in zip(sides, centers)]
        if not all(sides):
            return
        for slot, side, c in zip((v, new), sides, centers):
            self.center[slot], self.n[slot] = c, len(side)
            self.s[slot] = np.mean([squared(self.x[b], c) for b in side])
            for b in side:
                self.member[b] = slot

    def merge(self):
        active = self.active()
        if len(active) < 2:
            return
        c = self.center[active]
        distances = ((c[:, None] - c) ** 2).sum(-1)
        distances[np.tril_indices(len(c))] = np.inf
        at = int(distances.argmin())
        d = distances.flat[at]
        if not d < GRAPH["merge_distance"]:
            return
        i, j = (int(active[k]) for k in divmod(at, len(c)))
        n = self.n[i] + self.n[j]
        self.center[i] = (self.n[i] * self.center[i] + self.n[j] * self.center[j]) / n
        self.s[i] = (self.n[i] * self.s[i] + self.n[j] * self.s[j]) / n + self.n[i] * self.n[j] / n ** 2 * d
        self.n[i], self.n[j] = n, 0
        self.member = [i if m == j else m for m in self.member]


class Walk:
    """One question in a graph. A node is ("virtual", slot) or ("real", block)."""

    def __init__(self, graph, e):
        self.graph, self.e, self.collected, self.hop = graph, e, [], 0
        self.scores = np.stack(graph.x) @ e
        active = graph.active()
        centers = graph.center[active] / np.linalg.norm(graph.center[active], axis=-1, keepdims=True)
        self.u = ("virtual", int(active[(centers @ e).argmax()]))
        self.distances = len(active)

    def vector(self, node):
        if node[0] == "real":
            return self.graph.x[node[1]]
        c = self.graph.center[node[1]]
        return c / np.linalg.norm(c)

    def neighbours(self, u, collected):
        if u[0] == "virtual":
            found = [b for b in self.graph.members(u[1]) if b not in collected]
            return [("real", b) for b in sorted(found, key=lambda b: (-self.scores[b], -b))[:GRAPH["fan"]]]
        near = [b for b in (u[1] - 1, u[1] + 1) if 0 <= b < len(self.graph.x) and b not in collected]
        return [*(("real", b) for b in near), ("virtual", self.graph.member[u[1]])]

    def candidates(self):
        """-> nodes, None for stop; their features [candidates, 9]"""
        nodes = [*([None] if self.collected else []), *self.neighbours(self.u, self.collected)]
        if self.u[0] == "virtual":
            self.distances += len(self.graph.members(self.u[1]))
        xu, rest = self.vector(self.u), (self.hop / GRAPH["max_hops"], len(self.collected) / COLLECTED)
        rows = []
        for c in nodes:
            to = self.u if c is None else c
            xc = self.vector(to)
            step = to[1] - self.u[1] if c is not None and to[0] == self.u[0] == "real" else 0
            rows.append((self.e @ xu, self.e @ xc, xu @ xc, self.u[0] == "virtual", to[0] == "virtual", step, *rest,
                         c is None))
        return nodes, np.array(rows, np.float32)

    def move(self, node):
        """-> whether the walk goes on"""
        if node is None:
            return False
        self.u, self.hop = node, self.hop + 1
        if node[0] == "real":
            self.collected.append(node[1])
        return len(self.collected) < COLLECTED and self.hop < GRAPH["max_hops"]

    def wanted(self, nodes, block):
        """-> index of the candidate on a shortest way to the block; None where no way is left"""
        if block in self.collected:
            likely = [(self.scores[node[1]], -i) for i, node in enumerate(nodes) if node and node[0] == "real"]
            return -max(likely)[1] if likely else None
        waiting = deque((node, i, self.hop + 1, len(self.collected) + (node[0] == "real"))
                        for i, node in enumerate(nodes) if node is not None)
        seen = set(nodes)
        while waiting:
            node, first, hops, collected = waiting.popleft()
            if node == ("real", block):
                return first
            if hops < GRAPH["max_hops"] and collected < COLLECTED:
                for further in self.neighbours(node, self.collected):
                    if further not in seen:
                        seen.add(further)
                        waiting.append((further, first, hops + 1, collected + (further[0] == "real")))
        return None


@torch.no_grad()
def scene(model, contrast, documents, lessons):
    """-> a graph of 32 · lessons blocks, e of each question, its block; the flat index's scores [questions, blocks]"""
    blocks, questions, answers = pooled([lesson(model, documents) for _ in range(lessons)])
    rows, e = contrast.qformer(blocks), contrast.projector(questions)
    graph = Graph(rows.shape[-1])
    for x in F.normalize(rows.mean(1), dim=-1).double().numpy():
        graph.insert(x)
    return graph, e.double().numpy(), answers.tolist(), similarity(e, rows)


def scores_of(net, features):
    with torch.no_grad():
        return net(torch.from_numpy(features)).numpy()


def labelled(net, graph, questions, answers, rng):
    """-> [(features of the candidates, index of the wanted one)]"""
    found = []
    for e, block in zip(questions, answers):
        walk, led, on = Walk(graph, e), rng.rand() < 0.5, True
        while on:
            nodes, features = walk.candidates()
            at = walk.wanted(nodes, block) if nodes else None
            if at is None:
                break
            found.append((features, at))
            on = walk.move(nodes[at if led else int(scores_of(net, features).argmax())])
    return found


def evaluate(net, model, contrast, documents, lessons=12):
    graph, questions, answers, flat = scene(model, contrast, documents, lessons)
    hits = hops = distances = blocks = 0
    for e, block in zip(questions, answers):
        walk, on = Walk(graph, e), True
        while on:
            nodes, features = walk.candidates()
            on = bool(nodes) and walk.move(nodes[int(scores_of(net, features).argmax())])
        hits += block in walk.collected
        blocks += len(walk.collected)
        hops += walk.hop
        distances += walk.distances
    n = len(answers)
    order = flat.argsort(-1, descending=True)[:, :COLLECTED]
    found = {"blocks": len(graph.x), "topics": len(graph.active()), "walker": hits / n, "collected": blocks / n,
             "hops": hops / n, "distances": distances / n, "flat_distances": len(graph.x) * 4,
             "flat_best": (order[:, 0] == torch.tensor(answers)).float().mean().item(),
             "flat": (order == torch.tensor(answers)[:, None]).any(-1).float().mean().item()}
    sizes = np.sort(graph.n[graph.active()])
    print(f"{found['blocks']} blocks, {found['topics']} topics of {sizes.min()} to {sizes.max()}: the walker collects the "
          f"block in {found['walker']:.3f}, with {found['collected']:.2f} blocks, {found['hops']:.2f} hops and "
          f"{found['distances']:.0f} distances; the flat index has it first in {found['flat_best']:.3f}, among three in "
          f"{found['flat']:.3f}, with {found['flat_distances']} distances", flush=True)
    return found


def main():
    args = common_arguments(__doc__).parse_args()
    torch.manual_seed(args.seed)
    model, contrast = frozen_base(args.out)
    load_index(args.out, contrast)
    corpus = Corpus(args.data, exclude=args.exclude)
    documents, net, rng = Documents(corpus.train, args.seed), Walker(), np.random.RandomState(args.seed)
    opt = torch.optim.AdamW(net.parameters(), lr=args.rate * 3, weight_decay=0.01)
    pool, began = [], time.time()
    for step in range(args.steps):
        if step % 20 == 0:
            graph, questions, answers, _ = scene(model, contrast, documents, int(rng.randint(2, 9)))
            pool = [*pool, *labelled(net, graph, questions, answers, rng)][-6000:]
        opt.param_groups[0]["lr"] = args.rate * 3 * warm(step, args.steps, 20)
        chosen = [pool[i] for i in rng.choice(len(pool), 256)]
        widest = max(len(f) for f, _ in chosen)
        features, mask = np.zeros((256, widest, 9), np.float32), np.full((256, widest), -1e9, np.float32)
        for i, (f, _) in enumerate(chosen):
            features[i, :len(f)], mask[i, :len(f)] = f, 0
        loss = F.cross_entropy(net(torch.from_numpy(features)) + torch.from_numpy(mask),
                               torch.tensor([at for _, at in chosen]))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if (step + 1) % 100 == 0:
            print(f"step {step + 1} loss {loss.item():.3f}, {len(graph.active())} topics of {len(graph.x)} blocks, "
                  f"{(time.time() - began) / 60:.1f} min", flush=True)
    found = evaluate(net, model, contrast, Documents(corpus.val, 5))
    save(os.path.join(args.out, "walker.pt"), {
        "tensors": tensors_of(walker=net), "memory": {"graph": {**GRAPH, "walker_width": net.width}}, "found": found,
        "steps": args.steps})


if __name__ == "__main__":
    main()
