"""The shape of the code: imports go one way, help is quick, the core needs four packages, strangers can add to it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from functools import cache
from pathlib import Path

import mixlens
from recipes.house import measured
from recipes.sources import parsed

ROOT = Path(mixlens.__file__).parent
# Imports against the order, by name, each with its reason.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("answers/generation/value.py", "show"): "`.show`, `.plot`, `.report` and the notebook's picture: one line each",
    ("answers/value.py", "show"): "`.show`, `.report` and the notebook's picture: one line each",
    ("model/model.py", "answers"): "`Model.explain` and `Model.why`, one line each",
    ("model/model.py", "fast"): "`Model.graphs`: an empty set of graphs, made in the model's store when first read",
    ("model/model.py", "layer"): "`Model.check`, one line",
    ("model/model.py", "scoring"): "`Model.mix`, one line",
    ("scoring/alternative_attention.py", "methods"): "the column space of value vectors",
    ("scoring/saving.py", "answers"): "`load_result` of a JSON file, one line",
    ("show/report.py", "runs"): "the page of a run's folder, one line",
    ("types.py", "model"): "`Trace.prediction` and `.query`: one line each",
    ("types.py", "scoring"): "`.rollout`, `.flow`, `.readout`, `.top`, `.by_word`, `.save`, `+` ...: one line each",
    ("types.py", "show"): "`.show`, `.plot`, `.report`, `.to_latex` and the notebook's picture: one line each",
}


def order() -> list[str]:
    """The folders and files of the house, as the docstring of the package lists them."""
    return [line.split()[0] for line in (mixlens.__doc__ or "").splitlines() if line.startswith("    ")]


@cache
def tree_of(path: Path) -> ast.Module:
    """A file as Python reads it; every test reads the same one, and changes nothing in it."""
    return parsed(path.read_text())


def imports_of(path: Path) -> set[str]:
    """Modules of mixlens that a file imports, wherever it does, but for those that only a type checker reads."""
    tree = tree_of(path)
    typing = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    package = path.relative_to(ROOT).parts[:-1]
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level and id(node) not in typing:
            base = package[: len(package) - node.level + 1]
            names = [node.module] if node.module else [alias.name for alias in node.names]
            found |= {(".".join([*base, name])).split(".")[0] for name in names}
    return found - {"__version__"}


def test_imports_go_one_way() -> None:
    places, unused = order(), dict(EXCEPTIONS)
    for path in ROOT.rglob("*.py"):
        file = path.relative_to(ROOT)
        name = file.parts[0].removesuffix(".py")
        if name == "__init__":
            continue
        assert name in places, f"{file} has no place in the order of the house"
        for other in imports_of(path):
            if (file.as_posix(), other) in EXCEPTIONS:
                unused.pop((file.as_posix(), other), None)
                continue
            assert places.index(other) <= places.index(name), f"{file} imports {other}, which comes after it"
    assert not unused, "exceptions that nothing needs"


def trees() -> list[tuple[str, ast.Module]]:
    return [(path.relative_to(ROOT).as_posix(), tree_of(path)) for path in sorted(ROOT.rglob("*.py"))]


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_no_private_name_crosses_a_file() -> None:
    """Neither by import nor as an attribute, unless it is one that torch or transformers gave."""
    foreign = {"_modules", "_parameters", "_buffers", "_attn_implementation"}
    stored: dict[str, set[str]] = {}
    for file, tree in trees():
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        names |= {
            node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        }
        stored[file] = {name for name in names if is_private(name)} - foreign
    for file, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level:
                assert not [alias.name for alias in node.names if is_private(alias.name)], f"{file}, line {node.lineno}"
            if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in stored[file]:
                assert not any(node.attr in names for names in stored.values()), (
                    f"{file}, line {node.lineno}: {node.attr}"
                )


def test_no_file_is_over_650_lines() -> None:
    for path in ROOT.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 650, path


STATE = {  # module-level values that change while the program runs, and why each is no state of a call or of a model
    ("base/budget.py", "SETTINGS"): "the settings of a call, by context",
    ("model/passes.py", "PASS"): "the pass that is under way in this thread, by context",
    ("model/passes.py", "_LOCKS"): "one lock for each configuration, which several models may share; it goes with that",
    ("model/passes.py", "_LOCKS_LOCK"): "the lock of that table",
    ("show/figure/picture.py", "LOCK"): "matplotlib's settings are global: one figure is drawn at a time",
    ("cli/group.py", "LOADING"): "the one command line of this process, while it loads a model",
}
CHANGING = {"dict", "list", "set", "defaultdict", "Counter", "WeakKeyDictionary", "ContextVar", "Lock", "RLock"}


def test_state_belongs_to_a_model_or_a_registry() -> None:
    """No other module-level value can change: empty containers, locks and context variables are listed above, by
    name."""
    found = set()
    for file, tree in trees():
        for node in tree.body:
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            value, target = node.value, node.targets[0] if isinstance(node, ast.Assign) else node.target
            empty = isinstance(value, ast.Dict | ast.List | ast.Set) and not getattr(
                value, "keys", getattr(value, "elts", ())
            )
            made = isinstance(value, ast.Call) and ast.unparse(value.func).split(".")[-1] in CHANGING
            if empty or made:
                found.add((file, ast.unparse(target)))
    assert found == set(STATE)


def test_the_layer_is_equations_only() -> None:
    """No cache, no device branch, no scratch memory, and nothing of `fast`."""
    for path in (ROOT / "layer").glob("*.py"):
        source = path.read_text()
        assert not re.search(r"cache|is_cuda|device\.type|scratch|out=|empty\(", source), path
        assert "fast" not in imports_of(path), path


def test_the_package_keeps_within_its_budget() -> None:
    """Of tokens, as CONTRIBUTING states it and `python -m recipes.house` counts them."""
    stated = re.search(r"at most ([\d,]+) tokens", (ROOT.parent / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert stated
    assert measured(ROOT).tokens <= int(stated[1].replace(",", "")), (
        "raise the budget and say in the changelog what it buys"
    )


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    ).stdout


def test_help_needs_no_torch() -> None:
    out = run(
        """
        import sys
        sys.argv = ["mixlens", "--help"]
        from mixlens.cli import main
        try:
            main()
        except SystemExit as end:
            assert end.code == 0
        assert not {"torch", "transformers", "numpy"} & set(sys.modules), "heavy import"
        """
    )
    assert "explain" in out
    assert "check" in out


def test_the_core_needs_four_packages_and_no_more() -> None:
    """torch, transformers, numpy, safetensors: with everything else of ours blocked, a map is still made."""
    out = run(
        """
        import sys

        for name in ("rich", "typer", "pandas", "matplotlib", "scipy", "sklearn", "captum", "igraph", "datasets"):
            sys.modules[name] = None  # as if it were not installed
        import mixlens
        model = mixlens.load("agreement")
        print(mixlens.mix(model.trace("The keys [MASK] rusty."), "alti").rollout().readout("[MASK]").top(1)[0][0])
        """
    )
    assert out.strip()


def test_importing_mixlens_imports_nothing_heavy() -> None:
    run(
        """
        import sys
        import mixlens
        assert not {"torch", "transformers"} & set(sys.modules)
        mixlens.load
        assert "torch" in sys.modules and "transformers" not in sys.modules
        """
    )


def test_functions_are_not_hidden_by_modules_of_their_name() -> None:
    run(
        """
        import mixlens.methods, mixlens.metrics, mixlens.methods.alti
        import mixlens
        assert "bert" in mixlens.families() and "alti" in mixlens.methods()
        assert callable(mixlens.mixing)
        """
    )


def test_no_pickle_and_no_remote_code() -> None:
    """Nothing that is loaded can run."""
    for path in ROOT.rglob("*.py"):
        source = path.read_text()
        assert not re.search(
            r"pickle|torch\.load\(|torch\.save\(|\beval\(|\bexec\(|shell=True", re.sub(r"\.eval\(\)", "", source)
        ), path
    assert "trust_remote_code: bool = False" in (ROOT / "model" / "loading.py").read_text()


def test_no_model_is_told_apart_by_its_name() -> None:
    """What differs between families is data: no `if model_type ==` anywhere."""
    for path in ROOT.rglob("*.py"):
        assert not re.search(r"model_type\s*(==|!=|in \()", path.read_text()), path


def test_strangers_add_a_method_and_a_family_from_their_own_package(tmp_path: Path) -> None:
    """Entry points: the same names, the same checks."""
    (tmp_path / "theirs.py").write_text(
        textwrap.dedent(
            '''
            from dataclasses import replace
            import mixlens
            from mixlens.model.families import BERT

            @mixlens.mixing(paper="Theirs 2026", rollout="alti")
            def theirs(block, *, power=2):
                """Attention to a power."""
                scores = block.attention.mean(-3) ** power
                return scores / scores.sum(-1, keepdim=True)

            @mixlens.mixing(paper="Theirs 2026", rollout="alti")
            def broken(block):
                """The wrong shape."""
                return block.attention

            family = replace(BERT, model_types=("their-bert",))
            wrong = replace(BERT, model_types=("their-wrong-bert",), norm_after_mlp=None)
            '''
        )
    )
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[mixlens.methods]\ntheirs = theirs\n[mixlens.families]\nfamily = theirs:family\nwrong = theirs:wrong\n"
    )
    out = run(
        f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import mixlens, transformers
        assert "theirs" in mixlens.methods() and "their-bert" in mixlens.families()
        config = dict(vocab_size=30, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8)
        for model_type in ("their-bert", "their-wrong-bert"):
            class Config(transformers.BertConfig):
                pass
            Config.model_type = model_type
            model = transformers.BertModel(Config(**config)).eval()
            try:
                trace = mixlens.load(model).trace(input_ids=[3, 4, 5])
                print(model_type, mixlens.mix(trace, "theirs", power=3).rollout().readout(0).method)
                mixlens.mix(trace, "broken")
            except mixlens.MixlensError as error:
                print(model_type, error)
        """
    )
    lines = out.splitlines()
    assert lines[0] == "their-bert theirs"
    assert "'broken' returned shape (1, 2, 3, 3)" in lines[1]
    assert lines[2].startswith("their-wrong-bert 'BertModel' is not what the family entry 'their-wrong-bert' says")
