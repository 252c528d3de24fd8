#!/usr/bin/env python3
"""Exports a checkpoint, measures the export, and writes card.json and expected.json beside it.

    card.py run/ckpt.pt out_folder --data texts [more ...] --unseen whole unseen texts

Stored as bf16 if the rounded model's validation loss is within 0.3% of the float32 model's, else as f32.
All costs are in bits per byte.
"""
import argparse
import csv
import json
import os
import platform
import re
import subprocess
import time

import numpy as np
import torch

from data import Corpus
from evaluate import bits, bits_per_byte
from export import export, load_checkpoint, load_model
from sample import generate, prefill

PROMPT = b"The harbour master wrote in his log: "
KILOBYTES = (1, 2, 4, 8, 16, 32, 64, 128)
SPAN_EDGES = (0, 1, 4, 16, 64)  # kilobytes
PASSAGES = (256, 512, 1024, 2048, 4096)  # bytes
UNSEEN_BYTES = 256 * 1024
HYPERPARAMETERS = ("batch", "length", "jump", "lr", "lr_end", "warmup", "decay", "clip", "gemm", "seed")
SAMPLE = {"temperature": 0.8, "top_p": 0.95, "seed": 1}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("folder")
    parser.add_argument("--data", nargs="+", required=True, help="the folders it was trained on")
    parser.add_argument("--unseen", nargs="*", default=[], help="files it was not trained on")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--machine", default=f"{os.cpu_count()} cores, {platform.machine()}", help="what trained it")
    parser.add_argument("--limits", default="A small model of books. It writes the look of their language, not sense; "
                        "it knows no facts and follows no instructions.", help="what it cannot do, in words")
    parser.add_argument("--limit", type=int, default=1 << 60, help="bytes of each document, for a quick try")
    return parser.parse_args()


def mean(costs):
    return round(bits_per_byte(costs), 4)


def xz(data):
    """What `xz -9` makes of the bytes, the container included."""
    packed = subprocess.run(["xz", "-9", "-c"], input=bytes(data), capture_output=True, check=True).stdout
    return round(8 * len(packed) / len(data), 4)


def kilobyte(cost, k):
    """The costs of the k-th kilobyte, counted from 1."""
    return cost[(k - 1) * 1024:k * 1024]


def by_kilobyte(costs):
    """The mean over all documents in the 1st, 2nd, 4th, 8th ... kilobyte, and how many are that long."""
    rows = []
    for k in KILOBYTES:
        parts = [kilobyte(c, k) for c in costs if len(c) >= k * 1024]
        if parts:
            rows.append({"kilobyte": k, "documents": len(parts), "bits_per_byte": mean(parts)})
    return rows


def by_span(costs):
    """The mean over spans that grow away from the start, over the longest documents only, so that the spans compare."""
    long = [c for c in costs if len(c) >= SPAN_EDGES[-1] * 1024]
    if not long:
        return None
    return {"documents": len(long),
            "spans_kb": {f"{a}-{b}": mean([c[a * 1024:b * 1024] for c in long])
                         for a, b in zip(SPAN_EDGES, SPAN_EDGES[1:])}}


def unseen_documents(model, paths, limit):
    """Whole documents nothing was trained on, with the state kept and with it emptied regularly."""
    texts = [np.fromfile(path, np.uint8)[:min(limit, UNSEEN_BYTES)] for path in paths]
    kept, every_512, every_4096 = (bits(model, texts, forget=forget) for forget in (None, 512, 4096))
    return {os.path.splitext(os.path.basename(path))[0]: {
        "bytes": len(texts[i]), "bits_per_byte": mean([kept[i]]),
        "forgetting_every_512": mean([every_512[i]]), "forgetting_every_4096": mean([every_4096[i]]),
        "xz9_bits_per_byte": xz(texts[i]),
        "by_kilobyte": {str(k): mean([kilobyte(kept[i], k)]) for k in KILOBYTES if len(texts[i]) >= k * 1024},
        "first_4kb": mean([kept[i][:4096]]),
        "after_64kb": mean([kept[i][65536:]]) if len(texts[i]) > 65536 else None} for i, path in enumerate(paths)}


def same_passage_twice(model, documents):
    """Does a passage cost less the second time? One random passage of each document, read twice in one stream."""
    rows, rng = [], np.random.RandomState(7)
    for size in PASSAGES:
        passages = []
        for document in documents:
            if len(document) > size + 1024:
                start = int(rng.randint(0, len(document) - size))
                passages.append(document[start:start + size])
        if not passages:
            continue
        twice = bits(model, [np.concatenate([p, p]) for p in passages])
        first, second = bits_per_byte([c[:size] for c in twice]), bits_per_byte([c[size:] for c in twice])
        rows.append({"passage_bytes": size, "passages": len(passages), "first_pass": round(first, 4),
                     "second_pass": round(second, 4), "saved_percent": round(100 * (1 - second / first), 1)})
    return rows


