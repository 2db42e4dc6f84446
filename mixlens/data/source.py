"""A file that stays what it was: read once to know it, then only as long as its bytes are the same."""

from __future__ import annotations

import hashlib
import io
import threading
from pathlib import Path
from typing import Any, BinaryIO

from ..base.errors import InputError

PIECE = 1 << 20  # bytes that are known, and compared, as one


class Source:
    """The bytes of a file as they were when it was opened. `reader` gives them again, and refuses where they changed.

    The file stays open: another file that is moved to its name later is not read. Memory: 32 bytes for each PIECE.
    """

    def __init__(self, place: Path):
        self.place = place
        self._file = place.open("rb")
        self._one_at_a_time = threading.Lock()  # Parquet is read by several threads
        whole, self.size, self.lines = hashlib.sha256(), 0, 0
        self._pieces: list[bytes] = []
        while piece := self._file.read(PIECE):
            whole.update(piece)
            self._pieces.append(hashlib.sha256(piece).digest())
            self.size += len(piece)
            self.lines += piece.count(b"\n")
        self.sha256 = whole.hexdigest()

    def piece(self, number: int) -> bytes:
        """The bytes of one piece, which are those that were read at first."""
        try:
            with self._one_at_a_time:
                self._file.seek(number * PIECE)
                found = self._file.read(PIECE)
        except OSError as error:
            raise InputError(f"{str(self.place)!r} cannot be read: {error.strerror or error}.") from error
        same = hashlib.sha256(found).digest() == self._pieces[number] if number < len(self._pieces) else not found
        if not same:
            raise InputError(
                f"{str(self.place)!r} changed while it was read. Nothing was made of what is new in it: put the file "
                f"back as it "
                "was and give the same command to go on, or give another folder for the file as it is now."
            )
        return found

    def unchanged(self) -> None:
        """Refuse where any byte of the file changed, or there are fewer or more of them."""
        for number in range(self.size // PIECE + 1):
            self.piece(number)

    def reader(self) -> BinaryIO:
        """The file from its beginning, as `open(place, "rb")` gives it."""
        return io.BufferedReader(_Pieces(self), PIECE)

    def close(self) -> None:
        self._file.close()


class _Pieces(io.RawIOBase):
    """A Source as a file that can be read and sought in."""

    def __init__(self, source: Source):
        self.source, self.at = source, 0
        self.number, self.held = -1, b""  # the last piece that was read

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.at = max(0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.source.size}[whence])
        return self.at

    def readinto(self, room: Any) -> int:
        number, inside = divmod(self.at, PIECE)
        if number != self.number:
            if number > self.source.size // PIECE:
                return 0
            self.number, self.held = number, self.source.piece(number)
        some = self.held[inside : inside + len(room)]
        room[: len(some)] = some
        self.at += len(some)
        return len(some)
