"""Writes docs/measured/performance.md and its figures from benchmarks/results/*.json.

python -m benchmarks.page
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .targets import target

RESULTS = Path(__file__).resolve().parents[1] / "results"
DOCS = Path(__file__).resolve().parents[2] / "docs" / "measured"
FIGURES = "figures/performance"
Held = dict[str, dict[str, Any]]
GIB = 1024


def read(folder: Path) -> dict[str, Held]:
    return {
        name: json.loads((folder / f"{name}.json").read_text())
        for name in ("cpu", "cuda", "peers")
        if (folder / f"{name}.json").exists()
    }


def table(heads: list[str], rows: list[list[str]]) -> list[str]:
    return [
        "| " + " | ".join(heads) + " |",
        "|" + "---|" * len(heads),
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
    ]


def number(value: float) -> str:
    """Two digits behind the point for small numbers, none for large ones."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def machine(part: dict[str, Any]) -> str:
    told = part["machine"]
    threads = f", {told['threads']} threads" if "cuda" not in part["command"] else ""
    return f"{told['device']}{threads}, torch {told['torch']}, transformers {told['transformers']}"


def verdict(device: str, part: str, row: dict[str, Any]) -> tuple[str, str]:
    """What was asked for, and whether it is there."""
    asked = target(device, part, row)
    if asked is None:
        return "", ""
    if asked.key not in row:
        return asked.words, "not measured"
    return asked.words, "yes" if asked.met(row) else "**no**"


def missed(device: str, held: Held) -> Iterator[str]:
    for part, told in held.items():
        for row in told["rows"]:
            asked = target(device, part, row)
            if asked is not None and asked.key in row and not asked.met(row):
                value = row[asked.key]
                shown = f"{100 * value:.0f} %" if asked.key == "share" else f"{number(value)}"
                size = f", n = {row['n']}" if "n" in row else ""
                yield f"- {row['title']}{size}: {shown}, asked {asked.words}." + (f" {asked.why}" if asked.why else "")


# --- the parts --------------------------------------------------------------------------------------------------------


def rows(device: str, part: dict[str, Any]) -> list[str]:
    lines = []
    for row in part["rows"]:
        if "refused" in row:
            asked, _ = verdict(device, "rows", row)
            lines.append([row["title"], str(row["n"]), asked, f"not measured: {row['refused']}", "", "", "", ""])
            continue
        asked, met = verdict(device, "rows", row)
        low, high = row["spread"]
        spread = f" ({number(low)} to {number(high)})" if row["rounds"] > 1 else ""
        slow = f"{number(row['slow_ratio'])} x" if "slow_ratio" in row else ""
        title = row["title"] + (" *" if row["layers"] == 1 and row["id"] != "hta_layer" else "")
        per_layer = number(row["ms_per_layer"]) if "ms_per_layer" in row else ""
        per_layer += f"; the map {number(row['map_ms_per_layer'])}" if "map_ms_per_layer" in row else ""
        apart = f"{row['disagreement']:.0e}" if "disagreement" in row else ""
        if row["id"] == "hta_layer":
            slow += f", {number(row['times_faster'])} times ours"
        lines.append([title, str(row["n"]), asked, f"{number(row['ratio'])} x{spread}", met, per_layer, slow, apart])
    heads = ["what", "n", "asked", "measured", "met", "ms a layer", "straightforward", "apart"]
    told = [
        f"{part['shape']}; {machine(part)}. Fused loops: {part['machine']['loops']}.",
        "",
        *table(heads, lines),
    ]
    if any(line[0].endswith(" *") for line in lines):
        told += [
            "\\* One layer of the same shape, against one layer's forward pass: all rows at this length take long on "
            "a CPU.",
            "",
        ]
    return told


def memory(device: str, part: dict[str, Any]) -> list[str]:
    lines = []
    for row in part["rows"]:
        asked, met = verdict(device, "memory", row)
        extra = "" if row["id"] == "plain" else f"{row['extra_mb']:+,.0f} MB"
        lines.append([row["title"], f"{row['peak_mb']:,.0f} MB", extra, asked, met])
    return table(["what", "most that was held", "over the plain pass", "asked", "met"], lines)


