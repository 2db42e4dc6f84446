"""The command line. Nothing heavy is imported until a command runs, so `--help` answers at once."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from logging import ERROR, getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import asking
from ..errors import InputError, MixlensError, nearest, printable, printable_json
from . import group

if TYPE_CHECKING:
    from ..asking import MethodRequest as Asked
    from ..model.model import Model
    from ..types import Attribution, Result, Trace

app = typer.Typer(
    cls=group.Commands,
    help="Which tokens flow into which in a Transformer, layer by layer, proven against the model itself.",
    epilog="Start with:  mixlens explain 'The keys to the cabinet [MASK] rusty.'",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Text = Annotated[
    str | None,
    typer.Argument(
        help="The text to explain; - reads it from standard input. Write the model's own mask token where a word is to be "
        "predicted."
    ),
]
File = Annotated[Path | None, typer.Option("--file", help="Read the text from this file instead.")]
Pair = Annotated[str | None, typer.Option("--pair", help="A second text, for models that read two.")]
ModelName = Annotated[str, typer.Option("--model", "-m", help="A hub id, a folder, or an embedded model: agreement, sentiment.")]
Method = Annotated[str, typer.Option("--method", help="See `mixlens methods`; options as name:option=value.")]
Variant = Annotated[str | None, typer.Option("--variant", help="paper or released, where they differ.")]
Query = Annotated[
    str | None,
    typer.Option("--query", help="The position to explain: a token or an index. By default where the model predicts."),
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target", help="The class or word to explain; by default the predicted one. For a map: the position, as --query."
    ),
]
Foil = Annotated[str | None, typer.Option("--foil", help="Explain the target against this class or word.")]
Score = Annotated[str | None, typer.Option("--score", help="logit (default), probability or log_probability.")]
Task = Annotated[str | None, typer.Option("--task", help="The head to load; by default the one the configuration names.")]
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
    str | None, typer.Option("--max-memory", help="With --device-map, of each device: 0=20GiB,cpu=60GiB. The rest stays on disk.")
]
OffloadFolder = Annotated[
    Path | None,
    typer.Option("--offload-folder", help="With --device-map: for weights on disk that are not stored as safetensors."),
]
Quantization = Annotated[str | None, typer.Option("--quantization", help="4bit or 8bit (bitsandbytes), packed while loading.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a picture.")]
Save = Annotated[Path | None, typer.Option("--save", help="Also save the result to this .safetensors file.")]
Words = Annotated[bool, typer.Option("--words", help="Join subwords to words.")]
NoSpecial = Annotated[
    bool, typer.Option("--no-special", help="Leave special tokens out. Shares are made to sum to 1 again; other scores stay.")
]
NoColor = Annotated[bool, typer.Option("--no-color", help="Numbers and bars only.")]
Top = Annotated[
    int | None,
    typer.Option("--top", help="The largest scores only; 0 for all. By default all, or the largest 15 of a long text.", min=0),
]
Latex = Annotated[bool, typer.Option("--latex", help="Print LaTeX (colour boxes of the xcolor package) instead of a picture.")]
Trust = Annotated[bool, typer.Option("--trust-remote-code", help="Run code that comes with the model. Off unless you say so.")]


def _large(
    device_map: str | None, max_memory: str | None, offload_folder: Path | None, quantization: str | None
) -> dict[str, Any]:
    """What is asked for a large model, as `load` takes it."""
    spread: Any = device_map
    if device_map is not None and device_map.lstrip().startswith("{"):
        try:
            spread = json.loads(device_map)
        except ValueError:
            raise InputError(f'--device-map is a word or JSON as {{"module": device}}, not {device_map!r:.80}.') from None
    memory: dict[int | str, str] | None = None
    if max_memory is not None:
        pairs = [one.partition("=") for one in max_memory.split(",")]
        if not all(device.strip() and size.strip() for device, _, size in pairs):
            raise InputError(
                f"--max-memory is device=size with commas between them, as 0=20GiB,cpu=60GiB, not {max_memory!r:.80}."
            )
        memory = {int(device) if device.strip().isdigit() else device.strip(): size.strip() for device, _, size in pairs}
    asked = {"device_map": spread, "max_memory": memory, "offload_folder": offload_folder, "quantization": quantization}
    return {name: value for name, value in asked.items() if value is not None}


SPENT: dict[str, float] = {}  # seconds that the last model took: reading its weights, and proving that it adds up


def _load(model: str, task: str | None, device: str | None, dtype: str | None, trust: bool, **options: Any) -> Model:
    import time

    from transformers.utils import logging

    from ..layer.proof import check
    from ..model.model import load

    logging.set_verbosity_error()
    getLogger("bitsandbytes").setLevel(ERROR)  # one line for each product it casts for
    started = time.perf_counter()
    proven = options.pop("check", True)
    lens = load(model, task=task, device=device, dtype=dtype, trust_remote_code=trust, check=False, **options)
    read = time.perf_counter()
    if proven:
        lens.proof = check(lens)
    SPENT.update({"weights": read - started, "model check": time.perf_counter() - read})
    group.loaded()
    return lens


def _print_json(result: Result) -> None:
    from torch import Tensor

    from ..show.encoding import can_show

    info = {key: value.tolist() if isinstance(value, Tensor) else value for key, value in result.info.items()}
    told = {"method": result.method, "tokens": list(result.tokens), "scores": result.scores.tolist(), "info": info}
    written = json.dumps(told, ensure_ascii=not can_show(sys.stdout, json.dumps(told, ensure_ascii=False), replaced=False))
    # JSON leaves some characters as they are that a terminal obeys or does not show.
    print("".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in written))


def _input(text: str, pair: str | None) -> Any:
    return text if pair is None else (text, pair)


@app.command(epilog="Example:  mixlens explain 'The keys to the cabinet [MASK] rusty.' --method attcat --target were --foil was")
def explain(
    text: Text = None,
    model: ModelName = "agreement",
    method: Method = "alti",
    variant: Variant = None,
    query: Query = None,
    target: Target = None,
    foil: Foil = None,
    score: Score = None,
    generate: Annotated[
        int | None, typer.Option("--generate", help="Let a causal model write this many tokens; explain each.")
    ] = None,
    pair: Pair = None,
    file: File = None,
    words: Words = False,
    no_special: NoSpecial = False,
    json_: Json = False,
    save: Save = None,
    task: Task = None,
    device: Device = None,
    dtype: Dtype = None,
    device_map: DeviceMap = None,
    max_memory: MaxMemory = None,
    offload_folder: OffloadFolder = None,
    quantization: Quantization = None,
    no_color: NoColor = False,
    top: Top = None,
    layers: Annotated[bool, typer.Option("--layers", help="One strip for every layer.")] = False,
    map_: Annotated[
        int | None, typer.Option("--map", help="Also this layer's map; counted from 1, -1 is the last.", metavar="LAYER")
    ] = None,
    latex: Latex = False,
    timing: Annotated[bool, typer.Option("--timing", help="Also say where the time went.")] = False,
    trust_remote_code: Trust = False,
) -> None:
    """Which input tokens the prediction rests on, by any method of `mixlens methods`."""
    import time

    started = time.perf_counter()
    from ..maps import mix, timed

    used = asking.method_of(method, variant)  # a misspelt name is refused before the model is loaded
    asking.refuse_target({method: used}, {"foil": foil, "score": score})
    if save is not None and generate is not None:
        raise InputError("--save keeps one result; with --generate there are several. Use --json.")
    if latex and json_:
        raise InputError("--latex and --json are two ways to print the result. Leave one out.")
    if (layers or map_ is not None) and (generate is not None or json_ or latex):
        raise InputError("--layers and --map are pictures in the terminal: leave --generate, --json and --latex out.")
    if map_ is not None and not used.is_map:
        raise InputError(f"{method!r} gives scores of tokens, no map. Leave --map out, or see `mixlens methods` for maps.")
    given = _input(asking.text_of(text, file), pair)
    spent = {"import": time.perf_counter() - started}
    large = _large(device_map, max_memory, offload_folder, quantization)
    lens = _load(model, task, device, dtype, trust_remote_code, **large)
    spent = {"load and check": time.perf_counter() - started, **spent, **SPENT}
    asked: dict[str, Any] = {"method": used.name, **_told(used), "keep_special": not no_special, "generate": generate}
    if generate is None:
        trace = lens.trace(given)
        place = asking.place_meant(trace, query, target, method) if used.is_map else asking.place_of(trace, query)
        asked["query"] = place
    if used.class_specific:
        asked |= asking.targets_of(lens, target, foil, score)
    elif not used.is_map and target is not None:
        asked["query"] = asking.place_meant(trace, query, target, method) if generate is None else None
    with timed():
        found = lens.explain(given, **asked)
    ended = time.perf_counter()
    for read in found if isinstance(found, list) else [found]:
        read = read.by_word() if words else read
        if save is not None:
            read.save(save)
        if json_:
            _print_json(read)
        elif latex:
            print(read.to_latex(), end="")
        elif layers:
            _show_layers(trace, used, asked, words=words, color=not no_color, top=top)
        else:
            read.show(color=not no_color, top=top)
    if map_ is not None:
        print()
        whole = mix(trace, used.name, variant=used.variant, **used.options)
        (whole.by_word() if words else whole).show(layer=_layer(lens, map_), color=not no_color)
    if timing:
        inside = dict((found[0] if isinstance(found, list) else found).info.get("seconds", {}))
        spent |= {used.name if k == "map" else k: v for k, v in inside.items() if k != "batch"}
        indented = ("import", "weights", "model check")
        for part, seconds in {**spent, "total": ended - started}.items():
            name = f"  {part}" if part in indented else part
            print(f"{name:<16} {1000 * seconds:10.1f} ms", file=sys.stderr if json_ else sys.stdout)


def _told(used: Asked) -> dict[str, Any]:
    """What `attribute` is told of a method that was asked for with options."""
    return {"variant": used.variant, **({} if used.rollout is None else {"rollout": used.rollout}), **used.options}


def _show_layers(trace: Trace, used: Asked, asked: Mapping[str, Any], *, words: bool, color: bool, top: int | None) -> None:
    """What the prediction rests on, as seen after every layer (a map) or at the input of every layer (gradients)."""
    from ..show.text import compare_view, console

    named = _by_layer(trace, used, asked)
    results = [read.by_word() if words else read for read in named.values()]
    console(color=color).print(compare_view(results, names=list(named), layers=True, top=top))


def _by_layer(trace: Trace, used: Asked, asked: Mapping[str, Any]) -> dict[str, Attribution]:
    from ..aggregate import without_special
    from ..attributions import attribute
    from ..attributions import known as attributions
    from ..maps import mix

    name = used.name
    depth = len(trace.layers)
    if used.is_map:
        rolled = mix(trace, name, variant=used.variant, **used.options).rollout(used.rollout)
        place = trace.query if asked["query"] is None else asked["query"]
        made = {f"layer {number + 1}": rolled.readout(place, layer=number) for number in range(depth)}
        first = made["layer 1"]
        made["layer 1"] = replace(first, info={**first.info, "prediction": trace.prediction()})
    elif not attributions()[name].layers:
        raise InputError(f"{name!r} is not defined at single layers. Leave --layers out.")
    else:
        given = {key: asked[key] for key in ("target", "foil", "score", "query", "variant", *used.options) if key in asked}
        names = ["input", *(f"after {number + 1}" for number in range(depth))]
        made = {told: attribute(trace, name, layer=number, **given) for number, told in enumerate(names)}
    return made if asked["keep_special"] else {told: without_special(read) for told, read in made.items()}


def _layer(lens: Model, layer: int) -> int:
    """A layer counted from 1, or from the end, as the library counts it."""
    if not (1 <= layer <= lens.n_layers or -lens.n_layers <= layer <= -1):
        raise InputError(f"layer {layer} does not exist: {lens.name!r} has layers 1 to {lens.n_layers}, or -1 for the last.")
    return layer - 1 if layer > 0 else layer


def _known(name: str) -> bool:
    """Is it a map (True) or an attribution (False)? Anything else is refused with the nearest names."""
    from ..attributions import known as attributions
    from ..maps import known as maps

    if name not in maps() and name not in attributions():
        raise InputError(f"unknown method {name!r}. {nearest(name, [*maps(), *attributions()])}")
    return name in maps()


@app.command()
def data() -> None:
    """The datasets known by name, one line each: task, what is known, labels, where from, licence, paper."""
    from ..data import listing
    from ..show.text import console

    rows, out = listing(), console()
    widths = [max(len(row[i]) for row in rows) for i in range(6)]
    for row in rows:
        line = "  ".join(f"{cell:<{width}}" for cell, width in zip(row[:6], widths, strict=True)) + "  " + row[6]
        print(line[: out.width - 1] + "…" if out.is_terminal and len(line) > out.width else line)
    print("\nFields of local files: docs/data.md. Any other file or hub dataset with texts: mixlens.data.read.")


Out = Annotated[
    Path | None, typer.Option("--out", help="A folder for records, tables and figure; the same command goes on where it stopped.")
]
Count = Annotated[int | None, typer.Option("--n", help="How many examples, drawn by --seed.")]
Seed = Annotated[int, typer.Option("--seed")]
LeaveOut = Annotated[bool, typer.Option("--leave-out", help="Leave out examples that do not fit, instead of stopping.")]
Methods = Annotated[str | None, typer.Option("--methods", help="Names with commas between them; options as name:option=value.")]


@app.command(epilog="Example:  mixlens experiment vz-cue-alignment --n 100 --out runs/cues")
def experiment(
    name: Annotated[str | None, typer.Argument(help="Without one: the experiments there are.")] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="A hub id, a folder or an embedded model.")] = None,
    data: Annotated[str | None, typer.Option("--data", help="A dataset of `mixlens data`, a file, or NAME=FILE.")] = None,
    n: Count = None,
    out: Out = None,
    methods: Methods = None,
    seed: Seed = 0,
    leave_out: LeaveOut = False,
    option: Annotated[list[str] | None, typer.Option("--option", help="key=value, an option of the experiment.")] = None,
) -> None:
    """An experiment of one of the papers, on any model: records, tables, figure. Stopped at any time, it goes on."""
    from ..experiments.judge import experiment_text

    given = {"model": model, "data": data, "n": n, "out": out, "methods": methods, "seed": seed, "leave_out": leave_out}
    print(experiment_text(name, options=option or (), **given))


@app.command(epilog="Example:  mixlens judge sentiment sentiment --n 20")
def judge(
    model: Annotated[str, typer.Argument(help="A hub id, a folder or an embedded model.")],
    data: Annotated[str, typer.Argument(help="A dataset of `mixlens data`, a file, or NAME=FILE.")],
    methods: Annotated[
        str, typer.Option("--methods", help="all, or names with commas between them; options as name:option=value.")
    ] = "all",
    metrics: Annotated[str, typer.Option("--metrics", help="faithfulness, cues, rationales, or names.")] = "faithfulness",
    n: Count = 50,
    out: Out = None,
    seed: Seed = 0,
    leave_out: LeaveOut = False,
    text_field: Annotated[str | None, typer.Option("--text-field", help="Of a file: by default text or sentence.")] = None,
    pair_field: Annotated[str | None, typer.Option("--pair-field", help="Of a file: the second text.")] = None,
    label_field: Annotated[str | None, typer.Option("--label-field", help="Of a file: the label of a row.")] = None,
) -> None:
    """Which method should I trust on my model? One ranked table, with intervals and seconds an example."""
    from ..experiments.judge import judge_text
    from ..show.text import console

    fields: dict[str, Any] = {"text_field": text_field, "pair_field": pair_field, "label_field": label_field}
    asked: dict[str, Any] = {"methods": methods, "metrics": metrics, "n": n, "out": out, "seed": seed, "leave_out": leave_out}
    print(judge_text(model, data, width=console().width, **asked, **fields))


@app.command(epilog="Example:  mixlens run corpus.jsonl --model sentiment --methods alti,attcat --out runs/corpus")
def run(
    data: Annotated[
        str, typer.Argument(help="JSONL, CSV, TSV, Parquet, text (a line each), a dataset of `mixlens data`, a hub id.")
    ],
    out: Annotated[Path, typer.Option("--out", help="The folder. The same command goes on where it was stopped.")],
    model: ModelName = "agreement",
    methods: Annotated[
        str, typer.Option("--methods", help="Names with commas between them; options as name:option=value.")
    ] = "alti",
    limit: Annotated[int | None, typer.Option("--limit", help="The first so many rows.")] = None,
    columns: Annotated[str | None, typer.Option("--columns", help="Fields to carry along, with commas between them.")] = None,
    text_field: Annotated[str | None, typer.Option("--text-field", help="By default text or sentence.")] = None,
    pair_field: Annotated[str | None, typer.Option("--pair-field", help="The second text.")] = None,
    ids_field: Annotated[
        str | None, typer.Option("--ids-field", help="A field with ids: input that is tokenised already.")
    ] = None,
    split: Annotated[str | None, typer.Option("--split", help="Of a dataset.")] = None,
    target: Annotated[
        str | None, typer.Option("--target", help="The class or word to explain; gold: each row's own target or label.")
    ] = None,
    foil: Foil = None,
    score: Score = None,
    query: Query = None,
    maps: Annotated[bool, typer.Option("--maps", help="Keep the maps too.")] = False,
    maps_dtype: Annotated[str, typer.Option("--maps-dtype", help="float32 or float16.")] = "float32",
    batch_tokens: Annotated[int | None, typer.Option("--batch-tokens", help="Tokens to a batch; by default what suits.")] = None,
    shard_rows: Annotated[
        int, typer.Option("--shard-rows", help="Rows to a shard: so much work is lost, at most, when a run is killed.")
    ] = 512,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first row that cannot be explained.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on; refuse to begin anew.")] = False,
    ray: Annotated[str | None, typer.Option("--ray", help="auto, or the address of a Ray cluster that does the work.")] = None,
    workers: Annotated[
        str | None, typer.Option("--workers", help="Of the Ray cluster: 8, or 2-8; by default one for each GPU or CPU.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    task: Task = None,
    device: Device = None,
    dtype: Dtype = None,
    device_map: DeviceMap = None,
    max_memory: MaxMemory = None,
    offload_folder: OffloadFolder = None,
    quantization: Quantization = None,
    trust_remote_code: Trust = False,
) -> None:
    """Every method on every row of a corpus: a folder of Parquet shards. Stopped at any time, it goes on."""
    import warnings

    from ..corpus import run as run_corpus

    for name in methods.split(","):
        _known(name.strip().partition(":")[0])  # a misspelt name is refused before the model is loaded
    whole = query is not None and query.lstrip("-").isdigit()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: print(f"mixlens: {printable(str(message))}", file=sys.stderr)
            made = run_corpus(
                data,
                model=model,
                methods=methods,
                out=out,
                limit=limit,
                columns=[name.strip() for name in columns.split(",")] if columns else (),
                text_field=text_field,
                pair_field=pair_field,
                ids_field=ids_field,
                split=split,
                target="predicted" if target is None else int(target) if target.isdigit() else target,
                foil=int(foil) if foil is not None and foil.isdigit() else foil,
                score=score,
                query=int(str(query)) if whole else query,
                maps=maps_dtype if maps else False,
                batch_tokens=batch_tokens,
                shard_rows=shard_rows,
                strict=strict,
                resume=resume,
                ray=ray,
                workers=_workers(workers),
                task=task,
                device=device,
                dtype=dtype,
                trust_remote_code=trust_remote_code,
                **_large(device_map, max_memory, offload_folder, quantization),
            )
    except KeyboardInterrupt:
        print(f"mixlens: stopped. What is in {printable(str(out))} is safe: the same command goes on.", file=sys.stderr)
        raise typer.Exit(130) from None
    if json_:
        print(printable_json(json.dumps({**vars(made), "out": str(made.out)})))
    if made.errors and not made.rows:
        raise MixlensError(f"no row could be explained: {str(made.out / 'errors.jsonl')!r} says why.")
    if json_:
        return
    rate = f", {_rate(made.done, made.seconds)}" if made.done else ""
    print(printable(f"{made.rows} rows in {made.out / 'shards'} ({made.done} done now{rate})"))
    if made.errors:
        print(printable(f"{made.errors} rows could not be explained: {made.out / 'errors.jsonl'} says why"))


def _rate(done: int, seconds: float) -> str:
    """Rows a second where there are some, else the seconds of one."""
    each = seconds / done
    return f"{1 / each:.0f} a second" if each <= 0.1 else f"{1 / each:.1f} a second" if each <= 1 else f"{each:.1f} s each"


def _workers(written: str | None) -> Any:
    """8, or 2-8: at least 2, at most 8."""
    numbers = [] if written is None else written.split("-")
    if not all(one.isdecimal() for one in numbers) or len(numbers) > 2:
        raise InputError(f"--workers is a number, or the least and the most (2-8), not {written!r}.")
    return None if written is None else int(numbers[0]) if len(numbers) == 1 else (int(numbers[0]), int(numbers[1]))


@app.command(epilog="Example:  mixlens summarize runs/corpus    (as a page: mixlens report runs/corpus)")
def summarize(
    folder: Annotated[Path, typer.Argument(help="The folder of a `mixlens run`, finished or not.")],
    top: Annotated[int, typer.Option("--top", help="Tokens for each class.", min=1)] = 8,
    classes: Annotated[int, typer.Option("--classes", help="The most frequent classes.", min=1)] = 8,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """What a run found: top tokens per class, agreement between methods, mixing ratio, gaps, slow rows, reasons of errors."""
    from ..corpus import summarize as summarized

    found = summarized(folder, top=top, classes=classes)
    print(found.json() if json_ else found.text())


@app.command("map", epilog="Example:  mixlens map 'The keys to the cabinet [MASK] rusty.' --layer 3 --method value_zeroing")
def map_(
    text: Text = None,
    layer: Annotated[int, typer.Option("--layer", "-l", help="Counted from 1; -1 is the last.")] = -1,
    rollout: Annotated[
        bool, typer.Option("--rollout", help="From the input to this layer, instead of this layer alone.")
    ] = False,
    model: ModelName = "agreement",
    method: Method = "alti",
    variant: Variant = None,
    query: Annotated[
        str | None, typer.Option("--query", "--target", help="Show this position's row alone: a token or an index.")
    ] = None,
    pair: Pair = None,
    file: File = None,
    words: Words = False,
    json_: Json = False,
    save: Save = None,
    task: Task = None,
    device: Device = None,
    dtype: Dtype = None,
    device_map: DeviceMap = None,
    max_memory: MaxMemory = None,
    offload_folder: OffloadFolder = None,
    quantization: Quantization = None,
    no_color: NoColor = False,
    trust_remote_code: Trust = False,
) -> None:
    """One layer's map: what each position (row) took from each token (column)."""
    from ..maps import method as known_map
    from ..maps import mix
    from ..notices import notices_of

    known_map(method.partition(":")[0])
    used = asking.method_of(method, variant)
    if used.rollout is not None and not rollout:
        raise InputError(f"{method!r} names a rollout convention: give --rollout, or leave it out.")
    given = _input(asking.text_of(text, file), pair)
    large = _large(device_map, max_memory, offload_folder, quantization)
    lens = _load(model, task, device, dtype, trust_remote_code, **large)
    layer = _layer(lens, layer)
    trace = lens.trace(given)
    place = asking.place_meant(trace, None, query, method)
    scores = mix(trace, used.name, variant=used.variant, **used.options)
    noticed = notices_of(lens, trace, query=0)  # a map shows every position, so a missing mask is no surprise
    scores = replace(scores, info={**scores.info, "notices": noticed}) if noticed else scores
    scores = scores.rollout(used.rollout) if rollout else scores
    whole = scores.by_word() if words else scores
    if save is not None:
        whole.save(save)
    if json_:
        _print_json(whole)
    elif place is not None:
        row = scores.readout(place, layer=layer)
        (row.by_word() if words else row).show(color=not no_color)
    else:
        whole.show(layer=layer, color=not no_color)


