"""A session and its record: the directory on the cluster with the request and its outcome.

The directory is the source of truth. The launcher writes ``session.json``, ``session.env`` and ``token`` once.
``submit.sh`` writes ``job`` as soon as the scheduler has answered, so that the job id survives a launcher that is
killed right then. The job writes the rest.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import posixpath
import re
import secrets
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field, fields
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Literal, get_args

from notebook_launcher import __version__
from notebook_launcher.core.errors import HostCommandFailed
from notebook_launcher.core.frozen import Frozen, complete
from notebook_launcher.core.package_data import CHECKSUMS, checksums, job_files
from notebook_launcher.core.request import Request
from notebook_launcher.core.sbatch_options import is_flag_name
from notebook_launcher.core.timestamps import parse_iso
from notebook_launcher.hosts.base import Host
from notebook_launcher.profiles.models import Environment
from notebook_launcher.schedulers.base import JobRef, Submission

SESSION_ID = re.compile(r"\d{8}-\d{6}-[a-z2-7]{4}")
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"

Program = Literal["jupyterlab", "shell", "notebook", "script"]  # the last two: batch jobs, without a server

_SITE = 'printf "%s\\n" "$HOME" "$(id -un)" "$(hostname)" "$(date +%Y-%m-%dT%H:%M:%S%z)"'


class Site(Frozen):
    """What inspecting a host found: the user's home and name there, the host's name and its clock.

    ``read_at``: when the time was read, by this machine's clock.
    """

    home: str
    user: str
    hostname: str
    now: datetime
    read_at: float = field(default_factory=lambda: time.time(), compare=False)

    def clock(self) -> datetime:
        """Return the time on the host's clock, with its zone: its time at the inspection plus the time since then.

        This uses this machine's wall clock, which continues while a laptop sleeps; ``time.monotonic`` may not.
        """
        return self.now + timedelta(seconds=time.time() - self.read_at)

    def expand(self, path: str) -> str:
        """Return a path with a leading ``~``, ``$HOME`` or ``$USER`` expanded as on the host."""
        values = {"HOME": self.home, "USER": self.user}
        path = re.sub(r"^~(?=/|$)", "$HOME", path)
        return re.sub(r"\$(?:(HOME|USER)\b|\{(HOME|USER)\})", lambda found: values[found[1] or found[2]], path)


def inspect_host(host: Host) -> Site:
    """Return a host's ``Site``. Raises ``HostCommandFailed`` if the host's output is not as expected."""
    answer = host.run(["sh", "-c", _SITE])
    lines = answer.stdout.splitlines()[-4:]  # start-up files may print something before
    now = parse_iso(lines[-1]) if len(lines) == 4 else None
    if now is None or now.tzinfo is None:
        raise HostCommandFailed(
            f"{host.label} does not run simple commands.", why=(answer.stderr or answer.stdout).strip()[-500:]
        )
    home, user, hostname, _ = lines
    return Site(home, user, hostname, now)


class SessionRecord(Frozen):
    """``session.json``: the request, and the launcher's version. Unknown keys, from a later version, are ignored.

    ``command``: the arguments that repeat the launch. ``launched_from``: the name of the user's machine.
    ``idle_stop``: seconds of idleness after which it ends by itself, 0: never. ``course``: the course that it was
    launched for. ``purpose``: the launcher's own command that the job belongs to, such as ``env check``; "": a session
    of the user's. ``notebook``: the file name of a run's notebook; ``script``: that of a submitted script; ``sent``:
    the files that were copied into its folder at the start. ``continues``: the session that it continues; "": none.
    """

    id: str
    created: datetime
    scheduler: str
    flags: dict[str, str | None]
    log: str
    version: int = 1
    launcher: str = __version__
    cluster: str | None = None
    host: str | None = None
    environment: str | None = None
    route: str | None = None
    program: Program = "jupyterlab"
    command: str | None = None
    launched_from: str | None = None
    idle_stop: int = 0
    course: str | None = None
    purpose: str = ""
    notebook: str | None = None
    sent: tuple[str, ...] = ()
    script: str | None = None
    continues: str = ""

    def as_json(self) -> str:
        """Return the content of ``session.json``."""
        written = asdict(self) | {"created": self.created.isoformat()}
        return json.dumps(written, ensure_ascii=False, separators=(",", ":"))  # sessions.sh searches for parts of it

    @property
    def software(self) -> str | None:
        """The environment's name; without one, that of the requested virtual environment, image or modules."""
        try:
            words = shlex.split(self.command or "")
        except ValueError:
            words = []
        end = words.index("--") if "--" in words else len(words)
        typed = [(name, value) for name, value in itertools.pairwise(words[:end]) if name in _SOFTWARE]
        modules = ", ".join(value for option, value in typed if option == "--module")
        activated = next((value for option, value in typed if option != "--module"), "")
        image = words[-1] if words[end + 1 :] else ""
        return self.environment or _last_part(activated) or _last_part(image) or modules or None


