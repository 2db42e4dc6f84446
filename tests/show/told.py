"""All that terminals, notebooks and pages show of values made up by hand. `python tests/show/told.py --again` keeps it
anew in
`told.json`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import kept
import made_values as made
import told_runs
import torch
import why_example

from mixlens import Attribution, Map
from mixlens.show import (
    flow_page,
    generation_page,
    generation_text,
    latex,
    notebook,
    results_page,
    tables,
    text,
    why_notebook,
    why_page,
    why_text,
)

PATH = Path(__file__).with_name("told.json")


def refusal(call: Callable[[], Any]) -> str:
    """What a call says when it refuses."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no refusal"


def lined(picture: Any, *widths: int) -> dict[str, list[str]]:
    """A picture at several widths, without colours."""
    return {str(width): text.rendered(picture, width=width).splitlines() for width in widths or (100,)}


# --- colours, letters, tokens -----------------------------------------------------------------------------------------


# --- lines above a picture --------------------------------------------------------------------------------------------

OFF = {"completeness": {"sum": 1.5, "expected": 2.0, "relative_gap": 0.25}}
NEAR = {"completeness": {"sum": 1.5, "expected": 1.5001, "relative_gap": 0.004}}
EXACT = {"completeness": {"sum": 1.5, "expected": 1.5, "relative_gap": 1e-9}}
INFOS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "plain": {"model": "m", "variant": "paper"},
    "variant": {"model": "m\n", "variant": "released", "gap": 2.5e-7, **NEAR, "layer": 0},
    "rollout": {"rollout": {"convention": "alti"}, "options": {"head": 0}, "layer": 3, **EXACT},
    "flow": {"rollout": {"convention": "abnar", "flow": True}, "options": {"head": None}, **OFF},
    "removed": {"special_removed": {"share": 0.25, "sum": 3.0}, "options": None},
    "removed to one": {
        "special_removed": {"sum": 0.00041, "rest_made_to_sum_to_1": True},
        "notices": ["Look.", "a\tb"],
    },
    "removed sum": {"special_removed": {"sum": -1.23456}, "special_tokens": "left out"},
    "not removed": {"special_removed": False, "special_tokens": "kept", "variant": None},
    "norms": {"distribution": False, "target": "x", "score": "logit"},
    "shares": {"distribution": True, "target": "x", "score": "log_prob", "convention": "alti"},
    "target": {"target": "was - were", "score": "log_prob", "query": 2, "query_token": "Ġkeys"},
    "position": {"query": 0, "query_token": "[CLS]"},
    "generated": {"generated": "Ġ.", "query": 7, "query_token": "Ċ", "target": 3, "score": "logit"},
}


# --- pictures of a terminal -------------------------------------------------------------------------------------------


def long_attribution(n: int, **info: Any) -> Attribution:
    scores = [((7 * i) % 31 - 9) / 10 for i in range(n)]
    return Attribution(
        torch.tensor(scores, dtype=torch.float64), tuple(f"w{i}" for i in range(n)), "attcat", {**made.INFO, **info}
    )


# --- pictures of a terminal -------------------------------------------------------------------------------------------


def table_texts() -> Any:
    rows = [
        ["name", "kind", "what it is"],
        ["a", "", "one"],
        ["longer", "map", "two words, and some more of them"],
        ["", "b", ""],
    ]
    return {
        "aligned": tables.aligned(rows),
        "listed": {str(width): tables.listed(rows, width) for width in (46, 45, 40)},
        "folded": lined(tables.folded(rows), 40),
        "hyphens": tables.listed([["a", "well-known-and-long " * 3, "x"]], 44),
    }


def headings() -> Any:
    return {name: lined(text.view(made.attribution((0.5, 0.25), **info)), 120) for name, info in INFOS.items()}


def attribution_texts() -> Any:
    one = made.attribution(**OFF)
    strange = ("日本語 abc", "日本", "##語", "שלום")
    return {
        "one": lined(text.view(one), 100, 60, 40),
        "top": lined(text.view(one, top=3)),
        "all of many": lined(text.view(long_attribution(31), top=0), 50),
        "few of many": lined(text.view(long_attribution(31)), 50, 40),
        "thirty": lined(text.view(long_attribution(30)), 50),
        "words": lined(text.view(made.attribution().by_word())),
        "norms": lined(text.view(made.row_of_map(distribution=False))),
        "zeros": lined(text.view(made.attribution((0.0, 0.0)))),
        "no prediction": lined(text.view(made.attribution(prediction=None, query_token=None))),
        "wide letters": lined(text.view(replace(made.attribution((1.0, -1.0, 0.5, 0.2)), tokens=strange)), 40),
        "colours": text.rendered(text.view(one, top=4), width=60, color=True).splitlines(),
        "refused": refusal(lambda: text.view(one, top=-1)),
    }


