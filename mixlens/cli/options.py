"""The options that commands share, and how a command loads its model. `loads_a_model` gives a command all options of
loading."""

from __future__ import annotations

import functools
import inspect
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from logging import ERROR, getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from ..base.errors import InputError
from ..scoring import command_words
from . import completion, group

if TYPE_CHECKING:
    from ..model.model import Model

# --- the text, the method, the question -------------------------------------------------------------------------------

Text = Annotated[
    str | None,
    typer.Argument(
        help="The text to explain; - reads it from standard input. Write the model's own mask token where a word is "
        "to be "
        "predicted."
    ),
]
File = Annotated[Path | None, typer.Option("--file", help="Read the text from this file instead.")]
Pair = Annotated[str | None, typer.Option("--pair", help="A second text, for models that read two.")]
ModelName = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        help="A hub id, a folder, or an embedded model: agreement, sentiment.",
        autocompletion=completion.models,
    ),
]
Method = Annotated[
    str,
    typer.Option(
        "--method", help="See `mixlens methods`; options as name:option=value.", autocompletion=completion.methods
    ),
]
Variant = Annotated[str | None, typer.Option("--variant", help="paper or released, where they differ.")]
Query = Annotated[
    str | None,
    typer.Option("--query", help="The position to explain: a token or an index. By default where the model predicts."),
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        help="The class or word to explain; by default the predicted one. For a map: the position, as --query.",
    ),
]
AttributionTarget = Annotated[
    str | None,
    typer.Option("--target", help="The class or word that attributions explain; by default the predicted one."),
]
Foil = Annotated[str | None, typer.Option("--foil", help="Explain the target against this class or word.")]
Score = Annotated[str | None, typer.Option("--score", help="logit (default), probability or log_probability.")]
Truncate = Annotated[bool, typer.Option("--truncate", help="Cut a text that is longer than the model reads.")]

# --- the picture ------------------------------------------------------------------------------------------------------

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a picture.")]
Save = Annotated[
    Path | None, typer.Option("--save", help="Also save the result to this .safetensors, .json or .csv file.")
]
Words = Annotated[bool, typer.Option("--words", help="Join subwords to words.")]
NoSpecial = Annotated[
    bool,
    typer.Option(
        "--no-special", help="Leave special tokens out. Shares are made to sum to 1 again; other scores stay."
    ),
]
NoColor = Annotated[bool, typer.Option("--no-color", help="Numbers and bars only.")]
Top = Annotated[
    int | None,
    typer.Option(
        "--top", help="The largest scores only; 0 for all. By default all, or the largest 15 of a long text.", min=0
    ),
]
Latex = Annotated[
    bool, typer.Option("--latex", help="Print LaTeX (colour boxes of the xcolor package) instead of a picture.")
]

# --- loading ----------------------------------------------------------------------------------------------------------

Task = Annotated[
    str | None, typer.Option("--task", help="The head to load; by default the one the configuration names.")
]
Device = Annotated[str | None, typer.Option("--device", help="cpu, cuda, cuda:1, mps ...")]
Dtype = Annotated[str | None, typer.Option("--dtype", help="float32 (default), float64, bfloat16, float16, auto.")]
DeviceMap = Annotated[
    str | None,
    typer.Option(
        "--device-map",
        help="Spread a large model: auto, balanced, sequential, or JSON of module and device. Instead of --device.",
    ),
]
MaxMemory = Annotated[
    str | None,
    typer.Option("--max-memory", help="With --device-map, of each device: 0=20GiB,cpu=60GiB. The rest stays on disk."),
]
OffloadFolder = Annotated[
    Path | None,
    typer.Option("--offload-folder", help="With --device-map: for weights on disk that are not stored as safetensors."),
]
Quantization = Annotated[
    str | None, typer.Option("--quantization", help="4bit or 8bit (bitsandbytes), packed while loading.")
]
Trust = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run code that comes with the model. Off unless you say so.")
]


