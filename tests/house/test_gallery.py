"""The gallery and the notebooks: what stands in them is what comes out when they are run."""

from __future__ import annotations

import base64
import io
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from recipes.pages import gallery, notebooks  # noqa: E402

FIGURES = ROOT / "docs" / "use" / "figures" / "gallery"


def test_the_gallery_is_made_of_what_it_says_twice_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fifth figure twice (tests/show/test_figures.py draws each kind twice); what is printed is compared with
    what is stored."""
    every = gallery.FIGURES
    for name, figures, printed in (("one", every, gallery.TEXTS), ("two", every[::5], ())):
        (tmp_path / name).mkdir()
        monkeypatch.setattr(gallery, "FIGURES", figures)
        monkeypatch.setattr(gallery, "TEXTS", printed)
        gallery.main(tmp_path / name)
    assert len(list((tmp_path / "one").rglob("*.svg"))) == len(every)
    again = sorted(path.relative_to(tmp_path / "two") for path in (tmp_path / "two").rglob("*.svg"))
    assert len(again) == len(every[::5]) >= 4
    for file in again:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file
    pages = (tmp_path / "one" / "gallery.md", ROOT / "docs" / "use" / "gallery.md")
    page, stored = (re.sub(r"gap \de-\d\d", "gap", path.read_text()) for path in pages)
    assert page == stored, "stale: python -m recipes.pages.gallery"  # but for the rounding of this machine


def test_the_figures_in_the_repository_are_those_of_the_page() -> None:
    page = (ROOT / "docs" / "use" / "gallery.md").read_text()
    named = set(re.findall(r"\(figures/gallery/([^)]+)\)", page))
    assert named == {path.name for path in FIGURES.iterdir()} == {entry.figure for entry in gallery.FIGURES}
    assert sum(path.stat().st_size for path in FIGURES.iterdir()) < 1_000_000
    for path in FIGURES.iterdir():
        text = path.read_text()
        assert re.search(r"<text[^>]*>", text), path
        assert not re.search(r"/home|/tmp|/root", text), path


@pytest.mark.parametrize("path", sorted(notebooks.FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_show_what_they_store(path: Path) -> None:
    import nbformat

    stored = nbformat.read(path, as_version=4)
    assert notebooks.path_in(path.read_text()) is None
    assert notebooks.text_of(stored) == path.read_text(), (
        "not as the recipe writes it: python -m recipes.pages.notebooks"
    )
    made = notebooks.run(path)
    for number, (old, new) in enumerate(zip(stored.cells, made.cells, strict=True)):
        if old.cell_type == "code":
            assert old.execution_count is not None, f"cell {number} was never run"
            same(
                list(old.outputs),
                list(new.outputs),
                f"{path.name}, cell {number}: stale: python -m recipes.pages.notebooks",
            )


def same(old: list[Any], new: list[Any], told: str) -> None:
    """Text is the same; pictures look the same (a last bit may differ between machines)."""
    assert [output.output_type for output in old] == [output.output_type for output in new], told
    for one, other in zip(old, new, strict=True):
        assert one.get("text") == other.get("text"), told
        assert "stderr" not in (one.get("name"), other.get("name")), told
        data, again = one.get("data", {}), other.get("data", {})
        assert set(data) == set(again), told
        if "image/png" in data:
            a, b = (pixels(part["image/png"]) for part in (data, again))
            assert a.shape == b.shape, told
            assert np.abs(a - b).mean() < 1, told
        elif "text/html" not in data:
            assert data.get("text/plain") == again.get("text/plain"), told


def pixels(text: str) -> np.ndarray:
    from PIL import Image

    with Image.open(io.BytesIO(base64.b64decode(text))) as image:
        return np.asarray(image.convert("RGB"), dtype=np.float64)
