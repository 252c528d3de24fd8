"""The ctypes binding of kernels.cpp: autograd functions for training RWKV-7 on a CPU.

The library is compiled with g++ at first use, for the machine it runs on, and kept in a cache folder under
the hash of source, flags and host. `available()` says whether that worked; without it the model runs in plain
PyTorch.

Letters as in rwkv7.py; every tensor is float32 and contiguous where a kernel sees it.
"""
import ctypes
import functools
import hashlib
import os
import platform
import subprocess
import tempfile

import torch
import torch.nn.functional as F

N = 64  # channels a head; fixed in kernels.cpp
CHUNK = 16  # steps between the states that the forward pass keeps for the backward pass; CH in kernels.cpp


def _cache_folder():
    """A folder nobody else can write: what lies in it is loaded as code."""
    chosen = os.environ.get("RWKV7_CACHE")
    folder = chosen or os.path.join(tempfile.gettempdir(), f"rwkv7-kernels-{os.getuid()}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if not chosen and os.stat(folder).st_uid != os.getuid():
        raise OSError(f"{folder} belongs to another user; set RWKV7_CACHE to a folder of yours.")
    return folder


def compile_kernels(source, more=("-ffast-math", "-std=c++17"), includes=()):
    """A C++ file -> the library made of it, compiled at first use. more: flags; includes: files it includes."""
    flags = ["-O3", "-march=native", "-fopenmp", "-fPIC", *more]
    if platform.machine() in ("x86_64", "AMD64"):
        flags.append("-mprefer-vector-width=512")
    key = hashlib.sha256(" ".join(flags).encode() + platform.node().encode())
    for path in (source, *includes):
        with open(path, "rb") as f:
            key.update(f.read())
    library = os.path.join(_cache_folder(), f"kernels-{key.hexdigest()[:16]}.so")
    if not os.path.exists(library):
        temporary = f"{library}.{os.getpid()}"  # several workers may compile at once; the last rename wins

        def gcc(*arguments):
            subprocess.run(["g++", *arguments], check=True, capture_output=True, text=True)

        # in two steps: linking with -ffast-math would switch the whole process to flush-to-zero
        gcc(*flags, "-c", "-o", temporary + ".o", source)
        gcc("-shared", "-fopenmp", "-o", temporary, temporary + ".o")
        os.remove(temporary + ".o")
        os.replace(temporary, library)
    return ctypes.CDLL(library)


@functools.lru_cache(maxsize=None)
def _load():
    """-> the library or None, why there is none"""
    try:
        return compile_kernels(os.path.join(os.path.dirname(os.path.abspath(__file__)), "kernels.cpp")), ""
    except subprocess.CalledProcessError as error:
        return None, error.stderr
    except OSError as error:
        return None, str(error)


def _lib():
    return _load()[0]


def available():
    return _lib() is not None


def why():
    return _load()[1]


def _ptr(t):
    """The address of a tensor's data, or null for None."""
    if t is None:
        return ctypes.c_void_p(None)
    assert t.dtype == torch.float32 and t.is_contiguous(), (t.dtype, t.shape)
    return ctypes.c_void_p(t.data_ptr())


class _Pointers(ctypes.Structure):
    """TmixIn and TmixOut of kernels.cpp: pointers in order, at most 16."""

    _fields_ = [(f"p{i}", ctypes.c_void_p) for i in range(16)]


def _pack(tensors):
    return ctypes.byref(_Pointers(*(_ptr(t).value for t in tensors)))


def _pointer_array(tensors):
    return (ctypes.c_void_p * len(tensors))(*(t.data_ptr() for t in tensors))


def _transposed(s):
    """[B,H,value,key] <-> [B,H,key,value]: the kernels hold the state so that inner loops run along the value."""
    return s.transpose(2, 3).contiguous()


def _kept_states(B, T, H):
    return torch.empty(B, H, (T + CHUNK - 1) // CHUNK, N, N)


class WKV7(torch.autograd.Function):
    """The bare recurrence. r, d, k, v, a, b [B,T,H,N], s [B,H,value,key] -> y [B,T,H,N], the last state.

    The states carry no gradient.
    """

    @staticmethod
    def forward(ctx, r, d, k, v, a, b, s):
        r, d, k, v, a, b = (t.contiguous() for t in (r, d, k, v, a, b))
        B, T, H, _ = r.shape
        y, sa = torch.empty_like(r), torch.empty_like(r)
        kept, last, first = _kept_states(B, T, H), torch.empty(B, H, N, N), _transposed(s)
        _lib().wkv7_fwd(B, T, H, *map(_ptr, (r, d, k, v, a, b, first, y, sa, kept, last)))
        ctx.save_for_backward(r, d, k, v, a, b, sa, kept)
        last = _transposed(last)
        ctx.mark_non_differentiable(last)
        return y, last

    @staticmethod
    def backward(ctx, dy, _):
        saved = ctx.saved_tensors  # r, d, k, v, a, b, sa, kept
        B, T, H, _ = saved[0].shape
        grads = [torch.empty_like(saved[0]) for _ in range(6)]
        _lib().wkv7_bwd(B, T, H, *map(_ptr, (*saved, dy.contiguous(), *grads)))
        return (*grads, None)


class LnMix(torch.autograd.Function):
    """LayerNorm, token shift, n interpolations.

    x [B,T,C]; w, b [C] of the norm; prev [B,C] the normalised row before; mixes n times [1,1,C]
    -> n mixed inputs [B,T,C] and the last normalised row [B,C], which carries no gradient.
    """

    @staticmethod
    def forward(ctx, x, w, b, prev, *mixes):
        B, T, C = x.shape
        x, prev = x.contiguous(), prev.contiguous()
        mix = torch.cat([m.reshape(1, C) for m in mixes])
        outs = [torch.empty_like(x) for _ in mixes]
        stat, last = torch.empty(B * T, 2), torch.empty(B, C)  # stat: mean and 1 / deviation of each row
        _lib().lnmix_fwd(B, T, C, len(mixes), _ptr(x), _ptr(w), _ptr(b), _ptr(mix), _ptr(prev),
                         _pointer_array(outs), _ptr(stat), _ptr(last))
        ctx.save_for_backward(x, w, b, mix, prev, stat)
        ctx.shapes = [m.shape for m in mixes]
        ctx.mark_non_differentiable(last)
        return (*outs, last)

    @staticmethod
    def backward(ctx, *grads):
        x, w, b, mix, prev, stat = ctx.saved_tensors
        B, T, C = x.shape
        n = len(ctx.shapes)
        grads = [t.contiguous() for t in grads[:n]]
        dx, acc = torch.empty_like(x), torch.zeros(_lib().max_threads(), n + 2, C)
        _lib().lnmix_bwd(B, T, C, n, _ptr(x), _ptr(w), _ptr(b), _ptr(mix), _ptr(prev), _ptr(stat),
                         _pointer_array(grads), _ptr(dx), _ptr(acc))
        acc = acc.sum(0)
        return (dx, acc[n], acc[n + 1], None, *[acc[i].view(s) for i, s in enumerate(ctx.shapes)])


class TmixCore(torch.autograd.Function):
    """All of a time-mix layer between the input projections and the output projection.

    r, w, k, v, v_first, a, v_mix, g [B,T,C] are the projections before their gates; s [B,H,value,key] carries no
    gradient; the rest are parameters of C numbers each. v_first, v_mix and v0 are None in the first layer.
    -> z [B,T,C], the last state. keep_states: a backward pass will follow.
    """

    @staticmethod
    def forward(ctx, keep_states, r, w, k, v, v_first, a, v_mix, g, s, w0, a0, v0, k_k, k_a, r_k, lnw, lnb):
        inputs = [None if t is None else t.contiguous() for t in (r, w, k, v, v_first, a, v_mix, g)]
        params = (w0, a0, v0, k_k, k_a, r_k, lnw, lnb)
        flat = [None if t is None else t.detach().reshape(-1).contiguous() for t in params]
        B, T, C = r.shape
        H = C // N
        z, y, sa = (torch.empty(B, T, C) for _ in range(3))
        kept = _kept_states(B, T, H) if keep_states else None
        last, first = torch.empty(B, H, N, N), _transposed(s)
        _lib().tmix_fwd(B, T, H, _pack(inputs + flat), *map(_ptr, (first, z, y, sa, kept, last)))
        if keep_states:
            ctx.save_for_backward(*inputs, *flat, y, sa, kept)
            ctx.shapes = [None if t is None else t.shape for t in params]
        last = _transposed(last)
        ctx.mark_non_differentiable(last)
        return z, last

    @staticmethod
    def backward(ctx, dz, _):
        saved = ctx.saved_tensors
        inputs, flat, (y, sa, kept) = saved[:8], saved[8:16], saved[16:]
        B, T, C = dz.shape
        d = [None if t is None else torch.empty_like(t) for t in inputs]
        dparams, dz = torch.empty(B, 8, C), dz.contiguous()
        _lib().tmix_bwd(B, T, C // N, _pack([*inputs, *flat]), *map(_ptr, (y, sa, kept, dz)), _pack([*d, dparams]))
        dparams = dparams.sum(0)
        return (None, *d, None, *[None if s is None else dparams[i].view(s) for i, s in enumerate(ctx.shapes)])


class MatmulBF16(torch.autograd.Function):
    """x @ w (w [in,out]) or x @ w^T (w [out,in]) with bfloat16 operands, float32 in and out."""

    @staticmethod
    def forward(ctx, x, w, transposed):
        xb, wb = x.reshape(-1, x.shape[-1]).bfloat16(), w.bfloat16()
        ctx.save_for_backward(xb, wb)
        ctx.transposed, ctx.shape = transposed, x.shape
        return (xb @ (wb.t() if transposed else wb)).float().view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx, dy):
        xb, wb = ctx.saved_tensors
        g = dy.reshape(-1, dy.shape[-1]).bfloat16()
        if ctx.transposed:
            dx, dw = g @ wb, g.t() @ xb
        else:
            dx, dw = g @ wb.t(), xb.t() @ g
        return dx.float().view(ctx.shape), dw.float(), None


class FfnBF16(torch.autograd.Function):
    """relu(x wk^T)^2 wv^T, everything inside in bfloat16. x [B,T,C], wk [4C,C], wv [C,4C], float32 in and out."""

    @staticmethod
    def forward(ctx, x, wk, wv):
        xb, kb, vb = x.reshape(-1, x.shape[-1]).bfloat16(), wk.bfloat16(), wv.bfloat16()
        h = (xb @ kb.t()).relu_()
        h2 = h * h
        ctx.save_for_backward(xb, kb, vb, h, h2)
        return (h2 @ vb.t()).float().view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx, dy):
        xb, kb, vb, h, h2 = ctx.saved_tensors
        g = dy.reshape(-1, dy.shape[-1]).bfloat16()
        dwv = g.t() @ h2
        dh = (g @ vb).mul_(h).mul_(2)
        return (dh @ kb).float().view(dy.shape), (dh.t() @ xb).float(), dwv.float()


def block(layer, x, v_first, state, gemm):
    """One layer; the same function of its inputs as Block.forward in rwkv7.py. gemm: "f32" or "bf16"."""
    att, ffn, bf16 = layer.att, layer.ffn, gemm == "bf16"
    att_prev, ffn_prev, s = state

    def linear(t, w):
        return MatmulBF16.apply(t, w, True) if bf16 else F.linear(t, w)

    def matmul(t, w):
        return MatmulBF16.apply(t, w, False) if bf16 else torch.matmul(t, w)

    xr, xw, xk, xv, xa, xg, h1 = LnMix.apply(x, layer.ln1.weight, layer.ln1.bias, att_prev,
                                             *(getattr(att, name) for name in att.MIXES))
    r, k, v = linear(xr, att.receptance.weight), linear(xk, att.key.weight), linear(xv, att.value.weight)
    w = matmul(torch.tanh(matmul(xw, att.w1)), att.w2)
    a = matmul(matmul(xa, att.a1), att.a2)
    g = matmul(torch.sigmoid(matmul(xg, att.g1)), att.g2)
    first = att.layer == 0
    v_mix = None if first else matmul(matmul(xv, att.v1), att.v2)
    z, s = TmixCore.apply(torch.is_grad_enabled(), r, w, k, v, None if first else v_first, a, v_mix, g, s,
                          att.w0, att.a0, None if first else att.v0, att.k_k, att.k_a, att.r_k,
                          att.ln_x.weight, att.ln_x.bias)
    x = x + linear(z, att.output.weight)
    xf, h2 = LnMix.apply(x, layer.ln2.weight, layer.ln2.bias, ffn_prev, ffn.x_k)
    if bf16:
        x = x + FfnBF16.apply(xf, ffn.key.weight, ffn.value.weight)
    else:
        x = x + ffn.value(torch.relu(ffn.key(xf)) ** 2)
    return x, (v if first else v_first), (h1, h2, s)


def adamw_step(p, grad, m, v, lr, betas, eps, decay, corrections, scale):
    """One AdamW update of p and its moments m, v in place; grad is multiplied by scale first.

    corrections: 1 - beta^t of both betas.
    """
    numbers = map(ctypes.c_float, (lr, *betas, eps, decay, *corrections, scale))
    _lib().adamw(ctypes.c_long(p.numel()), *map(_ptr, (p, grad.contiguous(), m, v)), *numbers)
