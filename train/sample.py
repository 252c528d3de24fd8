#!/usr/bin/env python3
"""Continues a prompt.

    sample.py ../models/demo --prompt "..." -n 400 --temperature 0.8 --top-p 0.95

Temperature 0 is greedy. The random numbers are NumPy's, not the engine's, so a seed gives another text there.
"""
import argparse
import sys

import numpy as np
import torch

from export import load_model

WINDOW = 512  # bytes a forward pass; bounds the memory of a long prompt


@torch.no_grad()
def prefill(model, prompt):
    """prompt: bytes, at least one -> logits [V] after the last byte (numpy float32), the state there"""
    state = None
    for i in range(0, len(prompt), WINDOW):
        logits, state = model(torch.tensor([list(prompt[i:i + WINDOW])]), state)
    return logits[0, -1].numpy(), state


def pick(logits, temperature, top_p, rng):
    """One byte from the smallest set of likeliest bytes that holds top_p of the probability."""
    if temperature <= 0:
        return int(np.argmax(logits))
    p = np.exp((logits.astype(np.float64) - logits.max()) / temperature)
    p /= p.sum()
    order = np.argsort(-p, kind="stable")
    keep = order[:int(np.searchsorted(np.cumsum(p[order]), top_p)) + 1]
    return int(rng.choice(keep, p=p[keep] / p[keep].sum()))


@torch.no_grad()
def generate(model, prompt, n, temperature, top_p, seed):
    """Yields n bytes that follow the prompt."""
    rng = np.random.RandomState(seed)
    logits, state = prefill(model, prompt)
    for _ in range(n):
        byte = pick(logits, temperature, top_p, rng)
        yield byte
        out, state = model(torch.tensor([[byte]]), state)
        logits = out[0, -1].numpy()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="a model folder")
    parser.add_argument("--prompt", default="The harbour master wrote in his log: ")
    parser.add_argument("-n", type=int, default=400, help="bytes")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--top-p", type=float, default=0.95)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if not args.prompt:
        parser.error("--prompt must hold at least one byte: the model has no start token")
    torch.set_num_threads(1)  # one byte at a time leaves a second thread nothing to do
    prompt, out = args.prompt.encode(), sys.stdout.buffer
    out.write(prompt)
    for byte in generate(load_model(args.folder), prompt, args.n, args.temperature, args.top_p, args.seed):
        out.write(bytes([byte]))
        out.flush()
    out.write(b"\n")


if __name__ == "__main__":
    main()
