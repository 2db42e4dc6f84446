"""Which files `recipes.mutants` puts faults into, and which tests are run for a fault where no table of covering tests
is there.

An area is a folder of the package. Its tests are those of the folders named here, in this order; `FILE:a,b` takes the
tests of a file whose name has an "a" or a "b" in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

AREAS: dict[str, tuple[str, ...]] = {  # area: folders of tests
    "base": (".", "show", "model"),
    "layer": ("layer", "model", "methods"),
    "fast": ("fast", "layer", "methods"),
    "scoring": (".", "methods", "metrics"),
    "methods": ("methods", "metrics", "."),
    "metrics": ("metrics", "experiments", "."),
    "answers": ("why", "generation"),
    "show": ("show", "."),
    "runs": ("corpus", "experiments"),
    "serve": ("serve",),
    "cli": ("cli", "house"),
    "types": (".", "show"),
}
LEFT_OUT: dict[str, str] = {
    "mixlens/fast/loops/gpu.py": "runs on a GPU alone",
    "mixlens/fast/loops/*_kernels.py": "runs on a GPU alone",
    "mixlens/fast/cuda_graphs.py": "runs on a GPU alone",
    "mixlens/model/*": "reads models; a fault in it is refused by the proof of each model",
    "mixlens/data/*": "reads the papers' datasets",
    "mixlens/papers/*": "repeats the papers' tables",
    "mixlens/runs/experiments/*": "repeats the papers' tables",
    "mixlens/__init__.py": "names alone",
    "mixlens/__main__.py": "calls the command line",
    "mixlens/base/interrupts.py": "handles signals; tests of the command line send them to processes",
}
LEFT_OUT_FUNCTIONS: dict[tuple[str, str], str] = {
    ("mixlens/fast/zeroing.py", name): "runs on a GPU alone, where tests/fast/test_gpu.py sees it"
    for name in ("cosine_from_changes", "_halves", "_changes", "_after")
}


def files_of(root: Path, areas: Sequence[str]) -> dict[str, str]:
    """The files of some areas and the area of each, by path from the root, sorted."""
    found: dict[str, str] = {}
    for area in areas:
        for path in [*root.glob(f"mixlens/{area}/**/*.py"), *root.glob(f"mixlens/{area}.py")]:
            file = path.relative_to(root).as_posix()
            if not any(fnmatch(file, pattern) for pattern in LEFT_OUT):
                found[file] = area
    return dict(sorted(found.items()))


def tests_of(file: str, area: str) -> tuple[str, ...]:
    """The tests for a fault in a file: those whose names have its name come first, the stored numbers and texts
    last."""
    name = Path(file).stem.strip("_")
    folders = [ROOT / "tests" / folder for folder in AREAS[area]]
    paths = [path for folder in folders for path in sorted(folder.glob("test_*.py"))]
    paths.sort(key=lambda path: name not in path.stem)
    return tuple(path.relative_to(ROOT).as_posix() for path in (*paths, ROOT / "tests/house/test_freeze.py"))
