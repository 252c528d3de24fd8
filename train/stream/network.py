#!/usr/bin/env python3
"""Trains the network of models/stream: a byte-level RWKV-7 that stands before an ngram memory.

    network.py --out run --data ../../data/texts ../../data/corpus --exclude ... --max-minutes 75

Some lanes read the prose of --data as ../train.py has it. The others read what systems.py invents, each document from its first
byte to its last. Behind each lane is the engine's memory (memory.py), emptied with the lane's state, and the cost is that of the
memory's logits: so the network learns what the memory of the same text cannot know. A tenth of the cost of the network's own
logits is added, which keeps them near probabilities.

--from DIR begins with layers of a trained network: the first one and the last ones, or those of --take.

Options, checkpoints and files are those of ../train.py; documents and lanes of a resumed run are new ones.
"""
import math
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, ".."))
import train  # noqa: E402
from data import Lanes  # noqa: E402
from export import load_model  # noqa: E402
from rwkv7 import RWKV7  # noqa: E402
from safetensors_file import read_safetensors  # noqa: E402

import systems  # noqa: E402
from memory import Memories  # noqa: E402

OWN = 0.1  # weight of the network's own cost
HELD_OUT, HELD_OUT_BYTES = 12, 20_000  # documents of the seeds "held-out/0", …, for validation
PROSE_BYTES = 1024  # of every held-out end


def part_of(model, layers, config):
    """The weights of some layers of a trained network, for one with fewer and with fewer channels in the channel mix: those whose
    weights are largest stay."""
    smaller, given = RWKV7(config), model.state_dict()
    weights = {}
    for name in smaller.state_dict():
        if name.startswith("blocks."):
            _, layer, rest = name.split(".", 2)
            prefix = f"blocks.{layers[int(layer)]}."
            weights[name] = given[prefix + rest]
            if rest in ("ffn.key.weight", "ffn.value.weight"):
                key, value = given[prefix + "ffn.key.weight"], given[prefix + "ffn.value.weight"]
                keep = (key.norm(dim=1) ** 2 * value.norm(dim=0)).topk(config.intermediate_size).indices.sort().values
                weights[name] = key[keep] if rest == "ffn.key.weight" else value[:, keep]
        else:
            weights[name] = given[name]
    smaller.load_state_dict(weights)
    return smaller


class StreamLanes(Lanes):
    """`batch` readers, the first `prose` of them of the corpus, the others of invented documents."""

    def __init__(self, corpus, batch, prose, length, jump, seed):
        super().__init__(corpus, batch, length, jump, seed)
        self.prose, self.read, self.documents = prose, 0, [None] * batch

    def next(self):
        T = self.length
        batch, self.batch = self.batch, self.prose
        x, y, fresh = super().next()
        self.batch = batch
        windows, new = np.empty((batch - self.prose, T + 1), np.uint8), np.zeros(batch - self.prose, bool)
        for i in range(batch - self.prose):
            at = self.at[self.prose + i]
            if at is None or at[1] + T + 1 > len(self.documents[i]):
                first = at is None
                self.documents[i] = b""
                while len(self.documents[i]) < 8 * T:
                    self.documents[i] = systems.document(f"{self.rng.randint(2 ** 31)}/{self.read}")
                    self.read += 1
                # lanes begin apart from each other
                at = ["", self.rng.randint(len(self.documents[i]) - 2 * T) if first else 0]
                new[i] = True
            windows[i] = np.frombuffer(self.documents[i], np.uint8)[at[1]:at[1] + T + 1]
            self.at[self.prose + i] = ["", at[1] + T]
        windows = windows.astype(np.int64)
        return (np.concatenate([x, windows[:, :-1]]), np.concatenate([y, windows[:, 1:]]), np.concatenate([fresh, new]))

    def load_state_dict(self, stored):
        self.rng.set_state(stored["rng"])


class StreamRun(train.Run):
    def __init__(self, args, rank):
        self.learned = None
        if args.learned:
            self.learned = read_safetensors(args.learned)[0]["learned"].numpy()
        super().__init__(args, rank)
        self.memories = Memories(self.batch, self.learned)
        self.state = self.model.zero_state(self.batch)
        for lane in range(self.batch):
            self.memories.clear(lane)

    def open_lanes(self):
        prose = round(self.batch * self.args.prose)
        return StreamLanes(self.corpus, self.batch, prose, self.args.length, self.args.jump, self.seed)

    def first_model(self):
        config = train.model_config(self.args)
        if not self.args.of:
            return RWKV7(config)
        model = load_model(self.args.of)
        last, count = model.config.num_hidden_layers, config.num_hidden_layers
        return part_of(model, self.args.take or [0, *range(last - count + 1, last)], config)

    def loss(self, logits, x, y, fresh):
        for lane in np.flatnonzero(fresh):
            self.memories.clear(lane)
        y = y.reshape(-1)
        own = F.cross_entropy(logits.reshape(-1, 256), y)
        return F.cross_entropy(self.memories.mixed(x, logits).reshape(-1, 256), y) + OWN * own

    def validate(self):
        streams = [np.frombuffer(systems.document(f"held-out/{i}", HELD_OUT_BYTES), np.uint8) for i in range(HELD_OUT)]
        costs = [bits_behind(self.model, texts, self.learned) for texts in (streams, [v[:PROSE_BYTES] for v in self.corpus.val])]
        print(f"held out: streams {costs[0]:.4f}, prose {costs[1]:.4f} bits per byte", flush=True)
        return sum(costs) / 2


@torch.no_grad()
def bits_behind(model, texts, learned):
    """texts: byte arrays, each one session -> bits per byte of the network with the memory behind it, over all of them. A first byte
    costs 8 bits."""
    bits, count = 0.0, 0
    for text in texts:
        memories, state = Memories(1, learned), None
        x = torch.from_numpy(text.astype(np.int64))[None]
        for at in range(0, len(text) - 1, 4096):
            part = x[:, at:at + 4097]
            logits, state = model(part[:, :-1], state)
            mixed = torch.from_numpy(memories.read(0, part[0, :-1].numpy(), logits[0].numpy()))
            bits += F.cross_entropy(mixed, part[0, 1:], reduction="sum").item() / math.log(2)
        bits, count = bits + 8, count + len(text)
    return bits / count


def main():
    ap = train.options(__doc__)
    ap.set_defaults(hidden=192, layers=4, intermediate=640, batch=20, lr=2e-3, warmup=200)
    ap.add_argument("--prose", type=float, default=0.3, help="share of lanes that read --data")
    ap.add_argument("--learned", help="model.safetensors of a package of the family ngram: the memory's first numbers")
    ap.add_argument("--from", dest="of", help="a model folder to begin with; its channels are --hidden")
    ap.add_argument("--take", nargs="+", type=int, help="its layers to take, --layers of them")
    train.main(train.arguments(ap), StreamRun)


if __name__ == "__main__":
    main()
