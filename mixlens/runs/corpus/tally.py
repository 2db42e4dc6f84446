"""What is counted of a run's rows: means, shares of words, agreement. The size of a tally has a bound."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations
from typing import Any

import numpy as np

from ...metrics.agreement import linear, ranks
from .plan import CUT, RATIO
from .row_words import apostrophes, words_in
from .turned_counts import RowCheck, TurnedCounts, check_of

# What is counted is bounded, so that memory does not grow with the rows. Beyond twice as many the rarest are dropped.
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
    """A word's mean share of a row's absolute scores, and the same with its sign. `count`: times; `rows`: rows that have it."""

    signed: float = 0.0
    rows: int = 0

    def count_in(self, share: float) -> None:
        self.add(abs(share))
        self.signed += share if math.isfinite(share) else 0.0

    @property
    def direction(self) -> float:
        """Above 0: towards what was explained, on the whole; below 0: against it."""
        return self.signed / self.count if self.count else 0.0

    @property
    def of_row(self) -> float:
        """The mean over the rows that have the word; of a word that comes twice in a row, both shares together."""
        return self.signed / self.rows if self.rows else 0.0


Listed = list[tuple[str, float, int]]  # word, mean share, times


def drop_rarest(counts: Counter[str], most: int) -> int:
    """Drop the rarest where there are more than twice `most`, so that `most` are left; how many rows they stood for."""
    if len(counts) <= 2 * most:
        return 0
    rarest = counts.most_common()[most:]
    for name, _ in rarest:
        del counts[name]
    return sum(count for _, count in rarest)


@dataclass(frozen=True)
class RowFacts:
    """What was computed of one row while it was counted."""

    predicted: str
    scores: dict[str, np.ndarray]
    agreement: dict[tuple[str, str], float]  # Spearman over tokens; NaN where one side is constant
    word_agreement: dict[tuple[str, str], float] = field(default_factory=dict)  # the same over words
    check: RowCheck | None = None


@dataclass(slots=True)
class ClassCounts:
    """What is counted of the rows with one prediction. `rows` may be fewer than there were: a rare class is dropped."""

    rows: int = 0
    shares: dict[str, dict[str, Share]] = field(default_factory=dict)  # method -> word -> its share of a row

    def count(self, method: str, shares: Iterable[tuple[str, float]]) -> int:
        """Count (word, share) of one row; how many words were not counted before."""
        counts = self.shares.setdefault(method, {})
        before = len(counts)
        words = set()
        for word, share in shares:
            counts.setdefault(word, Share()).count_in(share)
            words.add(word)
        for word in words:
            counts[word].rows += 1
        return len(counts) - before

    def words(self) -> Iterator[tuple[dict[str, Share], str]]:
        """Every word, with the shares that it is in."""
        return ((shares, word) for shares in self.shares.values() for word in shares)

    def size(self) -> int:
        return sum(map(len, self.shares.values()))


class Tally:
    """Counts over rows. Its size has a bound that no number of rows moves."""

    def __init__(self, methods: Sequence[str]):
        self.methods = list(methods)
        self.rows = 0
        self.cut = 0  # rows whose text was cut to what the model reads
        self.predicted: Counter[str] = Counter()
        self.unnamed = 0  # rows whose prediction was too rare to be kept
        self.tokens, self.seconds, self.gap = Mean(), Mean(), Mean()
        self.agreement = {pair: Mean() for pair in combinations(self.methods, 2)}
        self.word_agreement = {pair: Mean() for pair in self.agreement}
        self.special = {method: Mean() for method in self.methods}  # the share of the absolute scores that no word has
        self.removal = TurnedCounts(self.methods)
        self.ratios: dict[str, list[Mean]] = {}
        self.classes: dict[str, ClassCounts] = {}
        self.entries = 0  # in all of their shares
        self.has_dropped = False  # whether rare tokens were dropped
        self.signed: set[str] = set()  # methods that gave a score below 0
        self.slow: list[tuple[float, int, int, dict[str, Any]]] = []

    def add(self, row: Mapping[str, Any]) -> RowFacts:
        """Count one row in everything."""
        self.rows += 1
        predicted = row.get("prediction") or NONE
        self.predicted[predicted] += 1
        self._add_numbers(row)
        scores = {name: np.array(row[name], dtype=np.float64) for name in self.methods if row.get(name) is not None}
        by_word = self._count_words(predicted, row, scores)
        agreement = self._add_agreement(row, scores)
        word_agreement = self._add_word_agreement(by_word)
        check = self._add_check(row)
        self._add_ratios(row)
        self._add_slow(row)
        self._bound()
        return RowFacts(predicted, scores, agreement, word_agreement, check)

    def _add_numbers(self, row: Mapping[str, Any]) -> None:
        self.tokens.add(len(row["tokens"]))
        self.cut += row.get(CUT) is not None
        self.seconds.add(row["seconds"])
        if row.get("gap") is not None:
            self.gap.add(row["gap"])

    def _add_agreement(self, row: Mapping[str, Any], scores: Mapping[str, np.ndarray]) -> dict[tuple[str, str], float]:
        """Spearman's correlation of each pair of methods; a row of one token has none."""
        agreement = _agreement(scores, list(self.agreement)) if len(row["tokens"]) > 1 else {}
        for pair, value in agreement.items():
            self.agreement[pair].add(value)
        return agreement

    def _add_word_agreement(self, scores: Mapping[str, np.ndarray]) -> dict[tuple[str, str], float]:
        """Spearman's correlation over words of each pair of methods; a row of one word has none."""
        length = max(map(len, scores.values()), default=0)
        agreement = _agreement(scores, list(self.word_agreement)) if length > 1 else {}
        for pair, value in agreement.items():
            self.word_agreement[pair].add(value)
        return agreement

    def _add_check(self, row: Mapping[str, Any]) -> RowCheck | None:
        check = check_of(row, self.methods)
        if check is not None:
            self.removal.add(check)
        return check

    def _add_ratios(self, row: Mapping[str, Any]) -> None:
        names = [name for name, values in row.items() if name.startswith(RATIO) and values is not None]
        for name in names:
            self._add_ratio(name.removeprefix(RATIO), row[name])

    def _add_ratio(self, method: str, values: Sequence[float]) -> None:
        layers = self.ratios.setdefault(method, [Mean() for _ in values])
        for mean, value in zip(layers, values, strict=False):
            mean.add(value)

    def _add_slow(self, row: Mapping[str, Any]) -> None:
        facts = {"row": row["row"], "id": row["id"], "tokens": len(row["tokens"]), "seconds": row["seconds"]}
        heapq.heappush(self.slow, (row["seconds"], -row["row"], self.rows, facts))
        if len(self.slow) > 32:
            heapq.heappop(self.slow)

    def _count_words(
        self, predicted: str, row: Mapping[str, Any], scores: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Count the words of one row. Gives the scores of its words by method, of the methods that scored these tokens."""
        of_class = self.classes.setdefault(predicted, ClassCounts())
        of_class.rows += 1
        words, places = words_in(row)
        self.signed |= {method for method, values in scores.items() if (values < 0).any()}
        by_word = {
            method: sums_of(words, places, values) for method, values in scores.items() if len(values) == len(places)
        }
        marks = apostrophes(row, words)
        for method, sums in by_word.items():
            self.entries += of_class.count(method, _with_endings(_shares(words, sums), marks))
            self._add_special(method, scores[method][places < 0], sums)
        return by_word

    def _add_special(self, method: str, special: np.ndarray, sums: np.ndarray) -> None:
        """Count the share of the absolute scores that tokens of no word have."""
        apart, total = np.abs(special).sum(), np.abs(special).sum() + np.abs(sums).sum()
        if total > 0:
            self.special[method].add(float(apart / total))

    def _bound(self) -> None:
        """Drop what is rarest where more is counted than twice a bound."""
        self.unnamed += drop_rarest(self.predicted, NAMES)
        if len(self.classes) > 2 * CLASSES:
            self._drop_rare_classes()
        if self.entries > 2 * TOKENS:
            self._drop_rare_words()

    def _drop_rare_classes(self) -> None:
        rarest_first = sorted(self.classes, key=lambda name: (self.predicted[name], name))
        for name in rarest_first[: len(self.classes) - CLASSES]:
            self.entries -= self.classes.pop(name).size()

    def _drop_rare_words(self) -> None:
        """Leave TOKENS words: those seen most often; of words seen equally often, those counted first are dropped first."""
        words = list(chain.from_iterable(of_class.words() for of_class in self.classes.values()))
        times = np.array([shares[word].count for shares, word in words])
        for place in np.argsort(times, kind="stable")[: len(words) - TOKENS]:
            shares, word = words[place]
            del shares[word]
        self.entries, self.has_dropped = TOKENS, True

    def top(self, predicted: str, method: str, count: int, least: int) -> Listed:
        """The words with the largest mean share of the absolute scores."""
        known = self._known(predicted, method, least)
        best = heapq.nlargest(count, known.items(), key=lambda pair: (pair[1].value or 0.0, pair[0]))
        return [(word, mean.value or 0.0, mean.count) for word, mean in best]

    def top_of_methods(self, predicted: str, count: int, least: int) -> dict[str, Listed]:
        return {method: self.top(predicted, method, count, least) for method in self.methods}

    def signed_top(self, predicted: str, count: int, least: int) -> dict[str, dict[str, Listed]]:
        """Of each method with scores below 0: the words that count most towards what is explained, and most against it."""
        shares = {method: self._known(predicted, method, least) for method in self.methods if method in self.signed}
        return {
            method: {"towards": _largest(known, 1, count), "against": _largest(known, -1, count)}
            for method, known in shares.items()
        }

    def words_of_rows(self, predicted: str, count: int, least: int) -> dict[str, dict[str, Listed]]:
        """Of each method the words for and against the prediction, by their mean share of a row, with the number of rows. Marks
        are no words here, nor is what is in fewer than `least` rows."""
        return {method: self._ways(predicted, method, count, least) for method in self.methods}

    def _ways(self, predicted: str, method: str, count: int, least: int) -> dict[str, Listed]:
        shares = self.classes.get(predicted, ClassCounts()).shares.get(method, {})
        known = {word: share for word, share in shares.items() if share.rows >= least and any(map(str.isalnum, word))}
        return {"for": _most(known, 1, count), "against": _most(known, -1, count)}

    def _known(self, predicted: str, method: str, least: int) -> dict[str, Share]:
        """The shares of words seen `least` times; of all words where none was."""
        shares = self.classes.get(predicted, ClassCounts()).shares.get(method, {})
        return {word: mean for word, mean in shares.items() if mean.count >= least} or shares

    def slowest(self, count: int) -> list[dict[str, Any]]:
        return [facts for *_, facts in heapq.nlargest(count, self.slow, key=lambda entry: entry[:3])]


def sums_of(words: Sequence[str], places: np.ndarray, values: np.ndarray) -> np.ndarray:
    """[word]: the sum of the scores of each word's tokens."""
    return np.bincount(places[places >= 0], values[places >= 0], len(words))


def _shares(words: Sequence[str], sums: np.ndarray) -> list[tuple[str, float]]:
    """(word, share of the absolute scores with its sign) of each word; none where all scores are 0."""
    total = np.abs(sums).sum()
    return list(zip(words, (sums / total).tolist(), strict=True)) if total > 0 else []


def _with_endings(shares: list[tuple[str, float]], marks: Sequence[int]) -> list[tuple[str, float]]:
    """The same with each of these apostrophes and the word behind it as one; no other share changes."""
    for place in reversed(marks if shares else ()):
        (mark, first), (ending, second) = shares[place : place + 2]
        shares[place : place + 2] = [(mark + ending, first + second)]
    return shares


def _largest(shares: Mapping[str, Share], sign: int, count: int) -> Listed:
    """The words whose shares are largest in one direction."""
    sizes = [(sign * mean.direction, word, mean.count) for word, mean in shares.items() if sign * mean.direction > 0]
    return [(word, sign * size, times) for size, word, times in heapq.nlargest(count, sizes)]


def _most(shares: Mapping[str, Share], sign: int, count: int) -> Listed:
    """(word, mean share of a row, rows) of the words whose shares of a row are largest in one direction."""
    sizes = [(sign * share.of_row, word, share.rows) for word, share in shares.items() if sign * share.of_row > 0]
    return [(word, sign * size, rows) for size, word, rows in heapq.nlargest(count, sizes)]


def _agreement(scores: Mapping[str, np.ndarray], pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
    """Spearman's correlation for each pair of methods that scored this row; all of them at once."""
    scored = [pair for pair in pairs if scores.keys() >= set(pair)]
    if not scored:
        return {}
    ranked = dict(zip(scores, ranks(np.stack(list(scores.values()))), strict=True))
    firsts, seconds = np.stack([(ranked[a], ranked[b]) for a, b in scored], axis=1)
    return dict(zip(scored, linear(firsts, seconds).tolist(), strict=True))
