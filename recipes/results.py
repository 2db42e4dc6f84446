"""Writes docs/measured/results/alti.md, value-zeroing.md, attcat.md and their figures.

    python -m recipes.results RUNS [page ...]

RUNS is a folder that keeps the records: stopped and started again, it goes on. Measured with the models and data of
`../shared`, which are not part of the package. What the papers say is in this file, what we measured comes from the runs.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from mixlens.experiments import Outcome, Table, run
from mixlens.metrics import Interval, mean_with_interval
from mixlens.metrics.agreement import spearman

SHARED = Path("../shared")
DOCS = Path("docs/measured/results")
SST2 = {"model": str(SHARED / "models/minilm-sst2"), "data": f"sst2={SHARED / 'data/sst2/dev.jsonl'}"}
BLIMP = {
    "model": str(SHARED / "models/minilm-agreement"),
    "data": f"blimp={SHARED / 'data/blimp_vz/dev.jsonl'}",
    "leave_out": True,
}
NORM = "norm_residual_ln:rollout=alti"
BLANK_OUT = "blank_out:replacement=mask:absolute=true"
LAYERED = (
    *("random", "attention", "norm", "norm_residual", "norm_residual_ln"),
    *("globenc:rollout=toolkit", "alti", "value_zeroing", "grad_x_input"),
)
WITH_RESIDUAL = ("value_zeroing", "value_zeroing:rollout=abnar")
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "alti-gradient": ("alti-table2", {**SST2, "n": 300}),
    "alti-blank-out": ("alti-table2", {**SST2, "n": 150, "reference": BLANK_OUT}),
    "alti-anisotropy": ("alti-anisotropy", {**SST2, "n": 100}),
    "alti-special": ("alti-special-tokens", {**SST2, "n": 200}),
    "vz-alignment": ("vz-cue-alignment", {**BLIMP, "n": 100, "methods": LAYERED}),
    "vz-faithfulness": ("vz-faithfulness", {**BLIMP, "n": 100, "methods": LAYERED}),
    "vz-residual": ("vz-cue-alignment", {**BLIMP, "n": 100, "methods": WITH_RESIDUAL}),
    "vz-residual-faithfulness": ("vz-faithfulness", {**BLIMP, "n": 100, "methods": WITH_RESIDUAL}),
    "vz-distances": ("vz-distances", {**BLIMP, "n": 60}),
    "vz-probing": ("vz-probing", {**BLIMP, "n": 500}),
    "attcat-faithfulness": ("attcat-faithfulness", {**SST2, "n": 100}),
    "attcat-released": ("attcat-faithfulness", {**SST2, "n": 50, "variant": "released"}),
    "attcat-confidence": ("attcat-confidence", {**SST2, "n": 60}),
}


class Runs:
    """Each run is made when it is first asked for, and kept."""

    def __init__(self, folder: Path):
        self.folder = folder

    def __getitem__(self, name: str) -> Outcome:
        experiment, options = RUNS[name]
        made = run(experiment, out=self.folder / name, **options)
        DOCS.joinpath("figures").mkdir(parents=True, exist_ok=True)
        shutil.copy(self.folder / name / "figure.svg", DOCS / "figures" / f"{name}.svg")
        return made


# --- pieces of a page -------------------------------------------------------------------------------------------------


def rows(columns: Sequence[str], lines: Sequence[tuple[Any, ...]]) -> str:
    return "\n".join(Table("", "", tuple(columns), tuple(lines)).markdown.splitlines()[2:])


def command(name: str) -> str:
    """The command line of a run, one option to a line."""
    experiment, options = RUNS[name]
    words = [f"mixlens experiment {experiment}"]
    for key, value in options.items():
        if key == "leave_out":
            words.append("--leave-out")
        elif key in ("model", "data", "n", "methods"):
            words.append(f"--{key} {','.join(value) if key == 'methods' else value}")
        else:
            words.append(f"--option {key}={value}")
    return " \\\n      ".join([f"    {words[0]}", *words[1:], f"--out runs/{name}"])


def of(outcome: Outcome) -> str:
    left = f", {outcome.setup.left_out} left out that do not fit the model" if outcome.setup.left_out else ""
    return f"n = {len(outcome.setup.examples)}{left}"


def told(table: Table, method: str, column: str) -> str:
    cell = table.row(method)[column]
    return f"{cell.mean:.2f} [{cell.low:.2f}, {cell.high:.2f}]"


def verdict(holds: bool) -> str:
    return "**Same.**" if holds else "**Does not replicate here.**"


def names(methods: Sequence[str]) -> str:
    return ", ".join(f"`{method}`" for method in methods) or "none"


def values(outcome: Outcome, method: str, metric: str, layer: str | None = None) -> dict[str, float]:
    """By example. `layer`: "all" is what is measured over all layers, "single" the mean of the single ones."""
    found: dict[str, list[float]] = {}
    for r in outcome.records:
        if (r.method, r.metric) == (method, metric) and (layer is None or (r.info["layer"] == 0) == (layer == "all")):
            found.setdefault(r.example, []).append(r.value)
    return {example: sum(some) / len(some) for example, some in found.items()}


def is_best(outcome: Outcome, method: str, metric: str, *, rivals: Sequence[str], lowest: bool = False, **which: Any) -> str:
    """Better than each rival on the same examples, not told apart, or beaten: by the 95 % interval of the difference."""
    own, beaten, level = values(outcome, method, metric, **which), [], []
    for rival in rivals:
        other = values(outcome, rival, metric, **which)
        gap = mean_with_interval([(other[e] - own[e] if lowest else own[e] - other[e]) for e in own])
        if gap.high < 0:
            beaten.append(rival)
        elif gap.low <= 0:
            level.append(rival)
    if beaten:
        return f"**Does not replicate here.** Better on the same examples: {names(beaten)}" + (
            f"; not told apart: {names(level)}." if level else "."
        )
    if level:
        return f"**Not told apart here** from {names(level)}, example by example; better than the others."
    return "**Same.** Better than every other, example by example."


# --- ALTI -------------------------------------------------------------------------------------------------------------


def stored(name: str) -> list[dict[str, Any]]:
    import pyarrow.parquet

    found: list[dict[str, Any]] = pyarrow.parquet.read_table(SHARED / "data/reference_alti/dev" / name).to_pylist()
    return found


def seeds() -> dict[str, Interval]:
    """Agreement of six of the authors' MultiBERTs, by their own stored attributions and our metric."""
    models = [stored(f"multiberts-seed_{i}_sst2_attributions.parquet") for i in range(6)]
    made = {}
    for method in ("rollout", "norm", "ours", "grad"):
        both = [(i, x, y) for a, b in combinations(models, 2) for i, (x, y) in enumerate(zip(a, b, strict=True))]
        alike = [(i, spearman(x[method], y[method])) for i, x, y in both if x["pred_class"] == y["pred_class"]]
        made[method] = mean_with_interval([value for _, value in alike], groups=[i for i, _ in alike])
    return made


