"""The ctypes binding of kernels.cpp: autograd functions for training a perspective model on a CPU with AVX-512.

The library is compiled with g++ at first use (../fused.py). Without it the model runs in plain PyTorch.
Rows of experts lie in the order of their experts, each expert's part padded to a multiple of PAD rows: oneDNN prepares
a product for every size it meets, so there should be few.
"""
import ctypes
import functools
import os
import subprocess
import sys

import torch

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from fused import compile_kernels  # noqa: E402

CHUNK = 16  # steps between kept states; CH in kernels.cpp
WIDE = 64  # channels that the recurrence takes together; W in kernels.cpp
PAD = 64


@functools.lru_cache(maxsize=None)
def _lib():
    try:
        return compile_kernels(os.path.join(os.path.dirname(os.path.abspath(__file__)), "kernels.cpp"))
    except (OSError, subprocess.CalledProcessError):
        return None


def available():
    return _lib() is not None


def _ptr(t, dtype=torch.float32):
    if t is None:
        return ctypes.c_void_p(None)
    assert t.dtype == dtype and t.is_contiguous(), (t.dtype, t.shape)
    return ctypes.c_void_p(t.data_ptr())


def _half(t):
    return _ptr(t, torch.bfloat16)


def _n(*numbers):
    return map(ctypes.c_int64, numbers)


class _Pdr(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("B", "T", "E", "r", "convex")] + \
        [("low", ctypes.c_float), ("range", ctypes.c_float), ("x", ctypes.c_void_p), ("bias", ctypes.c_void_p)]


