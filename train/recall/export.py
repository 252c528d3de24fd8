#!/usr/bin/env python3
"""Writes the model folder from the checkpoints of a run: base.pt and, where they are there, the modules of
memory.safetensors.

    export.py run ../../models/recall

Matrices are BF16; norms of the base stay exact in it to 3 digits. memory.json has the window and the lists that the base
was trained on; modules are named in it as far as they are there.
"""
import argparse
import json
import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from safetensors_file import write_safetensors  # noqa: E402

from base import BLOCK, SINKS, WINDOW  # noqa: E402
from model import Config, Decoder, RETRIEVE, SUMMARIZE  # noqa: E402

MEMORY = {
    "format": "continuo-memory/1", "block_size": BLOCK, "window": WINDOW, "sinks": SINKS, "kv_dtype": "f16",
    "cold_dtype": "f8", "anchors": {"tokens": 8, "entries": 6, "policy": "segment"},
    "tombstones": {"count": 16, "threshold": None},
    "retrieval": {"every": 0, "blocks": 1, "policy": "similar", "similarity": "dot", "layers": [1]},
    "tokens": {"summarize": "<SUMMARIZE>", "retrieve": "<RETRIEVE>"}}


def byte_names():
    """The character that stands for each byte in a byte-level vocabulary: printable ones for themselves, the others
    from U+0100 on"""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = (b for b in range(256) if b not in printable)
    names = {b: chr(b) for b in printable}
    names.update({b: chr(256 + i) for i, b in enumerate(others)})
    return {names[b]: b for b in range(256)}


def tokenizer():
    special = [(SUMMARIZE, "<SUMMARIZE>"), (RETRIEVE, "<RETRIEVE>")]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [{"id": i, "content": s, "single_word": False, "lstrip": False, "rstrip": False,
                              "normalized": False, "special": True} for i, s in special],
            "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": byte_names(), "merges": []}}


def modules(run, memory):
    """-> the tensors of memory.safetensors; names the modules in memory.json"""
    tensors = {}
    for name in ("index", "tombstones", "trimmer", "walker"):
        path = os.path.join(run, f"{name}.pt")
        if not os.path.exists(path):
            continue
        stored = torch.load(path, weights_only=False)
        tensors.update(stored["tensors"])
        for member, value in stored["memory"].items():
            memory[member] = {**memory[member], **value} if isinstance(memory.get(member), dict) else value
    return tensors


def write_json(path, content):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(content, f, indent=2, ensure_ascii=False)
        f.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("folder")
    args = parser.parse_args()
    stored = torch.load(os.path.join(args.run, "base.pt"), weights_only=False)
    model = Decoder(Config())
    model.load_state_dict(stored["model"])
    os.makedirs(args.folder, exist_ok=True)
    write_safetensors(os.path.join(args.folder, "model.safetensors"), model.published(), "BF16",
                      {"format": "pt", "steps": str(stored["step"]), "minutes": f"{stored['minutes']:.0f}"})
    memory = json.loads(json.dumps(MEMORY))
    tensors = modules(args.run, memory)
    path = os.path.join(args.folder, "memory.safetensors")
    if tensors:
        write_safetensors(path, tensors, "F32", {"format": "pt"})
    elif os.path.exists(path):
        os.remove(path)
    write_json(os.path.join(args.folder, "config.json"), model.config.to_json())
    write_json(os.path.join(args.folder, "tokenizer.json"), tokenizer())
    write_json(os.path.join(args.folder, "memory.json"), memory)
    size = sum(os.path.getsize(os.path.join(args.folder, name)) for name in os.listdir(args.folder))
    print(f"{args.folder}: {model.parameters_count():,} parameters, {stored['step']} steps, {size:,} bytes")


if __name__ == "__main__":
    main()
