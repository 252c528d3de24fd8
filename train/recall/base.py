#!/usr/bin/env python3
"""Trains the base decoder of models/recall.

    base.py --out run --data texts corpus --exclude flaubert-bovary goethe-faust voltaire-candide --steps 1500

Every --save steps the weights and the optimisers' state go to run/base.pt; the same command goes on from there, also
with other --steps. The last --decay steps are the end: the rate falls to a fiftieth and most sequences are stitched.
Half of each batch is a lesson for the index (index.py): the decoder has to gather at <RETRIEVE> what is asked for, which
the next byte alone never needs, so a contrast of questions and blocks is part of its loss.
Matrices are trained by Muon (Jordan et al. 2024, with the update's size of Liu et al. 2025), all else by AdamW.
"""
import argparse
import math
import os
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from data import Corpus  # noqa: E402

from begin import begin  # noqa: E402
from model import Config, Decoder  # noqa: E402
from modules import Projector, QFormer, similarity  # noqa: E402
from texts import KINDS, NAMES, THINGS, Documents  # noqa: E402

BLOCK, WINDOW, SINKS = 128, 512, 4


def arguments():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", required=True)
    ap.add_argument("--data", nargs="+", required=True, help="folders of *.txt")
    ap.add_argument("--exclude", nargs="*", default=[], help="file names without .txt to leave out")
    ap.add_argument("--steps", type=int, default=1500)
    ap.add_argument("--decay", type=int, default=500, help="steps of the end")
    ap.add_argument("--warmup", type=int, default=50)
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--length", type=int, default=1024)
    ap.add_argument("--rate", type=float, default=4e-3)
    ap.add_argument("--contrast", type=float, default=0.2, help="weight of the lesson's loss")
    ap.add_argument("--save", type=int, default=50)
    ap.add_argument("--seed", type=int, default=1)
    return ap.parse_args()


def kind_of(rng, ending):
    """What the next sequence is: book, told (facts among prose), dense (many facts), repeated, stitched"""
    shares = (0.2, 0.08, 0.15, 0.02, 0.55) if ending else (0.5, 0.15, 0.2, 0.05, 0.1)
    return ("book", "told", "dense", "repeated", "stitched")[rng.choice(5, p=shares)]


def sequence(documents, kind, length):
    """-> ids [length + 1], digits, weights [length]"""
    rng = documents.rng
    if kind == "stitched":
        return documents.stitched(length, BLOCK, WINDOW, SINKS)
    if kind in ("told", "dense"):
        return *documents.window(length, rng.randint(1, 4) if kind == "told" else rng.randint(5, 9)), None
    return documents.repeated(length) if kind == "repeated" else documents.book(length + 1), [], None


def batch(documents, size, length, ending):
    """-> ids [size, length + 1], weights [size, length], digits [size, length]: where the next id is an asked digit"""
    ids = np.empty((size, length + 1), np.int64)
    weights, digits = np.ones((size, length), np.float32), np.zeros((size, length), bool)
    for row in range(size):
        ids[row], where, counts = sequence(documents, kind_of(documents.rng, ending), length)
        if counts is not None:
            weights[row] = counts
        digits[row, [d - 1 for d in where if d > 0]] = True
    return torch.from_numpy(ids), torch.from_numpy(weights), torch.from_numpy(digits)


@torch.no_grad()
def evaluate(model, documents, length, count=16):
    """-> bits per byte of held-out books, share of asked digits that are right in a window, and in stitched lists"""
    found = []
    for kind in ("book", "told", "stitched"):
        rows = [sequence(documents, kind, length) for _ in range(count)]
        ids = torch.from_numpy(np.stack([r[0] for r in rows]))
        right = total = nats = 0
        for i in range(0, count, 8):
            logits = model(ids[i:i + 8, :-1])
            nats += F.cross_entropy(logits.flatten(0, 1), ids[i:i + 8, 1:].flatten(), reduction="sum").item()
            best = logits.argmax(-1)
            for row, (_, digits, _) in enumerate(rows[i:i + 8]):
                right += sum(best[row, d - 1].item() == ids[i + row, d].item() for d in digits)
                total += len(digits)
        found.append(nats / (count * length) / math.log(2) if kind == "book" else right / max(1, total))
    return found


