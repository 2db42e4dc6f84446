"""What is counted of a run's rows: means, the shares of words, what turned without words. The size of it has a
bound."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.optional import optional
from ...metrics.agreement import linear, ranks
from .plan import COMPLETENESS, CUT, RANDOM_TURNED, RANDOM_WITHOUT, RATIO, TURNED, WITHOUT, WORD_OF, WORDS
from .row_words import listed_words

if TYPE_CHECKING:
    import pandas as pd

# What is counted is bounded, so that memory does not grow with the rows. Beyond twice as many the rarest are dropped.
MOST_WORDS = 150_000  # (class, method, word)
NAMES = 100_000  # predictions: classes are few, words of a vocabulary or answers in a text are many
AT_ONCE = 20_000  # words of rows that are grouped together
SLOW = 32  # slowest rows that are known
KEYS = ["prediction", "method", "word"]
NONE = "(none)"  # the class of rows without a prediction
LEFT = np.linspace(0, 1, 21)  # edges of the probability that is left
NORMAL = 1.959964  # of 95 %
OPEN = 0.01  # a gap of completeness above which scores do not add up
Listed = list[tuple[str, float, int]]  # word, mean share, times


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


@dataclass
class Bins:
    """How many values fall between two edges. The last edge is in the last bin; values beyond count in the outer
    bins."""

    edges: np.ndarray
    counts: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def __post_init__(self) -> None:
        if not len(self.counts):
            self.counts = np.zeros(len(self.edges) - 1, dtype=np.int64)

    def add(self, value: float) -> None:
        place = int(np.searchsorted(self.edges, value, side="right")) - 1
        self.counts[min(max(place, 0), len(self.counts) - 1)] += 1

    def trimmed(self) -> Bins:
        """The bins without the empty ones at both ends."""
        filled = np.nonzero(self.counts)[0]
        if not len(filled):
            return self
        first, last = int(filled[0]), int(filled[-1])
        return Bins(self.edges[first : last + 2], self.counts[first : last + 1])


@dataclass
class Turned:
    """The rows of one way to take words out: how many turned, and the probability that was left. A row with several
    draws adds a part of 1 for each draw."""

    rows: int = 0
    turned: float = 0.0
    draws: int = 0
    left: Bins = field(default_factory=lambda: Bins(LEFT))  # of draws

    def add(self, turned: Sequence[bool], left: Sequence[float]) -> None:
        self.rows += 1
        self.draws += len(turned)
        self.turned += sum(turned) / len(turned)
        for probability in left:
            self.left.add(probability)

    @property
    def share(self) -> float | None:
        return self.turned / self.rows if self.rows else None

    def interval(self) -> tuple[float, float] | None:
        """Wilson's 95 % interval over rows. Draws of one row depend on each other, so that only rows count as a sample:
        for random words it is wider than it need be."""
        return wilson(self.turned, self.rows) if self.rows else None


def wilson(successes: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927)."""
    share, square = successes / count, NORMAL**2
    middle = (share + square / (2 * count)) / (1 + square / count)
    half = NORMAL / (1 + square / count) * sqrt(share * (1 - share) / count + square / (4 * count**2))
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass
class Gaps:
    """By how much the scores of a method miss their sum, over rows."""

    rows: int = 0
    open: int = 0  # rows above `OPEN`
    largest: float = 0.0


@dataclass(frozen=True)
class RowCheck:
    """The check of one row: what was left, by method, and of each draw; gaps of completeness by method."""

    left: dict[str, float]
    turned: dict[str, bool]
    random_left: list[float]
    random_turned: list[bool]
    gaps: dict[str, float]

    @property
    def gap(self) -> float | None:
        """The largest gap of completeness."""
        return max(self.gaps.values(), default=None)


@dataclass
class Removal:
    """The checks of all rows."""

    methods: dict[str, Turned]
    gaps: dict[str, Gaps]
    random: Turned = field(default_factory=Turned)
    open_rows: int = 0  # rows where the scores of some method do not add up
    unchecked: int = 0  # rows with too few words
    rows: int = 0  # rows with the columns of a check

    def add(self, check: RowCheck) -> None:
        self.rows += 1
        self.open_rows += check.gap is not None and check.gap > OPEN
        for method, gap in check.gaps.items():
            known = self.gaps[method]
            self.gaps[method] = Gaps(known.rows + 1, known.open + (gap > OPEN), max(known.largest, gap))
        self.unchecked += not check.left
        for method, left in check.left.items():
            self.methods[method].add([check.turned[method]], [left])
        if check.left:
            self.random.add(check.random_turned, check.random_left)

    def best_first(self) -> list[str]:
        """The methods that were checked, those first without whose words most predictions turn."""
        shares = {method: turned.share for method, turned in self.methods.items() if turned.share is not None}
        return sorted(shares, key=lambda method: -shares[method])


