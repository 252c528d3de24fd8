"""Safetensors files, written and read without the package of that name."""
import json
import struct

import numpy as np
import torch


def write_safetensors(path, tensors, dtype, metadata):
    """dtype: "BF16" (rounded to nearest even) or "F32", or None: tensors are uint8 or float16 and stay so.
    metadata: {str: str}.

    The file: header length (u64, little-endian), JSON header padded with spaces so that the data start on a
    64-byte boundary, then the tensors in the order of their names without gaps.
    """
    header, blobs, at = {"__metadata__": metadata}, [], 0
    for name in sorted(tensors):
        t, own = tensors[name].detach().cpu().contiguous(), dtype
        if dtype == "BF16":
            raw = t.to(torch.bfloat16).view(torch.int16).numpy().astype("<i2").tobytes()
        elif dtype is None:
            own, layout = {torch.uint8: ("U8", "u1"), torch.float16: ("F16", "<f2")}[t.dtype]
            raw = t.numpy().astype(layout).tobytes()
        else:
            raw = t.to(torch.float32).numpy().astype("<f4").tobytes()
        header[name] = {"dtype": own, "shape": list(t.shape), "data_offsets": [at, at + len(raw)]}
        blobs.append(raw)
        at += len(raw)
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-(8 + len(head)) % 64)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head)
        for raw in blobs:
            f.write(raw)


def read_safetensors(path):
    """-> {name: tensor}, metadata. BF16 and F32 become float32, F16 and U8 stay; raises ValueError on another dtype."""
    with open(path, "rb") as f:
        raw = f.read()
    length, = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8:8 + length])
    metadata, tensors = header.pop("__metadata__", {}), {}
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        part = raw[8 + length + start:8 + length + end]
        if entry["dtype"] == "BF16":
            x = (np.frombuffer(part, "<u2").astype(np.uint32) << 16).view(np.float32)
        elif entry["dtype"] == "F32":
            x = np.frombuffer(part, "<f4")
        elif entry["dtype"] in ("F16", "U8"):
            x = np.frombuffer(part, {"F16": "<f2", "U8": "u1"}[entry["dtype"]])
        else:
            raise ValueError(f"{name}: expected dtype BF16, F32, F16 or U8, found {entry['dtype']}")
        tensors[name] = torch.from_numpy(x.copy()).view(entry["shape"])
    return tensors, metadata
