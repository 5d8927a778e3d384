"""TOML that is nearly a profile or a course: valid ones with some keys replaced, dropped or added."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

import tomlkit
from hypothesis import assume
from hypothesis import strategies as st
from tomlkit.exceptions import TOMLKitError

from notebook_launcher.profiles.models import ClusterProfile, CourseProfile
from notebook_launcher.profiles.store import bundled_profiles, profile_layers
from notebook_launcher.profiles.validation import key_types_of

#: every key of every table
KEYS = sorted(
    {*key_types_of(ClusterProfile), *key_types_of(CourseProfile), "flags", "types", "activate", "container", "x"}
)
TEXTS = st.text(max_size=8) | st.sampled_from(
    ["-x", "a\nb", "\x1b[2J", "\u202e", "gpu", "1:00:00", "=", "..", "~", "[", "(", "a" * 99]
)
VALUES = st.recursive(
    TEXTS
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**63, -(2**64)])
    | st.floats()
    | st.dates()
    | st.times()
    | st.datetimes(timezones=st.just(None)),
    lambda some: st.lists(some, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | TEXTS, some, max_size=3),
    max_leaves=4,
)
WHOLE_COURSE: dict[str, Any] = {
    "name": "whole", "description": "d", "cluster": "uni", "contact": "c", "first": date(2026, 1, 2),
    "last": date(2026, 12, 30), "account": "acc1", "environment": "e1", "image": "i1.sif", "image_dir": "/dir",
    "reservations": [{"name": "res1", "first": date(2026, 2, 2), "last": date(2026, 2, 3)}], "idle_stop": "21m",
    "gpu_idle": "end", "notice": "N", "notebooks": ["n1.ipynb"], "folder": "~/f1", "class_folder": "/cls",
    "open_at": "n1.ipynb",
    "defaults": {"mem": "3G"},
    "environments": {"e1": {"container": "c.sif", "activate": ["a-1"], "env": {"E1": "v"}, "conda": "c"}},
    "apps": {"app1": {"command": ["p", "--uds", "{socket}"], "title": "T"}},
}  # fmt: skip
BUNDLED = {name: profile_layers(name)[-1].data for name in bundled_profiles()}


@st.composite
def changed(draw: st.DrawFn, data: Mapping[str, Any]) -> dict[str, Any]:
    """Data with some values replaced, some keys dropped, and some added, at any depth."""
    result = dict(data)
    for _ in range(draw(st.integers(1, 2))):
        key = draw(st.sampled_from([*result, *KEYS, "\x1b", ""]))
        below = result.get(key)
        if isinstance(below, Mapping) and below and draw(st.integers(0, 3)):
            result[key] = draw(changed(below))
        elif isinstance(below, list) and below and isinstance(below[0], Mapping) and draw(st.booleans()):
            result[key] = [draw(changed(below[0])), *below[1:]]
        elif draw(st.integers(0, 4)):
            result[key] = draw(VALUES)
        else:
            result.pop(key, None)
    return result


def written(data: Mapping[str, Any]) -> bytes:
    """Return data as TOML."""
    try:
        return tomlkit.dumps(data).encode()
    except (TOMLKitError, ValueError, UnicodeEncodeError):  # which cannot write everything
        assume(False)
        raise
