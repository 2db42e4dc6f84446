"""What the server says: refusals in one line, its methods, its API as a page. No server is started."""

from __future__ import annotations

import re
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the extra `serve`")

import mixlens
from mixlens.serve import describe, guard

END = " Send JSON as /docs describes it."


def error(*place: Any, kind: str = "int_type", **more: Any) -> dict[str, Any]:
    return {"loc": place, "type": kind, "msg": "Not so", **more}


@pytest.mark.parametrize(
    ("errors", "line"),
    [
        ([error("body", "text", input=7)], "text: Not so. Got 7."),
        ([error("query", "layer", input="x")], "layer: Not so. Got 'x'."),
        ([error("path", "number", 3, input=None)], "number.3: Not so. Got None."),
        ([error("body", kind="missing")], "the body: Not so."),
        ([error("body", 12, kind="json_invalid", input={})], "12: Not so."),
        ([error("body", "a", input=1), error("body", "b", kind="missing")], "a: Not so. Got 1. b: Not so."),
        ([error("body", str(i), kind="missing") for i in range(9)], " ".join(f"{i}: Not so." for i in range(5))),
        ([error("body", "t", input="x" * 200)], f"t: Not so. Got {repr('x' * 200)[:117]}...."),
    ],
)
def test_what_was_wrong_with_a_request_is_one_line(errors: list[dict[str, Any]], line: str) -> None:
    assert describe.refusal_line(errors) == line + END


def test_long_words_are_cut_with_dots() -> None:
    assert guard.clipped("x" * 120) == "x" * 120
    assert guard.clipped("x" * 121) == "x" * 117 + "..."


def test_every_method_is_described_once_with_its_kind() -> None:
    found = {one["name"]: one for one in describe.about_methods()}
    assert len(found) == len(describe.about_methods())
    assert {"alti", "globenc", "attcat", "deeplift"} <= set(found)
    assert (found["alti"]["kind"], found["attcat"]["kind"]) == ("map", "attribution")
    for one in found.values():
        assert list(one) == [
            *("name", "kind", "paper", "cost", "variants", "options", "summary"),
            *("everyday", "title", "signed"),
        ]
        assert all(isinstance(value, str) for value in one["options"].values())
        assert one["summary"]
        assert one["everyday"]
        assert one["title"]
    assert (found["deeplift"]["signed"], found["alti"]["signed"]) == (True, False)
    assert set(found) == set(mixlens.methods())


API: dict[str, Any] = {
    "info": {"description": "About <it>."},
    "paths": {
        "/a/{b}": {
            "get": {
                "summary": "Gives & takes",
                "description": "More.",
                "parameters": [{"name": "b", "required": True, "description": "<one>"}, {"name": "c"}],
                "responses": {"200": {}, "404": {}},
            },
            "post": {
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Body"}}}},
                "responses": {"201": {}},
            },
        }
    },
    "components": {
        "schemas": {
            "Body": {"required": ["x"], "properties": {"x": {"description": "needed"}, "y": {}}, "example": {"x": "é"}},
            "Other": {"properties": {"z": {}}},
        }
    },
}


def test_the_api_is_a_page_without_a_script() -> None:
    page = describe.docs_page(API)
    assert re.findall(r"<h2><code>(.*?)</code></h2>", page) == ["GET /a/{b}", "POST /a/{b}"]
    assert "About &lt;it&gt;." in page
    assert "<p>Gives &amp; takes. More.</p>" in page
    assert "<li><code>b</code>: &lt;one&gt;</li><li><code>c</code> (optional): </li>" in page
    assert "<li><code>x</code>: needed</li><li><code>y</code> (optional): </li>" in page
    assert page.count("Body, as JSON") == 1
    assert "<pre>{&quot;x&quot;: &quot;é&quot;}</pre>" in page
    assert re.findall(r"Answers: (.*?)</p>", page) == ["200, 404", "201"]
    assert page.endswith("</main></body></html>")
    assert "<script" not in page
    assert describe.docs_policy().startswith("default-src 'none'; style-src 'sha256-")
