"""The nouns: Example, LayerTrace, Trace, Map, Attribution, Record. They hold; the verbs on them are one-line calls."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from .base.doors import door

if TYPE_CHECKING:
    import pandas

    from .model.model import Model
    from .model.parts import LayerParts
    from .scoring.head_maps import HeadRole

Words = tuple[tuple[str, tuple[int, ...]], ...]  # each word's text and the positions of its tokens
Prediction = list[tuple[str, float]]  # what the model says, most probable first


@dataclass(frozen=True)
class Example:
    """One text (or pair of texts) and what is known about it. Cues are character spans of `text`."""

    text: str
    pair: str | None = None
    target: str | int | None = None
    foil: str | int | None = None
    cues: tuple[tuple[int, int], ...] = ()
    id: str | None = None
    info: Mapping[str, Any] = field(
        default_factory=dict, repr=False, hash=False
    )  # what else is known; see docs/use/data.md


@dataclass(frozen=True)
class Chat:
    """A conversation in the place of a text: messages with a role and a content, written out by the tokenizer's
    template."""

    messages: tuple[Mapping[str, str], ...] = field(hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "messages", tuple(self.messages) if isinstance(self.messages, Sequence) else self.messages
        )


@dataclass(frozen=True, eq=False)
class LayerTrace:
    """One layer of one forward pass. Axes: [... pos d] and [... head pos e]; `...` is a batch axis or nothing.

    Queries and keys are kept (n x d), not attention (heads x n x n): it is computed again when a method asks.
    """

    parts: LayerParts = field(repr=False)
    input: Tensor
    value: Tensor  # [... key_head pos e]
    attention_output: Tensor  # what W_O wrote, bias included
    mlp_output: Tensor
    output: Tensor
    query: Tensor | None = None  # [... head pos e], after position rotation
    key: Tensor | None = None
    mask: Tensor | None = None  # [... 1 query key]: bool (True = may look) or added to the logits
    scaling: float = 1.0
    softcap: float | None = None
    weights: Tensor | None = None  # attention itself, where the model hands out nothing else
    middle: Tensor | None = None  # what the norm after attention put out, where there is one

    @property
    def attention(self) -> Tensor:
        """[... head query key] in at least float32. A row that may look nowhere is zero."""
        from .model.attention import attention_of

        return attention_of(self)


class LayersOf(Sequence[LayerTrace]):
    """The layers of one example of a traced batch, padding cut off: each is cut out when it is first asked for."""

    def __init__(self, batch: Sequence[LayerTrace], row: int, n: int):
        self.batch, self.row, self.n = batch, row, n  # the whole batch stays, so that many traces can be scored as one
        self._cut: dict[int, LayerTrace] = {}

    def __len__(self) -> int:
        return len(self.batch)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        number = range(len(self))[index]
        if number not in self._cut:
            self._cut[number] = cut(self.batch[number], self.row, self.n)
        return self._cut[number]


POSITIONS = ("input", "attention_output", "mlp_output", "output", "middle", "query", "key", "value")  # [... pos .]
PAIRS = ("mask", "weights")  # [... query key]


def cut(layer: LayerTrace, rows: int | slice | list[int], n: int) -> LayerTrace:
    """One example of a batch, or several, to the first n positions. What all examples share, such as a mask, has one
    row."""
    changes: dict[str, Any] = {}
    for name, whole in tensors_of(layer).items():
        shared = whole.shape[0] == 1
        some = whole[0] if shared and isinstance(rows, int) else whole if shared else whole[rows]
        changes[name] = some[..., :n, :] if name in POSITIONS else some[..., :n, :n]
    return replace(layer, **changes)


def tensors_of(layer: LayerTrace) -> dict[str, Any]:
    """The tensors of a layer that have an axis of positions, by name."""
    tensors = {name: getattr(layer, name) for name in POSITIONS + PAIRS}
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def without_batch(layer: LayerTrace) -> LayerTrace:
    """A batch of one example without its batch axis."""
    if layer.input.dim() == 2:
        return layer
    return replace(layer, **{name: tensor[0] for name, tensor in tensors_of(layer).items()})


@dataclass(frozen=True, eq=False)
class Trace:
    """One forward pass over one example, recorded: no batch axis, no padding."""

    model: Model = field(repr=False)
    tokens: tuple[str, ...]
    input_ids: tuple[int, ...]
    layers: Sequence[LayerTrace] = field(repr=False)
    special: tuple[bool, ...] = field(repr=False)
    attention_mask: tuple[int, ...] = field(repr=False)
    token_type_ids: tuple[int, ...] | None = field(default=None, repr=False)
    words: Words | None = field(default=None, repr=False)
    text: str | None = None
    pair: str | None = None
    logits: Tensor | None = field(default=None, repr=False)  # [class], or [position, vocabulary] at `predicts`
    predicts: tuple[int, ...] = ()  # the positions whose logits were kept (masks; the last token)
    info: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def hidden_states(self) -> Tensor:
        """[layer + 1, pos, d]: what entered the first layer, then what each layer put out (before any final norm)."""
        states = [self.layers[0].input, *(layer.output for layer in self.layers)]
        return torch.stack([state.to(self.model.device) for state in states])  # each may be where its layer ran

    @property
    def query(self) -> int:
        """Where the prediction is read: the one [MASK], the last token of a causal model, else the first token."""
        from .model.predict import default_query

        return default_query(self)

    def prediction(self, k: int = 5) -> Prediction:
        """The k most probable words or classes, with probabilities; empty for a model without a head."""
        from .model.predict import prediction

        return prediction(self, k=k)


class _Result:
    """What Map and Attribution share."""

    scores: Tensor
    tokens: tuple[str, ...]
    method: str
    info: Mapping[str, Any]

    def to_numpy(self) -> np.ndarray:
        return self.scores.cpu().numpy().copy()

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write scores and all that is known of them to a .safetensors or .json file (.csv: scores), whole or not at
        all. A file that is no result of mixlens is kept, unless `force`."""
        from .scoring.saving import save

        save(self, path, force=force)  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, Any]:
        """Everything in plain types: texts, numbers, lists and dicts."""
        from .scoring.saving import dict_of

        return dict_of(self)  # type: ignore[arg-type]

    def to_json(self, path: str | os.PathLike[str] | None = None, *, force: bool = False) -> str | None:
        """`to_dict` as JSON, which `mixlens.load_result` reads back; with a path it is written there, as `save`
        does."""
        from .scoring.saving import saved_or_text

        return saved_or_text(self, path, ".json", force=force)  # type: ignore[arg-type]

    def to_csv(self, path: str | os.PathLike[str] | None = None, *, force: bool = False) -> str | None:
        """The scores as a table; with a path it is written there, as `save` does."""
        from .scoring.saving import saved_or_text

        return saved_or_text(self, path, ".csv", force=force)  # type: ignore[arg-type]

    def __add__(self, other: Any) -> Any:
        from .scoring.arithmetic import combined

        return combined(self, other, 1)  # type: ignore[type-var]

    def __sub__(self, other: Any) -> Any:
        from .scoring.arithmetic import combined

        return combined(self, other, -1)  # type: ignore[type-var]

    def __mul__(self, factor: Any) -> Any:
        from .scoring.arithmetic import multiplied

        return multiplied(self, factor)  # type: ignore[type-var]

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> Any:
        from .scoring.arithmetic import divided

        return divided(self, divisor)  # type: ignore[type-var]

    def __neg__(self) -> Any:
        return self * -1

    def __getitem__(self, index: Any) -> Any:
        """One score, by a position or a word; or a part, by a slice or a list. See `arithmetic.part`."""
        from .scoring.arithmetic import part

        return part(self, index)  # type: ignore[type-var]

    __iter__ = None  # without it, Python would go through a[0], a[1], ... until one is refused

    def normalize(self, how: str = "share") -> Any:
        """Scores over the sum of their sizes ("share"), the largest ("max") or their length ("length"); of a map row
        by row."""
        from .scoring.arithmetic import normalized

        return normalized(self, how)  # type: ignore[type-var]

    def show(self, **options: Any) -> None:
        """Print to the terminal."""
        from .show.text import show

        show(self, **options)  # type: ignore[arg-type]

    def plot(self, **options: Any) -> Any:
        """A paper figure (matplotlib): `.plot().save("x.svg")`. The kinds and options are those of `mixlens.plot`."""
        from .show.figure.drawing import plot

        return plot(self, **options)  # type: ignore[arg-type]

    def _repr_html_(self) -> str:
        from .show.notebook import html

        return html(self)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Map(_Result):
    """scores[layer, query, key]: how much of token *key* went into position *query*. They stay on the model's
    device."""

    scores: Tensor = field(repr=False)
    tokens: tuple[str, ...]
    method: str
    info: Mapping[str, Any] = field(default_factory=dict, repr=False)
    special: tuple[bool, ...] = field(default=(), repr=False)
    words: Words | None = field(default=None, repr=False)

    def rollout(
        self, convention: str | None = None, *, residual: bool | None = None, normalize: bool | None = None
    ) -> Map:
        """Input to layer l, for every l: the product of the layers' matrices. See `aggregate.rollout`."""
        from .scoring.aggregate import rollout

        return rollout(self, convention, residual=residual, normalize=normalize)

    def flow(
        self, convention: str | None = None, *, residual: bool | None = None, normalize: bool | None = None
    ) -> Map:
        """Input to layer l, for every l: maximum flows. See `aggregate.flow`, which is much quicker for one position
        alone."""
        from .scoring.aggregate import flow

        whole = flow(self, convention, residual=residual, normalize=normalize)
        assert isinstance(whole, Map)
        return whole

    def sum(self) -> Map:
        """The layers' scores added up, a map of one layer. See `aggregate.layer_sum`."""
        from .scoring.aggregate import layer_sum

        return layer_sum(self)

    def readout(self, query: int | str, *, layer: int = -1, keep_special: bool = True) -> Attribution:
        """One row of one layer: what the position `query` is made of. See `aggregate.readout`."""
        from .scoring.aggregate import readout

        return readout(self, query, layer=layer, keep_special=keep_special)

    def report(self, path: str | os.PathLike[str], **options: Any) -> Path:
        """Write the page of what flowed where, one HTML file. See `show.flow_page.write_flow`."""
        from .show.flow_page import write_flow

        return write_flow(self, path, **options)

    def by_word(self) -> Map:
        """Subwords to words: summed over keys, averaged over queries."""
        from .scoring.by_word import by_word

        return by_word(self)

    def to_pandas(self) -> pandas.DataFrame:
        """One row per layer, query and key."""
        from .scoring.saving import frame_of

        return frame_of(self)