def anisotropy(outcome: Outcome) -> tuple[str, bool]:
    """Ours by layer beside the authors' for BERT; and whether transformed vectors are the less alike in every layer."""
    curve = {(vectors, layer): cell.mean for vectors, layer, cell in outcome.tables[0].rows}
    depth = max(layer for _, layer in curve)
    bert = json.loads((SHARED / "data/reference_alti/bert_sst2_cos_results.json").read_text())
    kinds = ("representations", "transformed vectors")
    theirs = [bert[f"mean cosine similarity {kind}"] for kind in ("embeddings", "transformed vectors")]
    for first, (kind, own) in enumerate(zip(kinds, theirs, strict=True)):  # representations begin with the embedding
        curve |= {(f"BERT, {kind}", layer): float(value) for layer, value in enumerate(own.values(), first)}
    both = (*kinds, *(f"BERT, {kind}" for kind in kinds))
    lines = [(layer, *(curve.get((kind, layer)) for kind in both)) for layer in range(len(theirs[0]))]
    return rows(("layer", *both), lines), all(curve[kinds[1], layer] < curve[kinds[0], layer] for layer in range(1, depth + 1))


def alti(runs: Runs) -> str:
    gradient, blank, shape, special = (runs[f"alti-{name}"] for name in ("gradient", "blank-out", "anisotropy", "special"))
    table, blanked, ranks = gradient.tables[0], blank.tables[0], special.tables[0]
    theirs = stored("bert_sst2_attributions.parquet")
    paper = {"attention_rollout": ("rollout", "-0.03 ± 0.29"), NORM: ("norm", "0.41 ± 0.26"), "alti": ("ours", "0.55 ± 0.19")}
    lines = []
    for method in gradient.setup.methods:
        key, said = paper.get(method, (None, None))
        own = None if key is None else mean_with_interval([spearman(row[key], row["grad"]) for row in theirs])
        mine = table.row(method)
        lines.append((method, said, own, mine["spearman"], mine["std"], blanked.row(method)["spearman"]))
    grad = {method: table.row(method)["spearman"] for method in gradient.setup.methods}
    ordered = grad["attention_rollout"].high < grad[NORM].low and grad[NORM].high < grad["alti"].low
    by_layer, less_alike = anisotropy(shape)
    low, high = ranks.row("alti"), ranks.row("attention_rollout")
    lower = all(low[token].high < high[token].low for token in ranks.columns[1:])
    agree = seeds()
    columns = ("method", "paper (mean ± std)", "authors' scores, our metric", "ours, gradient", "std", "ours, blank-out")
    return f"""# ALTI: the paper's results, ours beside them

Generated by `python -m recipes.results`: edit that, not this page.

Ferrando et al. 2022, *Measuring the Mixing of Contextual Information in the Transformer*. The paper's models are BERT and
others fine-tuned on SST-2, of 12 layers; ours is MiniLM fine-tuned on SST-2 (6 layers, width 384), on real SST-2 sentences.
Made by `python -m recipes.results`; the commands read models and data in `../shared`, which are not part of the package.
Intervals are of 95 %.

## Table 2: correlation with gradients

Spearman's rank correlation with the gradient's L2 norm ({of(gradient)}), and with blank-out ({of(blank)}; each token replaced
by [MASK]). The third column is our metric on the attributions that the authors stored ({len(theirs)} sentences): it shows that
the metric is theirs.

{rows(columns, lines)}

- *Attention rollout does not correlate with gradients, Norm rollout does, ALTI more.* {verdict(ordered)} The order is the
  paper's, and no two of these intervals touch.
- Beyond the paper's table: `globenc`, which it does not have, correlates with gradients more than ALTI does
  ({told(table, "globenc", "spearman")} against {told(table, "alti", "spearman")}). With blank-out, which changes the input for
  real, the two are {told(blanked, "globenc", "spearman")} and {told(blanked, "alti", "spearman")}.

{command("alti-gradient")}

{command("alti-blank-out")}

![Spearman correlation with gradients by method](figures/alti-gradient.svg)

## Figure 3: anisotropy

Mean cosine similarity by layer ({of(shape)}), and the authors' own numbers for BERT.

{by_layer}

- *Transformed vectors are less alike than representations, so that distances between them mean something.*
  {verdict(less_alike)} In every layer, and both rise towards the last layers as in BERT.

{command("alti-anisotropy")}

![Mean cosine similarity by layer](figures/alti-anisotropy.svg)

## Special tokens and punctuation

Normalised relevance rank, 1 for the most relevant token of a text ({of(special)}).

{rows(ranks.columns, ranks.rows)}

- *ALTI ranks special tokens and punctuation lower than attention rollout does.* {verdict(lower)} Gradients and GlobEnc put
  [CLS], [SEP] and the full stop lower still.

{command("alti-special")}

## Agreement across seeds

No models that differ in their seed alone are at hand, so this is our metric on the attributions that the authors stored for
MultiBERTs (seeds 0 to 5, every two of them, sentences that both predict alike). With models of your own:
`mixlens experiment alti-consistency --model A --model B`.

{rows(("authors' attributions", "Spearman between seeds"), [(f"`{key}`", cell) for key, cell in agree.items()])}

- *ALTI (`ours`) agrees across seeds more than gradients do.* {verdict(agree["ours"].low > agree["grad"].high)}
"""


