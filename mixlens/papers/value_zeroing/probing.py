"""Value Zeroing, evaluation 2 (section 6, Figure 3, Table 2): does cue alignment rise where the gap comes to know the number?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from ...base.errors import InputError
from ...data import cue_tokens
from ...metrics import Interval
from ...metrics.alignment import SIGNS, cue_dot
from ...metrics.arguments import VARIANTS, Array, one_of
from ...metrics.probing import MOHEBBI, online_code
from ...runs.experiments.claims import Claim, Published, Verdict, incomparable, positive
from ...runs.experiments.experiment import Setup, experiment
from ...runs.experiments.figures import curves_of, lines
from ...runs.experiments.layer_curves import Agreement, agreement, rank_curves, verdict_on_agreement, verdict_on_draws
from ...runs.experiments.tables import Cell, Table
from ...types import Example, Record, Trace
from .main import (
    CUE_OPTIONS,
    DATA,
    DIFFERS_DATA,
    DIFFERS_GRADIENTS,
    GRADIENTS,
    LANGUAGE,
    METHODS,
    MODEL,
    PAPER,
    by_layer,
    cues_of,
    depth_of,
    names_in,
    refuse_unknown_words,
    rows_of,
)

OURS = "value_zeroing"
PLACES = ("gap", "cue", "other")
GAP = ("gap", "compression")
FEWEST = 40  # examples
DRAWS = 1000
DIGITS = 6  # of the values of single examples that records hold
TABLE_2 = {
    "BERT, pre-trained": (
        "-0.07",
        "0.10",
        "0.52",
        "-0.35",
        "0.12",
        "-0.01",
        "-0.01",
        "-0.96",
        "-0.86",
        "-0.97",
        "0.65",
    ),
    "BERT, fine-tuned": ("-0.02", "0.08", "0.56", "-0.24", "0.17", "-0.12", "-0.12", "-0.99", "-0.77", "-1.00", "0.64"),
}
FIGURE_3 = {("gap", 3): "1.52", ("gap", 4): "1.72", ("gap", 8): "2.03", ("gap", 9): "2.45"}
JUMPS = (4, 9)  # the layers at which the fine-tuned BERT jumps


# --- what records say ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curves:
    """What a run measured: bits [layer example] of the gap's number (layer 0 is the embedding); the cue's share in layers 1 to
    the last, [layer example] of each method, for some of the examples or all of them."""

    bits: Array
    alignment: Mapping[str, Array]
    seed: int

    @cached_property
    def compression(self) -> Array:
        """[layer], layers 1 to the last: uniform bits over bits (eq. 13). The uniform code of two numbers takes one bit."""
        return 1 / self.bits[1:].mean(-1)

    def agreement(self, method: str) -> Agreement:
        return agreement(np.nanmean(self.alignment[method], -1), self.compression, seed=self.seed)

    @cached_property
    def draws(self) -> dict[str, Array]:
        """[draw] of each method: rho over layers, of examples drawn again; the same draws for every method."""
        compression = 1 / _resampled(self.bits[1:], self.seed)
        return {
            method: rank_curves(_resampled(values, self.seed), compression) for method, values in self.alignment.items()
        }

    def interval(self, method: str) -> Interval:
        low, high = np.nanpercentile(self.draws[method], [2.5, 97.5])
        spread = float(np.nanstd(self.draws[method]))
        return Interval(self.agreement(method).rho, float(low), float(high), self.bits.shape[1], spread)


def _resampled(values: Array, seed: int) -> Array:
    """[draw layer]: the means of [layer example] over examples drawn again, the same ones for the same number of examples.
    An example without a value (NaN) in a layer is in no mean of that layer."""
    n = values.shape[1]
    counts = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=DRAWS).astype(np.float64)
    defined = ~np.isnan(values)
    total, weight = counts @ np.where(defined, values, 0).T, counts @ defined.T
    return np.divide(total, weight, out=np.full_like(total, np.nan), where=weight > 0)


def curves_in(setup: Setup, records: Sequence[Record]) -> Curves:
    """The curves that the records hold."""
    bits = {record.info["layer"]: record.info["bits"] for record in records if (record.method, record.metric) == GAP}
    values = by_layer(records, "cue_dot")
    layers = range(1, depth_of(values) + 1)
    names = [method for method in setup.methods if (method, 1) in values]
    alignment = {method: np.array([list(values[method, layer].values()) for layer in layers]) for method in names}
    return Curves(np.array([bits[layer] for layer in sorted(bits)]), alignment, setup.seed)


def _finish_probing(setup: Setup, records: list[Record]) -> list[Table]:
    curves = curves_in(setup, records)
    depth = len(curves.compression)
    rows = tuple((r.method, r.info["layer"], _interval(r)) for r in records if r.metric == "compression")
    follows = tuple(
        (method, curves.interval(method), curves.agreement(method).p)
        for method in setup.methods
        if method in curves.alignment
    )
    alignment: tuple[tuple[Cell, ...], ...] = tuple(
        (method, *np.nanmean(values, -1).tolist()) for method, values in curves.alignment.items()
    )
    nothing = (
        "1.44: nothing is known (released code)" if setup.options["variant"] == "released" else "1: nothing is known"
    )
    note = f"Compression (eq. 13) of the number, singular or plural, by online coding; {nothing}. Layer 0 is the embedding."
    rises = "Does cue alignment rise with compression? Spearman's rank correlation over layers"
    why = (
        "The interval is what other sentences would give, by resampling; p is the share of orders of the "
        f"{depth} layers that give as much by chance, in either direction. Cue alignment is measured on "
        f"{_aligned_words(setup, curves)}"
    )
    return [
        Table("compression", "What representations know of the number", ("place", "layer", "compression"), rows, note),
        Table("follows", rises, ("method", "spearman", "p"), follows, why),
        Table(
            "alignment", "Cue alignment (dot product) by layer", ("method", *map(str, range(1, depth + 1))), alignment
        ),
    ]


def _aligned_words(setup: Setup, curves: Curves) -> str:
    count = max((values.shape[-1] for values in curves.alignment.values()), default=0)
    return f"{count:,} of the {len(setup.examples):,} sentences (option aligned)."


def _interval(record: Record) -> Interval:
    info = record.info
    return Interval(record.value, info["low"], info["high"], info["n"], info["std"])


# --- claims -------------------------------------------------------------------------------------------------------------


def ours_rises(setup: Setup, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
    curves = curves_in(setup, records)
    return verdict_on_agreement({name: curves.agreement(name) for name in (OURS,) if name in curves.alignment})


def gradients_fall(setup: Setup, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
    curves = curves_in(setup, records)
    return verdict_on_agreement(
        {name: curves.agreement(name) for name in GRADIENTS if name in curves.alignment}, negative=True
    )


def ours_is_first(setup: Setup, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
    curves = curves_in(setup, records)
    values = {name: curves.agreement(name).rho for name in curves.alignment}
    return verdict_on_draws(values, curves.draws, [(OURS, name) for name in METHODS[:-1]])


def probing_rises(setup: Setup, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
    """The bits that a label takes in each layer less those in the next one."""
    bits = curves_in(setup, records).bits
    steps = enumerate(pairwise(bits))
    return positive(
        {f"bits at layer {i} - at layer {i + 1}": _named(low - high) for i, (low, high) in steps}, seed=setup.seed
    )


def known_above(setup: Setup, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
    """The bits that a label takes at the embedding less those at the last layer."""
    bits = curves_in(setup, records).bits
    return positive({"bits at the embedding - at the last layer": _named(bits[0] - bits[-1])}, seed=setup.seed)


def jumps(setup: Setup, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
    """The bits saved by layers 4 and 9, each less the mean of what the other layers save."""
    bits = curves_in(setup, records).bits
    if len(bits) != 13:
        return incomparable(f"the paper names layers of a model with 12; this one has {len(bits) - 1}")
    saved = bits[:-1] - bits[1:]
    rest = np.delete(saved, [layer - 1 for layer in JUMPS], axis=0).mean(0)
    contrasts = {f"bits saved at layer {layer} - at others": _named(saved[layer - 1] - rest) for layer in JUMPS}
    return positive(contrasts, seed=setup.seed)


def aligned_at_jumps(setup: Setup, records: Sequence[Record], tables: Sequence[Table]) -> Verdict:
    """The cue's share by Value Zeroing in layers 4 and 9, each less the mean of its shares in the other layers."""
    alignment = curves_in(setup, records).alignment.get(OURS)
    if alignment is None:
        return incomparable(f"not run: {OURS}")
    if len(alignment) != 12:
        return incomparable(f"the paper names layers of a model with 12; this one has {len(alignment)}")
    rest = np.delete(alignment, [layer - 1 for layer in JUMPS], axis=0).mean(0)
    contrasts = {f"cue alignment in layer {layer} - in others": _named(alignment[layer - 1] - rest) for layer in JUMPS}
    return positive(contrasts, seed=setup.seed)


