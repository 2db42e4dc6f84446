"""Value Zeroing, evaluation 2 (section 6, Figure 3, Table 2): does cue alignment rise where the gap comes to know the
number?"""

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
from ...runs.experiments.claims import Claim, Measured, Published, Verdict, incomparable
from ...runs.experiments.experiment import Setup
from ...runs.experiments.figures import curves_of, lines
from ...runs.experiments.layer_curves import Agreement, agreement, rank_curves, verdict_on_agreement, verdict_on_draws
from ...runs.experiments.tables import Table, layer_records
from ...types import Example, Record
from .main import (
    CUE_OPTIONS,
    DIFFERS_DATA,
    DIFFERS_GRADIENTS,
    GRADIENTS,
    LANGUAGE,
    METHODS,
    OURS,
    cues_of,
    names_in,
    refuse_unknown_words,
    rows_of,
    value_zeroing,
)

PLACES = ("gap", "cue", "other")
FEWEST = 40  # examples
DRAWS = 1000
DIGITS = 6  # of the values of single examples that records hold
TABLE_2 = {  # in the order of METHODS
    "BERT, pre-trained": "-0.07 0.10 0.52 -0.35 0.12 -0.01 -0.01 -0.96 -0.86 -0.97 0.65",
    "BERT, fine-tuned": "-0.02 0.08 0.56 -0.24 0.17 -0.12 -0.12 -0.99 -0.77 -1.00 0.64",
}
FIGURE_3 = {("gap", 3): "1.52", ("gap", 4): "1.72", ("gap", 8): "2.03", ("gap", 9): "2.45"}
JUMPS = (4, 9)  # the layers at which the fine-tuned BERT jumps


# --- what records say -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curves:
    """What a run measured: bits [layer example] of the gap's number (layer 0 is the embedding); the cue's share in
    layers 1 to the last, [layer example] of each method, for some of the examples or all of them."""

    bits: Array
    alignment: Mapping[str, Array]
    seed: int

    @cached_property
    def compression(self) -> Array:
        """[layer], layers 1 to the last: uniform bits over bits (eq. 13). The uniform code of two numbers takes one
        bit."""
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
    """[draw layer]: the means of [layer example] over examples drawn again, the same ones for the same number of
    examples. An example without a value (NaN) in a layer is in no mean of that layer."""
    n = values.shape[1]
    counts = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=DRAWS).astype(np.float64)
    defined = ~np.isnan(values)
    total, weight = counts @ np.where(defined, values, 0).T, counts @ defined.T
    return np.divide(total, weight, out=np.full_like(total, np.nan), where=weight > 0)


def curves_in(run: Measured) -> Curves:
    """The curves that the records hold."""
    bits = {r.info["layer"]: r.info["bits"] for r in run.records if (r.method, r.metric) == ("gap", "compression")}
    layers = range(1, max((r.info["layer"] for r in run.records if r.metric == "cue_dot"), default=0) + 1)
    alignment = {
        method: np.array([list(run[method, "cue_dot", layer].values()) for layer in layers])
        for method in run.setup.methods
        if run[method, "cue_dot"]
    }
    return Curves(np.array([bits[layer] for layer in sorted(bits)]), alignment, run.setup.seed)


