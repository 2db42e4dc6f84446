"""The command line. Nothing heavy is imported until a command runs, so `--help` answers at once."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .errors import InputError, MixlensError

if TYPE_CHECKING:
    from .model import Model
    from .types import Result, Trace

app = typer.Typer(
    help="Which tokens flow into which in a Transformer, layer by layer, proven against the model itself.",
    epilog="Start with:  mixlens explain 'The keys to the cabinet [MASK] rusty.'",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Text = Annotated[
    str, typer.Argument(help="The text to explain. Write the model's own mask token where a word is to be predicted.")
]
Pair = Annotated[str | None, typer.Option("--pair", help="A second text, for models that read two.")]
ModelName = Annotated[str, typer.Option("--model", "-m", help="A hub id, a folder, or an embedded model: agreement, sentiment.")]
Method = Annotated[str, typer.Option("--method", help="See `mixlens methods`.")]
Variant = Annotated[str | None, typer.Option("--variant", help="paper or released, where they differ.")]
Query = Annotated[
    str | None,
    typer.Option(
        "--query", "--target", help="The position to explain: a token or an index. By default where the model predicts."
    ),
]
Task = Annotated[str | None, typer.Option("--task", help="The head to load; by default the one the configuration names.")]
Device = Annotated[str | None, typer.Option("--device", help="cpu, cuda, cuda:1, mps ...")]
Dtype = Annotated[str | None, typer.Option("--dtype", help="float32 (default), float64, bfloat16, float16, auto.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a picture.")]
Save = Annotated[Path | None, typer.Option("--save", help="Also save the result to this .safetensors file.")]
Words = Annotated[bool, typer.Option("--words", help="Join subwords to words.")]
NoSpecial = Annotated[bool, typer.Option("--no-special", help="Leave special tokens out and share the rest.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="Numbers and bars only.")]
Trust = Annotated[bool, typer.Option("--trust-remote-code", help="Run code that comes with the model. Off unless you say so.")]


def _load(model: str, task: str | None, device: str | None, dtype: str | None, trust: bool) -> Model:
    from transformers.utils import logging

    from .model import load

    logging.set_verbosity_error()
    return load(model, task=task, device=device, dtype=dtype, trust_remote_code=trust)


def _place(trace: Trace, query: str | None) -> int:
    """A token of the text, or an index."""
    from .aggregate import find

    if query is None:
        return trace.query
    try:
        return find(trace.tokens, query)
    except InputError:
        if query.lstrip("-").isdigit():
            return find(trace.tokens, int(query))
        raise


def _print_json(result: Result) -> None:
    from torch import Tensor

    info = {key: value.tolist() if isinstance(value, Tensor) else value for key, value in result.info.items()}
    told = {"method": result.method, "tokens": list(result.tokens), "scores": result.scores.tolist(), "info": info}
    print(json.dumps(told, ensure_ascii=False))


def _input(text: str, pair: str | None) -> Any:
    return text if pair is None else (text, pair)


@app.command(epilog="Example:  mixlens explain 'A dull plot but brilliant acting.' --model sentiment --method globenc")
def explain(
    text: Text,
    model: ModelName = "agreement",
    method: Method = "alti",
    variant: Variant = None,
    query: Query = None,
    pair: Pair = None,
    words: Words = False,
    no_special: NoSpecial = False,
    json_: Json = False,
    save: Save = None,
    task: Task = None,
    device: Device = None,
    dtype: Dtype = None,
    no_color: NoColor = False,
    trust_remote_code: Trust = False,
) -> None:
    """Which input tokens the prediction is made of: trace, mix, roll out, read out."""
    from dataclasses import replace

    from .mixing import method as known
    from .mixing import mix
    from .show.text import show

    known(method)  # a misspelt name is refused before the model is loaded
    lens = _load(model, task, device, dtype, trust_remote_code)
    trace = lens.trace(_input(text, pair))
    place = _place(trace, query)
    read = mix(trace, method, variant=variant).rollout().readout(place, keep_special=not no_special)
    read = replace(read, info={**read.info, "prediction": trace.prediction()})
    read = read.by_word() if words else read
    if save is not None:
        read.save(save)
    if json_:
        _print_json(read)
    else:
        show(read, color=not no_color)


@app.command("map", epilog="Example:  mixlens map 'The keys to the cabinet [MASK] rusty.' --layer 3 --method value_zeroing")
def map_(
    text: Text,
    layer: Annotated[int, typer.Option("--layer", "-l", help="Counted from 1; -1 is the last.")] = -1,
    rollout: Annotated[
        bool, typer.Option("--rollout", help="From the input to this layer, instead of this layer alone.")
    ] = False,
    model: ModelName = "agreement",
    method: Method = "alti",
    variant: Variant = None,
    pair: Pair = None,
    words: Words = False,
    json_: Json = False,
    save: Save = None,
    task: Task = None,
    device: Device = None,
    dtype: Dtype = None,
    no_color: NoColor = False,
    trust_remote_code: Trust = False,
) -> None:
    """One layer's map: what each position (row) took from each token (column)."""
    from .mixing import method as known
    from .mixing import mix
    from .show.text import show

    known(method)
    lens = _load(model, task, device, dtype, trust_remote_code)
    if not (1 <= layer <= lens.n_layers or -lens.n_layers <= layer <= -1):
        raise InputError(f"layer {layer} does not exist: {model!r} has layers 1 to {lens.n_layers}, or -1 for the last.")
    scores = mix(lens.trace(_input(text, pair)), method, variant=variant)
    scores = scores.rollout() if rollout else scores
    scores = scores.by_word() if words else scores
    if save is not None:
        scores.save(save)
    if json_:
        _print_json(scores)
    else:
        show(scores, layer=layer - 1 if layer > 0 else layer, color=not no_color)