def row_texts() -> Any:
    rows = [made.attribution(), made.row_of_map(), made.attribution(method="a method with a long name", **OFF)]
    words = [made.attribution().by_word(), made.row_of_map().by_word()]
    other = replace(long_attribution(61), method="other", scores=long_attribution(61).scores.flip(0))
    sixty = [long_attribution(60)]
    return {
        "numbers": lined(text.compare_view(rows), 100, 60, 40),
        "names": lined(text.compare_view(rows[:2], names=["x", "y"], top=3)),
        "layers": lined(text.compare_view([made.row_of_map(layer=0), made.row_of_map(layer=1)], layers=True)),
        "words": lined(text.compare_view(words), 80),
        "many": lined(text.compare_view([long_attribution(61), other]), 80),
        "all of many": lined(text.compare_view([long_attribution(61), other], top=0), 80),
        "sixty": lined(text.compare_view(sixty), 80),
        "colours": [
            text.rendered(text.compare_view(rows), width=width, color=True).splitlines() for width in (40, 75, 120)
        ],
        "refused": [refusal(lambda: text.compare_view([])), refusal(lambda: text.compare_view([rows[0], sixty[0]]))],
    }


def map_texts() -> Any:
    one, signed = made.a_map(2, 4, notices=["Look."]), made.a_map(1, 3)
    scores = signed.scores.clone()
    scores[0, 0, 1], scores[0, 1, 0], scores[0, 2, 2], scores[0, 2, 0] = -0.5, 123.0, -9.999, 10.0
    signed = replace(signed, scores=scores)
    return {
        "map": lined(text.view(one), 100, 40),
        "layer": lined(text.view(one, layer=0)),
        "signed": lined(text.view(signed), 60, 40),
        "sixty-four": lined(text.view(made.a_map(1, 64)), 500)["500"][:6],
        "largest": lined(text.view(made.a_map(1, 65)), 100, 40),
        "refused": [refusal(lambda layer=layer: text.view(one, layer=layer)) for layer in (-3, -2, -1, 0, 1, 2)],
        "colours": text.rendered(text.view(one, layer=1), width=50, color=True).splitlines(),
        "colours of signs": text.rendered(text.view(signed), width=50, color=True).splitlines(),
    }


def head_texts() -> Any:
    one = made.heads()
    few = replace(one, method="norm", scores=-one.scores[:, :1], special=(True,) * 10)
    return {
        "last": lined(text.view(one), 120, 80, 60, 52, 45),
        "first": lined(text.view(one, layer=0)),
        "many": lined(text.view(made.heads(1, 11, notices=["Look."]))),
        "few": lined(text.view(few)),
        "colours": text.rendered(text.view(one), color=True).splitlines(),
    }


def generation_texts() -> Any:
    cases = {
        "effects": made.generation(),
        "plain": made.generation(effects=False, given=True, gap=None),
        "signed": made.generation(signed=True),
        "chat": made.chat(),
    }
    views = {
        (name, by): generation_text.generation_view(case, by=by)
        for name, case in cases.items()
        for by in (None, "word", "sentence")
    }
    found: dict[str, Any] = {f"{name} {by}": lined(view, 110, 66, 40) for (name, by), view in views.items()}
    for name in ("effects", "signed"):
        found[f"colours of {name}"] = text.rendered(views[name, "word"], width=80, color=True).splitlines()
    found["refused"] = refusal(lambda: generation_text.generation_view(cases["plain"], by="letter"))
    return found


def why_texts() -> Any:
    found: dict[str, Any] = {}
    for name, changes in ANSWERS.items():
        widths = (100, 60, 40) if name in ("usual", "pair") else (100,)
        found[name] = lined(why_text.view(made.answer(**changes)), *widths)
    for name in ("usual", "unsigned"):
        view = why_text.view(made.answer(**ANSWERS[name]))
        found[f"colours of {name}"] = text.rendered(view, width=70, color=True).splitlines()
    return found


