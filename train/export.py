#!/usr/bin/env python3
"""Writes a checkpoint as a model folder: model.safetensors (bf16 or f32) and config.json.

    export.py run/ckpt.pt out_folder --dtype bf16|f32

Also the reader and writer of safetensors that the other scripts use; neither needs the safetensors package.
"""
import argparse
import json
import os

import torch

from rwkv7 import RWKV7, Config
from safetensors_file import read_safetensors, write_safetensors

TORCH_NAME = {"bf16": "bfloat16", "f32": "float32"}


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