@dataclass(frozen=True, eq=False)
class HeadMaps(_Result):
    """scores[layer, head, query, key]: the map of every head of every layer, by one method."""

    scores: Tensor = field(repr=False)
    tokens: tuple[str, ...]
    method: str
    info: Mapping[str, Any] = field(default_factory=dict, repr=False)
    special: tuple[bool, ...] = field(default=(), repr=False)
    words: Words | None = field(default=None, repr=False)

    def head(self, head: int) -> Map:
        """One head in every layer: what `mix(..., head=head)` gives."""
        from .scoring.head_maps import map_of_head

        return map_of_head(self, head)

    def layer(self, layer: int) -> HeadMaps:
        """The heads of one layer, [1 head query key]."""
        from .scoring.head_maps import heads_of_layer

        return heads_of_layer(self, layer)

    def roles(self) -> list[HeadRole]:
        """What each head of each layer does most, in one name and a share. See `head_maps.ROLES`."""
        from .scoring.head_maps import roles_of

        return roles_of(self)

    def by_word(self) -> HeadMaps:
        """Subwords to words: summed over keys, averaged over queries."""
        from .scoring.by_word import by_word

        return by_word(self)

    def to_pandas(self) -> pandas.DataFrame:
        """One row per layer, head, query and key."""
        from .scoring.saving import frame_of

        return frame_of(self)