def optimisers(model, contrast, rate):
    matrices = [p for n, p in model.named_parameters() if p.dim() == 2 and "layers" in n]
    rest = [p for n, p in model.named_parameters() if p.dim() != 2 or "layers" not in n]
    return [torch.optim.AdamW(contrast.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=0.0),
            torch.optim.Muon(matrices, lr=rate, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(rest, lr=rate, betas=(0.9, 0.97), weight_decay=0.0)]


def lesson(documents, length, texts=2, facts=8):
    """-> ids [2 · texts, length + 1]: facts in prose, then questions for them; of each question its row, place, block,
    and the words of its fact"""
    said = [documents.statements(length, BLOCK, facts) for _ in range(texts)]
    asked = [documents.questions(length, chosen) for _, chosen, _ in said]
    ids = np.stack([s[0] for s in said] + [a[0] for a in asked])
    ids = torch.from_numpy(np.concatenate([ids, np.full((len(ids), 1), ord(" "))], 1))  # what the last one predicts
    where = [(texts + i, place, i * (length // BLOCK) + block, *fact.words)
             for i, ((_, chosen, at), (_, places)) in enumerate(zip(said, asked))
             for fact, block, place in zip(chosen, at, places) if place >= 0]
    return ids, torch.tensor(where)


class Contrast(torch.nn.Module):
    """Questions against blocks: InfoNCE (van den Oord et al. 2018). The few blocks of a step teach little, so each side
    is also held against what a fact is about: the sum of learned vectors of its three words, among OTHERS random ones."""

    OTHERS = 384

    def __init__(self, hidden):
        super().__init__()
        self.qformer = QFormer(hidden, BLOCK)
        width = self.qformer.sizes["width"]
        self.projector = Projector(hidden, width)
        self.words = torch.nn.ModuleList(torch.nn.Embedding(len(w), width) for w in (NAMES, KINDS, THINGS))
        self.heat = torch.nn.Parameter(torch.tensor(1 / 0.07).log())

    def about(self, words):
        """[n, 3] -> [n, F] of length 1"""
        return F.normalize(sum(e(words[:, i]) for i, e in enumerate(self.words)), dim=-1)

    def forward(self, hidden, where, texts=2):
        """hidden [2 · texts, T, D] -> the loss, the share of questions whose block is the best, whose fact is"""
        heat = self.heat.exp().clamp(max=50)
        rows = self.qformer(hidden[:texts].reshape(-1, BLOCK, hidden.shape[-1]))
        e = self.projector(hidden[where[:, 0], where[:, 1]])
        blocks, words = where[:, 2], where[:, 3:]
        scores = similarity(e, rows) * heat
        others = torch.stack([torch.randint(len(w.weight), (self.OTHERS,)) for w in self.words], 1)
        facts = self.about(torch.cat((words, others)))
        right = torch.arange(len(words))
        asking = e @ facts.T * heat
        said = similarity(facts, rows[blocks]).T * heat  # [questions, facts]: what the block of each says
        same = (blocks[:, None] == blocks) & ~torch.eye(len(words), dtype=torch.bool)
        said = said.masked_fill(torch.cat((same, torch.zeros(len(words), self.OTHERS, dtype=torch.bool)), 1), -1e9)
        loss = F.cross_entropy(scores, blocks) + F.cross_entropy(asking, right) + F.cross_entropy(said, right)
        share = lambda s, at: (s.argmax(-1) == at).float().mean().item()
        return loss, (share(scores, blocks), share(asking, right), share(said, right))


def save(path, content):
    torch.save(content, path + ".tmp")
    os.replace(path + ".tmp", path)


def main():
    args = arguments()
    os.makedirs(args.out, exist_ok=True)
    path = os.path.join(args.out, "base.pt")
    corpus = Corpus(args.data, exclude=args.exclude)
    torch.manual_seed(args.seed)
    model = begin(Decoder(Config()), args.seed)
    contrast = Contrast(model.config.hidden)
    opts = optimisers(model, contrast, args.rate)
    step = minutes = 0
    if os.path.exists(path):
        stored = torch.load(path, weights_only=False)
        model.load_state_dict(stored["model"])
        contrast.load_state_dict(stored["contrast"])
        for opt, state in zip(opts, stored["optimisers"]):
            opt.load_state_dict(state)
        step, minutes = stored["step"], stored["minutes"]
    documents = Documents(corpus.train, args.seed + step)
    print(f"{model.parameters_count():,} parameters, {corpus.size()[0]:,} bytes of text, step {step}", flush=True)
    began, before = time.time(), minutes
    while step < args.steps:
        ending = step >= args.steps - args.decay
        fall = max(0.02, min(1.0, (args.steps - step) / args.decay))
        for opt in opts:
            for group in opt.param_groups:
                group["lr"] = args.rate * (0.5 if opt is opts[0] else 1) * fall * min(1.0, (step + 1) / args.warmup)
        half = args.batch // 2
        ids, weights, digits = batch(documents, half, args.length, ending)
        learnt, where = lesson(documents, args.length)
        ids = torch.cat((ids, learnt))
        weights = torch.cat((weights, torch.ones(len(learnt), args.length)))
        digits = torch.cat((digits, torch.zeros(len(learnt), args.length, dtype=torch.bool)))
        hidden = model.hidden(ids[:, :-1])
        logits = model.lm_head(hidden)
        found, best = contrast(hidden[half:], where)
        nats = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view_as(weights)
        # An asked digit counts five times: there are few of them, and they are what the memory is for.
        weights = weights + 4.0 * digits
        loss = (nats * weights).sum() / weights.sum() + args.contrast * found
        for opt in opts:
            opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        torch.nn.utils.clip_grad_norm_(contrast.parameters(), 1.0)
        for opt in opts:
            opt.step()
        step += 1
        minutes = before + (time.time() - began) / 60
        if step % 10 == 0:
            asked = nats[digits].mean().item() if digits.any() else float("nan")
            print(f"step {step} loss {loss.item():.3f} digits {asked:.3f} nats, contrast "
                  f"{found.item():.3f} right {best[0]:.2f} {best[1]:.2f} {best[2]:.2f}, {minutes:.1f} min", flush=True)
        if step % args.save == 0 or step == args.steps:
            save(path, {"model": model.state_dict(), "contrast": contrast.state_dict(),
                        "optimisers": [o.state_dict() for o in opts], "step": step,
                        "minutes": minutes, "args": vars(args)})
        if step % 100 == 0 or step == args.steps:
            bits, near, far = evaluate(model, Documents(corpus.val, 7), args.length)
            print(f"step {step}: held out {bits:.3f} bits per byte, digits right {near:.3f} in a window, "
                  f"{far:.3f} in stitched lists", flush=True)


if __name__ == "__main__":
    main()
