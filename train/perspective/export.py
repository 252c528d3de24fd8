#!/usr/bin/env python3
"""Writes the model folder from a checkpoint: config.json, model.safetensors (BF16), experts.safetensors (ternary3),
tokenizer.json, expected.json; and the run's log.csv as training-log.csv.

    export.py run/ckpt.pt ../../models/mine --data ../../data/texts ../../data/corpus --exclude flaubert-bovary goethe-faust voltaire-candide

The texts are for what is set by measuring: the half-spaces, fitted to hidden vectors; `mpd`'s and `hdm`'s limits. Training
texts only; nothing of it sees a held-out byte. expected.json is of a known prompt.
"""
import argparse
import hashlib
import json
import math
import os
import shutil
import sys

import numpy as np
import torch
import torch.nn.functional as F

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from data import Corpus  # noqa: E402
from safetensors_file import write_safetensors  # noqa: E402

from model import Config, Perspective, expert_name, pack, rope_increments  # noqa: E402

PROMPT = ("It was a fine morning in the beginning of May; the windows stood open, and the gentlemen who had come down by the "
          "early train were walking to and fro before the house, talking of the harbour and of the price of wheat.\n\n\"You "
          "will stay to dinner,\" said the old lady, without looking up from her letters.\n")
RECENT = 64  # tokens that `adapt` looks back on
HALF_SPACES = {"half_spaces": 8, "iterations": 12, "inflation": 0.25}
MPD = {"layers": 2, "perspectives": ["base", "jitter", "temperature", "dropout"], "jsd": 0.1, "jitter_std": 0.1,
       "temperature": 2.0, "dropout": 0.05}
HDM = {"bits": 2048, "banks": 8, "seed": 20240917, "hit_max": math.floor(2048 / 2 - 4.5 * math.sqrt(2048) / 2), "blend": 0.5}
OUTSIDE = 0.002  # share of hidden vectors that a half-space leaves out


def byte_names():
    """The character that stands for each byte, the byte's value its id: printable ones from U+0021, the others from U+0100"""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names, other = {}, 256
    for b in range(256):
        names[chr(b if b in printable else other)] = b
        other += b not in printable
    return names


def tokenizer():
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": level, "post_processor": None, "decoder": {**level, "add_prefix_space": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": byte_names(), "merges": []}}


def config(c, digest):
    """-> the content of config.json, but for what is measured: spp, mpd, hdm"""
    L = len(c.layer_types)
    return {
        "model_type": "perspective", "architectures": ["PerspectiveForCausalLM"], "vocab_size": c.vocab_size,
        "hidden_size": c.hidden_size, "num_hidden_layers": L, "layer_types": list(c.layer_types),
        "ffn_types": ["experts"] * L, "intermediate_size": c.experts["intermediate_size"], "rms_norm_eps": c.rms_norm_eps,
        "tie_word_embeddings": False, "num_attention_heads": c.num_attention_heads,
        "num_key_value_heads": c.num_key_value_heads, "head_dim": c.head_dim, "sliding_window": c.sliding_window,
        "rope_theta": c.rope_theta, "rope_increments": rope_increments(c.rope_theta, c.head_dim), "pdr": c.pdr,
        "experts": {**c.experts, "digest": digest}, "recent": RECENT, "spp": None, "mpd": None, "hdm": None,
        "fmea": {"targets": ["pdr.p_proj", "pdr.v_proj"], "rank": 4, "seed": 7, "directions": 2, "learning_rate": 0.02,
                 "anchor": 0.01, "population": 2, "sigma": 0.05, "router_rate": 0.004, "router_anchor": 0.1},
        "torch_dtype": "bfloat16"}


def digest(layers):
    """The sha256 over the sha256 of each layer: experts ascending; of gate, up, down the codes, then the scales"""
    whole = hashlib.sha256()
    for experts in layers:
        one = hashlib.sha256()
        for (e, which) in sorted(experts, key=lambda key: (key[0], ("gate", "up", "down").index(key[1]))):
            codes, scales = experts[e, which]
            one.update(pack(codes).numpy().tobytes())
            one.update(scales.view(torch.int16).numpy().astype("<i2").tobytes())
        whole.update(one.digest())
    return whole.hexdigest()


def windows(corpus, count, length, seed=3):
    """-> [count, length] bytes of training texts"""
    rng = np.random.RandomState(seed)
    texts = [t for t in corpus.train if len(t) > length]
    chance = np.array([len(t) for t in texts], float)
    rows = []
    for file in rng.choice(len(texts), count, p=chance / chance.sum()):
        at = rng.randint(0, len(texts[file]) - length)
        rows.append(texts[file][at:at + length])
    return torch.from_numpy(np.stack(rows).astype(np.int64))


