"""`summarize`: what a run found, in one pass over its shards that holds no more than counts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ...base.doors import door
from ...base.errors import printable, printable_json
from ...base.text import for_terminal, gap, percent
from .counts import Counts, Listed
from .reading import manifest_of, mapping, methods_of, visit_rows

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
    # class -> method -> "for" and "against" -> (word, mean share of a row with its sign, rows); words in `least_rows`
    # or more
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


@door
def summarize(
    out: str | os.PathLike[str], *, top: int = 8, classes: int = 8, least: int = 3, least_rows: int = LEAST_ROWS
) -> Summary:
    """Words for and against each predicted class (by their mean share of a row, in `least_rows` or more), what turned
    without them (where the run was made with `trust`), agreement between methods, mixing ratio per layer,
    reconstruction gaps, slow examples, reasons of errors. `top` and `signed` are by the mean share of an occurrence, of
    words seen `least` times."""
    manifest = manifest_of(out)
    options = mapping(mapping(manifest.get("identity")).get("options"))
    counts = Counts(methods_of(manifest))
    reasons = visit_rows(out, manifest, counts.add)
    frequent = dict(counts.predicted.most_common(classes))
    lists = {name: counts.word_lists(name, top=top, least=least, least_rows=least_rows) for name in frequent}
    ways = {method: counts.removal.methods[method] for method in counts.removal.best_first()}
    ways |= {RANDOM_WORDS: counts.removal.random}
    intervals = {name: way.interval() for name, way in ways.items()}
    return Summary(
        out=str(out),
        model=str(mapping(manifest.get("model")).get("name")),
        finished=bool(manifest.get("finished")),
        rows=counts.rows,
        errors=reasons.total(),
        reasons=reasons.most_common(5),
        tokens_a_row=counts.tokens.value,
        seconds_a_row=counts.seconds.value,
        classes=frequent,
        top={name: tops for name, (tops, _, _) in lists.items()},
        agreement={f"{a}, {b}": mean.value for (a, b), mean in counts.agreement.items()},
        mixing_ratio={name: [mean.value or 0.0 for mean in layers] for name, layers in counts.ratios.items()},
        gap={"mean": counts.gap.value, "largest": counts.gap.largest if counts.gap.count else None},
        slow=counts.slowest(5),
        signed={name: signed for name, (_, signed, _) in lists.items()},
        words={name: of_rows for name, (_, _, of_rows) in lists.items()},
        word_agreement={f"{a}, {b}": mean.value for (a, b), mean in counts.word_agreement.items()},
        turned={
            name: {"share": ways[name].share, "low": ends[0], "high": ends[1], "rows": ways[name].rows}
            for name, ends in intervals.items()
            if ends is not None
        },
        open={method: vars(gaps) for method, gaps in counts.removal.gaps.items() if gaps.rows},
        generate=options.get("generate"),
        least_rows=least_rows,
        cut=counts.cut if options.get("truncate") else 0,
    )


# --- the text ---------------------------------------------------------------------------------------------------------


def _lines(summary: Summary) -> Iterator[str]:
    state = "finished" if summary.finished else "not finished"
    yield f"{summary.out}: model {summary.model}, {summary.rows} rows explained, {summary.errors} could not be, {state}"
    yield from (f"  {count:>7}  {reason}" for reason, count in summary.reasons)
    others = summary.errors - sum(count for _, count in summary.reasons)
    if others:
        yield f"  {others:>7}  for other reasons: errors.jsonl has each"
    if not summary.rows:
        return
    yield f"{summary.tokens_a_row:.1f} tokens a row, {1000 * (summary.seconds_a_row or 0):.2f} ms a row"
    if summary.cut:
        yield f"{summary.cut} rows were cut to what the model reads: what follows was not read"
    if summary.gap["mean"] is not None:
        mean, largest = (f"{summary.gap[name]:.1e}" for name in ("mean", "largest"))
        yield f"reconstruction gap: mean {mean}, largest {largest} (each row has the largest of its batch)"
    if summary.generate:
        yield from (line.format(summary.generate) for line in WRITTEN_TEXTS)
    for name in summary.words:
        yield from _class_lines(summary, name)
    shown = {  # method -> the cell of its line
        "three random words" if name == RANDOM_WORDS else name: (
            "{:>6}  ({} to {}; {} rows)".format(
                *(for_terminal(percent(facts[fact])) for fact in ("share", "low", "high")), facts["rows"]
            )
        )
        for name, facts in summary.turned.items()
    }
    yield from _block("predictions that turn without the three first words (95 % interval)", shown)
    opened = {
        name: f"{facts['open']} of {facts['rows']} rows, at worst {for_terminal(gap(facts['largest']))}"
        for name, facts in summary.open.items()
    }
    yield from _block("scores that do not add up within 1 %", opened)
    agreement = {pair: _numbers([value]) for pair, value in summary.word_agreement.items()}
    yield from _block("agreement between methods (mean Spearman correlation over the words of a row)", agreement)
    yield from _block(
        "mixing ratio by layer", {name: _numbers(layers) for name, layers in summary.mixing_ratio.items()}
    )
    if summary.slow:
        yield from ("", SLOWEST)
    for row in summary.slow:
        yield f"  row {row['row']:<9} {row['tokens']:>5} tokens  {1000 * row['seconds']:>9.2f} ms"


def _numbers(values: Iterable[float | None]) -> str:
    return "  ".join("-" if value is None else f"{value:.3f}" for value in values)


def _block(title: str, rows: Mapping[str, str]) -> Iterator[str]:
    """A title and one line for each row; nothing where there are no rows."""
    if rows:
        width = max(map(len, rows))
        yield from ("", title, *(f"  {name:<{width}}  {cell}" for name, cell in rows.items()))


def _class_lines(summary: Summary, name: str) -> Iterator[str]:
    """The words of the rows with one prediction, each with the rows that have it; of signed scores for and against
    apart."""
    methods = summary.words[name]
    width = max(map(len, methods), default=0)
    said = f"wrote {name!r} first" if summary.generate else f"predicted {name!r}"
    yield from ("", f"{said}: {summary.classes[name]} rows")
    for method, ways in methods.items():
        least = summary.least_rows
        if not any(ways.values()):
            rarer = "" if least <= 1 else "; rarer ones: --least-rows 1 (least_rows=1)"
            cells = [f"no word is in {least} {'row' if least == 1 else 'rows'} or more{rarer}"]
        elif method in summary.signed.get(name, {}):
            cells = [f"{way + ':':<8} {_words(words, sign=True) or '-'}" for way, words in ways.items()]
        else:
            cells = [_words(ways["for"], sign=False)]
        for told, cell in zip([method, *[""] * len(cells)], cells, strict=False):
            yield f"  {told:<{width}}  {cell}"


def _words(words: Listed, *, sign: bool) -> str:
    """Each word with its share and its rows."""
    return "  ".join(
        f"{word} {for_terminal(percent(share, sign=sign), unicode=False)} ({rows} rows)" for word, share, rows in words
    )