def _named(values: Array) -> dict[str, float]:
    return {str(place): float(value) for place, value in enumerate(values)}


BITS: Mapping[str, Any] = {"variant": "paper"}  # a run of variant=released is for the compression alone
RELEASED: Mapping[str, Any] = {"variant": "released"}  # the paper's compressions are those of its released code
CLAIMS = (
    Claim(
        "section 6, Table 2",
        "Cue alignment by Value Zeroing rises over layers with the probe's compression.",
        "rho 0.65 (pre-trained), 0.64 (fine-tuned)",
        ours_rises,
        given=BITS,
    ),
    Claim(
        "section 6, Table 2",
        "Value Zeroing's correlation is the highest of the eleven methods.",
        "0.65, 0.64; next: Attn-norm 0.52, 0.56",
        ours_is_first,
        given=BITS,
    ),
    Claim(
        "section 6, Table 2",
        "Cue alignment by gradient-based scores falls where compression rises.",
        "GradXinput -0.96, -0.99; IG -0.86, -0.77; DL -0.97, -1.00",
        gradients_fall,
        given=BITS,
    ),
    Claim("section 6", "The probe's compression goes up monotonically along the layers.", "Figure 3", probing_rises),
    Claim(
        "section 6, Figure 3",
        "The last layer knows the number better than the embedding, the baseline without context.",
        "a curve; no number in the text",
        known_above,
    ),
    Claim(
        "section 6, Figure 3",
        "Compression jumps at layers 4 and 9 of the fine-tuned model.",
        "1.52 to 1.72, 2.03 to 2.45",
        jumps,
        given=RELEASED,
    ),
    Claim(
        "section 6, Figures 1 and 2",
        "Value Zeroing aligns more with cue words at layers 4 and 9, where compression jumps: read here as a larger share for "
        "cue words than the mean of the other layers.",
        "heat maps; no number in the text",
        aligned_at_jumps,
        given=BITS,
    ),
)


