#!/usr/bin/env python3
"""The kernels against the float64 reference, the carried state, known models' logits, and a small training run.

    python3 test_rwkv7.py [-v] [names]

Every fused result is compared with the plain PyTorch path in float64; two models pin both to the outside: the
demo model in ../models/demo, and the official tiny model of rwkv.cpp, which the repository does not hold.
TINY_RWKV7 names its folder (default ../../shared/models/tiny-rwkv7): model.safetensors and expected.json.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import torch
import torch.nn.functional as F

import fused
from data import Corpus, Lanes
from evaluate import bits
from export import load_checkpoint, load_model, read_safetensors, write_safetensors
from rwkv7 import RWKV7, Config, wkv7
from sample import generate, prefill

HERE = os.path.dirname(os.path.abspath(__file__))
DEMO = os.path.join(HERE, "..", "models", "demo")
TINY = os.environ.get("TINY_RWKV7", os.path.join(HERE, "..", "..", "shared", "models", "tiny-rwkv7"))

needs_kernels = unittest.skipUnless(fused.available(), f"the fused kernels did not compile: {fused.why()}")


def relative_error(got, want):
    return ((got.double() - want.double()).norm() / (want.double().norm() + 1e-30)).item()


def random_model(config, dtype):
    """Moved away from the zeros of the initialisation, which would hide most gradients."""
    torch.manual_seed(1)
    model = RWKV7(config).to(dtype)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.05)
    return model


@needs_kernels
class Recurrence(unittest.TestCase):
    def test_output_state_and_gradients_equal_the_float64_recurrence(self):
        torch.manual_seed(1)
        for B, T, H in ((2, 37, 3), (1, 16, 1), (1, 1, 2)):  # across, at and below the kept states' distance
            def normal():
                return torch.randn(B, T, H, 64, dtype=torch.float64)

            kk = F.normalize(normal(), dim=-1)
            decay = torch.exp(-0.6065 * torch.rand(B, T, H, 64, dtype=torch.float64))
            inputs = {"r": normal(), "d": decay, "k": normal(), "v": normal(), "a": -kk, "b": kk * torch.rand_like(kk)}
            state = torch.randn(B, H, 64, 64, dtype=torch.float64)
            wide = [t.clone().requires_grad_() for t in inputs.values()]
            y, last = wkv7(*wide, state)
            dy = torch.randn_like(y)
            grads = torch.autograd.grad(y, wide, dy)
            narrow = [t.detach().float().requires_grad_() for t in wide]
            y32, last32 = fused.WKV7.apply(*narrow, state.float())
            with self.subTest(B=B, T=T, H=H):
                self.assertLess(relative_error(y32, y), 1e-5)
                self.assertLess(relative_error(last32, last), 1e-5)
                for name, got, want in zip(inputs, torch.autograd.grad(y32, narrow, dy.float()), grads):
                    self.assertLess(relative_error(got, want), 2e-5, f"gradient of {name}")


@needs_kernels
class FusedModel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        config = Config(hidden_size=128, num_hidden_layers=3, intermediate_size=256)
        cls.reference = random_model(config, torch.float64)
        cls.fused = RWKV7(config)
        cls.fused.load_state_dict(cls.reference.state_dict())
        cls.reference.backend, cls.fused.backend = "torch", "fused"
        cls.x, cls.y = torch.randint(0, 256, (3, 77)), torch.randint(0, 256, (3, 77))
        _, cls.state = cls.reference(torch.randint(0, 256, (3, 21)))
        cls.reference_loss = cls.backward(cls.reference, cls.state)

    @classmethod
    def backward(cls, model, state):
        model.zero_grad()
        loss = F.cross_entropy(model(cls.x, state)[0].view(-1, 256), cls.y.view(-1))
        loss.backward()
        return loss.item()

    def check(self, gemm, loss_limit, gradient_limit):
        self.fused.gemm = gemm
        loss = self.backward(self.fused, [tuple(t.float() for t in layer) for layer in self.state])
        self.assertLess(abs(loss - self.reference_loss), loss_limit)
        for (name, got), want in zip(self.fused.named_parameters(), self.reference.parameters()):
            self.assertLess(relative_error(got.grad, want.grad), gradient_limit, f"gradient of {name}")

    def test_loss_and_gradients_equal_the_float64_reference(self):
        self.check("f32", 1e-5, 5e-4)

    def test_bfloat16_projections_stay_near_the_float64_reference(self):
        self.check("bf16", 2e-2, 0.1)

    @torch.no_grad()
    def test_a_text_read_in_pieces_gives_what_one_pass_gives(self):
        self.fused.gemm = "f32"
        whole, end = self.fused(self.x)
        for size in (40, 1):
            pieces, state = [], None
            for t in range(0, self.x.shape[1], size):
                logits, state = self.fused(self.x[:, t:t + size], state)
                pieces.append(logits)
            self.assertLess(relative_error(torch.cat(pieces, 1), whole), 1e-5)
            for layer, want in zip(state, end):
                for got, expected in zip(layer, want):
                    self.assertLess(relative_error(got, expected), 1e-5)

    def test_the_fused_backend_refuses_a_model_it_cannot_run(self):
        model = RWKV7(Config(hidden_size=64, num_hidden_layers=1, head_dim=32))
        model.backend = "fused"
        with self.assertRaisesRegex(RuntimeError, "head_dim 64"):
            model(torch.zeros(1, 1, dtype=torch.int64))


class KnownModels(unittest.TestCase):
    def test_the_demo_model_gives_its_expected_logits_and_continuation(self):
        with open(os.path.join(DEMO, "expected.json"), encoding="utf-8") as f:
            expected = json.load(f)
        model, prompt = load_model(DEMO), bytes(expected["prompt_bytes"])
        for model.backend in ("torch", "auto"):
            logits, _ = prefill(model, prompt)
            np.testing.assert_allclose(logits, expected["logits"], rtol=0, atol=1e-4)
        n = len(expected["greedy_bytes"])
        self.assertEqual(list(generate(model, prompt, n, 0, 1, 0)), expected["greedy_bytes"])

    @unittest.skipUnless(os.path.exists(os.path.join(TINY, "expected.json")),
                         f"no official tiny model in {TINY}; TINY_RWKV7 names its folder")
    def test_the_official_tiny_model_gives_its_official_logits(self):
        with open(os.path.join(TINY, "expected.json"), encoding="utf-8") as f:
            expected = json.load(f)
        tensors, _ = read_safetensors(os.path.join(TINY, "model.safetensors"))
        model = RWKV7(Config.of(tensors))
        model.load_state_dict(tensors)
        for model.backend in ("torch", "auto"):
            logits, _ = prefill(model, bytes(expected["prompt"]["tokens"]))
            np.testing.assert_allclose(logits, expected["logits"], rtol=0, atol=1e-3)


class Texts(unittest.TestCase):
    def test_lanes_read_on_through_the_training_part_and_never_touch_the_held_out_end(self):
        with tempfile.TemporaryDirectory() as folder:
            # every byte tells its position; the held-out end is 255 throughout
            for name, size in (("a", 200), ("b", 190)):
                with open(os.path.join(folder, f"{name}.txt"), "wb") as f:
                    f.write(bytes(range(size)) + bytes([255]) * (size // 3))
            lanes = Lanes(Corpus([folder], holdout=0.25), 3, 16, 0.1, seed=1)
            before = None
            for _ in range(50):
                x, y, fresh = lanes.next()
                self.assertLess(y.max(), 200)
                np.testing.assert_array_equal(y, x + 1)
                if before is not None:
                    np.testing.assert_array_equal(x[~fresh, 0], before[~fresh])
                before = y[:, -1]

    def test_costs_do_not_depend_on_how_documents_are_batched_and_cut(self):
        torch.manual_seed(1)
        model = random_model(Config(hidden_size=64, num_hidden_layers=2, intermediate_size=128), torch.float32)
        docs = [np.random.RandomState(i).randint(0, 256, n).astype(np.uint8) for i, n in enumerate((70, 1, 33, 129))]
        alone = [bits(model, [d], length=512)[0] for d in docs]
        for cost, want in zip(bits(model, docs, length=32, lanes=3), alone):
            np.testing.assert_allclose(cost, want, rtol=1e-4)

    def test_safetensors_written_are_read_back(self):
        tensors = {"b": torch.randn(3, 5), "a": torch.arange(4.0)}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.safetensors")
            for dtype in ("F32", "BF16"):
                write_safetensors(path, tensors, dtype, {"k": "v"})
                back, metadata = read_safetensors(path)
                self.assertEqual(metadata, {"k": "v"})
                for name, t in tensors.items():
                    want = t if dtype == "F32" else t.bfloat16().float()
                    self.assertTrue(torch.equal(back[name], want), (dtype, name))


class Training(unittest.TestCase):
    def test_a_run_stopped_and_resumed_ends_with_the_weights_of_one_that_was_not(self):
        with tempfile.TemporaryDirectory() as folder:
            text = b"".join(b"day %d: the light was trimmed and the bell rang twice.\n" % i for i in range(400))
            os.mkdir(os.path.join(folder, "texts"))
            with open(os.path.join(folder, "texts", "log.txt"), "wb") as f:
                f.write(text)

            def train(out, steps, *more):
                # a flat learning rate: the cosine would follow --steps
                subprocess.run([sys.executable, os.path.join(HERE, "train.py"), "--out", os.path.join(folder, out),
                                "--data", os.path.join(folder, "texts"), "--hidden", "64", "--layers", "2",
                                "--batch", "4", "--length", "64", "--lr", "1e-3", "--lr-end", "1e-3", "--warmup", "1",
                                "--gemm", "f32", "--workers", "2", "--max-minutes", "0", "--steps", str(steps), *more],
                               check=True, capture_output=True)
                return load_checkpoint(os.path.join(folder, out, "ckpt.pt"))[1]

            whole = train("whole", 6)
            train("halves", 3)
            halves = train("halves", 6, "--resume")
            self.assertEqual(halves["step"], 6)
            for name, want in whole["model"].items():
                self.assertLess(relative_error(halves["model"][name], want), 1e-5, name)


if __name__ == "__main__":
    unittest.main()
