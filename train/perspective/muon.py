"""Muon (Jordan et al. 2024) with the update's size of Liu et al. 2025, over matrices and stacks of them.

Matrices of one shape are made orthogonal together: an expert alone is too small a product to be fast.
"""
import math

import torch

STEPS = 5
A, B, C = 3.4445, -4.7750, 2.0315


def orthogonal(g):
    """g [n, out, in] -> the same with singular values near 1, in bfloat16"""
    x = g.bfloat16()
    turned = x.shape[1] > x.shape[2]
    if turned:
        x = x.transpose(1, 2)
    x = x / (x.float().flatten(1).norm(dim=1)[:, None, None] + 1e-7).bfloat16()
    for _ in range(STEPS):
        s = x @ x.transpose(1, 2)
        x = A * x + (B * s + C * (s @ s)) @ x
    return x.transpose(1, 2) if turned else x


class Muon:
    """matrices: parameters [out,in] or [n,out,in], or pairs (parameter, parts) whose rows are `parts` matrices"""

    def __init__(self, matrices, momentum=0.95, decay=0.1):
        self.momentum, self.decay = momentum, decay
        self.params = [p for p, _ in matrices]
        self.shapes = [(-1, p.shape[-2] // parts, p.shape[-1]) for p, parts in matrices]
        self.buffers = [torch.zeros_like(p) for p in self.params]

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    @torch.no_grad()
    def step(self, lr):
        shapes = {}
        for p, m, shape in zip(self.params, self.buffers, self.shapes):
            m.lerp_(p.grad, 1 - self.momentum)
            shapes.setdefault(shape, []).append((p, p.grad.lerp(m, self.momentum).reshape(shape)))
        for shape, members in shapes.items():
            updates = orthogonal(torch.cat([g for _, g in members])).float()
            size = 0.2 * math.sqrt(max(shape[1:]))
            for (p, g), u in zip(members, updates.split([len(g) for _, g in members])):
                p.mul_(1 - lr * self.decay).add_(u.reshape(p.shape), alpha=-lr * size)

    def state_dict(self):
        return self.buffers

    def load_state_dict(self, stored):
        for m, s in zip(self.buffers, stored):
            m.copy_(s)