# --- an answer --------------------------------------------------------------------------------------------------------


def _many_words(n: int) -> list[dict[str, Any]]:
    scores = [((5 * i) % 13 - 4) / 10 for i in range(n)]
    whole = sum(map(abs, scores)) or 1.0
    return [
        {
            **why_example.word(1),
            "text": f"w{i}",
            "before": " " if i else "",
            "score": score,
            "share": score / whole,
            "tokens": [i],
        }
        for i, score in enumerate(scores)
    ]


def _pair() -> list[dict[str, Any]]:
    words = [why_example.word(place) for place in range(len(why_example.WORDS))]
    second = [
        {**words[2], "segment": "pair", "text": text, "before": before}
        for text, before in (("日本語", ""), ("so", "\n\n"), ("b\u200b", " -- \n"))
    ]
    return [*words, *second]


NOTES = [
    {"id": "n", "state": state, "text": f"A note that says {state}."} for state in ("caution", "fail", "ok", "info")
]
RANDOM = why_example.trust()["random"]
ANSWER = why_example.example()["answer"]
ANSWERS: dict[str, dict[str, Any]] = {
    "usual": {"notes": NOTES},
    "foil": {
        "answer": {**ANSWER, "foil": "negative", "for": [6], "against": []},
        "trust": why_example.trust(k=1, verdict="caution"),
    },
    "nothing": {
        "answer": {**ANSWER, "for": [], "against": []},
        "trust": why_example.trust(k=0, single=None, checks=[], verdict="fail", sentence="No."),
        "gaps": {"completeness": None, "reconstruction": None},
        "agreement": {"same": 0, "of": 2, "k": 0},
    },
    "one method": {
        "agreement": {"same": 1, "of": 1, "k": 3},
        "trust": why_example.trust(
            random={**RANDOM, "count": 0, "turned": 0, "values": []}, single={"word": 7, "without": 0.2, "turned": True}
        ),
    },
    "two": {
        "trust": why_example.trust(k=2, random={**RANDOM, "all": True, "count": 1, "turned": 1}),
        "agreement": {"same": 2, "of": 2, "k": 1},
    },
    "unsigned": {"method": {**why_example.example()["method"], "signed": False}},
    "sixty": {"words": _many_words(60), "answer": {**ANSWER, "for": [2], "against": [1]}},
    "many": {"words": _many_words(61), "answer": {**ANSWER, "for": [2], "against": [1]}},
    "pair": {"words": _pair(), "pair": "日本語 so b", "text": "a\u200bb\n" + "x" * 70},
    "zeros": {
        "words": [{**one, "share": 0.0} for one in _many_words(3)],
        "answer": {**ANSWER, "for": [], "against": []},
        "trust": why_example.trust(single=None),
    },
    "one more": {
        "words": [{**one, "share": share} for one, share in zip(_many_words(3), (0.5, 0.47, 0.02999), strict=True)],
        "answer": {**ANSWER, "for": [0], "against": []},
        "trust": why_example.trust(single=None),
    },
    "weak": {
        "words": [{**one, "share": share} for one, share in zip(_many_words(3), (0.01, -0.02, 0.005), strict=True)],
        "answer": {**ANSWER, "for": [0], "against": []},
        "trust": why_example.trust(single=None),
    },
}


# --- notebooks and pages ----------------------------------------------------------------------------------------------


def html_parts(page: str) -> Any:
    """A page or an output with its style and its script taken out."""
    short = re.sub(r"<style>.*?</style>", "<style></style>", page, flags=re.DOTALL)
    short = re.sub(
        r"<script>.*?</script>|<script type=\"text/javascript\">.*?</script>",
        "<script></script>",
        short,
        flags=re.DOTALL,
    )
    short = re.sub(r"'sha256-[^']*'", "'sha256'", re.sub(r'data-mixlens="[0-9a-f]*"', "data-mixlens", short))
    short = re.sub(r"made \d{4}-\d\d-\d\d", "made today", short)
    return re.sub(r"((?:&quot;|\")data(?:&quot;|\"): ?(?:&quot;|\"))[A-Za-z0-9+/=]+", r"\1", short).split("\n")