# --- the long work ------------------------------------------------------------------------------------------------------


def _prepare_probing(setup: Setup) -> None:
    refuse_unknown_words(setup)
    one_of("signs", setup.options["signs"], SIGNS)
    one_of("variant", setup.options["variant"], VARIANTS)
    for place in names_in(setup.options["places"]):
        one_of("places", place, PLACES)
    if "gap" not in names_in(setup.options["places"]):
        raise InputError(
            "places must name the gap: its representation is what is probed. Give places=gap, or gap,cue,other."
        )
    _refuse_few(setup)


def _refuse_few(setup: Setup) -> None:
    aligned = setup.options["aligned"]
    if aligned is not None and not (isinstance(aligned, int) and aligned >= 2):
        raise InputError(
            f"aligned is the number of examples with cue alignment, 2 or more, or null for all; not {aligned!r}."
        )
    if len(setup.examples) < FEWEST or len({example.info["number"] for example in setup.examples}) < 2:
        raise InputError(f"probing needs {FEWEST} examples or more, singular and plural ones.")


@experiment(
    name="vz-probing",
    packages=("scipy",),
    paper=PAPER,
    shows="Figure 3 and Table 2: probing for number by layer, and its correlation with cue alignment",
    data=DATA,
    model=MODEL,
    methods=METHODS,
    task=LANGUAGE,
    needs=("target", "cues", "number"),
    whole=True,
    options={**CUE_OPTIONS, "variant": "paper", "epochs": 100, "places": "gap", "aligned": None},
    prepare=_prepare_probing,
    finish=_finish_probing,
    figure=lambda setup, tables, figure: lines(
        figure.subplots(), curves_of(tables[0], "compression", name="place"), x="layer", y="compression"
    ),
    differs=(
        *DIFFERS_DATA,
        *DIFFERS_GRADIENTS,
        "variant=paper counts bits as Voita and Titov define them. variant=released counts as the paper's released code does, "
        "which adds nats to bits: there no label compresses to over 3.19, and the compressions of the two are not comparable.",
    ),
    published=(
        *(
            Published("Table 2", setting, "spearman", dict(zip(METHODS, numbers, strict=True)), table="follows")
            for setting, numbers in TABLE_2.items()
        ),
        Published(
            *("section 6, Figure 3", "BERT, fine-tuned, 12 layers", "compression"),
            FIGURE_3,
            "compression",
            2,
            absent="-",
            given=RELEASED,
        ),
    ),
    claims=CLAIMS,
)
def probing(setup: Setup, examples: list[Example]) -> Iterator[tuple[str, list[Record]]]:
    """From which layer on does the gap know the number, by minimum description length, and does cue alignment rise there?"""
    yield from _compressions(setup, examples)
    for place in _aligned_places(setup, len(examples)):
        if f"alignment-{place}" not in setup.done:
            yield f"alignment-{place}", _alignment(setup, examples[place])


