"""docs/profiles.md: it has every key with its default, and its examples are profiles."""

from __future__ import annotations

import dataclasses
import re

import pytest

from notebook_launcher.core.errors import ProfileError
from notebook_launcher.core.frozen import complete
from notebook_launcher.planning.plan import make_plan
from notebook_launcher.planning.target import LaunchOptions, LocalMachine
from notebook_launcher.profiles import ClusterProfile, Environment, load_profile
from notebook_launcher.profiles.models import AccountRule, Budget, Container, Flags, GpuRule, Price, Table, Translation
from tests.paths import DOCS
from tests.unit.profiles.conftest import Write

DOCUMENTED = (DOCS / "profiles.md").read_text()
SECTIONS: list[tuple[str, type[Table]]] = [
    ("## The keys of a profile", ClusterProfile),
    ("## `[account]`", AccountRule),
    ("| key of `[gpu]`", GpuRule),
    ("| key of `[cpu]`", Flags),
    ("## `[[translations]]`", Translation),
    ("## `[container]`", Container),
    ("## `[price]`", Price),
    ("## `[budget]`", Budget),
    ("## `[environments.NAME]`", Environment),
]


@pytest.mark.parametrize(("heading", "model"), SECTIONS, ids=[model.__name__ for _, model in SECTIONS])
def test_every_key_is_documented_with_its_default(heading: str, model: type[Table]) -> None:
    section = re.split(r"\n## |\n\| key of", DOCUMENTED.partition(heading)[2])[0]
    complete(model)
    fields = dataclasses.fields(model)
    rows = dict(re.findall(r"^\| `(\w+)` \| .+ \| (.+) \|$", section, re.M))
    assert list(rows) == [field.name for field in fields]
    for field in fields:
        key, default, told = field.name, field.default, rows[field.name]
        if default is field.default_factory is dataclasses.MISSING:
            assert told == "required", key
        elif isinstance(default, bool):
            assert told == f"`{str(default).lower()}`", key
        elif isinstance(default, int | float) or (isinstance(default, str) and default):
            assert told == (f'`"{default}"`' if isinstance(default, str) else f"`{default:g}`"), key


EXAMPLES = re.findall(r"```toml\n(.*?)```", DOCUMENTED, re.S)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.splitlines()[0])
def test_the_documented_examples_are_profiles(write: Write, example: str) -> None:
    write(example)
    profile = load_profile("uni")
    assert profile != ClusterProfile()
    plan = make_plan(
        LaunchOptions({"account": "proj1", "gpus": "1"}, cluster="uni"), LocalMachine("laptop", ("slurm",))
    )
    assert plan.request.gpus == 1


def test_the_documented_words_of_another_time(write: Write) -> None:
    write(next(example for example in EXAMPLES if "[[translations]]" in example))
    options = LaunchOptions({"gres": "gpu:t4:2", "partition": "devcore"}, cluster="uni")
    plan = make_plan(options, LocalMachine("laptop", ("slurm",)))
    assert plan.request.flags["gpus"] == "t4:2"
    assert not {"gres", "partition"} & plan.request.flags.keys()
    assert "there is no such partition any more" in "".join(plan.notes)


def test_the_documented_mistake_is_told_like_that(write: Write) -> None:
    path = write('host = "a"\n\n[environments.tf]\ncontaner = "x.sif"')
    with pytest.raises(ProfileError) as caught:
        load_profile("uni")
    told = f"launch-notebook: {caught.value.what}\n      → {caught.value.hint}"
    assert told.replace(str(path), "~/.config/notebook-launcher/clusters/uni.toml") in DOCUMENTED
