"""One shard's work: rows in, the bytes of its files out. The same rows give the same bytes, but for the seconds."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, repeat
from operator import attrgetter
from typing import Any

import torch

from ...base.budget import is_out_of_memory
from ...base.errors import InputError, MixlensError, RowsError, TokenLimitError
from ...data import RowError
from ...data.truncation import naming_option, truncated
from ...model.chat import refuse_no_template
from ...model.encode import Encoded
from ...model.model import Model
from ...model.predict import predictions, refuse_generation
from ...scoring.aggregate import find, rolled_row, rolled_rows
from ...scoring.asking import RANDOM, MethodRequest, grouped, map_of, parse_methods
from ...scoring.attributions import attribute_each
from ...scoring.maps import Call, Scorer, fresh, method, mix
from ...types import Attribution, Chat, Example, Map, Trace
from .answers import Answer, Read, answer_columns, answers_of, input_columns, map_numbers, or_raise
from .parquet import Row, maps_content, parquet_content, schema_of, table_of
from .plan import CUT, RATIO, Plan, refuse_target
from .rows import InputRow, fingerprint, place_of, written
from .shards import SCHEMA, file_name
from .taken_out import refuse_trust, trust_columns
from .writing import written_rows

LONGEST_REASON = 400  # characters
Text = tuple[InputRow, Encoded]


@dataclass(frozen=True)
class BadRow:
    """A row that could not be explained, and why."""

    row: int
    id: str
    reason: str


@dataclass(frozen=True)
class ShardFiles:
    """The files of one shard, ready to be written."""

    number: int
    content: bytes = field(repr=False)
    name: str
    maps: bytes | None = field(repr=False)
    maps_name: str | None
    rows: int
    bad: tuple[BadRow, ...]
    input: str  # fingerprint of the rows it was made from


def _ignore(_: int) -> None:
    pass


class Worker:
    """A model and a plan. `window` does the work; nothing is remembered between two calls."""

    def __init__(self, model: Model, plan: Plan):
        self.model, self.plan = model, plan
        self.requests = parse_methods(plan.methods)
        self.groups = grouped(self.requests)
        grouped_names = () if plan.generate is not None else chain.from_iterable(self.groups)
        self.ratios = list(filter(self._has_ratio, grouped_names))  # in the order of the columns

    def _has_ratio(self, name: str) -> bool:
        return "mixing_ratio" in method(self.requests[name].name).extras

    @cached_property
    def maps(self) -> dict[str, MethodRequest]:
        return {name: request for name, request in self.requests.items() if request.is_map}

    @cached_property
    def attributions(self) -> dict[str, MethodRequest]:
        return {name: request for name, request in self.requests.items() if not request.is_map}

    @cached_property
    def random(self) -> list[str]:
        """The requests for random scores, whose seed differs from text to text."""
        return [name for name, request in self.maps.items() if request.name == RANDOM]

    @cached_property
    def streams(self) -> bool:
        """Whether a pass that keeps nothing is enough: for maps alone, which look at one layer at a time."""
        return (
            not self.attributions and not self.random and all(map(_reads_single_layers, map(self._call, self.groups)))
        )

    def refuse(self) -> None:
        """Refuse what no row could pass."""
        refuse_target(self.model, self.plan, self.requests)
        if self.plan.generate is not None:
            refuse_generation(self.model, 1, 1)
        if self.plan.chat:
            refuse_no_template(self.model)
        if self.plan.trust:
            refuse_trust(self.model, self.plan.target, self.plan.foil)

    def schema(self) -> Any:
        """The columns of every shard."""
        return schema_of(self.plan, self.model.dtype, self.ratios)

    def _call(self, group: Sequence[str]) -> Call:
        shared = self.requests[group[0]]
        return Call([self.requests[name].name for name in group], shared.variant, None, shared.options)

    # - one shard

    def window(
        self, number: int, rows: Sequence[InputRow | RowError], run: str, tick: Callable[[int], object] = _ignore
    ) -> ShardFiles:
        """The files of the shard of this number. `tick` is called with the number of rows that are done."""
        texts, bad = self._texts(rows)
        tick(len(bad))
        answers = self._columns_by_text(texts, tick)
        bad += [answer for answer in answers.values() if isinstance(answer, BadRow)]
        good = [answers[i] for i in sorted(answers) if not isinstance(answers[i], BadRow)]
        return self._files(number, run, fingerprint(rows), good, sorted(bad, key=attrgetter("row")))

    def _columns_by_text(self, texts: Sequence[Text], tick: Callable[[int], object]) -> dict[int, Any]:
        """The columns of each text, or a BadRow, by its number, in the order of the batches. No error is held beyond its batch:
        its traceback would hold the traces."""
        answers: dict[int, Row | BadRow] = {}
        for batch in self.model.batches([code for _, code in texts], None, self.plan.batch_tokens):
            rows, encoded = zip(*(texts[i] for i in batch), strict=True)
            compare = not answers
            answers |= zip(batch, map(_columns_or_bad, rows, self._batch(rows, encoded, compare=compare)), strict=True)
            tick(len(batch))
        return answers

    def _files(self, number: int, run: str, source: str, rows: Sequence[Row], bad: Sequence[BadRow]) -> ShardFiles:
        maps = None if self.plan.maps is None else maps_content(number, rows, self.plan.maps)
        maps_name = None if maps is None else file_name(number, maps)
        facts = {
            "schema": SCHEMA,
            "run": run,
            "number": number,
            "input": source,
            "maps": maps_name,
            "errors": list(map(vars, bad)),
        }
        content = parquet_content(table_of(rows, self.schema(), facts))
        return ShardFiles(number, content, file_name(number, content), maps, maps_name, len(rows), tuple(bad), source)

    def _texts(self, rows: Sequence[InputRow | RowError]) -> tuple[list[Text], list[BadRow]]:
        """The rows with their tokens, and the rows that cannot be read."""
        texts: list[Text] = []
        bad: list[BadRow] = []
        for row in map(self.shorter, rows):
            code = self._code_or_reason(row)
            if isinstance(row, RowError) or isinstance(code, MixlensError):
                bad.append(_bad_row(row, code))
            else:
                texts.append((row, code))
        return texts, bad

    def _code_or_reason(self, row: InputRow | RowError) -> Any:
        """The tokens of one row, or the reason why it has none."""
        if isinstance(row, RowError):
            return InputError(row.reason)
        try:
            return self.encode(row)
        except TokenLimitError as error:
            return self._with_option(error, row)
        except MixlensError as error:
            return error
        except MemoryError:
            return InputError("memory runs out while the text is cut into tokens.")

    def _with_option(self, error: TokenLimitError, row: InputRow) -> TokenLimitError:
        """The refusal of a row that is too long; of a text that was not to be cut, with the option that cuts it."""
        return error if row.text is None or self.plan.truncate else naming_option(error)

    def shorter(self, row: Any) -> Any:
        """The row, its text cut to what the model reads where the plan says so; tokens that it will write have room."""
        if self._is_to_be_cut(row):
            with contextlib.suppress(MixlensError):  # what is wrong with the text is said where it is read
                return _cut(row, self.model, self.plan.generate or 0)
        return row

    def _is_to_be_cut(self, row: InputRow | RowError) -> bool:
        return self.plan.truncate and getattr(row, "text", None) is not None

    def encode(self, row: InputRow) -> Encoded:
        """The tokens of one row."""
        text: Any = (row.text, row.pair) if row.pair is not None else row.text
        text = text if row.messages is None else Chat(row.messages)
        encoded, _ = self.model.encode_all(text, row.input_ids, row.token_type_ids, row.attention_mask)
        return encoded[0]

    # - one batch

    def _batch(
        self, rows: Sequence[InputRow], encoded: Sequence[Encoded], *, compare: bool = True
    ) -> list[Row | MixlensError]:
        """A row or a reason for each. A batch that fails, or does not fit, is halved, so that one row costs no other. With
        `compare`, which is so for the first batch of a shard, its first and its last row must be what they are alone."""
        try:
            if self.plan.generate is not None:
                return written_rows(self.model, self.plan, self.requests, rows, encoded)
            answers = self._answers_of_batch(rows, encoded, compare)
        except RowsError:  # the other batches, which are not compared, would be wrong too
            raise
        except (MixlensError, MemoryError, torch.OutOfMemoryError, RuntimeError) as error:
            reason = _reason(error, encoded[0])
            return [reason] if len(encoded) == 1 else self._halves(rows, encoded)
        return list(map(self._row_or_reason, rows, encoded, answers))

    def _halves(self, rows: Sequence[InputRow], encoded: Sequence[Encoded]) -> list[Row | MixlensError]:
        if self.model.device.type == "cuda":
            torch.cuda.empty_cache()
        half = len(encoded) // 2
        return self._batch(rows[:half], encoded[:half]) + self._batch(rows[half:], encoded[half:])

    def _answers_of_batch(self, rows: Sequence[InputRow], encoded: Sequence[Encoded], compare: bool) -> list[Answer]:
        started = time.perf_counter()
        traces, maps = (self._stream if self.streams else self._trace)(encoded, compare)
        attributed = self._attribution_scores(rows, traces)
        predicted = predictions(traces, k=1)
        scores = {**self._map_scores(traces, maps), **attributed}
        seconds = (time.perf_counter() - started) / len(encoded)
        by_row = [{name: of_method[i] for name, of_method in scores.items()} for i in range(len(rows))]
        return [Answer(*parts, seconds) for parts in zip(traces, maps, by_row, predicted, strict=True)]

    def _place(self, trace: Trace) -> int | MixlensError:
        """The position that is read, or the reason why there is none."""
        try:
            return trace.query if self.plan.query is None else find(trace.tokens, self.plan.query)
        except MixlensError as error:
            return error

    def _map_scores(self, traces: Sequence[Trace], maps: Sequence[dict[str, Map]]) -> dict[str, list[Read]]:
        """Of every map method, the row of each rolled-out map at the position that is read, or the reason why there is none."""
        places = list(map(self._place, traces))
        return {
            name: answers_of(places, partial(_rows_at, [of_trace[name] for of_trace in maps], places, request.rollout))
            for name, request in self.maps.items()
        }

    def _stream(self, encoded: Sequence[Encoded], compare: bool) -> tuple[list[Trace], list[dict[str, Map]]]:
        """Every layer is scored by every method when it has run, then released."""
        return fresh(partial(self._stream_once, encoded, compare), self.model)

    def _stream_once(self, encoded: Sequence[Encoded], compare: bool) -> tuple[list[Trace], list[dict[str, Map]]]:
        scorers = [Scorer(self._call(group), len(encoded), encoded[0].tokens, self.model) for group in self.groups]
        traces, _ = self.model.run_traced(encoded, each=partial(_score_layer, scorers), compare=compare)
        return traces, self._by_method([scorer.maps(traces) for scorer in scorers], len(traces))

    def _trace(self, encoded: Sequence[Encoded], compare: bool) -> tuple[list[Trace], list[dict[str, Map]]]:
        """The traced pass is held until every method has scored it."""
        traces, _ = self.model.run_traced(encoded, compare=compare)
        maps = self._by_method([self._group_maps(traces, group) for group in self.groups], len(traces))
        for trace, of_trace in zip(traces, maps, strict=True):
            of_trace |= {name: map_of(trace, self.requests[name]) for name in self.random}
        return traces, maps

    def _group_maps(self, traces: Sequence[Trace], group: Sequence[str]) -> Any:
        """For every trace the maps of a group of methods that share their options."""
        shared = self.requests[group[0]]
        return mix(traces, [self.requests[name].name for name in group], variant=shared.variant, **shared.options)

    def _by_method(self, of_groups: Sequence[Sequence[dict[str, Map]]], count: int) -> list[dict[str, Map]]:
        """For every trace its maps by the method as written."""
        maps: list[dict[str, Map]] = [{} for _ in range(count)]
        for group, of_traces in zip(self.groups, of_groups, strict=True):
            for of_trace, by_name in zip(maps, of_traces, strict=True):
                of_trace |= {name: by_name[self.requests[name].name] for name in group}
        return maps

    def _attribution_scores(self, rows: Sequence[InputRow], traces: Sequence[Trace]) -> dict[str, list[Read]]:
        """The scores of every attribution method on every row, or the reason why there are none."""
        return {name: self._scores_by(request, rows, traces) for name, request in self.attributions.items()}

    def _scores_by(self, request: MethodRequest, rows: Sequence[InputRow], traces: Sequence[Trace]) -> list[Read]:
        """The scores of one method on every row. Rows share their gradients."""
        questions = [self._question(request, row) for row in rows]
        options: dict[str, Any] = {"variant": request.variant, "tokens": self.plan.batch_tokens, **request.options}

        def attributed(asked: Sequence[int]) -> Sequence[Read]:
            return attribute_each([traces[i] for i in asked], request.name, [questions[i] for i in asked], **options)

        return answers_of(questions, attributed)

    def _question(self, request: MethodRequest, row: InputRow) -> Any:
        """What `attribute` is asked of one row, or the reason why it cannot be asked."""
        plan, place = self.plan, {"query": self.plan.query}
        if not request.class_specific:
            return place
        if plan.target != "gold":
            return {**place, "target": plan.target, "foil": plan.foil, "score": plan.score}
        if row.target is None:
            return InputError("the row has no target and no label, so there is no gold target to explain.")
        foil = row.foil if plan.foil is None else plan.foil
        return {**place, "target": row.target, "foil": foil, "score": plan.score}

    # - one row

    def _row_or_reason(self, row: InputRow, code: Encoded, answer: Answer) -> Row | MixlensError:
        try:
            return self._row(row, code, answer)
        except MixlensError as error:
            return error
        except MemoryError:
            return _memory_error(code)

    def _row(self, row: InputRow, code: Encoded, answer: Answer) -> Row:
        """The columns of one row."""
        started = time.perf_counter()
        place = or_raise(self._place(answer.trace))
        columns: Row = {**input_columns(row, code), "query": place, **answer_columns(answer)}
        columns |= zip(self.plan.columns, row.columns, strict=True)
        for name in self.requests:
            columns |= self._scores(name, or_raise(answer.scores[name]), columns["target"])
        columns |= {
            RATIO + name: answer.maps[name].info["mixing_ratio"].float().mean(-1).tolist() for name in self.ratios
        }
        if self.plan.trust:
            columns |= trust_columns(
                answer.trace, columns, {name: or_raise(read) for name, read in answer.scores.items()}
            )
        if self.plan.maps is not None:
            columns["maps"] = map_numbers(answer.maps, getattr(torch, self.plan.maps))
        columns["seconds"] = answer.seconds + time.perf_counter() - started
        return columns

    def _scores(self, name: str, read: Attribution, target: str | None) -> Row:
        """One method's scores, and the target that it explained."""
        if name in self.maps:
            return {name: read.scores.numpy()}
        return {name: read.scores.numpy(), "target": read.info["target"] or target}


