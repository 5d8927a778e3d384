"""``classroom handout``: writes a page for the students of a course, as Markdown, HTML and PDF.

Text from the course is escaped in each format. The PDF is printed by a browser that is installed on this machine, so
that it looks like the HTML page and needs no library.
"""

from __future__ import annotations

import contextlib
import functools
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from notebook_launcher.bench.journal import write_atomically
from notebook_launcher.classroom.new_files import new_files
from notebook_launcher.core import events
from notebook_launcher.core.errors import CopyFailed, ProfileError, UsageError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.request import gpus_in
from notebook_launcher.core.text import one_line, printable
from notebook_launcher.core.view import View
from notebook_launcher.planning.course_source import ADDRESS
from notebook_launcher.planning.target import LaunchTarget
from notebook_launcher.profiles.courses import SavedCourse, saved_course
from notebook_launcher.profiles.store import as_flags, bundled_profiles, user_profile_path, user_profiles

if TYPE_CHECKING:
    import jinja2

#: browsers that can print a page headlessly, by the names of their programs on Linux, macOS and Windows
BROWSERS = (
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge", "msedge"),
    "chromium-headless-shell",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
)
PRINT_WITHIN = 60.0  # seconds
#: the command that installs the launcher, unless the teacher gives another
INSTALL = "pipx install ./notebook-launcher"
_MARKDOWN = re.compile(r"([\\`*_\[\]<>#|~])")


class Line(Frozen):
    """One line of the page: a sentence, an item of a list, or a command to type. ``code``: parts shown as code."""

    kind: Literal["text", "item", "command"]
    text: str
    code: tuple[str, ...] = ()

    @property
    def parts(self) -> Iterator[tuple[bool, str]]:
        """The text in parts, each with whether it is code."""
        rest = self.text
        for code in self.code:
            before, found, rest = rest.partition(code)
            yield False, before
            yield True, found
        yield False, rest


class Section(Frozen):
    """A part of the page."""

    heading: str
    lines: tuple[Line, ...]


class Handout(Frozen):
    """The page: its title, a sentence below it, and its sections."""

    title: str
    about: str
    sections: tuple[Section, ...]


class HandoutOptions(Frozen):
    """Options of the command. ``out``: the path of the files without suffix; ``None``: named after the course, here.

    ``pdf``: fail if there is no PDF. ``install``: the command that installs the launcher. ``portal``: the address of
    the site's web portal, ``thinlinc``: the host of its ThinLinc server, if any. ``force``: replace existing files.
    """

    out: Path | None = None
    install: str = INSTALL
    portal: str = ""
    thinlinc: str = ""
    pdf: bool = False
    force: bool = False


def write_handout(target: LaunchTarget, options: HandoutOptions, view: View) -> None:
    """Write the page in each format, and show the paths. No host is contacted.

    Raises ``UsageError`` without a course, or if a file exists already; ``CopyFailed``.
    """
    course = target.course
    if course is None:
        raise UsageError(
            "There is no course to write an instruction for.", hint="launch-notebook classroom handout --course NAME"
        )
    kept = saved_course(course.name)
    handout = make_handout(target, kept, options)
    browser = find_browser()
    if options.pdf and browser is None:
        raise UsageError(
            "No browser was found that prints a PDF.",
            why="It needs Chromium, Chrome or Edge on this machine.",
            hint="leave out --pdf, open the HTML page, and print it to a file",
        )
    endings = ("md", "html", *(("pdf",) if browser else ()))
    paths = new_files(options.out, f"{course.name}-handout", endings, force=options.force)
    try:
        _write(paths[0], as_markdown(handout).encode())
        _write(paths[1], as_html(handout).encode())
        if browser:
            _write(paths[2], print_pdf(browser, paths[1]))
    except OSError as error:
        raise CopyFailed(
            f"The instruction could not be written to {paths[0].parent}.", why=error.strerror or str(error)
        ) from None
    names = ", ".join(map(str, paths))
    without = "" if browser else " No PDF: no browser was found that prints one; print the HTML page."
    view.show(events.FileWritten(str(paths[1]), f"The instruction for students is in {names}.{without}"))
    if options.install == INSTALL:
        view.show(
            events.Note(
                "It tells students to install a folder that you give them; for another way, add --install COMMAND."
            )
        )
    if profile := _own_profile(target):
        view.show(events.Note(_how_students_get(profile)))
    if not ADDRESS.match(kept.source):
        view.show(
            events.Note(
                f"The course comes from the file {kept.source}, which students need at the same place. Put it on a web "
                "server, and take it from there, if they launch from their own computers."
            )
        )


