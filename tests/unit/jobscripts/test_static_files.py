"""What sends JupyterLab's own files: compressed before a browser asks for them, with a real server and its answers."""

from __future__ import annotations

import asyncio
import gzip
import random
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tornado import httpclient, httpserver, netutil, web

from notebook_launcher.core.package_data import job_script

MIB = 1 << 20


@pytest.fixture
def static_files() -> ModuleType:
    """The module, loaded as the server's configuration loads it."""
    module, path = ModuleType("static_files"), job_script("static_files.py")
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    return module


def script(folder: Path, name: str, size: int) -> str:
    """Write a script of so many bytes, and return it. It compresses to less than half."""
    folder.mkdir(exist_ok=True)
    words = random.Random(name + str(folder)).choices(["function ", "return ", "const ", "=> {", "}\n"], k=size // 4)
    text = "".join(words)[:size]
    (folder / name).write_text(text)
    return text


def answers(static_files: ModuleType, folder: Path, *requests: dict[str, Any]) -> list[httpclient.HTTPResponse]:
    """Return a real server's answers to requests for what is below ``/static/lab/``."""

    async def ask() -> list[httpclient.HTTPResponse]:
        handlers = [("/static/lab/(.*)", web.StaticFileHandler, {"path": str(folder)})]
        application = web.Application(handlers, transforms=[static_files.StaticFilesSentOnce])  # type: ignore[arg-type]
        server = httpserver.HTTPServer(application)
        (listener,) = netutil.bind_sockets(0, "127.0.0.1")
        server.add_socket(listener)
        client, found = httpclient.AsyncHTTPClient(force_instance=True), []
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/static/lab/"
        for options in requests:
            name = options.pop("name")
            found.append(await client.fetch(address + name, decompress_response=False, raise_error=False, **options))
        client.close()
        server.stop()
        await server.close_all_connections()
        return found

    return asyncio.run(ask())


NAME = "jlab_core.0123456789abcdef.js"
GZIP = {"Accept-Encoding": "gzip, br"}


def test_a_script_that_was_compressed_ahead_is_sent_whole_and_to_those_who_read_it(
    static_files: ModuleType, tmp_path: Path
) -> None:
    text = script(tmp_path, NAME, MIB)
    static_files.StaticFilesSentOnce.ahead.compress([str(tmp_path)])
    sent, plain, head, part, same = answers(
        static_files,
        tmp_path,
        {"name": NAME, "headers": GZIP},
        {"name": NAME},
        {"name": NAME, "headers": GZIP, "method": "HEAD"},
        {"name": NAME, "headers": GZIP | {"Range": "bytes=5-14"}},
        {"name": NAME, "headers": GZIP | {"If-None-Match": "*"}},
    )
    assert gzip.decompress(sent.body) == text.encode()
    assert (sent.headers["Content-Encoding"], sent.headers["Content-Length"]) == ("gzip", str(len(sent.body)))
    assert "Accept-Encoding" in sent.headers["Vary"] and "immutable" in sent.headers["Cache-Control"]
    assert (plain.body, plain.headers.get("Content-Encoding")) == (text.encode(), None)
    assert "Accept-Encoding" in plain.headers["Vary"], "a cache has to know that there is another one"
    assert (head.code, head.body, head.headers["Content-Length"]) == (200, b"", str(len(sent.body)))
    assert (part.code, part.body, part.headers.get("Content-Encoding")) == (206, text.encode()[5:15], None)
    assert (same.code, same.body) == (304, b"")


def test_a_script_that_was_replaced_is_sent_as_it_is_now(static_files: ModuleType, tmp_path: Path) -> None:
    script(tmp_path, NAME, MIB)
    static_files.StaticFilesSentOnce.ahead.compress([str(tmp_path)])
    text = script(tmp_path, NAME, MIB // 2)
    (sent,) = answers(static_files, tmp_path, {"name": NAME, "headers": GZIP})
    assert gzip.decompress(sent.body) == text.encode()


def test_what_every_page_loads_first_is_compressed_ahead_from_the_folder_that_counts(
    static_files: ModuleType, tmp_path: Path
) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    text = script(mine, NAME, MIB)
    script(theirs, NAME, MIB // 2)
    others = "main.0123456789abcdef.js", "other.0123456789abcdef.js", "main.js", "main.0123456789abcdef.js.map"
    for name in others:
        script(theirs, name, 1000)
    huge = "main.aaaaaaaaaaaaaaaa.js"
    with (theirs / huge).open("wb") as file:
        file.truncate(17 * MIB)
    ahead = static_files.CompressedAhead()
    ahead.compress([str(tmp_path / "missing"), str(mine), str(theirs)])
    assert gzip.decompress(ahead.of(f"/static/lab/{NAME}", str(MIB))) == text.encode()
    assert [name for name in others if ahead.of(f"/static/lab/{name}", "1000")] == ["main.0123456789abcdef.js"]
    assert ahead.of(f"/static/lab/{huge}", str(17 * MIB)) is None


def test_what_was_not_compressed_ahead_is_compressed_while_it_is_sent(static_files: ModuleType, tmp_path: Path) -> None:
    text = script(tmp_path, NAME, MIB)
    (sent,) = answers(static_files, tmp_path, {"name": NAME, "headers": GZIP})
    assert (gzip.decompress(sent.body), sent.headers["Content-Encoding"]) == (text.encode(), "gzip")
