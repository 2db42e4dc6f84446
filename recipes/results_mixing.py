"""Writes docs/measured/results/globenc.md and docs/measured/results/identifiability.md: what the papers say, and what we measure.

    python -m recipes.results_mixing --models ../shared/models --data ../shared/data --work build/results

Needs real models and data beside the project; the folder names are the defaults above. The runs in --work can be stopped and
continued; `--only NAME ...` runs some of them, and the pages are written once all are there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import mixlens
from mixlens.data import load, read
from mixlens.experiments import Outcome, Table, run
from mixlens.experiments.running import drawn
from mixlens.metrics import Interval
from mixlens.types import Example

LENGTHS = (12, 24, 48, 96, 160, 256)  # tokens


@dataclass(frozen=True)
class Run:
    """One run of an experiment, by the names of folders below --models and --data."""

    experiment: str
    model: str
    data: str  # DATASET=FOLDER/FILE, or a maker of MADE
    n: int
    options: tuple[tuple[str, Any], ...] = ()
    methods: tuple[str, ...] | None = None


SST2, BLIMP, MRPC, UD = "sst2=sst2/dev.jsonl", "blimp=blimp_vz/dev.jsonl", "mrpc=mrpc/dev.jsonl", "ud_english=ud_ewt/dev.jsonl"
SST, AGREEMENT = "minilm-sst2", "minilm-agreement"
RUNS: dict[str, Run] = {
    "globenc-outliers-sst2": Run("globenc-ln-outliers", SST, SST2, 1),
    "globenc-outliers-agreement": Run("globenc-ln-outliers", AGREEMENT, SST2, 1),
    "globenc-table1": Run("globenc-table1", SST, SST2, 300),
    "globenc-table1-blimp": Run("globenc-table1", AGREEMENT, "single pieces", 150),
    "globenc-layers": Run("globenc-layers", SST, SST2, 150),
    "globenc-hta": Run("globenc-hta", SST, SST2, 40),
    "globenc-hta-x-input": Run("globenc-hta", SST, SST2, 20, (("reference", "hta_layer_x_input"),)),
    "identifiability-effective": Run("id-effective-attention", AGREEMENT, "cut to lengths", 72),
    "identifiability-tokens": Run(
        "id-token-identifiability", AGREEMENT, SST2, 100, (("kinds", ["naive", "linear"]), ("folds", 1))
    ),
    "identifiability-mixing": Run("id-mixing", AGREEMENT, SST2, 40, (), ("hta:probes=8",)),
    "identifiability-context": Run("id-context", AGREEMENT, "short pairs", 12, (), ("hta:probes=4",)),
    "identifiability-pos": Run("id-pos", AGREEMENT, "short tagged", 40, (), ("hta:probes=4",)),
    "identifiability-across": Run(
        "id-token-identifiability",
        AGREEMENT,
        SST2,
        100,
        (("kinds", ["linear"]), ("distances", ["cosine"]), ("folds", 1), ("across", True), ("layers", [1, 3, 6])),
    ),
    "identifiability-mlp": Run(
        "id-token-identifiability", AGREEMENT, SST2, 100, (("kinds", ["mlp"]), ("folds", 1), ("layers", [6]), ("epochs", 200))
    ),
}


# --- data --------------------------------------------------------------------------------------------------------------


def cut_to_lengths(model: Any, data: Path, n: int) -> list[Example]:
    """Wikipedia paragraphs cut to some number of tokens, the same number of texts for each length."""
    made: list[Example] = []
    wanted = [length for length in LENGTHS for _ in range(n // len(LENGTHS))][::-1]
    for example in read(data / "wikitext2" / "dev.jsonl"):
        if not wanted:
            break
        coded = model.tokenizer(example.text, return_offsets_mapping=True, add_special_tokens=False, verbose=False)
        inside = wanted[-1] - 2
        if len(coded["input_ids"]) >= inside:
            end = coded["offset_mapping"][inside - 1][1]
            made.append(replace(example, text=example.text[:end]))
            wanted.pop()
    return made


def _short(examples: Iterable[Example], model: Any, n: int, most: int) -> list[Example]:
    found = (e for e in examples if len(model.tokenizer(e.text, e.pair, verbose=False)["input_ids"]) <= most)
    return [example for example, _ in zip(found, range(n), strict=False)]


def short_pairs(model: Any, data: Path, n: int) -> list[Example]:
    return _short(load("mrpc", path=data / "mrpc" / "dev.jsonl"), model, n, 44)


def short_tagged(model: Any, data: Path, n: int) -> list[Example]:
    return _short((e for e in load("ud_english", path=data / "ud_ewt" / "dev.jsonl") if len(e.info["pos"]) > 5), model, n, 24)


def single_pieces(model: Any, data: Path, n: int) -> list[Example]:
    """BLiMP rows whose target and foil are one token each, drawn evenly."""
    vocabulary = model.tokenizer.get_vocab()
    found = [e for e in load("blimp", path=data / "blimp_vz" / "dev.jsonl") if e.target in vocabulary and e.foil in vocabulary]
    return found[:: max(1, len(found) // n)][:n]


MADE: dict[str, Callable[[Any, Path, int], list[Example]]] = {
    "cut to lengths": cut_to_lengths,
    "short pairs": short_pairs,
    "short tagged": short_tagged,
    "single pieces": single_pieces,
}


def outcome(name: str, *, models: Path, data: Path, work: Path) -> Outcome:
    one = RUNS[name]
    lens = mixlens.load(models / one.model)
    made = MADE.get(one.data)
    dataset, _, file = one.data.partition("=")
    source: Any = f"{dataset}={data / file}" if made is None else made(lens, data, one.n)
    asked: dict[str, Any] = dict(one.options)
    return run(one.experiment, model=lens, data=source, n=one.n, methods=one.methods, out=work / name, progress=False, **asked)


# --- pages -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """What the paper says, its number, ours, whether they are the same, and why (or what it means)."""

    says: str
    paper: str
    ours: str
    same: bool | None  # None: the paper's number is not at hand, or it has none
    why: str


def rows(table: Table) -> Any:
    return table.rows


def row_of(table: Table, *key: Any) -> tuple[Any, ...]:
    """The row that begins with these cells."""
    return next(row for row in rows(table) if row[: len(key)] == key)


def means(row: Sequence[Any]) -> list[float]:
    return [cell.mean for cell in row if isinstance(cell, Interval)]


def told(cell: Interval) -> str:
    """As the authors print it: mean and standard deviation over texts."""
    return f"{cell.mean:.2f} ± {cell.std:.2f}"


def listed(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)


NOTEBOOK = {  # the last layer's rollout, from the stored output of the authors' notebooks/attention_flow.ipynb @00a74d0
    "attention_fixed_residual": "-0.24 ± 0.26",
    "attention_residual": "0.21 ± 0.26",
    "norm": "0.44 ± 0.20",
    "norm_fixed_residual": "0.48 ± 0.21",
    "norm_residual": "0.73 ± 0.13",
    "norm_residual_ln": "-0.21 ± 0.26",
    "globenc": "0.77 ± 0.12",
}
UNKNOWN = "(no number at hand)"
GENERATED = (
    "Generated by `python -m recipes.results_mixing` (it needs the models and data beside the project): edit that, not this page."
)


def globenc_claims(made: dict[str, Outcome]) -> list[Claim]:
    table, layers = made["globenc-table1"].tables[0], made["globenc-layers"].tables[0]
    rolled = {row[0]: row[2] for row in rows(table)}
    alone = {row[0]: row[1] for row in rows(table)}
    ones = {row[0]: row[3] for row in rows(table)}
    blimp = {row[0]: row[2] for row in rows(made["globenc-table1-blimp"].tables[0])}
    best = max(rolled, key=lambda name: rolled[name].mean)
    claims = [
        Claim(
            "Rolled out over all layers, N_ENC (`globenc`) ranks tokens most as gradient x input does.",
            NOTEBOOK["globenc"],
            f"{told(rolled['globenc'])}; best: `{best}`",
            best == "globenc",
            "Six layers instead of twelve and another pre-training change the number little.",
        ),
        Claim(
            "The true residual is worth more than any other part: N to N_RES.",
            f"{NOTEBOOK['norm']} to {NOTEBOOK['norm_residual']}",
            f"{told(rolled['norm'])} to {told(rolled['norm_residual'])}",
            rolled["norm_residual"].low > rolled["norm"].high,
            "Without it a product of six matrices forgets which token a position began with.",
        ),
        Claim(
            "A residual fixed at one half (N_FIXEDRES) does not do.",
            f"{NOTEBOOK['norm_fixed_residual']} against {NOTEBOOK['norm_residual']}",
            f"{told(rolled['norm_fixed_residual'])} against {told(rolled['norm_residual'])}",
            rolled["norm_fixed_residual"].high < rolled["norm_residual"].low,
            "The published product of N_RES also carries each layer's scale, which a row that sums to 1 has lost: see "
            "the last claim.",
        ),
        Claim(
            "The first norm alone (N_RESLN) ruins it; the second norm (N_ENC) repairs it.",
            f"{NOTEBOOK['norm_residual_ln']}, then {NOTEBOOK['globenc']}",
            f"{told(rolled['norm_residual_ln'])}, then {told(rolled['globenc'])}",
            rolled["norm_residual_ln"].high < rolled["norm_residual"].low
            and rolled["globenc"].low > rolled["norm_residual_ln"].high,
            "Same fall and same repair; ours does not fall below zero.",
        ),
        Claim(
            "Attention weights with a residual (W_FIXEDRES, W_RES) stay far behind.",
            f"{NOTEBOOK['attention_fixed_residual']}, {NOTEBOOK['attention_residual']}",
            f"{told(rolled['attention_fixed_residual'])}, {told(rolled['attention_residual'])}",
            max(rolled["attention_fixed_residual"].high, rolled["attention_residual"].high) < rolled["norm_residual"].low,
            "Weights do not know how long the vectors are that they weigh.",
        ),
        Claim(
            "The whole model says more than its last layer alone.",
            UNKNOWN + " for single layers",
            f"`globenc` {told(alone['globenc'])} alone, {told(rolled['globenc'])} rolled out; "
            f"`attention` {told(alone['attention'])} alone, {told(rolled['attention'])} rolled out",
            None,
            "True of the norm family with residuals; raw attention without a residual gets worse when it is multiplied.",
        ),
        Claim(
            "The deeper the rollout of N_ENC, the better, from a negative start.",
            "layers 1-12: -0.47, -0.05, 0.45, 0.68, 0.72, 0.74, 0.76, 0.77, 0.77, 0.78, 0.78, 0.77",
            f"layers 1-6: {listed(means(row_of(layers, 'globenc', 'rolled out')))}",
            _rises(means(row_of(layers, "globenc", "rolled out"))),
            "The first layer alone looks at neighbours and special tokens.",
        ),
        Claim(
            "The order holds for a masked LM on BLiMP (not in the paper).",
            "-",
            f"N_RES {told(blimp['norm_residual'])}, N_RESLN {told(blimp['norm_residual_ln'])}, N_ENC {told(blimp['globenc'])}",
            None,
            "Read at [MASK]; the gradient is that of the predicted word.",
        ),
    ]
    return [*claims, *_more_globenc_claims(made, rolled, ones)]


def _rises(values: Sequence[float]) -> bool:
    """From below zero to its end, falling nowhere by more than 0.02."""
    return values[0] < 0 < values[-1] and all(b > a - 0.02 for a, b in pairwise(values))


def _more_globenc_claims(made: dict[str, Outcome], rolled: dict[str, Any], ones: dict[str, Any]) -> list[Claim]:
    steps = ("norm", "norm_residual", "norm_residual_ln", "globenc", "attention_fixed_residual")
    local = {}
    for name in ("globenc-hta", "globenc-hta-x-input"):
        table = made[name].tables[0]
        local[name] = {step: sum(found := means(row_of(table, step, "pearson"))) / len(found) for step in steps}
    one, other = local["globenc-hta"], local["globenc-hta-x-input"]
    improving = all(way["norm"] < way["norm_residual"] < way["norm_residual_ln"] < way["globenc"] for way in local.values())
    outliers = {name: made[f"globenc-outliers-{name}"].tables[0] for name in ("sst2", "agreement")}
    negative = {name: sum(value < 0 for value in table.column("pearson at outliers")) for name, table in outliers.items()}
    return [
        Claim(
            "Within a layer, every part that is added brings the map nearer to HTA (abstract: increasingly more "
            "accurate analysis in "
            "local settings).",
            UNKNOWN,
            f"mean Pearson over layers, N, N_RES, N_RESLN, N_ENC: {listed(one[s] for s in steps[:4])} (HTA); "
            f"{listed(other[s] for s in steps[:4])} (HTA x inputs); W_FIXEDRES: {one[steps[4]]:.2f}, {other[steps[4]]:.2f}",
            improving,
            "The residual brings nearly all of it, the norms next to nothing; and attention with a fixed residual is as "
            "near or nearer, "
            "since a row's Pearson is mostly a matter of its diagonal.",
        ),
        Claim(
            "Outlier weights of a layer's first and second norm sit at the same features and undo each other (from "
            "memory: negative "
            "correlation at the outliers).",
            UNKNOWN,
            f"negative in {negative['sst2']} of 6 layers (`minilm-sst2`), {negative['agreement']} of 6 "
            "(`minilm-agreement`); shared "
            f"outliers by layer: {', '.join(map(str, outliers['sst2'].column('both')))}",
            negative["sst2"] == negative["agreement"] == 6,
            "There are two to eight outliers in a norm of 384 weights, so a correlation over them rests on few points.",
        ),
        Claim(
            "(Not in the paper.) Rows made to sum to 1 before the product, as the Value Zeroing authors ran it, change "
            "the result.",
            "-",
            f"`globenc` {told(rolled['globenc'])} as published, {told(ones['globenc'])} with rows summing to 1",
            None,
            "The product of raw norms weighs a token by how long its vectors are in every layer it passes; ranks follow "
            "that length. "
            "Both are one keyword apart: `rollout('globenc')`, `rollout('toolkit')`.",
        ),
    ]


def _falls_away(values: Sequence[float], place: int) -> bool:
    """Highest at its place, and falling to both sides."""
    left, right = values[: place + 1], values[place:]
    return all(a <= b for a, b in pairwise(left)) and all(a >= b for a, b in pairwise(right))


def identifiability_claims(made: dict[str, Outcome]) -> list[Claim]:
    length, types = made["identifiability-effective"].tables
    null = {row[2]: row[3].mean for row in rows(length) if row[1] == "null dimension"}
    pooled = {row[2]: row[3].mean for row in rows(length) if row[1] == "pearson pooled"}
    falling = list(pooled.values())
    special = {m: means(row_of(types, m, "[CLS]")) for m in ("attention", "effective_attention")}
    separator = {m: means(row_of(types, m, "[SEP]")) for m in ("attention", "effective_attention")}
    tokens, mlp = made["identifiability-tokens"].tables[0], made["identifiability-mlp"].tables[0]
    found = {(row[0], row[1]): means(row) for row in (*rows(tokens), *rows(mlp))}
    across = made["identifiability-across"].tables[1]
    mixing = made["identifiability-mixing"].tables[0]
    own, other = (means(row) for row in rows(mixing))
    distance, places, around = made["identifiability-context"].tables
    beside_it = {row[1]: means(row)[-1] for row in rows(places)}
    near, far = means(rows(distance)[0]), means(rows(distance)[-1])
    beside = {row[1]: means(row)[-1] for row in rows(around)}
    pos = {row[1]: row[-1] for row in rows(made["identifiability-pos"].tables[1])}
    most, least = max(pos, key=lambda tag: pos[tag].mean), min(pos, key=lambda tag: pos[tag].mean)
    deep = [found[kind, "cosine"][-1] for kind in ("naive", "linear", "mlp")]
    return [
        Claim(
            "In a text longer than a head is wide, attention cannot be read off the head's output: the null space has n - d_v "
            "dimensions or more.",
            "theorem",
            f"mean over heads, heads of 32, by length: {', '.join(f'{n}: {d:g}' for n, d in null.items())}",
            all(d == max(0, n - 32) for n, d in zip(LENGTHS, null.values(), strict=True)),
            f"Texts have exactly {', '.join(map(str, LENGTHS))} tokens; every head has full rank.",
        ),
        Claim(
            "The longer the text, the less effective attention is like raw attention.",
            UNKNOWN,
            f"Pearson, pooled: {', '.join(f'{n}: {r:.2f}' for n, r in pooled.items())}",
            all(b <= a + 1e-6 for a, b in pairwise(falling)) and falling[-1] < 0.9,
            "It is 1 up to the width of a head and drops at once beyond it: most of the weight is on one token that the "
            "null space takes.",
        ),
        Claim(
            "What tokens give to [SEP] is mostly not effective (from memory).",
            UNKNOWN,
            f"[SEP], by layer: raw {listed(separator['attention'])}; effective {listed(separator['effective_attention'])}. "
            f"[CLS]: raw {listed(special['attention'])}; effective {listed(special['effective_attention'])}",
            sum(separator["effective_attention"]) < 0.75 * sum(separator["attention"]),
            "This model rests its attention on [CLS], not on [SEP], and there it happens: most of what [CLS] gets is "
            "not effective. Words "
            "and punctuation keep theirs.",
        ),
        Claim(
            "Tokens keep their identity to a large degree, less so with depth (abstract).",
            UNKNOWN,
            f"cosine, layers 0-6, naive: {listed(found['naive', 'cosine'])}; linear g: {listed(found['linear', 'cosine'])}",
            found["naive", "cosine"][0] > found["naive", "cosine"][-1] and max(deep) > 0.5,
            "Texts are short (10 to 50 tokens), so there are few others that a token could be taken for.",
        ),
        Claim(
            "Identity is mainly in the angle (abstract): cosine distance finds more tokens than L2.",
            UNKNOWN,
            f"last layer, cosine against L2: naive {listed((found['naive', 'cosine'][-1], found['naive', 'l2'][-1]))}; linear "
            f"{listed((found['linear', 'cosine'][-1], found['linear', 'l2'][-1]))}; MLP "
            f"{listed((found['mlp', 'cosine'][-1], found['mlp', 'l2'][-1]))}",
            all(found[kind, "cosine"][-1] > found[kind, "l2"][-1] for kind in ("naive", "linear", "mlp")),
            "Judged by the last layer, where tokens are hardest to tell; in the layers before, the two are level.",
        ),
        Claim(
            "A trained g finds more than none, an MLP most of all (from memory).",
            UNKNOWN,
            f"last layer, cosine, naive, linear, MLP: {listed(deep)}",
            deep[0] < deep[1] < deep[2],
            "The three are close and their intervals overlap: the naive rate leaves little room, and a g has 70 short texts to "
            "learn from (the MLP 200 epochs at most). The naive rate is over all texts, the others over the 15 put aside.",
        ),
        Claim(
            "A g trained on one layer does worse on others, the further away they are (from memory).",
            UNKNOWN,
            "linear, cosine, trained on 1, 3, 6 (one after the other), tested on 1, 3, 6: "
            + "; ".join(listed(means(row)) for row in rows(across)),
            all(_falls_away(means(row), place) for place, row in enumerate(rows(across))),
            "The last layer is the hardest for every g.",
        ),
        Claim(
            "A token's own input contributes less and less with depth: strong mixing (abstract).",
            UNKNOWN,
            f"own share, layers 1-6: {listed(own)}",
            all(b < a for a, b in pairwise(own)),
            "HTA from the input embedding to every layer, estimated from 8 random directions per token.",
        ),
        Claim(
            "In later layers the own token is often not the main contributor.",
            UNKNOWN,
            f"share of positions, layers 1-6: {listed(other)}",
            other[-1] > 0.1,
            "Often: in a tenth of the positions. Six layers and short texts mix less; special tokens lose themselves first.",
        ),
        Claim(
            "Context is gathered mostly nearby: the nearest neighbours contribute most.",
            UNKNOWN,
            f"share of the row at -3 to +3, last layer: {listed(beside_it.values())}",
            beside_it["-3"] < beside_it["-2"] < beside_it["-1"] and beside_it["+1"] > beside_it["+2"] > beside_it["+3"],
            "More from the left than from the right.",
        ),
        Claim(
            "With depth, context comes from further away.",
            UNKNOWN,
            f"of what comes from others, distance 1: {listed(near)}; 11 and more: {listed(far)} (layers 1-6)",
            all(b < a for a, b in pairwise(near)) and all(b > a for a, b in pairwise(far)),
            "It is so from the second layer on; the first looks far, at special tokens and punctuation too.",
        ),
        Claim(
            "(Ours alone.) What [CLS] takes around the first [SEP].",
            UNKNOWN,
            f"last layer, -2 to +2: {listed(beside[f'{i:+d}'] for i in range(-2, 3))}",
            None,
            "Shares of the row of [CLS]; pairs of sentences from MRPC.",
        ),
        Claim(
            "(Ours alone.) Parts of speech differ in how often another token contributes more.",
            UNKNOWN,
            f"last layer, most: {most} {pos[most].mean:.2f}; least: {least} {pos[least].mean:.2f}",
            None,
            "Gold tags of UD English; intervals and counts are in the table.",
        ),
    ]


PAGES: dict[str, tuple[str, Callable[[dict[str, Outcome]], list[Claim]], str]] = {
    "globenc": (
        "GlobEnc: what we measure",
        globenc_claims,
        "Modarressi et al. 2022. The paper has BERT-base on 872 sentences of SST-2 (and MNLI, HateXplain); its numbers "
        "below are those in the "
        "stored output of the authors' own notebook (mohsenfayyaz/GlobEnc @00a74d0, notebooks/attention_flow.ipynb), "
        "mean ± standard "
        "deviation over sentences. We have no BERT-base here: ours are `minilm-sst2`, a BERT of 6 layers and width 384 "
        "fine-tuned on SST-2, "
        "and `minilm-agreement`, the same as a masked LM. `docs/use/finetune.md` says how to come from `bert-base-uncased` "
        "to the paper's model.",
    ),
    "identifiability": (
        "On Identifiability in Transformers: what we measure",
        identifiability_claims,
        "Brunner et al. 2020. The paper has pre-trained BERT-base. Its claims are those of the abstract, or from memory "
        "where so marked; its "
        "figures' numbers were not at hand, so what is compared is the direction. Ours are of `minilm-agreement`, a "
        "masked LM of 6 layers, "
        "width 384, heads of 32.",
    ),
}
VERDICTS = {True: "same", False: "**different**", None: "-"}


def page(name: str, made: dict[str, Outcome]) -> str:
    title, claims, intro = PAGES[name]
    lines = [f"# {title}", "", GENERATED, ""]
    lines += [intro, "", "| claim | paper | ours | | why |", "|---|---|---|---|---|"]
    for claim in claims(made):
        cells = (claim.says, claim.paper, claim.ours, VERDICTS[claim.same], claim.why)
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    lines += ["", "## The runs", ""]
    for key in (one for one in RUNS if one.startswith(name)):
        lines += described(key, made[key])
    return "\n".join(lines).rstrip() + "\n"


def described(key: str, made: Outcome) -> list[str]:
    one = RUNS[key]
    options = "".join(f", {option} = {value!r}" for option, value in one.options)
    methods = "" if one.methods is None else f", methods {', '.join(one.methods)}"
    data = one.data if "=" in one.data else f"{one.data} (see the recipe)"
    what = f"`{one.experiment}`: model `{one.model}`, data {data}, n = {len(made.setup.examples)}{options}{methods}."
    lines = [f"### {key}", "", what, ""]
    for table in made.tables:
        lines += [table.markdown.replace("### ", "#### ", 1)]
    return [*lines, f"![{key}](figures/{key}.svg)", ""]


def written(out: Path, made: dict[str, Outcome]) -> None:
    (out / "figures").mkdir(parents=True, exist_ok=True)
    for key, one in made.items():
        (out / "figures" / f"{key}.svg").write_bytes(drawn(one)["svg"])
    for name in PAGES:
        (out / f"{name}.md").write_text(page(name, made))


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=Path("../shared/models"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--work", type=Path, default=Path("build/results"))
    parser.add_argument("--out", type=Path, default=Path("docs/measured/results"))
    parser.add_argument("--only", nargs="+", choices=RUNS, metavar="NAME", help=", ".join(RUNS))
    asked = parser.parse_args(given)
    for folder in (asked.models, asked.data):
        if not folder.is_dir():
            parser.error(f"there is no folder {str(folder)!r}: real models and data are needed")
    made = {}
    for name in asked.only or RUNS:
        made[name] = outcome(name, models=asked.models, data=asked.data, work=asked.work)
        print(f"{name}: {len(made[name].records)} records, {made[name].seconds:.0f} s", flush=True)
    if asked.only is None:
        written(asked.out, made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