def _own_profile(target: LaunchTarget) -> str | None:
    """Return the name of the cluster's profile if students must get it; ``None`` if it comes with the launcher."""
    name = target.cluster
    return name if name and (name in user_profiles() or name not in bundled_profiles()) else None


def _how_students_get(profile: str) -> str:
    need = f"Students need the profile “{profile}”, which does not come with the launcher"
    if profile not in user_profiles():
        return f"{need}, but is on this machine for everybody. For other machines, see docs/courses.md."
    return (
        f'{need}: give them your file {user_profile_path(profile)}, with ask = ["user"] in place of your own user. '
        "The page says where they put it; for other ways, see docs/courses.md."
    )


def _write(path: Path, content: bytes) -> None:
    """Write a file that everybody may read, because it may go on a web server."""
    write_atomically(path, content)
    path.chmod(0o644)


def make_handout(target: LaunchTarget, kept: SavedCourse, options: HandoutOptions) -> Handout:
    """Return the page. Raises ``ProfileError`` for a course whose address is not known."""
    course = kept.course
    if not kept.source:
        raise ProfileError(
            f"Where the course “{course.name}” came from was not recorded.",
            hint="name it again: launch-notebook --course FILE_OR_URL",
        )
    whom = target.contact or "your teacher"
    sections = [
        Section("Once, before the lab: install", tuple(_install(options))),
        *_profile(target),
        Section("To start", tuple(_start(kept))),
        *_elsewhere(options),
        Section("When you are done", tuple(_end(kept, uses_gpus=_uses_gpus(target)))),
        Section("If it fails", tuple(_trouble(whom))),
    ]
    return Handout(f"Lab instruction: {course.name}", course.description, tuple(sections))


def _text(text: str, *code: str) -> Line:
    return Line("text", text, code)


def _command(text: str) -> Line:
    return Line("command", text)


def _item(text: str, *code: str) -> Line:
    return Line("item", text, code)


def _install(options: HandoutOptions) -> Iterator[Line]:
    yield _text("You need Python 3.10 or newer, and pipx. Nothing is installed on the cluster.")
    linux, macos, windows = "sudo apt install pipx", "brew install pipx", "py -m pip install --user pipx"
    path = "py -m pipx ensurepath"
    yield _item(f"Linux: open a terminal. On Debian and Ubuntu: {linux}", linux)
    yield _item(f"macOS: open Terminal. With Homebrew: {macos}", macos)
    yield _item(
        f"Windows: open PowerShell. Type {windows} and {path}; then close it, and open it again.", windows, path
    )
    yield _text("Then, on any of them:")
    yield _command(options.install)


def _start(kept: SavedCourse) -> Iterator[Line]:
    yield _text("Type this line, once:")
    yield _command(line_to_type(kept))
    yield _text("From then on, this is enough:")
    yield _command("launch-notebook")
    yield _text(
        "It may ask for your user name and your password on the cluster. Then it says why your job waits, starts "
        "JupyterLab, and opens it in your browser, in the folder of the course. Leave the terminal open."
    )


def line_to_type(kept: SavedCourse) -> str:
    """Return the command with which a student uses the course; with its digest if it is on the web."""
    pinned = f"{kept.source}#sha256={kept.digest}" if ADDRESS.match(kept.source) and kept.digest else kept.source
    return f"launch-notebook --course {shlex.quote(pinned)}"


def _elsewhere(options: HandoutOptions) -> Iterator[Section]:
    """Yield the section about the site's own desktop and portal, if it has any."""
    places = [("ThinLinc: log in to", options.thinlinc), ("Web portal: log in at", options.portal)]
    lines = [_item(f"{how} {where}, open a terminal there, and type the same lines.") for how, where in places if where]
    more = _text(
        "The address opens in a browser on that desktop. A portal may have only a terminal: the launcher then says "
        "what to type on your own computer."
    )
    if lines:
        yield Section("On the cluster's desktop or portal", (*lines, more))


def _profile(target: LaunchTarget) -> Iterator[Section]:
    """Yield the section about the cluster's profile, if it is not bundled with the launcher."""
    if name := _own_profile(target):
        file, folder = f"{name}.toml", "notebook-launcher/clusters"
        linux, macos = f"~/.config/{folder}", f"~/Library/Application Support/{folder}"
        windows = r"%LOCALAPPDATA%\notebook-launcher\clusters"
        login = (target.profile.host or "").rpartition("@")[2] or "LOGIN"
        survey = f"launch-notebook init {login} --name {name}"
        yield Section(
            "Once, before the lab: the cluster's profile",
            (
                _text(f"Your teacher gives you the file {file}. Put it into this folder (create it if need be):", file),
                _item(f"Linux: {linux}", linux),
                _item(f"macOS: {macos}", macos),
                _item(f"Windows: {windows}", windows),
                _text(f"If you did not get the file, type this instead: {survey}", survey),
            ),
        )


