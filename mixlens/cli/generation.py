"""What `explain` and `report` do with --generate, --continuation, --chat and --messages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..base.errors import InputError
from ..scoring import command_words
from .keeping import tell_written

if TYPE_CHECKING:
    from ..answers.generation import Generation
    from ..model.model import Model
    from ..scoring.asking import MethodRequest

GenerateCount = Annotated[
    int | None, typer.Option("--generate", help="Let a causal model write this many tokens; explain each.")
]
GivenText = Annotated[
    str | None,
    typer.Option(
        "--continuation", help="Explain these words as if the model had written them; ##ing goes on with a word."
    ),
]
IsChat = Annotated[bool, typer.Option("--chat", help="The text is one message to a chat model, by its own template.")]
MessageFile = Annotated[
    Path | None, typer.Option("--messages", help="A JSON file with a list of messages, each with role and content.")
]
LeaveOut = Annotated[
    bool,
    typer.Option("--leave-out", help="Of a written text: also run it without each word and sentence of the prompt."),
]
Each = Annotated[
    bool, typer.Option("--each", help="Of a written text: one picture for each token instead of one for all.")
]
PageFile = Annotated[
    Path | None, typer.Option("--out", "--output", "-o", help="Of a written text: write a page, an .html file.")
]


@dataclass(frozen=True)
class Writing:
    """The options of a command about a written text."""

    generate: int | None
    continuation: str | None
    leave_out: bool
    each: bool
    page: Path | None
    force: bool = False

    @property
    def asked(self) -> bool:
        return self.generate is not None or self.continuation is not None

    def refuse(self, save: Path | None) -> None:
        """Refuse options that have nothing to work on, and files that cannot be written, before the model is loaded."""
        if self.asked and save is not None and save.suffix.lower() not in (".json", ".csv"):
            raise InputError(f"--save of a written text is a .json or .csv file, not {save.name!r}.")
        if self.page is not None:
            from ..show.page_file import may_write

            may_write(self.page, force=self.force)
        for name, given in (("--leave-out", self.leave_out), ("--each", self.each), ("--out", self.page is not None)):
            if given and not self.asked:
                raise InputError(f"{name} is for a written text: give --generate N or --continuation TEXT too.")

    def refuse_place(self, query: str | None, target: str | None) -> None:
        """Refuse a position and a target: each written token is one."""
        given = [name for name, value in (("--target", target), ("--query", query)) if value is not None]
        if self.asked and given:
            raise InputError(
                f"--generate and --continuation explain each written token: leave {' and '.join(given)} out."
            )

    def refuse_effects(self, save: Path | None, pictures: Mapping[str, bool]) -> None:
        """Refuse --leave-out where neither the picture nor a file shows what leaving out does."""
        beside = next((name for name, is_given in pictures.items() if is_given), None)
        if self.leave_out and save is None and beside is not None:
            raise InputError(
                f"{beside} shows scores alone: leave --leave-out out, or keep it in a file (--save FILE.json)."
            )

    def refuse_idle(self, given: Mapping[str, bool]) -> None:
        """Refuse options that change nothing of a written text: its table has words as columns."""
        idle = [name for name, is_given in given.items() if is_given]
        if self.asked and not self.each and idle:
            raise InputError(f"a written text is shown word by word: leave {' and '.join(idle)} out.")

    def keep(self, result: Generation, save: Path | None) -> None:
        """Write the files that were asked for."""
        if save is not None:
            (result.to_csv if save.suffix.lower() == ".csv" else result.save)(save, force=self.force)
        if self.page is not None:
            result.report(self.page, force=self.force)
        tell_written(save, self.page)

    def generated(
        self,
        lens: Model,
        source: Any,
        request: MethodRequest,
        options: tuple[Any, Any, Any],
        *,
        keep_special: bool,
    ) -> Generation:
        """What each token that was written rests on."""
        from .scores import arguments_of

        target = command_words.targets_of(lens, *options) if request.class_specific else {}
        result: Generation = lens.explain(
            source,
            method=request.name,
            keep_special=keep_special,
            generate=self.generate,
            continuation=self.continuation,
            **arguments_of(request),
            **target,
        )
        return result.with_effects() if self.leave_out or self.page is not None else result


def conversation_of(text: str | None, file: Path | None, chat: bool, messages: Path | None, pair: str | None) -> Any:
    """The conversation that --chat or --messages names; None where there is none."""
    if messages is not None and file is not None:
        raise InputError("--messages holds the whole conversation: leave the text, --file and --chat out.")
    texts = [command_words.text_of(text, file)] if chat and messages is None else [] if text is None else [text]
    found = conversations_of(texts, chat, messages, pair, beside="the text, --file and --chat")
    return None if found is None else found[0]


def conversations_of(
    texts: Sequence[str], chat: bool, messages: Path | None, pair: str | None, *, beside: str = "texts and --chat"
) -> list[Any] | None:
    """The conversations that --chat (each text is one message) or --messages names; None where there are none."""
    if pair is not None and (chat or messages is not None):
        raise InputError(
            "--pair is a second text, and a conversation has none: leave it out, or --chat and --messages."
        )
    if messages is None:
        written: list[Any] = [[{"role": "user", "content": text}] for text in texts] if chat else []
    elif chat or texts:
        raise InputError(f"--messages holds the whole conversation: leave {beside} out.")
    else:
        try:
            written = [json.loads(messages.read_text(encoding="utf-8-sig"))]
        except OSError as error:
            raise InputError(f"--messages: {str(messages)!r} cannot be read: {error.strerror}.") from None
        except ValueError:
            raise InputError(f"--messages: {str(messages)!r} is not JSON in UTF-8.") from None
    if not written:
        return None
    from ..model.chat import instead_of

    return [instead_of(None, one) for one in written]