def page_of(html: str) -> Any:
    """What a page shows without scripts, and the data that its script reads, without the numbers of blocks."""
    html = re.sub(r"made \d{4}-\d\d-\d\d", "made today", html)
    found = re.search(r'id="data"[^>]*>(.*?)</', html, flags=re.DOTALL)
    assert found is not None
    return {
        "page": [line for line in html_parts(html) if 'id="data"' not in line][5:],
        "data": without_blocks(json.loads(found[1])),
    }


def notebooks() -> Any:
    big = replace(made.a_map(1, 64), tokens=tuple(f"t{i}" for i in range(64)))
    return {
        "attribution": html_parts(notebook.html(made.attribution())),
        "row": html_parts(notebook.html(made.row_of_map(prediction=None))),
        "map": html_parts(notebook.html(made.a_map(2, 3))),
        "large map": notebook.without_script(big)[-120:],
        "last layer alone": re.findall("<summary>.*?</summary>", notebook.without_script(made.a_map(2, 45))),
        "all layers": re.findall("<details.*?</summary>", notebook.without_script(made.a_map(4, 20))),
        "heads": html_parts(notebook.html(made.heads())),
        "infinite": html_parts(notebook.html(made.attribution((float("inf"), 1.0)))),
        "written": html_parts(generation_page.notebook_html(made.generation())),
        "written against": html_parts(generation_page.notebook_html(made.generation(signed=True))),
        "why": {
            name: html_parts(why_notebook.without_script(made.answer(**changes)))
            for name, changes in ANSWERS.items()
            if name in ("usual", "unsigned", "pair", "zeros", "nothing")
        },
    }


def latex_texts() -> Any:
    words = made.attribution().by_word()
    strange = Attribution(
        torch.tensor([1.0, -0.029, -0.031, 0.0]), ("日", "e\u0301\\{}$", "##`-,", "x"), "a_b", {"model": "m"}
    )
    return {
        "one": latex.latex(made.attribution()).split("\n"),
        "words": latex.latex(words).split("\n"),
        "row": latex.latex(made.row_of_map(), standalone=True).split("\n"),
        "several": latex.latex([made.row_of_map(), strange]).split("\n"),
        "strange": latex.latex(strange).split("\n"),
        "letters": latex.latex(replace(strange, tokens=("".join(latex.SPECIAL), "a\tb", "Ġ", "##x"))).split("\n"),
        "refused": [
            refusal(lambda some=some: latex.latex(some))
            for some in ([], [made.a_map()], made.attribution((float("nan"),)))
        ],
    }


def without_blocks(value: Any) -> Any:
    """A value with the data of its blocks taken out: how they are packed is tested by itself."""
    if isinstance(value, dict):
        return {
            key: "..." if key == "data" and isinstance(one, str) else without_blocks(one) for key, one in value.items()
        }
    return list(map(without_blocks, value)) if isinstance(value, list | tuple) else value


def pages() -> Any:
    why = made.answer(text="a\u200bb" + "x" * 80)
    results = [made.attribution(), made.row_of_map(), made.attribution(**OFF, notices=["Look.", "a\u200bb"])]
    maps = [
        made.a_map(2, 3),
        made.a_map(2, 3, method="globenc", convention="globenc"),
        made.a_map(2, 3, rollout={"convention": "alti"}),
    ]
    generated = made.attribution(generated="Ġwas", causal=True, task="causal-lm", text="x" * 90)
    bare = Attribution(torch.tensor([1.0, -2.0]), ("a", "b"), "mine", {})
    told = {
        "of both": results_page.Told([made.attribution(), made.a_map(2, 3, text=None)], why=why),
        "of why": results_page.Told([], why=why),
        "unanswered": results_page.Told([made.attribution()], unanswered="No."),
    }
    texts = (
        ["x" * 70 + end + "y" * 30 for end in "ab"]
        + ["z" * 85 + end for end in "ab"]
        + ["z" * 80 + end + "w" * 60 for end in "12"]
    )
    other = made.attribution(model="other/model")
    groups = {
        "results": results,
        "maps": maps,
        "generated": [generated],
        "bare": [bare, bare],
        "no query": [made.attribution((1.0, 2.0, 3.0), causal=True, query=None, query_token=None, target=None)],
        "sizes": [made.attribution((1.0,), method="grad_l2"), made.attribution((0.5,), target=0)],
        "facts": [made.attribution((0.5, 0.25), **info) for info in INFOS.values()],
        "texts": [*(made.attribution(text=text) for text in texts), other],
    }
    found = {name: page_of(results_page.page(some)) for name, some in groups.items()}
    found |= {name: page_of(results_page.page_of_texts([one], preset="why")) for name, one in told.items()}
    titled = results_page.page([made.attribution(), other], title="Mine <b>", preset="methods", room=400_000)
    refused = ([], [1], [Attribution(torch.zeros(0), (), "none", {})])
    return {
        **found,
        "titled": page_of(titled),
        "refused": [refusal(lambda some=some: results_page.page(some)) for some in refused],
        "why": page_of(why_page.why_page(why)),
        "about": [
            why_page.about_line(made.answer(task=task, classes=classes))
            for task in why_page.TASKS
            for classes in (None, [], ["a"], list("abcdefgh"), list("abcdefghi"))
        ],
    }