def record_in(text: str | bytes) -> SessionRecord:
    """Return the record in a ``session.json``. Raises ``ValueError`` or ``TypeError`` if it is damaged."""
    complete(SessionRecord)
    data = json_object(text)
    data = {"route": data.get("stream"), **data}  # its old name
    return SessionRecord(
        **{one.name: _checked(data[one.name], str(one.type)) for one in fields(SessionRecord) if one.name in data}
    )


def _checked(value: Any, kind: str) -> Any:
    """Return a value of a record, converted to a field's type ``kind``. Raises ``ValueError``."""
    if kind == "datetime" and isinstance(value, str) and (moment := parse_iso(value)):
        return moment
    if kind == "tuple[str, ...]" and isinstance(value, list):
        return tuple(_checked(one, "str") for one in value)
    if kind == "dict[str, str | None]" and isinstance(value, dict):
        flags = {_checked(key, "str"): _checked(one, "str | None") for key, one in value.items()}
        return {name: one for name, one in flags.items() if is_flag_name(name)}  # commands for the user contain them
    if (kind == "int" and type(value) is int) or (kind == "str | None" and value is None):
        return value
    if kind == "Program" and value in get_args(Program):
        return value
    if kind in ("str", "str | None") and isinstance(value, str):
        value.encode()  # a ValueError for a lone surrogate, which cannot be printed
        return value
    raise ValueError(f"{value!r:.80} is not {kind}")


_SOFTWARE = ("--venv", "--conda", "--uv", "--module")


