"""One shard's work: rows in, the bytes of its files out. The same rows give the same bytes, but for the seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from ..aggregate import find, rolled_row, rolled_rows
from ..asking import RANDOM, MethodRequest, grouped, map_of, parse_methods
from ..attributions import attribute_each
from ..budget import is_out_of_memory
from ..data import RowError
from ..errors import InputError, MixlensError
from ..maps import method, mix
from ..model.encode import Encoded
from ..model.model import Model
from ..model.predict import predictions
from ..scoring import Call, Scorer, fresh
from ..types import Attribution, Map, Prediction, Trace
from .parquet import Row, maps_content, parquet_content, schema_of, table_of
from .plan import RATIO, Plan, refuse_target
from .rows import Given, fingerprint, written
from .shards import SCHEMA, file_name

LONGEST_REASON = 400  # characters
Read = Attribution | MixlensError  # the scores of one method on one row, or why there are none


@dataclass(frozen=True)
class BadRow:
    """A row that could not be explained, and why."""

    row: int
    id: str | None
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


class Worker:
    """A model and a plan. `window` does the work; nothing is remembered between two calls."""

    def __init__(self, model: Model, plan: Plan):
        self.model, self.plan = model, plan
        self.requests = parse_methods(plan.methods)
        self.maps = {written_as: request for written_as, request in self.requests.items() if request.is_map}
        self.groups = grouped(self.maps)
        in_groups = [one for group in self.groups for one in group]  # the order of the columns
        self.ratios = [one for one in in_groups if "mixing_ratio" in method(self.maps[one].name).extras]

    @cached_property
    def streams(self) -> bool:
        """Whether a pass that keeps nothing is enough: for maps alone, which look at one layer at a time."""
        if len(self.maps) < len(self.requests) or any(request.name == RANDOM for request in self.maps.values()):
            return False
        calls = [self._call(group) for group in self.groups]
        return not any(call.query or any(used.whole for used, _ in call.chosen.values()) for call in calls)

    def refuse(self) -> None:
        """Refuse what no row could pass."""
        refuse_target(self.model, self.plan, self.requests)

    def schema(self) -> Any:
        """The columns of every shard."""
        return schema_of(self.plan, self.model.dtype, self.ratios)

    def _call(self, group: Sequence[str]) -> Call:
        shared = self.requests[group[0]]
        return Call([self.requests[one].name for one in group], shared.variant, None, "float32", shared.options)

    # - one shard

    def window(
        self, number: int, rows: Sequence[Given | RowError], run: str, tick: Callable[[int], None] | None = None
    ) -> ShardFiles:
        """The files of the shard of this number. `tick` is told how many rows are done."""
        texts, bad = self._encoded(rows)
        if tick is not None:
            tick(len(bad))
        scored: dict[int, Row] = {}
        for batch in self.model.batches([code for _, code in texts], None, self.plan.batch_tokens):
            for i, row in zip(batch, self._batch(*zip(*(texts[i] for i in batch), strict=True)), strict=True):
                if isinstance(row, MixlensError):
                    bad.append(_bad_row(texts[i][0], row))
                else:
                    scored[i] = row
            if tick is not None:
                tick(len(batch))
        ordered = [scored[i] for i in sorted(scored)]
        return self._files(number, run, fingerprint(rows), ordered, sorted(bad, key=lambda one: one.row))

    def _files(self, number: int, run: str, source: str, rows: Sequence[Row], bad: Sequence[BadRow]) -> ShardFiles:
        maps = None if self.plan.maps is None else maps_content(number, rows, self.plan.maps)
        maps_name = None if maps is None else file_name(number, maps)
        facts = {
            "schema": SCHEMA,
            "run": run,
            "number": number,
            "input": source,
            "maps": maps_name,
            "errors": [vars(one) for one in bad],
        }
        content = parquet_content(table_of(rows, self.schema(), facts))
        return ShardFiles(number, content, file_name(number, content), maps, maps_name, len(rows), tuple(bad), source)

    def _encoded(self, rows: Sequence[Given | RowError]) -> tuple[list[tuple[Given, Encoded]], list[BadRow]]:
        """The rows with their tokens, and the rows that cannot be read."""
        texts: list[tuple[Given, Encoded]] = []
        bad: list[BadRow] = []
        for one in rows:
            try:
                if isinstance(one, RowError):
                    raise InputError(one.reason)
                texts.append((one, self.encode(one)))
            except MixlensError as error:
                bad.append(_bad_row(one, error))
            except MemoryError:
                bad.append(_bad_row(one, InputError("memory runs out while the text is cut into tokens.")))
        return texts, bad

    def encode(self, one: Given) -> Encoded:
        """The tokens of one row."""
        text = (one.text, one.pair) if one.pair is not None else one.text
        encoded, _ = self.model.encode_all(text, one.input_ids, one.token_type_ids, one.attention_mask)  # type: ignore[arg-type]
        return encoded[0]

    # - one batch

    def _batch(self, given: Sequence[Given], encoded: Sequence[Encoded]) -> list[Row | MixlensError]:
        """A row or a reason for each. A batch that fails, or does not fit, is halved, so that one row costs no other."""
        try:
            started = time.perf_counter()
            traces, maps = self._streamed(encoded) if self.streams else self._traced(encoded)
            reads = self._attributed(given, traces)
            predicted = predictions(traces, k=1)
            rolled = self._rolled(traces, maps)
            shared = (time.perf_counter() - started) / len(encoded)
        except (MixlensError, MemoryError, torch.OutOfMemoryError, RuntimeError) as error:
            if not isinstance(error, MixlensError | MemoryError) and not is_out_of_memory(error):
                raise
            if len(encoded) == 1:
                return [error if isinstance(error, MixlensError) else _memory_error(encoded[0])]
            if self.model.device.type == "cuda":
                torch.cuda.empty_cache()
            half = len(encoded) // 2
            return self._batch(given[:half], encoded[:half]) + self._batch(given[half:], encoded[half:])
        each = zip(given, encoded, traces, maps, reads, predicted, rolled, strict=True)
        return [
            self._tried_row(one, code, trace, of, {**over, **read}, said, shared)
            for one, code, trace, of, read, said, over in each
        ]

    def _tried_row(self, one: Given, code: Encoded, *answers: Any) -> Row | MixlensError:
        try:
            return self._row(one, code, *answers)
        except MixlensError as error:
            return error
        except MemoryError:
            return _memory_error(code)

    def _place(self, trace: Trace) -> int | MixlensError:
        """The position that is read, or why there is none."""
        try:
            return trace.query if self.plan.query is None else find(trace.tokens, self.plan.query)
        except MixlensError as error:
            return error

    def _rolled(self, traces: Sequence[Trace], maps: Sequence[dict[str, Map]]) -> list[dict[str, Read]]:
        """The row of every rolled-out map at every trace's place, or why there is none."""
        places = [self._place(trace) for trace in traces]
        there = [i for i, place in enumerate(places) if not isinstance(place, MixlensError)]
        reads: list[dict[str, Read]] = [{} for _ in traces]
        for written_as, request in self.maps.items():
            rows = _rolled_rows([maps[i][written_as] for i in there], [places[i] for i in there], request.rollout)
            _put(reads, written_as, dict(zip(there, rows, strict=True)), places)
        return reads

    def _streamed(self, encoded: Sequence[Encoded]) -> tuple[list[Trace], list[dict[str, Map]]]:
        """Every layer is scored by every method when it has run, then released."""

        def scored() -> tuple[list[Trace], list[dict[str, Map]]]:
            scorers = [Scorer(self._call(group), len(encoded), encoded[0].tokens, self.model) for group in self.groups]

            def each(index: int, layer: Any) -> None:
                for scorer in scorers:
                    scorer.score([layer], index)

            traces, _ = self.model.run_traced(encoded, each=each)
            return traces, self._by_method([scorer.maps(traces) for scorer in scorers], len(traces))

        return fresh(scored, self.model)

    def _traced(self, encoded: Sequence[Encoded]) -> tuple[list[Trace], list[dict[str, Map]]]:
        """The traced pass is held until every method has scored it."""
        traces, _ = self.model.run_traced(encoded)
        of_groups = []
        for group in self.groups:
            shared = self.requests[group[0]]
            names = [self.requests[one].name for one in group]
            of_groups.append(mix(traces, names, variant=shared.variant, **shared.options))
        maps = self._by_method(of_groups, len(traces))
        for written_as in [one for one, request in self.maps.items() if request.name == RANDOM]:
            for trace, of_trace in zip(traces, maps, strict=True):
                of_trace[written_as] = map_of(trace, self.requests[written_as])
        return traces, maps

    def _by_method(self, of_groups: Sequence[Sequence[dict[str, Map]]], count: int) -> list[dict[str, Map]]:
        """For every trace its maps by the method as written."""
        maps: list[dict[str, Map]] = [{} for _ in range(count)]
        for group, of_traces in zip(self.groups, of_groups, strict=True):
            for of_trace, by_name in zip(maps, of_traces, strict=True):
                of_trace |= {one: by_name[self.requests[one].name] for one in group}
        return maps

    def _attributed(self, given: Sequence[Given], traces: Sequence[Trace]) -> list[dict[str, Read]]:
        """The scores of every attribution method on every row, or why there are none. Rows share their gradients."""
        reads: list[dict[str, Read]] = [{} for _ in given]
        for written_as, request in self.requests.items():
            if request.is_map:
                continue
            questions = [self._question(request, one) for one in given]
            there = [i for i, question in enumerate(questions) if not isinstance(question, MixlensError)]
            shared: dict[str, Any] = {"variant": request.variant, "tokens": self.plan.batch_tokens, **request.options}
            rows = attribute_each([traces[i] for i in there], request.name, [questions[i] for i in there], **shared)
            _put(reads, written_as, dict(zip(there, rows, strict=True)), questions)
        return reads

    def _question(self, request: MethodRequest, one: Given) -> Any:
        """What `attribute` is asked of one row, or why it cannot be asked."""
        plan, place = self.plan, {"query": self.plan.query}
        if not request.class_specific:
            return place
        if plan.target != "gold":
            return {**place, "target": plan.target, "foil": plan.foil, "score": plan.score}
        if one.target is None:
            return InputError("the row has no target and no label, so there is no gold target to explain.")
        foil = one.foil if plan.foil is None else plan.foil
        return {**place, "target": one.target, "foil": foil, "score": plan.score}

    # - one row

    def _row(
        self,
        one: Given,
        code: Encoded,
        trace: Trace,
        maps: dict[str, Map],
        reads: Mapping[str, Read],
        predicted: Prediction,
        shared: float,
    ) -> Row:
        """The columns of one row. `shared` are its seconds of the batch."""
        started = time.perf_counter()
        place = self._place(trace)
        if isinstance(place, MixlensError):
            raise place
        row: Row = {
            "row": one.row,
            "id": one.id,
            "text": one.text,
            "pair": one.pair,
            "input_ids": list(code.input_ids),
            "tokens": [written(token) for token in code.tokens],
            "query": place,
            "prediction": written(predicted[0][0]) if predicted else None,
            "probability": predicted[0][1] if predicted else None,
            "target": None,
            "gap": max((float(scores.info["gap"]) for scores in maps.values()), default=None),
            **dict(zip(self.plan.columns, one.columns, strict=True)),
            **_spans(code),
        }
        for written_as in self.requests:
            row |= self._scores(written_as, reads[written_as], row["target"])
        row |= {RATIO + one: maps[one].info["mixing_ratio"].float().mean(-1).tolist() for one in self.ratios}
        if self.plan.maps is not None:
            number_type = getattr(torch, self.plan.maps)
            row["maps"] = {one: scores.scores.to("cpu", number_type).numpy() for one, scores in maps.items()}
        row["seconds"] = shared + time.perf_counter() - started
        return row

    def _scores(self, written_as: str, read: Read, target: str | None) -> Row:
        """One method's scores, and the target that it explained."""
        if isinstance(read, MixlensError):
            raise read
        if self.requests[written_as].is_map:
            return {written_as: read.scores.numpy()}
        return {written_as: read.scores.numpy(), "target": read.info["target"] or target}