def corpus(device: str, part: dict[str, Any]) -> list[str]:
    lines = []
    for row in part["rows"]:
        if "refused" in row:
            lines.append([f"`{row['title']}`", "", "", f"not measured: {row['refused']}", "", ""])
            continue
        asked, met = verdict(device, "corpus", row)
        low, high = row["share_spread"]
        share = f"{100 * row['share']:.0f} % ({100 * low:.0f} to {100 * high:.0f})"
        speeds = [f"{row['sentences_per_second']:.0f}", f"{row['plain_sentences_per_second']:.0f}"]
        lines.append([f"`{row['title']}`", *speeds, share, asked, met])
    told = (
        f"{part['sentences']:,} sentences of SST-2, {part['model']}: {len(part['methods'])} maps "
        f"({', '.join(f'`{name}`' for name in part['methods'])}) and a rollout of each, for every sentence. "
        f"Tokenisation is in "
        "both numbers. The plain pass is batched by length, in the batches it likes best."
    )
    return [told, "", *table(["what", "sentences a second", "plain pass", "share", "asked", "met"], lines)]


def large(part: dict[str, Any]) -> list[str]:
    lines = [
        [
            row["title"],
            number(row["ms_per_layer"]),
            number(row["forward_ms_per_layer"]),
            f"{number(row['ratio'])} x",
            f"{row['peak_mb'] / GIB:.1f} GiB" if "peak_mb" in row else "",
            f"{row['forward_peak_mb'] / GIB:.1f} GiB" if "forward_peak_mb" in row else "",
            f"{row['gap']:.0e}",
        ]
        for row in part["rows"]
    ]
    heads = ["what", "ms a layer", "forward pass, ms a layer", "ratio", "memory at most", "forward pass", "gap"]
    told = (
        f"{part['shape']}, {part['n']:,} tokens, `model.mix(input_ids=..., name=[...])`: each layer is scored when it "
        f"has run, "
        "then released. *gap*: the layers rebuilt from their parts, against what the model wrote in bfloat16."
    )
    return [told, "", *table(heads, lines)]


def growth(device: str, part: dict[str, Any]) -> list[str]:
    where = "a CPU" if device == "cpu" else part["machine"]["device"]
    last = {row["id"]: row for row in part["rows"]}
    ends = [(row["title"], row["n"]) for row in last.values() if row["id"].startswith("slow_")]
    stops = ", ".join(f"{title.removeprefix('straightforward ')} at {n:,}" for title, n in ends)
    return [
        f"![Milliseconds a layer against the number of tokens on {where}, both axes logarithmic: one line for each "
        f"method, "
        f"dashed for the straightforward code]({FIGURES}/growth-{device}.svg)",
        "",
        f"{machine(part)}. {part['layers']} layers of BERT-base, positions up to 2,048. A line ends where its next "
        f"point would "
        f"take more than {part['longest_seconds']:g} s, or would not fit; the straightforward ones end with {stops}.",
        "",
    ]


def checks(part: dict[str, Any]) -> list[str]:
    on_gpu = any("cpu_apart" in row for row in part["rows"])
    heads = ["method", "two runs", "float32 against float64", "fused loops against plain"] + (
        ["GPU against CPU"] if on_gpu else []
    )
    lines = []
    for row in part["rows"]:
        line = [
            f"`{row['id']}`",
            "bit-equal" if row["bit_equal"] else "**not bit-equal**",
            f"{row['float64_apart']:.0e}",
        ]
        line += [f"{row['plain_apart']:.0e}"] + ([f"{row['cpu_apart']:.0e}"] if on_gpu else [])
        lines.append(line)
    return [f"{machine(part)}; {part['layers']} layers, {part['n']} tokens.", "", *table(heads, lines)]


def peers(held: Held) -> list[str]:
    lines, notes = [], []
    for row in held["peers"]["rows"]:
        model = {"llama": "Llama", "gpt2": "GPT-2"}.get(row.get("model_type", ""), "BERT")
        name = f"{row['peer']}, `{row['id']}`, {model}"
        if "failed" in row:
            lines.append([name, f"fails: {row['failed'].rstrip('( ')}", "", "", ""])
            continue
        gaps = f"{row['gap']:.0e} and {row['peer_gap']:.0e}" if "gap" in row else ""
        took = f"{number(row['peer_ratio'])} x"
        lines.append([name, took, f"{number(row['ratio'])} x", f"{row['disagreement']:.0e}", gaps])
        versions = ", ".join(f"{package} {v}" for package, v in row["versions"].items())
        notes.append(f"- {name}: n = {row['n']}; {versions}.")
    heads = ["peer", "the peer, in forward passes", "mixlens", "apart", "completeness gap, ours and theirs"]
    return [*table(heads, lines), *dict.fromkeys(notes), ""]


