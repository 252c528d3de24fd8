#!/usr/bin/env python3
"""Trains a byte-level perspective model on text files.

    train.py --out run --data ../../data/texts ../../data/corpus --exclude flaubert-bovary goethe-faust voltaire-candide

Lanes of text are read in windows of --length bytes; the state is carried from window to window and the gradient is not.
The learning rate falls in a straight line to 0 at --steps or --max-minutes, whichever is nearer at the moment. Matrices
are trained by Muon, all else by Adam. To the cost of the next byte come three costs of the routes, in every layer:

    local    1 - cos of the angle that a token's point on the torus has turned since the last token's, for both coordinates
    ahead    the same between its point and the ones that its router finds in x as it was one and two layers before
    even     the squared low Fourier coefficients of where the points lie: 0 where they are spread over the torus

Writes to --out log.csv, and every --save-minutes ckpt.pt; --resume goes on from there.
"""
import argparse
import csv
import math
import os
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from data import Corpus, Lanes  # noqa: E402
from evaluate import bits, bits_per_byte  # noqa: E402

from model import Config, Perspective  # noqa: E402
from muon import Muon  # noqa: E402

LOG_EVERY = 25  # steps
VALIDATION_BYTES = 1024  # of every held-out part: quick, and the same bytes each time
NO_LIMIT = 10 ** 9
OWN = 0.02  # of the rate: what the parts of experts that are their own learn at, from a sixteenth of the tokens
PAIRS = 9  # of layers one or two apart
MODES = torch.tensor([(m, n) for m in range(3) for n in range(-2, 3) if m > 0 or n > 0]).float()  # half of the 24 lowest


def arguments():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", required=True)
    ap.add_argument("--data", nargs="+", required=True, help="folders of *.txt")
    ap.add_argument("--exclude", nargs="*", default=[], help="file names without .txt to leave out")
    ap.add_argument("--holdout", type=float, default=0.05, help="fraction at the end of each text, never trained on")
    ap.add_argument("--batch", type=int, default=8, help="lanes")
    ap.add_argument("--length", type=int, default=512, help="window in bytes")
    ap.add_argument("--jump", type=float, default=1 / 16, help="chance per window that a lane jumps to a new place")
    ap.add_argument("--rate", type=float, default=8e-3)
    ap.add_argument("--local", type=float, default=0.03, help="weight of the routes' turn, per layer")
    ap.add_argument("--ahead", type=float, default=0.015, help="weight of what two layers before would have guessed")
    ap.add_argument("--even", type=float, default=0.1, help="weight of the routes' spread, per layer")
    ap.add_argument("--warmup", type=int, default=150, help="steps")
    ap.add_argument("--steps", type=int, default=NO_LIMIT)
    ap.add_argument("--max-minutes", type=float, default=75, help="of training time, over all resumes; 0: no limit")
    ap.add_argument("--save-minutes", type=float, default=5)
    ap.add_argument("--threads", type=int, default=1)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--resume", action="store_true")
    args = ap.parse_args()
    if args.steps == NO_LIMIT and not args.max_minutes:
        ap.error("one of --steps and --max-minutes is needed")
    return args


def shipped():
    """The shipped model's sizes"""
    return Config(
        vocab_size=256, hidden_size=192, layer_types=("pdr", "pdr", "gqa") * 2, num_attention_heads=6,
        num_key_value_heads=2, head_dim=32, sliding_window=64, rope_theta=10000.0,
        pdr={"width": 192, "rank": 32, "gamma_min": 0.0, "gamma_max": 0.999, "write": "convex"},
        experts={"count": 16, "torus": [4, 4], "intermediate_size": 192, "top_k": 1, "temperature": 0.02,
                 "format": "ternary3", "group_size": 64}, shared=128)


@torch.no_grad()
def begin(model):
    """First weights, such that there are slow directions for routes to go by.

    Decays of a pdr layer begin with memories of 1.5 to 700 bytes, spaced evenly in their logarithm; a slow channel's output
    is smaller by the square root of that, which its norm weight makes good. What it reads moves slowly only as far as the
    query does: so all bytes have one vector in common. Routers begin on what the pdr layer at or below them keeps
    for some words.
    """
    c = model.config
    torch.nn.init.normal_(model.embed_tokens.weight, std=0.35)
    model.embed_tokens.weight.add_(torch.randn(c.hidden_size) * 0.35)
    torch.nn.init.normal_(model.lm_head.weight, std=0.02)
    for layer in model.layers:
        for p in layer.mix.parameters():
            if p.dim() == 2:
                torch.nn.init.normal_(p, std=p.shape[1] ** -0.5)
        layer.mix.o_proj.weight.mul_(0.5)
        if layer.kind == "pdr":
            memory = torch.exp(torch.linspace(math.log(1.5), math.log(700), c.pdr["width"]))
            memory = memory[torch.randperm(len(memory))]
            gamma = ((1 - 1 / memory) - c.pdr["gamma_min"]) / (c.pdr["gamma_max"] - c.pdr["gamma_min"])
            layer.mix.p_proj.bias.copy_(torch.logit(gamma))
            layer.mix.p_proj.weight.mul_(0.3)
            layer.mix.out_norm.weight.copy_(memory.sqrt() * (1 / memory).mean().sqrt())
            slow = layer.mix.o_proj.weight[:, (memory > 12) & (memory < 200)]
        router = layer.experts.router
        router.weight.copy_(torch.randn(2, slow.shape[1]) @ slow.T)
        router.weight.mul_(0.3 / router.weight.norm(dim=1, keepdim=True))
        torch.nn.init.uniform_(router.bias)


