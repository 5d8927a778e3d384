"""Icons of programs beside JupyterLab: only small pictures, from the folder of the file that names them."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from notebook_launcher.core.errors import ProfileError
from notebook_launcher.core.package_data import job_script
from notebook_launcher.profiles.icons import KNOWN, MOST, data_url, files_among, icon_beside
from notebook_launcher.profiles.layers import Layer
from notebook_launcher.profiles.models import ClusterProfile
from notebook_launcher.profiles.validation import validated

SVG = b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'


def png(pixels: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + pixels.to_bytes(4, "big") * 2 + b"\x08\x06\0\0\0"


def profile_with(icon: str) -> ClusterProfile:
    layer = Layer("uni.toml", {"apps": {"board": {"command": ["board", "{socket}"], "icon": icon}}})
    return validated(ClusterProfile, [layer])


def test_a_picture_is_an_address_without_any_markup() -> None:
    assert data_url("a.svg", SVG, "") == f"data:image/svg+xml;base64,{base64.b64encode(SVG).decode()}"
    assert data_url("a.png", png(64), "").startswith("data:image/png;base64,iVBOR")
    assert data_url("a.svg", b"<svg><clipPath id='a'/><g clip-path='url(#a)'/></svg>", "")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.svg", b"<html><body onload=alert(1)>"),
        ("a.svg", b'<!DOCTYPE svg [<!entity a "b">]><svg>&a;</svg>'),
        ("a.svg", b"<svg " + b"x" * MOST),
        ("a.svg", b"<svg><g id='a'/><g id='b'><use href='#a'/><use href='#a'/></g></svg>"),
        ("a.svg", b"<svg xmlns:s='http://www.w3.org/2000/svg'><s:use href='#a'/></svg>"),
        ("a.svg", b"<svg><mask id='a'/><clipPath id='b'><g mask='url(#a)'/></clipPath></svg>"),
        ("a.png", SVG),
        ("a.png", png(20_000)),
        ("a.png", b""),
    ],
)
def test_what_is_no_small_picture_is_refused(name: str, content: bytes) -> None:
    with pytest.raises(ProfileError, match=r"^uni\.toml:3: a\.(svg|png) cannot be used as an icon: it (is|may) "):
        data_url(name, content, "uni.toml:3")


def test_it_lies_beside_the_file_that_names_it(tmp_path: Path) -> None:
    layers = []
    for name in ("site", "own"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "board.svg").write_bytes(b"<svg>%s</svg>" % name.encode())
        layers.append(Layer(str(tmp_path / name / "uni.toml"), {"apps": {"board": {"icon": "board.svg"}}}))
    assert icon_beside(layers, "board", "board.svg") == data_url("board.svg", b"<svg>own</svg>", "")
    titled = Layer(layers[1].name, {"apps": {"board": {"title": "Mine"}}})
    assert icon_beside([layers[0], titled], "board", "board.svg") == data_url("board.svg", b"<svg>site</svg>", "")
    with pytest.raises(ProfileError, match=r"other\.svg cannot be read"):
        icon_beside(layers, "board", "other.svg")
    (tmp_path / "own" / "board.svg").write_bytes(b"<svg " * MOST)
    with pytest.raises(ProfileError, match="larger than 16 KiB"):
        icon_beside(layers, "board", "board.svg")


@pytest.mark.parametrize("icon", ["../a.svg", "/etc/passwd", "a/b.svg", ".svg", "a.gif", "odd", "<svg>", "a.svg\n"])
def test_what_cannot_be_one(icon: str) -> None:
    try:
        assert profile_with(icon).apps["board"].icon == icon.strip() == "a.svg"
    except ProfileError as error:
        assert "is not an icon: use chart, code," in error.what or "more than one line" in error.what


def test_the_page_knows_the_same_names() -> None:
    assert files_among(["chart", None, "b.svg", "a.png", "b.svg"]) == ("b.svg", "a.png")
    script = (job_script("jupyterlab.sh").parent / "lib" / "panel_apps.js").read_text()
    assert [name for name in KNOWN if f"{name}: '" not in script and f"'{name}'" not in script] == []
    assert profile_with("chart").apps["board"].icon == "chart"
