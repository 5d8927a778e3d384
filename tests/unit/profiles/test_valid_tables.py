"""``profiles/valid_tables.py``: what was found valid is not checked again, and nothing else is taken for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from notebook_launcher.core.errors import ProfileError
from notebook_launcher.profiles import load_configuration, load_profile, valid_tables
from notebook_launcher.profiles.layers import Layer
from notebook_launcher.profiles.models import ClusterProfile, CourseProfile, Reservation
from notebook_launcher.profiles.store import bundled_profiles, checked_profile, config_folder, profile_layers
from notebook_launcher.profiles.validation import validated, validated_once

DATA = {"host": "login.example", "budget": {"command": ["balance"], "pattern": "(?P<left>[0-9]+)"}}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(tmp_path / "config"))
    return tmp_path / "state"


@pytest.fixture
def entry(folder: Path) -> Path:
    """The only entry, of ``DATA``."""
    valid_tables.keep(read(), DATA)
    assert valid_tables.recall(ClusterProfile, DATA) == read()
    (path,) = entries(folder)
    return path


def entries(folder: Path) -> list[Path]:
    return list(folder.glob("valid-table-*.json"))


def read() -> ClusterProfile:
    return validated(ClusterProfile, [Layer("uni.toml", DATA)])


def write(text: str) -> Path:
    path = config_folder() / "clusters" / "uni.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", bundled_profiles())
def test_a_bundled_profile_is_the_same_the_second_time(name: str, folder: Path) -> None:
    first, second = load_profile(name), load_profile(name)
    assert len(entries(folder)) == 1
    assert first == second == checked_profile(profile_layers(name))
    assert repr(first) == repr(second)  # also the types of its values
    assert first.chosen == second.chosen


def test_a_course_with_days_is_the_same_the_second_time() -> None:
    lab = {"name": "lab", "first": date(2026, 1, 1), "last": date(2026, 2, 1)}
    layers = [Layer("c", {"name": "c", "first": date(2026, 1, 1), "reservations": [lab], "notebooks": ["a.ipynb"]})]
    first, second = (validated_once(CourseProfile, layers) for _ in range(2))
    assert first == second == validated(CourseProfile, layers)
    assert second.reservations == (Reservation("lab", date(2026, 1, 1), date(2026, 2, 1)),)


def test_the_second_command_does_without_pydantic() -> None:
    write('base = "snellius"\nhost = "login.example"\n')
    (config_folder() / "config.toml").write_text('cluster = "uni"\n')
    program = (
        "import sys; from notebook_launcher.profiles import load_configuration, load_profile\n"
        "profile = load_profile(load_configuration().cluster)\n"
        "print('pydantic' in sys.modules, profile.host, sorted(profile.chosen))"
    )
    told = [subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout for _ in range(2)]
    assert [words.split(" ", 1)[0] for words in told] == ["True", "False"]
    assert told[0].removeprefix("True") == told[1].removeprefix("False")


def test_a_file_that_was_changed_is_read_anew() -> None:
    path = write('base = "generic"\nhost = "one.example"\n')
    assert [load_profile("uni").host for _ in range(2)] == ["one.example"] * 2
    path.write_text('base = "generic"\nhost = "two.example"\n')
    assert load_profile("uni").host == "two.example"
    path.write_text('base = "generic"\nhost = "two.example"\ngpu_idle = "sometimes"\n')
    for _ in range(2):
        with pytest.raises(ProfileError, match=r"uni.toml:3: gpu_idle = “sometimes” is not valid"):
            load_profile("uni")


@pytest.mark.parametrize("text", ["usage_seconds = true", 'port = "22"', "keep_days = 0", 'hots = "login.example"'])
def test_a_mistake_is_told_each_time_in_the_same_words(text: str, folder: Path) -> None:
    write(f'host = "login.example"\n{text}\n')
    told = []
    for _ in range(2):
        with pytest.raises(ProfileError) as raised:
            load_profile("uni")
        told.append((raised.value.what, raised.value.why, raised.value.hint))
    assert told[0] == told[1]
    assert "uni.toml:2" in told[0][0]
    assert not folder.exists()


def test_a_flag_of_the_profile_is_checked_each_time() -> None:
    write('[defaults]\nparttion = "gpu"\n')
    for _ in range(2):
        with pytest.raises(ProfileError, match=r"uni.toml:2: \[defaults\] has “parttion”"):
            load_profile("uni")


@pytest.mark.parametrize(("one", "other"), [(1, True), (0, False), (1, 1.0), ("1", 1)])
def test_values_that_are_equal_or_look_alike_are_not_the_same_data(one: object, other: object) -> None:
    layers = [[Layer("", {"defaults": {"nodes": value}})] for value in (one, other)]
    assert validated_once(ClusterProfile, layers[0]).defaults == {"nodes": one}
    try:
        expected: object = validated(ClusterProfile, layers[1])
    except ProfileError as error:
        with pytest.raises(ProfileError, match=error.what[:20]):
            validated_once(ClusterProfile, layers[1])
    else:
        assert repr(validated_once(ClusterProfile, layers[1])) == repr(expected)


def test_other_checks_or_another_version_read_it_anew(entry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = valid_tables._checks()
    monkeypatch.setattr(valid_tables, "__version__", "99")
    valid_tables._checks.cache_clear()
    try:
        assert valid_tables._checks() != before
        assert valid_tables.recall(ClusterProfile, DATA) is None
    finally:
        valid_tables._checks.cache_clear()


def test_a_change_of_the_code_that_checks_is_another_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("profiles/key_types.py", "core/walltime.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("")
    monkeypatch.setattr(valid_tables, "__file__", str(tmp_path / "profiles" / "valid_tables.py"))
    seen = {valid_tables._checks.__wrapped__()}
    for number, name in enumerate(("profiles/key_types.py", "core/walltime.py"), 1):
        (tmp_path / name).write_text("#")
        seen.add(valid_tables._checks.__wrapped__())
        assert len(seen) == number + 1, name


def its_group_may_write(entry: Path) -> None:
    entry.chmod(0o620)


def others_may_write(entry: Path) -> None:
    entry.chmod(0o602)


def the_folder_is_open(entry: Path) -> None:
    entry.parent.chmod(0o770)


def it_is_a_link(entry: Path) -> None:
    entry.rename(entry.parent.parent / "elsewhere")
    entry.symlink_to(entry.parent.parent / "elsewhere")


def it_is_a_folder(entry: Path) -> None:
    entry.unlink()
    entry.mkdir(0o700)


def it_is_a_pipe(entry: Path) -> None:
    entry.unlink()
    os.mkfifo(entry, 0o600)


@pytest.mark.parametrize(
    "change",
    [its_group_may_write, others_may_write, the_folder_is_open, it_is_a_link, it_is_a_pipe, it_is_a_folder],
    ids=lambda change: change.__name__,
)
def test_what_somebody_else_may_have_written_does_not_count(entry: Path, change: Callable[[Path], None]) -> None:
    change(entry)
    assert valid_tables.recall(ClusterProfile, DATA) is None


@pytest.mark.parametrize("whose", ["the file", "its folder"])
def test_another_users_entry_does_not_count(entry: Path, whose: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = (entry if whose == "the file" else entry.parent).stat().st_ino

    def somebody_elses(real: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
        def changed(*words: Any, **named: Any) -> os.stat_result:
            found = real(*words, **named)
            return os.stat_result((*found[:4], found.st_uid + (found.st_ino == place), *found[5:10]))

        return changed

    monkeypatch.setattr(os, "fstat", somebody_elses(os.fstat))
    monkeypatch.setattr(Path, "stat", somebody_elses(Path.stat))
    assert valid_tables.recall(ClusterProfile, DATA) is None


def altered(entry: Path, change: Callable[[dict[str, Any]], object]) -> str:
    content = json.loads(entry.read_text())
    change(content)
    return json.dumps(content)


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", "7", "{}", '{"digest": 5}', "[" * 100_000, "\x00",
    ],
    ids=lambda text: repr(text)[:12],
)  # fmt: skip
def test_a_damaged_entry_does_not_count(entry: Path, text: str) -> None:
    entry.write_text(text)
    assert valid_tables.recall(ClusterProfile, DATA) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.pop("table"),
        lambda content: content.update(digest="0" * 64),  # that of other data, moved here
        lambda content: content.update(table="text"),
        lambda content: content.update(table={"Flags": {}}),  # a table, but not of this kind
        lambda content: content.update(table={"object": {}}),
        lambda content: content.update(table={"ClusterProfile": {"no_such_key": 1}}),
        lambda content: content.update(table={"ClusterProfile": []}),
        lambda content: content.update(table={"ClusterProfile": {}, "dict": {}}),
        lambda content: content["table"]["ClusterProfile"].update(budget={"date": "tomorrow"}),
        lambda content: content["table"]["ClusterProfile"].update(budget={"date": 5}),
    ],
)
def test_an_entry_of_another_kind_does_not_count(entry: Path, change: Callable[[dict[str, Any]], object]) -> None:
    entry.write_text(altered(entry, change))
    assert valid_tables.recall(ClusterProfile, DATA) is None


def test_it_is_for_its_user_alone(entry: Path) -> None:
    assert entry.stat().st_mode & 0o777 == 0o600
    assert entry.parent.stat().st_mode & 0o777 == 0o700


def test_without_a_place_to_write_everything_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_STATE", str(tmp_path / "file"))
    assert load_profile("snellius") == load_profile("snellius")
    assert load_configuration().cluster is None


def test_where_owners_are_not_told_nothing_is_kept(entry: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "getuid")
    assert valid_tables.recall(ClusterProfile, DATA) is None
    load_profile("snellius")
    assert entries(folder) == [entry]


def test_the_oldest_are_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valid_tables, "_MOST_FILES", 3)
    for number in range(5):
        data = {"host": f"login{number}.example"}
        valid_tables.keep(validated(ClusterProfile, [Layer("", data)]), data)
        newest = max(entries(folder), key=lambda one: one.stat().st_mtime_ns)
        os.utime(newest, (number, number))
    assert len(entries(folder)) == 3
    assert valid_tables.recall(ClusterProfile, {"host": "login0.example"}) is None
    assert valid_tables.recall(ClusterProfile, {"host": "login4.example"}) is not None


def test_only_its_own_files_are_removed(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the state folder is a link to a folder that has others."""
    monkeypatch.setattr(valid_tables, "_MOST_FILES", 1)
    others = [
        tmp_path / "others" / name for name in ("thesis.txt", f"{'0' * 64}", f"valid-table-{'x' * 64}.json", "tmp1")
    ]
    others[0].parent.mkdir()
    folder.symlink_to(others[0].parent)
    for other in others:
        other.write_text("")
        os.utime(other, (0, 0))
    for number in range(3):
        data = {"host": f"login{number}.example"}
        valid_tables.keep(validated(ClusterProfile, [Layer("", data)]), data)
    assert all(other.exists() for other in others)
    assert len(list(folder.iterdir())) == len(others) + 1


