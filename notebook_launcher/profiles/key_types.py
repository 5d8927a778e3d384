"""The types of a profile's keys, each with its checks. Needs pydantic; see ``models``."""

from __future__ import annotations

import re
import shlex
import unicodedata
import warnings
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from notebook_launcher.core.common_options import place_of_command
from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.request import parse_idle
from notebook_launcher.core.walltime import Walltime
from notebook_launcher.profiles.icons import FILE, KNOWN

_UNSEEN = frozenset({"Cc", "Cf", "Zl", "Zp"})  # controls, format characters such as zero-width spaces, line separators
_MOST_NOTEBOOKS = 200  # each has to be downloaded


def _one_line(text: str) -> str:
    if re.search(r"[\n\r]", text):
        raise ValueError("has more than one line")
    if any(unicodedata.category(sign) in _UNSEEN and sign != "\t" for sign in text):
        raise ValueError("has an invisible character")
    return text


def _not_a_flag(text: str) -> str:
    if text.startswith("-"):
        raise ValueError(f"“{text}” begins with a dash, and would be taken for a flag")
    return text


def _looks_like(pattern: str, what: str) -> AfterValidator:
    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"“{text}” is not {what}")
        return text

    return AfterValidator(check)


def _begins_with_a_program(command: tuple[str, ...]) -> tuple[str, ...]:
    _not_a_flag(command[0])
    return command


def _expression(pattern: str) -> re.Pattern[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a pattern that future versions of Python may interpret differently
            return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"is not a valid regular expression: {error}") from None


def _compiles(pattern: str) -> str:
    _expression(pattern)
    return pattern


def _finds_a_number(pattern: str) -> str:
    if "left" not in _expression(pattern.replace("{account}", "x")).groupindex:
        raise ValueError("has no group (?P<left>…) for the number that is left")
    return pattern


def _are_variables(env: dict[str, str]) -> dict[str, str]:
    for name, value in env.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(f"“{name}” is not a name for an environment variable")
        try:
            _one_line(value)  # the user has to see all of it before agreeing
        except ValueError as error:
            raise ValueError(f"the value of {name} {error}") from None
    return env


def _is_a_time(text: str) -> str:
    try:
        parse_idle(text)
    except UsageError as error:
        raise ValueError(f"{error.what} {error.why}".strip().rstrip(".")) from None
    return text


def _are_walltimes(times: str | dict[str, str]) -> str | dict[str, str]:
    for text in times.values() if isinstance(times, dict) else [times]:
        try:
            Walltime.parse(text)
        except UsageError as error:
            raise ValueError(f"{error.what} {error.why}".strip().rstrip(".")) from None
    return times


def _are_launches(presets: dict[str, str]) -> dict[str, str]:
    for name, typed in presets.items():
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", name):
            raise ValueError(f"“{name}” cannot be the name of a preset; only letters, digits, _ and - are allowed")
        try:
            words = shlex.split(typed)
        except ValueError as error:
            raise ValueError(f"the flags of {name} cannot be read: {error}") from None
        if not _is_launch(words):
            raise ValueError(f"{name} = “{typed}” is not a launch; write its flags, such as: -t 2:00:00 --gpus 1")
        if any(word.partition("=")[0] == "--save" for word in words):
            raise ValueError(f"{name} = “{typed}” has --save, which saves a preset; leave it out")
    return presets


def _is_launch(words: list[str]) -> bool:
    """Return whether these are the flags of a launch, perhaps after a notebook's name, and not another command."""
    first = words[place_of_command(words) :][:1]
    return bool(words) and (words[0].endswith(".ipynb") or all(word.startswith("-") for word in first))


def _are_lines(flags: dict[str, str | int | bool]) -> dict[str, str | int | bool]:
    for name, value in flags.items():
        try:
            _one_line(name + str(value))  # the user has to see all of it before agreeing
        except ValueError as error:
            raise ValueError(f"the value of {name} {error}") from None
    return flags


def _is_an_icon(icon: str) -> str:
    if icon not in KNOWN and not FILE.fullmatch(icon):
        raise ValueError(
            f"“{icon}” is not an icon: use {', '.join(KNOWN)}, or the name of an .svg or .png file beside this file"
        )
    return icon


def _is_not_dask(name: str) -> str:
    if name == "dask":
        raise ValueError("the name “dask” is reserved for Dask's dashboard; choose another one")
    return name


