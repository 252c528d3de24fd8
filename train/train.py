#!/usr/bin/env python3
"""Trains a byte-level RWKV-7 from scratch.

    train.py --out run --data texts [more ...] --max-minutes 75
    train.py --out run --data texts [more ...] --max-minutes 75 --resume

Lanes read on through their file, the state carried from window to window (truncated back-propagation), so
the model learns to use, and to survive, a long stream. The learning rate warms up, then follows a cosine
to its end at --steps or --max-minutes, whichever is nearer at the moment: a run always ends annealed.

On a CPU --workers processes of one thread each share the lanes out among them and add their gradients once
a step through shared memory. Every worker then makes the same update, so their weights stay equal.

Writes to --out: config.json, log.csv, and every --save-minutes ckpt.pt and one lanes-N.pt a worker.
"""
import argparse
import csv
import json
import math
import os
import time

import torch
import torch.multiprocessing as mp
import torch.nn.functional as F

from adamw import AdamW
from data import Corpus, Lanes
from evaluate import bits, bits_per_byte
from rwkv7 import RWKV7, Config

RATE, SAVE, STOP = 0, 1, 2  # slots of the control vector: worker 0's orders for a step
LOG_EVERY = 50  # steps
VALIDATION_BYTES = 3072  # of every held-out part: quick, and the same bytes each time
NO_LIMIT = 10 ** 9


def options(description):
    ap = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", required=True)
    ap.add_argument("--data", nargs="+", required=True, help="folders of *.txt")
    ap.add_argument("--exclude", nargs="*", default=[], help="file names without .txt to leave out")
    ap.add_argument("--holdout", type=float, default=0.05, help="fraction at the end of each text, never trained on")
    ap.add_argument("--hidden", type=int, default=192)
    ap.add_argument("--layers", type=int, default=6)
    ap.add_argument("--intermediate", type=int, help="channels in the channel mix; default 4 x hidden")
    ap.add_argument("--batch", type=int, default=16, help="lanes, over all workers")
    ap.add_argument("--length", type=int, default=512, help="window in bytes")
    ap.add_argument("--jump", type=float, default=1 / 16, help="chance per window that a lane jumps to a new place")
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--lr-end", type=float, default=2e-5)
    ap.add_argument("--warmup", type=int, default=300, help="steps")
    ap.add_argument("--decay", type=float, default=0.1, help="weight decay")
    ap.add_argument("--clip", type=float, default=1.0, help="largest norm of the whole gradient")
    ap.add_argument("--steps", type=int, default=NO_LIMIT)
    ap.add_argument("--max-minutes", type=float, default=75, help="of training time, over all resumes; 0: no limit")
    ap.add_argument("--save-minutes", type=float, default=5)
    ap.add_argument("--gemm", choices=["bf16", "f32"], default="bf16", help="projections on the fused CPU path")
    ap.add_argument("--workers", type=int, default=os.cpu_count(), help="processes; 1 on a GPU")
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--resume", action="store_true")
    return ap


def arguments(ap):
    args = ap.parse_args()
    if args.device != "cpu":
        args.workers = 1
    if args.steps == NO_LIMIT and not args.max_minutes:
        ap.error("one of --steps and --max-minutes is needed")
    if args.batch % args.workers:
        ap.error(f"--batch must be a multiple of --workers; they are {args.batch} and {args.workers}")
    return args


def model_config(args):
    def rank(factor):  # the official rule
        return max(32, int(round(factor * args.hidden ** 0.5 / 32) * 32))

    return Config(256, args.hidden, args.layers, 64, args.intermediate or 4 * args.hidden, rank(2.5), rank(2.5), rank(1.7), rank(5))


def learning_rate(args, step, progress):
    warm = min(1.0, (step + 1) / args.warmup)
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    return warm * (args.lr_end + (args.lr - args.lr_end) * cosine)


def save(path, content):
    torch.save(content, path + ".tmp")
    os.replace(path + ".tmp", path)


def load(path, device):
    return torch.load(path, map_location=device, weights_only=False)