@dataclass(frozen=True)
class RowFacts:
    """What was computed of one row while it was counted."""

    predicted: str
    scores: dict[str, np.ndarray]
    agreement: float | None  # mean Spearman correlation over words, of the pairs of methods that have one
    check: RowCheck | None


class Counts:
    """Counts over rows. Their size has a bound that no number of rows moves."""

    def __init__(self, methods: Sequence[str]):
        self.methods = list(methods)
        self.rows = 0
        self.cut = 0  # rows whose text was cut to what the model reads
        self.predicted: Counter[str] = Counter()
        self.unnamed = 0  # rows whose prediction was too rare to be kept
        self.tokens, self.seconds, self.gap = Mean(), Mean(), Mean()
        self.agreement = {pair: Mean() for pair in combinations(self.methods, 2)}  # Spearman over tokens
        self.word_agreement = {pair: Mean() for pair in self.agreement}
        self.special = {method: Mean() for method in methods}  # the share of the absolute scores that no word has
        self.ratios: dict[str, list[Mean]] = {}
        self.removal = Removal({method: Turned() for method in methods}, {method: Gaps() for method in methods})
        self.has_dropped = False  # whether rare words were dropped
        self.signed: set[str] = set()  # methods that gave a score below 0
        self.slow: list[dict[str, Any]] = []
        self._shares: list[tuple[str, str, str, int, float]] = []  # KEYS, number of the row, share with its sign
        self._words: Any = None

    def add(self, row: Mapping[str, Any], _: str = "") -> RowFacts:
        """Count one row in everything."""
        self.rows += 1
        predicted = row.get("prediction") or NONE
        self.predicted[predicted] += 1
        self.unnamed += drop_rarest(self.predicted, NAMES)
        self.cut += row.get(CUT) is not None
        if row.get("gap") is not None:
            self.gap.add(row["gap"])
        for name, values in row.items():
            if name.startswith(RATIO) and values is not None:
                layers = self.ratios.setdefault(name.removeprefix(RATIO), [Mean() for _ in values])
                for mean, value in zip(layers, values, strict=False):
                    mean.add(value)
        length, seconds = len(row["tokens"]), row["seconds"]
        self.slow.append({"row": row["row"], "id": row["id"], "tokens": length, "seconds": seconds})
        self.tokens.add(length)
        self.seconds.add(seconds)
        if len(self.slow) > 2 * SLOW:
            self.slow = self.slowest(SLOW)
        scores = {name: np.array(row[name], dtype=np.float64) for name in self.methods if row.get(name) is not None}
        self.signed |= {method for method, values in scores.items() if (values < 0).any()}
        self._agree(self.agreement, scores)
        agreement = self._agree(self.word_agreement, self._count_words(predicted, row, scores))
        check = check_of(row, self.methods)
        if check is not None:
            self.removal.add(check)
        return RowFacts(predicted, scores, agreement, check)

    def _agree(self, means: Mapping[tuple[str, str], Mean], scores: Mapping[str, np.ndarray]) -> float | None:
        """Spearman's correlation of each pair of methods that scored this row, and its mean; a row of one word has
        none."""
        pairs = [pair for pair in means if scores.keys() >= set(pair)]
        if not pairs or max(map(len, scores.values())) < 2:
            return None
        ranked = dict(zip(scores, ranks(np.stack(list(scores.values()))), strict=True))
        firsts, seconds = np.stack([(ranked[a], ranked[b]) for a, b in pairs], axis=1)
        values = linear(firsts, seconds).tolist()
        for pair, value in zip(pairs, values, strict=True):
            means[pair].add(value)
        finite = [value for value in values if math.isfinite(value)]
        return sum(finite) / len(finite) if finite else None

    def _count_words(
        self, predicted: str, row: Mapping[str, Any], scores: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Count the words of one row. Gives the scores of its words by method, of the methods that scored these
        tokens."""
        places = np.array(row[WORD_OF], dtype=np.int64)
        inside, count = places >= 0, len(row[WORDS])
        by_word = {
            method: np.bincount(places[inside], values[inside], count)
            for method, values in scores.items()
            if len(values) == len(places)
        }
        names, joined = listed_words(row)
        for method, sums in by_word.items():
            apart, total = np.abs(scores[method][~inside]).sum(), np.abs(sums).sum()
            if apart + total > 0:
                self.special[method].add(float(apart / (apart + total)))
            if total > 0:
                shares = np.bincount(joined, sums / total, len(names)).tolist()
                self._shares += [
                    (predicted, method, name, self.rows, one) for name, one in zip(names, shares, strict=True)
                ]
        if len(self._shares) > AT_ONCE:
            self._group()
        return by_word

    def _group(self) -> None:
        """Add what was collected of words to the sums; words that are rare go where there are too many."""
        pd = optional("pandas", "pandas", "data", what="counts of a run")
        lines = pd.DataFrame(self._shares, columns=[*KEYS, "row", "signed"])
        self._shares = []
        lines["size"] = lines["signed"].abs()
        groups = lines.groupby(KEYS)
        sums = groups.agg(
            times=("signed", "count"), size=("size", "sum"), signed=("signed", "sum"), rows=("row", "nunique")
        )
        if self._words is not None:
            sums = pd.concat([self._words, sums]).groupby(level=KEYS).sum()
        if len(sums) > 2 * MOST_WORDS:
            sums, self.has_dropped = sums.nlargest(MOST_WORDS, "times").sort_index(), True
        self._words = sums

    def word_lists(
        self, predicted: str, *, top: int, least: int, least_rows: int
    ) -> tuple[dict[str, Listed], dict[str, dict[str, Listed]], dict[str, dict[str, Listed]]]:
        """The words of the rows with one prediction, by method: those of the largest mean share of the absolute scores;
        of signed scores those towards and against what was explained (both of words seen `least` times, or of all where
        none was); and those for and against it by their mean share of a row that has them, in `least_rows` or more,
        without marks (of a word that comes twice in a row, both shares together)."""
        tops, signed, of_rows = {}, {}, {}
        for method in self.methods:
            words = self._words_of(predicted, method)
            often = words[words["times"] >= least]
            often = often if len(often) else words
            tops[method] = _first(often, often["size"] / often["times"], "times", top)
            if method in self.signed:
                signed[method] = _both_ways(
                    often, often["signed"] / often["times"], "times", top, ("towards", "against")
                )
            enough = words[words["rows"] >= least_rows]
            enough = enough[np.array([any(map(str.isalnum, word)) for word in enough.index], dtype=bool)]
            of_rows[method] = _both_ways(enough, enough["signed"] / enough["rows"], "rows", top, ("for", "against"))
        return tops, signed, of_rows

    def _words_of(self, predicted: str, method: str) -> pd.DataFrame:
        if self._shares or self._words is None:
            self._group()
        is_there = (predicted, method) in self._words.index
        return self._words.loc[(predicted, method)] if is_there else self._words.iloc[:0].droplevel([0, 1])

    def slowest(self, count: int) -> list[dict[str, Any]]:
        return sorted(self.slow, key=lambda facts: (-facts["seconds"], facts["row"]))[:count]


def _first(words: pd.DataFrame, value: pd.Series, count: str, most: int, sign: int = 1) -> Listed:
    """(word, value, count) of the words with the largest values; of equal ones the later in the alphabet."""
    ordered = words.assign(value=value).sort_values(["value", "word"], ascending=False).head(most)
    return list(zip(ordered.index, (sign * ordered["value"]).tolist(), ordered[count].tolist(), strict=True))


def _both_ways(
    words: pd.DataFrame, value: pd.Series, count: str, most: int, names: tuple[str, str]
) -> dict[str, Listed]:
    towards, against = value > 0, value < 0
    return {
        names[0]: _first(words[towards], value[towards], count, most),
        names[1]: _first(words[against], -value[against], count, most, -1),
    }


def drop_rarest(counts: Counter[str], most: int) -> int:
    """Drop the rarest where there are more than twice `most`, so that `most` are left; how many rows they stood for."""
    if len(counts) <= 2 * most:
        return 0
    rarest = counts.most_common()[most:]
    for name, _ in rarest:
        del counts[name]
    return sum(count for _, count in rarest)


def check_of(row: Mapping[str, Any], methods: Sequence[str]) -> RowCheck | None:
    """The check in the columns of a row; None where the run made none."""
    if RANDOM_WITHOUT not in row:
        return None
    left, turned, gaps = (
        {method: row[prefix + method] for method in methods if row.get(prefix + method) is not None}
        for prefix in (WITHOUT, TURNED, COMPLETENESS)
    )
    return RowCheck(left, turned, row[RANDOM_WITHOUT] or [], row[RANDOM_TURNED] or [], gaps)
