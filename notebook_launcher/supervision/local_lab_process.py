"""Finds, starts, watches and ends the user's own JupyterLab on this machine, with the kernels of a session."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from notebook_launcher.core.errors import UsageError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.supervision import local_lab_config
from notebook_launcher.tunnel.forwarding import Endpoint

STARTS_WITHIN = 60.0  # seconds until it has an address
ENDS_WITHIN = 5.0  # seconds for it to end by itself, and again after a signal
_LARGEST_CONFIG = 1024 * 1024  # bytes that are read of a configuration file
_LAST_LINES = 3  # of its output that are shown if it fails
_LOG = "jupyterlab.log"


class LabStarted(Frozen):
    """The JupyterLab with this ``number`` listens; ``url`` contains its own token."""

    number: int
    url: str


class LabEnded(Frozen):
    """The JupyterLab has ended, or has no address (``exit_code`` is ``None``); ``printed``: its last lines."""

    number: int
    exit_code: int | None
    printed: str


def local_lab_command() -> tuple[str, ...]:
    """Return the command of JupyterLab on this machine. Raises ``UsageError`` if there is none, or it would not run."""
    if found := shutil.which("jupyter-lab"):
        _check_root(Path(found))
        return (found,)
    if importlib.util.find_spec("jupyterlab"):
        _check_root(Path(sys.executable))
        return (sys.executable, "-m", "jupyterlab")
    raise UsageError(
        "--local-lab needs a JupyterLab on this machine, and there is none.",
        why="No jupyter-lab is on your PATH.",
        hint="activate the environment that has one, or install it with: pip install jupyterlab",
    )


def _check_root(program: Path) -> None:
    """Raise ``UsageError`` if JupyterLab would refuse to run because the user is root.

    It is assumed to run if one of its configuration files, or ``program`` if that is a script, mentions ``allow_root``.
    """
    if os.name == "nt" or os.geteuid() != 0:
        return
    chosen = Path(os.environ.get("JUPYTER_CONFIG_DIR") or Path.home() / ".jupyter")
    more = filter(None, os.environ.get("JUPYTER_CONFIG_PATH", "").split(os.pathsep))
    prefixes = (program.parent.parent, program.resolve().parent.parent, Path("/usr/local"), Path("/"))
    places = [chosen, *map(Path, more), *(prefix / "etc/jupyter" for prefix in prefixes)]
    kinds = ("py", "json", "d/*.json")
    files = [file for place in places for kind in kinds for file in place.glob(f"jupyter*config.{kind}")]
    if not any(_allows_root(file) for file in (program, *files)):
        raise UsageError(
            "--local-lab cannot start a JupyterLab on this machine, because you are root.",
            why="JupyterLab refuses to run as root.",
            hint="run launch-notebook as another user, or allow it: write  c.ServerApp.allow_root = True  into "
            f"{chosen / 'jupyter_server_config.py'}",
        )


def _allows_root(file: Path) -> bool:
    with contextlib.suppress(OSError), file.open("rb") as opened:
        return re.search(rb"(?m)^[^#\n]*allow[_-]root", opened.read(_LARGEST_CONFIG)) is not None
    return False


def arguments(endpoint: Endpoint, local_port: int) -> list[str]:
    """Return the arguments that make JupyterLab use the kernels behind a local port; they contain no secret."""
    scheme = "https" if endpoint.secure else "http"
    return [f"--gateway-url={scheme}://127.0.0.1:{local_port}{endpoint.base_url}", "--no-browser"]


def environment(token: str, folder: Path, around: Mapping[str, str]) -> dict[str, str]:
    """Return JupyterLab's environment variables. ``folder``: for its runtime files and ``local_lab_config``."""
    others = around.get("JUPYTER_CONFIG_PATH", "")
    return {
        **around,
        "JUPYTER_GATEWAY_AUTH_TOKEN": token,
        "JUPYTER_GATEWAY_VALIDATE_CERT": "no",  # the certificate, if any, is for the node's public name
        "JUPYTER_RUNTIME_DIR": str(folder),
        "JUPYTER_CONFIG_PATH": f"{folder}{os.pathsep}{others}" if others else str(folder),
    }


def address_in(runtime_file: str) -> str:
    """Return the address in a ``jpserver-….json``; "" if the file is not complete yet."""
    with contextlib.suppress(ValueError, TypeError, KeyError):
        server = json.loads(runtime_file)
        token = f"?token={quote(server['token'], safe='')}" if server["token"] else ""
        return f"{server['url']}lab{token}"
    return ""


class LocalLab:
    """A running JupyterLab. ``inbox`` gets ``LabStarted`` and ``LabEnded``. Raises ``OSError`` if it cannot be run.

    It ends with this process, however that ends, because its standard input is a pipe from here.
    """

    _numbers = 0

    def __init__(
        self,
        command: tuple[str, ...],
        endpoint: Endpoint,
        local_port: int,
        token: str,
        inbox: queue.SimpleQueue[object],
    ) -> None:
        LocalLab._numbers += 1
        self.number, self._inbox, self._token = LocalLab._numbers, inbox, token
        self._folder = Path(tempfile.mkdtemp(prefix="launch-notebook-lab-"))  # for this user alone
        source = Path(local_lab_config.__file__).read_text(encoding="utf-8")
        config = f"{source}\n\nset_up(get_config(), {str(self._folder)!r})\n"
        (self._folder / "jupyter_server_config.py").write_text(config, encoding="utf-8")
        try:
            with (self._folder / _LOG).open("wb") as log:
                self._process = subprocess.Popen(
                    [*command, *arguments(endpoint, local_port)],
                    env=environment(token, self._folder, os.environ),
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    # Ctrl-C in the terminal must reach only the launcher, which then ends JupyterLab
                    start_new_session=os.name != "nt",
                    creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
                )
        except OSError:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        threading.Thread(target=self._watch, name="local-lab", daemon=True).start()

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def kernels_gone(self) -> None:
        """Tell JupyterLab, and so its pages, that the session's kernels have ended."""
        pipe = self._process.stdin
        with contextlib.suppress(OSError, ValueError):
            if pipe is not None:
                pipe.write(f"{local_lab_config.KERNELS_GONE}\n".encode())
                pipe.flush()

    def close(self) -> None:
        """End JupyterLab; kernels that run in the session keep running. May be called twice."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        if not self._has_ended():
            self._process.terminate()
            if not self._has_ended():
                self._kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _has_ended(self) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDS_WITHIN)
        return not self.is_running

    def _kill(self) -> None:
        with contextlib.suppress(OSError):
            if os.name == "nt":
                self._process.kill()
            else:
                os.killpg(self._process.pid, signal.SIGKILL)

    def _watch(self) -> None:
        deadline, url = time.monotonic() + STARTS_WITHIN, ""
        while not url and self.is_running and time.monotonic() < deadline:
            for file in self._folder.glob("jpserver-*.json"):
                with contextlib.suppress(OSError):
                    url = address_in(file.read_text(encoding="utf-8"))
            if not url:
                time.sleep(0.1)
        if url:
            self._inbox.put(LabStarted(self.number, url))
        elif self.is_running:
            self._inbox.put(LabEnded(self.number, None, self._printed()))
        code = self._process.wait()
        self._inbox.put(LabEnded(self.number, code, self._printed()))

    def _printed(self) -> str:
        try:
            text = (self._folder / _LOG).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        lines = [line for line in text.splitlines() if "token=" not in line]  # not its address
        shown = " ".join(lines[-_LAST_LINES:])
        return shown.replace(self._token, "…") if self._token else shown  # debug messages may contain the token