@app.command(
    epilog="Example:  mixlens compare 'The keys to the cabinet [MASK] rusty.' --methods attention,globenc,alti,value_zeroing"
)
def compare(
    text: Text,
    methods: Annotated[
        str, typer.Option("--methods", help="Names with commas between them.")
    ] = "attention,globenc,alti,value_zeroing",
    model: ModelName = "agreement",
    query: Query = None,
    pair: Pair = None,
    words: Words = False,
    no_special: NoSpecial = False,
    json_: Json = False,
    task: Task = None,
    device: Device = None,
    dtype: Dtype = None,
    no_color: NoColor = False,
    trust_remote_code: Trust = False,
) -> None:
    """Several methods under one sentence, from one forward pass."""
    from dataclasses import replace

    from .mixing import method as known
    from .mixing import mix
    from .show.text import compare_view, console

    names = [name.strip() for name in methods.split(",") if name.strip()]
    for name in names:
        known(name)
    lens = _load(model, task, device, dtype, trust_remote_code)
    trace = lens.trace(_input(text, pair))
    place = _place(trace, query)
    results = []
    for mixed in mix(trace, names).values():
        read = mixed.rollout().readout(place, keep_special=not no_special)
        read = replace(read, info={**read.info, "prediction": trace.prediction()})
        results.append(read.by_word() if words else read)
    if json_:
        for result in results:
            _print_json(result)
    else:
        console(color=not no_color).print(compare_view(results))


@app.command()
def methods() -> None:
    """What `--method` takes, one line each: name, paper, variants, cost in forward passes, what it is."""
    from rich.table import Table

    from .mixing import known
    from .show.text import console

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("method", "paper", "variants", "cost"):
        table.add_column(column, no_wrap=True)
    table.add_column("what it is", no_wrap=True, overflow="ellipsis")
    for method in known().values():
        table.add_row(method.id, method.paper.split(",")[0], ", ".join(method.variants), method.cost, method.summary)
    console().print(table)


@app.command()
def families() -> None:
    """The kinds of model that are known, and where their norms sit."""
    from rich.table import Table

    from .families import known
    from .show.text import console

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("model types", "when", "norms", "feed-forward"):
        table.add_column(column)
    for family in known():
        norms = [
            name.removeprefix("norm_").replace("_", " ")
            for name in vars(family)
            if name.startswith("norm_") and getattr(family, name) is not None
        ]
        kind = ("gated" if family.mlp_gate else "plain") + (", beside attention" if family.parallel else "")
        when = ", ".join(f"{key}={value}" for key, value in family.when.items())
        table.add_row(", ".join(family.model_types), when, ", ".join(norms), kind)
    console().print(table)


@app.command(epilog="Example:  mixlens check bert-base-uncased --dtype float64")
def check(
    model: Annotated[str, typer.Argument(help="A hub id, a folder, or an embedded model.")] = "agreement",
    task: Task = None,
    device: Device = None,
    dtype: Dtype = None,
    tokens: Annotated[int, typer.Option("--tokens", help="Length of the random input.", min=1)] = 32,
    trust_remote_code: Trust = False,
) -> None:
    """Run every identity on a model and print the gaps. Exit code 2 if one is more than rounding."""
    from rich.table import Table

    from .proof import IDENTITIES, measure
    from .show.text import console

    lens = _load(model, task, device, dtype, trust_remote_code)
    proof = measure(lens, tokens=tokens)
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("", "identity", "largest relative gap", "allowed", "layer"):
        table.add_column(column)
    for name, gap in proof.gaps.items():
        passed = "ok" if name not in proof.failed else "FAILS"
        table.add_row(passed, IDENTITIES[name], f"{gap:.1e}", f"{proof.allowed[name]:.0e}", str(proof.worst_layer[name] + 1))
    out = console()
    out.print(f"{lens.name}: {lens.n_layers} layers, family {lens.family.name}, {lens.task}, {proof.tokens} random tokens")
    out.print(table)
    if proof.failed:
        raise MixlensError(f"{len(proof.failed)} of {len(proof.gaps)} identities do not hold on {model!r}.")


def main() -> None:
    """Errors are one line and exit code 2, never a traceback."""
    try:
        app()
    except MixlensError as error:
        print(f"mixlens: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(1)


if __name__ == "__main__":
    main()
