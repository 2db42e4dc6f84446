"""`methods`, `families`, `data` and `check`: what there is, and whether a model is what its family says."""

from __future__ import annotations

from typing import Annotated

import typer

from ..base.errors import MixlensError, printable
from . import completion
from .options import LoadOptions, loads_a_model

CHECK_EXAMPLE = "Example:  mixlens check bert-base-uncased --dtype float64"
EVERY_FAMILY = (
    "Every method works on every family of `mixlens families`; `to a target` methods need a model with a head."
)
OTHER_DATA = "Fields of local files: docs/use/data.md. Any other file or hub dataset with texts: mixlens.data.read."


def methods() -> None:
    """What `--method` takes, one line each: name, kind, paper, cost in forward passes, variants, what it is."""
    from ..scoring.attributions import known as attributions
    from ..scoring.maps import known as maps
    from ..show.tables import listed
    from ..show.text import console

    kinds = [(one, "map") for one in maps().values()]
    kinds += [(one, "to a target" if one.needs_target else "to a position") for one in attributions().values()]  # type: ignore[misc]
    rows = [("method", "kind", "cost", "paper", "variants", "what it is")]
    rows += [
        (one.id, kind, one.cost, one.paper.split(",")[0], ", ".join(one.variants), one.summary) for one, kind in kinds
    ]
    width = console().width
    print("\n".join([*listed(rows, width), "", *listed([(EVERY_FAMILY,)], width)]))


def families() -> None:
    """The kinds of model that are known, and where their norms sit."""
    from ..model.families import known
    from ..show.tables import listed
    from ..show.text import console

    rows = [("model types", "when", "feed-forward", "norms")]
    for family in known():
        when = ", ".join(f"{key}={value}" for key, value in family.when.items())
        kind = ("gated" if family.mlp_gate else "plain") + (", beside attention" if family.parallel else "")
        norms = [name for name, module in vars(family).items() if name.startswith("norm_") and module is not None]
        places = ", ".join(name.removeprefix("norm_").replace("_", " ") for name in norms)
        rows.append((", ".join(family.model_types), when, kind, places))
    print("\n".join(listed(rows, console().width)))


def data() -> None:
    """The datasets known by name: task, what is known, labels, where from, licence, paper."""
    from ..data import listing
    from ..show.tables import listed
    from ..show.text import console

    width = console().width
    print("\n".join([*listed(listing(), width), "", *listed([(OTHER_DATA,)], width)]))


@loads_a_model
def check(
    model: Annotated[
        str, typer.Argument(help="A hub id, a folder, or an embedded model.", autocompletion=completion.models)
    ] = "agreement",
    loading: LoadOptions = LoadOptions(),  # noqa: B008 - frozen
    tokens: Annotated[int, typer.Option("--tokens", help="Length of the random input.", min=1)] = 32,
) -> None:
    """Run every identity on a model and print the gaps. Exit code 2 if one is more than rounding."""
    from ..layer.proof import IDENTITIES, measured
    from ..model.offload import linearity_hint
    from ..show.tables import folded
    from ..show.text import console

    lens = loading.load(model, check=False)
    proof = measured(lens, tokens=tokens)
    line = f"{lens.name}: {lens.n_layers} layers, family {lens.family.name}, {lens.task}, {proof.tokens} random tokens"
    line += f", on {lens.placement}" if lens.dispatched else ""
    line += f", {lens.quantization}" if lens.quantization is not None else ""
    rows = [("", "identity", "largest relative gap", "allowed", "layer")]
    for name, gap in proof.gaps.items():
        passed = "ok" if name not in proof.failed else "FAILS"
        layer = str(proof.worst_layer[name] + 1)
        rows.append((passed, IDENTITIES[name], f"{gap:.1e}", f"{proof.allowed[name]:.0e}", layer))
    out = console()
    out.print(printable(line), markup=False)
    out.print(folded(rows))
    if proof.failed:
        hint = linearity_hint([lens.hf_model])
        raise MixlensError(f"{len(proof.failed)} of {len(proof.gaps)} identities do not hold on {model!r}.{hint}")
