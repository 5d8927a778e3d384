"""Reads from ``qconf`` how a site names its resources, for a profile's ``scheduler_options``."""

from __future__ import annotations

import re

from notebook_launcher.core.bash_options import PLAIN_BASH

#: Bash: prints the list of resources, and each parallel environment
SITE_QUERY = (
    f"{PLAIN_BASH}export LC_ALL=C; qconf -sc || exit; "
    'for one in $(qconf -spl 2>/dev/null); do echo; qconf -sp "$one"; done; exit 0'
)
_RESOURCE = re.compile(
    r"^([A-Za-z][\w.-]*) +\S+ +([A-Z]+) +(\S+) +(YES|FORCED) +(YES|NO|JOB) +\S+ +\S+ *$", re.M | re.A
)
_ENVIRONMENT = re.compile(
    r"^pe_name +([A-Za-z][\w.-]*) *$(?:(?!^pe_name).)*?^allocation_rule +(\S+) *$", re.M | re.S | re.A
)
_GPUS = ("gpu", "gpus", "ngpus", "ngpu")
# the first one that is a consumable is used; if none is, h_vmem still limits each process
_MEMORY = ("h_vmem", "mem", "memory", "h_rss", "m_mem_free", "virtual_free", "mem_free")


def read_site_options(text: str) -> dict[str, str]:
    """Return the options that differ from the defaults; unclear ones are left out."""
    found = {name: (kind, relation, counted) for name, kind, relation, _, counted in _RESOURCE.findall(text)}
    options: dict[str, str] = {}
    one_host = [name for name, rule in _ENVIRONMENT.findall(text) if rule == "$pe_slots"]
    if one_host and "smp" not in one_host and len(one_host) == 1:
        options["parallel_environment"] = one_host[0]
    gpu = next((name for name in _GPUS if name in found and found[name][2] != "NO"), "gpu")
    if gpu != "gpu":
        options["gpu"] = gpu
    memory = next(
        (name for name in _MEMORY if name in found and found[name][0] == "MEMORY" and found[name][2] != "NO"), ""
    )
    if memory and memory != "h_vmem":
        options["memory"] = memory
    if memory and found[memory][2] == "JOB":
        options["memory_per"] = "job"
    if exclusive := [name for name, (_, relation, _) in found.items() if relation == "EXCL"]:
        options["exclusive"] = exclusive[0]
    return options
