"""docs/measured/results/README.md: what replicates across the papers, each claim once. For `recipes.pages.results`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mixlens.runs.experiments.claims import DIFFERENT, RULES, SAME, WORDS
from mixlens.runs.experiments.plan import PLANS
from mixlens.runs.experiments.reproduction_page import verdict_counts
from mixlens.runs.experiments.tables import Table

HEAD = """# What replicates across the papers

*Written by `python -m recipes.pages.results`, from the pages beside it.* The models are small (MiniLM, 6 layers, width 384)
and are not those of the papers: a verdict of "different" says that a claim does not hold for these models and data, not that
the paper erred. The tables here name runs; the numbers, the paper's and ours, stand on the page of each paper.
"""
MADE = """## How the runs were made

Each run has the paper's protocol with the models and data at hand; each page has its commands, with every option that is not
the paper's, and says what differs. A g of Identifiability is mostly trained at a larger rate and in part on fewer splits
of the texts, and HTA is estimated. Claims are counted once for each run that can judge them: two seeds of one model, or two
data sets, count twice, and "in most settings" is judged in one setting at a time. Intervals hold for all pairs of one claim;
nothing is adjusted across claims, so that of a hundred verdicts a few are chance. They are over texts: another training of a
model, or of a g, moves every number. Each page says which rows were taken. Folders `../shared/...` hold the models and data that
stand in for the papers'; `models/...` those that were tuned.

Stand-ins: `minilm-sst2` (90.5 % right on SST-2) and another seed of it (89.0 %) for BERT and DistilBERT; `minilm-hatexplain`
(68.3 % of three classes); `minilm-mlm`, a masked language model, and `minilm-agreement`, one that was tuned on agreement. Tuned
by `recipes.train.stand_ins`: `minilm-blimp` from `minilm-mlm` (76.9 % before, 99.3 % after, on unseen sentences), and a second
time as `minilm-blimp-again` (99.2 %); `minilm-mrpc`
from the sentence encoder all-MiniLM-L6-v2 (79.2 % of MRPC's 408 development pairs, the more frequent class 68.4 %); `minilm-cola`
from `minilm-mlm` (76.1 % of 527 unseen sentences, 69.3 %); `minilm-squad`, from made questions and 264 of SQuAD v2 (its answer
overlaps the right one in 241 of 509 unseen questions, and is the same in 118). The classifier of SST-2 also reads Yelp and
IMDB, which it was not tuned on.
"""
OTHER_WAY = "the other way round: "
LINE = 100  # characters
EVERY_RUN = {1: "its one run", 2: "both runs"}
# The statements that each paper puts first, by how they begin: its abstract or conclusion names them.
MAIN = {
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
Cells = Sequence[str]  # of a claim, as the page of its paper has them: claim, where, run, paper, here, verdict


@dataclass(frozen=True)
class Statement:
    """One statement of a paper, and the runs by their verdicts."""

    paper: str  # the name of its plan
    says: str
    where: list[str] = field(default_factory=list)
    runs: dict[str, list[str]] = field(default_factory=dict)  # verdict -> runs
    against: list[str] = field(default_factory=list)  # what is the other way round, by run

    def add(self, where: str, run: str, verdict: str) -> None:
        self.where.extend([] if where in self.where else [where])
        word, _, reason = verdict.partition(" (")
        self.runs.setdefault(word, []).append(run)
        if word == DIFFERENT and reason.startswith(OTHER_WAY):
            self.against.append(reason.removesuffix(")"))

    @property
    def row(self) -> tuple[str, ...]:
        verdicts = (", ".join(self.runs.get(word, [])) for word in WORDS)
        return (f"[{self.paper}]({self.paper}.md)", self.says, "; ".join(self.where), *verdicts)


def statements_of(claims: Mapping[str, Sequence[Cells]]) -> list[Statement]:
    """Every statement once, whatever the number of runs that judge it."""
    found: dict[tuple[str, str], Statement] = {}
    for paper, rows in claims.items():
        for says, where, run, _, _, verdict in rows:
            found.setdefault((paper, says), Statement(paper, says.replace(r"\|", "|"))).add(where, run, verdict)
    return list(found.values())


def summary(statements: Sequence[Statement]) -> str:
    """In how many runs the statements hold."""
    always = sum(set(one.runs) == {SAME} for one in statements)
    never = sum(SAME not in one.runs and DIFFERENT in one.runs for one in statements)
    mixed = sum(SAME in one.runs and len(one.runs) > 1 for one in statements)
    rest = len(statements) - always - never - mixed
    return (
        f"Of {len(statements)} statements {always} hold in every run that judges them, {mixed} in some runs and not in others, "
        f"{never} in none and are different in one run or more, and {rest} are not decided."
    )


def main_rows(statements: Sequence[Statement]) -> list[tuple[str, str, str]]:
    """(paper, its statement, in how many runs it holds) of the statements of MAIN that a page has."""
    return [
        (f"[{one.paper}]({one.paper}.md)", one.says, _in_words(one.runs) + _the_other_way(one.against))
        for paper, beginnings in MAIN.items()
        for beginning in beginnings
        for one in statements
        if one.paper == paper and one.says.startswith(beginning)
    ]


def _in_words(runs: Mapping[str, Sequence[str]]) -> str:
    """same in 2 of 3 runs, different in 1"""
    total = sum(map(len, runs.values()))
    counts = [(word, len(runs[word])) for word in WORDS if word in runs]
    if len(counts) == 1:
        return f"{counts[0][0]} in {EVERY_RUN.get(total, f'all {total} runs')}"
    first, *others = counts
    return ", ".join([f"{first[0]} in {first[1]} of {total} runs", *(f"{word} in {count}" for word, count in others)])


def _the_other_way(against: Sequence[str]) -> str:
    """What is the other way round in the first run that differs, and no more of it than a line holds."""
    if not against:
        return ""
    told = against[0] if len(against[0]) <= LINE else against[0][:LINE].rpartition(",")[0] + " ..."
    return f"; {told}"


def overview(claims: Mapping[str, Sequence[Cells]]) -> str:
    """README.md: how many claims of each paper replicate, then each statement with its runs. `claims` has those of each paper, as
    its page has them."""
    counts = tuple(
        (f"[{PLANS.find(name).paper}]({name}.md)", len(some), verdict_counts(some)) for name, some in claims.items()
    )
    statements = statements_of(claims)
    return "\n".join(
        [
            HEAD,
            "## In short: what each paper puts first",
            "",
            *_table(("paper", "the paper says", "here"), main_rows(statements)),
            "## How many claims replicate",
            "",
            *_table(("paper", "claims, counted by run", "verdicts"), counts),
            "## Every statement",
            "",
            summary(statements),
            "",
            *_table(
                ("paper", "the paper says", "where", *(f"{word}: runs" for word in WORDS)),
                [one.row for one in statements],
            ),
            MADE,
            "## How a verdict is reached",
            "",
            RULES,
            "",
        ]
    )


def _table(columns: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> list[str]:
    return [*Table("", "", columns, tuple(rows)).markdown.splitlines()[2:], ""]  # type: ignore[arg-type]