class Log:
    """log.csv and the progress line. Losses come in nats and are written in bits per byte."""

    def __init__(self, args, tokens_a_step, resumed):
        path = os.path.join(args.out, "log.csv")
        new = not (resumed and os.path.exists(path))
        self.file = open(path, "w" if new else "a", newline="")
        self.rows = csv.writer(self.file)
        if new:
            self.rows.writerow(["step", "tokens", "minutes", "lr", "train_bpb", "grad_norm", "tok_s", "val_bpb"])
        self.args, self.tokens_a_step = args, tokens_a_step
        self.clear()

    def clear(self):
        self.steps, self.loss, self.norm, self.seconds = 0, 0.0, 0.0, 0.0

    def add(self, loss, norm, seconds):
        self.steps += 1
        self.loss += loss / math.log(2)
        self.norm += norm
        self.seconds += seconds

    def write(self, step, elapsed, lr, val=None):
        """elapsed in seconds; the row has the means over the steps since the last."""
        rate = self.steps * self.tokens_a_step / max(1e-9, self.seconds)
        left = (self.args.steps - step) * self.tokens_a_step / max(1e-9, rate)
        if self.args.max_minutes:
            left = min(left, self.args.max_minutes * 60 - elapsed)
        tokens = step * self.tokens_a_step
        loss, norm = self.loss / max(1, self.steps), self.norm / max(1, self.steps)
        self.rows.writerow([step, tokens, f"{elapsed / 60:.2f}", f"{lr:.3e}", f"{loss:.4f}", f"{norm:.3f}",
                            f"{rate:.0f}", "" if val is None else f"{val:.4f}"])
        self.file.flush()
        validation = "" if val is None else f"VAL {val:.4f} bpb | "
        print(f"step {step} | {tokens / 1e6:.2f}M tokens | {elapsed / 60:.1f} min | lr {lr:.2e} | "
              f"train {loss:.4f} bpb | norm {norm:.2f} | {rate:.0f} tok/s | {validation}"
              f"ETA {max(0.0, left) / 60:.1f} min", flush=True)
        self.clear()


class Run:
    """What one worker trains: model, optimiser, its lanes and their states. step and elapsed (s) count all resumes."""

    def __init__(self, args, rank):
        torch.manual_seed(args.seed)  # the same weights in every worker
        self.args, self.rank = args, rank
        self.corpus = Corpus(args.data, args.holdout, args.exclude)
        self.batch = args.batch // args.workers
        self.seed = args.seed * 1000 + rank
        self.lanes = self.open_lanes()
        self.model = self.first_model().to(args.device)
        self.model.gemm = args.gemm
        self.opt = AdamW(self.model, weight_decay=args.decay)
        self.params = list(self.model.parameters())
        self.state = self.model.zero_state(self.batch)
        self.step, self.elapsed = 0, 0.0
        self.checkpoint_path = os.path.join(args.out, "ckpt.pt")
        self.lanes_path = os.path.join(args.out, f"lanes-{rank}.pt")
        self.resumed = args.resume and os.path.exists(self.checkpoint_path)
        if self.resumed:
            self._resume()

    def open_lanes(self):
        return Lanes(self.corpus, self.batch, self.args.length, self.args.jump, self.seed)

    def first_model(self):
        return RWKV7(model_config(self.args))

    def _resume(self):
        checkpoint = load(self.checkpoint_path, self.args.device)
        self.model.load_state_dict(checkpoint["model"])
        self.opt.load_state_dict(checkpoint["opt"])
        self.step, self.elapsed = checkpoint["step"], checkpoint["elapsed"]
        if not os.path.exists(self.lanes_path):
            return
        lanes = load(self.lanes_path, self.args.device)
        if (lanes["step"] == self.step and lanes["workers"] == self.args.workers
                and len(lanes["lanes"]["at"]) == self.batch):
            self.lanes.load_state_dict(lanes["lanes"])
            self.state = lanes["state"]
        else:  # saved by other workers or at another step: new places, not those already read
            self.lanes.rng.seed((self.seed + self.step) % 2 ** 32)

    def backward(self):
        """Reads the next windows -> the loss in nats; leaves the gradients in the parameters."""
        x, y, fresh = self.lanes.next()
        x, y = torch.from_numpy(x).to(self.args.device), torch.from_numpy(y).to(self.args.device)
        if fresh.any():
            keep = torch.from_numpy(~fresh).to(self.args.device).float()
            self.state = [(att * keep[:, None], ffn * keep[:, None], s * keep[:, None, None, None])
                          for att, ffn, s in self.state]
        logits, self.state = self.model(x, self.state)
        loss = self.loss(logits, x, y, fresh)
        self.opt.zero_grad()
        loss.backward()
        return loss.detach()

    def loss(self, logits, x, y, fresh):
        """logits [B,T,256] behind the tokens x [B,T], y [B,T] those that follow, fresh [B] as Lanes.next() -> nats a token"""
        return F.cross_entropy(logits.reshape(-1, 256), y.reshape(-1))

    def average(self, loss, shared, barrier):
        """Replaces gradients and loss by their means over the workers. shared: [workers, parameters + 1]."""
        torch.cat([p.grad.reshape(-1) for p in self.params] + [loss.reshape(1)], out=shared[self.rank])
        barrier.wait()
        total = shared.mean(0)
        at = 0
        for p in self.params:
            p.grad = total[at:at + p.numel()].view_as(p)
            at += p.numel()
        return total[-1]

    def validate(self):
        return bits_per_byte(bits(self.model, [v[:VALIDATION_BYTES] for v in self.corpus.val]))

    def save_lanes(self):
        save(self.lanes_path, {"lanes": self.lanes.state_dict(), "state": self.state, "step": self.step,
                               "workers": self.args.workers})

    def save_checkpoint(self, tokens):
        save(self.checkpoint_path, {"model": self.model.state_dict(), "opt": self.opt.state_dict(), "step": self.step,
                                    "elapsed": self.elapsed, "tokens": tokens, "args": vars(self.args),
                                    "texts": self.corpus.names})


