"""`summarize`: what a run found, in one pass over its shards that holds no more than counts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..errors import printable, printable_json
from .reading import manifest_of, mapping, methods_of, visit_rows
from .tally import Listed, Tally


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
        """The text for a terminal: characters that it would obey, or not show, are escaped."""
        return "\n".join(map(printable, _lines(self)))


def summarize(out: str | os.PathLike[str], *, top: int = 8, classes: int = 8, least: int = 3) -> Summary:
    """Top words for each predicted class (by their mean share of the absolute scores, of words seen `least` times; tokens
    where words are not known; of signed scores towards and against apart), agreement between methods, mixing ratio per
    layer, reconstruction gaps, slow examples, reasons of errors."""
    manifest = manifest_of(out)
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
    )


def _mean_agreement(tally: Tally) -> dict[str, float | None]:
    return {f"{a}, {b}": mean.value for (a, b), mean in tally.agreement.items()}


def _mean_ratios(tally: Tally) -> dict[str, list[float]]:
    return {name: [mean.value or 0.0 for mean in layers] for name, layers in tally.ratios.items()}


# --- the text ---------------------------------------------------------------------------------------------------------


def _lines(summary: Summary) -> Iterator[str]:
    state = "finished" if summary.finished else "not finished"
    yield f"{summary.out}: model {summary.model}, {summary.rows} rows explained, {summary.errors} could not be, {state}"
    yield from (f"  {count:>7}  {reason}" for reason, count in summary.reasons)
    if summary.rows:
        yield from _row_lines(summary)


def _row_lines(summary: Summary) -> Iterator[str]:
    """What is said of rows that were explained."""
    yield f"{summary.tokens_a_row:.1f} tokens a row, {1000 * (summary.seconds_a_row or 0):.2f} ms a row"
    yield from _gap_lines(summary.gap)
    for name in summary.top:
        yield from _class_lines(summary, name)
    agreement = {pair: _numbers([value]) for pair, value in summary.agreement.items()}
    yield from _block("agreement between methods (mean Spearman correlation over the tokens of a row)", agreement)
    yield from _block("mixing ratio by layer", {name: _numbers(layers) for name, layers in summary.mixing_ratio.items()})
    yield from ("", "slowest rows", *map(_slow_line, summary.slow))


def _gap_lines(gap: Mapping[str, float | None]) -> list[str]:
    """One line about gaps; none where no row has a gap."""
    return [] if gap["mean"] is None else [f"reconstruction gap: mean {gap['mean']:.1e}, largest {gap['largest']:.1e}"]


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
    """The top words of the rows with one prediction; of signed scores towards and against apart."""
    methods = summary.top[name]
    width = max(map(len, methods))
    yield from ("", f"predicted {name!r}: {summary.classes[name]} rows")
    for method, words in methods.items():
        ways = summary.signed.get(name, {}).get(method)
        first, *others = [_words(words)] if ways is None else _signed_cells(ways)
        yield f"  {method:<{width}}  {first}"
        yield from (f"  {'':<{width}}  {cell}" for cell in others)


def _signed_cells(ways: Mapping[str, Listed]) -> list[str]:
    """The words that count towards, and those that count against, what is explained."""
    return [f"{way}: {_words(words, '+') or '-'}" for way, words in ways.items()]


def _words(words: Listed, sign: str = "") -> str:
    """Each word with its share, which is written with a `sign` where that is "+"."""
    return "  ".join(f"{word} {share:{sign}.3f}" for word, share, _ in words)
