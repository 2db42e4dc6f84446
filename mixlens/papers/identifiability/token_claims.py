"""What On Identifiability in Transformers (Brunner et al. 2020) says about the identity of tokens (section 4, Appendix B)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...runs.experiments.claims import Claim, Examples, Verdict, incomparable
from ...types import Record
from .values import above_zero, almost_equal, depth_of, less, mean_over, select

# --- token identifiability (section 4, Appendix B) --------------------------------------------------------------------------


def text_rates(record: Record) -> dict[str, float]:
    """The share of tokens identified in each text that was tested."""
    return {str(text): hits / total for text, hits, total in record.info["by_text"] if total}


def rates_of(records: Iterable[Record], metric: str, *fields: str) -> dict[tuple[Any, ...], dict[str, float]]:
    """(kind, distance, layer, fields) -> the rate of each text."""
    found = select(records, metric)
    return {
        (r.method, r.info["distance"], r.info["layer"], *(r.info.get(name) for name in fields)): text_rates(r)
        for r in found
    }


def stopped(setup: Any, records: Iterable[Record]) -> list[Record]:
    """The records whose training the validation texts stopped, as in the paper. Option epochs= may cut others short."""
    cap = setup.options.get("epochs")
    return [r for r in records if cap is None or cap not in r.info.get("epochs", ())]


def _capped(setup: Any) -> bool:
    return setup.options.get("epochs") is not None


def by_rates(metric: str, *fields: str, rule: Callable[..., Verdict] = above_zero) -> Any:
    """A decorator: a function from rates and depth to contrasts becomes the check that all of them (or most) are above 0."""

    def decorate(contrasts: Callable[[Any, int], Mapping[str, Any]]) -> Any:
        def check(setup: Any, records: Sequence[Record], tables: Any) -> Verdict:
            rates = rates_of(stopped(setup, records), metric, *fields)
            try:
                return rule(contrasts(rates, depth_of(select(records, metric))), seed=setup.seed)
            except KeyError as missing:
                return not_run(setup, missing)

        return check

    return decorate


def not_run(setup: Any, missing: KeyError) -> Verdict:
    """What a claim compares is missing: it was not run, or its training was cut short."""
    cut = f", or cut short by epochs={setup.options['epochs']}" if _capped(setup) else ""
    return incomparable(f"not run: {_key_in_words(missing.args[0])}{cut}")


def _key_in_words(key: Any) -> str:
    """A key of rates in words: the kind of g, the distance, the layer it is tested on; or a share of the training texts."""
    if isinstance(key, tuple):
        return f"{key[0]} g by {key[1]}, layer {key[2]}"
    return f"{key:.0%} of the training texts" if isinstance(key, float) else str(key)


def over(rates: Examples, bound: float) -> dict[str, float]:
    return {text: rate - bound for text, rate in rates.items()}


@by_rates("identified")
def trained_above_naive(rates: Any, depth: int) -> Any:
    last = {kind: rates[kind, "cosine", depth] for kind in ("linear", "naive")}
    return {"linear - naive, last layer": less(last["linear"], last["naive"])}


@by_rates("identified")
def mostly_identifiable(rates: Any, depth: int) -> Any:
    return {"linear, cosine, last layer, less one half": over(rates["linear", "cosine", depth], 0.5)}


@by_rates("identified")
def rate_decreases(rates: Any, depth: int) -> Any:
    return {"first - last layer": less(rates["linear", "cosine", 1], rates["linear", "cosine", depth])}


@by_rates("identified")
def cosine_above_l2(rates: Any, depth: int) -> Any:
    kinds = [kind for kind in ("linear", "mlp") if (kind, "cosine", depth) in rates and (kind, "l2", depth) in rates]
    if not kinds:
        raise KeyError("linear or mlp by both distances")
    return {
        f"{kind}: cosine - l2, last layer": less(rates[kind, "cosine", depth], rates[kind, "l2", depth])
        for kind in kinds
    }


@by_rates("identified")
def naive_cosine_above_l2(rates: Any, depth: int) -> Any:
    means = {d: mean_over([rates["naive", d, layer] for layer in range(1, depth + 1)]) for d in ("cosine", "l2")}
    return {"naive: cosine - l2, mean over layers": less(means["cosine"], means["l2"])}


@by_rates("identified")
def naive_falls_late(rates: Any, depth: int) -> Any:
    """The fall per layer behind the first third of the layers (layer 4 of 12) less that within it."""
    early = max(1, round(depth / 3))
    falls = {}
    for d in ("cosine", "l2"):
        before, turn, after = (rates["naive", d, layer] for layer in (1, early, depth))
        late = _per_layer(turn, after, depth - early)
        falls[f"{d}: fall per layer behind layer {early} - up to it"] = less(late, _early_fall(before, turn, early))
    return falls


def _early_fall(first: Examples, turn: Examples, early: int) -> dict[str, float]:
    """The fall per layer from layer 1 to the last of the first third; from the input, which is found, where that is layer 1."""
    return _per_layer(first, turn, early - 1) if early > 1 else _per_layer(dict.fromkeys(turn, 1.0), turn, 1)


def _per_layer(first: Examples, last: Examples, layers: int) -> dict[str, float]:
    return {text: fall / layers for text, fall in less(first, last).items()}


def cosine_kinds_equal(setup: Any, records: Sequence[Record], tables: Any) -> Verdict:
    rates = rates_of(stopped(setup, records), "identified")
    trained = {
        kind: {layer for *key, layer in rates if key == [kind, "cosine"] and layer > 0} for kind in ("linear", "mlp")
    }
    layers = sorted(trained["linear"] & trained["mlp"])
    both = [(rates["mlp", "cosine", i], rates["linear", "cosine", i]) for i in layers]
    if not both:
        return incomparable("not run: linear and mlp by cosine")
    return almost_equal(
        {f"mlp - linear, layer {i}": less(*pair) for i, pair in zip(layers, both, strict=True)}, seed=setup.seed
    )


AT_D1 = {"cola": "D.1.1, Figure 38", "mnli": "D.1.2, Figure 39"}  # "in line with those for MRPC"
MRPC_ALONE: dict[str, str | None] = {"cola": None, "mnli": None}


def _main_claim(says: str, paper: str, check: Any) -> Claim:
    return Claim("4.2, Figure 2a", says, paper, check, AT_D1)


TOKEN_CLAIMS = (
    _main_claim("a linear g finds most tokens in the last layer by cosine", "0.93", mostly_identifiable),
    _main_claim(
        "a trained g finds more than none (here: the linear one, by cosine, in the last layer): most of the identity is still "
        "there",
        "0.93 against the naive curve",
        trained_above_naive,
    ),
    _main_claim(
        "the rate decreases with depth: lower in the last layer than in the first", "in the figure", rate_decreases
    ),
    _main_claim(
        "without a g, by both distances, states stay near their input up to layer 4 of 12 (the first third), then the rate falls "
        "(read here as: more per layer than before; that the fall is linear is not judged)",
        "in the figure",
        naive_falls_late,
    ),
    _main_claim("with a trained g, cosine finds more than L2 in the last layer", "in the figure", cosine_above_l2),
    _main_claim("without a g, cosine finds more than L2 (mean over layers)", "in the figure", naive_cosine_above_l2),
    Claim(
        "B.2",
        "by cosine, linear and MLP do almost equally well (read here as: within 0.05)",
        "no numbers",
        cosine_kinds_equal,
        MRPC_ALONE,
    ),
)
