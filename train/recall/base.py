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
from model import Config, Decoder, turn  # noqa: E402
from modules import Projector, QFormer, similarity  # noqa: E402
from texts import KINDS, NAMES, THINGS, Documents  # noqa: E402

BLOCK, WINDOW, SINKS = 128, 512, 4
HEAD = 3  # of the last layer: the one that is told where to look


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
    ap.add_argument("--look", type=float, default=0.2, help="weight of the last layer's look at a stated digit")
    ap.add_argument("--save", type=int, default=50)
    ap.add_argument("--seed", type=int, default=1)
    return ap.parse_args()


def kind_of(rng, ending):
    """What the next sequence is: book, told (facts among prose), dense (many facts), repeated, stitched"""
    shares = (0.15, 0.15, 0.3, 0.0, 0.4) if ending else (0.5, 0.15, 0.2, 0.05, 0.1)
    return ("book", "told", "dense", "repeated", "stitched")[rng.choice(5, p=shares)]


def sequence(documents, kind, length):
    """-> ids [length + 1], asked digits as of Documents.window, weights [length]"""
    rng = documents.rng
    if kind == "stitched":
        return documents.stitched(length, BLOCK, WINDOW, SINKS)
    if kind in ("told", "dense"):
        return *documents.window(length, rng.randint(1, 4) if kind == "told" else rng.randint(5, 9)), None
    return documents.repeated(length) if kind == "repeated" else documents.book(length + 1), [], None


def batch(documents, size, length, ending):
    """-> ids [size, length + 1], weights [size, length], digits [size, length]: where the next id is an asked digit;
    of each its row, the place before it, the place of the digit in the statement [asked digits, 3]"""
    ids = np.empty((size, length + 1), np.int64)
    weights, digits, sources = np.ones((size, length), np.float32), np.zeros((size, length), bool), []
    for row in range(size):
        ids[row], where, counts = sequence(documents, kind_of(documents.rng, ending), length)
        if counts is not None:
            weights[row] = counts
        for at, stated in where:
            digits[row, at - 1:at + 3] = True
            sources += [(row, at - 1 + i, stated + i) for i in range(4)]
    sources = torch.tensor(sources, dtype=torch.long).view(-1, 3)
    return torch.from_numpy(ids), torch.from_numpy(weights), torch.from_numpy(digits), sources


def looking(model, before, sources, ids):
    """What the last layer's HEAD misses, where a digit of an answer is wanted: of a look at the digit that was
    stated, and of saying it. A decoder of four layers has just enough of them to find a fact by three words; by itself
    it did not. before: what that layer's attention reads [B, T, D] -> nats of the place, nats of the digit"""
    row, place, stated = sources.T
    attention, (cos, sin), c = model.layers[-1].self_attn, model.rope, model.config
    q, k, v = attention.project(before)
    length, group = before.shape[1], HEAD // (c.heads // c.groups)
    q = turn(q[:, HEAD], cos[:length], sin[:length])[row, place]
    k = turn(k[:, group], cos[:length], sin[:length])
    scores = torch.einsum("nd,ntd->nt", q, k[row]) / math.sqrt(c.channels)
    scores = scores.masked_fill(torch.arange(length) > place[:, None], -1e9)
    said = attention.o_proj.weight[:, HEAD * c.channels:(HEAD + 1) * c.channels] @ v[row, group, stated].T
    digits = model.lm_head.weight[ord("0"):ord("9") + 1] @ (F.normalize(said, dim=0) * model.norm.weight[:, None] * 16)
    return F.cross_entropy(scores, stated), F.cross_entropy(digits.T, ids[row, stated] - ord("0"))


@torch.no_grad()
def evaluate(model, documents, length, count=16):
    """-> bits per byte of held-out books, share of answers that are right in a window, and in stitched lists"""
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
                for at, _ in digits:
                    right += all(best[row, d - 1].item() == ids[i + row, d].item() for d in range(at, at + 4))
                    total += 1
        found.append(nats / (count * length) / math.log(2) if kind == "book" else right / max(1, total))
    return found


