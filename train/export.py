#!/usr/bin/env python3
"""Writes a checkpoint as a model folder: model.safetensors (bf16 or f32) and config.json.

    export.py run/ckpt.pt out_folder --dtype bf16|f32

Also the reader and writer of safetensors that the other scripts use; neither needs the safetensors package.
"""
import argparse
import json
import os
import struct

import numpy as np
import torch

from rwkv7 import RWKV7, Config

TORCH_NAME = {"bf16": "bfloat16", "f32": "float32"}


def write_safetensors(path, tensors, dtype, metadata):
    """dtype: "BF16" (rounded to nearest even) or "F32". metadata: {str: str}.

    The file: header length (u64, little-endian), JSON header padded with spaces so that the data start on a
    64-byte boundary, then the tensors in the order of their names without gaps.
    """
    header, blobs, at = {"__metadata__": metadata}, [], 0
    for name in sorted(tensors):
        t = tensors[name].detach().cpu().contiguous()
        if dtype == "BF16":
            raw = t.to(torch.bfloat16).view(torch.int16).numpy().astype("<i2").tobytes()
        else:
            raw = t.to(torch.float32).numpy().astype("<f4").tobytes()
        header[name] = {"dtype": dtype, "shape": list(t.shape), "data_offsets": [at, at + len(raw)]}
        blobs.append(raw)
        at += len(raw)
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-(8 + len(head)) % 64)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head)
        for raw in blobs:
            f.write(raw)


def read_safetensors(path):
    """-> {name: float32 tensor}, metadata. Reads BF16 and F32; raises ValueError on another dtype."""
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
        else:
            raise ValueError(f"{name}: expected dtype BF16 or F32, found {entry['dtype']}")
        tensors[name] = torch.from_numpy(x.copy()).view(entry["shape"])
    return tensors, metadata


def load_model(folder):
    """A model folder -> RWKV7 in float32, projections in float32."""
    model = RWKV7(Config.load(os.path.join(folder, "config.json")))
    model.load_state_dict(read_safetensors(os.path.join(folder, "model.safetensors"))[0])
    return model.eval()


def load_checkpoint(path):
    """-> the model in float32, the whole checkpoint"""
    checkpoint = torch.load(path, map_location="cpu", weights_only=False)
    model = RWKV7(Config.of(checkpoint["model"]))
    model.load_state_dict(checkpoint["model"])
    return model.eval(), checkpoint


def export(model, folder, dtype, tokens):
    """dtype: "bf16" or "f32"; tokens: how many the model was trained on, noted in the file's metadata."""
    os.makedirs(folder, exist_ok=True)
    metadata = {"format": "pt", "architecture": "rwkv7", "training_tokens": str(tokens)}
    write_safetensors(os.path.join(folder, "model.safetensors"), model.state_dict(), dtype.upper(), metadata)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump({**model.config.to_json(), "torch_dtype": TORCH_NAME[dtype]}, f, indent=2)
        f.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("folder")
    parser.add_argument("--dtype", choices=list(TORCH_NAME), default="bf16")
    args = parser.parse_args()
    model, checkpoint = load_checkpoint(args.checkpoint)
    export(model, args.folder, args.dtype, checkpoint["tokens"])
    size = os.path.getsize(os.path.join(args.folder, "model.safetensors"))
    print(f"{args.folder}: {model.num_params():,} parameters, {size:,} bytes")


if __name__ == "__main__":
    main()
