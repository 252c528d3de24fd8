"""First weights. All small random numbers but for an induction circuit set by hand (Olsson et al. 2022, "In-context
learning and induction heads"): a model of this size and budget does not find it by itself. With plain first weights
it copied no digit of a fact after 1,000 steps.

The residual stream: channels 0-62 a random code of the token, 64-126 the code of the token before, 128-190 of the one
before that, 192-254 the code of what an induction head expects next, 255 the number 1.
"""
import math

import torch

CODE, BEFORE, BEFORE_2, NEXT, ONE = slice(0, 63), slice(64, 127), slice(128, 191), slice(192, 255), 255
SLOWEST = 1.1e-3  # radians a position: pairs of channels that turn slower than this say what, not where


def begin(model, seed=1):
    c = model.config
    assert (c.hidden, c.heads, c.groups, c.channels) == (256, 4, 2, 64), "the circuit is laid out for this shape"
    rng = torch.Generator().manual_seed(seed)
    normal = lambda *shape: torch.randn(*shape, generator=rng)
    d = c.channels
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 2:
                deep = name.endswith(("o_proj.weight", "down_proj.weight"))
                p.copy_(normal(*p.shape) * (0.02 / math.sqrt(2 * c.layers) if deep else 0.02))
        code = normal(c.vocabulary, 63).sign()
        embed = model.embed_tokens.weight
        embed.copy_(normal(*embed.shape) * 0.05)
        embed[:, CODE] += code
        embed[:, ONE] = 1

        # Layer 0, heads 0 and 1: the same query for every token, whose peak lies one and two positions back.
        first = model.layers[0].self_attn
        speed = c.theta ** (-torch.arange(0, d, 2).double() / d)
        strength = 3.0
        for head, back in ((0, 1), (1, 2)):
            rows = first.q_proj.weight[head * d:(head + 1) * d]
            rows.zero_()
            # A query turned by −speed·back before its own turn meets the key that stands `back` positions earlier.
            rows[:d // 2, ONE] = (strength * torch.cos(speed * back)).float()
            rows[d // 2:, ONE] = (-strength * torch.sin(speed * back)).float()
        first.k_proj.weight[:d].zero_()
        first.k_proj.weight[:d // 2, ONE] = strength
        first.v_proj.weight[:d].zero_()
        first.v_proj.weight[:63, CODE] = torch.eye(63)
        for head, to in ((0, BEFORE), (1, BEFORE_2)):
            columns = first.o_proj.weight[:, head * d:(head + 1) * d]
            columns.zero_()
            columns[to, :63] = 0.5 * torch.eye(63)

        # Layer 1, head 0: asks for positions behind an earlier copy of the last two tokens, and brings their token.
        second = model.layers[1].self_attn
        slow = [i for i in range(d // 2) if speed[i] < SLOWEST]
        slow += [i + d // 2 for i in slow]
        one, two = (normal(len(slow), 63) * (1.2 / math.sqrt(63)) for _ in range(2))
        for rows, at in ((second.q_proj.weight[:d], (CODE, BEFORE)), (second.k_proj.weight[:d], (BEFORE, BEFORE_2))):
            rows.zero_()
            block = torch.zeros(len(slow), c.hidden)
            block[:, at[0]], block[:, at[1]] = one, two
            rows[slow] = block
        second.v_proj.weight[:d].zero_()
        second.v_proj.weight[:63, CODE] = torch.eye(63)
        columns = second.o_proj.weight[:, :d]
        columns.zero_()
        columns[NEXT, :63] = torch.eye(63)
        model.lm_head.weight[:, NEXT] += 0.1 * code
    return model
