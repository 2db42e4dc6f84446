"""The whole server: the addresses of `routes` behind the `guard`, and running it until Ctrl-C."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from typing import Any

import uvicorn
from fastapi import FastAPI

from ..base.errors import InputError
from ..model.model import Model
from ..scoring.maps import versions
from .describe import about_model
from .guard import LOOPBACK, Guard
from .jobs import Desk, Limits
from .questions import example_question
from .routes import add_error_answers, add_routes
from .schemas import Refused

__all__ = ["Limits", "application", "run"]


def application(models: Sequence[Model], *, limits: Limits | None = None, allowed: Sequence[str] = ()) -> Any:
    """The whole application, guarded. Browsers may reach it by the names of this machine alone, and `allowed`."""
    limits = limits or Limits()
    desk = Desk(models, limits)
    app = FastAPI(
        title="mixlens",
        version=versions()["mixlens"],
        description="Which tokens flow into which: maps and attributions of a text, computed on this machine.",
        docs_url=None,  # the usual page fetches its script from elsewhere
        redoc_url=None,
        responses={422: {"model": Refused}},
    )
    app.state.desk = desk
    add_routes(app, desk)
    add_error_answers(app)
    return Guard(app, desk, limits, (*LOOPBACK, *allowed))


# --- running it -------------------------------------------------------------------------------------------------------


def settings(app: Any) -> uvicorn.Config:
    """How uvicorn serves the application: no more connections than a server can hold."""
    return uvicorn.Config(
        app,
        http="h11",
        limit_concurrency=app.limits.connections,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=3,
    )


def run(
    models: Sequence[Model], *, host: str, port: int, allowed: Sequence[str] = (), limits: Limits | None = None
) -> None:
    """Serve until Ctrl-C."""
    app = application(models, limits=limits, allowed=(*allowed, host))
    try:
        with _listening(host, port) as place, contextlib.suppress(KeyboardInterrupt):
            _announce(app, host, place.getsockname()[1])
            measure(app.desk)
            uvicorn.Server(settings(app)).run(sockets=[place])
    finally:
        app.desk.close()


def measure(desk: Desk) -> None:
    """Time every question on every model's example while nobody waits: the page says how long an answer takes here."""
    for name, model in desk.models.items():
        about = about_model(desk, model)
        for question in about["questions"] if about["example"] else ():
            tokens = desk.count(name, about["example"])
            desk.measure(name, example_question(model, about["example"], tokens), question["name"])


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens; an address or a port that cannot be had is refused."""
    try:
        socket.getaddrinfo(host, port)
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except socket.gaierror:
        raise InputError(
            f"{host!r} is no address of this machine. --host takes one, such as 127.0.0.1 or 0.0.0.0."
        ) from None
    except OSError as error:
        raise InputError(
            f"cannot listen on {host} port {port}: {error.strerror}. Choose another --port, or 0 for any."
        ) from None


def _announce(app: Any, host: str, port: int) -> None:
    """Says where the server is, and who can reach it."""
    address = f"[{host}]" if ":" in host else host
    print(f"mixlens serves {', '.join(app.desk.models)} on http://{address}:{port}/  (Ctrl-C stops it)", flush=True)
    if host not in LOOPBACK:
        print("It listens on more than this machine alone: whoever reaches it can use it.", flush=True)
