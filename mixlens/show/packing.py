"""Numbers as text for a page: rows quantised, deflated, in base64. As exact as the room allows, and what is held is said."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InputError

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

    def told(self, *, signed: bool = False) -> str:
        """What the page says it holds."""
        if self.kind == "float32":
            return "every number, in 32 bits (7 digits)"
        levels = 2 * LEVELS["bits8" if self.kind == "top" else self.kind, signed]
        if self.kind == "top":
            return f"the {self.keep} largest numbers of each row, to 1/{levels} of the row's largest, and the sum of the rest"
        return f"every number, to 1/{levels:,} of its row's largest"


EXACT = Precision("float32")


def encode(scores: np.ndarray, precision: Precision) -> Block:
    """Rows [row column] as a block of a page. Bytes of one significance stand together: they deflate better so."""
    rows, columns = scores.shape
    signed = bool((scores < 0).any())
    block: Block = {"coding": precision.kind, "rows": rows, "columns": columns, "signed": signed}
    with np.errstate(over="ignore"):
        fits = bool(np.isfinite(scores).all()) and bool(np.isfinite(scores.astype("<f4", copy=False)).all())
    if not fits:
        raise InputError("a score is not finite (or too large for 32 bits), so it cannot be shown.")
    if precision.kind == "float32":
        parts: list[np.ndarray] = [scores.astype("<f4", copy=False)]
    elif precision.kind == "top":
        keys, kept, rest = _largest(scores, precision.keep)
        scale, values = _quantised(kept, "bits8", signed)
        steps = np.diff(keys, axis=1, prepend=0).astype("<u2")  # from one key to the next: small numbers deflate well
        parts = [scale, rest.astype("<f4"), steps, values]
        block["keep"] = keys.shape[1]
    else:
        scale, values = _quantised(scores, precision.kind, signed)
        held = values.sum(1, dtype=np.float64) * (scale / np.float64(LEVELS[precision.kind, signed]))
        parts = [scale, values, (scores.sum(1, dtype=np.float64) - held).astype("<f4")]  # what rounding took from each row
    packed = b"".join(_planes(part) for part in parts)
    return {**block, "data": base64.b64encode(zlib.compress(packed, 9 if len(packed) < 4_000_000 else 6)).decode()}


def decode(block: Mapping[str, Any]) -> np.ndarray:
    """The rows of a block, [row column]. What is not held of a row is 0."""
    packed, rows, columns = zlib.decompress(base64.b64decode(block["data"])), block["rows"], block["columns"]
    place = 0

    def take(kind: str, *shape: int) -> np.ndarray:
        nonlocal place
        size = np.dtype(kind).itemsize
        count = int(np.prod(shape))
        planes = np.frombuffer(packed, "u1", count * size, place).reshape(size, count)
        place += count * size
        return np.ascontiguousarray(planes.T).reshape(-1).view(kind).reshape(shape)

    if block["coding"] == "float32":
        return take("<f4", rows, columns)
    kind = "bits8" if block["coding"] == "top" else block["coding"]
    step = take("<f4", rows, 1) / np.float64(LEVELS[kind, block["signed"]])
    if block["coding"] != "top":
        return take(TYPES[kind, block["signed"]], rows, columns) * step  # after it come the sums of what rounding took
    whole = np.zeros((rows, columns))
    take("<f4", rows, 1)  # the sums of the rest
    keys = np.cumsum(take("<u2", rows, block["keep"]), axis=1, dtype=np.int64)
    np.put_along_axis(whole, keys, take(TYPES[kind, block["signed"]], rows, block["keep"]) * step, 1)
    return whole


def fit(sheets: Sequence[np.ndarray], room: int) -> tuple[Precision, list[Block]]:
    """Blocks of all sheets in the finest precision that takes at most `room` characters."""
    for precision in _candidates(sheets, room):
        blocks: list[Block] = []
        left = room
        for sheet in sheets:
            blocks.append(encode(sheet, precision))
            left -= len(blocks[-1]["data"])
            if left < 0:
                break
        else:
            return precision, blocks
    n = max((sheet.shape[1] for sheet in sheets), default=0)
    raise InputError(
        f"{len(sheets)} maps of {n} tokens do not fit into {room / 1e6:.1f} MB, even with one number of each row. "
        "Allow more megabytes, or take fewer methods."
    )


SAMPLE = 16  # of large maps, one row in so many is encoded to see how much room all of them would take


def _candidates(sheets: Sequence[np.ndarray], room: int) -> Iterator[Precision]:
    """From fine to coarse; what surely does not fit is left out."""
    few = [sheet[::SAMPLE] for sheet in sheets]

    def size(precision: Precision) -> float:
        return SAMPLE * sum(len(encode(sheet, precision)["data"]) for sheet in few)

    numbers, columns = sum(sheet.size for sheet in sheets), max((sheet.shape[1] for sheet in sheets), default=1)
    small = numbers <= 20_000  # a sample would say nothing, and trying is cheap
    for kind, least in (("float32", 2.0), ("bits16", 0.3), ("bits8", 0.02)):  # characters a number, at the very least
        if small or (numbers * least <= room and size(Precision(kind)) <= 1.05 * room):
            yield Precision(kind)
    keep = max(1, columns // 8)
    for _ in range(3):  # towards what fills the room
        keep = max(1, min(columns // 2, int(keep * room / max(1.0, size(Precision("top", keep))))))
    while keep > 1:
        yield Precision("top", keep)
        keep = min(keep - 1, keep * 19 // 20)
    yield Precision("top", 1)


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
    kept = np.take_along_axis(scores, keys, 1)
    rest = scores.sum(1, dtype=np.float64) - kept.sum(1, dtype=np.float64)
    return keys, kept, np.where(keep == scores.shape[1], 0.0, rest)


def _planes(numbers: np.ndarray) -> bytes:
    flat = np.ascontiguousarray(numbers).reshape(-1)
    return flat.view("u1").reshape(flat.size, flat.itemsize).T.tobytes()
