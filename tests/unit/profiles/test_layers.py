"""TOML that anybody may have written: any bytes, values and keys give a profile, or an error that says where."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import date
from typing import Any

import pytest
import tomlkit
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from tomlkit.exceptions import TOMLKitError

from notebook_launcher.core.errors import ProfileError, UsageError
from notebook_launcher.profiles.courses import course_layers, validated_course
from notebook_launcher.profiles.layers import parse_layer
from notebook_launcher.profiles.models import ClusterProfile, CourseProfile
from notebook_launcher.profiles.store import bundled_profiles, checked_profile, profile_layers

#: every key of every table
KEYS = sorted(
    {*ClusterProfile.model_fields, *CourseProfile.model_fields, "flags", "types", "activate", "container", "x"}
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
    "gpu_idle": "end", "notice": "N", "notebooks": ["n1.ipynb"], "folder": "~/f1", "defaults": {"mem": "3G"},
    "environments": {"e1": {"container": "c.sif", "activate": ["a-1"], "env": {"E1": "v"}, "conda": "c"}},
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


def in_words(error: ProfileError) -> None:
    """Check an error: it names the file and has no more than one screen."""
    assert "x.toml" in error.what and len(error.what) < 1000
    assert "\n" not in error.what


@given(st.binary(max_size=80) | st.text(alphabet="ab.=[]{}\"'\\,#\n 01:-tfnx", max_size=60).map(str.encode))
@example(b"\xef\xbb\xbfname = 'x'")
@example(b"k = 0x" + b"f" * 5000)
@example(b"k = " + b"9" * 5000)
@example(b"k = " + b"[" * 100_000)
@example(b"k = " + b"[" * 60 + b"]" * 60)
@example(b"a = {" * 60)
@example(b"a." * 3000 + b"a = 1")
def test_any_bytes_are_a_layer_or_an_error_with_a_line(content: bytes) -> None:
    try:
        layer = parse_layer(content, "x.toml")
    except ProfileError as error:
        in_words(error)
        assert error.what.startswith("x.toml:")
    else:
        assert layer.line_of(["nothing"]) is None
        for key in layer.data:
            line = layer.line_of([key])
            assert line is None or 1 <= line <= content.count(b"\n") + 1
        str(layer.data)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(BUNDLED)).flatmap(lambda name: changed(BUNDLED[name])))
@example({"defaults": {"comment": 2**62, "mem": -(2**62)}})
def test_any_profile_is_one_or_an_error_of_ours(data: dict[str, Any]) -> None:
    try:
        checked_profile([parse_layer(written(data), "x.toml")])
    except ProfileError as error:
        in_words(error)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(changed(WHOLE_COURSE), st.sampled_from(sorted(BUNDLED)))
def test_any_course_can_be_put_on_any_cluster_or_is_refused(data: dict[str, Any], cluster: str) -> None:
    try:
        layer = parse_layer(written(data), "x.toml")
        course = validated_course([layer])
    except ProfileError as error:
        in_words(error)
        return
    below = profile_layers(cluster)
    try:
        profile = checked_profile([*below, *course_layers(course, [layer], date(2026, 2, 2), below)])
    except (ProfileError, UsageError) as error:
        assert "\n" not in error.what
    else:
        for environment in profile.environments.values():
            assert isinstance(environment.env, dict)


LONG = 50_000


@pytest.mark.parametrize(
    "content",
    [
        b"k = a" + b" " * LONG + b'"',
        b"a." * LONG + b"a = 1",
        b"['a']\n" + b"a . " * LONG + b"a = 1",
        b'"a".' * LONG + b"a = 1",
        b"[" + b"a." * LONG + b"a]",
        b"x = {" + b"a." * LONG + b"a = 1}",
        b"x = 1" + b"\n" * LONG + b"!",
        b"'" * LONG,
        b'"\\' * LONG,
        b"a" * LONG,
    ],
    ids=lambda content: str(content[:12]),
)
def test_no_file_takes_long_to_refuse(content: bytes) -> None:
    """A course may come from anybody, and is read before its user agrees to it."""
    began = time.process_time()
    with pytest.raises(ProfileError):
        parse_layer(content, "x.toml")
    assert time.process_time() - began < 3
