"""Every link of a page leads to a file that is there and, behind a ``#``, to one of its headings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.paths import DOCS, ROOT

PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
_FENCED = re.compile(r"^```.*?^```", re.M | re.S)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, made as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", _FENCED.sub("", page.read_text(encoding="utf-8")), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_readme_leads_to_every_page() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in PAGES if page.parent == DOCS and f"docs/{page.name}" not in text] == []


@pytest.mark.parametrize("page", [ROOT / "CONTRIBUTING.md", DOCS / "how-it-works.md"], ids=lambda page: page.name)
def test_files_that_developers_are_sent_to_are_there(page: Path) -> None:
    names = re.findall(r"`([\w./-]+\.(?:py|sh))`", _FENCED.sub("", page.read_text(encoding="utf-8")))
    folders = [ROOT / name for name in ("notebook_launcher", "jobscripts", "tests")]
    files = [str(path) for folder in folders for path in folder.rglob("*.*")]
    assert [name for name in names if "NAME" not in name and not any(file.endswith(f"/{name}") for file in files)] == []