def titles(folders):
    """name -> "title, author" from the tables in the folders' README.md"""
    found = {}
    for path in (os.path.join(folder, "README.md") for folder in folders):
        if not os.path.exists(path):
            continue
        with open(path, encoding="utf-8") as f:
            for line in f:
                cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
                name = re.fullmatch(r"`(.+)\.txt`", cells[0])
                if name and len(cells) > 3:
                    found[name[1]] = f"{cells[2]}, {cells[3]}"
    return found


def expected(model):
    """The logits and the greedy continuation that an engine must reproduce from the exported weights."""
    logits, _ = prefill(model, PROMPT)
    greedy = bytes(generate(model, PROMPT, 32, 0, 1, 0))
    model.backend = "torch"  # the reference path, as a check of the fused one
    reference, _ = prefill(model, PROMPT)
    model.backend = "auto"
    return {"prompt": PROMPT.decode(), "prompt_bytes": list(PROMPT),
            "how": "float32 forward, exported weights, empty state; logits after the prompt's last byte",
            "logits": [float(x) for x in logits],
            "reference_path_max_abs_difference": float(np.abs(reference - logits).max()),
            "greedy_bytes": list(greedy), "greedy_text": greedy.decode("utf-8", "replace")}


def training_minutes(checkpoint_path):
    with open(os.path.join(os.path.dirname(checkpoint_path), "log.csv"), encoding="utf-8", newline="") as f:
        return float(list(csv.DictReader(f))[-1]["minutes"])


def write_json(path, content):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(content, f, indent=1, ensure_ascii=False)
        f.write("\n")


def main():
    args = arguments()
    torch.set_num_threads(args.threads)
    start = time.time()
    model, checkpoint = load_checkpoint(args.checkpoint)
    settings, tokens = checkpoint["args"], checkpoint["tokens"]
    corpus = Corpus(args.data, settings["holdout"], settings["exclude"])
    if corpus.names != checkpoint["texts"]:
        raise SystemExit("--data must name the folders the model was trained on, in the same order.")
    val = [np.asarray(v[:args.limit]) for v in corpus.val]
    f32 = bits_per_byte(bits(model, val))
    print(f"f32 {f32:.4f} bits per byte, {time.time() - start:.0f} s", flush=True)
    export(model, args.folder, "bf16", tokens)
    exported = load_model(args.folder)
    costs = bits(exported, val)
    bf16 = bits_per_byte(costs)
    print(f"bf16 {bf16:.4f}", flush=True)
    dtype = "bf16" if bf16 <= f32 * 1.003 else "f32"
    if dtype == "f32":
        export(model, args.folder, "f32", tokens)
        exported = load_model(args.folder)
        costs = bits(exported, val)
    text = bytes(generate(exported, PROMPT, 400, **SAMPLE)).decode("utf-8", "replace")
    print(text, flush=True)
    write_json(os.path.join(args.folder, "expected.json"), expected(exported))
    names = titles(args.data)
    card = {
        "name": os.path.basename(os.path.normpath(args.folder)), "model_type": "rwkv7",
        "parameters": model.num_params(), "stored_dtype": dtype,
        "file_bytes": os.path.getsize(os.path.join(args.folder, "model.safetensors")),
        "vocabulary": "256 bytes, no special tokens", "training_tokens": tokens, "steps": checkpoint["step"],
        "training_minutes": training_minutes(args.checkpoint), "training_machine": args.machine,
        "training_bytes": corpus.size()[0], "passes_over_the_data": round(tokens / corpus.size()[0], 2),
        "hyperparameters": {name: settings[name] for name in HYPERPARAMETERS},
        "held_out": f"the last {settings['holdout']:.0%} of every training text; of the documents under `unseen` "
                    f"(their first {UNSEEN_BYTES // 1024} KB are measured) nothing was trained on",
        "validation": {
            "how": "each held-out part read from its first byte with an empty state, the state carried to its end, "
                   "float32 forward; the first byte costs 8 bits",
            "bytes": sum(map(len, val)), "bits_per_byte": mean(costs),
            "bits_per_byte_f32_weights": round(f32, 4), "bits_per_byte_bf16_weights": round(bf16, 4),
            "bits_per_byte_forgetting_every_512": mean(bits(exported, val, forget=512)),
            "xz9_bits_per_byte": xz(np.concatenate(val)),
            "texts": {name: {"bytes": len(v), "bits_per_byte": mean([c]), "xz9_bits_per_byte": xz(v)}
                      for name, v, c in zip(corpus.names, val, costs)}},
        "unseen": unseen_documents(exported, args.unseen, args.limit),
        "adaptation": {"held_out_by_kilobyte": by_kilobyte(costs), "held_out_spans": by_span(costs),
                       "same_passage_twice": same_passage_twice(exported, val)},
        "texts": {name: names.get(name, "") for name in corpus.names},
        "sample": {"prompt": PROMPT.decode(), **SAMPLE, "text": text},
        "limits": args.limits,
    }
    write_json(os.path.join(args.folder, "card.json"), card)
    print(f"{args.folder}/card.json: {card['validation']['bits_per_byte']} bits per byte, xz -9 "
          f"{card['validation']['xz9_bits_per_byte']}; {time.time() - start:.0f} s")


if __name__ == "__main__":
    main()