def test_one_that_is_used_stays_and_one_that_cannot_be_removed_ends_nothing(
    entry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(valid_tables, "_MOST_FILES", 2)
    stuck, unused = (entry.with_name(f"valid-table-{digit * 64}.json") for digit in "01")
    stuck.mkdir()
    unused.write_text("")
    os.utime(entry, (1, 1))
    os.utime(stuck, (2, 2))
    os.utime(unused, (3, 3))
    assert valid_tables.recall(ClusterProfile, DATA) == read()
    valid_tables.keep(read(), {**DATA, "port": 5})
    assert valid_tables.recall(ClusterProfile, DATA) == read()
    assert not unused.exists()


@pytest.mark.parametrize("obstacle", [the_folder_is_open, it_is_a_link, it_is_a_pipe])
def test_what_does_not_count_is_replaced(entry: Path, obstacle: Callable[[Path], None]) -> None:
    obstacle(entry)
    valid_tables.keep(read(), DATA)
    assert valid_tables.recall(ClusterProfile, DATA) == read()


def test_in_a_folder_of_somebody_else_nothing_is_kept(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o1777)
    valid_tables.keep(read(), DATA)
    assert list(folder.iterdir()) == []


def test_a_profile_of_any_size_is_recalled() -> None:
    data = {"environments": {f"e{n}": {"description": "y" * 4000} for n in range(400)}}
    table = validated(ClusterProfile, [Layer("", data)])
    valid_tables.keep(table, data)
    assert valid_tables.recall(ClusterProfile, data) == table


@pytest.mark.parametrize("name", [".#models.py", "models.py"])
def test_a_file_of_the_checks_that_cannot_be_read_ends_no_command(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / name).symlink_to("user@host.1234")  # as Emacs locks a file
    monkeypatch.setattr(valid_tables, "__file__", str(tmp_path / "profiles" / "valid_tables.py"))
    valid_tables._checks.cache_clear()
    try:
        for _ in range(2):
            assert validated_once(ClusterProfile, [Layer("", DATA)]) == read()
    finally:
        valid_tables._checks.cache_clear()


def test_variables_of_a_user_s_own_file_are_not_copied(folder: Path) -> None:
    write('base = "lumi"\n[environments.mine]\nenv = { TOKEN = "secret" }\n')
    assert [load_profile("uni").environments["mine"].env for _ in range(2)] == [{"TOKEN": "secret"}] * 2
    assert not any("secret" in path.read_text() for path in folder.glob("*"))
    load_profile("lumi")
    assert len(entries(folder)) == 1, "those of the bundled profiles are known"