def _finish_probing(setup: Setup, records: list[Record]) -> list[Table]:
    curves = curves_in(Measured(setup, records, []))
    depth = len(curves.compression)
    rows = tuple(
        (r.method, r.info["layer"], Interval(r.value, *(r.info[name] for name in ("low", "high", "n", "std"))))
        for r in records
        if r.metric == "compression"
    )
    follows = tuple((method, curves.interval(method), curves.agreement(method).p) for method in curves.alignment)
    alignment = tuple((method, *np.nanmean(values, -1).tolist()) for method, values in curves.alignment.items())
    nothing = (
        "1.44: nothing is known (released code)" if setup.options["variant"] == "released" else "1: nothing is known"
    )
    note = f"Compression (eq. 13) of the number, singular or plural, by online coding; {nothing}. Layer 0 is the "
    note += "embedding."
    rises = "Does cue alignment rise with compression? Spearman's rank correlation over layers"
    count = max((values.shape[-1] for values in curves.alignment.values()), default=0)
    why = (
        f"The interval is what other sentences would give, by resampling; p is the share of orders of the {depth} "
        f"layers that give as much by chance, in either direction. Cue alignment is measured on {count:,} of the "
        f"{len(setup.examples):,} sentences (option aligned)."
    )
    aligned = "Cue alignment (dot product) by layer"
    return [
        Table("compression", "What representations know of the number", ("place", "layer", "compression"), rows, note),
        Table("follows", rises, ("method", "spearman", "p"), follows, why),
        Table("alignment", aligned, ("method", *map(str, range(1, depth + 1))), alignment),
    ]


# --- claims -----------------------------------------------------------------------------------------------------------


def on_agreement(run: Measured, names: Sequence[str], *, negative: bool = False) -> Verdict:
    """Cue alignment by these methods rises over layers with compression (falls, with `negative`)."""
    curves = curves_in(run)
    found = {name: curves.agreement(name) for name in names if name in curves.alignment}
    return verdict_on_agreement(found, negative=negative)


def ours_is_first(run: Measured) -> Verdict:
    curves = curves_in(run)
    values = {name: curves.agreement(name).rho for name in curves.alignment}
    return verdict_on_draws(values, curves.draws, [(OURS, name) for name in METHODS[:-1]])


def above_zero(run: Measured, contrasts: Mapping[str, Array]) -> Verdict:
    """The verdict on "each of these is above 0", from [example] each."""
    return run.positive(
        {name: {str(place): float(value) for place, value in enumerate(values)} for name, values in contrasts.items()}
    )


def probing_rises(run: Measured) -> Verdict:
    """The bits that a label takes in each layer less those in the next one."""
    steps = enumerate(pairwise(curves_in(run).bits))
    return above_zero(run, {f"bits at layer {i} - at layer {i + 1}": low - high for i, (low, high) in steps})


def known_above(run: Measured) -> Verdict:
    """The bits that a label takes at the embedding less those at the last layer."""
    bits = curves_in(run).bits
    return above_zero(run, {"bits at the embedding - at the last layer": bits[0] - bits[-1]})


def at_jumps(run: Measured, values: Array, told: str) -> Verdict:
    """The values of layers 4 and 9, each less the mean of those of the other layers: [layer example]."""
    if len(values) != 12:
        return incomparable(f"the paper names layers of a model with 12; this one has {len(values)}")
    rest = np.delete(values, [layer - 1 for layer in JUMPS], axis=0).mean(0)
    return above_zero(run, {told.format(layer): values[layer - 1] - rest for layer in JUMPS})


def jumps(run: Measured) -> Verdict:
    """The bits saved by layers 4 and 9, each less the mean of what the other layers save."""
    bits = curves_in(run).bits
    return at_jumps(run, bits[:-1] - bits[1:], "bits saved at layer {} - at others")


def aligned_at_jumps(run: Measured) -> Verdict:
    """The cue's share by Value Zeroing in layers 4 and 9, each less the mean of its shares in the other layers."""
    alignment = curves_in(run).alignment.get(OURS)
    if alignment is None:
        return incomparable(f"not run: {OURS}")
    return at_jumps(run, alignment, "cue alignment in layer {} - in others")


BITS: Mapping[str, Any] = {"variant": "paper"}  # a run of variant=released is for the compression alone
RELEASED: Mapping[str, Any] = {"variant": "released"}  # the paper's compressions are those of its released code
CLAIMS = (
    Claim(
        "section 6, Table 2",
        "Cue alignment by Value Zeroing rises over layers with the probe's compression.",
        "rho 0.65 (pre-trained), 0.64 (fine-tuned)",
        lambda run: on_agreement(run, (OURS,)),
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
        lambda run: on_agreement(run, GRADIENTS, negative=True),
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
        "Value Zeroing aligns more with cue words at layers 4 and 9, where compression jumps: read here as a larger "
        "share for cue words than the mean of the other layers.",
        "heat maps; no number in the text",
        aligned_at_jumps,
        given=BITS,
    ),
)


