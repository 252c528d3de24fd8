#!/usr/bin/env python3
"""Trains what finds blocks: the Q-Former that sums them up and the projector that asks for them, together by contrast
(InfoNCE, van den Oord et al. 2018). It begins with those that the base was trained with; the decoder is frozen now.

    index.py --out run --data texts corpus --exclude … --steps 1500

A question's positive is the block in which the digits of its fact stand; all other blocks of the last --pool steps are
negatives. At the end: how often the right block is among the best, beside the mean keys of each layer.
"""
import argparse
import os
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from data import Corpus  # noqa: E402

from base import BLOCK, Contrast, save  # noqa: E402
from model import Decoder  # noqa: E402
from modules import similarity, tensors_of, warm  # noqa: E402
from texts import Documents  # noqa: E402

LENGTH, TEXTS, FACTS = 1024, 4, 10


def common_arguments(description):
    ap = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", required=True)
    ap.add_argument("--data", nargs="+", required=True, help="folders of *.txt")
    ap.add_argument("--exclude", nargs="*", default=[], help="file names without .txt to leave out")
    ap.add_argument("--steps", type=int, default=1500)
    ap.add_argument("--rate", type=float, default=1e-3)
    ap.add_argument("--seed", type=int, default=11)
    return ap


def frozen_base(out):
    """-> the decoder, the contrast that it was trained with"""
    stored = torch.load(os.path.join(out, "base.pt"), weights_only=False)
    model = Decoder()
    model.load_state_dict(stored["model"])
    contrast = Contrast(model.config.hidden)
    contrast.load_state_dict(stored["contrast"])
    return model.eval().requires_grad_(False), contrast


def load_index(out, contrast):
    """The Q-Former and the projector that are shipped, where they are trained already."""
    path = os.path.join(out, "index.pt")
    if not os.path.exists(path):
        return
    stored = torch.load(path, weights_only=False)["tensors"]
    for name in ("qformer", "projector"):
        getattr(contrast, name).load_state_dict(
            {k[len(name) + 1:]: t for k, t in stored.items() if k.startswith(name + ".")})


