"""inseq's value_zeroing, in an environment of its own: knows nothing of mixlens. Called by `python -m
benchmarks.peers`.

python inseq_value_zeroing.py FOLDER     # shape.json, weights.safetensors -> result.json, scores.safetensors
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any


def tokenizer_of(size: int) -> Any:
    """A word for every id."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = {"<unk>": 0, "<pad>": 1, "<s>": 2, "</s>": 3}
    made = Tokenizer(models.WordLevel({**special, **{f"w{i}": i for i in range(4, size)}}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=1024, **names)


def main(folder: Path) -> None:
    import inseq
    import torch
    import transformers
    from inseq.attr.feat.ops.value_zeroing import ValueZeroing
    from safetensors.torch import load_file, save_file

    asked = json.loads((folder / "shape.json").read_text())
    torch.set_num_threads(asked["threads"])
    transformers.logging.set_verbosity_error()
    config = transformers.AutoConfig.for_model(asked["model_type"], **asked["config"], attn_implementation="eager")
    stock = transformers.AutoModelForCausalLM.from_config(config).eval()
    stock.load_state_dict(load_file(folder / "weights.safetensors"), strict=False)
    stock.tie_weights()
    model = inseq.load_model(stock, "value_zeroing", tokenizer=tokenizer_of(config.vocab_size), device="cpu")
    text = " ".join(f"w{i}" for i in asked["ids"])
    seen: list[Any] = []
    compute = ValueZeroing.compute_modules_post_zeroing_similarity

    def noted(self: Any, *args: Any, **options: Any) -> Any:
        seen.append(compute(self, *args, **options))
        return seen[-1]

    ValueZeroing.compute_modules_post_zeroing_similarity = noted

    def work() -> None:
        """One token explained: inseq computes all rows of all layers for it, and keeps the last."""
        model.attribute(text, generated_texts=f"{text} w4", show_progress=False)

    def timed(of: Any) -> float:
        started = time.perf_counter()
        of()
        return time.perf_counter() - started

    given = torch.tensor([asked["ids"]])
    forward = torch.no_grad()(lambda: stock(given, use_cache=False))
    forward()
    work()
    maps = seen[-1][0].permute(2, 1, 0)  # [layer query key]
    forwards, works = [timed(forward)], []
    for _ in range(asked["rounds"]):
        works.append(timed(work))
        forwards.append(timed(forward))
    save_file({"scores": torch.nan_to_num(maps.float()).contiguous()}, folder / "scores.safetensors")
    told = {
        "seconds": statistics.median(works),
        "forward_seconds": statistics.median(forwards),
        "rounds": len(works),
        "versions": {name: version(name) for name in ("inseq", "torch", "transformers")},
    }
    (folder / "result.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
