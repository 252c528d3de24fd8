#!/usr/bin/env python3
"""The model against a package of the family with known answers, the kernels against the plain model, a package written and
read again.

    PERSPECTIVE_TINY=folder test_perspective.py

The first test is skipped, with a line that says so, unless PERSPECTIVE_TINY names a folder with config.json, both
safetensors files and expected.json.
"""
import json
import os
import sys

import torch
import torch.nn.functional as F

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import kernels  # noqa: E402
from card import delta_bytes, padded, payload  # noqa: E402
from export import digest  # noqa: E402
from model import Attention, Config, Experts, Pdr, Perspective, pack, ternary, unpack  # noqa: E402

SMALL = Config(256, 64, ("pdr", "gqa"), 4, 2, 16, 16, 1e4,
               {"width": 64, "rank": 16, "gamma_min": 0.0, "gamma_max": 0.999, "write": "convex"},
               {"torus": [4, 4], "intermediate_size": 128, "group_size": 64, "top_k": 1, "temperature": 0.02}, shared=64)


def close(a, b, tolerance, what):
    error = ((a - b).abs().max() / b.abs().max().clamp(min=1e-12)).item()
    print(f"  {what}: {error:.2e}")
    assert error < tolerance, (what, error)


@torch.no_grad()
def test_surprisals_of_a_known_package_up_to_its_first_adapt():
    folder = os.environ.get("PERSPECTIVE_TINY")
    if not folder:
        return print("  skipped: PERSPECTIVE_TINY is not set")
    with open(os.path.join(folder, "expected.json"), encoding="utf-8") as f:
        expected = json.load(f)
    at = expected["adapts"][0]["at"]
    ids = torch.tensor([expected["ids"][:at]])
    known = torch.tensor(expected["nll"][1:at], dtype=torch.double)
    for dtype in (torch.double, torch.float32):
        for cut in (at, 7):  # in one piece; in pieces, the state carried
            model, state, logits = Perspective.load(folder, dtype), None, []
            model.watch = []
            for start in range(0, at, cut):
                out, state = model(ids[:, start:start + cut], state)
                logits.append(out[0])
            nll = F.cross_entropy(torch.cat(logits)[:-1].double(), ids[0, 1:], reduction="none")
            print(f"  {dtype}, pieces of {cut}: nll off by {(nll - known).abs().max():.2e} at most, total {nll.sum():.6f} ({known.sum():.6f})")
            assert (nll - known).abs().max() < 1e-3
            layers = len(model.layers) + 1
            routes = [torch.cat([w["chosen"][0] for w in model.watch[i::layers]]) for i in range(layers - 1)]
            for t in range(min(at, len(expected["routes"]))):
                assert [r[t].tolist() for r in routes] == expected["routes"][t], t


def test_digest_and_store_of_a_known_package():
    folder = os.environ.get("PERSPECTIVE_TINY")
    if not folder:
        return print("  skipped: PERSPECTIVE_TINY is not set")
    model = Perspective.load(folder)
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        assert digest(model.package()[1]) == json.load(f)["experts"]["digest"]
    with open(os.path.join(folder, "expected.json"), encoding="utf-8") as f:
        store = json.load(f)["store"]
    for l, layer in enumerate(model.layers):
        known, tables = store[f"layer-{l:03d}.experts"], layer.experts.tables()
        assert len(payload(tables, 0)) == known["payload"] and padded(known["payload"]) == known["record"]
        for a, b, size in known["deltas"]:
            assert delta_bytes(payload(tables, a), payload(tables, b)) == size, (l, a, b)


def test_the_recurrence_of_the_kernels_is_the_plain_one():
    for write in ("convex", "plain"):
        torch.manual_seed(1)
        pdr = Pdr(Config(**{**SMALL.__dict__, "pdr": {**SMALL.pdr, "write": write}})).double()
        n, (S,) = torch.randn(3, 37, 64, dtype=torch.double), pdr.zero_state(3)
        S = torch.randn_like(S)
        n.requires_grad_(True)
        weight = torch.randn(3, 37, 64, dtype=torch.double)
        found = []
        for dtype in (torch.double, torch.float32):
            pdr.to(dtype).zero_grad(set_to_none=True)
            n.grad = None
            y, (last,) = pdr(n.to(dtype), (S.to(dtype),), False)
            (y * weight.to(dtype)).sum().backward()
            found.append([y, last, n.grad, *(p.grad for p in pdr.parameters())])
        for what, a, b in zip(("output", "state", "input", *(name for name, _ in pdr.named_parameters())), *reversed(found)):
            close(a.double(), b.double(), 2e-5, f"{write} {what}")