def _last_part(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


class Session(Frozen):
    """A session: its record, its directory on the cluster, and its job once submitted."""

    record: SessionRecord
    directory: str
    job: JobRef | None = None

    @property
    def id(self) -> str:
        """The session's name."""
        return self.record.id

    @property
    def submission(self) -> Submission:
        """What the scheduler needs to submit it."""
        script, log = f"{self.directory}/jupyterlab.sh", f"{self.directory}/{log_name(self.record.flags)}"
        return Submission(self.id, self.directory, script, log, self.record.created)


def log_name(flags: Mapping[str, str | None]) -> str:
    """Return the name of a job's log in its session's directory; of a job array, with sbatch's pattern for the task."""
    return "job-%a.log" if "array" in flags else "job.log"


def new_id(now: datetime) -> str:
    """Return a unique name for a session: the time, and four random characters (20 bits).

    The end, by which users name a session, never consists of digits only, which would be read as a job id.
    """
    end = "".join(secrets.choice(_ALPHABET) for _ in range(4))
    return new_id(now) if end.isdecimal() else now.strftime(f"%Y%m%d-%H%M%S-{end}")


def new_session(
    root: str,
    request: Request,
    *,
    scheduler: str,
    cluster: str | None,
    host: str | None,
    environment: str | None,
    now: datetime,
    route: str | None = None,
    program: Program = "jupyterlab",
    command: str | None = None,
    launched_from: str | None = None,
    idle_stop: int = 0,
    course: str | None = None,
    purpose: str = "",
    notebook: str | None = None,
    sent: Sequence[str] = (),
    script: str | None = None,
    chdir: str | None = None,
) -> Session:
    """Return a new session under ``root``; nothing is written yet.

    ``chdir``: the job's working directory; a relative one is in the session's.
    """
    session_id = new_id(now)
    directory = f"{root}/{session_id}"
    flags = {**request.flags, **({"chdir": posixpath.join(directory, chdir)} if chdir else {})}
    record = SessionRecord(
        id=session_id,
        created=now,
        scheduler=scheduler,
        cluster=cluster,
        host=host,
        flags=flags,
        environment=environment,
        route=route,
        log=request.flags.get("output") or f"{directory}/{log_name(request.flags)}",
        program=program,
        command=command,
        launched_from=launched_from,
        idle_stop=idle_stop,
        course=course,
        purpose=purpose,
        notebook=notebook,
        sent=tuple(sent),
        script=script,
    )
    return Session(record, directory)


def session_files(session: Session, session_env: str, token: str, more: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return all files for the session's directory, by name. ``more``: further files, such as keys or a notebook."""
    scripts = job_files()
    return {
        "session.json": (session.record.as_json() + "\n").encode(),
        "session.env": session_env.encode(),
        "token": token.encode(),
        "job.log": b"",
        **more,
        **scripts,
        CHECKSUMS: checksums(scripts),
    }


def discard_session(host: Host, session: Session) -> None:
    """Remove the directory of a session that never had a job, if it looks like one of ours."""
    if SESSION_ID.fullmatch(session.directory.rpartition("/")[2]):
        host.run(["rm", "-rf", "--", session.directory])


def environment_lines(
    environment: Environment,
    *,
    container: str | None = None,
    path: Sequence[str] = (),
    others: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return ``session.env``: plain ``key=value`` lines, which the job script reads as data and never runs.

    ``others``: further keys, not of the environment.
    """
    activate = [environment.activate] if isinstance(environment.activate, str) else list(environment.activate)
    pairs = [
        ("setenv", [f"{name}={value}" for name, value in environment.env.items()]),
        ("module_use", environment.module_use),
        ("module", environment.modules),
        ("container", [container or environment.container]),
        ("container_command", [environment.container_command]),
        ("bind", environment.bind),
        ("conda", [environment.conda]),
        ("venv", [environment.venv]),
        ("uv", [environment.uv]),
        ("digest", [environment.digest]),
        ("activate", activate),
        ("path", path),
        ("gpu", [environment.gpu]),
        *((key, [value]) for key, value in others.items()),
        ("start_timeout", [str(environment.start_timeout)]),
    ]
    return "".join(f"{key}={value}\n" for key, values in pairs for value in values if value)


def read_job(host: Host, directory: str) -> JobRef | None:
    """Return the job that ``submit.sh``, or the job itself, recorded; ``None`` if neither did."""
    noted = (host.read_file(f"{directory}/job") or b"").decode(errors="replace")
    if job := job_in(noted, None):
        return job
    return job_in("", json_object(host.read_file(f"{directory}/started.json") or b""))


def json_object(text: str | bytes) -> Mapping[str, object]:
    """Return the JSON object in a file of a session, an empty one if there is none, as files may be damaged."""
    with contextlib.suppress(ValueError, RecursionError):
        data = json.loads(text)
        if isinstance(data, dict):
            return data
    return {}


def job_in(noted: str, started: Mapping[str, object] | None) -> JobRef | None:
    """Return the job in a submit command's output, else the one that the job recorded when it started.

    Only a well-formed job id counts: a site's plug-in may print sentences around it, and it is used in commands.
    """
    words = [*reversed(noted.splitlines()), str((started or {}).get("job") or "")]
    return next((job for job in map(_job_of, words) if job), None)


def _job_of(line: str) -> JobRef | None:
    """Read one line of a submit command's output: ``7``, ``7;snowy``, or LSF's ``Job <7> is submitted to ...``."""
    if match := re.match(r"Job <(\d{1,12})> is submitted", line.strip(), re.A):
        return JobRef(match[1])
    match = re.fullmatch(r"(\d[\w.-]*)(?:;([\w.-]+))?", line.strip(), re.A)
    return JobRef(match[1], match[2]) if match else None