# --- the long work ----------------------------------------------------------------------------------------------------


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
    aligned = setup.options["aligned"]
    if aligned is not None and not (isinstance(aligned, int) and aligned >= 2):
        raise InputError(
            f"aligned is the number of examples with cue alignment, 2 or more, or null for all; not {aligned!r}."
        )
    if len(setup.examples) < FEWEST or len({example.info["number"] for example in setup.examples}) < 2:
        raise InputError(f"probing needs {FEWEST} examples or more, singular and plural ones.")


@value_zeroing(
    name="vz-probing",
    packages=("scipy",),
    shows="Figure 3 and Table 2: probing for number by layer, and its correlation with cue alignment",
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
        "variant=paper counts bits as Voita and Titov define them. variant=released counts as the paper's released "
        "code does, which adds nats to bits: there no label compresses to over 3.19, and the compressions of the two "
        "are not comparable.",
    ),
    published=(
        *(
            Published("Table 2", setting, "spearman", dict(zip(METHODS, numbers.split(), strict=True)), table="follows")
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
    """From which layer on does the gap know the number, by minimum description length, and does cue alignment rise
    there?"""
    places, options = names_in(setup.options["places"]), setup.options
    cells = [(place, layer) for layer in range(setup.model.n_layers + 1) for place in places]
    missing = [cell for cell in cells if "{}-{}".format(*cell) not in setup.done]
    states = _states(setup, examples) if missing else {}
    labels = [example.info["number"] for example in examples]
    settings: dict[str, Any] = {"percents": MOHEBBI, "seed": setup.seed}
    settings |= {key: options[key] for key in ("epochs", "variant")}
    for place, layer in missing:
        code = online_code(states[place][:, layer], labels, **settings)
        rate, bits = code.compression, [round(float(value), DIGITS) for value in code.each]
        info = {"layer": layer, "low": rate.low, "high": rate.high, "std": rate.std, "n": rate.n, "bits": bits}
        yield f"{place}-{layer}", [Record("all", place, "compression", rate.mean, info)]
    # Cue alignment of all examples, or of so many drawn by the seed, since files are often sorted by task.
    count = min(len(examples), options["aligned"] or len(examples))
    for number in sorted(np.random.default_rng(setup.seed).permutation(len(examples))[:count].tolist()):
        if f"alignment-{number}" not in setup.done:
            yield f"alignment-{number}", _alignment(setup, examples[number])


def _states(setup: Setup, examples: Sequence[Example]) -> dict[str, Array]:
    """place -> hidden states [example layer d]. The other place is a token that is neither the gap, nor a cue, nor
    special; the last one where there is none."""
    generator = np.random.default_rng(setup.seed)
    states: dict[str, list[Array]] = {place: [] for place in PLACES}
    for example in examples:
        trace = setup.model.trace(example)
        cues = cue_tokens(example, trace)
        taken = {trace.query, *cues}
        free = [i for i, special in enumerate(trace.special) if not special and i not in taken]
        other = int(generator.choice(free)) if free else len(trace) - 1
        for place, position in zip(PLACES, (trace.query, cues[0], other), strict=True):
            states[place].append(trace.hidden_states[:, position].cpu().double().numpy())
    return {place: np.stack(states[place]) for place in names_in(setup.options["places"])}


def _alignment(setup: Setup, example: Example) -> list[Record]:
    """The cue's share in every layer, by every method."""
    trace = setup.model.trace(example)
    cues, signs = cues_of(setup, trace, example), setup.options["signs"]
    records = []
    for method, rows in rows_of(setup, trace, example, overall=False).items():
        shares = (cue_dot(scores, cues, signs=signs) for scores in rows.layers)
        records += layer_records(example.id, method, "cue_dot", shares)
    return records
