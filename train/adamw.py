"""AdamW over a model's parameters with the official RWKV-7 groups.

Weight decay on the matrices named *.weight, twice the learning rate on w0 (the decay's bias), neither elsewhere.
"""
from typing import NamedTuple

import torch

import fused


class Slot(NamedTuple):
    p: torch.nn.Parameter
    rate: float  # multiplies the learning rate
    decay: float
    m: torch.Tensor  # first moment, shape of p
    v: torch.Tensor  # second moment, shape of p


class AdamW:
    def __init__(self, model, betas=(0.9, 0.99), eps=1e-18, weight_decay=0.1):
        self.betas, self.eps, self.t = betas, eps, 0
        self.slots = [
            Slot(p, 2.0 if name.endswith("att.w0") else 1.0,
                 weight_decay if name.endswith(".weight") and p.squeeze().dim() >= 2 else 0.0,
                 torch.zeros_like(p), torch.zeros_like(p))
            for name, p in model.named_parameters()]

    def zero_grad(self):
        for slot in self.slots:
            slot.p.grad = None

    def grad_norm(self):
        grads = [slot.p.grad.detach() for slot in self.slots if slot.p.grad is not None]
        return torch.sqrt(sum((g ** 2).sum() for g in grads)).item()

    @torch.no_grad()
    def step(self, lr, scale=1.0):
        """scale multiplies every gradient: the clipping."""
        self.t += 1
        b1, b2 = self.betas
        c1, c2 = 1 - b1 ** self.t, 1 - b2 ** self.t
        for p, rate, decay, m, v in self.slots:
            if p.grad is None:
                continue
            if p.device.type == "cpu" and p.dtype == torch.float32 and fused.available():
                fused.adamw_step(p, p.grad, m, v, lr * rate, self.betas, self.eps, decay, (c1, c2), scale)
            else:
                g = p.grad * scale
                m.mul_(b1).add_(g, alpha=1 - b1)
                v.mul_(b2).addcmul_(g, g, value=1 - b2)
                p.sub_(lr * rate * (decay * p + (m / c1) / ((v / c2).sqrt() + self.eps)))

    def state_dict(self):
        return {"t": self.t, "m": [slot.m for slot in self.slots], "v": [slot.v for slot in self.slots]}

    def load_state_dict(self, stored):
        self.t = stored["t"]
        for slot, m, v in zip(self.slots, stored["m"], stored["v"]):
            slot.m.copy_(m)
            slot.v.copy_(v)
