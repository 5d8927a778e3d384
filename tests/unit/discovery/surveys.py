"""Recorded and made-up output of the survey script, and the profile that is drafted from it."""

from __future__ import annotations

from datetime import date

import pytest

from notebook_launcher.discovery.cluster_survey import read_survey
from notebook_launcher.discovery.profile_draft import (
    Draft,
    Login,
    ProbeResult,
    Spelling,
    choose_account,
    choose_gpu_partition,
    choose_partition,
)
from notebook_launcher.discovery.profile_text import profile_text
from notebook_launcher.profiles.layers import parse_layer
from notebook_launcher.profiles.models import ClusterProfile
from notebook_launcher.profiles.store import checked_profile
from tests import paths

RECORDED = paths.RECORDED / "survey"
DAY = date(2026, 11, 22)
RELEASES = ("22.05", "24.11", "26.05")
each = pytest.mark.parametrize("release", RELEASES)


def draft_of(text: str, other: str | None = None, probed: ProbeResult | None = None) -> Draft:
    survey = read_survey(text, DAY, other)
    account = choose_account(survey)
    return Draft(
        "uni",
        Login("login.uni.example", "alice"),
        "launch-notebook init alice@login.uni.example",
        survey,
        account,
        choose_partition(survey, account.value),
        choose_gpu_partition(survey, account.value),
        Spelling(confirmed=True),
        probed,
    )


def recorded(name: str, release: str) -> str:
    return (RECORDED / f"{name}-{release}.txt").read_text()


def profile_of(draft: Draft) -> ClusterProfile:
    return checked_profile([parse_layer(profile_text(draft).encode(), "uni.toml")])


def sinfo(*lines: str, accounts: tuple[str, ...] = ("p1",), default: str = "") -> str:
    parts = {
        "version": ["slurm 25.05.1"],
        "sinfo": list(lines),
        "config": ["ClusterName = here"],
        "associations": [f"here|{account}||normal|normal" for account in accounts],
        "default_account": [default],
    }
    return "survey 1\n" + "".join(
        f"part {name}\n" + "".join(f"|{line}\n" for line in told) + "code 0\n" for name, told in parts.items()
    )