@app.command(
    epilog="Example:  mixlens compare 'The keys to the cabinet [MASK] rusty.' --methods attention,globenc,alti,value_zeroing"
)
def compare(
    text: Text = None,
    methods: Annotated[
        str, typer.Option("--methods", "--method", help="Names with commas between them; options as name:option=value.")
    ] = "attention,globenc,alti,value_zeroing",
    model: ModelName = "agreement",
    query: Query = None,
    target: Annotated[
        str | None,
        typer.Option("--target", help="The class or word that attributions explain; by default the predicted one."),
    ] = None,
    foil: Foil = None,
    score: Score = None,
    pair: Pair = None,
    file: File = None,
    words: Words = False,
    no_special: NoSpecial = False,
    json_: Json = False,
    task: Task = None,
    device: Device = None,
    dtype: Dtype = None,
    device_map: DeviceMap = None,
    max_memory: MaxMemory = None,
    offload_folder: OffloadFolder = None,
    quantization: Quantization = None,
    no_color: NoColor = False,
    top: Top = None,
    latex: Latex = False,
    trust_remote_code: Trust = False,
) -> None:
    """Several methods under one sentence, from one forward pass."""
    from ..aggregate import without_special
    from ..attributions import attribute
    from ..show.latex import latex as to_latex
    from ..show.text import compare_view, console

    used = asking.methods_of(methods)
    asking.refuse_target(used, {"target": target, "foil": foil, "score": score})
    if latex and json_:
        raise InputError("--latex and --json are two ways to print the result. Leave one out.")
    given = _input(asking.text_of(text, file), pair)
    large = _large(device_map, max_memory, offload_folder, quantization)
    lens = _load(model, task, device, dtype, trust_remote_code, **large)
    trace = lens.trace(given)
    place = asking.place_of(trace, query)
    wanted = asking.targets_of(lens, target, foil, score)
    results = []
    for one in used.values():
        read = attribute(trace, one.name, query=place, **_told(one), **(wanted if one.class_specific else {}))
        read = without_special(read) if no_special else read
        results.append(read.by_word() if words else read)
    if json_:
        for result in results:
            _print_json(result)
    elif latex:
        print(to_latex(results), end="")
    else:
        console(color=not no_color).print(compare_view(results, names=list(used), top=top))


