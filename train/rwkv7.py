"""RWKV-7 "Goose" (x070) language model in plain PyTorch, torch 1.13 to 2.x, CPU or CUDA.

Parameter names, shapes and initialisation follow the official code (github.com/BlinkDL/RWKV-LM, RWKV-v7;
paper: Peng et al., "RWKV-7 Goose with Expressive Dynamic State Evolution", 2025). On a CPU `RWKV7.forward`
uses the fused kernels of fused.py when they can be compiled; everywhere else, or with `backend = "torch"`,
it runs the reference path below, which is the definition of the model.

Letters: B sequences, T positions, C channels, H heads, N channels a head (C = H * N), V vocabulary.
State: one tuple per layer, (att_shift [B,C], ffn_shift [B,C], wkv [B,H,N(value),N(key)]); None means zeros.
The shifts are the last normalised row before each mix, wkv is the memory S of the recurrence.
"""
import json
import math
from dataclasses import asdict, dataclass, fields

import torch
import torch.nn as nn
import torch.nn.functional as F

import fused

DECAY = math.exp(-0.5)  # a channel keeps at least exp(-DECAY) = 0.545 of its memory at each step
HEAD_EPS = 64e-5  # of the group norm; the official "64 * 1e-5"


@dataclass
class Config:
    """config.json, by the Hugging Face names; the defaults are the demo model's."""

    vocab_size: int = 256
    hidden_size: int = 192
    num_hidden_layers: int = 6
    head_dim: int = 64
    intermediate_size: int = 768
    decay_low_rank_dim: int = 32
    a_low_rank_dim: int = 32
    v_low_rank_dim: int = 32
    gate_low_rank_dim: int = 64

    def to_json(self):
        return {"model_type": "rwkv7", **asdict(self)}

    @classmethod
    def load(cls, path):
        with open(path, encoding="utf-8") as f:
            stored = json.load(f)
        return cls(**{field.name: stored[field.name] for field in fields(cls) if field.name in stored})

    @classmethod
    def of(cls, tensors):
        """Reads the sizes off the parameters' shapes. tensors: {official name: tensor}."""
        vocab, hidden = tensors["emb.weight"].shape
        layers = 1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("blocks."))
        rank = {letter: tensors[f"blocks.0.att.{letter}1"].shape[1] for letter in "wag"}
        # the first layer has no value residual
        rank["v"] = tensors["blocks.1.att.v1"].shape[1] if layers > 1 else cls.v_low_rank_dim
        return cls(vocab, hidden, layers, tensors["blocks.0.att.r_k"].shape[1],
                   tensors["blocks.0.ffn.key.weight"].shape[0], rank["w"], rank["a"], rank["v"], rank["g"])


def wkv7(r, d, k, v, a, b, s):
    """The recurrence, one step at a time: S <- S diag(d) + (S a) b^T + v k^T, y = S r.

    r, d, k, v, a, b: [B,T,H,N]; s: [B,H,N(value),N(key)]. -> y [B,T,H,N], the state after step T.
    """
    ys = []
    for t in range(r.shape[1]):
        sa = torch.einsum("bhij,bhj->bhi", s, a[:, t])
        s = s * d[:, t, :, None, :] + sa[..., None] * b[:, t, :, None, :] + v[:, t, :, :, None] * k[:, t, :, None, :]
        ys.append(torch.einsum("bhij,bhj->bhi", s, r[:, t]))
    return torch.stack(ys, 1), s


def shift(x, prev):
    """x [B,T,C] one step later: row t becomes row t-1, row 0 becomes prev [B,C] (None: zeros)."""
    first = torch.zeros_like(x[:, 0]) if prev is None else prev.to(x.dtype)
    return torch.cat([first[:, None], x[:, :-1]], 1)


def _orthogonal(rows, cols, scale):
    w = torch.empty(rows, cols)
    nn.init.orthogonal_(w, gain=scale * (math.sqrt(rows / cols) if rows > cols else 1.0))
    return nn.Parameter(w)