PEERS = """\
Completeness: the scores should add up to the change of the logit between baseline and input; the gap is relative.
captum's DeepLift has rules for activation modules only; it takes the gradient of everything else in a Transformer
(products of attention, softmax, norms), so it is quicker and its scores do not add up. Ours have a rule for every function.
inseq computes all rows of all layers for each token it explains, as `1 - cos` in float32, and sets scores below 1e-5 to
zero; *apart* is its first layer against ours. A peer that cannot be installed or run is listed with its message.
"""

RERUN = """\
    python -m benchmarks                    # this table on a CPU (`make bench`); about a quarter of an hour on two cores
    python -m benchmarks --device cuda      # on a GPU; a few minutes
    python -m benchmarks --only rows        # one part: rows, memory, corpus, checks, growth, large
    python -m benchmarks.peers              # other packages; inseq gets an environment of its own
    python -m benchmarks.page               # this page, from benchmarks/results/*.json

The corpus needs the models and data beside the project; without them that part says so and is skipped. Every row is
written when it is there, so a run that is cut off keeps what it has. `tests/fast/test_speed_guard.py` guards the same things
without a clock: it counts operations, forward passes and the largest tensor.
"""

LOOPS = """\
What tensor operations cannot fuse, without writing out something of pairs by features or going over memory many times:
ALTI's distances (`nearer`), the lengths of the norm maps (`lengths`) and their Gram matrices from values alone (`inner`), a
target's own part at the end of its norms (`ends`, `own_nearer`), the gaps of the proof (`apart`), rollouts (`running`).

- On a CPU they are C (`mixlens/fast/loops/cpu.c`), compiled by the machine's own compiler when first needed and kept in the
  user's cache. They share torch's threads.
- On an NVIDIA GPU they are Triton kernels (`mixlens/fast/loops/*_kernels.py`), as are norms of all layers at once and Value
  Zeroing.
- Without a compiler, without Triton, or inside a gradient, plain PyTorch gives the same numbers more slowly.

A fused loop is used only after it has been seen to agree with the plain one in float64 on this machine; one that is
wrong is refused with a warning. `.info["loops"]` says which was used ("c", "triton" or "plain").
`MIXLENS_KERNELS=plain` in the environment switches them off.
"""

GRAPHS = """\
A pass over one text of 512 tokens keeps an H200 busy for less time than Python takes to ask for it. So what comes again is
captured as a CUDA graph and replayed (the tables above are of replayed ones): the third time a shape is seen, up to 2,048
tokens a batch, the pass itself and the
maps that are made of all its layers. The same operations give the same bits. A graph of the pass is used as long as the
model is what it was: its modules, all they hold, hooks, configurations, and where its weights lie are compared every time
(while the GPU works); weights may change in place. A change leads to another capture, what cannot be captured is run as
ever, and every map is proven against the model as ever. `MIXLENS_GRAPHS=off` in the environment switches them off.

Several maps of one text are rolled out together: `mixlens.rollout(maps)` for a list or a dict. Where one row alone is wanted
(`explain`, corpus runs), it is multiplied through the layers by itself.
"""

MEMORY = """\
`mix(..., chunk=k)` keeps every temporary of pairs and features below `k` elements. By default it is what suits the
device: a tile that stays in a CPU's cache, or one that keeps a GPU busy. The numbers do not depend on it.

If memory runs out all the same, the layer is scored again in pieces a sixteenth as large. A warning says so, and so does
`.info["notes"]`. If it runs out again, the error is passed on.

`model.mix(text, names)` scores every layer when it has run, then forgets it: for long inputs, large models and whole
corpora. `mixlens.mix(model.trace(text), names)` keeps queries, keys, values and the stream of every layer, so that more
methods can be asked later. Both give the same maps. On a GPU a short input (up to 2,048 tokens a batch and 256 MB of it) is
kept whole until it is scored, by `model.mix` too, and what goes in and out of graphs (below) stays, at most 1 GiB for each
model; none is captured where less than a quarter of the GPU's memory is free. The GPU's rows of this table are from before
that, and do not have it in them.
"""

