"""Writes a small random model of each case with `transformers`, and the logits that it computes.

    python make.py FOLDER [TYPE ...]

For every case: FOLDER/NN-type/ as save_pretrained writes it, and expected.json beside it: the tokens, the logits of all positions in
float64, and how far those in float32 are from them. FOLDER/cases.json lists the cases, those too that transformers itself refuses.
"""

import json
import sys
from pathlib import Path

import torch
from cases import CASES
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

logging.set_verbosity_error()
TOKENS = 45


def randomise(model, seed):
    """Weights large enough for every part to be seen in the logits; what a family begins with otherwise stays near that."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=random)
            if weight.dim() < 2:
                weight.add_(noise * 0.3)
            elif "conv" in name:
                weight.copy_(noise * 0.5)
            elif "embed" in name or "wte" in name or "wpe" in name:
                weight.copy_(noise * 0.7)
            else:
                weight.copy_(noise * 1.2 / weight.shape[-1] ** 0.5)
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(torch.randn(buffer.shape, generator=random) * 0.3)


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0]


def make(folder, seed, kind, settings):
    torch.manual_seed(seed)
    config = AutoConfig.for_model(kind, **settings)
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config).eval().float()
    randomise(model, seed)
    model.save_pretrained(folder)
    random = torch.Generator().manual_seed(1000 + seed)
    ids = torch.randint(0, config.vocab_size, (TOKENS,), generator=random).tolist()
    single = logits_of(model, ids).double()
    try:
        wide = logits_of(model.double(), ids).double()
    except RuntimeError:
        # Some families hold a part of their computation in float32, which torch does not multiply by float64.
        wide = single
    expected = {"tokens": ids, "logits": wide.tolist(), "float32": (single - wide).abs().max().item()}
    (folder / "expected.json").write_text(json.dumps(expected))


def main(target, *kinds):
    root = Path(target)
    root.mkdir(parents=True, exist_ok=True)
    cases = []
    for at, (kind, setting, settings) in enumerate(CASES):
        if kinds and kind not in kinds:
            continue
        name = f"{at:02}-{kind}"
        case = {"folder": name, "type": kind, "setting": setting, "refused": None}
        try:
            make(root / name, at, kind, settings)
        except Exception as error:
            case["refused"] = f"{type(error).__name__}: {error}"[:300]
        cases.append(case)
    (root / "cases.json").write_text(json.dumps(cases, indent=2))


main(*sys.argv[1:])