class TimeMix(nn.Module):
    MIXES = ("x_r", "x_w", "x_k", "x_v", "x_a", "x_g")

    def __init__(self, c, layer):
        super().__init__()
        C, N = c.hidden_size, c.head_dim
        self.layer, self.H, self.N = layer, C // N, N
        depth = layer / max(1, c.num_hidden_layers - 1)  # 0 in the first layer, 1 in the last
        rest = 1.0 - layer / c.num_hidden_layers  # 1 in the first layer, nearly 0 in the last
        at = torch.arange(C, dtype=torch.float32)
        for name, power in zip(self.MIXES, (0.2, 0.9, 0.7, 0.7, 0.9, 0.2)):
            setattr(self, name, nn.Parameter((1.0 - (at / C) ** (power * rest)).view(1, 1, C)))
        linear = at / (C - 1) - 0.5
        zigzag = (at % N - (N - 1) / 2) / ((N - 1) / 2)
        zigzag = zigzag * zigzag.abs()
        speed = -6 + 6 * (at / (C - 1)) ** (1 + depth ** 0.3)

        def vec(x):
            return nn.Parameter(x.clone().view(1, 1, C))

        self.w0 = vec(speed + 0.5 + zigzag * 2.5)
        self.w1 = nn.Parameter(torch.zeros(C, c.decay_low_rank_dim))
        self.w2 = _orthogonal(c.decay_low_rank_dim, C, 0.1)
        self.a0 = vec(-0.19 + zigzag * 0.3 + linear * 0.4)
        self.a1 = nn.Parameter(torch.zeros(C, c.a_low_rank_dim))
        self.a2 = _orthogonal(c.a_low_rank_dim, C, 0.1)
        if layer > 0:
            self.v0 = vec(0.73 - linear * 0.4)
            self.v1 = nn.Parameter(torch.zeros(C, c.v_low_rank_dim))
            self.v2 = _orthogonal(c.v_low_rank_dim, C, 0.1)
        self.g1 = nn.Parameter(torch.zeros(C, c.gate_low_rank_dim))
        self.g2 = _orthogonal(c.gate_low_rank_dim, C, 0.1)
        self.k_k = vec(0.71 - linear * 0.1)
        self.k_a = vec(torch.full((C,), 1.02))
        self.r_k = nn.Parameter(torch.full((self.H, N), -0.04))
        for name in ("receptance", "key", "value", "output"):
            setattr(self, name, nn.Linear(C, C, bias=False))
        self.ln_x = nn.GroupNorm(self.H, C, eps=HEAD_EPS)
        with torch.no_grad():
            u = C ** -0.5
            self.receptance.weight.uniform_(-0.5 * u, 0.5 * u)
            self.key.weight.uniform_(-0.05 * u, 0.05 * u)
            self.value.weight.uniform_(-0.5 * u, 0.5 * u)
            self.output.weight.zero_()
            self.ln_x.weight.fill_(((1 + layer) / c.num_hidden_layers) ** 0.7)

    def forward(self, x, v_first, prev, s):
        """x [B,T,C] normalised, v_first [B,T,C] the first layer's values, prev [B,C], s [B,H,N,N].

        -> this layer's contribution [B,T,C], v_first, the state after T steps.
        """
        B, T, C = x.shape
        H, N = self.H, self.N
        d = shift(x, prev) - x
        xr, xw, xk, xv, xa, xg = (x + d * getattr(self, m) for m in self.MIXES)
        r, k, v = self.receptance(xr), self.key(xk), self.value(xv)
        w = torch.exp(-DECAY * torch.sigmoid(self.w0 + torch.tanh(xw @ self.w1) @ self.w2))
        if self.layer == 0:
            v_first = v
        else:
            v = v + (v_first - v) * torch.sigmoid(self.v0 + xv @ self.v1 @ self.v2)
        a = torch.sigmoid(self.a0 + xa @ self.a1 @ self.a2)  # the in-context learning rate
        g = torch.sigmoid(xg @ self.g1) @ self.g2
        kk = F.normalize((k * self.k_k).view(B, T, H, N), dim=-1, p=2.0)
        k = k * (1 + (a - 1) * self.k_a)
        r, w, k, v, a = (t.view(B, T, H, N) for t in (r, w, k, v, a))
        y, s = wkv7(r, w, k, v, -kk, kk * a, s)
        y = self.ln_x(y.reshape(B * T, C)).view(B, T, H, N)
        y = y + (r * k * self.r_k).sum(-1, keepdim=True) * v
        return self.output(y.view(B, T, C) * g), v_first, s


