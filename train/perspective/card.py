#!/usr/bin/env python3
"""Measures an exported package with the PyTorch model -> card.json beside it.

    card.py ../../models/mine --data ../../data/texts ../../data/corpus --exclude flaubert-bovary goethe-faust voltaire-candide \
        --unseen ../../data/corpus/unseen/*.txt

Bits per byte of the texts' held-out ends and of unseen texts; what routes do; what neighbours share. Nothing here needs the
engine, so adapting, drawing from perspectives and the memory are not measured.
"""
import argparse
import json
import os
import sys

import numpy as np
import torch

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from data import Corpus  # noqa: E402
from evaluate import bits, bits_per_byte  # noqa: E402

from model import Perspective, pack  # noqa: E402

LONGEST = 262144  # bytes of an unseen text
ROUTED = 8192  # bytes of a held-out end whose routes are looked at
SHORT = 2048  # bytes of a held-out end that are read again with something changed


def round4(x):
    return round(float(x), 4)


@torch.no_grad()
def read(model, docs, length=512):
    """Documents of one length read as streams -> of each layer the chosen [docs, bytes], and what the routers of the next
    two layers would have chosen from the same x: {(layer, k): share that is right}"""
    ids, state = torch.from_numpy(np.stack(docs).astype(np.int64)), None
    layers = model.layers
    chosen, right = [[] for _ in layers], {}
    for start in range(0, ids.shape[1], length):
        model.watch = watch = []
        _, state = model(ids[:, start:start + length], state)
        model.watch = None
        for l, seen in enumerate(watch[:-1]):
            chosen[l].append(seen["chosen"][..., 0])
            for k in (1, 2):
                if l + k < len(layers):
                    u = layers[l + k].post_attention_layernorm(seen["x"]).flatten(0, 1)
                    guess = layers[l + k].experts.distances(layers[l + k].experts.router(u), model.positions).argmin(-1)
                    hit = (guess == watch[l + k]["chosen"].flatten()).float().mean().item()
                    right.setdefault((l, k), []).append(hit)
    return [torch.cat(c, 1) for c in chosen], {key: np.mean(value) for key, value in right.items()}


