"""`summarize`: what a run found, in one pass over its shards that holds no more than counts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ...base.errors import printable, printable_json
from ...base.text import for_terminal, gap, percent
from ...base.wrong_kinds import wrong_kinds_in_one_line
from .reading import manifest_of, mapping, methods_of, visit_rows
from .tally import Listed, Tally
from .turned_counts import TurnedCounts

LEAST_ROWS = 5  # rows that a word must be in to be listed
SLOWEST = "slowest rows (the time of a batch is shared out evenly over its rows)"
RANDOM_WORDS = "(random words)"  # beside the methods: no method has such a name

WRITTEN_TEXTS = (  # what the numbers of a run with `generate` are about
    "written texts: up to {} tokens after each row. Below, words are those of the",
    "rows' own texts, by their mean share over the written tokens; rows are grouped",
    "by the token that was written first. The texts: mixlens.runs.corpus.generations.",
)


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
    # class -> method -> "for" and "against" -> (word, mean share of a row with its sign, rows); words in `least_rows` or more
    words: dict[str, dict[str, dict[str, Listed]]] = field(default_factory=dict)
    word_agreement: dict[str, float | None] = field(
        default_factory=dict
    )  # "a, b" -> mean Spearman correlation over words
    turned: dict[str, dict[str, Any]] = field(
        default_factory=dict
    )  # method -> share that turned, its interval, rows; with `trust`
    open: dict[str, dict[str, Any]] = field(
        default_factory=dict
    )  # method -> rows whose scores do not add up; with `trust`
    generate: int | None = None  # tokens that the model was let write after each row; None where it wrote nothing
    least_rows: int = LEAST_ROWS  # rows that a word of `words` is in
    cut: int = 0  # rows whose text was cut to what the model reads

    def json(self) -> str:
        return printable_json(json.dumps(asdict(self), ensure_ascii=False))

    def text(self) -> str:
        """The text for a terminal: characters that it would obey, or not show, are escaped."""
        return "\n".join(map(printable, _lines(self)))


@wrong_kinds_in_one_line
def summarize(
    out: str | os.PathLike[str], *, top: int = 8, classes: int = 8, least: int = 3, least_rows: int = LEAST_ROWS
) -> Summary:
    """Words for and against each predicted class (by their mean share of a row, in `least_rows` or more), what turned without
    them (where the run was made with `trust`), agreement between methods, mixing ratio per layer, reconstruction gaps, slow
    examples, reasons of errors. `top` and `signed` are by the mean share of an occurrence, of words seen `least` times."""
    manifest = manifest_of(out)
    options = mapping(mapping(manifest.get("identity")).get("options"))
    tally = Tally(methods_of(manifest))
    reasons = visit_rows(out, manifest, lambda row, _: tally.add(row))
    frequent = dict(tally.predicted.most_common(classes))
    return Summary(
        out=str(out),
        model=str(mapping(manifest.get("model")).get("name")),
        finished=bool(manifest.get("finished")),
        rows=tally.rows,
        errors=reasons.total(),
        reasons=reasons.most_common(5),
        tokens_a_row=tally.tokens.value,
        seconds_a_row=tally.seconds.value,
        classes=frequent,
        top={name: tally.top_of_methods(name, top, least) for name in frequent},
        agreement=_mean_agreement(tally),
        mixing_ratio=_mean_ratios(tally),
        gap={"mean": tally.gap.value, "largest": tally.gap.largest if tally.gap.count else None},
        slow=tally.slowest(5),
        signed={name: tally.signed_top(name, top, least) for name in frequent},
        words={name: tally.words_of_rows(name, top, least_rows) for name in frequent},
        word_agreement={f"{a}, {b}": mean.value for (a, b), mean in tally.word_agreement.items()},
        turned=_turned(tally.removal),
        open={method: vars(gaps) for method, gaps in tally.removal.gaps.items() if gaps.rows},
        generate=options.get("generate"),
        least_rows=least_rows,
        cut=tally.cut if options.get("truncate") else 0,
    )


def _turned(counts: TurnedCounts) -> dict[str, dict[str, Any]]:
    """What turned without words: the method first whose words turn most, random words last."""
    ways = {method: counts.methods[method] for method in counts.best_first()} | {RANDOM_WORDS: counts.random}
    return {
        name: {"share": way.share, **_ends(way.interval()), "rows": way.rows} for name, way in ways.items() if way.rows
    }


def _ends(interval: tuple[float, float] | None) -> dict[str, float]:
    return {} if interval is None else dict(zip(("low", "high"), interval, strict=True))


def _mean_agreement(tally: Tally) -> dict[str, float | None]:
    return {f"{a}, {b}": mean.value for (a, b), mean in tally.agreement.items()}


def _mean_ratios(tally: Tally) -> dict[str, list[float]]:
    return {name: [mean.value or 0.0 for mean in layers] for name, layers in tally.ratios.items()}


# --- the text ---------------------------------------------------------------------------------------------------------


def _lines(summary: Summary) -> Iterator[str]:
    state = "finished" if summary.finished else "not finished"
    yield f"{summary.out}: model {summary.model}, {summary.rows} rows explained, {summary.errors} could not be, {state}"
    yield from (f"  {count:>7}  {reason}" for reason, count in summary.reasons)
    others = summary.errors - sum(count for _, count in summary.reasons)
    yield from [f"  {others:>7}  for other reasons: errors.jsonl has each"] if others else []
    if summary.rows:
        yield from _row_lines(summary)


def _row_lines(summary: Summary) -> Iterator[str]:
    """What is said of rows that were explained."""
    yield f"{summary.tokens_a_row:.1f} tokens a row, {1000 * (summary.seconds_a_row or 0):.2f} ms a row"
    yield from _cut_lines(summary.cut)
    yield from _gap_lines(summary.gap)
    yield from [line.format(summary.generate) for line in WRITTEN_TEXTS] if summary.generate else []
    for name in summary.words:
        yield from _class_lines(summary, name)
    yield from _turned_lines(summary.turned)
    yield from _open_lines(summary.open)
    agreement = {pair: _numbers([value]) for pair, value in summary.word_agreement.items()}
    yield from _block("agreement between methods (mean Spearman correlation over the words of a row)", agreement)
    yield from _block(
        "mixing ratio by layer", {name: _numbers(layers) for name, layers in summary.mixing_ratio.items()}
    )
    yield from ("", SLOWEST, *map(_slow_line, summary.slow)) if summary.slow else ()


def _cut_lines(rows: int) -> list[str]:
    """One line about rows that were cut; none where no row was."""
    return [f"{rows} rows were cut to what the model reads: what follows was not read"] if rows else []


def _gap_lines(gap: Mapping[str, float | None]) -> list[str]:
    """One line about gaps; none where no row has a gap."""
    return (
        []
        if gap["mean"] is None
        else [
            f"reconstruction gap: mean {gap['mean']:.1e}, largest {gap['largest']:.1e} (each row has the largest of its batch)"
        ]
    )


def _numbers(values: Iterable[float | None]) -> str:
    return "  ".join("-" if value is None else f"{value:.3f}" for value in values)


def _slow_line(row: Mapping[str, Any]) -> str:
    return f"  row {row['row']:<9} {row['tokens']:>5} tokens  {1000 * row['seconds']:>9.2f} ms"


def _block(title: str, rows: Mapping[str, str]) -> Iterator[str]:
    """A title and one line for each row; nothing where there are no rows."""
    if rows:
        width = max(map(len, rows))
        yield from ("", title, *(f"  {name:<{width}}  {cell}" for name, cell in rows.items()))


def _class_lines(summary: Summary, name: str) -> Iterator[str]:
    """The words of the rows with one prediction, each with the rows that have it; of signed scores for and against apart."""
    methods = summary.words[name]
    width = max(map(len, methods), default=0)
    said = f"wrote {name!r} first" if summary.generate else f"predicted {name!r}"
    yield from ("", f"{said}: {summary.classes[name]} rows")
    for method, ways in methods.items():
        first, *others = _way_cells(ways, signed=method in summary.signed.get(name, {}), least_rows=summary.least_rows)
        yield f"  {method:<{width}}  {first}"
        yield from (f"  {'':<{width}}  {cell}" for cell in others)


def _way_cells(ways: Mapping[str, Listed], *, signed: bool, least_rows: int) -> list[str]:
    """The words for what was predicted, and those against it; one line where scores have no sign."""
    if not any(ways.values()):
        rarer = "" if least_rows <= 1 else "; rarer ones: --least-rows 1 (least_rows=1)"
        return [f"no word is in {least_rows} {'row' if least_rows == 1 else 'rows'} or more{rarer}"]
    if not signed:
        return [_words(ways["for"], sign=False)]
    return [f"{way + ':':<8} {_words(words, sign=True) or '-'}" for way, words in ways.items()]


def _words(words: Listed, *, sign: bool) -> str:
    """Each word with its share and its rows."""
    return "  ".join(
        f"{word} {for_terminal(percent(share, sign=sign), unicode=False)} ({rows} rows)" for word, share, rows in words
    )


def _turned_lines(turned: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """How many predictions turn without three words, with 95 % intervals."""
    lines = {_turned_name(name): _turned_line(facts) for name, facts in turned.items()}
    yield from _block("predictions that turn without the three first words (95 % interval)", lines)


def _turned_name(name: str) -> str:
    return "three random words" if name == RANDOM_WORDS else name


def _turned_line(facts: Mapping[str, Any]) -> str:
    share, low, high = (for_terminal(percent(facts[name])) for name in ("share", "low", "high"))
    return f"{share:>6}  ({low} to {high}; {facts['rows']} rows)"


def _open_lines(opened: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """In how many rows scores miss the sum that they have to have."""
    yield from _block(
        "scores that do not add up within 1 %", {name: _open_line(facts) for name, facts in opened.items()}
    )


def _open_line(facts: Mapping[str, Any]) -> str:
    return f"{facts['open']} of {facts['rows']} rows, at worst {for_terminal(gap(facts['largest']))}"
