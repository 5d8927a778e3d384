"""``--route``, and ``--stream``, the name that it had first."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from notebook_launcher.cli.options import route_options


@click.command()
@route_options
def command(route: str | None, forwards: tuple[int, ...]) -> None:
    """Tell the route and the ports."""
    click.echo(f"{route} {forwards}")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "None ()"),
        (["--route", "step"], "step ()"),
        (["--stream", "step", "--forward", "6006"], "step (6006,)"),
    ],
)
def test_a_route_by_both_of_its_names(words: list[str], told: str) -> None:
    assert CliRunner().invoke(command, words).output == f"{told}\n"


def test_the_former_name_is_not_in_the_help() -> None:
    text = CliRunner().invoke(command, ["--help"]).output
    assert "--route" in text and "--stream" not in text
    assert CliRunner().invoke(command, ["--stream", "pigeon"]).exit_code == 2
