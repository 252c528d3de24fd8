#!/usr/bin/env python3
"""Bits per byte of documents read as streams: the state carried from the first byte to the last.

    evaluate.py ../models/demo --data texts [more ...] [--exclude names]

prints what the held-out end of every text costs. --holdout 1 reads the texts whole.
"""
import argparse
import math

import numpy as np
import torch
import torch.nn.functional as F

from data import Corpus


@torch.no_grad()
def bits(model, docs, length=512, forget=None, lanes=32):
    """docs: byte arrays. -> one float32 array per document: the cost in bits of each byte.

    The first byte of a document has no context and costs 8 bits. forget: empty the state every so many bytes
    (a multiple of `length`); the byte before is still seen. length and lanes set the speed, not the result.
    """
    device = next(model.parameters()).device
    out = [np.full(len(d), 8.0, np.float32) for d in docs]
    order = sorted((i for i in range(len(docs)) if len(docs[i]) > 1), key=lambda i: -len(docs[i]))
    for group in range(0, len(order), lanes):
        live, state, pos = order[group:group + lanes], None, 0
        while True:
            keep = [lane for lane, i in enumerate(live) if pos + 1 < len(docs[i])]
            if not keep:
                break
            if state is not None and len(keep) < len(live):
                state = [tuple(t[keep] for t in layer) for layer in state]
            live = [live[lane] for lane in keep]
            n = [min(length, len(docs[i]) - 1 - pos) for i in live]
            # the shorter lanes are padded; a padded lane ends here, so nothing reads the state it leaves
            x = np.zeros((len(live), max(n) + 1), np.int64)
            for lane, i in enumerate(live):
                x[lane, :n[lane] + 1] = docs[i][pos:pos + n[lane] + 1]
            x = torch.from_numpy(x).to(device)
            logits, state = model(x[:, :-1], state)
            cost = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), x[:, 1:].reshape(-1), reduction="none")
            cost = (cost.view(len(live), -1) / math.log(2)).cpu().numpy()
            for lane, i in enumerate(live):
                out[i][pos + 1:pos + 1 + n[lane]] = cost[lane, :n[lane]]
            pos += length
            if forget and pos % forget == 0:
                state = None
    return out


def bits_per_byte(costs):
    """costs: arrays of bits, as from bits() -> their mean over all bytes"""
    return float(sum(c.sum(dtype=np.float64) for c in costs) / sum(len(c) for c in costs))


def main():
    from export import load_model

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="a model folder")
    parser.add_argument("--data", nargs="+", required=True, help="folders of *.txt")
    parser.add_argument("--exclude", nargs="*", default=[], help="file names without .txt to leave out")
    parser.add_argument("--holdout", type=float, default=0.05, help="the fraction of each text, at its end, to read")
    args = parser.parse_args()
    corpus = Corpus(args.data, args.holdout, args.exclude)
    costs = bits(load_model(args.folder), corpus.val)
    for name, c in zip(corpus.names, costs):
        if len(c):
            print(f"{bits_per_byte([c]):.4f} bits per byte  {len(c):>9,} bytes  {name}")
    print(f"{bits_per_byte(costs):.4f} bits per byte  {sum(map(len, costs)):>9,} bytes  in all")


if __name__ == "__main__":
    main()