PLOT_EXAMPLES = """Examples:

mixlens plot 'The keys to the cabinet [MASK] rusty.' -o strip.svg

mixlens plot 'The keys to the cabinet [MASK] rusty.' --method attcat --target were --foil was --kind bars -o bars.pdf

mixlens plot 'The keys to the cabinet [MASK] rusty.' --kind matrix --layer 3 -o map.svg

mixlens plot 'The keys to the cabinet [MASK] rusty.' --kind layers --rollout --width double -o layers.svg

mixlens plot 'The keys to the cabinet [MASK] rusty.' --method attention,globenc,alti -o methods.png"""


@app.command(epilog=PLOT_EXAMPLES)
def plot(
    output: Annotated[Path, typer.Option("--output", "-o", help="The figure's file: .svg, .pdf or .png.")],
    text: Text = None,
    method: Annotated[
        str,
        typer.Option(
            "--method",
            help="See `mixlens methods`; options as name:option=value. Several, with commas between them, become rows.",
        ),
    ] = "alti",
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            help="strip or bars (tokens); matrix (one layer), layers (layers by tokens) or grid (all layers) of a map; "
            "rows or strip of several methods.",
        ),
    ] = None,
    model: ModelName = "agreement",
    variant: Variant = None,
    query: Query = None,
    target: Target = None,
    foil: Foil = None,
    score: Score = None,
    layer: Annotated[int | None, typer.Option("--layer", "-l", help="For matrix; counted from 1, -1 is the last.")] = None,
    rollout: Annotated[
        bool, typer.Option("--rollout", help="Maps from the input to each layer, instead of each layer alone.")
    ] = False,
    top: Annotated[int | None, typer.Option("--top", help="For bars: the largest scores only.", min=1)] = None,
    numbers: Annotated[bool, typer.Option("--numbers", help="Write the scores into the cells of a map.")] = False,
    width: Annotated[str | None, typer.Option("--width", help="single (3.3 inches), double (6.8), or inches.")] = None,
    title: Annotated[str | None, typer.Option("--title", help="Instead of method and layer; '' for none.")] = None,
    font: Annotated[str | None, typer.Option("--font", help="An installed font, for letters that the usual one lacks.")] = None,
    pair: Pair = None,
    file: File = None,
    words: Words = False,
    no_special: NoSpecial = False,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    task: Task = None,
    device: Device = None,
    dtype: Dtype = None,
    device_map: DeviceMap = None,
    max_memory: MaxMemory = None,
    offload_folder: OffloadFolder = None,
    quantization: Quantization = None,
    trust_remote_code: Trust = False,
) -> None:
    """A paper figure: real text, colours that most eyes tell apart, the width of a column."""
    from ..aggregate import without_special
    from ..attributions import attribute
    from ..maps import mix
    from ..show.figure import drawing as figure

    used = asking.methods_of(method, variant)
    names = list(used)
    figure.check_path(output)
    if output.exists() and not force:
        raise InputError(f"{str(output)!r} is there already. Give another name, or --force to write over it.")
    of_map = kind in figure.KINDS["Map"]
    kinds = sorted({*figure.KINDS["Map"], *figure.KINDS["Attribution"], *figure.KINDS_OF_SEVERAL["Attribution"]})
    if kind is not None and kind not in kinds:
        raise InputError(f"unknown kind {kind!r}. {nearest(kind, kinds)}")
    maps = [name for name, one in used.items() if one.is_map]
    if of_map and len(maps) < len(names):
        raise InputError(f"kind {kind!r} is drawn of a map, and {names[0]!r} gives scores of tokens: use strip, bars or rows.")
    if not of_map and (rollout or layer is not None):
        raise InputError("--rollout and --layer are for maps: --kind matrix, layers or grid. Tokens are always rolled out.")
    asking.refuse_target(used, {"foil": foil, "score": score})
    if of_map and no_special:
        raise InputError("--no-special leaves tokens out of a row, not of a map. Use --kind strip, bars or rows.")
    inches = _inches(width)
    given = _input(asking.text_of(text, file), pair)
    large = _large(device_map, max_memory, offload_folder, quantization)
    lens = _load(model, task, device, dtype, trust_remote_code, **large)
    trace = lens.trace(given)
    place = asking.place_meant(trace, query, target if len(maps) == len(names) else None, method)
    results: dict[str, Any] = {}
    for name in names:
        if of_map:
            scores = mix(trace, used[name].name, variant=used[name].variant, **used[name].options)
            scores = scores.rollout(used[name].rollout) if rollout else scores
            results[name] = scores.by_word() if words else scores
            row = trace.query if place is None else place
            at = next(i for i, (_, own) in enumerate(scores.words or ()) if row in own) if words else row
            continue
        wanted = asking.targets_of(lens, target, foil, score) if used[name].class_specific else {}
        read = attribute(trace, used[name].name, query=place, **_told(used[name]), **wanted)
        read = without_special(read) if no_special else read
        results[name] = read.by_word() if words else read
    figure.plot(
        results if len(names) > 1 else results[names[0]],
        kind=kind,
        layer=None if layer is None else _layer(lens, layer),
        query=at if kind == "layers" else None,
        top=top,
        numbers=numbers or None,
        width=inches,
        title=title,
        font=font,
        save=output,
    )
    print(f"wrote {printable(str(output))}")


