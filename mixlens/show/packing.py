"""Numbers as text for a page: rows in 32 or 16 bits, or the largest of each row, deflated, in base64. The page says how
exact."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.errors import InputError

Block = dict[str, Any]
SAMPLE = 16  # of large maps, one row in so many is encoded to see how much room all of them would take
SMALL = 20_000  # numbers of maps that are tried without a sample: it would say nothing, and trying is cheap
LEAST = {"float32": 2.0, "float16": 0.1}  # characters that a number takes, at the very least


@dataclass(frozen=True)
class Precision:
    """How rows are held: in `float32`; in `float16`, as shares of the row's largest; or `top`, the `keep` largest of
    each row.

    Unless they are exact, each row comes with the sum of what it does not hold: numbers that are left out, and what
    rounding took from the others."""

    kind: str
    keep: int = 0

    def description(self) -> str:
        """What the page says it holds."""
        if self.kind == "float32":
            return "every number, in 32 bits (7 digits)"
        if self.kind == "top":
            return f"the {self.keep} largest numbers of each row, in 16 bits (3 digits), and the sum of the rest"
        return "every number, in 16 bits (3 digits)"


EXACT, HALF = Precision("float32"), Precision("float16")


def encode(scores: np.ndarray, precision: Precision) -> Block:
    """Rows [row column] as a block of a page. Bytes of one significance stand together: they deflate better so."""
    rows, columns = scores.shape
    with np.errstate(over="ignore"):
        if not np.isfinite(scores.astype("<f4", copy=False)).all():
            raise InputError("a score is not finite (or too large for 32 bits), so it cannot be shown.")
    block: Block = {
        "coding": precision.kind,
        "rows": rows,
        "columns": columns,
        "signed": bool((scores < 0).any()),
    }
    parts = [scores.astype("<f4", copy=False)]
    if precision.kind != "float32":
        kept, steps = scores, []
        if precision.kind == "top":
            block["keep"] = keep = min(precision.keep, columns)
            keys = np.sort(np.argpartition(-np.abs(scores), keep - 1, axis=1)[:, :keep], axis=1)
            kept = np.take_along_axis(scores, keys, 1)
            steps = [
                np.diff(keys, axis=1, prepend=0).astype("<u2")
            ]  # from one key to the next: small numbers deflate well
        scale = np.abs(scores).max(1, keepdims=True).astype("<f4")
        held = (kept / np.where(scale > 0, scale, 1)).astype("<f2")
        rest = scores.sum(1, dtype=np.float64) - (held * scale.astype(np.float64)).sum(1)
        parts = [scale, rest.astype("<f4"), *steps, held]
    packed = b"".join(
        part.reshape(-1).view("u1").reshape(part.size, part.itemsize).T.tobytes()
        for part in map(np.ascontiguousarray, parts)
    )
    deflated = zlib.compress(
        packed, 9 if len(packed) < 4_000_000 else 6
    )  # many bytes less thoroughly, which is quicker
    return {**block, "data": base64.b64encode(deflated).decode()}


def decode(block: Mapping[str, Any]) -> np.ndarray:
    """The rows of a block, [row column]. What is not held of a row is 0."""
    packed, rows, keep = (
        zlib.decompress(base64.b64decode(block["data"])),
        block["rows"],
        block.get("keep", block["columns"]),
    )
    place = 0

    def take(kind: str, columns: int) -> np.ndarray:
        nonlocal place
        size, count = np.dtype(kind).itemsize, rows * columns
        planes = np.frombuffer(packed, "u1", count * size, place).reshape(size, count)
        place += count * size
        return np.ascontiguousarray(planes.T).reshape(-1).view(kind).reshape(rows, columns)

    if block["coding"] == "float32":
        return take("<f4", keep)
    scale, _ = take("<f4", 1), take("<f4", 1)
    if block["coding"] == "float16":
        return take("<f2", keep) * scale.astype(np.float64)
    whole, keys = np.zeros((rows, block["columns"])), np.cumsum(take("<u2", keep), axis=1, dtype=np.int64)
    np.put_along_axis(whole, keys, take("<f2", keep) * scale.astype(np.float64), 1)
    return whole


# --- the precision that fits ------------------------------------------------------------------------------------------


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
    tokens = max((sheet.shape[1] for sheet in sheets), default=0)
    raise InputError(
        f"{len(sheets)} maps of {tokens} tokens do not fit into {room / 1e6:.1f} MB, even with one number of each row. "
        "Allow more megabytes, or take fewer methods."
    )


def _candidates(sheets: Sequence[np.ndarray], room: int) -> Iterator[Precision]:
    """From fine to coarse; what surely does not fit, by a sample of the rows, is left out."""
    numbers = sum(sheet.size for sheet in sheets)

    def size(precision: Precision) -> float:
        return SAMPLE * sum(len(encode(sheet[::SAMPLE], precision)["data"]) for sheet in sheets)

    for precision in (EXACT, HALF):
        likely = numbers <= SMALL or (numbers * LEAST[precision.kind] <= room and size(precision) <= 1.05 * room)
        if likely:
            yield precision
    columns = max((sheet.shape[1] for sheet in sheets), default=1)
    keep = max(1, columns // 8)
    for _ in range(3):  # how many of the largest numbers of each row fill the room
        keep = max(1, min(columns // 2, int(keep * room / max(1.0, size(Precision("top", keep))))))
    while keep > 1:
        yield Precision("top", keep)
        keep = min(keep - 1, keep * 19 // 20)
    yield Precision("top", 1)
