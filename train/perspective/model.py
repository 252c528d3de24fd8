"""A `perspective` model in plain PyTorch: pdr and gqa layers, ternary experts on a torus, the projection on half-spaces.

The definition that training and export go by: h = x + mix(rms x), x = h + experts(rms h). Names and shapes of tensors are
those of the package. In evaluation the forward pass is the family's own: activations of experts are rounded to int8 group
by group, and products are sums of exact integers. In training (float32, on a CPU) weights and activations are rounded
too, gradients go straight through, and products run in bfloat16.

All experts of a layer share their first `shared` units: rows of gate and up, columns of down. So the ternary records of
neighbours agree there, and their XOR is small. The other units have a base that every token trains: an expert has its own
gain of each row, which becomes its scale, and its own change of the weights, both of which begin as 0. One of sixteen
experts sees too little to begin from chance.
"""
import json
import math
import os
import sys
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from fused import MatmulBF16  # noqa: E402

import kernels  # noqa: E402

LATENT = ("shared", "base", "own", "gain")  # how names of an expert's weights in training end
SECOND = 8  # in training every eighth token asks its second expert too


def rope_increments(theta, d):
    """Turns of a pair at one pulse, in 2^-32"""
    return [math.floor(2 ** 32 / (2 * math.pi) * theta ** (-2 * i / d) + 0.5) for i in range(d // 2)]


@dataclass(frozen=True)
class Config:
    """What config.json says, its nested objects as they are; shared: units that the experts of a layer share (training)"""
    vocab_size: int
    hidden_size: int
    layer_types: tuple
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    sliding_window: int
    rope_theta: float
    pdr: dict
    experts: dict
    rms_norm_eps: float = 1e-5
    spp: dict = None
    shared: int = 0

    @staticmethod
    def of(content):
        """content: of config.json. Layers with dense parts and tied embeddings are not for this recipe."""
        assert set(content["ffn_types"]) == {"experts"} and not content["tie_word_embeddings"]
        names = [name for name in Config.__dataclass_fields__ if name in content]
        return Config(**{name: content[name] for name in names})

    @property
    def torus(self):
        return tuple(self.experts["torus"])


def rounded(x, G):
    """x [..., K] -> int8 values [..., groups, G] as float32 (zeros past K), scales [..., groups]: in float32, as ever"""
    x = F.pad(x.float(), (0, -x.shape[-1] % G)).unflatten(-1, (-1, G))
    s = x.abs().amax(-1) / 127
    q = torch.where(s[..., None] > 0, x / s[..., None], torch.zeros_like(x))
    return q.round().clamp(-127, 127), s


def ternary(w, G):
    """w [..., K] -> codes -1, 0, 1 (int8, as w), scales [..., groups] (float16): the rule of docs/formats.md"""
    groups = F.pad(w.double(), (0, -w.shape[-1] % G)).unflatten(-1, (-1, G))
    sizes = torch.full((groups.shape[-2],), G, dtype=torch.double)
    sizes[-1] -= -w.shape[-1] % G
    a = (groups.abs().sum(-1) / sizes).half().double()
    t = torch.where(a[..., None] > 0, groups / a[..., None], torch.zeros_like(groups)).round().clamp(-1, 1)
    count = (t * t).sum(-1)
    scale = torch.where(count > 0, (groups * t).sum(-1) / count.clamp(min=1), a).half()
    return t.flatten(-2)[..., :w.shape[-1]].to(torch.int8), scale


def product(x, codes, scales, G):
    """Rows x [n,K] times codes [out,K], scales [out,groups]: an exact integer for each group, then the groups in order"""
    q, s = rounded(x, G)
    t = F.pad(codes.to(x.dtype), (0, -codes.shape[-1] % G)).unflatten(-1, (-1, G))
    acc = torch.zeros(len(x), len(codes), dtype=x.dtype, device=x.device)
    for g in range(t.shape[1]):
        acc += (q[:, g].to(x.dtype) @ t[:, g].T) * (scales[:, g].to(x.dtype) * s[:, g, None].to(x.dtype))
    return acc


class Norm(nn.Module):
    def __init__(self, n, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(n)), eps

    def forward(self, x):
        if x.dtype == torch.float32 and x.device.type == "cpu" and x.shape[-1] % 16 == 0 and kernels.available():
            return kernels.Rms.apply(x, self.weight, self.eps)
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps) * self.weight


def linear(x, *weights, fused):
    """x [..., in] times matrices [out, in] side by side"""
    w = torch.cat(weights) if len(weights) > 1 else weights[0]
    return MatmulBF16.apply(x, w, True) if fused else F.linear(x, w)


class Pdr(nn.Module):
    def __init__(self, c):
        super().__init__()
        D, E, r = c.hidden_size, c.pdr["width"], c.pdr["rank"]
        self.c, self.E, self.r = c, E, r
        self.p_proj = nn.Linear(D, E)
        self.k_proj, self.q_proj = nn.Linear(D, r, bias=False), nn.Linear(D, r, bias=False)
        self.v_proj, self.o_proj = nn.Linear(D, E, bias=False), nn.Linear(E, D, bias=False)
        self.out_norm = Norm(E, c.rms_norm_eps)

    def zero_state(self, batch):
        return (torch.zeros(batch, self.r, self.E, dtype=self.o_proj.weight.dtype),)

    def forward(self, n, state, fused):
        """n [B,T,D], state (S [B,r,E],) -> [B,T,D], the next state"""
        E, r, pdr = self.E, self.r, self.c.pdr
        low, high, convex = pdr["gamma_min"], pdr["gamma_max"], pdr["write"] == "convex"
        x = linear(n, self.p_proj.weight, self.k_proj.weight, self.q_proj.weight, self.v_proj.weight, fused=fused)
        if n.dtype == torch.float32 and E % kernels.WIDE == 0 and r % 16 == 0 and kernels.available():
            o, S = kernels.Pdr.apply(torch.is_grad_enabled(), x, self.p_proj.bias, state[0], r, convex, low, high)
        else:
            p, k, q, v = x.split((E, r, r, E), -1)
            k, q = (t * torch.rsqrt((t * t).sum(-1, keepdim=True) + 1e-6) for t in (k, q))
            gamma = low + (high - low) * torch.sigmoid(p + self.p_proj.bias)
            u = (1 - gamma) * v if convex else v
            S, o = state[0], []
            for t in range(n.shape[1]):
                S = gamma[:, t, None] * S + k[:, t, :, None] * u[:, t, None]
                o.append((S * q[:, t, :, None]).sum(1))
            o = torch.stack(o, 1)
        return linear(self.out_norm(o), self.o_proj.weight, fused=fused), (S.detach(),)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        D, H, Hkv, d = c.hidden_size, c.num_attention_heads, c.num_key_value_heads, c.head_dim
        self.H, self.Hkv, self.d, self.window = H, Hkv, d, c.sliding_window
        self.q_proj, self.o_proj = nn.Linear(D, H * d, bias=False), nn.Linear(H * d, D, bias=False)
        self.k_proj, self.v_proj = nn.Linear(D, Hkv * d, bias=False), nn.Linear(D, Hkv * d, bias=False)
        self.increments = torch.tensor(rope_increments(c.rope_theta, d))

    def zero_state(self, batch):
        """keys (not turned) and values of the last W positions, and which of them are there"""
        shape, dtype = (batch, self.window, self.Hkv * self.d), self.o_proj.weight.dtype
        return torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype), torch.zeros(shape[:2], dtype=torch.bool)

    def turn(self, x):
        """x [B,P,heads,d] at positions 0 ... P - 1: only differences of positions count"""
        phase = torch.arange(x.shape[1])[:, None] * self.increments % 2 ** 32
        angle = phase.double() * (2 * math.pi / 2 ** 32)
        cos, sin = (f(angle).to(x.dtype)[:, None] for f in (torch.cos, torch.sin))
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def forward(self, n, state, fused):
        """n [B,T,D] -> [B,T,D], the next state. Queries in blocks of W see their own block and the one before."""
        B, T, W, d, wide = *n.shape[:2], self.window, self.d, self.Hkv * self.d
        q, k, v = linear(n, self.q_proj.weight, self.k_proj.weight, self.v_proj.weight,
                         fused=fused).split((self.H * d, wide, wide), -1)
        k, v = torch.cat((state[0], k), 1), torch.cat((state[1], v), 1)
        there = torch.cat((state[2], torch.ones(B, T, dtype=torch.bool)), 1)
        kept = k[:, -W:].detach(), v[:, -W:].detach(), there[:, -W:]
        more, blocks = -T % W, (T + W - 1) // W
        q, k, v = F.pad(q, (0, 0, 0, more)), F.pad(k, (0, 0, 0, more)), F.pad(v, (0, 0, 0, more))
        k = self.turn(k.view(B, -1, self.Hkv, d))
        q = self.turn(F.pad(q, (0, 0, W, 0)).view(B, -1, self.H, d))[:, W:]

        def windows(t):  # [B, W + T, Hkv, d] -> [B * blocks, H, 2W, d]
            t = t.reshape(B, blocks + 1, W, self.Hkv, d)
            t = torch.cat((t[:, :-1], t[:, 1:]), 2).flatten(0, 1).transpose(1, 2)
            return t.repeat_interleave(self.H // self.Hkv, 1)

        there = F.pad(there, (0, more)).view(B, blocks + 1, W)
        there = torch.cat((there[:, :-1], there[:, 1:]), 2).view(B * blocks, 1, 1, 2 * W)
        i, j = torch.arange(W)[:, None], torch.arange(2 * W)
        mask = there & (j > i) & (j <= i + W)  # a padded query sees padded keys alone or none: nobody reads it
        mask = mask | (torch.arange(W)[:, None] + W == j)
        q = q.reshape(B * blocks, W, self.H, d).transpose(1, 2)
        o = F.scaled_dot_product_attention(q, windows(k), windows(v.view(B, -1, self.Hkv, d)), attn_mask=mask)
        o = o.transpose(1, 2).reshape(B, blocks * W, self.H * d)[:, :T]
        return linear(o, self.o_proj.weight, fused=fused), kept


class Experts(nn.Module):
    """The router and the experts of a layer; in training as latent weights, in a package as codes and scales."""

    def __init__(self, c):
        super().__init__()
        (a, b), D, I, S = c.torus, c.hidden_size, c.experts["intermediate_size"], c.shared
        self.c, self.N, self.G, self.I = c, a * b, c.experts["group_size"], I
        self.router = nn.Linear(D, 2)
        self.packed = None
        self.wide_shared = nn.Parameter(torch.randn(1, 2 * S, D) / math.sqrt(D))  # rows of gate, then of up
        self.down_shared = nn.Parameter(torch.randn(1, D, S) / math.sqrt(I))
        self.wide_base = nn.Parameter(torch.randn(1, 2 * (I - S), D) / math.sqrt(D))
        self.down_base = nn.Parameter(torch.randn(1, D, I - S) / math.sqrt(I))
        self.wide_own = nn.Parameter(torch.zeros(a * b, 2 * (I - S), D))
        self.down_own = nn.Parameter(torch.zeros(a * b, D, I - S))
        self.wide_gain = nn.Parameter(torch.zeros(a * b, 2 * (I - S), 1))
        self.down_gain = nn.Parameter(torch.zeros(a * b, D, 1))

    def own(self):
        """-> the units that differ: gate and up [N, 2(I - S), D], down [N, D, I - S]"""
        return (self.wide_base * (1 + self.wide_gain) + self.wide_own,
                self.down_base * (1 + self.down_gain) + self.down_own)

    def latents(self):
        """-> gate [N,I,D], up [N,I,D], down [N,D,I]"""
        shared, down = (t.expand(self.N, -1, -1) for t in (self.wide_shared, self.down_shared))
        wide, own = self.own()
        halves = zip(shared.chunk(2, 1), wide.chunk(2, 1))
        return *(torch.cat(pair, 1) for pair in halves), torch.cat((down, own), 2)

    @torch.no_grad()
    def tables(self):
        """-> of gate, up, down: codes [N,out,in] int8, scales [N,out,groups] float16"""
        return self.packed or tuple(ternary(w, self.G) for w in self.latents())

    def distances(self, z, positions):
        """z [n,2] before frac -> squared distances [n,N]"""
        z = z - z.floor()
        delta = (positions - positions.floor() - z[:, None]).abs()
        delta = torch.minimum(delta, 1 - delta)
        return (delta * delta).sum(-1)

    def evaluate(self, u, positions):
        d = self.distances(self.router(u), positions)
        k, tables = self.c.experts["top_k"], self.tables()
        order = torch.argsort(d, dim=-1, stable=True)[:, :k]
        near = d.gather(1, order)
        weights = torch.exp((near[:, :1] - near) / self.c.experts["temperature"])
        weights = weights / weights.sum(-1, keepdim=True)
        y = torch.zeros_like(u)
        for rank in range(k):
            for e in order[:, rank].unique().tolist():
                rows = (order[:, rank] == e).nonzero()[:, 0]
                gate, up, down = ((codes[e], scales[e]) for codes, scales in tables)
                h = F.silu(product(u[rows], *gate, self.G)) * product(u[rows], *up, self.G)
                f = product(h, *down, self.G)
                y[rows] += f if k == 1 else weights[rows, rank, None] * f
        return y, order

    def train_rows(self, u, positions):
        """-> y, points z [n,2], the chosen [n]. The choice has no gradient; every eighth token asks its second expert what it
        would have said, and z learns by how the loss changes from there to here."""
        z = self.router(u)
        d = self.distances(z, positions)
        near, order = d.topk(2, -1, largest=False)
        weights = [kernels.Ternary.apply(w, self.G)
                   for w in (self.wide_shared, self.down_shared, *self.own())]
        y = kernels.ExpertRows.apply(u, kernels.Rows(order[:, 0].contiguous(), self.N), self.G, *weights)
        if torch.is_grad_enabled():
            some = torch.arange(int(torch.randint(SECOND, ())), len(u), SECOND)
            with torch.no_grad():
                other = kernels.ExpertRows.apply(u[some], kernels.Rows(order[some, 1], self.N), self.G, *weights)
                other = y[some] - other
            w = torch.sigmoid((near[some, 1] - near[some, 0]) / self.c.experts["temperature"])
            y = y.index_add(0, some, (w - w.detach())[:, None] * other * SECOND)
        return y, z, order[:, 0]


class Layer(nn.Module):
    def __init__(self, c, kind):
        super().__init__()
        self.input_layernorm = Norm(c.hidden_size, c.rms_norm_eps)
        self.post_attention_layernorm = Norm(c.hidden_size, c.rms_norm_eps)
        self.kind = "pdr" if kind == "pdr" else "attn"
        setattr(self, self.kind, Pdr(c) if kind == "pdr" else Attention(c))
        self.experts = Experts(c)

    @property
    def mix(self):
        return getattr(self, self.kind)


class HalfSpaces(nn.Module):
    """Dykstra's projection; the correction of a half-space is a multiple of its normal, so one number keeps it."""

    def __init__(self, c):
        super().__init__()
        h = c.spp["half_spaces"]
        self.iterations, self.inflation = c.spp["iterations"], c.spp["inflation"]
        self.normals, self.offsets = nn.Parameter(torch.zeros(h, c.hidden_size)), nn.Parameter(torch.zeros(h))

    def forward(self, y):
        """y [n,D]"""
        inverse, bounds = 1 / (self.normals ** 2).sum(-1), self.offsets + self.inflation
        out = ((y @ self.normals.T) > bounds).any(-1).nonzero()[:, 0]
        if not len(out):
            return y
        x, c = y[out], torch.zeros(len(out), len(bounds), dtype=y.dtype)
        for _ in range(self.iterations):
            before = c.clone()
            for j, n in enumerate(self.normals):
                new = (c[:, j] + (x @ n - bounds[j]) * inverse[j]).clamp(min=0)
                x = x - (new - c[:, j])[:, None] * n
                c[:, j] = new
            if torch.equal(c, before):
                break
        return y.index_copy(0, out, x)


class Perspective(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config = c
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(Layer(c, kind) for kind in c.layer_types)
        self.norm = Norm(c.hidden_size, c.rms_norm_eps)
        self.lm_head = nn.Linear(c.hidden_size, c.vocab_size, bias=False)
        a, b = c.torus
        grid = torch.stack(torch.meshgrid((torch.arange(a) + 0.5) / a, (torch.arange(b) + 0.5) / b, indexing="ij"), -1)
        self.register_buffer("positions", grid.view(-1, 2))
        self.spp = HalfSpaces(c) if c.spp else None
        self.watch = None  # a list: forward appends what routed, for each layer

    def zero_state(self, batch):
        return [layer.mix.zero_state(batch) for layer in self.layers]

    def forward(self, ids, state=None):
        """ids [B,T] -> logits [B,T,V], the next state: for each layer a tuple of tensors, batch first"""
        fused = self.training
        state = state or self.zero_state(len(ids))
        x, after = self.embed_tokens(ids), []
        for layer, given in zip(self.layers, state):
            y, given = layer.mix(layer.input_layernorm(x), given, fused)
            after.append(given)
            x = x + y
            u = layer.post_attention_layernorm(x).flatten(0, 1)
            if fused:
                y, z, chosen = layer.experts.train_rows(u, self.positions)
                seen = {"x": x, "z": z.view(*ids.shape, 2), "chosen": chosen.view(ids.shape)}
            else:
                y, chosen = layer.experts.evaluate(u, self.positions)
                seen = {"x": x, "chosen": chosen.view(*ids.shape, -1)}
            if self.watch is not None:
                self.watch.append(seen)
            x = x + y.view_as(x)
        hidden = self.norm(x)
        if self.spp is not None:
            hidden = self.spp(hidden.flatten(0, 1)).view_as(hidden)
        if self.watch is not None:
            self.watch.append({"hidden": hidden})
        return linear(hidden, self.lm_head.weight, fused=fused), after

    def package(self):
        """-> the tensors of model.safetensors, the tensors of experts.safetensors for each layer, ascending"""
        tensors, experts = {"model.experts.positions": self.positions, "lm_head.weight": self.lm_head.weight}, []
        for name, p in self.named_parameters():
            if name.split("_")[-1] in LATENT or name.startswith("lm_head"):
                continue
            tensors["model." + name.replace(".experts.router.", ".router.")] = p.detach()
        for i, layer in enumerate(self.layers):
            experts.append({(e, which): (codes[e], scales[e])
                            for which, (codes, scales) in zip(("gate", "up", "down"), layer.experts.tables())
                            for e in range(layer.experts.N)})
        return tensors, experts

    @staticmethod
    def load(folder, dtype=torch.float32):
        """A package -> the model in evaluation mode"""
        from safetensors_file import read_safetensors

        with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
            c = Config.of(json.load(f))
        model = Perspective(c)
        tensors, _ = read_safetensors(os.path.join(folder, "model.safetensors"))
        own = {"lm_head.weight": tensors.pop("lm_head.weight"), "positions": tensors.pop("model.experts.positions")}
        for name, t in tensors.items():
            own[name.removeprefix("model.").replace(".router.", ".experts.router.")] = t
        missing, unexpected = model.load_state_dict(own, strict=False)
        assert not unexpected and all(m.split("_")[-1] in LATENT for m in missing), (missing, unexpected)
        codes, _ = read_safetensors(os.path.join(folder, "experts.safetensors"))
        for l, layer in enumerate(model.layers):
            layer.experts.packed = tuple(
                (torch.stack([unpack(codes[expert_name(l, e, which)], columns) for e in range(layer.experts.N)]),
                 torch.stack([codes[expert_name(l, e, which) + ".scales"] for e in range(layer.experts.N)]))
                for which, columns in (("gate", c.hidden_size), ("up", c.hidden_size), ("down", layer.experts.I)))
        return model.to(dtype).eval()


def expert_name(layer, expert, which):
    return f"model.layers.{layer}.experts.{expert}.{which}_proj.weight"


def pack(codes):
    """codes [out, in] -> U8 [out, ceil(in / 5)]: five digits of three values a byte, the first the lowest"""
    digits = (F.pad(codes, (0, -codes.shape[1] % 5)) + 1).view(len(codes), -1, 5).to(torch.int32)
    return (digits * torch.tensor([1, 3, 9, 27, 81])).sum(-1).to(torch.uint8)


def unpack(packed, columns):
    digits = packed.to(torch.int32)[..., None] // torch.tensor([1, 3, 9, 27, 81]) % 3
    return (digits.flatten(1)[:, :columns] - 1).to(torch.int8)