def _inches(width: str | None) -> str | float | None:
    try:
        return None if width is None else float(width)
    except ValueError:
        return width


REPORT_EXAMPLES = """Example:  mixlens report 'The keys to the cabinet [MASK] rusty.' --methods alti,globenc,attcat -o report.html

A whole run:  mixlens report runs/corpus -o corpus.html

A saved result:  mixlens report --from map.safetensors -o map.html"""


@app.command(epilog=REPORT_EXAMPLES)
def report(
    texts: Annotated[
        list[str] | None, typer.Argument(help="One text or several, each in quotes; or the folder of a `mixlens run`.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")] = Path("report.html"),
    methods: Annotated[
        str | None,
        typer.Option("--methods", help="Names with commas between them; options as name:option=value. Default: three maps."),
    ] = None,
    from_: Annotated[
        list[Path] | None, typer.Option("--from", help="A saved result to show instead (.safetensors); may be given again.")
    ] = None,
    model: ModelName = "agreement",
    query: Query = None,
    target: Annotated[
        str | None, typer.Option("--target", help="The class or word that attributions explain; by default the predicted one.")
    ] = None,
    foil: Foil = None,
    pair: Pair = None,
    title: Annotated[str | None, typer.Option("--title", help="The heading of the page.")] = None,
    label: Annotated[
        str | None, typer.Option("--label", help="Of a run: the carried column that says what is right. Default: label.")
    ] = None,
    examples: Annotated[int | None, typer.Option("--examples", help="Of a run: about how many rows to show (60).", min=0)] = None,
    megabytes: Annotated[
        float, typer.Option("--megabytes", help="The most that one text, or a run, may take in the file.")
    ] = 2.0,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is not a report, too.")] = False,
    task: Task = None,
    device: Device = None,
    dtype: Dtype = None,
    device_map: DeviceMap = None,
    max_memory: MaxMemory = None,
    offload_folder: OffloadFolder = None,
    quantization: Quantization = None,
    trust_remote_code: Trust = False,
) -> None:
    """One HTML file with the maps of texts, of saved results, or with all of a run: opens from disk, needs no network."""
    from ..report import METHODS, checked, may_write
    from ..report import report as write_report
    from ..saving import load_result

    may_write(output, force=force)
    page: dict[str, Any] = {"title": title, "megabytes": megabytes, "force": force}
    folder = _run_folder(texts or [])
    if folder is None and (label is not None or examples is not None):
        raise InputError("--label and --examples are for the folder of a run.")
    if folder is not None:
        if from_ or methods or target or foil or query or pair:
            raise InputError("a run is shown as it is: leave --from, --methods, --target, --foil, --query and --pair out.")
        write_report(folder, output, label=label, examples=examples, **page)
    elif from_:
        if texts or methods or target or foil or query or pair:
            raise InputError("--from shows saved results as they are: leave texts, --methods, --target, --query and --pair out.")
        write_report([load_result(place) for place in from_], output, **page)
    else:
        if not texts:
            raise InputError("give at least one text, the folder of a run, or --from with a saved result.")
        if pair is not None and len(texts) > 1:
            raise InputError(f"--pair goes with one text, not with {len(texts)}.")
        names = checked(METHODS if methods is None else methods.split(","))  # before the model is loaded
        large = _large(device_map, max_memory, offload_folder, quantization)
        lens = _load(model, task, device, dtype, trust_remote_code, **large)
        given: dict[str, Any] = {**asking.targets_of(lens, target, foil, None), "query": query}
        del given["score"]
        inputs = [_input(text, pair) for text in texts]
        write_report(lens, output, texts=inputs, methods=names, **given, **page)
    print(printable(f"{output} ({output.stat().st_size / 1e6:.2f} MB)"))