def _spans(code: Encoded) -> Row:
    """Where each token begins and ends in its text, and which text that is."""
    if code.offsets is None or code.sequences is None:
        return {}
    starts, ends = ([span[side] for span in code.offsets] for side in (0, 1))
    return {"starts": starts, "ends": ends, "segments": [-1 if text is None else text for text in code.sequences]}


def _put(reads: Sequence[dict[str, Any]], method: str, answers: Mapping[int, Any], reasons: Sequence[Any]) -> None:
    """A method's answer for every row, or the reason why there is none."""
    for i, read in enumerate(reads):
        read[method] = answers[i] if i in answers else reasons[i]


def _rolled_rows(maps: Sequence[Map], places: Sequence[Any], convention: str | None) -> Sequence[Read]:
    """Together; where one of them is refused, each by itself."""
    try:
        return rolled_rows(maps, places, convention=convention) if maps else []
    except MixlensError:
        return [_rolled_row(scores, place, convention) for scores, place in zip(maps, places, strict=True)]


def _rolled_row(scores: Map, place: int, convention: str | None) -> Read:
    try:
        return rolled_row(scores, place, convention=convention)
    except MixlensError as error:
        return error


def _memory_error(code: Encoded) -> InputError:
    return InputError(f"memory runs out with {len(code.input_ids)} tokens")


def _bad_row(one: Given | RowError, error: Exception) -> BadRow:
    reason = (written(str(error)) or type(error).__name__)[:LONGEST_REASON]
    return BadRow(one.number, None, reason) if isinstance(one, RowError) else BadRow(one.row, one.id, reason)
