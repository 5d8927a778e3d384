"""Icons of programs beside JupyterLab: known names, and image files beside a profile or a course.

A file may come from a stranger, and SVG may contain scripts. So it is only used as a ``data:`` URL, which the page
shows as an image: no script in it runs, and it loads nothing.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from notebook_launcher.core.bounded_read import read_at_most
from notebook_launcher.core.errors import ProfileError
from notebook_launcher.profiles.layers import BUNDLED, Layer, has_key, origin

#: the icons that JupyterLab or the panel (``panel_apps.js``) has
KNOWN = ("chart", "code", "console", "image", "list", "notebook", "table", "text")
FILE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}\.(svg|png)")
MOST = 16 * 1024  # bytes
_MOST_PIXELS = 1024  # of a PNG, in each direction
_PNG = b"\x89PNG\r\n\x1a\n"
# Each of these elements may draw others many times, which may do the same: an image of 2 KB can hang a browser.
_DRAWS_OTHERS = re.compile(rb"<(?:[^\s<>/:]+:)?(?:use|image|filter|foreignObject|pattern|marker)\b")
_LIMITS_OTHERS = re.compile(rb"<(?:[^\s<>/:]+:)?(?:clipPath|mask)\b")  # a single one has nothing to repeat


def files_among(icons: Iterable[str | None]) -> tuple[str, ...]:
    """Return the file names among these icons, each once."""
    return tuple(dict.fromkeys(icon for icon in icons if icon and FILE.fullmatch(icon)))


def data_url(name: str, content: bytes, where: str) -> str:
    """Return an image file as a ``data:`` URL.

    ``where``: the beginning of the error message. Raises ``ProfileError`` if the file cannot be used.
    """
    if problem := _problem_with(name, content):
        raise ProfileError(
            f"{where}: {name} cannot be used as an icon: {problem}.",
            hint=f"use a small SVG or PNG file, or one of these names: {', '.join(KNOWN)}",
        )
    kind = "svg+xml" if name.endswith(".svg") else "png"
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def icon_beside(layers: Sequence[Layer], app: str, icon: str) -> str:
    """Return the icon in a file beside the profile that names it, as a ``data:`` URL.

    ``layers``: those of the profile. Raises ``ProfileError`` if the file cannot be read or used.
    """
    keys = ("apps", app, "icon")
    where = origin(layers, keys)
    layer = next((layer for layer in reversed(layers) if has_key(layer.data, keys)), layers[-1])
    folder = Path(__file__).with_name("bundled") if layer.name.endswith(BUNDLED) else Path(layer.name).parent
    path = folder / icon
    try:
        content = read_at_most(path, MOST)
    except OSError as error:
        why, hint = error.strerror or str(error), "put the file into that folder, or remove the key icon"
        raise ProfileError(f"{where}: {path} cannot be read.", why=why, hint=hint) from None
    return data_url(icon, b"x" * (MOST + 1) if content is None else content, where)


def _problem_with(name: str, content: bytes) -> str | None:
    if len(content) > MOST:
        return f"it is larger than {MOST // 1024} KiB"
    if name.endswith(".png"):
        size = [int.from_bytes(content[at : at + 4], "big") for at in (16, 20)]
        is_png = content.startswith(_PNG) and content[12:16] == b"IHDR"
        if is_png and max(size) <= _MOST_PIXELS:
            return None
        return f"it is not a PNG of at most {_MOST_PIXELS} by {_MOST_PIXELS} pixels"
    is_svg = re.search(rb"<svg[\s>]", content) and b"\0" not in content
    if not is_svg or re.search(rb"<!ENTITY", content, re.I):
        return "it is not an SVG, or it defines entities"
    if _DRAWS_OTHERS.search(content) or len(_LIMITS_OTHERS.findall(content)) > 1:
        none = "use, image, filter, pattern, marker or foreignObject"
        return f"it may draw parts of itself repeatedly: an SVG may have one clipPath or mask, and no {none}"
    return None