def _is_no_files_name(name: str) -> str:
    if name.endswith(".toml"):
        raise ValueError("ends like a file's name; leave out .toml")
    return name


def _are_beside_the_course(notebooks: tuple[str, ...]) -> tuple[str, ...]:
    if len(notebooks) > _MOST_NOTEBOOKS:
        raise ValueError(f"has {len(notebooks)} files, and at most {_MOST_NOTEBOOKS} are copied")
    for name in notebooks:
        if name.startswith("~") or "\\" in name or {"", "..", "."} & set(name.split("/")):
            raise ValueError(f"“{name}” is not in the course file's folder or below it")
        if _is_hidden(name):
            raise ValueError(f"“{name}” is a hidden file, which other programs may read as their configuration")
    if twice := sorted({name for name in notebooks if notebooks.count(name) > 1}):
        raise ValueError(f"“{twice[0]}” is listed twice")
    return notebooks


def _is_visible(folder: str) -> str:
    if ".." in folder.split("/") or _is_hidden(folder):
        raise ValueError(f"“{folder}” is a hidden folder or contains “..”; choose a visible folder in the home")
    return folder


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") for part in path.split("/"))


# Values are passed to the job script as lines of text, so each has to be a single line.
Sentence = Annotated[str, AfterValidator(_one_line)]
Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1), AfterValidator(_one_line)]
# One line, or a list of lines.
Lines = Annotated[tuple[Line, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)]
# A line that becomes a command's argument, and must never be taken for a flag.
Argument = Annotated[Line, AfterValidator(_not_a_flag)]
# Whom to ask; it is inserted into the sentences of error messages.
Contact = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200), AfterValidator(_one_line)
]
# These become parts of commands and patterns: only harmless, visible characters are allowed.
Host = Annotated[Line, _looks_like(r"(?!-)[^\s'\"`;&<>|(){}$\\]+", "the name of a host")]
User = Annotated[Line, _looks_like(r"(?!-)[^\s'\"`;&<>|(){}$]+", "the name of a user")]
HostPattern = Annotated[Line, _looks_like(r"(?!-)[\w.*?\[\]!-]+", "a pattern for names of hosts")]
Account = Annotated[Line, _looks_like(r"(?!-)[\w.:@+/%-]+", "the name of an account")]
Ending = Annotated[Line, _looks_like(r"[\w.-]+", "the end of a name")]
TypeName = Annotated[Line, _looks_like(r"(?!-)[\w.+-]+", "the name of a kind of GPU")]
Folder = Annotated[Line, _looks_like(r"[/~$].*", "a folder that begins with /, ~ or $HOME")]
Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
Command = Annotated[tuple[Line, ...], Field(min_length=1), AfterValidator(_begins_with_a_program)]
Pattern = Annotated[Line, AfterValidator(_compiles)]
BalancePattern = Annotated[Line, AfterValidator(_finds_a_number)]
StrictInteger = Annotated[int, Field(strict=True)]
Count = Annotated[StrictInteger, Field(ge=1)]
CountOrNone = Annotated[StrictInteger, Field(ge=0)]
Port = Annotated[StrictInteger, Field(ge=1, le=65535)]
SampleSeconds = Annotated[StrictInteger, Field(ge=0, le=3600)]
AppName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,30}$"), AfterValidator(_is_not_dask)]
AppIcon = Annotated[Line, AfterValidator(_is_an_icon)]
UrlPath = Annotated[Line, _looks_like(r"/[!-~]*", "a path that begins with /")]
Rate = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
YesNo = Annotated[bool, Field(strict=True)]
IdleTime = Annotated[Line, AfterValidator(_is_a_time)]
MaxTime = Annotated[Line | dict[Line, Line], AfterValidator(_are_walltimes)]
Variables = Annotated[dict[str, str], AfterValidator(_are_variables)]
Presets = Annotated[dict[str, Line], AfterValidator(_are_launches)]
CourseName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"), AfterValidator(_is_no_files_name)
]
CourseFlags = Annotated[dict[str, str | int | bool], AfterValidator(_are_lines)]
Notebooks = Annotated[tuple[Argument, ...], AfterValidator(_are_beside_the_course)]
#: a folder that several users share, so not one in a home; it is used in lines of text and in commands
SharedFolder = Annotated[Line, _looks_like(r"/[^\s'\"`;&<>|(){}$\\*?\[\]]+", "a folder that begins with /")]
HomeFolder = Annotated[Argument, AfterValidator(_is_visible)]