class Optimiser:
    """Muon over the matrices inside the layers, more slowly over what is an expert's own; Adam over head, norms and biases,
    more slowly over embeddings, routers and experts' gains."""

    def __init__(self, model):
        matrices, own, gains, routers, embeddings, others = [], [], [], [], [], []
        for name, p in model.named_parameters():
            if ".router." in name:
                routers.append(p)
            elif name.endswith("_gain"):
                gains.append(p)
            elif p.dim() >= 2 and name.startswith("layers."):
                (own if name.endswith("_own") else matrices).append((p, 2 if "wide" in name else 1))
            else:
                (embeddings if name.startswith("embed") else others).append(p)
        self.muon, self.own = Muon(matrices), Muon(own, momentum=0.98)
        self.adam = torch.optim.Adam([{"params": others, "share": 0.6}, {"params": embeddings, "share": 0.25},
                                      {"params": routers, "share": 0.1}, {"params": gains, "share": 0.15}],
                                     betas=(0.9, 0.98), fused=True)

    def step(self, rate):
        self.muon.step(rate)
        self.own.step(rate * OWN)
        for group in self.adam.param_groups:
            group["lr"] = rate * group["share"]
        self.adam.step()

    def zero_grad(self):
        self.muon.zero_grad()
        self.own.zero_grad()
        self.adam.zero_grad(set_to_none=True)

    def state_dict(self):
        return {"muon": self.muon.state_dict(), "own": self.own.state_dict(), "adam": self.adam.state_dict()}

    def load_state_dict(self, stored):
        self.muon.load_state_dict(stored["muon"])
        self.own.load_state_dict(stored["own"])
        self.adam.load_state_dict(stored["adam"])


def route_costs(z):
    """z [B,T,2] -> local, even"""
    local = (1 - torch.cos(2 * math.pi * (z[:, 1:] - z[:, :-1]))).sum(-1).mean()
    angle = 2 * math.pi * (z.reshape(-1, 2) @ MODES.T)
    return local, (torch.cos(angle).mean(0) ** 2 + torch.sin(angle).mean(0) ** 2).sum()


def ahead_cost(model, watch):
    """The sum over layers and over one and two layers before, at every fourth token"""
    total = 0
    for l, seen in enumerate(watch[:-1]):
        for layer, after in zip(model.layers[l + 1:l + 3], watch[l + 1:l + 3]):
            z = layer.experts.router(layer.post_attention_layernorm(seen["x"][:, ::4].contiguous()))
            total = total + (1 - torch.cos(2 * math.pi * (z - after["z"][:, ::4]))).sum(-1).mean()
    return total


def route_shares(chosen, torus):
    """chosen [B,T] -> shares of tokens that keep the last token's expert, go one step; the most used expert's share"""
    a, b = torus
    i, j = chosen // b, chosen % b
    di, dj = ((t[:, 1:] - t[:, :-1]) % n for t, n in ((i, a), (j, b)))
    steps = torch.minimum(di, a - di) + torch.minimum(dj, b - dj)
    load = torch.bincount(chosen.flatten(), minlength=a * b) / chosen.numel()
    return (steps == 0).float().mean().item(), (steps == 1).float().mean().item(), load.max().item()


def save(path, content):
    torch.save(content, path + ".tmp")
    os.replace(path + ".tmp", path)


