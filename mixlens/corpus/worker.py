"""One shard's work: rows in, the bytes of its files out. The same rows give the same bytes, but for the seconds."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from typing import Any

import torch

from ..aggregate import find, rolled_row, rolled_rows
from ..attributions import attribute_each
from ..budget import is_out_of_memory
from ..data import RowError
from ..errors import InputError, MixlensError
from ..experiments.experiment import Asked, asked, map_of
from ..files import optional
from ..maps import Call, Scorer, fresh, mix
from ..model.encode import Encoded
from ..model.model import Model
from ..model.predict import predictions
from ..targets import _id
from ..types import Attribution, Map, Prediction, Trace
from .rows import Given, fingerprint, written
from .shards import SCHEMA, file_name

OWN = (  # columns of ours; a carried column may not have the name of one
    *("row", "id", "text", "pair", "input_ids", "tokens", "starts", "ends", "segments", "query"),
    *("prediction", "probability", "target", "gap", "seconds"),
)
RATIO = "mixing_ratio:"  # then the method
DTYPES = ("float32", "float16")
LONGEST_REASON = 400  # characters


@dataclass(frozen=True)
class Plan:
    """What is asked of every row."""

    methods: tuple[str, ...]
    target: Any = "predicted"
    foil: str | int | None = None
    score: str | None = None
    query: int | str | None = None
    maps: str | None = None  # the number type maps are kept in
    batch_tokens: int | None = None
    columns: tuple[str, ...] = ()
    kinds: tuple[tuple[str, str], ...] = ()  # (column, type) of carried columns that are no text


@dataclass(frozen=True)
class Bad:
    """A row that could not be explained, and why."""

    row: int
    id: str | None
    reason: str


@dataclass(frozen=True)
class Made:
    """The files of one shard, ready to be written."""

    number: int
    content: bytes = field(repr=False)
    name: str
    maps: bytes | None = field(repr=False)
    maps_name: str | None
    rows: int
    bad: tuple[Bad, ...]


Row = dict[str, Any]


class Worker:
    """A model and a plan. `window` does the work; nothing is remembered between two calls."""

    def __init__(self, model: Model, plan: Plan):
        self.model, self.plan = model, plan
        self.asked: dict[str, Asked] = {one: asked(one) for one in plan.methods}
        self.chosen = {one: used for one, used in self.asked.items() if used.is_map}
        groups: dict[str, list[str]] = {}
        for one, used in self.chosen.items():
            if used.name != "random":  # its noise is to differ from text to text
                groups.setdefault(json.dumps([used.variant, used.options], sort_keys=True, default=str), []).append(one)
        self.groups = list(groups.values())
        # A pass that keeps nothing serves maps alone, and those that look at one layer at a time.
        self.streams = len(self.chosen) == len(self.asked) and all(
            not call.query and not any(used.whole for used, _ in call.chosen.values()) for call in map(self._call, self.groups)
        )
        self.streams = self.streams and all(used.name != "random" for used in self.chosen.values())

    def refuse(self) -> None:
        """What no row could pass."""
        model, plan = self.model, self.plan
        specific = [one for one, used in self.asked.items() if used.class_specific]
        given = plan.target != "predicted" or plan.foil is not None or plan.score is not None
        if given and not specific:
            raise InputError("target, foil and score are for methods that explain a class or a word, and none of these does.")
        if specific and model.task == "base":
            raise InputError(f"{model.name!r} was loaded without a head, so {specific[0]!r} has no prediction to explain.")
        if specific and model.task != "question-answering":
            count = model.hf_model.config.num_labels if "classification" in model.task else model.hf_model.config.vocab_size
            for role, value in (("target", plan.target), ("foil", plan.foil)):
                if value not in (None, "predicted", "gold"):
                    _id(_Only(model), value, count, role)  # type: ignore[arg-type]

    def _call(self, group: Sequence[str]) -> Call:
        used = self.asked[group[0]]
        return Call([self.asked[one].name for one in group], used.variant, None, "float32", used.options)

    # - one shard

    def window(self, number: int, rows: Sequence[Given | RowError], run: str, tick: Callable[[int], None] | None = None) -> Made:
        bad: list[Bad] = []
        given: list[Given] = []
        encoded: list[Encoded] = []
        for one in rows:
            try:
                if isinstance(one, RowError):
                    raise InputError(one.reason)
                encoded.append(self._encode(one))
                given.append(one)
            except MixlensError as error:
                bad.append(_bad(one, error))
            except MemoryError:
                bad.append(_bad(one, InputError("memory runs out while the text is cut into tokens.")))
        if tick is not None:
            tick(len(bad))
        found: dict[int, Row] = {}
        for batch in self.model.batches(encoded, None, self.plan.batch_tokens):
            for i, made in zip(batch, self._batch([given[i] for i in batch], [encoded[i] for i in batch]), strict=True):
                if isinstance(made, MixlensError):
                    bad.append(_bad(given[i], made))
                else:
                    found[i] = made
            if tick is not None:
                tick(len(batch))
        ordered = [found[i] for i in sorted(found)]
        bad.sort(key=lambda one: one.row)
        maps = self._maps(number, ordered) if self.plan.maps is not None else None
        maps_name = None if maps is None else file_name(number, maps)
        told = {
            "schema": SCHEMA,
            "run": run,
            "number": number,
            "input": fingerprint(rows),
            "maps": maps_name,
            "errors": [vars(one) for one in bad],
        }
        content = _parquet(_table(ordered, self.schema(), told))
        return Made(number, content, file_name(number, content), maps, maps_name, len(ordered), tuple(bad))

    def _encode(self, one: Given) -> Encoded:
        text = (one.text, one.pair) if one.pair is not None else one.text
        found, _ = self.model.encode_all(text, one.input_ids, one.token_type_ids, one.attention_mask)  # type: ignore[arg-type]
        return found[0]

    # - one batch

    def _batch(self, given: Sequence[Given], encoded: Sequence[Encoded]) -> list[Row | MixlensError]:
        """A row or a reason for each. A batch that fails, or does not fit, is halved: the rest is not to suffer for one."""
        try:
            started = time.perf_counter()
            traces, maps = self._streamed(encoded) if self.streams else self._kept(encoded)
            reads = self._attributed(given, traces)
            predicted = predictions(traces, k=1)
            rolled = self._rolled(traces, maps)
            shared = (time.perf_counter() - started) / len(encoded)
        except (MixlensError, MemoryError, torch.OutOfMemoryError, RuntimeError) as error:
            if not isinstance(error, MixlensError | MemoryError) and not is_out_of_memory(error):
                raise
            if len(encoded) == 1:
                short = f"memory runs out with {len(encoded[0].input_ids)} tokens"
                return [error if isinstance(error, MixlensError) else InputError(short)]
            if self.model.device.type == "cuda":
                torch.cuda.empty_cache()
            half = len(encoded) // 2
            return self._batch(given[:half], encoded[:half]) + self._batch(given[half:], encoded[half:])
        rows: list[Row | MixlensError] = []
        for one, code, trace, own, read, said, over in zip(given, encoded, traces, maps, reads, predicted, rolled, strict=True):
            try:
                rows.append(self._row(one, code, trace, own, {**over, **read}, said, shared))
            except MixlensError as error:
                rows.append(error)
            except MemoryError:
                rows.append(InputError(f"memory runs out with {len(code.input_ids)} tokens"))
        return rows

    def _rolled(self, traces: Sequence[Trace], maps: Sequence[dict[str, Map]]) -> list[dict[str, Attribution | MixlensError]]:
        """The row of every rolled-out map at every trace's place, or why there is none."""
        places: list[int | MixlensError] = []
        for trace in traces:
            try:
                places.append(trace.query if self.plan.query is None else find(trace.tokens, self.plan.query))
            except MixlensError as error:
                places.append(error)
        reads: list[dict[str, Attribution | MixlensError]] = [{} for _ in traces]
        for written_as, used in self.chosen.items():
            there = [i for i, place in enumerate(places) if not isinstance(place, MixlensError)]
            some, wanted = [maps[i][written_as] for i in there], [places[i] for i in there]
            try:
                found: list[Any] = rolled_rows(some, wanted, convention=used.rollout) if there else []  # type: ignore[arg-type]
            except MixlensError:  # of one of them: each by itself
                found = [_tried(one, place, used.rollout) for one, place in zip(some, wanted, strict=True)]
            answers = dict(zip(there, found, strict=True))
            for i, own in enumerate(reads):
                own[written_as] = answers[i] if i in answers else places[i]  # type: ignore[assignment]
        return reads

    def _streamed(self, encoded: Sequence[Encoded]) -> tuple[list[Trace], list[dict[str, Map]]]:
        """Every layer scored by every method when it has run, then released."""

        def scored() -> tuple[list[Trace], list[dict[str, Map]]]:
            scorers = [Scorer(self._call(group), len(encoded), encoded[0].tokens, self.model) for group in self.groups]

            def each(index: int, layer: Any) -> None:
                for scorer in scorers:
                    scorer.score([layer], index)

            traces, _ = self.model.run_traced(encoded, each=each)
            return traces, self._by_method([scorer.maps(traces) for scorer in scorers], len(traces))

        return fresh(scored, self.model)

    def _kept(self, encoded: Sequence[Encoded]) -> tuple[list[Trace], list[dict[str, Map]]]:
        """The traced pass, kept until every method has had it."""
        traces, _ = self.model.run_traced(encoded)
        made = []
        for group in self.groups:
            used = self.asked[group[0]]
            made.append(mix(traces, [self.asked[one].name for one in group], variant=used.variant, **used.options))
        maps = self._by_method(made, len(traces))
        for one, used in self.chosen.items():
            if used.name == "random":
                for trace, own in zip(traces, maps, strict=True):
                    own[one] = map_of(trace, one)
        return traces, maps

    def _by_method(self, made: Sequence[Sequence[dict[str, Map]]], count: int) -> list[dict[str, Map]]:
        maps: list[dict[str, Map]] = [{} for _ in range(count)]
        for group, each in zip(self.groups, made, strict=True):
            for own, found in zip(maps, each, strict=True):
                own |= {one: found[self.asked[one].name] for one in group}
        return maps

    def _attributed(self, given: Sequence[Given], traces: Sequence[Trace]) -> list[dict[str, Attribution | MixlensError]]:
        """What every attribution method says of every row, or why it says nothing. Rows share their gradients."""
        reads: list[dict[str, Attribution | MixlensError]] = [{} for _ in given]
        for written_as, used in self.asked.items():
            if used.is_map:
                continue
            asked_of = [self._asked_of(used, one) for one in given]
            there = [i for i, asked in enumerate(asked_of) if not isinstance(asked, MixlensError)]
            some, wanted = [traces[i] for i in there], [asked_of[i] for i in there]
            found = attribute_each(some, used.name, wanted, variant=used.variant, tokens=self.plan.batch_tokens, **used.options)
            answers = dict(zip(there, found, strict=True))
            for i, own in enumerate(reads):
                own[written_as] = answers[i] if i in answers else asked_of[i]
        return reads

    # - one row

    def _row(
        self,
        one: Given,
        code: Encoded,
        trace: Trace,
        maps: dict[str, Map],
        reads: Mapping[str, Attribution | MixlensError],
        predicted: Prediction,
        shared: float,
    ) -> Row:
        started = time.perf_counter()
        plan = self.plan
        place = trace.query if plan.query is None else find(trace.tokens, plan.query)
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
            "gap": max((float(made.info["gap"]) for made in maps.values()), default=None),
            **dict(zip(plan.columns, one.columns, strict=True)),
        }
        if code.offsets is not None and code.sequences is not None:
            row["starts"], row["ends"] = ([span[side] for span in code.offsets] for side in (0, 1))
            row["segments"] = [-1 if sequence is None else sequence for sequence in code.sequences]
        for written_as, used in self.asked.items():
            read = reads[written_as]
            if isinstance(read, MixlensError):
                raise read
            if written_as in self.ratios:
                row[RATIO + written_as] = maps[written_as].info["mixing_ratio"].float().mean(-1).tolist()
            if not used.is_map:
                row["target"] = read.info["target"] or row["target"]
            row[written_as] = read.scores.numpy()
        if plan.maps is not None:
            row["maps"] = {
                written_as: made.scores.to("cpu", getattr(torch, plan.maps)).numpy() for written_as, made in maps.items()
            }
        row["seconds"] = shared + time.perf_counter() - started
        return row

    def _asked_of(self, used: Asked, one: Given) -> Any:
        """What `attribute` is asked of one row, or why it cannot be."""
        plan, given = self.plan, {"query": self.plan.query}
        if not used.class_specific:
            return given
        if plan.target == "gold":
            if one.target is None:
                return InputError("the row has no target and no label, so there is no gold target to explain.")
            foil = one.foil if plan.foil is None else plan.foil
            return {**given, "target": one.target, "foil": foil, "score": plan.score}
        return {**given, "target": plan.target, "foil": plan.foil, "score": plan.score}

    # - files

    @cached_property
    def ratios(self) -> list[str]:
        """The maps that hand out a mixing ratio: a pass over three tokens tells."""
        encoded = [self.model.encode_ids([1, 2, 3])]
        try:
            _, maps = self._streamed(encoded) if self.streams else self._kept(encoded)
        except MixlensError:
            return []
        return [one for one, made in maps[0].items() if "mixing_ratio" in made.info]

    def schema(self) -> Any:
        """The same in every shard."""
        pa = arrow()
        number = pa.float64() if self.model.dtype == torch.float64 else pa.float32()
        kinds = {
            "row": pa.int64(),
            "query": pa.int32(),
            "probability": pa.float64(),
            "gap": pa.float64(),
            "seconds": pa.float64(),
        }
        kinds |= {"input_ids": pa.list_(pa.int32()), "tokens": pa.list_(pa.string()), "segments": pa.list_(pa.int8())}
        kinds |= {"starts": pa.list_(pa.int32()), "ends": pa.list_(pa.int32())}
        kinds |= {name: pa.type_for_alias(kind) for name, kind in self.plan.kinds}
        fields = [(name, kinds.get(name, pa.string())) for name in (*OWN[:-1], *self.plan.columns)]
        fields += [(one, pa.list_(number)) for one in self.asked]
        fields += [(RATIO + one, pa.list_(pa.float32())) for one in self.ratios]
        return pa.schema([*fields, ("seconds", pa.float64())])

    def _maps(self, number: int, rows: Sequence[Row]) -> bytes:
        """One row per map: [layer query key] flattened. Bytes of one place stand together, so that they press well."""
        pa = arrow()
        kind = pa.list_(pa.float16() if self.plan.maps == "float16" else pa.float32())
        schema = pa.schema(
            [("row", pa.int64()), ("method", pa.string()), ("layers", pa.int32()), ("tokens", pa.int32()), ("scores", kind)]
        )
        found = [
            {"row": row["row"], "method": one, "layers": len(made), "tokens": made.shape[-1], "scores": made.reshape(-1)}
            for row in rows
            for one, made in row["maps"].items()
        ]
        table = _table(found, schema, {"schema": SCHEMA, "number": number})
        return _parquet(table, use_byte_stream_split=["scores.list.element"], use_dictionary=["method"])


def _tried(one: Map, place: Any, convention: str | None) -> Attribution | MixlensError:
    try:
        return rolled_row(one, place, convention=convention)
    except MixlensError as error:
        return error


@dataclass(frozen=True)
class _Only:
    """As much of a trace as a target's name needs."""

    model: Model


def arrow() -> Any:
    return optional("pyarrow", "pyarrow", "data", what="corpus runs")


def _table(rows: Sequence[Row], schema: Any, told: Any) -> Any:
    pa = arrow()
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.table(columns, schema=schema.with_metadata({"mixlens": json.dumps(told)}))


def _parquet(table: Any, **options: Any) -> bytes:
    content = BytesIO()
    parquet = optional("pyarrow.parquet", "pyarrow", "data", what="corpus runs")
    parquet.write_table(table, content, compression="zstd", **options)
    return content.getvalue()


def _bad(one: Given | RowError, error: Exception) -> Bad:
    reason = (written(str(error)) or type(error).__name__)[:LONGEST_REASON]
    return Bad(one.number, None, reason) if isinstance(one, RowError) else Bad(one.row, one.id, reason)