class ChannelMix(nn.Module):
    def __init__(self, c, layer):
        super().__init__()
        C = c.hidden_size
        rest = 1.0 - layer / c.num_hidden_layers
        self.x_k = nn.Parameter((1.0 - (torch.arange(C, dtype=torch.float32) / C) ** (rest ** 4)).view(1, 1, C))
        self.key = nn.Linear(C, c.intermediate_size, bias=False)
        self.value = nn.Linear(c.intermediate_size, C, bias=False)
        with torch.no_grad():
            self.key.weight.uniform_(-0.5 * C ** -0.5, 0.5 * C ** -0.5)
            self.value.weight.zero_()

    def forward(self, x, prev):
        """x [B,T,C] normalised, prev [B,C] -> this layer's contribution [B,T,C]."""
        k = self.key(x + (shift(x, prev) - x) * self.x_k)
        return self.value(torch.relu(k) ** 2)


class Block(nn.Module):
    def __init__(self, c, layer):
        super().__init__()
        if layer == 0:
            self.ln0 = nn.LayerNorm(c.hidden_size)  # of the embedding; RWKV7.forward applies it
        self.ln1 = nn.LayerNorm(c.hidden_size)
        self.ln2 = nn.LayerNorm(c.hidden_size)
        self.att = TimeMix(c, layer)
        self.ffn = ChannelMix(c, layer)

    def forward(self, x, v_first, state):
        """x [B,T,C] -> x [B,T,C], v_first, this layer's next state."""
        att_prev, ffn_prev, s = state
        h1 = self.ln1(x)
        y, v_first, s = self.att(h1, v_first, att_prev, s)
        x = x + y
        h2 = self.ln2(x)
        x = x + self.ffn(h2, ffn_prev)
        return x, v_first, (h1[:, -1], h2[:, -1], s)


class RWKV7(nn.Module):
    def __init__(self, config=None):
        super().__init__()
        c = self.config = config or Config()
        assert c.hidden_size % c.head_dim == 0
        self.emb = nn.Embedding(c.vocab_size, c.hidden_size)
        self.blocks = nn.ModuleList([Block(c, i) for i in range(c.num_hidden_layers)])
        self.ln_out = nn.LayerNorm(c.hidden_size)
        self.head = nn.Linear(c.hidden_size, c.vocab_size, bias=False)
        with torch.no_grad():
            self.emb.weight.uniform_(-1e-4, 1e-4)
            gain = 0.5 * math.sqrt(max(1.0, c.vocab_size / c.hidden_size))
            nn.init.orthogonal_(self.head.weight, gain=gain)
        self.backend = "auto"  # "auto", "torch" (reference) or "fused"
        self.gemm = "f32"  # "bf16": the fused backend's projections round their inputs and outputs to bfloat16

    def zero_state(self, batch, device=None, dtype=torch.float32):
        """The state of a stream that has read nothing, for `batch` sequences."""
        c = self.config

        def zeros(*shape):
            return torch.zeros(*shape, device=device or self.emb.weight.device, dtype=dtype)

        return [(zeros(batch, c.hidden_size), zeros(batch, c.hidden_size),
                 zeros(batch, c.hidden_size // c.head_dim, c.head_dim, c.head_dim))
                for _ in range(c.num_hidden_layers)]

    def forward(self, idx, state=None):
        """idx [B,T] -> logits [B,T,V], the state after the last position (without gradient)."""
        if state is None:
            state = self.zero_state(idx.shape[0], idx.device, self.emb.weight.dtype)
        use_fused = self._use_fused(idx)
        x = self.blocks[0].ln0(self.emb(idx))
        v_first, out = None, []
        for block, layer_state in zip(self.blocks, state):
            if use_fused:
                x, v_first, layer_state = fused.block(block, x, v_first, layer_state, self.gemm)
            else:
                x, v_first, layer_state = block(x, v_first, layer_state)
            out.append(tuple(t.detach() for t in layer_state))
        return self.head(self.ln_out(x)), out

    def num_params(self):
        return sum(p.numel() for p in self.parameters())

    def _use_fused(self, idx):
        if self.backend == "torch":
            return False
        fits = idx.device.type == "cpu" and self.emb.weight.dtype == torch.float32 and self.config.head_dim == fused.N
        if fits and fused.available():
            return True
        if self.backend == "fused":
            raise RuntimeError(f"The fused backend needs g++, a CPU, float32 weights and head_dim {fused.N}. "
                               + (fused.why() if fits else "This model or this input is another."))
        return False
