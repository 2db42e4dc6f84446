"""Connections that do not wait for ever for a request, and no more of them than a server can hold."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from .jobs import Limits


class Prompt(H11Protocol):
    """A connection that is closed if it has sent no whole head of a request after `limits.arrival` seconds. Where there are
    more than `limits.connections`, the one that has waited longest for a request is closed."""

    limits = Limits()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._start_waiting()
        if len(self._prompt_connections()) > self.limits.connections:
            self._longest_waiting().transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.deadline.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.waits():
            self.deadline.cancel()
        elif self.deadline.cancelled():  # the first bytes of the next request on the same connection
            self._start_waiting()

    def waits(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def late(self) -> None:
        """Closes the connection at its deadline."""
        if self.waits() and not self.transport.is_closing():
            self.transport.close()

    def _start_waiting(self) -> None:
        self.since, self.deadline = self.loop.time(), self.loop.call_later(self.limits.arrival, self.late)

    def _prompt_connections(self) -> list[Prompt]:
        """All connections of the server."""
        return [connection for connection in self.connections if isinstance(connection, Prompt)]

    def _longest_waiting(self) -> Prompt:
        """The connection that has waited longest for a request; this one where none waits."""
        waiting = [connection for connection in self._prompt_connections() if connection.waits()]
        return min(waiting, key=lambda connection: connection.since, default=self)


def prompt(limits: Limits) -> type[Prompt]:
    """The connections of a server with these limits."""
    return type("Prompt", (Prompt,), {"limits": limits})