@dataclass(frozen=True)
class LoadOptions:
    """Every option of a command that says how its model is loaded. The fields are the options, in the order of the
    help."""

    task: Task = None
    device: Device = None
    dtype: Dtype = None
    device_map: DeviceMap = None
    max_memory: MaxMemory = None
    offload_folder: OffloadFolder = None
    quantization: Quantization = None
    trust_remote_code: Trust = False

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of `mixlens.load`."""
        large = {
            "device_map": _device_map(self.device_map),
            "max_memory": _max_memory(self.max_memory),
            "offload_folder": self.offload_folder,
            "quantization": self.quantization,
        }
        usual = {name: getattr(self, name) for name in ("task", "device", "dtype", "trust_remote_code")}
        return {**usual, **{name: value for name, value in large.items() if value is not None}}

    def load(self, name: str, *, check: bool = True) -> Model:
        """The model, proven unless `check` is False."""
        return self.timed_load(name, check=check)[0]

    def timed_load(self, name: str, *, check: bool = True) -> tuple[Model, dict[str, float]]:
        """The model, and the seconds that its weights and its proof took."""
        arguments = self.arguments()
        from transformers.utils import logging

        from ..layer.proof import check as prove
        from ..model.loading import load

        logging.set_verbosity_error()
        getLogger("bitsandbytes").setLevel(ERROR)  # it logs one line for each product that it casts
        started = time.perf_counter()
        lens = load(name, check=False, **arguments)
        read = time.perf_counter()
        if check:
            lens.proof = prove(lens)
        seconds = {"weights": read - started, "model check": time.perf_counter() - read}
        group.loaded()
        return lens, seconds


def _device_map(written: str | None) -> Any:
    """A word, or JSON of modules and devices."""
    if written is None or not written.lstrip().startswith("{"):
        return written
    try:
        return json.loads(written)
    except ValueError:
        raise InputError(f'--device-map is a word or JSON as {{"module": device}}, not {written!r:.80}.') from None


def _max_memory(written: str | None) -> dict[int | str, str] | None:
    """`0=20GiB,cpu=60GiB`: the size of each device; a device that is a number is a GPU."""
    if written is None:
        return None
    pairs = [tuple(map(str.strip, pair.partition("=")[::2])) for pair in written.split(",")]
    if not all(map(all, pairs)):
        raise InputError(
            f"--max-memory is device=size with commas between them, as 0=20GiB,cpu=60GiB, not {written!r:.80}."
        )
    return {int(device) if device.isdigit() else device: size for device, size in pairs}


def loads_a_model(command: Callable[..., None]) -> Callable[..., None]:
    """A command with a parameter `loading: LoadOptions`, as a command with the options of loading in its place.

    --trust-remote-code comes last in every help, the other options where `loading` stands.
    """
    hints = get_type_hints(LoadOptions, include_extras=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    *options, trust = [
        inspect.Parameter(field.name, kind, default=field.default, annotation=hints[field.name])
        for field in fields(LoadOptions)
    ]
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        parameters += options if parameter.name == "loading" else [parameter.replace(kind=kind)]

    @functools.wraps(command)
    def with_options(**values: Any) -> None:
        loading = LoadOptions(**{option.name: values.pop(option.name) for option in (*options, trust)})
        command(**values, loading=loading)

    with_options.__signature__ = inspect.Signature([*parameters, trust])  # type: ignore[attr-defined]
    return with_options


# --- what several commands read from their options --------------------------------------------------------------------


def input_of(text: str | None, file: Path | None, pair: str | None) -> Any:
    """The text of a command, or a pair of texts."""
    first = command_words.text_of(text, file)
    return first if pair is None else (first, pair)


def layer_index(lens: Model, layer: int) -> int:
    """A layer counted from 1, or from the end by a negative number, as the library counts it."""
    if layer == 0 or abs(layer) > lens.n_layers:
        raise InputError(
            f"layer {layer} does not exist: {lens.name!r} has layers 1 to {lens.n_layers}, or -1 for the last."
        )
    return layer - 1 if layer > 0 else layer