def written_pages() -> Any:
    cases = {
        "effects": made.generation(),
        "given": made.generation(
            effects=False, given=True, gap=None, versions=None, paper=None, is_map=False, notices=["Look."]
        ),
        "signed": replace(made.generation(signed=True, method="x"), effects=made._effects("[MASK]")),
        "chat": made.chat(),
    }
    short = replace(cases["effects"], text=replace(cases["effects"].text, unit="token", groups=()), effects=None)
    found: dict[str, Any] = {name: generation_page.content_of(case) for name, case in cases.items()}
    found["tokens"] = generation_page.content_of(short)
    found["page"] = page_of(generation_page.generation_page(cases["given"]))
    return found


# --- what flows where -------------------------------------------------------------------------------------------------


def flow_map(n: int = 10, **info: Any) -> Map:
    one = made.a_map(3, n, tokens=made.TOKENS[:n], **info)
    return replace(one, special=made.SPECIAL, words=made.WORDS) if n == 10 else one


def flow_pages() -> Any:
    heads = made.heads(3, 2)
    causal = flow_map(10, causal=True, prediction=None, query=8, gap=None, versions=None, pair="A pair", text=None)
    long, negative = long_map(64), replace(flow_map(), scores=-flow_map().scores)
    pages: dict[str, Callable[[], str]] = {
        "words": lambda: flow_page.flow_page(flow_map(), heads=heads),
        "causal": lambda: flow_page.flow_page(causal),
        "long": lambda: flow_page.flow_page(long),
        "asked": lambda: flow_page.flow_page(flow_map(method="globenc"), query=4, rollout="toolkit"),
    }
    refused: list[Callable[[], str]] = [
        lambda: flow_page.flow_page(long, megabytes=0.2),
        lambda: flow_page.flow_page(made.attribution()),  # type: ignore[arg-type]
        lambda: flow_page.flow_page(flow_map(), query=10),
        lambda: flow_page.flow_page(flow_map(), query=-1),
        lambda: flow_page.flow_page(flow_map(), heads=made.heads(2)),
        lambda: flow_page.flow_page(flow_map(9), heads=heads),
        lambda: flow_page.flow_page(negative, rollout="globenc"),
        lambda: flow_page.flow_page(replace(flow_map(), scores=1.0011 * flow_map().scores), rollout="globenc"),
    ]
    return {**{name: page_of(page()) for name, page in pages.items()}, "refused": list(map(refusal, refused))}


def long_map(n: int) -> Map:
    """Five sentences of a dozen words and a mark each."""
    tokens = tuple("." if i % 13 == 12 else f"W{i}" for i in range(n))
    words = tuple((token, (i,)) for i, token in enumerate(tokens))
    one = made.a_map(
        2, n, tokens=tokens, text=" ".join(tokens).replace(" .", "."), query=3, prediction=[("yes\u200b", 0.99967)]
    )
    return replace(one, words=words, special=(False,) * n)


# --- packed numbers ---------------------------------------------------------------------------------------------------


CASES: dict[str, Callable[[], Any]] = {
    "tables": table_texts,
    "headings": headings,
    "attributions": attribution_texts,
    "rows": row_texts,
    "maps": map_texts,
    "heads": head_texts,
    "written": generation_texts,
    "why": why_texts,
    "notebooks": notebooks,
    "latex": latex_texts,
    "pages": pages,
    "written pages": written_pages,
    "flow pages": flow_pages,
    **told_runs.CASES,
}


def told(name: str) -> Any:
    return kept.plain(CASES[name]())


if __name__ == "__main__":
    kept.main(PATH, {name: (lambda name=name: told(name)) for name in CASES})
