"""The base decoder: a byte-level llama in plain PyTorch, with the names and shapes of the published one.

Vocabulary: 256 bytes, <SUMMARIZE> (256), <RETRIEVE> (257). Everything here is float32; what the engine computes is
docs/models.md.
"""
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

SUMMARIZE, RETRIEVE = 256, 257


@dataclass(frozen=True)
class Config:
    vocabulary: int = 258
    hidden: int = 256
    layers: int = 4
    heads: int = 4
    groups: int = 2
    channels: int = 64  # of a head
    intermediate: int = 704
    eps: float = 1e-5
    theta: float = 100000.0
    positions: int = 1024

    def to_json(self):
        return {
            "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": self.vocabulary,
            "hidden_size": self.hidden, "num_hidden_layers": self.layers, "num_attention_heads": self.heads,
            "num_key_value_heads": self.groups, "head_dim": self.channels, "intermediate_size": self.intermediate,
            "hidden_act": "silu", "rms_norm_eps": self.eps, "max_position_embeddings": self.positions,
            "rope_theta": self.theta, "rope_scaling": None, "tie_word_embeddings": False, "attention_bias": False,
            "mlp_bias": False, "torch_dtype": "bfloat16"}


def rope_tables(config):
    """-> cos, sin [positions, channels]: halves of a head turn together, as published"""
    pairs = torch.arange(0, config.channels, 2).double() / config.channels
    angle = torch.outer(torch.arange(config.positions).double(), config.theta ** -pairs).repeat(1, 2)
    return angle.cos().float(), angle.sin().float()


def turn(x, cos, sin):
    """x [..., T, channels]; cos, sin [T, channels]"""
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config = c
        self.q_proj = nn.Linear(c.hidden, c.heads * c.channels, bias=False)
        self.k_proj = nn.Linear(c.hidden, c.groups * c.channels, bias=False)
        self.v_proj = nn.Linear(c.hidden, c.groups * c.channels, bias=False)
        self.o_proj = nn.Linear(c.heads * c.channels, c.hidden, bias=False)

    def project(self, n):
        """n [B, T, D] -> q [B, H, T, d], k, v [B, G, T, d], none of them turned"""
        c, (B, T, _) = self.config, n.shape
        q = self.q_proj(n).view(B, T, c.heads, c.channels).transpose(1, 2)
        k = self.k_proj(n).view(B, T, c.groups, c.channels).transpose(1, 2)
        v = self.v_proj(n).view(B, T, c.groups, c.channels).transpose(1, 2)
        return q, k, v

    def forward(self, n, rope, extra=None, mask=None):
        """extra: (k, v) [B, G, T', d] put before those of the tokens, which keys and values of a list are made of;
        rope then covers T' + T positions. mask [B, 1, T, T' + T]: what is added to the scores; None: causal."""
        q, k, v = self.project(n)
        if extra is not None:
            k, v = torch.cat((extra[0], k), 2), torch.cat((extra[1], v), 2)
        cos, sin = rope
        slots, T = k.shape[2], q.shape[2]
        q = turn(q, cos[slots - T:slots], sin[slots - T:slots])
        k = turn(k, cos[:slots], sin[:slots])
        y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None, enable_gqa=True)
        return self.o_proj(y.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = nn.Linear(c.hidden, c.intermediate, bias=False)
        self.up_proj = nn.Linear(c.hidden, c.intermediate, bias=False)
        self.down_proj = nn.Linear(c.intermediate, c.hidden, bias=False)

    def forward(self, n):
        return self.down_proj(F.silu(self.gate_proj(n)) * self.up_proj(n))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(c.hidden, c.eps)
        self.self_attn = Attention(c)
        self.post_attention_layernorm = nn.RMSNorm(c.hidden, c.eps)
        self.mlp = Mlp(c)

    def forward(self, x, rope, extra=None, mask=None):
        x = x + self.self_attn(self.input_layernorm(x), rope, extra, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self, config=Config()):
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocabulary, config.hidden)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.hidden, config.eps)
        self.lm_head = nn.Linear(config.hidden, config.vocabulary, bias=False)
        self.rope = rope_tables(config)

    def hidden(self, tokens, extra=None, mask=None):
        """tokens [B, T] -> the hidden vectors after the last norm [B, T, D]. extra: of each layer, see Attention."""
        return self.last_two(tokens, extra, mask)[1]

    def last_two(self, tokens, extra=None, mask=None):
        """-> what the last layer's attention reads [B, T, D], the hidden vectors after the last norm"""
        x = self.embed_tokens(tokens)
        for l, layer in enumerate(self.layers):
            before = x
            x = layer(x, self.rope, None if extra is None else extra[l], mask)
        return self.layers[-1].input_layernorm(before), self.norm(x)

    def forward(self, tokens):
        return self.lm_head(self.hidden(tokens))

    def published(self):
        """-> the tensors under their published names"""
        return {name if name.startswith("lm_head") else f"model.{name}": t for name, t in self.state_dict().items()}

    def parameters_count(self):
        return sum(p.numel() for p in self.parameters())