def worker(rank, args, shared, control, barrier, kind=Run):
    """kind: of Run; shared [2, workers, parameters + 1]: gradients and loss; control [2, 3]: worker 0's orders.

    Both have two turns, used by even and odd steps: a worker can't be back at a turn before all have left it,
    so one barrier a step is enough.
    """
    if args.device == "cpu":
        torch.set_num_threads(max(1, os.cpu_count() // args.workers))
    run = kind(args, rank)
    tokens_a_step = args.batch * args.length
    if rank == 0:
        with open(os.path.join(args.out, "config.json"), "w", encoding="utf-8") as f:
            json.dump(run.model.config.to_json(), f, indent=2)
        log = Log(args, tokens_a_step, run.resumed)
        greet(run, tokens_a_step)
    saved = time.time()
    while True:
        started, turn = time.time(), run.step % 2
        if rank == 0:
            in_time = run.elapsed / (args.max_minutes * 60) if args.max_minutes else 0.0
            progress = max(run.step / args.steps, in_time)
            stop = run.step + 1 >= args.steps or progress >= 1
            control[turn, RATE] = lr = learning_rate(args, run.step, progress)
            control[turn, STOP] = float(stop)
            control[turn, SAVE] = float(stop or started - saved > args.save_minutes * 60)
        loss = run.backward()
        if args.workers > 1:
            loss = run.average(loss, shared[turn], barrier)
        norm = run.opt.grad_norm()
        if math.isfinite(norm):
            run.opt.step(float(control[turn, RATE]), min(1.0, args.clip / (norm + 1e-6)))
        elif rank == 0:
            print(f"step {run.step}: gradient norm {norm}, step skipped", flush=True)
        run.step += 1
        if rank == 0:
            seconds = time.time() - started
            run.elapsed += seconds
            log.add(loss.item(), norm, seconds)
        if control[turn, SAVE]:
            saving = time.time()
            run.save_lanes()
            if rank == 0:
                val = run.validate()
                run.elapsed += time.time() - saving
                run.save_checkpoint(run.step * tokens_a_step)
                saved = time.time()
                log.write(run.step, run.elapsed, lr, val)
        elif rank == 0 and log.steps >= LOG_EVERY:
            log.write(run.step, run.elapsed, lr)
        if control[turn, STOP]:
            return


def greet(run, tokens_a_step):
    resumed = f"resumed at step {run.step}, {run.elapsed / 60:.1f} min; " if run.resumed else ""
    training, validation = run.corpus.size()
    print(f"{resumed}{run.model.num_params():,} parameters; {len(run.corpus.names)} texts, {training:,} training and "
          f"{validation:,} validation bytes; {tokens_a_step} tokens a step; {run.args.workers} workers of "
          f"{torch.get_num_threads()} threads", flush=True)


def main(args, kind=Run):
    os.makedirs(args.out, exist_ok=True)
    control = torch.zeros(2, 3).share_memory_()
    if args.workers == 1:
        worker(0, args, None, control, None, kind)
        return
    shared = torch.zeros(2, args.workers, RWKV7(model_config(args)).num_params() + 1).share_memory_()
    mp.spawn(worker, (args, shared, control, mp.get_context("spawn").Barrier(args.workers), kind), args.workers)


if __name__ == "__main__":
    main(arguments(options(__doc__)))
