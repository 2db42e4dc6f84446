"""One shard's work: rows in, the bytes of its files out. The same rows give the same bytes, but for the seconds."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import torch

from ...base.budget import is_out_of_memory
from ...base.errors import InputError, MixlensError, RowsError, TokenLimitError
from ...data import RowError
from ...data.fit import naming_option, truncated
from ...model.chat import refuse_no_template
from ...model.encode import Encoded
from ...model.model import Model
from ...model.predict import predictions, refuse_generation
from ...scoring.aggregate import find, rolled_rows
from ...scoring.asking import RANDOM, grouped, map_of, parse_methods
from ...scoring.attributions import attribute_each
from ...scoring.maps import Call, Scorer, fresh, method, mix
from ...types import Attribution, Chat, Example, Map, Trace
from .parquet import Row, maps_content, parquet_content, schema_of, table_of
from .plan import CUT, RATIO, Plan, refuse_target
from .row_words import input_columns
from .rows import InputRow, fingerprint, place_of, written
from .shards import SCHEMA, file_name
from .taken_out import refuse_trust, trust_columns
from .writing import written_rows

LONGEST_REASON = 400  # characters


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


class Worker:
    """A model and a plan. `window` does the work; nothing is remembered between two calls."""

    def __init__(self, model: Model, plan: Plan):
        self.model, self.plan = model, plan
        self.requests = parse_methods(plan.methods)
        self.maps = {name: request for name, request in self.requests.items() if request.is_map}
        self.random = [name for name, request in self.maps.items() if request.name == RANDOM]  # seeds differ by text
        specific = any(request.class_specific for request in self.requests.values())
        self.needs_target = plan.target == "gold" and specific  # of each row
        self.groups = grouped(self.requests)
        names = [] if plan.generate is not None else [name for group in self.groups for name in group]
        # in the order of the columns
        self.ratios = [name for name in names if "mixing_ratio" in method(self.requests[name].name).extras]

    @cached_property
    def streams(self) -> bool:
        """Whether a pass that keeps nothing is enough: for maps alone, which look at one layer at a time."""
        calls = map(self._call, self.groups)
        single = all(not call.query and not any(used.whole for used in call.methods.values()) for call in calls)
        return len(self.maps) == len(self.requests) and not self.random and single

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
        self, number: int, rows: Sequence[InputRow | RowError], run: str, tick: Callable[[int], object] = lambda _: None
    ) -> ShardFiles:
        """The files of the shard of this number. `tick` is called with the number of rows that are done."""
        texts: list[tuple[InputRow, Encoded]] = []
        bad: list[BadRow] = []
        for row in map(self.shorter, rows):
            try:
                if isinstance(row, RowError):
                    raise InputError(row.reason)
                code = self.encode(row)
                if self.plan.query is not None:
                    find(code.tokens, self.plan.query)
                if self.needs_target and row.target is None:
                    raise InputError("the row has no target and no label, so there is no gold target to explain.")
                texts.append((row, code))
            except TokenLimitError as error:  # of a text that was not to be cut, with the option that cuts it
                whole = getattr(row, "text", None) is not None and not self.plan.truncate
                bad.append(_bad_row(row, naming_option(error) if whole else error))
            except MixlensError as error:
                bad.append(_bad_row(row, error))
            except MemoryError:
                bad.append(_bad_row(row, InputError("memory runs out while the text is cut into tokens.")))
        tick(len(bad))
        answers = self._columns_by_text(texts, tick)
        in_order = [answers[i] for i in sorted(answers)]
        bad = sorted(bad + [answer for answer in in_order if isinstance(answer, BadRow)], key=lambda one: one.row)
        good = [answer for answer in in_order if not isinstance(answer, BadRow)]
        maps = None if self.plan.maps is None else maps_content(number, good, self.plan.maps)
        maps_name = None if maps is None else file_name(number, maps)
        source = fingerprint(rows)
        facts = {"schema": SCHEMA, "run": run, "number": number, "input": source, "maps": maps_name}
        facts["errors"] = list(map(vars, bad))
        content = parquet_content(table_of(good, self.schema(), facts))
        return ShardFiles(number, content, file_name(number, content), maps, maps_name, len(good), tuple(bad), source)

    def _columns_by_text(
        self, texts: Sequence[tuple[InputRow, Encoded]], tick: Callable[[int], object]
    ) -> dict[int, Any]:
        """The columns of each text, or a BadRow, by its number, in the order of the batches. No error is held beyond
        its batch: its traceback would hold the traces."""
        answers: dict[int, Row | BadRow] = {}
        for batch in self.model.batches([code for _, code in texts], None, self.plan.batch_tokens):
            rows, encoded = zip(*(texts[i] for i in batch), strict=True)
            made = zip(batch, rows, self._batch(rows, encoded, compare=not answers), strict=True)
            answers |= {i: _bad_row(row, one) if isinstance(one, MixlensError) else one for i, row, one in made}
            del made
            tick(len(batch))
        return answers

    def shorter(self, row: Any) -> Any:
        """The row, its text cut to what the model reads where the plan says so; tokens that it will write have room."""
        if self.plan.truncate and getattr(row, "text", None) is not None:
            with contextlib.suppress(MixlensError):  # what is wrong with the text is said where it is read
                room = self.plan.generate or 0
                limit = None if self.model.max_tokens is None else self.model.max_tokens - room
                cut = truncated(Example(str(row.text), row.pair), self.model, limit)
                if cut.info.get(CUT) is not None:
                    return replace(row, text=cut.text, pair=cut.pair, whole=cut.info[CUT])
        return row

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
        """A row or a reason for each. A batch that fails, or does not fit, is halved, so that one row costs no other.
        With `compare`, which is so for the first batch of a shard, its first and its last row must be what they are
        alone."""
        try:
            if self.plan.generate is not None:
                return written_rows(self.model, self.plan, self.requests, rows, encoded)
            return self._rows(rows, encoded, compare)
        except RowsError:  # the other batches, which are not compared, would be wrong too
            raise
        except (MixlensError, MemoryError, torch.OutOfMemoryError, RuntimeError) as error:
            if not isinstance(error, MixlensError | MemoryError) and not is_out_of_memory(error):
                raise
            if len(encoded) == 1:
                return [error if isinstance(error, MixlensError) else _memory_error(encoded[0])]
            if self.model.device.type == "cuda":
                torch.cuda.empty_cache()
            half = len(encoded) // 2
            return self._batch(rows[:half], encoded[:half]) + self._batch(rows[half:], encoded[half:])

    def _rows(self, rows: Sequence[InputRow], encoded: Sequence[Encoded], compare: bool) -> list[Row | MixlensError]:
        """The columns of each row, or the reason why it has none; its share of the seconds of the batch."""
        started = time.perf_counter()
        if self.streams:
            traces, maps = fresh(partial(self._stream, encoded, compare), self.model)
        else:
            traces, _ = self.model.run_traced(encoded, compare=compare)
            calls = [(self.requests[group[0]], group) for group in self.groups]
            of_groups = [
                mix(traces, [self.requests[n].name for n in group], variant=shared.variant, **shared.options)
                for shared, group in calls
            ]
            maps = self._by_method(of_groups, len(traces))
            for trace, of_trace in zip(traces, maps, strict=True):
                of_trace |= {name: map_of(trace, self.requests[name]) for name in self.random}
        query = self.plan.query
        scores: dict[str, Sequence[Attribution | MixlensError]] = {}
        places = [trace.query if query is None else find(trace.tokens, query) for trace in traces]
        for name, request in self.requests.items():
            if name in self.maps:
                scores[name] = rolled_rows([one[name] for one in maps], places, convention=request.rollout)
            else:  # rows share their gradients; each has its own target, and its own error where that is refused
                asked = [self._question(row) if request.class_specific else {"query": query} for row in rows]
                options = {"variant": request.variant, "tokens": self.plan.batch_tokens, **request.options}
                scores[name] = attribute_each(traces, request.name, asked, **options)
        predicted = predictions(traces, k=1)
        seconds = (time.perf_counter() - started) / len(encoded)
        made: list[Row | MixlensError] = []
        for i, (row, code) in enumerate(zip(rows, encoded, strict=True)):
            prediction, probability = predicted[i][0] if predicted[i] else (None, None)
            known = {"query": places[i], "prediction": written(prediction), "probability": probability, "target": None}
            of_row = {name: of_method[i] for name, of_method in scores.items()}
            try:
                made.append(self._row({**input_columns(row, code), **known}, row, traces[i], maps[i], of_row, seconds))
            except MixlensError as error:
                made.append(error)
            except MemoryError:
                made.append(_memory_error(code))
        return made

    def _stream(self, encoded: Sequence[Encoded], compare: bool) -> tuple[list[Trace], list[dict[str, Map]]]:
        """Every layer is scored by every method when it has run, then released."""
        scorers = [Scorer(self._call(group), len(encoded), encoded[0].tokens, self.model) for group in self.groups]

        def score(index: int, layer: Any) -> None:
            for scorer in scorers:
                scorer.score([layer], index)

        traces, _ = self.model.run_traced(encoded, each=score, compare=compare)
        return traces, self._by_method([scorer.maps(traces) for scorer in scorers], len(traces))

    def _by_method(self, of_groups: Sequence[Sequence[Any]], count: int) -> list[dict[str, Map]]:
        """For every trace its maps by the method as written."""
        maps: list[dict[str, Map]] = [{} for _ in range(count)]
        for group, of_traces in zip(self.groups, of_groups, strict=True):
            for of_trace, by_name in zip(maps, of_traces, strict=True):
                of_trace |= {name: by_name[self.requests[name].name] for name in group}
        return maps

    def _question(self, row: InputRow) -> dict[str, Any]:
        """What a method that explains a class or a word is asked of one row."""
        plan = self.plan
        foil = row.foil if plan.target == "gold" and plan.foil is None else plan.foil
        target = row.target if plan.target == "gold" else plan.target
        return {"query": plan.query, "target": target, "foil": foil, "score": plan.score}

    def _row(
        self,
        columns: Row,
        row: InputRow,
        trace: Trace,
        maps: Mapping[str, Map],
        scores: Mapping[str, Attribution | MixlensError],
        seconds: float,
    ) -> Row:
        started = time.perf_counter()
        columns["gap"] = max((float(one.info["gap"]) for one in maps.values()), default=None)
        columns |= zip(self.plan.columns, row.columns, strict=True)
        known: dict[str, Attribution] = {}
        for name, read in scores.items():
            if isinstance(read, MixlensError):
                raise read
            known[name] = read
            columns[name] = read.scores.numpy()
            if name not in self.maps:
                columns["target"] = read.info["target"] or columns["target"]
        for name in self.ratios:
            columns[RATIO + name] = maps[name].info["mixing_ratio"].float().mean(-1).tolist()
        if self.plan.trust:
            columns |= trust_columns(trace, columns, known)
        if self.plan.maps is not None:
            kind = getattr(torch, self.plan.maps)
            columns["maps"] = {name: one.scores.to("cpu", kind).numpy() for name, one in maps.items()}
        columns["seconds"] = seconds + time.perf_counter() - started
        return columns


def _memory_error(code: Encoded) -> InputError:
    return InputError(f"memory runs out with {len(code.input_ids)} tokens")


def _bad_row(row: InputRow | RowError, error: Exception) -> BadRow:
    return BadRow(place_of(row), row.id, (written(str(error)) or type(error).__name__)[:LONGEST_REASON])