@torch.no_grad()
def lesson(model, documents, texts=TEXTS, facts=FACTS):
    """-> hidden vectors of blocks [blocks, B, D], of questions [questions, D], the block of each question"""
    said = [documents.statements(LENGTH, facts) for _ in range(texts)]
    asked = [documents.questions(LENGTH, [f for f in chosen]) for _, chosen, _ in said]
    ids = torch.from_numpy(np.stack([s[0] for s in said] + [a[0] for a in asked]))
    hidden = model.hidden(ids)
    blocks = hidden[:texts].reshape(-1, BLOCK, hidden.shape[-1])
    questions, answers = [], []
    for i, ((_, _, at), (_, where)) in enumerate(zip(said, asked)):
        for digit, place in zip(at, where):
            if place >= 0:
                questions.append(hidden[texts + i, place])
                answers.append((i * LENGTH + digit + 3) // BLOCK)  # of the last digit
    return blocks, torch.stack(questions), torch.tensor(answers)


@torch.no_grad()
def recall(qformer, projector, model, documents, lessons=6):
    """-> share of questions whose block is the best, among the best three, of lessons · 32 blocks"""
    blocks, questions, answers = pooled([lesson(model, documents) for _ in range(lessons)])
    order = similarity(projector(questions), qformer(blocks)).argsort(-1, descending=True)
    hits = order == answers[:, None]
    return hits[:, 0].float().mean().item(), hits[:, :3].any(-1).float().mean().item()


@torch.no_grad()
def mean_keys(model, documents, lessons=6, rate=0.05):
    """-> the same of the index of mean keys, of each layer"""
    rows, questions, answers = [[] for _ in model.layers], [[] for _ in model.layers], []
    for n in range(lessons):
        said = [documents.statements(LENGTH, FACTS) for _ in range(TEXTS)]
        asked = [documents.questions(LENGTH, chosen) for _, chosen, _ in said]
        x = model.embed_tokens(torch.from_numpy(np.stack([s[0] for s in said] + [a[0] for a in asked])))
        for l, layer in enumerate(model.layers):
            q, k, _ = layer.self_attn.project(layer.input_layernorm(x))
            keys = k[:TEXTS].unflatten(2, (-1, BLOCK)).mean(3)  # [texts, G, blocks, d]
            rows[l].append(keys.permute(0, 2, 1, 3).flatten(0, 1).flatten(1))
            asking = q[TEXTS:].unflatten(1, (model.config.groups, -1)).mean(2)  # [texts, G, T, d]
            for i, (_, where) in enumerate(asked):
                for place in where:
                    if place >= 0:
                        last = torch.arange(place, max(-1, place - 100), -1)
                        weight = rate * (1 - rate) ** torch.arange(len(last))
                        questions[l].append(torch.einsum("t,gtd->gd", weight, asking[i][:, last]).flatten())
            x = layer(x, model.rope)
        for i, ((_, _, at), (_, where)) in enumerate(zip(said, asked)):
            answers += [((n * TEXTS + i) * LENGTH + digit + 3) // BLOCK for digit, place in zip(at, where) if place >= 0]
    found, answers = [], torch.tensor(answers)
    for l in range(len(model.layers)):
        hits = (torch.stack(questions[l]) @ torch.cat(rows[l]).T).argsort(-1, descending=True) == answers[:, None]
        found.append((hits[:, 0].float().mean().item(), hits[:, :3].any(-1).float().mean().item()))
    return found


def pooled(lessons):
    """Lessons as one: the numbers of blocks run on."""
    starts = np.cumsum([0] + [len(l[0]) for l in lessons])
    return (torch.cat([l[0] for l in lessons]), torch.cat([l[1] for l in lessons]),
            torch.cat([l[2] + int(s) for l, s in zip(lessons, starts)]))


def main():
    ap = common_arguments(__doc__)
    ap.add_argument("--pool", type=int, default=6, help="lessons that a step learns from; one of them is new")
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    model, contrast = frozen_base(args.out)
    corpus = Corpus(args.data, exclude=args.exclude)
    documents = Documents(corpus.train, args.seed)
    qformer, projector, heat = contrast.qformer, contrast.projector, contrast.heat
    before = recall(qformer, projector, model, Documents(corpus.val, 5))
    print(f"step 0: held out, of 192 blocks: the best {before[0]:.3f}, among three {before[1]:.3f}", flush=True)
    parameters = [*qformer.parameters(), *projector.parameters()]
    opt = torch.optim.AdamW([{"params": parameters}, {"params": [heat], "weight_decay": 0.0}], lr=args.rate,
                            betas=(0.9, 0.98), weight_decay=0.02)
    pool, began = [], time.time()
    for step in range(args.steps):
        for group in opt.param_groups:
            group["lr"] = args.rate * warm(step, args.steps)
        pool = [*pool, lesson(model, documents)][-args.pool:]
        blocks, questions, answers = pooled(pool)
        # Summaries must not depend on single tokens: some are taken away.
        kept = (torch.rand(*blocks.shape[:2], 1) > 0.05).float()
        scores = similarity(projector(questions), qformer(blocks * kept)) * heat.exp().clamp(max=100)
        loss = F.cross_entropy(scores, answers)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        opt.step()
        if (step + 1) % 20 == 0:
            best = (scores.argmax(-1) == answers).float().mean().item()
            print(f"step {step + 1} loss {loss.item():.3f} of {len(blocks)} blocks the right one {best:.3f}, "
                  f"{(time.time() - began) / 60:.1f} min", flush=True)
        if (step + 1) % 200 == 0 or step + 1 == args.steps:
            one, three = recall(qformer, projector, model, Documents(corpus.val, 5))
            print(f"step {step + 1}: held out, of 192 blocks: the best {one:.3f}, among three {three:.3f}", flush=True)
            c = model.config
            none = torch.zeros(c.layers, c.groups * c.channels, qformer.sizes["width"])
            save(os.path.join(args.out, "index.pt"), {
                "tensors": {**tensors_of(qformer=qformer, projector=projector),
                            "tombstone.k_proj.weight": none, "tombstone.v_proj.weight": none.clone()},
                "memory": {"qformer": qformer.sizes, "projector": {"width": projector.width}},
                "recall": {"best": one, "three": three}, "steps": step + 1,
                "minutes": (time.time() - began) / 60})
    for l, (one, three) in enumerate(mean_keys(model, Documents(corpus.val, 5))):
        print(f"mean keys of layer {l}: the best {one:.3f}, among three {three:.3f}")


if __name__ == "__main__":
    main()