def _cut(row: InputRow, model: Model, room: int) -> InputRow:
    """The row with a text that fits the model beside `room` more tokens; as it is where it fits."""
    limit = None if model.max_tokens is None else model.max_tokens - room
    shorter = truncated(Example(str(row.text), row.pair), model, limit)
    whole = shorter.info.get(CUT)
    return row if whole is None else replace(row, text=shorter.text, pair=shorter.pair, whole=whole)


# --- answers and reasons ----------------------------------------------------------------------------------------------


def _reads_single_layers(call: Call) -> bool:
    return not call.query and not any(used.whole for used in call.methods.values())


def _score_layer(scorers: Sequence[Scorer], index: int, layer: Any) -> None:
    for scorer in scorers:
        scorer.score([layer], index)


def _rows_at(
    maps: Sequence[Map], places: Sequence[Any], convention: str | None, asked: Sequence[int]
) -> Sequence[Read]:
    return _rolled_rows([maps[i] for i in asked], [places[i] for i in asked], convention)


def _rolled_rows(maps: Sequence[Map], places: Sequence[Any], convention: str | None) -> Sequence[Read]:
    """All rows together; where one of them is refused, each by itself."""
    try:
        return rolled_rows(maps, places, convention=convention) if maps else []
    except MixlensError:
        return list(map(_rolled_row, maps, places, repeat(convention)))


def _rolled_row(scores: Map, place: int, convention: str | None) -> Read:
    try:
        return rolled_row(scores, place, convention=convention)
    except MixlensError as error:
        return error


def _reason(error: Exception, code: Encoded) -> MixlensError:
    """Why a batch cannot be explained. An error that is neither a refusal nor a want of memory is raised again."""
    if isinstance(error, MixlensError):
        return error
    if isinstance(error, MemoryError) or is_out_of_memory(error):
        return _memory_error(code)
    raise error


def _memory_error(code: Encoded) -> InputError:
    return InputError(f"memory runs out with {len(code.input_ids)} tokens")


def _columns_or_bad(row: InputRow, answer: Row | MixlensError) -> Row | BadRow:
    return _bad_row(row, answer) if isinstance(answer, MixlensError) else answer


def _bad_row(row: InputRow | RowError, error: Exception) -> BadRow:
    reason = (written(str(error)) or type(error).__name__)[:LONGEST_REASON]
    return BadRow(place_of(row), row.id, reason)