TIMING = """\
`mixlens explain ... --timing` says where the time went: loading, forward pass, proof, map. In Python it is
`.info["seconds"]`; on a GPU only inside `with mixlens.scoring.maps.timed():`, because it has to wait for the GPU.
"""

HOW = """\
Each number is a ratio to a plain forward pass of the stock model (its own fast attention, no hooks) on the same input. The
traced forward pass, the proof of every layer and the rollout are inside it. Forward passes and the method are run in
turn (forward, method, forward, method, ...); a round's ratio is to the forward passes right before and after it, after a
long method to the median of five, so that cold memory flatters nobody. The table has the median of the rounds and, in
brackets, the smallest and the largest. *Straightforward* is the code a researcher
would write (`benchmarks/rows/straightforward.py`): every pair's vector held, every intervention run again. *Apart* is the
largest difference of any row-normalised score between the two, on the very input that is timed. It is checked first: a
quick answer that is another answer is not timed, and the run fails.
"""


def page(results: dict[str, Held]) -> str:
    cpu, cuda, others = results.get("cpu", {}), results.get("cuda", {}), results.get("peers", {})
    lines = [
        "# How fast?",
        "",
        "Generated by `python -m benchmarks.page` from `benchmarks/results/*.json`: edit that, not this page.",
        "",
        HOW,
    ]
    titles = {"cpu": "CPU", "cuda": "GPU"}
    for device, held in (("cpu", cpu), ("cuda", cuda)):
        if "rows" in held:
            lines += [f"## {titles[device]}", "", *rows(device, held["rows"])]
    lines += ["## What is missed", ""]
    for device, held in (("cpu", cpu), ("cuda", cuda)):
        if held:
            found = list(missed(device, held))
            lines += (
                [f"{titles[device]}:", "", *found, ""] if found else [f"{titles[device]}: every target is met.", ""]
            )
        else:
            lines += [f"{titles[device]}: not measured yet.", ""]
    if any("memory" in held for held in (cpu, cuda)):
        lines += [
            "## Memory",
            "",
            "At n = 512, over what the loaded model holds. On a CPU each in a fresh process.",
            "",
        ]
        for device, held in (("cpu", cpu), ("cuda", cuda)):
            lines += [f"{titles[device]}:", "", *memory(device, held["memory"])] if "memory" in held else []
    lines += [MEMORY]
    for device, held in (("cpu", cpu), ("cuda", cuda)):
        if "corpus" in held and held["corpus"]["rows"]:
            lines += [f"## A whole corpus ({titles[device]})", "", *corpus(device, held["corpus"])]
    lines += ["## Growth", ""] if any("growth" in held for held in (cpu, cuda)) else []
    for device, held in (("cpu", cpu), ("cuda", cuda)):
        lines += growth(device, held["growth"]) if "growth" in held else []
    if "large" in cuda:
        lines += ["## A large model", "", f"{machine(cuda['large'])}.", "", *large(cuda["large"])]
    if others:
        lines += ["## Other packages", "", f"{machine(others['peers'])}.", "", *peers(others), PEERS]
    lines += ["## The loops", "", LOOPS, "## Graphs", "", GRAPHS]
    lines += [
        "## Numbers",
        "",
        "The largest difference of any row-normalised score; and whether two runs gave the same bits.",
    ]
    lines += ["[accuracy.md](../promises/accuracy.md) has float32 against float64 on trained models.", ""]
    for held in (cpu, cuda):
        lines += checks(held["checks"]) if "checks" in held else []
    lines += ["## Where the time went", "", TIMING, "## Again", "", RERUN]
    return "\n".join(lines).rstrip() + "\n"


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path, default=DOCS)
    asked = parser.parse_args(given)
    results = read(asked.results)
    asked.docs.mkdir(parents=True, exist_ok=True)
    (asked.docs / "performance.md").write_text(page(results))
    print(f"wrote {asked.docs / 'performance.md'}")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        print("the figures stay as they are: they need matplotlib")
        return
    from .figure import draw

    for device in ("cpu", "cuda"):
        if "growth" in results.get(device, {}):
            draw(results[device]["growth"], asked.docs / FIGURES / f"growth-{device}.svg")


if __name__ == "__main__":
    main()