def test_experts_in_training_are_those_of_evaluation_to_bfloat16():
    torch.manual_seed(1)
    experts, positions = Experts(SMALL), Perspective(SMALL).positions
    with torch.no_grad():
        experts.router.weight.normal_(0, 0.05)
        experts.wide_own.normal_(0, 0.05)
        experts.down_own.normal_(0, 0.05)
        experts.wide_gain.normal_(0, 0.2)
        experts.down_gain.normal_(0, 0.2)
    u = torch.randn(500, 64)
    plain, order = experts.evaluate(u, positions)
    y, _, chosen = experts.train_rows(u, positions)
    assert torch.equal(chosen, order[:, 0])
    close(y, plain, 2e-2, "output")


def test_gradients_of_experts_go_straight_through():
    torch.manual_seed(1)
    experts, positions = Experts(SMALL), Perspective(SMALL).positions
    with torch.no_grad():
        experts.router.weight.normal_(0, 0.05)
        experts.wide_own.copy_(experts.wide_base + torch.randn(experts.wide_own.shape) * 0.05)
        experts.down_own.copy_(experts.down_base + torch.randn(experts.down_own.shape) * 0.05)
        experts.wide_base.zero_()
        experts.down_base.zero_()
    u, g = torch.randn(500, 64, requires_grad=True), torch.randn(500, 64)
    y, _, chosen = experts.train_rows(u, positions)
    names = ("wide_shared", "down_shared", "wide_own", "down_own")
    found = torch.autograd.grad((y * g).sum(), [u, *(getattr(experts, n) for n in names)], retain_graph=True)
    with torch.no_grad():
        for n in names:
            w = getattr(experts, n)
            codes, scales = ternary(w, 64)
            w.copy_((codes.float().unflatten(-1, (-1, 64)) * scales.float()[..., None]).flatten(-2))
    gate, up, down = experts.latents()
    x = torch.einsum("nd,nid->ni", u, gate[chosen])
    x = F.silu(x) * torch.einsum("nd,nid->ni", u, up[chosen])
    plain = torch.autograd.grad((torch.einsum("ni,ndi->nd", x, down[chosen]) * g).sum(),
                                [u, *(getattr(experts, n) for n in names)])
    for what, a, b in zip(("input", *names), found, plain):
        if what == "input":  # has the router's part as well
            continue
        error = ((a - b).norm() / b.norm()).item()
        print(f"  {what}: {error:.2e}")
        assert error < 3e-2


@torch.no_grad()
def test_attention_carries_its_window():
    torch.manual_seed(1)
    attention = Attention(SMALL).double()
    n = torch.randn(2, 75, 64, dtype=torch.double)
    whole, _ = attention(n, attention.zero_state(2), False)
    q, k, v = (p(n).view(2, 75, -1, 16) for p in (attention.q_proj, attention.k_proj, attention.v_proj))
    q, k, v = attention.turn(q), attention.turn(k).repeat_interleave(2, 2), v.repeat_interleave(2, 2)
    behind = torch.arange(75)[:, None] - torch.arange(75)
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / 4
    scores = scores.masked_fill((behind < 0) | (behind >= 16), -torch.inf)
    close(whole, attention.o_proj(torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v).flatten(2)), 1e-12, "dense")
    state, parts = attention.zero_state(2), []
    for start in range(0, 75, 20):
        y, state = attention(n[:, start:start + 20], state, False)
        parts.append(y)
    close(torch.cat(parts, 1), whole, 1e-12, "in pieces")


def test_codes_come_back():
    torch.manual_seed(1)
    codes, scales = ternary(torch.randn(7, 64), 32)
    assert torch.equal(unpack(pack(codes), 64), codes) and scales.shape == (7, 2)
    codes, scales = ternary(torch.tensor([[-0.00775146484375, -0.06591796875, 0.07177734375, -0.042724609375,
                                           0.0264892578125]]), 32)
    assert codes.tolist() == [[0, -1, 1, -1, 1]] or codes.tolist() == [[0, -1, 1, -1, 0]]


def main():
    if not kernels.available():
        print("no kernels: a CPU with AVX-512 and g++ are needed; their tests compare the plain model with itself")
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            print(name)
            test()
    print("ok")


if __name__ == "__main__":
    main()
