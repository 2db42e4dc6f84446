"""What the page of a run says of counts made up by hand: cases of `told.py`."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import made_run
import made_values as made
from made_run import maps_of, overview, sampled

from mixlens.base.errors import InputError
from mixlens.runs.corpus.page_labels import Judged
from mixlens.runs.corpus.turned_counts import RowCheck, TurnedCounts
from mixlens.show import run_checks, run_facts, run_page
from mixlens.show.page_template import filled_page


def data_of(page: str) -> Any:
    """The run that a page holds."""
    found = re.search(r'id="data"[^>]*>(.*?)</', page, flags=re.DOTALL)
    assert found is not None
    return json.loads(found[1])["run"]


def short(block: Any) -> Any:
    """A value without the data of its blocks."""
    if isinstance(block, dict):
        return {key: "..." if key == "data" and isinstance(one, str) else short(one) for key, one in block.items()}
    return list(map(short, block)) if isinstance(block, list | tuple) else block


def facts_of_runs() -> Any:
    empty = overview(
        **{
            "manifest": {},
            "methods": (),
            "rows": 0,
            "errors": 0,
            "reasons": [],
            "classes": [],
            "judged": None,
            "not_judged": "No.\u200b",
        },
        **{
            "agreement": {},
            "ratios": {},
            "gap": made_run.mean(),
            "lengths": Counter(),
            "seconds": made_run.mean(),
            "slow": [],
        },
        **{
            "examples": [],
            "notes": [],
            "signed": (),
            "removal": None,
            "word_agreement": {},
            "finished": False,
            "largest_gaps": [],
        },
    )
    many = Counter({(f"l{i:02}", f"l{i:02}"): 20 - i // 2 for i in range(13)})
    unchecked = TurnedCounts(made_run.METHODS)
    unchecked.add(RowCheck({}, {}, [], [], {}))
    return {
        "run": short(run_facts.run_facts(overview())),
        "empty": run_facts.run_facts(empty),
        "labels": [
            run_facts._labels(Judged("l", 1, 1, 0, 0, table)) for table in (many, Counter(list(many)[:12]), Counter())
        ],
        "lengths": [
            run_facts._lengths(Counter(some))
            for some in ({5: 2}, {1: 1, 30: 2}, {1: 1, 31: 2}, {10: 1, 69: 1, 70: 3, 40: 2})
        ],
        "about": [
            run_facts.about(overview(manifest=manifest))
            for manifest in (
                {"model": "m", "identity": 3, "check": 1},
                {"data": "d", "identity": {"data": "d"}, "model": {"classes": "x"}, "device": "x" * 2100},
            )
        ],
        "short": [run_facts.short(text) for text in ("x" * 59, "x" * 60, "x" * 61, "Ġa")],
        "unchecked": run_checks.check_facts(overview(removal=unchecked, signed=(), special={})),
        "names": [
            run_checks.researcher_name(name) for name in ("alti", "alti:variant=released:head=2", "mine:a", "attcat:")
        ],
        "leading": [run_checks.leading(overview(signed=signed)) for signed in ((), ("mine", "attcat"), ("mine",))],
    }


def run_pages() -> Any:
    plain = run_page.page(overview(), room=1_000_000)
    held = data_of(run_page.page(overview(), maps=maps_of, room=1_000_000, title="Mine"))
    facts = overview()
    bare = filled_page({"run": run_facts.run_facts(facts)}, run_page.RUN, **run_page._headings(facts, None))
    base = len(bare.encode()) + run_page.NOTES  # room for no example
    questions = [
        overview(),
        overview(other_classes=1),
        overview(classes=[]),
        overview(rows=0),
        overview(manifest={}),
        overview(classes=[made_run.one_class(name, 9) for name in "dbca"]),
        overview(classes=[made_run.one_class(name, 9) for name in "dbc"]),
        overview(manifest={"model": {"name": "./m/", "task": "masked-lm"}, "data": "hub/set"}),
    ]
    return {
        "headings": re.findall(r"<(?:title|h1|p class=\"[a-z ]*\")[^>]*>[^<]*", plain),
        "heads": [[run_page._headings(facts, title) for title in (None, "T")] for facts in questions],
        "examples": short(data_of(plain)["examples"]),
        "notes": [data_of(plain)["notes"], data_of(plain)["held"]],
        "held": [
            held["held"],
            short(held["examples"][1]["maps"]),
            [example["maps"] is None for example in held["examples"]],
        ],
        "rooms": {str(more): _held(base + more) for more in (0, 700, 1500, 2200, 2900, 4000, 6000)},
        "rooms with maps": {
            str(more): _held(base + more, maps=maps_of) for more in (1000, 3000, 4800, 6000, 7000, 9000)
        },
        "refused": _refused(base - 1),
        "fits": [run_page._first_that_fit({1: 5, 2: 9, 3: 4, 4: 1}, room) for room in (0, 1, 5, 9, 10, 14, 19)],
        "none": [
            run_page._maps_within([sampled(1, left_out=2)], maps_of, 900),
            run_page._maps_within([sampled(1)], lambda rows: [], 900),
        ],
        "map": short(run_page._map_block(made.a_map(2, 3))),
    }


def _held(room: int, **maps: Any) -> Any:
    run = data_of(run_page.page(overview(), room=room, **maps))
    kept = [[example["row"], None if example["maps"] is None else len(example["maps"])] for example in run["examples"]]
    return [kept, run["notes"][1:], run["held"]]


def _refused(room: int) -> str:
    try:
        run_page.page(overview(), room=room)
    except InputError as error:
        return re.sub(r"\d\.\d\d", "x.xx", str(error))
    return "no refusal"


CASES = {"facts of runs": facts_of_runs, "pages of runs": run_pages}