def optimisers(model, contrast, rate):
    matrices = [p for n, p in model.named_parameters() if p.dim() == 2 and "layers" in n]
    rest = [p for n, p in model.named_parameters() if p.dim() != 2 or "layers" not in n]
    return [torch.optim.AdamW(contrast.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=0.0),
            torch.optim.Muon(matrices, lr=rate, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(rest, lr=rate, betas=(0.9, 0.97), weight_decay=0.0)]


def lesson(documents, length, texts=2, facts=8):
    """-> ids [2 · texts, length + 1]: facts in prose, then questions for them; of each question its row, place, the place
    of the first digit in the rows that state, and the words of its fact"""
    said = [documents.statements(length, facts) for _ in range(texts)]
    asked = [documents.questions(length, chosen) for _, chosen, _ in said]
    ids = np.stack([s[0] for s in said] + [a[0] for a in asked])
    ids = torch.from_numpy(np.concatenate([ids, np.full((len(ids), 1), ord(" "))], 1))  # what the last one predicts
    where = [(texts + i, place, i * length + digit, *fact.words)
             for i, ((_, chosen, at), (_, places)) in enumerate(zip(said, asked))
             for fact, digit, place in zip(chosen, at, places) if 0 <= place < length - 1]
    return ids, torch.tensor(where)


class Contrast(torch.nn.Module):
    """Questions against blocks: InfoNCE (van den Oord et al. 2018). The few blocks of a step teach little, so each side
    is also held against what a fact is about: the sum of learned vectors of its three words, among OTHERS random ones.
    So is what the last layer's attention reads at the first digit of a statement, and where the first digit of an answer
    is wanted: there one has to find the other, and the digits behind follow from that."""

    OTHERS = 384

    def __init__(self, hidden):
        super().__init__()
        self.qformer = QFormer(hidden, BLOCK)
        width = self.qformer.sizes["width"]
        self.projector = Projector(hidden, width)
        self.words = torch.nn.ModuleList(torch.nn.Embedding(len(w), width) for w in (NAMES, KINDS, THINGS))
        self.heat = torch.nn.Parameter(torch.tensor(1 / 0.07).log())
        self.key, self.query = (torch.nn.Linear(hidden, width, bias=False) for _ in range(2))

    def about(self, words):
        """[n, 3] -> [n, F] of length 1"""
        return F.normalize(sum(e(words[:, i]) for i, e in enumerate(self.words)), dim=-1)

    def forward(self, before, hidden, where, texts=2):
        """before, hidden [2 · texts, T, D] -> the loss, shares of questions: whose block is the best, whose fact is, and
        of first digits: of which the fact is known where it is stated, where it is wanted"""
        heat = self.heat.exp().clamp(max=50)
        rows = self.qformer(hidden[:texts].reshape(-1, BLOCK, hidden.shape[-1]))
        row, place, digit, words = where[:, 0], where[:, 1], where[:, 2], where[:, 3:]
        e = self.projector(hidden[row, place])
        blocks = (digit + 3) // BLOCK
        scores = similarity(e, rows) * heat
        others = torch.stack([torch.randint(len(w.weight), (self.OTHERS,)) for w in self.words], 1)
        facts = self.about(torch.cat((words, others)))
        right = torch.arange(len(words))
        said = similarity(facts, rows[blocks]).T * heat  # [questions, facts]: what the block of each says
        same = (blocks[:, None] == blocks) & ~torch.eye(len(words), dtype=torch.bool)
        said = said.masked_fill(torch.cat((same, torch.zeros(len(words), self.OTHERS, dtype=torch.bool)), 1), -1e9)
        known = F.normalize(self.key(before.flatten(0, 1)[digit]), dim=-1) @ facts.T * heat
        wanted = F.normalize(self.query(before[row, place + 1]), dim=-1) @ facts.T * heat
        all_scores = (scores, blocks), (e @ facts.T * heat, right), (said, right), (known, right), (wanted, right)
        shares = [(s.argmax(-1) == at).float().mean().item() for s, at in all_scores]
        return sum(F.cross_entropy(s, at) for s, at in all_scores), [*shares[:2], *shares[3:]]


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
        ids, weights, digits, sources = batch(documents, half, args.length, ending)
        learnt, where = lesson(documents, args.length)
        ids = torch.cat((ids, learnt))
        weights = torch.cat((weights, torch.ones(len(learnt), args.length)))
        digits = torch.cat((digits, torch.zeros(len(learnt), args.length, dtype=torch.bool)))
        before_last, hidden = model.last_two(ids[:, :-1])
        logits = model.lm_head(hidden)
        found, best = contrast(before_last[half:], hidden[half:], where)
        nats = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view_as(weights)
        # An asked digit counts five times, and the first of each fifty times, since the others follow from it: there are
        # few of them, and they are what the memory is for.
        weights = weights + 4.0 * digits
        weights[sources[::4, 0], sources[::4, 1]] += 45.0
        look, say = looking(model, before_last, sources, ids) if len(sources) else (torch.zeros(()),) * 2
        loss = (nats * weights).sum() / weights.sum() + args.contrast * found + args.look * (look + say)
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
            print(f"step {step} loss {loss.item():.3f} digits {asked:.3f} nats, look {look.item():.3f} say {say.item():.3f}, contrast "
                  f"{found.item():.3f} right {' '.join(f'{b:.2f}' for b in best)}, {minutes:.1f} min", flush=True)
        if step % args.save == 0 or step == args.steps:
            save(path, {"model": model.state_dict(), "contrast": contrast.state_dict(),
                        "optimisers": [o.state_dict() for o in opts], "step": step,
                        "minutes": minutes, "args": vars(args)})
        if step % 100 == 0 or step == args.steps:
            bits, near, far = evaluate(model, Documents(corpus.val, 7), args.length)
            print(f"step {step}: held out {bits:.3f} bits per byte, answers right {near:.3f} in a window, "
                  f"{far:.3f} in stitched lists", flush=True)


if __name__ == "__main__":
    main()
