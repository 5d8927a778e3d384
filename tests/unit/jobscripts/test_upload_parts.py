"""The parts in which JupyterLab uploads a large file, with the real managers that append them."""

from __future__ import annotations

import ast
import asyncio
import base64
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jupyter_server.services.contents import largefilemanager
from tornado import web

from notebook_launcher.core.package_data import job_script

Send = Callable[..., None]
WANTED = ("Upload", "append_each_part_once", "MOST_UPLOADS")


@pytest.fixture(params=["LargeFileManager", "AsyncLargeFileManager"])
def uploads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Have that part of the server's configuration done alone; it is undone afterwards."""
    for name in ("LargeFileManager", "AsyncLargeFileManager"):
        manager = getattr(largefilemanager, name)
        monkeypatch.setattr(manager, "save", manager.save)
    whole = ast.parse(job_script("jupyter_server_config.py").read_text())
    whole.body = [
        each
        for each in whole.body
        if getattr(each, "name", "") in WANTED
        or (isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name) and each.targets[0].id in WANTED)
    ]
    names: dict[str, Any] = {"asyncio": asyncio, "web": web, "manager": request.param}
    exec(compile(whole, "jupyter_server_config.py", "exec"), names)
    names["append_each_part_once"]()
    return names


@pytest.fixture
def send(uploads: dict[str, Any], tmp_path: Path) -> Send:
    manager = getattr(largefilemanager, uploads["manager"])(root_dir=str(tmp_path))

    def send(chunk: int | None, text: str = "", path: str = "large.bin") -> None:
        content = base64.b64encode((text or f"{chunk} ").encode()).decode()
        model = {"type": "file", "format": "base64", "content": content} | ({"chunk": chunk} if chunk else {})
        saved = manager.save(model, path)
        if inspect.isawaitable(saved):
            saved = asyncio.run(_result(saved))
        assert saved["path"] == path.strip("/")

    return send


async def _result(saved: Any) -> Any:
    return await saved


@pytest.mark.parametrize(
    "chunks", [(1, 2, 3, -1), (1, 1, 2, 2, 3, 3, -1, -1), (1, 2, 3, 2, -1), (1, 2, 3, -1, 2, 3), (1, 2, 1, 2, 3, -1)]
)
def test_each_part_is_there_once(send: Send, tmp_path: Path, chunks: tuple[int, ...]) -> None:
    for chunk in chunks:
        send(chunk)
    assert (tmp_path / "large.bin").read_text() == "1 2 3 -1 "


@pytest.mark.parametrize("chunks", [(1, 3), (1, 2, -1, 4), (1, 2, -1, 3)])
def test_a_part_that_does_not_follow_is_refused(send: Send, tmp_path: Path, chunks: tuple[int, ...]) -> None:
    for chunk in chunks[:-1]:
        send(chunk)
    before = (tmp_path / "large.bin").read_text()
    with pytest.raises(web.HTTPError, match="upload it again"):
        send(chunks[-1])
    assert (tmp_path / "large.bin").read_text() == before


def test_another_part_of_the_same_number_is_refused(send: Send, tmp_path: Path) -> None:
    for chunk in (1, 2, 3):
        send(chunk)
    with pytest.raises(web.HTTPError, match="upload it again"):
        send(2, "another")
    assert (tmp_path / "large.bin").read_text() == "1 2 3 "


def test_a_file_saved_otherwise_in_between_is_another_file(send: Send, tmp_path: Path) -> None:
    send(1)
    send(-1)
    send(None, "new ", "/large.bin")
    send(-1)
    assert (tmp_path / "large.bin").read_text() == "new -1 "


def test_a_path_is_the_same_with_and_without_its_slash(send: Send, tmp_path: Path) -> None:
    send(1)
    send(2, path="/large.bin")
    send(2)
    assert (tmp_path / "large.bin").read_text() == "1 2 "


def test_what_is_remembered_has_an_end(
    send: Send, uploads: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upload forgotten goes on as jupyter_server has it go on by itself."""
    monkeypatch.setitem(uploads, "MOST_UPLOADS", 2)
    for path in ("a", "b"):
        send(1, path=path)
        send(2, path=path)
    send(1, path="c")
    for path in ("b", "a"):
        send(2, path=path)
    assert [(tmp_path / path).read_text() for path in ("a", "b")] == ["1 2 2 ", "1 2 "]
