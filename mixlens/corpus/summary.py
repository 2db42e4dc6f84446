"""`summarize`: what a run found, in one pass over its shards that holds no more than counts."""

from __future__ import annotations

import heapq
import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from ..aggregate import bare
from ..errors import MixlensError, ResultError, printable, printable_json
from ..files import RunFolder
from ..metrics.agreement import linear, ranks
from ..model.words import group_words
from .plan import RATIO
from .shards import batches, shard_files, told_by

# What is counted is bounded, so that memory does not grow with the rows. Beyond twice as many the rarest are let go.
TOKENS = 150_000  # (class, method, token)
CLASSES = 100  # classes whose tokens are counted
NAMES = 100_000  # predictions: classes are few, words of a vocabulary or answers in a text are many
NONE = "(none)"  # the class of rows without a prediction


@dataclass(slots=True)
class Mean:
    """A running mean, and the largest."""

    count: int = 0
    total: float = 0.0
    largest: float = -math.inf

    def add(self, value: float) -> None:
        if math.isfinite(value):
            self.count, self.total, self.largest = self.count + 1, self.total + value, max(self.largest, value)

    @property
    def value(self) -> float | None:
        return self.total / self.count if self.count else None


@dataclass(slots=True)
class Share(Mean):
    """A word's mean share of a row's absolute scores, and the same with its sign."""

    signed: float = 0.0

    def count_in(self, share: float) -> None:
        self.add(abs(share))
        self.signed += share if math.isfinite(share) else 0.0

    @property
    def direction(self) -> float:
        """Above 0: towards what was explained, on the whole; below 0: against it."""
        return self.signed / self.count if self.count else 0.0


Listed = list[tuple[str, float, int]]  # word, mean share, times


@dataclass(frozen=True)
class Summary:
    """What `mixlens summarize` prints."""

    out: str
    model: str
    finished: bool
    rows: int
    errors: int
    reasons: list[tuple[str, int]]  # why rows could not be explained, the most frequent first
    tokens_a_row: float | None
    seconds_a_row: float | None
    classes: dict[str, int]  # predictions, the most frequent first
    top: dict[str, dict[str, Listed]]  # class -> method -> (word, mean share of the absolute scores, times)
    agreement: dict[str, float | None]  # "a, b" -> mean Spearman correlation
    mixing_ratio: dict[str, list[float]]  # method -> mean for each layer
    gap: dict[str, float | None]  # mean and largest
    slow: list[dict[str, Any]] = field(default_factory=list)
    # class -> method with scores below 0 -> "towards" and "against" -> (word, mean share with its sign, times)
    signed: dict[str, dict[str, dict[str, Listed]]] = field(default_factory=dict)

    def json(self) -> str:
        return printable_json(json.dumps(asdict(self), ensure_ascii=False))

    def text(self) -> str:
        """For a terminal: what it would obey, or not show, is written out."""
        return "\n".join(map(printable, _lines(self)))


def summarize(out: str | os.PathLike[str], *, top: int = 8, classes: int = 8, least: int = 3) -> Summary:
    """Top words for each predicted class (by their mean share of the absolute scores, of words seen `least` times; tokens
    where words are not known; of signed scores towards and against apart), agreement between methods, mixing ratio per
    layer, reconstruction gaps, slow examples, reasons of errors."""
    manifest = manifest_of(out)
    tally = Tally(methods_of(manifest))
    failed = gone_over(out, manifest, lambda row, _: tally.add(row))
    frequent = dict(tally.predicted.most_common(classes))
    return Summary(
        out=str(out),
        model=str(mapping(manifest.get("model")).get("name")),
        finished=bool(manifest.get("finished")),
        rows=tally.rows,
        errors=failed.total(),
        reasons=failed.most_common(5),
        tokens_a_row=tally.tokens.value,
        seconds_a_row=tally.seconds.value,
        classes=frequent,
        top={name: {method: tally.top(name, method, top, least) for method in tally.methods} for name in frequent},
        agreement={f"{a}, {b}": mean.value for (a, b), mean in tally.agreement.items()},
        mixing_ratio={name: [mean.value or 0.0 for mean in layers] for name, layers in tally.ratios.items()},
        gap={"mean": tally.gap.value, "largest": tally.gap.largest if tally.gap.count else None},
        slow=tally.slowest(5),
        signed={name: tally.signed_top(name, top, least) for name in frequent},
    )