class Run:
    """Model, optimiser, lanes and their states. step and elapsed (s) count all resumes."""

    def __init__(self, args):
        torch.manual_seed(args.seed)
        self.args = args
        self.corpus = Corpus(args.data, args.holdout, args.exclude)
        self.lanes = Lanes(self.corpus, args.batch, args.length, args.jump, args.seed)
        self.model = Perspective(shipped())
        begin(self.model)
        self.opt = Optimiser(self.model)
        self.state = self.model.zero_state(args.batch)
        self.step, self.elapsed = 0, 0.0
        self.path = os.path.join(args.out, "ckpt.pt")
        self.resumed = args.resume and os.path.exists(self.path)
        if self.resumed:
            stored = torch.load(self.path, weights_only=False)
            self.model.load_state_dict(stored["model"])
            self.opt.load_state_dict(stored["opt"])
            self.lanes.load_state_dict(stored["lanes"])
            self.state, self.step, self.elapsed = stored["state"], stored["step"], stored["elapsed"]

    def backward(self):
        """Reads the next windows -> the cost of a byte in nats, route statistics [layers, 6]; leaves the gradients."""
        x, y, fresh = self.lanes.next()
        if fresh.any():
            keep = torch.from_numpy(~fresh)
            self.state = [tuple(t * keep.view(-1, *[1] * (t.dim() - 1)) for t in layer) for layer in self.state]
        self.model.watch = watch = []
        logits, self.state = self.model(torch.from_numpy(x), self.state)
        self.model.watch = None
        cost = F.cross_entropy(logits.flatten(0, 1), torch.from_numpy(y).flatten())
        ahead = ahead_cost(self.model, watch)
        total, rows = cost + self.args.ahead * ahead, []
        for seen in watch[:-1]:
            local, even = route_costs(seen["z"])
            total = total + self.args.local * local + self.args.even * even
            rows.append([local.item(), even.item(), ahead.item() / PAIRS, *route_shares(seen["chosen"], self.model.config.torus)])
        self.opt.zero_grad()
        total.backward()
        return cost.item(), np.array(rows)

    def validate(self):
        self.model.eval()
        value = bits_per_byte(bits(self.model, [v[:VALIDATION_BYTES] for v in self.corpus.val], lanes=64))
        self.model.train()
        return value

    def save(self):
        save(self.path, {"model": self.model.state_dict(), "opt": self.opt.state_dict(), "lanes": self.lanes.state_dict(),
                         "state": self.state, "step": self.step, "elapsed": self.elapsed, "args": vars(self.args),
                         "config": self.model.config.__dict__, "tokens": self.step * self.args.batch * self.args.length,
                         "texts": self.corpus.names})


class Log:
    NAMES = ["step", "tokens", "minutes", "lr", "train_bpb", "tok_s", "local", "even", "ahead", "kept", "one_step", "most_used",
             "val_bpb"]

    def __init__(self, args, resumed):
        path = os.path.join(args.out, "log.csv")
        new = not (resumed and os.path.exists(path))
        self.file = open(path, "w" if new else "a", newline="")
        self.rows, self.args = csv.writer(self.file), args
        if new:
            self.rows.writerow(self.NAMES)
        self.clear()

    def clear(self):
        self.cost, self.routes, self.seconds = [], [], 0.0

    def add(self, cost, routes, seconds):
        self.cost.append(cost / math.log(2))
        self.routes.append(routes)
        self.seconds += seconds

    def write(self, run, rate, val=None):
        routes = np.mean(self.routes, 0)  # [layers, 6]
        a_step = self.args.batch * self.args.length
        row = [run.step, run.step * a_step, f"{run.elapsed / 60:.2f}", f"{rate:.3e}", f"{np.mean(self.cost):.4f}",
               f"{len(self.cost) * a_step / max(self.seconds, 1e-9):.0f}", *(f"{v:.3f}" for v in routes.mean(0)),
               "" if val is None else f"{val:.4f}"]
        self.rows.writerow(row)
        self.file.flush()
        print(" | ".join(f"{name} {value}" for name, value in zip(self.NAMES, row) if value), flush=True)
        print("   kept", routes[:, 3].round(2).tolist(), "one step", routes[:, 4].round(2).tolist(), "most used",
              routes[:, 5].round(2).tolist(), flush=True)
        self.clear()


def main():
    args = arguments()
    torch.set_num_threads(args.threads)
    os.makedirs(args.out, exist_ok=True)
    run = Run(args)
    log, saved = Log(args, run.resumed), time.time()
    print(f"{sum(p.numel() for p in run.model.parameters()):,} parameters in training; {len(run.corpus.names)} texts, "
          f"{run.corpus.size()[0]:,} bytes", flush=True)
    while True:
        started = time.time()
        progress = max(run.step / args.steps, run.elapsed / (args.max_minutes * 60) if args.max_minutes else 0.0)
        stop = run.step + 1 >= args.steps or progress >= 1
        rate = args.rate * min(1.0, (run.step + 1) / args.warmup) * max(0.0, 1 - progress)
        cost, routes = run.backward()
        if math.isfinite(cost):
            run.opt.step(rate)
        else:
            print(f"step {run.step}: cost {cost}, step skipped", flush=True)
        run.step += 1
        seconds = time.time() - started
        run.elapsed += seconds
        log.add(cost, routes, seconds)
        if stop or started - saved > args.save_minutes * 60:
            saving = time.time()
            val = run.validate()
            run.elapsed += time.time() - saving
            run.save()
            saved = time.time()
            log.write(run, rate, val)
        elif len(log.cost) >= LOG_EVERY:
            log.write(run, rate)
        if stop:
            return


if __name__ == "__main__":
    main()
