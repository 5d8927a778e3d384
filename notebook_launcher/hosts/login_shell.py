"""Finds out why a login shell runs no commands: a line of a start-up file ends it, replaces it or redirects its output.

Pure: makes a command to run on the host, and reads its output.
"""

from __future__ import annotations

import re

from notebook_launcher.core.errors import LoginShellSilent
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.text import printable
from notebook_launcher.hosts.framing import Frame, command_line

PROBE_WITHIN = 30.0  # seconds

# Each kind of bash is started once more, and traced up to the command that it should run. If it does not get that far,
# the last line is the one that ended or replaced it; if it does, the last `exec` without a command has redirected its
# output. The result goes to both outputs, as one of them may be lost. On one line, for csh.
_TRACE = (
    "trace() { kind=$1; shift; "
    '"$@" 2>&1 >/dev/null | LC_ALL=C awk -v kind="$kind" -v home="$HOME/" '
    '\'/^[+]+%[^%]*%[0-9]+% / { split($0, part, "%"); file = part[2]; if (file ~ /bash_logout$/) next; '
    'if (index(file, home) == 1) file = "~/" substr(file, length(home) + 1); line = file "%" part[3]; '
    'command = $0; sub(/^[^ ]* /, "", command); if (command == ": launch-notebook") through = 1; '
    'else { last = line "%" command; if (command == "exec") moved = last } } '
    'END { if (through && moved) print kind "%redirects%" moved; '
    'if (!through && last) print kind "%ends%" last }\'; }; '
)
_PROBE = (
    f"{_TRACE}export PS4='+%$BASH_SOURCE%$LINENO% '; "
    'text=$(SHLVL=0 trace every bash -x -c ": launch-notebook"; trace login bash -l -x -c ": launch-notebook"); '
    'for to in 1 2; do printf "%s\\n" "$1" "$text" "$2 0" >&"$to"; done'
)
_TRACED = re.compile(r"(every|login)%(ends|redirects)%([~/][^%]+)%(\d{1,6})%(.*)", re.ASCII)
_HARMLESS_TO_SHOW = re.compile(r"(exec|exit|logout|return)\b")
_EVERY_SHELL = "~/.bashrc, ~/.zshenv, ~/.cshrc or ~/.tcshrc"
_LOGIN_SHELL = "~/.bash_profile, ~/.bash_login or ~/.profile"


class Silence(Frozen):
    """A command without a result: the host's label, the kind of shell, and what was printed instead."""

    label: str
    login_shell: bool
    printed: str


def probe(frame: Frame) -> str:
    """Return the line for the remote shell that looks for the cause; its result is printed within a frame."""
    argv = ["bash", "--norc", "-c", _PROBE, "launch-notebook", frame.begins, frame.ends]
    return command_line(argv, login_shell=False)


def explain(silence: Silence, frame: Frame, stdout: str, stderr: str) -> LoginShellSilent:
    """Return the error, given what the probe printed, which may be nothing."""
    answer = frame.read(stdout)
    # if the probe's standard output arrives, the shell that runs every command works, but the login shell does not
    kind = "login" if answer is not None and silence.login_shell else "every"
    text, _ = answer or frame.read(stderr) or ("", None)
    traced = [found for line in text.splitlines() if (found := _TRACED.fullmatch(line)) and found[1] == kind]
    if traced:
        return _error(silence.label, *_explained(traced[0]))
    printed_lines = [line.strip() for line in silence.printed.splitlines() if line.strip()]
    printed = f"Instead of an answer it printed: {printable(printed_lines[-1])[:200]}" if printed_lines else ""
    return unexplained(silence.label, _LOGIN_SHELL if kind == "login" else _EVERY_SHELL, printed)


def unexplained(label: str, files: str = _LOGIN_SHELL, printed: str = "") -> LoginShellSilent:
    """Return the error if the line was not found; ``files``: where it may be. ``printed``: a sentence on the output."""
    why = printed or "A start-up file there ends it, replaces it or redirects its output."
    return _error(
        label,
        why,
        f"look for exit, exec zsh or exec >/dev/null in {files} there, and let only interactive shells run that line",
    )


def _error(label: str, why: str, hint: str) -> LoginShellSilent:
    return LoginShellSilent(f"Your login shell on {label} runs no commands.", why=why, hint=hint)


def _explained(traced: re.Match[str]) -> tuple[str, str]:
    _, how, path, number, command = traced.groups()
    does = "redirects its output" if how == "redirects" else "ends or replaces it"
    shown = f": {printable(command)[:60]}" if _HARMLESS_TO_SHOW.match(command) else ""
    return (
        f"Line {number} of {printable(path)} {does}{shown}",
        "let only interactive shells run that line: if [[ $- == *i* ]]; then …; fi",
    )