# --- one pass over the shards -----------------------------------------------------------------------------------------


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def names(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []


def manifest_of(out: str | os.PathLike[str]) -> dict[str, Any]:
    """The manifest of a corpus run; refused where the folder is none."""
    shard_files(out)
    manifest = RunFolder(Path(out)).manifest
    identity = mapping(manifest.get("identity"))
    if identity.get("kind") != "corpus" or not isinstance(identity.get("methods"), list):
        raise ResultError(f"{str(out)!r} is not the folder of a corpus run.")
    return manifest


def methods_of(manifest: Mapping[str, Any]) -> list[str]:
    return [str(name) for name in manifest["identity"]["methods"]]


def gone_over(
    out: str | os.PathLike[str], manifest: Mapping[str, Any], each: Callable[[Mapping[str, Any], str], Any]
) -> Counter[str]:
    """`each(row, file)` for every row there is, finished or not. Gives the reasons of rows that could not be explained."""
    failed: Counter[str] = Counter()
    for path in shard_files(out):
        facts = told_by(path)
        if "run" in manifest and facts.get("run") != manifest["run"]:
            raise ResultError(f"{path.name!r} is a shard of another run. Give the run's command again: it is moved aside.")
        try:
            failed.update(kind(str(one["reason"])) for one in facts["errors"])
            for rows in batches(path):
                for row in rows:
                    each(row, path.name)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            if isinstance(error, MixlensError):
                raise
            raise ResultError(f"{path.name!r} does not hold what a run writes ({type(error).__name__}: {error!s:.80}).") from None
        _bounded(failed, NAMES)
    return failed


def kind(reason: str) -> str:
    """A reason without its numbers and values, so that rows that are alike count as one."""
    without = re.sub(r"""(holds \w+) (?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""", r"\1", reason)
    return re.sub(r"0x[0-9a-f]+|\d+(,\d+)*", "N", without)[:80]


def _bounded(counted: Counter[str], most: int) -> int:
    """Let the rarest go; how many rows they stood for."""
    if len(counted) <= 2 * most:
        return 0
    gone = counted.most_common()[most:]
    for name, _ in gone:
        del counted[name]
    return sum(count for _, count in gone)


@dataclass(frozen=True)
class Seen:
    """What was computed of one row on the way."""

    predicted: str
    scores: dict[str, np.ndarray]
    agreement: dict[tuple[str, str], float]  # Spearman; NaN where one side is constant


@dataclass(slots=True)
class OfClass:
    """What is counted of the rows with one prediction. `rows` may be fewer than there were: a rare class is let go."""

    rows: int = 0
    shares: dict[str, dict[str, Share]] = field(default_factory=dict)  # method -> word -> its share of a row


class Tally:
    """Counts over rows. Its size has a bound that no number of rows moves."""

    def __init__(self, methods: Sequence[str]):
        self.methods = list(methods)
        self.rows = 0
        self.predicted: Counter[str] = Counter()
        self.unnamed = 0  # rows whose prediction was too rare to be kept
        self.tokens, self.seconds, self.gap = Mean(), Mean(), Mean()
        self.agreement = {pair: Mean() for pair in combinations(self.methods, 2)}
        self.ratios: dict[str, list[Mean]] = {}
        self.classes: dict[str, OfClass] = {}
        self.entries = 0  # in all of their shares
        self.let_go = False  # were rare tokens let go?
        self.signed: set[str] = set()  # methods that gave a score below 0
        self.slow: list[tuple[float, int, int, dict[str, Any]]] = []

    def add(self, row: Mapping[str, Any]) -> Seen:
        """Count one row in everything."""
        self.rows += 1
        predicted = row.get("prediction") or NONE
        self.predicted[predicted] += 1
        tokens = row["tokens"]
        self.tokens.add(len(tokens))
        self.seconds.add(row["seconds"])
        if row.get("gap") is not None:
            self.gap.add(row["gap"])
        scores = {name: np.array(row[name], dtype=np.float64) for name in self.methods if row.get(name) is not None}
        self._count(predicted, row, scores)
        agreement = _agreement(scores, list(self.agreement)) if len(tokens) > 1 else {}
        for pair, value in agreement.items():
            self.agreement[pair].add(value)
        self._add_ratios(row)
        self._add_slow(row)
        self._bound()
        return Seen(predicted, scores, agreement)

    def _add_ratios(self, row: Mapping[str, Any]) -> None:
        for name, values in row.items():
            if name.startswith(RATIO) and values is not None:
                layers = self.ratios.setdefault(name.removeprefix(RATIO), [Mean() for _ in values])
                for mean, value in zip(layers, values, strict=False):
                    mean.add(value)

    def _add_slow(self, row: Mapping[str, Any]) -> None:
        facts = {"row": row["row"], "id": row["id"], "tokens": len(row["tokens"]), "seconds": row["seconds"]}
        heapq.heappush(self.slow, (row["seconds"], -row["row"], self.rows, facts))
        if len(self.slow) > 32:
            heapq.heappop(self.slow)

    def _count(self, predicted: str, row: Mapping[str, Any], scores: Mapping[str, np.ndarray]) -> None:
        of_class = self.classes.setdefault(predicted, OfClass())
        of_class.rows += 1
        names, places = words_in(row)
        for method, values in scores.items():
            if (values < 0).any():
                self.signed.add(method)
            if len(values) != len(row["tokens"]) or not names:
                continue
            sums = np.bincount(places[places >= 0], values[places >= 0], len(names))
            total = np.abs(sums).sum()
            if not total > 0:
                continue
            counted = of_class.shares.setdefault(method, {})
            before = len(counted)
            for name, share in zip(names, (sums / total).tolist(), strict=True):
                counted.setdefault(name, Share()).count_in(share)
            self.entries += len(counted) - before

    def _bound(self) -> None:
        self.unnamed += _bounded(self.predicted, NAMES)
        if len(self.classes) > 2 * CLASSES:
            rare = sorted(self.classes, key=lambda name: (self.predicted[name], name))[: len(self.classes) - CLASSES]
            for name in rare:
                self.entries -= sum(map(len, self.classes.pop(name).shares.values()))
        if self.entries > 2 * TOKENS:
            self._let_rare_go([counted for of_class in self.classes.values() for counted in of_class.shares.values()])

    def _let_rare_go(self, everyone: list[dict[str, Share]]) -> None:
        times = np.array([mean.count for counted in everyone for mean in counted.values()])
        least = np.partition(times, len(times) - TOKENS)[len(times) - TOKENS]
        equal = len(times) - TOKENS - int((times < least).sum())  # of those seen `least` times, so many go too
        for counted in everyone:
            for token, mean in list(counted.items()):
                equal -= mean.count == least
                if mean.count < least or (mean.count == least and equal >= 0):
                    del counted[token]
        self.entries, self.let_go = sum(map(len, everyone)), True

    def top(self, predicted: str, method: str, count: int, least: int) -> Listed:
        known = self._known(predicted, method, least)
        best = heapq.nlargest(count, known.items(), key=lambda pair: (pair[1].value or 0.0, pair[0]))
        return [(token, mean.value or 0.0, mean.count) for token, mean in best]

    def signed_top(self, predicted: str, count: int, least: int) -> dict[str, dict[str, Listed]]:
        """Of each method with scores below 0: the words that count most towards what is explained, and most against it."""
        methods = [name for name in self.methods if name in self.signed]
        signs = {"towards": 1, "against": -1}
        return {
            method: {way: _largest(self._known(predicted, method, least), sign, count) for way, sign in signs.items()}
            for method in methods
        }

    def _known(self, predicted: str, method: str, least: int) -> dict[str, Share]:
        counted = self.classes.get(predicted, OfClass()).shares.get(method, {})
        return {token: mean for token, mean in counted.items() if mean.count >= least} or counted

    def slowest(self, count: int) -> list[dict[str, Any]]:
        return [facts for *_, facts in heapq.nlargest(count, self.slow, key=lambda one: one[:3])]


def _largest(shares: Mapping[str, Share], sign: int, count: int) -> Listed:
    """The words whose shares are largest in one direction."""
    there = [(sign * mean.direction, token, mean.count) for token, mean in shares.items() if sign * mean.direction > 0]
    return [(token, sign * size, times) for size, token, times in heapq.nlargest(count, there)]


def _agreement(scores: Mapping[str, np.ndarray], pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
    """Spearman's correlation for each pair of methods that scored this row; all of them at once."""
    there = [(a, b) for a, b in pairs if a in scores and b in scores]
    if not there:
        return {}
    ranked, place = ranks(np.stack(list(scores.values()))), {name: i for i, name in enumerate(scores)}
    firsts, seconds = (ranked[[place[pair[side]] for pair in there]] for side in (0, 1))
    return dict(zip(there, linear(firsts, seconds).tolist(), strict=True))


def words_in(row: Mapping[str, Any]) -> tuple[list[str], np.ndarray]:
    """The words of a row's text, and of each token the number of its word (-1: the tokenizer added it). Where characters are
    not known, tokens without their marks. A word is written as its tokens are: small, where the tokenizer makes it so."""
    tokens, own = row["tokens"], own_of(row)
    text, starts = row.get("text"), row.get("starts")
    if text is None or starts is None or not row.get("segments"):
        places = np.full(len(tokens), -1)
        places[np.array(own, dtype=bool)] = np.arange(sum(own))
        return [bare(token) for token, mine in zip(tokens, own, strict=True) if mine], places
    sequences = [segment if segment >= 0 else None for segment in row["segments"]]
    offsets = list(zip(starts, row["ends"], strict=True))
    names: list[str] = []
    places = np.full(len(tokens), -1)
    for word, at in group_words((text, row.get("pair")), offsets, sequences, tokens):
        if own[at[0]]:
            places[list(at)] = len(names)
            joined = "".join(bare(tokens[i]) for i in at)
            names.append(joined if joined == word.lower() else word)
    return names, places


def own_of(row: Mapping[str, Any]) -> list[bool]:
    """Which tokens are of the text, not added by the tokenizer."""
    return [segment >= 0 for segment in row["segments"]] if row.get("segments") else [True] * len(row["tokens"])


def _lines(summary: Summary) -> Iterator[str]:
    state = "finished" if summary.finished else "not finished"
    yield f"{summary.out}: model {summary.model}, {summary.rows} rows explained, {summary.errors} could not be, {state}"
    for reason, count in summary.reasons:
        yield f"  {count:>7}  {reason}"
    if not summary.rows:
        return
    yield f"{summary.tokens_a_row:.1f} tokens a row, {1000 * (summary.seconds_a_row or 0):.2f} ms a row"
    if summary.gap["mean"] is not None:
        yield f"reconstruction gap: mean {summary.gap['mean']:.1e}, largest {summary.gap['largest']:.1e}"
    for name in summary.top:
        yield from _class_lines(summary, name)
    agreement = {pair: "-" if value is None else f"{value:.3f}" for pair, value in summary.agreement.items()}
    yield from _block("agreement between methods (mean Spearman correlation over the tokens of a row)", agreement)
    ratios = {name: "  ".join(f"{value:.3f}" for value in layers) for name, layers in summary.mixing_ratio.items()}
    yield from _block("mixing ratio by layer", ratios)
    yield ""
    yield "slowest rows"
    for row in summary.slow:
        yield f"  row {row['row']:<9} {row['tokens']:>5} tokens  {1000 * row['seconds']:>9.2f} ms"


def _block(title: str, rows: Mapping[str, str]) -> Iterator[str]:
    """A title and one line for each row; nothing where there are no rows."""
    if rows:
        width = max(map(len, rows))
        yield from ("", title, *(f"  {name:<{width}}  {cell}" for name, cell in rows.items()))


def _class_lines(summary: Summary, name: str) -> Iterator[str]:
    """The top words of the rows with one prediction; of signed scores towards and against apart."""
    methods = summary.top[name]
    width = max(map(len, methods))
    yield from ("", f"predicted {name!r}: {summary.classes[name]} rows")
    for method, tokens in methods.items():
        ways = summary.signed.get(name, {}).get(method)
        if ways is None:
            yield f"  {method:<{width}}  " + "  ".join(f"{token} {share:.3f}" for token, share, _ in tokens)
            continue
        for place, (way, words) in enumerate(ways.items()):
            listed = "  ".join(f"{token} {share:+.3f}" for token, share, _ in words) or "-"
            yield f"  {'' if place else method:<{width}}  {way}: {listed}"
