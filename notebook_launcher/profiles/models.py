"""The shape of a cluster profile and of the environments in it."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator

from notebook_launcher.errors import UsageError
from notebook_launcher.request import parse_idle

# Values travel to the job script as lines of text: one line each.
Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, pattern=r"^[^\n\r\x00]*$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Environment(_Strict):
    """A named way to get software on the node. Empty: ``jupyter lab`` as the node finds it.

    ``modules`` are loaded on the node; ``conda``, ``venv`` and then ``activate`` apply inside the container where
    there is one, otherwise on the node.
    """

    description: str = ""
    container: Line | None = None
    container_command: Literal["apptainer", "singularity"] | None = None
    bind: tuple[Line, ...] = ()
    modules: tuple[Line, ...] = ()
    module_use: tuple[Line, ...] = ()
    conda: Line | None = None
    venv: Line | None = None
    activate: Line | tuple[Line, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    gpu: Literal["auto", "nvidia", "amd", "none"] = "auto"
    start_timeout: int = Field(default=600, ge=1, description="seconds until Jupyter must listen")

    @field_validator("env")
    @classmethod
    def _names_and_lines(cls, env: dict[str, str]) -> dict[str, str]:
        for name, value in env.items():
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise ValueError(f"“{name}” is not a name for an environment variable")
            if re.search(r"[\n\r\0]", value):
                raise ValueError(f"the value of {name} has more than one line")
        return env

    @property
    def is_plain(self) -> bool:
        """Says nothing about where JupyterLab comes from."""
        return not (self.container or self.modules or self.conda or self.venv or self.activate)


class Price(_Strict):
    """What an hour costs, in the site's own unit; what is absent costs nothing.

    ``gpu_hour``: of one GPU, or by type. ``core_hour``: of one core. ``node_hour``: of one node.
    """

    unit: Line
    gpu_hour: float | dict[str, float] = 0.0
    core_hour: float = Field(default=0.0, ge=0)
    node_hour: float = Field(default=0.0, ge=0)


class ClusterProfile(_Strict):
    """How one cluster wants to be asked; see ``docs/profiles.md`` for every key."""

    description: str = ""
    host: Line | None = Field(default=None, description="login node, as ssh knows it; absent: this machine")
    user: Line | None = None
    port: int | None = Field(default=None, ge=1, le=65535)
    ssh_config: Line | None = None
    login_nodes: tuple[Line, ...] = ()
    scheduler: Literal["slurm", "local"] = "slurm"
    engine: Literal["auto", "paramiko", "openssh"] = "auto"
    stream: Literal["auto", "node-ssh", "step", "job-sshd", "direct"] = "auto"
    session_root: Line = "~/.notebook-launcher/sessions"
    environment: Line | None = None
    image_dir: Line | None = None
    idle_stop: Line | None = Field(default=None, description="a time without use that ends a session: 30m")
    gpu_idle: Literal["warn", "end"] = "warn"
    usage_seconds: int = Field(default=5, ge=0, le=3600, description="seconds between two samples of use; 0: none")
    keep_days: int = Field(default=30, ge=1, description="days for which the record of an ended session is kept")
    price: Price | None = None
    defaults: dict[str, str | int | bool] = Field(default_factory=dict)
    environments: dict[str, Environment] = Field(default_factory=dict)

    @field_validator("idle_stop")
    @classmethod
    def _is_a_time(cls, text: str | None) -> str | None:
        if text is not None:
            try:
                parse_idle(text)
            except UsageError as error:
                raise ValueError(f"{error.what} {error.why}") from None
        return text

    @field_validator("host")
    @classmethod
    def _is_a_host(cls, host: str | None) -> str | None:
        if host is not None and (host.startswith("-") or re.search(r"\s", host)):
            raise ValueError(f"“{host}” is not the name of a host")
        return host
