"""The stored numbers of the papers' runs, one JSON a run, and the pages that are made of them. For
`recipes.pages.results`.

docs/measured/results/stored/PAPER/STEP.json         title, command, shows, tables, claims, figure, differs
docs/measured/results/stored/PAPER/comparisons.json  claims about several runs
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from mixlens.runs.experiments.claims import DIFFERENT, RULES, SAME, WORDS
from mixlens.runs.experiments.plan import PLANS
from mixlens.runs.experiments.reproduction import Reproduction
from mixlens.runs.experiments.reproduction_page import command, sample, tables_shown

TEMPLATES = Path(__file__).with_name("templates")
COMPARISONS = "comparisons.json"
CLAIM = ("says", "where", "paper", "here", "verdict")
# The statements that each paper puts first, by how they begin: its abstract or conclusion names them.
FIRST = {
    "alti": (
        "On SST2, ALTI correlates with grad_l2",
        "On SVA, ALTI correlates with blank-out",
        "ALTI is the most consistent",
    ),
    "globenc": (
        "GlobEnc (N_ENC) correlates with saliency",
        "The first layer norm alone makes it worse",
        "Rollout correlates more",
    ),
    "value-zeroing": (
        "Across all layers Value Zeroing gives cue words a larger share",
        "Cue alignment by Value Zeroing rises over layers",
        "Value Zeroing correlates with blank-out scores more than",
    ),
    "identifiability": (
        "texts no longer than a head is wide have equal",
        "a linear g finds most tokens in the last layer",
        "the share decreases monotonically with depth",
    ),
    "attcat": (
        "AttCAT has the highest AOPC (in most settings)",
        "AttCAT has the lowest Kendall correlation (on most data sets); read here with",
        "AttCAT has more answer tokens",
    ),
}
Step = dict[str, Any]
Claim = dict[str, Any]


# --- the store --------------------------------------------------------------------------------------------------------


def store(reproduction: Reproduction, folder: Path) -> None:
    """One file for each run that was made, and one for the claims about several runs; files of other runs stay."""
    folder.mkdir(parents=True, exist_ok=True)
    titles = {step.name: step for step in reproduction.plan.steps}
    claims = [{"run": run, **dict(zip(CLAIM, rest, strict=True))} for run, *rest in reproduction.claims]
    for name, outcome in reproduction.outcomes.items():
        tables = [
            {"title": one.title, "columns": list(one.columns), "rows": one.rows_as_text, "note": one.note}
            for one in tables_shown(outcome)
        ]
        step = {
            "step": name,
            "title": titles[name].shows,
            "command": command(titles[name], reproduction.models, reproduction.data, reproduction.fast),
            "shows": sample(outcome),
            "figure": outcome.setup.experiment.figure is not None,
            "claims": [{key: one[key] for key in CLAIM} for one in claims if one["run"] == name],
            "differs": list(outcome.setup.experiment.differs),
            "tables": tables,
        }
        (folder / f"{name}.json").write_text(as_text(step), encoding="utf-8")
    place = folder / COMPARISONS
    made = [{"runs": one["run"].split(", "), **{key: one[key] for key in CLAIM}} for one in claims]
    fresh = [one for one in made if len(one["runs"]) > 1]
    asked = {(one["says"], *one["runs"]) for one in fresh}
    kept = json.loads(place.read_text(encoding="utf-8")) if place.exists() else []
    if every := [one for one in kept if (one["says"], *one["runs"]) not in asked] + fresh:
        place.write_text(as_text(every), encoding="utf-8")


def as_text(value: Any) -> str:
    """JSON with a line for each row of a table."""
    rows: list[str] = []

    def marked(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: marked(one) for key, one in part.items()}
        if isinstance(part, list) and part and all(isinstance(one, str) for one in part):
            rows.append(json.dumps(part, ensure_ascii=False))
            return f"<row {len(rows) - 1}>"
        return [marked(one) for one in part] if isinstance(part, list) else part

    text = json.dumps(marked(value), ensure_ascii=False, indent=1)
    for number, row in enumerate(rows):
        text = text.replace(f'"<row {number}>"', row, 1)
    return text + "\n"


def steps_of(name: str, folder: Path) -> list[Step]:
    """The stored runs of a paper, in the order of its plan."""
    places = [folder / f"{step.name}.json" for step in PLANS.find(name).steps]
    return [json.loads(place.read_text(encoding="utf-8")) for place in places if place.exists()]


def claims_of(name: str, folder: Path) -> list[Claim]:
    """The claims of all stored runs of a paper, then those about several runs; "run" names them."""
    place = folder / COMPARISONS
    several = json.loads(place.read_text(encoding="utf-8")) if place.exists() else []
    single = [{"run": step["step"], **claim} for step in steps_of(name, folder) for claim in step["claims"]]
    return single + [{"run": ", ".join(claim["runs"]), **claim} for claim in several]


# --- statements -------------------------------------------------------------------------------------------------------


def word(claim: Claim) -> str:
    """The verdict without its reason."""
    return str(claim["verdict"].partition(" (")[0])


def statements_of(claims: Iterable[Claim]) -> list[dict[str, Any]]:
    """Every statement once, whatever the number of runs that judge it: where it stands, and its verdicts with their
    runs."""
    groups: dict[str, list[Claim]] = {}
    for claim in claims:
        groups.setdefault(claim["says"], []).append(claim)
    found = []
    for says, group in groups.items():
        runs: dict[str, list[str]] = {}
        for claim in group:
            runs.setdefault(word(claim), []).append(claim["run"])
        against = [one["verdict"].partition(" (")[2][:-1] for one in group if word(one) == DIFFERENT]
        verdicts = [f"**{one}**: {', '.join(runs[one])}" for one in WORDS if one in runs]
        found.append(
            {
                "says": says,
                "where": list(dict.fromkeys(one["where"] for one in group)),
                "verdicts": verdicts,
                "runs": runs,
                "against": next((one for one in against if one.startswith("the other way round: ")), ""),
            }
        )
    return found


def summary(statements: Sequence[Mapping[str, Any]]) -> str:
    """In how many runs the statements hold."""
    runs = [one["runs"] for one in statements]
    always = sum(set(one) == {SAME} for one in runs)
    mixed = sum(SAME in one and len(one) > 1 for one in runs)
    never = sum(SAME not in one and DIFFERENT in one for one in runs)
    return (
        f"Of {len(runs)} statements {always} hold in every run that judges them, {mixed} in some runs and not in "
        f"others, "
        f"{never} in none and are different in one run or more, and {len(runs) - always - mixed - never} are not "
        f"decided."
    )


def verdict_counts(claims: Sequence[Claim]) -> str:
    """5 same, 2 different"""
    words = [word(claim) for claim in claims]
    return ", ".join(f"{words.count(one)} {one}" for one in WORDS if one in words)


def in_words(runs: Mapping[str, Sequence[str]]) -> str:
    """same in 2 of 3 runs, different in 1"""
    total = sum(map(len, runs.values()))
    (first, count), *others = [(one, len(runs[one])) for one in WORDS if one in runs]
    if not others:
        return f"{first} in {({1: 'its one run', 2: 'both runs'}).get(total, f'all {total} runs')}"
    return ", ".join([f"{first} in {count} of {total} runs", *(f"{one} in {many}" for one, many in others)])


def put_first(name: str, found: Sequence[Any]) -> list[Any]:
    """Those claims or statements that the paper puts first, in its order."""
    return [one for beginning in FIRST.get(name, ()) for one in found if one["says"].startswith(beginning)]


# --- pages ------------------------------------------------------------------------------------------------------------


def rendered(template: str, **values: Any) -> str:
    environment = Environment(loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, trim_blocks=True)
    environment.filters["cell"] = lambda value: str(value).replace("|", r"\|").replace("\n", " ")
    return environment.get_template(template).render(**values).rstrip() + "\n"


def page(name: str, folder: Path, stands_in: str) -> str:
    """The page of one paper, from its stored runs alone."""
    plan, steps, claims = PLANS.find(name), steps_of(name, folder), claims_of(name, folder)
    for step in steps:
        step["examples"] = next((part for part in step["shows"].split(". ") if " examples" in part), "numbers").strip(
            "."
        )
    made = {step["step"] for step in steps}
    statements = statements_of(claims)
    return rendered(
        "paper.md.jinja",
        plan=plan,
        summary=summary(statements),
        first=put_first(name, claims),
        stands_in=stands_in,
        statements=statements,
        steps=steps,
        differs=list(dict.fromkeys(one for step in steps for one in step["differs"])),
        absent=[
            (step.shows, "models: " + ", ".join(plan.role(role).what for role in step.models))
            for step in plan.steps
            if step.name not in made
        ],
    )


def tables(name: str, folder: Path) -> str:
    """Every stored table of one paper, for the site."""
    return rendered("tables.md.jinja", steps=steps_of(name, folder))


def overview(folders: Mapping[str, Path]) -> str:
    """README.md: what each paper puts first and whether it holds here."""
    claims = {name: claims_of(name, folder) for name, folder in folders.items()}
    statements = {name: statements_of(some) for name, some in claims.items()}
    return rendered(
        "overview.md.jinja",
        first=[
            (name, one["says"], in_words(one["runs"]) + (f"; {one['against']}" if one["against"] else ""))
            for name, some in statements.items()
            for one in put_first(name, some)
        ],
        counts=[
            (name, PLANS.find(name).paper, len(some), verdict_counts(some)) for name, some in claims.items() if some
        ],
        summary=summary([one for some in statements.values() for one in some]),
        rules=RULES,
    )
