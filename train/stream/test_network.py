#!/usr/bin/env python3
"""The memory behind a network in training, and the network's first weights.

    python3 test_network.py [-v] [names]
"""
import os
import sys
import unittest

import numpy as np
import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path.append(os.path.join(HERE, ".."))
from export import load_model  # noqa: E402
from safetensors_file import read_safetensors  # noqa: E402

from memory import Memories  # noqa: E402
from network import part_of  # noqa: E402

LEARNED = read_safetensors(os.path.join(ROOT, "models", "watch", "model.safetensors"))[0]["learned"].numpy()
with open(os.path.join(ROOT, "docs", "demo", "harbour-log.txt"), "rb") as f:
    TEXT = np.frombuffer(f.read(), np.uint8)


class Memory(unittest.TestCase):
    def test_reads_a_text_for_the_bits_that_the_engine_needs(self):
        logits = torch.from_numpy(Memories(1, LEARNED).read(0, TEXT[:-1]))
        bits = F.cross_entropy(logits, torch.from_numpy(TEXT[1:].astype(np.int64)), reduction="sum").item() / np.log(2) + 8
        self.assertEqual(round(bits / len(TEXT), 3), 2.868)  # models/watch/README.md

    def test_gives_the_same_in_any_cut_and_after_it_was_emptied(self):
        memories = Memories(2, LEARNED)
        whole = memories.read(0, TEXT[:3000])
        parts = [memories.read(1, part) for part in np.split(TEXT[:3000], [1, 2, 500, 2999])]
        self.assertTrue((np.concatenate(parts) == whole).all())
        memories.clear(0)
        self.assertTrue((memories.read(0, TEXT[:3000]) == whole).all())

    def test_stands_behind_a_base_whose_gradient_it_scales(self):
        x = torch.from_numpy(TEXT[:600].astype(np.int64)).view(2, 300)
        base = torch.randn(2, 300, 256, generator=torch.Generator().manual_seed(1)).requires_grad_()
        memories, alone = Memories(2), Memories(2)
        mixed = memories.mixed(x, base)
        for i in range(2):
            read = alone.read(i, x[i].numpy(), base[i].detach().numpy())
            self.assertTrue((mixed[i].detach().numpy() == read).all())
        mixed[0, 5, 7].backward()
        self.assertEqual(base.grad[0, 5, 7].item(), 1)  # the base's weight before anything was read
        self.assertEqual(base.grad.count_nonzero().item(), 1)


class FirstWeights(unittest.TestCase):
    def test_all_layers_and_channels_of_a_model_are_that_model(self):
        model = load_model(os.path.join(ROOT, "models", "demo"))
        layers = range(model.config.num_hidden_layers)
        same = part_of(model, list(layers), model.config).state_dict()
        for name, weights in model.state_dict().items():
            self.assertTrue(torch.equal(weights, same[name]), name)


if __name__ == "__main__":
    unittest.main()
