#!/usr/bin/env python3
"""Trains what stands for blocks that left the window: the tombstone heads, or the trimmer that chooses anchors. The
decoder and the Q-Former are frozen.

    heads.py tombstones --out run --data texts corpus --exclude … --steps 300
    heads.py trimmer    --out run --data texts corpus --exclude … --steps 300

tombstones: a text of 8 blocks of which the last ones stand in the window and the others are 1 to 5 tombstones; the
logits shall be those of the whole text (KL). At the end beside the plain mean, and no tombstones.
trimmer: of one block all but K tokens are hidden from tokens that are a window or more behind it. K best of scores with
Gumbel noise, straight through; the loss is CE + KL to the whole text + 0.1 KL to what later tokens attended to. At the
end beside the first K tokens, K random ones, and the K longest keys.
"""
import os
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from data import Corpus  # noqa: E402

from base import BLOCK, SINKS, WINDOW, save, sequence  # noqa: E402
from index import common_arguments, frozen_base, load_index  # noqa: E402
from lists import causal, run_changed, teach  # noqa: E402
from modules import Trimmer, tensors_of, warm  # noqa: E402
from texts import Documents  # noqa: E402

LENGTH, ANCHORS = 1024, 8


def texts(documents, count):
    kinds = ["told" if documents.rng.rand() < 0.4 else "book" for _ in range(count)]
    return torch.from_numpy(np.stack([sequence(documents, kind, LENGTH)[0] for kind in kinds]))


# ---- tombstones


class Heads(torch.nn.Module):
    def __init__(self, c, width):
        super().__init__()
        shape = (c.layers, c.groups * c.channels, width)
        self.k, self.v = (torch.nn.Parameter(torch.zeros(shape)) for _ in range(2))


def stones(kept, z, cut, heads):
    """kept: of each layer k, v [B, G, T, d]; z [B, blocks, F]; cut: spans of blocks. -> of each layer k, v before the
    window: sinks, and a mean for each span (heads None: the plain mean; no spans: none)"""
    extra = []
    for l, (k, v) in enumerate(kept):
        parts = []
        for which, x in (("k", k), ("v", v)):
            blocks = x.unflatten(2, (-1, BLOCK)).mean(3)  # [B, G, blocks, d]
            if heads is not None:
                added = z @ getattr(heads, which)[l].T  # [B, blocks, G·d]
                blocks = blocks + added.unflatten(-1, (x.shape[1], -1)).transpose(1, 2)
            parts.append(torch.cat([x[:, :, :SINKS], *(blocks[:, :, a:b].mean(2, keepdim=True) for a, b in cut)], 2))
        extra.append(tuple(parts))
    return extra


def spans(rng, blocks):
    """-> neighbours [(from, to)] that make up `blocks` blocks, 1 to 5 of them"""
    cuts = sorted(rng.choice(np.arange(1, blocks), rng.randint(0, min(5, blocks)), replace=False))
    return list(zip([0, *cuts], [*cuts, blocks]))


def window_nats(model, ids, extra, begin, teacher):
    """-> CE of the window's tokens, KL(teacher ‖ list), each a token's mean"""
    window = ids[:, begin:-1]
    logits = model.lm_head(model.hidden(window, extra, causal(extra[0][0].shape[2], window.shape[1])))
    target = teacher[:, begin:]
    kl = F.kl_div(logits.log_softmax(-1), target.log_softmax(-1), log_target=True, reduction="none").sum(-1).mean()
    return F.cross_entropy(logits.flatten(0, 1), ids[:, begin + 1:].flatten()), kl


def tombstones(args, model, contrast, corpus):
    heads = Heads(model.config, contrast.qformer.sizes["width"])
    opt = torch.optim.AdamW(heads.parameters(), lr=args.rate, betas=(0.9, 0.98), weight_decay=0.0)

    def once(documents, size, used):
        ids = texts(documents, size)
        logits, hidden, kept = teach(model, ids[:, :-1])
        blocks = documents.rng.randint(3, 8)
        with torch.no_grad():
            rows = contrast.qformer(hidden.unflatten(1, (-1, BLOCK)).flatten(0, 1))
            z = rows.mean(1).unflatten(0, (size, -1))
        cut = spans(documents.rng, blocks)
        return [window_nats(model, ids, stones(kept, z, c, h), blocks * BLOCK, logits)
                for h, c in used(heads, cut)]

    began = time.time()
    for step in range(args.steps):
        opt.param_groups[0]["lr"] = args.rate * warm(step, args.steps, 20)
        documents = args.documents
        (_, kl), = once(documents, 4, lambda h, cut: [(h, cut)])
        opt.zero_grad(set_to_none=True)
        kl.backward()
        opt.step()
        if (step + 1) % 20 == 0:
            print(f"step {step + 1} KL {kl.item():.4f}, {(time.time() - began) / 60:.1f} min", flush=True)
    held, sums = Documents(corpus.val, 5), np.zeros((3, 2))
    with torch.no_grad():
        for _ in range(16):
            found = once(held, 4, lambda h, cut: [(None, []), (None, cut), (h, cut)])
            sums += np.array([[a.item(), b.item()] for a, b in found])
    for name, (ce, kl) in zip(("none", "mean", "heads"), sums / 16):
        print(f"{name}: CE {ce:.4f} nats, KL to the whole text {kl:.4f}")
    return {"tombstone.k_proj.weight": heads.k.detach(), "tombstone.v_proj.weight": heads.v.detach()}, {}, {
        name: {"ce": ce, "kl": kl} for name, (ce, kl) in zip(("none", "mean", "heads"), (sums / 16).tolist())}