def _aligned_places(setup: Setup, n: int) -> list[int]:
    """The places of the examples whose cue alignment is measured: all of them, or so many drawn by the seed, since files are
    often sorted by task."""
    count = min(n, setup.options["aligned"] or n)
    return sorted(np.random.default_rng(setup.seed).permutation(n)[:count].tolist())


def _compressions(setup: Setup, examples: Sequence[Example]) -> Iterator[tuple[str, list[Record]]]:
    """The compression of every place and layer that is not done."""
    cells = [(place, layer) for layer in range(setup.model.n_layers + 1) for place in names_in(setup.options["places"])]
    missing = [cell for cell in cells if "{}-{}".format(*cell) not in setup.done]
    states = _states(setup, examples) if missing else {}
    labels = [example.info["number"] for example in examples]
    for place, layer in missing:
        yield f"{place}-{layer}", [_coded(setup, place, layer, states[place][:, layer], labels)]


def _states(setup: Setup, examples: Sequence[Example]) -> dict[str, Array]:
    """place -> hidden states [example layer d]."""
    generator = np.random.default_rng(setup.seed)
    states: dict[str, list[Array]] = {place: [] for place in PLACES}
    for example in examples:
        trace = setup.model.trace(example)
        cues = cue_tokens(example, trace)
        at = {"gap": trace.query, "cue": cues[0], "other": _other(trace, cues, generator)}
        for place, position in at.items():
            states[place].append(trace.hidden_states[:, position].cpu().double().numpy())
    return {place: np.stack(states[place]) for place in names_in(setup.options["places"])}


def _coded(setup: Setup, place: str, layer: int, features: Array, labels: Sequence[str]) -> Record:
    settings: dict[str, Any] = {key: setup.options[key] for key in ("epochs", "variant")}
    code = online_code(features, labels, percents=MOHEBBI, seed=setup.seed, **settings)
    rate = code.compression
    info = {"layer": layer, "low": rate.low, "high": rate.high, "std": rate.std, "n": rate.n, "bits": _short(code.each)}
    return Record("all", place, "compression", rate.mean, info)


def _short(values: Sequence[float]) -> list[float]:
    return [round(float(value), DIGITS) for value in values]


def _alignment(setup: Setup, example: Example) -> list[Record]:
    """The cue's share in every layer, by every method."""
    trace = setup.model.trace(example)
    cues, signs = cues_of(setup, trace, example), setup.options["signs"]
    return [
        Record(str(example.id), method, "cue_dot", cue_dot(scores, cues, signs=signs), {"layer": layer})
        for method, rows in rows_of(setup, trace, example, overall=False).items()
        for layer, scores in enumerate(rows.layers, 1)
    ]


def _other(trace: Trace, cues: Sequence[int], generator: np.random.Generator) -> int:
    """A token that is neither the gap, nor a cue, nor special; the last one where there is none."""
    free = [i for i, special in enumerate(trace.special) if not special and i != trace.query and i not in cues]
    return int(generator.choice(free)) if free else len(trace) - 1
