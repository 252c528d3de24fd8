"""The engine's ngram memory of bytes (docs/ngram.md) behind a network that is trained: the ctypes binding of memory.cc.

What a batch of streams reads goes through one memory each, in order. Compiled with g++ at first use.
"""
import ctypes
import functools
import glob
import os
import sys

import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
NATIVE = os.path.join(HERE, "..", "..", "native")
sys.path.append(os.path.join(HERE, ".."))
import fused  # noqa: E402

SLOTS = 58_368


@functools.lru_cache(maxsize=None)
def _lib():
    includes = sorted(glob.glob(os.path.join(NATIVE, "backends", "ngram", "*.h")))
    includes += [os.path.join(NATIVE, "graph", "ngram.h"), os.path.join(NATIVE, "backends", "cpu", "kernels", "ngram.h")]
    lib = fused.compile_kernels(os.path.join(HERE, "memory.cc"), ("-std=c++20", "-ffp-contract=off", "-I" + NATIVE), includes)
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    lib.memory_open.restype, lib.memory_open.argtypes = pointer, [size, pointer]
    lib.memory_clear.argtypes = lib.memory_close.argtypes = lib.memory_base_weight.argtypes = [pointer]
    lib.memory_clear.restype = lib.memory_close.restype = lib.memory_read.restype = None
    lib.memory_base_weight.restype = ctypes.c_float
    lib.memory_read.argtypes = [pointer, pointer, size, pointer, pointer]
    return lib


def _at(array):
    return None if array is None else array.ctypes.data_as(ctypes.c_void_p)


class Memories:
    """One memory for each of `count` streams, all empty. learned: float32 [12800], or None."""

    def __init__(self, count, learned=None, slots=SLOTS):
        self.learned = None if learned is None else np.ascontiguousarray(learned, np.float32)
        self.handles = [_lib().memory_open(slots, _at(self.learned)) for _ in range(count)]

    def __del__(self):
        for handle in getattr(self, "handles", []):
            _lib().memory_close(handle)

    def clear(self, stream):
        _lib().memory_clear(self.handles[stream])

    def read(self, stream, tokens, base=None):
        """tokens [T] -> the logits behind each, float32 [T,256]. base: the network's logits, the same shape."""
        tokens = np.ascontiguousarray(tokens, np.int32)
        base = None if base is None else np.ascontiguousarray(base, np.float32)
        logits = np.empty((len(tokens), 256), np.float32)
        _lib().memory_read(self.handles[stream], _at(tokens), len(tokens), _at(base), _at(logits))
        return logits

    def mixed(self, x, base):
        """x [B,T], base [B,T,256] with gradient -> logits behind the memories. The gradient goes through the base alone, by
        the weight that the memory gives it at the window's beginning."""
        weights = torch.tensor([_lib().memory_base_weight(handle) for handle in self.handles])
        given = base.detach()
        read = [self.read(i, tokens, logits) for i, (tokens, logits) in enumerate(zip(x.numpy(), given.numpy()))]
        return torch.from_numpy(np.stack(read)) + weights[:, None, None] * (base - given)
