"""Numbers as text for a page: rows quantised, deflated, in base64, as exact as the room allows. The page says how exact."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.errors import InputError

LEVELS = {("bits16", False): 65535, ("bits16", True): 32767, ("bits8", False): 255, ("bits8", True): 127}
TYPES = {("bits16", False): "<u2", ("bits16", True): "<i2", ("bits8", False): "<u1", ("bits8", True): "<i1"}
Block = dict[str, Any]


@dataclass(frozen=True)
class Precision:
    """How the rows of a map are held: `float32`, `bits16`, `bits8`, or `top`, the `keep` largest of a row in 8 bits.

    Unless they are exact, each row comes with the sum of what it does not hold: numbers that are left out or round to 0, and
    what rounding took from the others."""

    kind: str
    keep: int = 0

    @property
    def step_kind(self) -> str:
        """The kind of the whole steps that numbers are rounded to."""
        return "bits8" if self.kind == "top" else self.kind

    def description(self, *, signed: bool = False) -> str:
        """What the page says it holds."""
        if self.kind == "float32":
            return "every number, in 32 bits (7 digits)"
        levels = 2 * LEVELS[self.step_kind, signed]
        if self.kind == "top":
            return f"the {self.keep} largest numbers of each row, to 1/{levels} of the row's largest, and the sum of the rest"
        return f"every number, to 1/{levels:,} of its row's largest"


EXACT = Precision("float32")


# --- encoding ---------------------------------------------------------------------------------------------------------


def encode(scores: np.ndarray, precision: Precision) -> Block:
    """Rows [row column] as a block of a page. Bytes of one significance stand together: they deflate better so."""
    rows, columns = scores.shape
    signed = bool((scores < 0).any())
    _refuse_infinite(scores)
    facts, parts = CODINGS[precision.kind](scores, precision, signed)
    block: Block = {"coding": precision.kind, "rows": rows, "columns": columns, "signed": signed, **facts}
    return {**block, "data": _deflated(b"".join(map(_planes, parts)))}


def _refuse_infinite(scores: np.ndarray) -> None:
    with np.errstate(over="ignore"):
        fits = bool(np.isfinite(scores).all()) and bool(np.isfinite(scores.astype("<f4", copy=False)).all())
    if not fits:
        raise InputError("a score is not finite (or too large for 32 bits), so it cannot be shown.")


def _deflated(packed: bytes) -> str:
    """Bytes deflated, in base64. Many bytes are deflated less thoroughly, which is quicker."""
    return base64.b64encode(zlib.compress(packed, 9 if len(packed) < 4_000_000 else 6)).decode()


Parts = tuple[dict[str, int], list[np.ndarray]]  # facts for the block, and arrays for its bytes


def _exact_parts(scores: np.ndarray, precision: Precision, signed: bool) -> Parts:
    return {}, [scores.astype("<f4", copy=False)]


def _rounded_parts(scores: np.ndarray, precision: Precision, signed: bool) -> Parts:
    """The largest magnitude of each row, its numbers as steps of it, and the sum that rounding took from the row."""
    scale, values = _quantised(scores, precision.kind, signed)
    sums = values.sum(1, dtype=np.float64) * (scale / np.float64(LEVELS[precision.kind, signed]))
    return {}, [scale, values, (scores.sum(1, dtype=np.float64) - sums).astype("<f4")]


def _top_parts(scores: np.ndarray, precision: Precision, signed: bool) -> Parts:
    """Of the largest numbers of each row: their largest magnitude, the sum of the rest, their places and their steps."""
    keys, largest, rest = _largest(scores, precision.keep)
    scale, values = _quantised(largest, "bits8", signed)
    steps = np.diff(keys, axis=1, prepend=0).astype("<u2")  # from one key to the next: small numbers deflate well
    return {"keep": keys.shape[1]}, [scale, rest.astype("<f4"), steps, values]


CODINGS = {"float32": _exact_parts, "bits16": _rounded_parts, "bits8": _rounded_parts, "top": _top_parts}


# --- decoding ---------------------------------------------------------------------------------------------------------


class _Reader:
    """Reads arrays from the bytes of a block, one after the other."""

    def __init__(self, packed: bytes):
        self.packed, self.place = packed, 0

    def take(self, kind: str, *shape: int) -> np.ndarray:
        """The next array of this type and shape."""
        size, count = np.dtype(kind).itemsize, int(np.prod(shape))
        planes = np.frombuffer(self.packed, "u1", count * size, self.place).reshape(size, count)
        self.place += count * size
        return np.ascontiguousarray(planes.T).reshape(-1).view(kind).reshape(shape)


def decode(block: Mapping[str, Any]) -> np.ndarray:
    """The rows of a block, [row column]. What is not held of a row is 0."""
    reader = _Reader(zlib.decompress(base64.b64decode(block["data"])))
    if block["coding"] == "float32":
        return reader.take("<f4", block["rows"], block["columns"])
    kind = Precision(block["coding"]).step_kind, block["signed"]
    step = reader.take("<f4", block["rows"], 1) / np.float64(LEVELS[kind])
    if block["coding"] == "top":
        return _top_rows(block, reader, TYPES[kind], step)
    return (
        reader.take(TYPES[kind], block["rows"], block["columns"]) * step
    )  # after it come the sums of what rounding took


def _top_rows(block: Mapping[str, Any], reader: _Reader, kind: str, step: np.ndarray) -> np.ndarray:
    """Rows that hold their largest numbers alone."""
    rows, keep = block["rows"], block["keep"]
    whole = np.zeros((rows, block["columns"]))
    reader.take("<f4", rows, 1)  # the sums of the rest
    keys = np.cumsum(reader.take("<u2", rows, keep), axis=1, dtype=np.int64)
    np.put_along_axis(whole, keys, reader.take(kind, rows, keep) * step, 1)
    return whole


# --- the precision that fits ------------------------------------------------------------------------------------------

SAMPLE = 16  # of large maps, one row in so many is encoded to see how much room all of them would take
SMALL = 20_000  # numbers of maps that are tried without a sample: it would say nothing, and trying is cheap
LEAST = {"float32": 2.0, "bits16": 0.3, "bits8": 0.02}  # characters that a number takes, at the very least


def fit(sheets: Sequence[np.ndarray], room: int) -> tuple[Precision, list[Block]]:
    """Blocks of all sheets in the finest precision that takes at most `room` characters."""
    for precision in _candidates(sheets, room):
        blocks = _blocks_within(sheets, precision, room)
        if blocks is not None:
            return precision, blocks
    raise InputError(
        f"{len(sheets)} maps of {_widest(sheets)} tokens do not fit into {room / 1e6:.1f} MB, even with one number of each row. "
        "Allow more megabytes, or take fewer methods."
    )


def _blocks_within(sheets: Sequence[np.ndarray], precision: Precision, room: int) -> list[Block] | None:
    """The blocks of all sheets; None as soon as they take more than the room."""
    blocks: list[Block] = []
    for sheet in sheets:
        blocks.append(encode(sheet, precision))
        room -= len(blocks[-1]["data"])
        if room < 0:
            return None
    return blocks


def _widest(sheets: Sequence[np.ndarray], default: int = 0) -> int:
    """The number of columns of the widest sheet."""
    return max((sheet.shape[1] for sheet in sheets), default=default)


def _candidates(sheets: Sequence[np.ndarray], room: int) -> Iterator[Precision]:
    """From fine to coarse; what surely does not fit is left out."""
    yield from (Precision(kind) for kind in LEAST if _may_fit(sheets, kind, room))
    keep = _keep_for(sheets, room)
    while keep > 1:
        yield Precision("top", keep)
        keep = min(keep - 1, keep * 19 // 20)
    yield Precision("top", 1)


def _may_fit(sheets: Sequence[np.ndarray], kind: str, room: int) -> bool:
    """Whether all numbers may fit in this kind, by a sample of the rows."""
    numbers = sum(sheet.size for sheet in sheets)
    if numbers <= SMALL:
        return True
    return numbers * LEAST[kind] <= room and _estimated_size(sheets, Precision(kind)) <= 1.05 * room


def _estimated_size(sheets: Sequence[np.ndarray], precision: Precision) -> float:
    """The characters that all sheets take, by a sample of their rows."""
    return SAMPLE * sum(len(encode(sheet[::SAMPLE], precision)["data"]) for sheet in sheets)


def _keep_for(sheets: Sequence[np.ndarray], room: int) -> int:
    """How many of the largest numbers of each row fill the room, found in three steps."""
    columns = _widest(sheets, 1)
    keep = max(1, columns // 8)
    for _ in range(3):
        size = max(1.0, _estimated_size(sheets, Precision("top", keep)))
        keep = max(1, min(columns // 2, int(keep * room / size)))
    return keep


# --- arrays -----------------------------------------------------------------------------------------------------------


def _quantised(scores: np.ndarray, kind: str, signed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Each row's largest magnitude [row], and its numbers as whole steps of that over the number of levels."""
    levels, scale = LEVELS[kind, signed], np.abs(scores).max(1, keepdims=True).astype("<f4")
    safe = np.where(scale > 0, scale, 1).astype(scores.dtype)
    steps = np.rint(scores / safe * levels)
    return scale[:, 0], np.clip(steps, -levels if signed else 0, levels).astype(TYPES[kind, signed])


def _largest(scores: np.ndarray, keep: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keys [row keep] in the order of the text, their scores, and the sum of the other scores of each row [row]."""
    keep = min(keep, scores.shape[1])
    keys = np.argpartition(-np.abs(scores), keep - 1, axis=1)[:, :keep]
    keys = np.sort(keys, axis=1)
    largest = np.take_along_axis(scores, keys, 1)
    rest = scores.sum(1, dtype=np.float64) - largest.sum(1, dtype=np.float64)
    return keys, largest, np.where(keep == scores.shape[1], 0.0, rest)


def _planes(numbers: np.ndarray) -> bytes:
    flat = np.ascontiguousarray(numbers).reshape(-1)
    return flat.view("u1").reshape(flat.size, flat.itemsize).T.tobytes()