def _uses_gpus(target: LaunchTarget) -> bool:
    return any(gpus_in(flag, value or "") for flag, value in as_flags(target.profile.defaults).items())


def _end(kept: SavedCourse, *, uses_gpus: bool) -> Iterator[Line]:
    frees = "frees the GPU for somebody else" if uses_gpus else "frees the node"
    yield _text(f"Save your notebook. Press ENTER in the terminal: this ends the job, and {frees}.")
    connect = "launch-notebook connect"
    yield _item(f"d and ENTER detaches: the job runs on. To come back, on any computer: {connect}", connect)
    yield _item(f"Your notebooks stay in {kept.course.folder or f'~/{kept.course.name}'} on the cluster.")
    if kept.course.class_folder:
        yield _item(
            f"Your teacher sees whether your session runs or is idle, and the timings that you record. Both are in "
            f"{kept.course.class_folder}; nothing else of yours is."
        )


def _trouble(whom: str) -> Iterator[Line]:
    yield _text("Each message says what to type next, after an arrow. If that does not help:")
    doctor, show, stop = "launch-notebook doctor", "launch-notebook list", "launch-notebook stop"
    yield _item(f"{doctor} checks everything that a launch needs, and says what is wrong.", doctor)
    yield _item(f"{show} shows your sessions; {stop} ends them.", show, stop)
    yield _item("If the network breaks: wait. The job runs on, and the launcher connects again.")
    yield _text(f"Whom to ask: {whom}. Copy the whole message into your question.")


# --- formats -------------------------------------------------------------------------------------------------------


def as_markdown(handout: Handout) -> str:
    """Return the page as Markdown."""
    lines = [f"# {_escaped(handout.title)}", ""]
    lines += [_escaped(handout.about), ""] if handout.about else []
    for section in handout.sections:
        lines += [f"## {_escaped(section.heading)}", ""]
        for place, line in enumerate(section.lines):
            text = "".join(f"`{part}`" if is_code else _escaped(part) for is_code, part in line.parts)
            shown = {"item": f"- {text}", "command": f"    {one_line(line.text)}"}
            lines.append(shown.get(line.kind, text))
            following = section.lines[place + 1 : place + 2]
            if line.kind != "item" or not following or following[0].kind != "item":
                lines.append("")
    return "\n".join(lines)


def _spaced(text: str) -> str:
    """Return a part of a line, with a space before the next one."""
    return f"{' ' * text.startswith(' ')}{one_line(text)}{' ' * (text.endswith(' ') and not text.isspace())}"


def _escaped(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", _spaced(text))


def as_html(handout: Handout) -> str:
    """Return the page as self-contained HTML."""
    return _template().render(handout=handout, plain=one_line, spaced=_spaced)


@functools.cache
def _template() -> jinja2.Template:
    import jinja2

    source = (Path(__file__).parent / "handout.html.jinja").read_text(encoding="utf-8")
    return jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    ).from_string(source)


# --- PDF -----------------------------------------------------------------------------------------------------------


def find_browser(names: Sequence[str] = BROWSERS) -> str | None:
    """Return the path of a browser that can print PDF headlessly; ``None`` if there is none."""
    return next((found for name in names if (found := shutil.which(name))), None)


def print_pdf(browser: str, page: Path) -> bytes:
    """Return a page as PDF, printed by a browser with a profile of its own. Raises ``CopyFailed``."""
    with tempfile.TemporaryDirectory(prefix="nl-handout-", ignore_cleanup_errors=True) as folder:
        pdf = Path(folder) / "page.pdf"
        words = ["--headless", "--disable-gpu", "--no-first-run", "--no-pdf-header-footer", f"--user-data-dir={folder}"]
        command = [browser, *words, f"--print-to-pdf={pdf}", page.resolve().as_uri()]
        why = "It printed nothing."
        for more in ([], ["--no-sandbox"]) if _is_root() else ([],):  # Chromium's sandbox does not work as root
            try:
                done = subprocess.run(
                    [*command[:1], *more, *command[1:]], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                    errors="replace", timeout=PRINT_WITHIN, check=False,
                )  # fmt: skip
                why = (done.stderr.strip().splitlines() or [why])[-1]
            except (OSError, subprocess.TimeoutExpired) as error:
                why = str(error)
            with contextlib.suppress(OSError):
                if (content := pdf.read_bytes()).startswith(b"%PDF"):
                    return content
    raise CopyFailed(
        f"{browser} printed no PDF of {page}.", why=printable(why), hint="open the page, and print it to a file"
    )


def _is_root() -> bool:
    import os

    return hasattr(os, "getuid") and os.getuid() == 0