# --- Value Zeroing ----------------------------------------------------------------------------------------------------


def value_zeroing(runs: Runs) -> str:
    kinds = ("alignment", "faithfulness", "distances", "probing")
    aligned, faithful, distances, probing = (runs[f"vz-{name}"] for name in kinds)
    residual, faithful_residual = (runs[f"vz-{name}"].tables[0] for name in ("residual", "residual-faithfulness"))
    with_it = WITH_RESIDUAL[1]
    table, curve = aligned.tables
    by_layer: dict[str, list[float]] = {}
    for row in curve.rows:
        by_layer.setdefault(str(row[0]), []).append(row[2].mean)
    mean = {method: sum(values) / len(values) for method, values in by_layer.items()}
    rivals = [method for method in aligned.setup.methods if method not in ("value_zeroing", "grad_x_input")]
    spearmans = faithful.tables[0]
    code, follows = probing.tables[0], dict(probing.tables[1].rows)
    gap, cue, other = ({layer: c for place, layer, c in code.rows if place == name} for name in ("gap", "cue", "other"))
    last = max(gap)
    like = [row[2].mean for row in distances.tables[0].rows]
    lines = [(method, mean.get(method), *list(table.row(method).values())[1:]) for method in aligned.setup.methods]
    return f"""# Value Zeroing: the paper's results, ours beside them

Generated by `python -m recipes.results`: edit that, not this page.

Mohebbi et al. 2023, *Quantifying Context Mixing in Transformers*. The paper's models are BERT, RoBERTa and ELECTRA, pre-trained
and fine-tuned on BLiMP; ours is MiniLM (6 layers) with a masked-language head, tuned on target against foil, which is the
paper's fine-tuned setting, on BLiMP sentences whose cues are found by rule. Two thirds of the sentences were seen in tuning.
The paper gives curves rather than tables of numbers, so what is compared is what it concludes from them. Made by
`python -m recipes.results`; the commands read models and data in `../shared`, which are not part of the package. Intervals are
of 95 %.

## Cue alignment

The row of [MASK], {of(aligned)}. `mean of layers` is the mean dot product with the cue over the single layers, the paper's
view; the other columns are over all layers at once (maps rolled out).

{rows(("method", "mean of layers", *table.columns[1:]), lines)}

- *In single layers Value Zeroing aligns with the cue best of all maps.* (Dot product, mean of layers.)
  {is_best(aligned, "value_zeroing", "cue_dot", rivals=rivals, layer="single")}
- *It also does when rolled out.* (Dot product.) {is_best(aligned, "value_zeroing", "cue_dot", rivals=rivals, layer="all")}
- The same by average precision, rolled out:
  {is_best(aligned, "value_zeroing", "cue_average_precision", rivals=rivals, layer="all")}
- Why: a row of Value Zeroing says what a position takes through values, and hardly anything of what it keeps by the residual
  stream, so that a product over layers forgets with which token a position began. With the identity added (`{with_it}`) average
  precision goes from {told(residual, "value_zeroing", "cue_average_precision")} to
  {told(residual, with_it, "cue_average_precision")}: part of the way to maps that have the residual in them. In single layers,
  where the paper looks most, nothing is lost.

{command("vz-alignment")}

{command("vz-residual")}

![Cue alignment by layer and method](figures/vz-alignment.svg)

## Probing

How well the number (singular or plural) is compressed, by online coding ({of(probing)}). 1.0: nothing is known.

{rows(("layer", "gap", "cue", "another word"), [(layer, gap[layer], cue[layer], other[layer]) for layer in gap])}

- *The gap comes to know the number on the way up, another word does not as much.*
  {verdict(gap[last].low > gap[0].high and gap[last].low > other[last].high)} The gap goes from {gap[0].mean:.2f} to
  {gap[last].mean:.2f}, another word from {other[0].mean:.2f} to {other[last].mean:.2f}.
- Cue alignment against the gap's compression, Spearman over {last} layers, so few that only the sign says something:
  {", ".join(f"`{method}` {value:.2f}" for method, value in follows.items())}.

{command("vz-probing")}

![Compression by layer](figures/vz-probing.svg)

## Faithfulness

Spearman's rank correlation with blank-out (replaced by [UNK], target against foil), {of(faithful)}. Blank-out is signed and
maps are not, so that none can be near 1.

{rows(spearmans.columns, spearmans.rows)}

- *Value Zeroing is the most faithful of the maps.* (Rolled out.)
  {is_best(faithful, "value_zeroing", "spearman", rivals=rivals, layer="all")}
- In single layers (mean of layers): {is_best(faithful, "value_zeroing", "spearman", rivals=rivals, layer="single")}
- Why: as above. With the identity added the correlation goes from {told(faithful_residual, "value_zeroing", "spearman")} to
  {told(faithful_residual, with_it, "spearman")}.

{command("vz-faithfulness")}

![Correlation with blank-out by layer](figures/vz-faithfulness.svg)

## Distances

Value Zeroing by other distances, {of(distances)}. `like_the_first`: rank correlation with the row by the cosine.

{rows(distances.tables[0].columns, distances.tables[0].rows)}

- *The choice of distance changes little.* {verdict(min(like) > 0.8)} The lowest rank correlation with the cosine's row is
  {min(like):.2f}.

{command("vz-distances")}
"""


