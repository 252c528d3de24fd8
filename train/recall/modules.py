"""The learned modules of an external memory, with the names that memory.safetensors has."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attend(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, asking, asked):
        split = lambda x: x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        y = F.scaled_dot_product_attention(split(self.q_proj(asking)), split(self.k_proj(asked)),
                                           split(self.v_proj(asked)))
        return self.o_proj(y.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, n):
        return self.down(F.gelu(self.up(n), approximate="tanh"))


class QLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.self_norm, self.cross_norm, self.mlp_norm = (nn.LayerNorm(width) for _ in range(3))
        self.self_attn, self.cross_attn = Attend(width, heads), Attend(width, heads)
        self.mlp = Mlp(width)

    def forward(self, x, y):
        n = self.self_norm(x)
        x = x + self.self_attn(n, n)
        x = x + self.cross_attn(self.cross_norm(x), y)
        return x + self.mlp(self.mlp_norm(x))


class QFormer(nn.Module):
    """The tokens of a block summed up in a few vectors of length 1 (Li et al. 2023, "BLIP-2", for what stands for an
    image there)."""

    def __init__(self, hidden, block, layers=2, heads=4, width=64, queries=4):
        super().__init__()
        self.sizes = {"layers": layers, "heads": heads, "width": width, "queries": queries}
        self.in_norm, self.in_proj = nn.LayerNorm(hidden), nn.Linear(hidden, width)
        self.positions = nn.Parameter(torch.randn(block, width) * 0.02)
        self.queries = nn.Parameter(torch.randn(queries, width) * 0.5)
        self.layers = nn.ModuleList(QLayer(width, heads) for _ in range(layers))
        self.out_norm = nn.LayerNorm(width)

    def forward(self, hidden):
        """[blocks, B, D] -> [blocks, N, F], each row of length 1"""
        y = self.in_proj(self.in_norm(hidden)) + self.positions
        x = self.queries.expand(len(hidden), -1, -1)
        for layer in self.layers:
            x = layer(x, y)
        return F.normalize(self.out_norm(x), dim=-1)


class Projector(nn.Module):
    def __init__(self, hidden, out, width=256):
        super().__init__()
        self.width = width
        self.gate_proj, self.up_proj = (nn.Linear(hidden, width, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(width, out, bias=False)

    def forward(self, h):
        """[n, D] -> [n, F] of length 1"""
        return F.normalize(self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h)), dim=-1)


class Trimmer(nn.Module):
    def __init__(self, hidden, width=64):
        super().__init__()
        self.width = width
        self.norm = nn.LayerNorm(hidden)
        setattr(self, "in", nn.Linear(hidden, width))
        self.out = nn.Linear(width, 1)

    def forward(self, hidden):
        return self.out(F.silu(getattr(self, "in")(self.norm(hidden)))).squeeze(-1)


class Walker(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.width = width
        setattr(self, "in", nn.Linear(9, width))
        self.out = nn.Linear(width, 1)

    def forward(self, features):
        return self.out(F.silu(getattr(self, "in")(features))).squeeze(-1)


def tensors_of(**modules):
    """-> the tensors under `name.`"""
    return {f"{name}.{key}": t.detach().clone() for name, module in modules.items()
            for key, t in module.state_dict().items()}


def similarity(e, rows):
    """e [n, F], rows [blocks, N, F] -> [n, blocks]: the largest of a block's rows"""
    return torch.einsum("nf,bqf->nbq", e, rows).amax(-1)


def warm(step, steps, warmup=50):
    return min(1.0, (step + 1) / warmup) * 0.5 * (1 + math.cos(math.pi * min(1.0, step / steps)))
