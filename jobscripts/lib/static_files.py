"""Sends JupyterLab's own files compressed, and lets the browser cache them where that is safe.

``jupyter_server_config.py`` loads this file, in JupyterLab's own Python.
"""

import contextlib
import hashlib
import os
import re
import zlib
from pathlib import Path

from jupyter_server.base.handlers import FileFindHandler
from tornado import web
from tornado.httputil import HTTPHeaders, HTTPServerRequest

STATIC = ("/static/", "/lab/extensions/", "/lab/api/themes/")  # files of JupyterLab and its extensions, not the user's
NAMED_BY_CONTENT = re.compile(r"(?:^|[-._~])[0-9a-f]{16,64}\.")  # main.efd36b46f3b45eb8.js

LAB = "/static/lab/"  # the page's JavaScript
# the files that every page loads first, more than half of all bytes; the names are the same in JupyterLab 3.6 to 4.6
LOADED_FIRST = ("main.", "jlab_core.")
MOST_AHEAD = 16 * 1024 * 1024  # bytes of a file that is compressed before a browser asks for it
LEVEL_AHEAD, LEVEL_ON_REQUEST = 6, 4  # of gzip; 4 takes half the time, and its files are 6 % larger


def is_named_by_content(path: str) -> bool:
    """Whether a file's name contains a checksum of its content, so that different content has a different name."""
    return NAMED_BY_CONTENT.search(path.rpartition("/")[2]) is not None


class CompressedAhead:
    """Compressed files of the page's JavaScript, in memory: by URL path, with their original sizes."""

    def __init__(self) -> None:
        self._ready = {}

    def compress(self, folders: "list[str]") -> None:
        """Compress the files loaded first. ``folders``: where they may be; the first folder that has a file is used."""
        found = {}
        for folder in reversed(folders):
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                found.update((entry.name, Path(entry)) for entry in entries if entry.name.startswith(LOADED_FIRST))
        for name, path in sorted(found.items(), reverse=True):
            if name.endswith(".js") and is_named_by_content(name) and path.stat().st_size <= MOST_AHEAD:
                content = path.read_bytes()
                gzip = zlib.compressobj(LEVEL_AHEAD, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
                self._ready[LAB + name] = len(content), gzip.compress(content) + gzip.flush()

    def of(self, path: str, size: "str | None") -> "bytes | None":
        """Return the compressed file for a URL path, if it is ready and its original has this size."""
        before, compressed = self._ready.get(path, (None, None))
        return compressed if str(before) == size else None


class Compress(web.GZipContentEncoding):
    """Compresses while sending."""

    GZIP_LEVEL = LEVEL_ON_REQUEST


class SendReady(web.OutputTransform):
    """Sends a compressed file in place of the one that was read."""

    def __init__(self, compressed: bytes) -> None:
        self.compressed = compressed

    def transform_first_chunk(self, status: int, headers: HTTPHeaders, _chunk: bytes, _finishing: bool) -> tuple:
        """Send the whole file."""
        headers["Vary"] = f"{headers['Vary']}, Accept-Encoding" if "Vary" in headers else "Accept-Encoding"
        headers["Content-Encoding"] = "gzip"
        headers["Content-Length"] = str(len(self.compressed))
        return status, headers, self.compressed

    def transform_chunk(self, _chunk: bytes, _finishing: bool) -> bytes:
        """Send nothing more."""
        return b""


class StaticFilesSentOnce(web.OutputTransform):
    """Compresses only files of JupyterLab and its extensions, and sets how long a browser may cache them.

    Nothing else is compressed. Pages and errors contain secrets; the length of a compressed answer can reveal whether a
    secret resembles attacker-controlled text beside it, such as the URL (BREACH). And compressing a notebook or a large
    file would block the server.

    By default JupyterLab lets browsers cache every file below some folders for a year. The next session may have the
    same address and another JupyterLab, so that is safe only for names with a checksum.
    """

    ahead = CompressedAhead()

    def __init__(self, request: HTTPServerRequest) -> None:
        self.request, self.chosen = request, web.OutputTransform(request)

    def transform_first_chunk(self, status: int, headers: HTTPHeaders, chunk: bytes, finishing: bool) -> tuple:
        """Choose how to send this file."""
        if status in (200, 304) and self.request.path.startswith(STATIC):
            kept = "max-age=31536000, immutable" if is_named_by_content(self.request.path) else "no-cache"
            headers["Cache-Control"] = f"private, {kept}"
            if status == 200:
                self.chosen = self.compressing(headers)
        return self.chosen.transform_first_chunk(status, headers, chunk, finishing)

    def transform_chunk(self, chunk: bytes, finishing: bool) -> bytes:
        """Send it in the chosen way."""
        return self.chosen.transform_chunk(chunk, finishing)

    def compressing(self, headers: HTTPHeaders) -> web.OutputTransform:
        """Return the transform that compresses a file."""
        ready = self.ahead.of(self.request.path, headers.get("Content-Length"))
        if ready is not None and "gzip" in self.request.headers.get("Accept-Encoding", ""):
            return SendReady(ready)
        return Compress(self.request)


def compare_files_by_content() -> None:
    """Let browsers revalidate cached files without a checksum in their names by content (ETag).

    By default they ask whether the file is newer than their copy. The file of an older JupyterLab is not, and files in
    images may all be dated 1980.
    """

    def etag(handler: FileFindHandler) -> "str | None":
        if is_named_by_content(handler.absolute_path or ""):
            return None
        return f'"{hashlib.sha256(Path(handler.absolute_path).read_bytes()).hexdigest()[:32]}"'

    FileFindHandler.compute_etag = etag


def compress_ahead(app: object) -> None:
    """Compress the page's JavaScript, because a browser will request it soon."""
    StaticFilesSentOnce.ahead.compress(list(app.web_app.settings.get("lab_static_paths", ())))