@dataclass(frozen=True, eq=False)
class Attribution(_Result):
    """scores[pos]: how much each input token counted for one target."""

    scores: Tensor = field(repr=False)
    tokens: tuple[str, ...]
    method: str
    info: Mapping[str, Any] = field(default_factory=dict, repr=False)
    special: tuple[bool, ...] = field(default=(), repr=False)
    words: Words | None = field(default=None, repr=False)

    def by_word(self) -> Attribution:
        """Subwords to words: summed."""
        from .scoring.by_word import by_word

        return by_word(self)

    @door
    def top(self, k: int = 5) -> list[tuple[str, float]]:
        """The k tokens with the largest absolute score."""
        order = self.scores.abs().argsort(descending=True)[:k].tolist()
        return [(self.tokens[i], float(self.scores[i])) for i in order]

    def to_latex(self, *, standalone: bool = False) -> str:
        """A heat strip for a paper, by xcolor's \\colorbox alone; `standalone`: a whole document. See `show.latex`."""
        from .show.latex import latex

        return latex(self, standalone=standalone)

    def to_pandas(self) -> pandas.DataFrame:
        """One row per token."""
        from .scoring.saving import frame_of

        return frame_of(self)


@dataclass(frozen=True)
class Record:
    """One measured number."""

    example: str
    method: str
    metric: str
    value: float
    info: Mapping[str, Any] = field(default_factory=dict)


Result = Map | Attribution
Text = str | Example | Chat | tuple[str, str]  # one text, as a user gives it
Texts = Text | Sequence[Text]