@torch.no_grad()
def fit_half_spaces(model, corpus):
    """Normals: the directions in which hidden vectors vary most, both ways. Each offset leaves OUTSIDE of them out.

    Hidden vectors come from windows read from an empty state, the first 64 bytes left out. -> normals, offsets"""
    model.watch = watch = []
    model(windows(corpus, 96, 512))
    model.watch = None
    hidden = watch[-1]["hidden"][:, 64:].flatten(0, 1).double()
    _, _, axes = torch.linalg.svd(hidden - hidden.mean(0), full_matrices=False)
    axes = axes[:HALF_SPACES["half_spaces"] // 2]
    normals = torch.cat((axes, -axes)).float()
    along = hidden.float() @ normals.T
    reach = torch.quantile(along, 1 - OUTSIDE, dim=0)
    print(f"half-spaces: {(along > reach).any(1).float().mean():.4f} of hidden vectors are projected")
    return normals, reach - HALF_SPACES["inflation"]


@torch.no_grad()
def measure(model, corpus):
    """What limits should be: of windows of RECENT bytes read from an empty state, as `adapt` reads them, the surprisal that
    2% exceed; of draws in longer windows, the entropy that a tenth exceed, and the largest p that a tenth stay below."""
    ids = windows(corpus, 1024, RECENT, seed=4)
    nll = F.cross_entropy(model(ids[:, :-1])[0].flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    ids = windows(corpus, 64, 512, seed=5)
    lp = model(ids)[0][:, 64:].log_softmax(-1).flatten(0, 1)
    entropy = -(lp.exp() * lp).sum(-1)
    most = lp.max(-1).values.exp()
    max_p, high = round(torch.quantile(most, 0.1).item(), 2), round(torch.quantile(entropy, 0.9).item(), 2)
    print(f"windows of {RECENT}: {nll.mean():.3f} nats a byte; draws: entropy {entropy.mean():.3f} nats, largest p "
          f"{most.mean():.3f}, in the mean; {((most < max_p) | (entropy > high)).float().mean():.3f} of them would look again")
    return {"mpd": {**MPD, "max_p": max_p, "entropy": high},
            "hdm": {**HDM, "write_nats": round(torch.quantile(nll, 0.98).item(), 2)}}


@torch.no_grad()
def expected(folder):
    """Surprisals of PROMPT, read from an empty state by the written package, in float64 but for the rounding of activations"""
    ids, found = torch.tensor([list(PROMPT.encode())]), []
    for dtype in (torch.float32, torch.double):
        model = Perspective.load(folder, dtype)
        model.watch = watch = []
        logits = model(ids)[0][0].double()
        found.append(F.cross_entropy(logits[:-1], ids[0, 1:], reduction="none"))
    nll = found[1].tolist()
    return {"about": "ids are the bytes of a prompt, fed one after another into a fresh session. nll[i] = -ln p(ids[i] | "
                     "ids[:i]), nll[0] is null. logits: after the last id. routes[t][layer][rank]: experts of token t. In "
                     "float64, but for the rounding of activations to int8, which is float32. f32: how far nll and total_nll "
                     "of the same program in float32 are from these, where an activation near one half rounds otherwise.",
            "prompt": PROMPT, "ids": ids[0].tolist(), "logits": logits[-1].tolist(), "argmax": logits[-1].argmax().item(),
            "nll": [None, *nll], "total_nll": sum(nll), "bits_per_byte": sum(nll) / len(nll) / math.log(2),
            "f32": {"nll": (found[0] - found[1]).abs().max().item(), "total_nll": (found[0] - found[1]).sum().abs().item()},
            "routes": [[seen["chosen"][0, t].tolist() for seen in watch[:-1]] for t in range(32)]}


def write_json(path, content, indent=None):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(content, f, indent=indent, ensure_ascii=False, separators=None if indent else (",", ":"))
        f.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("folder")
    parser.add_argument("--data", nargs="+", required=True, help="folders of *.txt")
    parser.add_argument("--exclude", nargs="*", default=[], help="file names without .txt to leave out")
    args = parser.parse_args()
    torch.set_num_threads(1)
    corpus = Corpus(args.data, exclude=args.exclude)
    stored = torch.load(args.checkpoint, weights_only=False)
    trained = Perspective(Config(**stored["config"]))
    trained.load_state_dict(stored["model"])
    tensors, experts = trained.package()
    about = {"format": "pt", "architecture": "perspective", "training_tokens": str(stored["tokens"])}
    flat = {}
    for l, layer in enumerate(experts):
        for (e, which), (codes, scales) in layer.items():
            flat[expert_name(l, e, which)] = pack(codes)
            flat[expert_name(l, e, which) + ".scales"] = scales

    def path(name):
        return os.path.join(args.folder, name)

    def write(content):
        write_safetensors(path("model.safetensors"), tensors, "BF16", about)
        write_json(path("config.json"), content, 2)

    os.makedirs(args.folder, exist_ok=True)
    content = config(trained.config, digest(experts))
    write_safetensors(path("experts.safetensors"), flat, None, {"format": "pt"})
    write(content)
    model = Perspective.load(args.folder)  # what is measured is measured on the rounded weights
    tensors["model.spp.normals"], tensors["model.spp.offsets"] = fit_half_spaces(model, corpus)
    write({**content, "spp": HALF_SPACES, **measure(model, corpus)})
    write_json(path("tokenizer.json"), tokenizer())
    log = os.path.join(os.path.dirname(args.checkpoint), "log.csv")
    if os.path.exists(log):
        shutil.copyfile(log, path("training-log.csv"))
    answer = expected(args.folder)
    write_json(path("expected.json"), answer)
    size = sum(os.path.getsize(path(f"{name}.safetensors")) for name in ("model", "experts"))
    print(f"{args.folder}: step {stored['step']}, {stored['tokens']:,} bytes read, {size:,} bytes of weights, prompt at "
          f"{answer['bits_per_byte']:.4f} bits per byte")


if __name__ == "__main__":
    main()
