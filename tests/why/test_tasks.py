"""Every task on a tiny random model with a real tokenizer, and every family once: an answer, or one line why there is
none."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
import transformers
from conftest import CAUSAL, DISTINCT, head_of, ids, loaded, randomise

import mixlens
from mixlens.base import errors
from mixlens.scoring import removal, targets

CONTEXT = "The keys to the cabinet were rusty. The author of the books was old."
QUICK = ("grad_x_input", "attcat")  # the identities of trust do not depend on the method


@cache
def tokenizer() -> Any:
    return mixlens.load("agreement").tokenizer


@cache
def tiny(head: str, model_type: str = "bert", **options: Any) -> Any:
    """A random model in float64 that reads the words of the embedded one."""
    small = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    config = transformers.AutoConfig.for_model(
        model_type,
        vocab_size=len(tokenizer()),
        max_position_embeddings=48,
        pad_token_id=tokenizer().pad_token_id,
        **small,
        **options,
    )
    model = getattr(transformers, head).from_config(config)
    randomise(model)
    return mixlens.load(model.to(torch.float64).eval(), tokenizer=tokenizer())


def logits_without(model: Any, text: Any, tokens: set[int]) -> Any:
    """The outputs of the stock model without the tokens at these positions."""
    encoded = model.encode(text)
    kept = [place for place in range(len(encoded.input_ids)) if place not in tokens]
    inputs = {"input_ids": torch.tensor([[encoded.input_ids[place] for place in kept]])}
    if encoded.token_type_ids is not None and any(encoded.token_type_ids):
        inputs["token_type_ids"] = torch.tensor([[encoded.token_type_ids[place] for place in kept]])
    with torch.no_grad():
        return model.hf_model(**inputs), kept


def tokens_of(why: mixlens.Why) -> set[int]:
    return {token for place in why.answer.for_ for token in why.words[place].tokens}


def test_pairs_keep_their_two_texts_apart() -> None:
    model = tiny("AutoModelForSequenceClassification", num_labels=3)
    why = mixlens.why(model, "The keys were rusty.", pair="The key was old.", methods=QUICK)
    segments = {
        segment: "".join(w.before + w.text for w in why.words if w.segment == segment and not w.special)
        for segment in ("text", "pair")
    }
    assert segments == {"text": "The keys were rusty.", "pair": "The key was old."}
    output, _ = logits_without(model, ("The keys were rusty.", "The key was old."), tokens_of(why))
    label = list(why.classes or ()).index(why.answer.target)
    assert why.trust.without == pytest.approx(float(output.logits[0].softmax(-1)[label]), abs=1e-9)
    assert why.pair == "The key was old."


def test_a_tagger_is_asked_about_one_word() -> None:
    model = tiny("AutoModelForTokenClassification", num_labels=3)
    model.hf_model.config.id2label = {0: "O", 1: "LOC", 2: "PER"}
    with pytest.raises(errors.InputError, match=r"Name one: query=WORD\. It tags: The (O|LOC|PER), keys"):
        mixlens.why(model, "The keys were rusty.")
    why = mixlens.why(model, "The keys were rusty.", query="keys", methods=QUICK)
    assert why.question == f"Why did the model tag “keys” as {why.answer.target}?"
    assert why.trust.filler.id == "mask"  # the word that is tagged may be masked, not deleted
    ids_, gone = list(model.encode("The keys were rusty.").input_ids), tokens_of(why)
    masked = [model.mask_id if place in gone else token for place, token in enumerate(ids_)]
    place = next(word.tokens[0] for word in why.words if word.text == "keys")
    with torch.no_grad():
        shares = model.hf_model(input_ids=torch.tensor([masked])).logits[0, place].softmax(-1)
    assert why.trust.without == pytest.approx(float(shares[list(why.classes or ()).index(why.answer.target)]), abs=1e-9)
    deleted = mixlens.why(model, "The keys were rusty.", query="keys", methods=QUICK, filler="delete")
    assert "keys" not in [deleted.words[one].text for one in deleted.answer.for_]


def test_an_answer_is_words_of_the_context_which_stay() -> None:
    model = tiny("AutoModelForQuestionAnswering")
    why = mixlens.why(model, "What was rusty?", pair=CONTEXT, target="the cabinet", methods=QUICK)
    assert why.answer.target == "the cabinet"
    inside = [place for place, word in enumerate(why.words) if word.text in ("cabinet",)]
    assert not set(inside) & set(why.answer.for_)
    start, end = (why.words[inside[0] - 1].tokens[0], why.words[inside[0]].tokens[-1])
    output, kept = logits_without(model, ("What was rusty?", CONTEXT), tokens_of(why))
    chance = output.start_logits[0].softmax(-1)[kept.index(start)] * output.end_logits[0].softmax(-1)[kept.index(end)]
    assert why.trust.without == pytest.approx(float(chance), abs=1e-9)
    best = mixlens.why(model, "What was rusty?", pair=CONTEXT, methods=QUICK)
    assert best.answer.target in (CONTEXT, "no answer") or best.answer.target in CONTEXT
    assert best.predictions[0][0] == best.answer.target
    assert [share for _, share in best.predictions] == sorted((share for _, share in best.predictions), reverse=True)
    with pytest.raises(errors.InputError, match="the context has no 'Paris'"):
        mixlens.why(model, "What was rusty?", pair=CONTEXT, target="Paris")
    with pytest.raises(errors.InputError, match="has no foil"):
        mixlens.why(model, "What was rusty?", pair=CONTEXT, foil="old")


def test_the_last_word_of_a_prompt_may_go_and_the_one_before_it_predicts() -> None:
    model = loaded("gpt2", head="AutoModelForCausalLM")
    prompt = ids(6)
    trace = model.trace(input_ids=prompt)
    target, foil = trace.logits[0].topk(2).indices.tolist()
    asked = targets.resolve(trace, target, foil=foil, score="probability")
    for gone in ([5], [4, 5], [1, 5], [2], [0, 1]):
        kept = torch.tensor([[token for place, token in enumerate(prompt) if place not in gone]])
        with torch.no_grad():
            logits = model.hf_model(input_ids=kept).logits[0, -1]
        (found,) = removal.answers(trace, [gone], asked)
        assert found.value == pytest.approx(float(torch.sigmoid(logits[target] - logits[foil])), abs=1e-9)
        assert found.predicted == (int(logits.argmax()),)
    why = mixlens.why(model, trace, methods=("grad_x_input",))
    assert (why.answer.target, why.answer.foil) == (str(target), str(foil))


def test_a_model_without_a_head_says_nothing() -> None:
    with pytest.raises(errors.InputError, match="without a head"):
        mixlens.why(tiny("AutoModel"), "The keys were rusty.")


@pytest.mark.parametrize("case", DISTINCT)
def test_every_family_has_an_answer(case: str) -> None:
    """Of ids, as these models have no tokenizer: the unit is then the token, and the shares still sum to 1."""
    model = loaded(case, head=head_of(case))
    trace = model.trace(input_ids=ids(7))
    why = mixlens.why(model, trace, methods=("grad_x_input",), draws=1)
    assert why.unit == "token"
    assert sum(abs(word.share) for word in why.words) == pytest.approx(1, abs=1e-6)
    assert why.trust.whole == pytest.approx(why.trust.curve.first[0])
    assert (model.task == "causal-lm") <= (case in CAUSAL)