def route_figures(chosen, right, torus):
    """chosen: of one layer [docs, bytes]"""
    a, b = torus
    i, j = chosen // b, chosen % b
    di, dj = ((t[:, 1:] - t[:, :-1]) % n for t, n in ((i, a), (j, b)))
    steps = torch.minimum(di, a - di) + torch.minimum(dj, b - dj)
    column = (torch.minimum(di, a - di) == 0) & (steps == 1)
    load = torch.bincount(chosen.flatten(), minlength=a * b) / chosen.numel()
    thousands = chosen[:, :chosen.shape[1] // 1000 * 1000].reshape(-1, 1000)
    return {"kept": round4((steps == 0).float().mean()), "one_step": round4((steps == 1).float().mean()),
            "one_step_in_the_column": round4(column.float().mean()), "further": round4((steps > 1).float().mean()),
            "distinct_in_1000": round(np.mean([len(row.unique()) for row in thousands]), 2),
            "distinct_in_100": round(np.mean([len(row.unique()) for row in thousands.reshape(-1, 100)]), 2),
            "load_most": round4(load.max()), "load_least": round4(load.min()),
            "load_entropy_bits": round4(-(load * load.clamp(min=1e-9).log2()).sum()), **right}


def payload(tables, e):
    """The bytes of an expert's record in the store: gate, up, down; each its codes, then its scales, in tiles of 64 rows"""
    parts = []
    for codes, scales in tables:
        packed, scale = pack(codes[e]).numpy(), scales[e].view(torch.int16).numpy().astype("<i2")
        rows = -len(packed) % 64
        packed = np.pad(packed, ((0, rows), (0, 0)), constant_values=121)
        scale = np.pad(scale, ((0, rows), (0, 0)))
        parts += [np.ascontiguousarray(t.reshape(-1, 64, t.shape[1]).transpose(0, 2, 1)).view(np.uint8).ravel()
                  for t in (packed, scale)]
    return np.concatenate(parts)


def delta_bytes(a, b):
    """Bytes of the delta of two payloads: a bitmap of lines, a mask for each line that differs, the bytes that differ"""
    differs = np.pad(a != b, (0, -len(a) % 64)).reshape(-1, 64)
    bitmap = ((len(differs) + 7) // 8 + 7) // 8 * 8
    return bitmap + 8 * int(differs.any(1).sum()) + int(differs.sum())


def padded(size):
    return -(-size // 4096) * 4096


def neighbour_figures(model):
    """Of each pair one step apart on the torus: whether a delta would be kept, and how many rows of gate and up agree"""
    a, b = model.config.torus
    pairs = sorted({tuple(sorted((i * b + j, other))) for i in range(a) for j in range(b)
                    for other in ((i + 1) % a * b + j, i * b + (j + 1) % b) if other != i * b + j})
    kept = same = rows = trits = 0
    sizes, record = [], 0
    for layer in model.layers:
        tables = layer.experts.tables()
        payloads = [payload(tables, e) for e in range(layer.experts.N)]
        record = padded(len(payloads[0]))
        for e, f in pairs:
            size = padded(delta_bytes(payloads[e], payloads[f]))
            if size * 2 <= record:
                kept += 1
                sizes.append(size)
            for codes, scales in tables[:2]:
                agree = (codes[e] == codes[f]).all(1) & (scales[e] == scales[f]).all(1)
                same += int(agree.sum())
                rows += len(agree)
            trits += np.mean([(codes[e] != codes[f]).float().mean().item() for codes, _ in tables])
    return {"pairs": len(pairs) * len(model.layers), "deltas_kept": kept, "record_padded": record,
            "delta_padded_mean": round(np.mean(sizes)) if sizes else None, "rows_of_gate_and_up_that_agree": round4(same / rows),
            "trits_that_differ": round4(trits / (len(pairs) * len(model.layers)))}


@torch.no_grad()
def moved(model, docs, by):
    """Bits per byte where every route is moved on the torus by `by` (in cells)"""
    positions = model.positions
    model.positions = positions - torch.tensor(by) / torch.tensor(model.config.torus)
    value = bits_per_byte(bits(model, docs))
    model.positions = positions
    return value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--data", nargs="+", required=True, help="folders of *.txt")
    parser.add_argument("--exclude", nargs="*", default=[], help="file names without .txt to leave out")
    parser.add_argument("--unseen", nargs="*", default=[], help="text files that training never saw")
    args = parser.parse_args()
    model, corpus = Perspective.load(args.folder), Corpus(args.data, exclude=args.exclude)
    card = {}

    def note(key, value):
        card[key] = value
        print(key, json.dumps(value), flush=True)

    note("neighbours", neighbour_figures(model))
    docs = [v[:ROUTED] for v in corpus.val if len(v) >= ROUTED]
    chosen, right = read(model, docs)
    note("routes", [route_figures(c, {f"guessed_{k}_before": round4(right[l - k, k]) for k in (1, 2) if l >= k},
                                  model.config.torus) for l, c in enumerate(chosen)])
    short = [v[:SHORT] for v in corpus.val]
    spp, model.spp = model.spp, None
    without = bits_per_byte(bits(model, short))
    model.spp = spp
    note("short", {"bits_per_byte": bits_per_byte(bits(model, short)), "without_half_spaces": without,
                   "routes_moved": {str(by): moved(model, short, by) for by in ((0, 1), (1, 0), (2, 2))}})
    unseen = [np.fromfile(path, np.uint8)[:LONGEST] for path in args.unseen]
    costs = bits(model, [*corpus.val, *unseen])
    mine, others = costs[:len(corpus.val)], costs[len(corpus.val):]
    note("carried", {"held_out": {"bytes": sum(map(len, mine)), "bits_per_byte": round4(bits_per_byte(mine))},
                     **{os.path.basename(path): {"bytes": len(c), "bits_per_byte": round4(bits_per_byte([c]))}
                        for path, c in zip(args.unseen, others)},
                     "texts": {name: round4(bits_per_byte([c])) for name, c in zip(corpus.names, mine)}})
    with open(os.path.join(args.folder, "card.json"), "w", encoding="utf-8") as f:
        json.dump(card, f, indent=2)
        f.write("\n")


if __name__ == "__main__":
    main()