# ---- trimmer


def hide(block, mask):
    """mask [B, BLOCK]: what queries a window behind the block see of it"""
    first = (block + 1) * BLOCK + WINDOW

    def change(weights):
        seen = torch.ones_like(weights)
        seen[:, :, first:, block * BLOCK:(block + 1) * BLOCK] = mask[:, None, None, :]
        return weights * seen
    return change, first


def best(scores):
    chosen = torch.zeros_like(scores)
    return chosen.scatter(-1, scores.topk(ANCHORS, -1).indices, 1.0)


def late(logits, teacher, ids, first):
    logits, teacher, wanted = logits[:, first:], teacher[:, first:], ids[:, first + 1:]
    kl = F.kl_div(logits.log_softmax(-1), teacher.log_softmax(-1), log_target=True, reduction="none").sum(-1).mean()
    return F.cross_entropy(logits.flatten(0, 1), wanted.flatten()), kl


def trimmer(args, model, _contrast, corpus):
    net = Trimmer(model.config.hidden)
    opt = torch.optim.AdamW(net.parameters(), lr=args.rate, betas=(0.9, 0.98), weight_decay=0.01)
    began = time.time()
    for step in range(args.steps):
        opt.param_groups[0]["lr"] = args.rate * warm(step, args.steps, 20)
        heat = 2.0 * (0.25 ** (step / args.steps))  # 2 → 0.5
        ids = texts(args.documents, 2)
        block = args.documents.rng.randint(0, 3)
        here = slice(block * BLOCK, (block + 1) * BLOCK)
        with torch.no_grad():
            teacher, weights = run_changed(model, ids[:, :-1], None)
            hidden = model.hidden(ids[:, :-1])
        scores = net(hidden[:, here])
        noise = -torch.log(-torch.log(torch.rand_like(scores).clamp(1e-6, 1 - 1e-6)))
        soft = (ANCHORS * ((scores + noise) / heat).softmax(-1)).clamp(max=1)
        change, first = hide(block, best(scores + noise) + soft - soft.detach())
        logits, _ = run_changed(model, ids[:, :-1], change)
        ce, kl = late(logits, teacher, ids, first)
        given = torch.stack([w[:, :, first:, here].mean((1, 2)) for w in weights]).mean(0)
        given = given / given.sum(-1, keepdim=True)
        attention = F.kl_div(scores.log_softmax(-1), given, reduction="batchmean")
        loss = ce + kl + 0.1 * attention
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if (step + 1) % 20 == 0:
            print(f"step {step + 1} CE {ce.item():.4f} KL {kl.item():.4f} attention {attention.item():.3f}, "
                  f"{(time.time() - began) / 60:.1f} min", flush=True)
    names, held = ("trimmer", "first", "random", "longest keys"), Documents(corpus.val, 5)
    sums = np.zeros((4, 2))
    with torch.no_grad():
        for n in range(24):
            ids = texts(held, 2)
            block = n % 3
            here = slice(block * BLOCK, (block + 1) * BLOCK)
            teacher, hidden, kept = teach(model, ids[:, :-1])
            keys = sum(k[:, :, here].norm(dim=-1).mean(1) for k, _ in kept)
            ways = (net(hidden[:, here]), -torch.arange(BLOCK).float().expand(2, -1), torch.rand(2, BLOCK), keys)
            for i, scores in enumerate(ways):
                change, first = hide(block, best(scores))
                sums[i] += [x.item() for x in late(run_changed(model, ids[:, :-1], change)[0], teacher, ids, first)]
    for name, (ce, kl) in zip(names, sums / 24):
        print(f"{name}: CE {ce:.4f} nats, KL to the whole text {kl:.4f}")
    return tensors_of(trimmer=net), {"trimmer": {"width": net.width}, "anchors": {"policy": "trimmer"}}, {
        name: {"ce": ce, "kl": kl} for name, (ce, kl) in zip(names, (sums / 24).tolist())}


def main():
    ap = common_arguments(__doc__)
    ap.add_argument("what", choices=["tombstones", "trimmer"])
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    model, contrast = frozen_base(args.out)
    load_index(args.out, contrast)
    contrast.requires_grad_(False)
    corpus = Corpus(args.data, exclude=args.exclude)
    args.documents = Documents(corpus.train, args.seed)
    tensors, memory, found = {"tombstones": tombstones, "trimmer": trimmer}[args.what](args, model, contrast, corpus)
    save(os.path.join(args.out, f"{args.what}.pt"),
         {"tensors": tensors, "memory": memory, "found": found, "steps": args.steps})


if __name__ == "__main__":
    main()