# --- AttCAT -----------------------------------------------------------------------------------------------------------


def attcat(runs: Runs) -> str:
    paper, released, confident = (runs[f"attcat-{name}"] for name in ("faithfulness", "released", "confidence"))
    table, other, classes = paper.tables[0], released.tables[0], confident.tables[0]
    rivals = [method for method in paper.setup.methods if method != "attcat"]
    classed = [method for method in confident.setup.methods if method != "attcat"]
    lines = []
    for method in paper.setup.methods:
        mine, theirs = table.row(method), other.row(method)
        lines.append((method, mine["aopc"], mine["lodds"], theirs["aopc"], theirs["lodds"]))
    return f"""# AttCAT: the paper's results, ours beside them

Generated by `python -m recipes.results`: edit that, not this page.

Qiang et al. 2022, *AttCAT: Explaining Transformers via Attentive Class Activation Tokens*. The paper's models are BERT,
DistilBERT and RoBERTa on seven datasets; ours is MiniLM fine-tuned on SST-2, on real SST-2 sentences. Its numbers belong to
other models and sentences; what is compared is what it says of the methods. Made by `python -m recipes.results`; the commands
read models and data in `../shared`, which are not part of the package. Intervals are of 95 %.

## AOPC and LOdds

AOPC: higher is better. LOdds: lower is better. As the paper defines them ({of(paper)}), and as the authors' notebooks compute
them ({of(released)}: nine steps, gold label, absolute differences, no sentence under ten tokens).

{rows(("method", "AOPC", "LOdds", "AOPC, released", "LOdds, released"), lines)}

- *AttCAT has the highest AOPC.* {is_best(paper, "attcat", "aopc", rivals=rivals)}
- *AttCAT has the lowest LOdds.* {is_best(paper, "attcat", "lodds", rivals=rivals, lowest=True)}
- Computed as released, AOPC: {is_best(released, "attcat", "aopc", rivals=rivals)}
- Computed as released, LOdds: {is_best(released, "attcat", "lodds", rivals=rivals, lowest=True)}
- `cat`, AttCAT without attention, is as good: the weights by attention add nothing that can be seen here.

{command("attcat-faithfulness")}

{command("attcat-released")}

![AOPC and LOdds after each step](figures/attcat-faithfulness.svg)

## Confidence

Kendall's tau between the predicted class's scores and the other's ({of(confident)}). Lower is better. Methods that do not know of
classes have 1 by definition, and are refused.

{rows(classes.columns, classes.rows)}

- *AttCAT is the most confident.* {is_best(confident, "attcat", "kendall", rivals=classed, lowest=True)} With two classes
  this says more of the sign than of the method: the two logits are nearly mirror images, so that signed gradients are too.
  `released` correlates sorted positions, which compares nothing.

{command("attcat-confidence")}

## Precision@K on SQuAD

Not measured: no question-answering model is at hand. With one (a folder or a hub id):

    mixlens experiment attcat-qa --model deepset/bert-base-cased-squad2 --data squad1 --n 200 --leave-out --out runs/qa
"""


PAGES: dict[str, Callable[[Runs], str]] = {"alti": alti, "value-zeroing": value_zeroing, "attcat": attcat}


def main(folder: str, *pages: str) -> None:
    DOCS.joinpath("figures").mkdir(parents=True, exist_ok=True)
    for name in pages or PAGES:
        DOCS.joinpath(f"{name}.md").write_text(PAGES[name](Runs(Path(folder))), encoding="utf-8")
        print(f"docs/measured/results/{name}.md")


if __name__ == "__main__":
    main(*sys.argv[1:])