def _run_folder(given: list[str]) -> Path | None:
    """The folder that is meant, if one is. What looks like a path and is none would make a strange text."""
    for one in given:
        folder = os.path.isdir(one)  # False also of a text that is too long for a name
        if folder and len(given) > 1:
            raise InputError(f"{one!r} is a folder, and a report shows one run: give it alone.")
        if "/" in one and not any(char.isspace() for char in one) and not folder:
            raise InputError(f"there is no folder {one!r:.200}. Give the folder of a run, or texts with spaces in them.")
    if len(given) == 1 and len(given[0].split()) == 1 and not os.path.isdir(given[0]):
        said = f"{given[0]!r:.200} is no folder, so it is shown as a text of one word. For a run give its folder."
        print(f"mixlens: {printable(said)}", file=sys.stderr)
    return Path(given[0]) if given and os.path.isdir(given[0]) else None


@app.command(epilog="Example:  mixlens serve --model agreement --model sentiment")
def serve(
    model: Annotated[
        list[str] | None, typer.Option("--model", "-m", help="A hub id, a folder or an embedded model; may be given again.")
    ] = None,
    host: Annotated[str, typer.Option("--host", help="The address to listen on. Others than 127.0.0.1 open it to others.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option("--port", help="0 takes any free one.", min=0, max=65535)] = 8765,
    allow_host: Annotated[
        list[str] | None, typer.Option("--allow-host", help="A name by which browsers may reach it; may be given again.")
    ] = None,
    max_tokens: Annotated[int, typer.Option("--max-tokens", help="The longest text, in tokens.", min=1)] = 512,
    queue: Annotated[int, typer.Option("--queue", help="How many texts may wait.", min=1)] = 8,
    time_limit: Annotated[float, typer.Option("--time-limit", help="Seconds that one text may take.", min=0.1)] = 120.0,
    task: Task = None,
    device: Device = None,
    dtype: Dtype = None,
    device_map: DeviceMap = None,
    max_memory: MaxMemory = None,
    offload_folder: OffloadFolder = None,
    quantization: Quantization = None,
    trust_remote_code: Trust = False,
) -> None:
    """The page of a report in the browser, for texts typed there. Listens on this machine alone."""
    try:
        from ..serve.app import Limits, run
    except ImportError as error:
        raise MixlensError(f"the local page needs {error.name}: pip install 'mixlens[serve]'.") from None
    names = list(dict.fromkeys(model or ["agreement", "sentiment"]))
    limits = Limits(tokens=max_tokens, queue=queue, seconds=time_limit)
    large = _large(device_map, max_memory, offload_folder, quantization)
    lenses = [_load(name, task, device, dtype, trust_remote_code, **large) for name in names]
    run(lenses, host=host, port=port, allowed=tuple(allow_host or ()), limits=limits)


@app.command()
def methods() -> None:
    """What `--method` takes, one line each: name, kind, paper, cost in forward passes, variants, what it is."""
    from ..attributions import known as attributions
    from ..maps import known as maps
    from ..show.layout import listed
    from ..show.text import console

    rows = [("method", "kind", "cost", "paper", "variants", "what it is")]
    rows += [(m.id, "map", m.cost, m.paper.split(",")[0], ", ".join(m.variants), m.summary) for m in maps().values()]
    for a in attributions().values():
        kind = "to a target" if a.needs_target else "to a position"
        rows.append((a.id, kind, a.cost, a.paper.split(",")[0], ", ".join(a.variants), a.summary))
    last = "Every method works on every family of `mixlens families`; `to a target` methods need a model with a head."
    width = console().width
    print("\n".join([*listed(rows, width), "", *listed([(last,)], width)]))


@app.command()
def families() -> None:
    """The kinds of model that are known, and where their norms sit."""
    from ..model.families import known
    from ..show.layout import listed
    from ..show.text import console

    rows = [("model types", "when", "feed-forward", "norms")]
    for family in known():
        norms = [
            name.removeprefix("norm_").replace("_", " ")
            for name in vars(family)
            if name.startswith("norm_") and getattr(family, name) is not None
        ]
        kind = ("gated" if family.mlp_gate else "plain") + (", beside attention" if family.parallel else "")
        when = ", ".join(f"{key}={value}" for key, value in family.when.items())
        rows.append((", ".join(family.model_types), when, kind, ", ".join(norms)))
    print("\n".join(listed(rows, console().width)))


@app.command(epilog="Example:  mixlens check bert-base-uncased --dtype float64")
def check(
    model: Annotated[str, typer.Argument(help="A hub id, a folder, or an embedded model.")] = "agreement",
    task: Task = None,
    device: Device = None,
    dtype: Dtype = None,
    device_map: DeviceMap = None,
    max_memory: MaxMemory = None,
    offload_folder: OffloadFolder = None,
    quantization: Quantization = None,
    tokens: Annotated[int, typer.Option("--tokens", help="Length of the random input.", min=1)] = 32,
    trust_remote_code: Trust = False,
) -> None:
    """Run every identity on a model and print the gaps. Exit code 2 if one is more than rounding."""
    from rich.table import Table

    from ..layer.proof import IDENTITIES, measured
    from ..model.offload import linearity_hint
    from ..show.text import console

    large = _large(device_map, max_memory, offload_folder, quantization)
    lens = _load(model, task, device, dtype, trust_remote_code, check=False, **large)
    proof = measured(lens, tokens=tokens)
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("", "identity", "largest relative gap", "allowed", "layer"):
        table.add_column(column)
    for name, gap in proof.gaps.items():
        passed = "ok" if name not in proof.failed else "FAILS"
        table.add_row(passed, IDENTITIES[name], f"{gap:.1e}", f"{proof.allowed[name]:.0e}", str(proof.worst_layer[name] + 1))
    out = console()
    told = f"{lens.name}: {lens.n_layers} layers, family {lens.family.name}, {lens.task}, {proof.tokens} random tokens"
    told += f", on {lens.placement}" if lens.dispatched else ""
    told += f", {lens.quantization}" if lens.quantization is not None else ""
    out.print(printable(told), markup=False)
    out.print(table)
    if proof.failed:
        hint = linearity_hint([lens.hf_model])
        raise MixlensError(f"{len(proof.failed)} of {len(proof.gaps)} identities do not hold on {model!r}.{hint}")


def main() -> None:
    """Errors are one line and exit code 2, never a traceback; Ctrl-C is one line and exit code 130, whenever it comes."""
    from ..__main__ import interruptible

    with interruptible():
        try:
            app()
        except MixlensError as error:
            print(f"mixlens: {' '.join(map(printable, str(error).splitlines()))}", file=sys.stderr)
            sys.exit(2)
        except BrokenPipeError:
            sys.exit(1)


if __name__ == "__main__":
    main()