class Pdr(torch.autograd.Function):
    """x [B,T, E + r + r + E] (p, k, q, v as projected), bias [E], S [B,r,E] -> o [B,T,E], the last S (no gradient)"""

    @staticmethod
    def forward(ctx, keep, x, bias, S, r, convex, low, high):
        B, T, wide = x.shape
        E = wide // 2 - r
        x, bias, S = x.contiguous(), bias.contiguous(), S.contiguous()
        given = _Pdr(B, T, E, r, int(convex), low, high - low, x.data_ptr(), bias.data_ptr())
        o, last = torch.empty(B, T, E), torch.empty_like(S)
        kept = torch.empty(B, E // WIDE, (T + CHUNK - 1) // CHUNK, r, WIDE) if keep else None
        _lib().pdr_fwd(ctypes.byref(given), _ptr(S), _ptr(o), _ptr(kept), _ptr(last))
        if keep:
            ctx.save_for_backward(x, bias, kept)
            ctx.given = (B, T, E, r, int(convex), low, high - low)
        ctx.mark_non_differentiable(last)
        return o, last

    @staticmethod
    def backward(ctx, do, _):
        x, bias, kept = ctx.saved_tensors
        given = _Pdr(*ctx.given, x.data_ptr(), bias.data_ptr())
        dx, dbias, do = torch.empty_like(x), torch.empty(x.shape[0], bias.shape[0]), do.contiguous()
        _lib().pdr_bwd(ctypes.byref(given), _ptr(kept), _ptr(do), _ptr(dx), _ptr(dbias))
        return None, dx, dbias.sum(0), None, None, None, None, None


class Rms(torch.autograd.Function):
    """x [..., D], weight [D]; D a multiple of 16"""

    @staticmethod
    def forward(ctx, x, weight, eps):
        x = x.contiguous()
        n, D = x.numel() // x.shape[-1], x.shape[-1]
        y, inv = torch.empty_like(x), torch.empty(n)
        _lib().rms_fwd(*_n(n, D), ctypes.c_float(eps), *map(_ptr, (x, weight, y, inv)))
        ctx.save_for_backward(x, weight, inv)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, weight, inv = ctx.saved_tensors
        n, D = x.numel() // x.shape[-1], x.shape[-1]
        dx, dg = torch.empty_like(x), torch.zeros(_lib().max_threads(), D)
        _lib().rms_bwd(*_n(n, D), *map(_ptr, (x, weight, inv, dy.contiguous(), dx, dg)))
        return dx, dg.sum(0), None


class Ternary(torch.autograd.Function):
    """w [..., K], K a multiple of G -> code * scale in bfloat16; the gradient goes straight through"""

    @staticmethod
    def forward(ctx, w, G):
        out = torch.empty(w.shape, dtype=torch.bfloat16)
        _lib().ternary(*_n(w.numel() // G, G), _ptr(w), _half(out))
        return out

    @staticmethod
    def backward(ctx, g):
        return g.float(), None


class Rows:
    """Where each token's row lies: chosen [n] -> order [padded rows] (-1: a row of nothing), bounds of every expert"""

    def __init__(self, chosen, N):
        counts = torch.bincount(chosen, minlength=N)
        padded = (counts + PAD - 1) // PAD * PAD
        starts, to = counts.cumsum(0) - counts, padded.cumsum(0) - padded
        by = torch.argsort(chosen, stable=True)
        expert = chosen[by]
        self.order = torch.full((int(padded.sum()),), -1)
        self.order[to[expert] + torch.arange(len(by)) - starts[expert]] = by
        self.bounds = [0] + padded.cumsum(0).tolist()

    def __len__(self):
        return len(self.order)

    def parts(self, count):
        """-> (group, start, end) of `count` groups of neighbours, without the empty ones"""
        each = (len(self.bounds) - 1) // count
        ends = self.bounds[::each]
        return [(i, a, b) for i, (a, b) in enumerate(zip(ends, ends[1:])) if b > a]

    def gather(self, x, G):
        out = torch.empty(len(self), x.shape[1], dtype=torch.bfloat16)
        _lib().gather(*_n(len(self), x.shape[1], G), _ptr(x), _ptr(self.order, torch.int64), _half(out))
        return out

    def scatter(self, a, b, n):
        y = torch.empty(n, a.shape[1])
        _lib().scatter(*_n(*a.shape), _half(a), _half(b), _ptr(self.order, torch.int64), _ptr(y))
        return y


def _by_part(parts, rows, wide, product):
    out = torch.empty(rows, wide, dtype=torch.bfloat16)
    for i, a, b in parts:
        torch.mm(*product(i, slice(a, b)), out=out[a:b])
    return out


class ExpertRows(torch.autograd.Function):
    """F_e(u) of the chosen experts. u [n,D]; weights in bfloat16, of the units that all share and of an expert's
    own: wide [1 or N, 2I, D] (gate, then up), down [1 or N, D, I] -> [n,D]"""

    @staticmethod
    def forward(ctx, u, rows, G, *weights):
        u = u.contiguous()
        x = rows.gather(u, G)
        kept, ys = [], []
        for wide, down in (weights[:2], weights[2:]):
            parts, I = rows.parts(len(wide)), down.shape[2]
            h = _by_part(parts, len(rows), 2 * I, lambda i, at: (x[at], wide[i].t()))
            a = torch.empty(len(rows), I, dtype=torch.bfloat16)
            _lib().glu_fwd(*_n(len(rows), I, G), _half(h), _half(a))
            ys.append(_by_part(parts, len(rows), down.shape[1], lambda i, at: (a[at], down[i].t())))
            kept += [h, a]
        ctx.rows, ctx.n = rows, len(u)
        ctx.save_for_backward(x, *weights, *kept)
        return rows.scatter(*ys, len(u))

    @staticmethod
    def backward(ctx, dy):
        x, *rest = ctx.saved_tensors
        weights, kept, rows = rest[:4], rest[4:], ctx.rows
        g, dxs, grads = rows.gather(dy.contiguous(), 0), [], []
        for (wide, down), (h, a) in zip((weights[:2], weights[2:]), (kept[:2], kept[2:])):
            parts, I = rows.parts(len(wide)), down.shape[2]
            da = _by_part(parts, len(rows), I, lambda i, at: (g[at], down[i]))
            dh = torch.empty_like(h)
            _lib().glu_bwd(*_n(len(rows), I), *map(_half, (h, da, dh)))
            dxs.append(_by_part(parts, len(rows), x.shape[1], lambda i, at: (dh[at], wide[i])))
            dwide, ddown = torch.zeros_like(wide), torch.zeros_like(down)
            for i, at, end in parts:
                torch.mm(dh[at:end].t(), x[at:end], out=dwide[i])
                torch.mm(g[at:end].t(), a[at:end], out=ddown[i])
            grads += [dwide, ddown]
        return rows.scatter(*dxs, ctx.n), None, None, *grads
