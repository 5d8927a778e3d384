"""TOML that anybody may have written: any bytes, values and keys give a profile, or an error that says where."""

from __future__ import annotations

import time
from datetime import date
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from notebook_launcher.core.errors import ProfileError, UsageError
from notebook_launcher.profiles.courses import course_layers, validated_course
from notebook_launcher.profiles.layers import parse_layer
from notebook_launcher.profiles.store import checked_profile, profile_layers
from tests.unit.profiles.toml_values import BUNDLED, WHOLE_COURSE, changed, written


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
