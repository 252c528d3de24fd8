"""Forward passes over lists: what an external memory puts before the tokens, and attention whose shares can be changed."""
import torch

from model import turn


def causal(before, tokens):
    """-> [1, 1, tokens, before + tokens]: True where a token may look; all of what stands before it"""
    own = torch.ones(tokens, tokens, dtype=torch.bool).tril()
    return torch.cat((torch.ones(tokens, before, dtype=torch.bool), own), 1)[None, None]


@torch.no_grad()
def teach(model, ids):
    """Full attention -> logits [B, T, V], hidden [B, T, D], of each layer the keys and values [B, G, T, d], un-rotated"""
    x, kept = model.embed_tokens(ids), []
    for layer in model.layers:
        _, k, v = layer.self_attn.project(layer.input_layernorm(x))
        kept.append((k, v))
        x = layer(x, model.rope)
    hidden = model.norm(x)
    return model.lm_head(hidden), hidden, kept


def attend(attention, n, rope, change):
    """Attention written out. change(weights [B, H, T, T]) -> weights; each row is divided by its sum again.
    -> output, weights before the change"""
    q, k, v = attention.project(n)
    cos, sin = rope
    T = n.shape[1]
    repeat = attention.config.heads // attention.config.groups
    q, k = turn(q, cos[:T], sin[:T]), turn(k, cos[:T], sin[:T]).repeat_interleave(repeat, 1)
    scores = (q @ k.transpose(-1, -2)) / attention.config.channels ** 0.5
    weights = scores.masked_fill(~torch.ones(T, T, dtype=torch.bool).tril(), float("-inf")).softmax(-1)
    if change is not None:
        changed = change(weights)
        changed = changed / changed.sum(-1, keepdim=True).clamp(min=1e-9)
    else:
        changed = weights
    return attention.o_proj((changed @ v.repeat_interleave(repeat, 1)).transpose(1, 2).flatten(2)), weights


def run_changed(model, ids, change):
    """-> logits, of each layer the weights [B, H, T, T]"""
    x, weights = model.embed_tokens(ids), []
    for layer in model.layers:
        y, w = attend(layer.self_attn, layer.input_layernorm(x), model.rope, change)
        weights.append(w)
        x = x + y
        x = x + layer.mlp(layer.post_attention_layernorm(x))
    return model.lm_head(model.norm(x)), weights
