"""What the page of a run says of counts made up by hand: cases of `told.py`."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import made_run
from made_run import maps_of, overview

from mixlens.runs.corpus import counts, page_facts
from mixlens.show import run_page


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


def empty() -> Any:
    """A run that has no rows yet."""
    nothing: dict[str, Any] = {name: [] for name in ("reasons", "classes", "slow", "examples", "notes", "largest_gaps")}
    nothing |= {"manifest": {}, "methods": (), "rows": 0, "errors": 0, "judged": None, "not_judged": "No.\u200b"}
    nothing |= {"agreement": {}, "ratios": {}, "gap": made_run.mean(), "lengths": Counter(), "seconds": made_run.mean()}
    return overview(**nothing, signed=(), removal=None, word_agreement={}, finished=False)


def run_pages() -> Any:
    many = Counter({(f"l{i:02}", f"l{i:02}"): 20 - i // 2 for i in range(13)})
    unchecked = made_run.unchecked()
    unchecked.add(counts.RowCheck({}, {}, [], [], {}))
    kinds = {
        "usual": overview(),
        "empty": empty(),
        "other classes": overview(other_classes=1, judged=page_facts.Judged("l", 1, 1, 0, 0, many)),
        "no classes": overview(classes=[], removal=unchecked, signed=("mine",), special={}),
        "unknown model": overview(manifest={"model": "m", "identity": 3, "check": 1}, lengths=Counter({1: 1, 31: 2})),
        "four classes": overview(classes=[made_run.one_class(name, 9) for name in "dbca"]),
        "three classes": overview(classes=[made_run.one_class(name, 9) for name in "dbc"]),
        "long facts": overview(
            manifest={"model": {"name": "./m/", "task": "masked-lm", "classes": "x"}, "device": "x" * 2100},
            classes=[],
            removal=None,
        ),
    }
    found: dict[str, Any] = {}
    for name, facts in kinds.items():
        page = run_page.page(facts, room=1_000_000)
        found[name] = [re.findall(r"<(?:title|h1|p class=\"[a-z ]*\")[^>]*>[^<]*", page), short(data_of(page))]
    held = data_of(run_page.page(overview(), maps=maps_of, room=1_000_000, title="Mine"))
    found["held"] = [
        held["held"],
        short(held["examples"][1]["maps"]),
        [one["maps"] is None for one in held["examples"]],
    ]
    return found


CASES = {"pages of runs": run_pages}
