"""``launch-notebook clusters``: profiles listed, shown, changed with their comments kept, and never lost."""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tomlkit

from notebook_launcher.core.errors import AccountRefused, PartitionRefused, SubmitRefused, UsageError
from notebook_launcher.jobs.submit import name_profile_in_refusal
from notebook_launcher.planning.plan import make_plan
from notebook_launcher.planning.target import LaunchOptions, LocalMachine
from notebook_launcher.profiles import load_profile
from notebook_launcher.profiles.edit import changed
from notebook_launcher.profiles.layers import plain_value
from notebook_launcher.profiles.store import bundled_profiles
from tests.conftest import Session
from tests.unit.planning.conftest import LaunchNotebook

LAUNCH = str(Path(sys.executable).with_name("launch-notebook"))


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration folder with a profile of the user's own and one on top of a bundled one."""
    folder = tmp_path / "config"
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(folder))
    monkeypatch.setenv("HOME", str(tmp_path))
    (folder / "clusters").mkdir(parents=True)
    (folder / "clusters" / "uni.toml").write_text(UNI)
    return folder


UNI = """\
# of my group
host = "login.uni.example"   # not login2
description = "Ours"

[defaults]
account = "old"  # until May

[[translations]]
note = "a word of before"
when = { partition = "old" }
set = { partition = "new" }
"""


@pytest.fixture
def run(config: Path, launch_notebook: LaunchNotebook) -> LaunchNotebook:
    """Run ``launch-notebook clusters`` with this configuration."""
    return functools.partial(launch_notebook, "clusters")


def events_of(done: subprocess.CompletedProcess[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def name_in(line: str) -> str:
    return (line.removeprefix("*").split() or [""])[0]


def test_the_list(run: LaunchNotebook, config: Path) -> None:
    (config / "clusters" / "bad.toml").write_text('\nhots = "x"\n')
    (config / "clusters" / "generic.toml").write_text('base = "generic"\nhost = "there"\n')
    (config / "config.toml").write_text('cluster = "uni"\n')
    done = run()
    assert done.returncode == 0
    rows = {name_in(line): line for line in done.stdout.splitlines()[1:]}
    assert rows["uni"].startswith("*  uni ")
    assert [line for line in done.stdout.splitlines() if line != line.rstrip()] == []
    assert "[yours] Ours" in rows["uni"]
    assert "there" in rows["generic"] and "[yours on bundled]" in rows["generic"]
    assert f"{config}/clusters/bad.toml:2: there is no key “hots”. did you mean host?" in rows["bad"]
    (event,) = events_of(run("--json"))
    seen = {one["cluster"]: one for one in event["clusters"]}  # type: ignore[index, union-attr, attr-defined]
    assert set(seen) == {*bundled_profiles(), "uni", "bad"}
    assert seen["uni"]["default"] is True
    assert seen["bad"]["status"] == "wrong"
    assert events_of(run("list", "--json"))[0]["clusters"] == event["clusters"]


@pytest.mark.parametrize(
    ("configuration", "note"),
    [
        ("", "No default cluster is set. To set one: launch-notebook clusters use NAME"),
        ('cluster = "here"\n', "This machine is the default; to change that: launch-notebook clusters use NAME"),
        (
            'cluster = "gone"\n',
            "The default cluster, “gone”, has no profile. To set another one: launch-notebook clusters use NAME",
        ),
        ('course = "lab"\n', "The course “lab” takes precedence, and names its own cluster."),
    ],
)
def test_the_list_says_what_the_default_is_if_it_marks_none(
    run: LaunchNotebook, config: Path, configuration: str, note: str
) -> None:
    (config / "config.toml").write_text(configuration)
    listed, noted = events_of(run("--json"))
    assert (listed["event"], noted["text"]) == ("clusters", note)


def test_retired_clusters_come_last_with_their_successor(run: LaunchNotebook, config: Path) -> None:
    (config / "clusters" / "aaa.toml").write_text('status = "retired"\nsuccessor = "uni"\ndescription = "Old"\n')
    (config / "clusters" / "aab.toml").write_text('[unavailable]\nwhy = "No way in."\ninstead = "go there"\n')
    lines = run().stdout.splitlines()
    assert [line for line in lines if "[retired; now: uni, yours] Old" in line]
    place = {name_in(line): number for number, line in enumerate(lines)}
    assert place["aaa"] > place["uni"] and place["aab"] > place["uni"]
    assert "[no sessions there, yours]" in lines[place["aab"]]


def test_show(run: LaunchNotebook, config: Path) -> None:
    assert run("show", "uni").stdout == UNI
    (config / "clusters" / "mine.toml").write_text('base = "uni"\n[defaults]\naccount = "new"\n')
    both = run("show", "mine").stdout
    assert both.index(f"# ---- {config}/clusters/uni.toml") < both.index(f"# ---- {config}/clusters/mine.toml")
    merged = run("show", "mine", "--merged").stdout
    assert f'account = "new" # {config}/clusters/mine.toml:3' in merged
    assert f'host = "login.uni.example" # {config}/clusters/uni.toml:2' in merged
    assert f'note = "a word of before" # {config}/clusters/uni.toml:9' in merged
    (config / "clusters" / "again.toml").write_text(merged)  # it is a profile itself
    assert load_profile("again").changed(base=None) == load_profile("mine").changed(base=None)
    wrong = run("show", "unu")
    assert wrong.returncode == 3 and "did you mean launch-notebook clusters show uni?" in wrong.stderr


@pytest.mark.parametrize("name", bundled_profiles())
def test_a_bundled_profile_merged_is_what_it_is(run: LaunchNotebook, config: Path, name: str) -> None:
    from notebook_launcher.planning.profile_commands import merged_text
    from notebook_launcher.profiles.store import profile_layers

    (config / "clusters" / "again.toml").write_text(merged_text(profile_layers(name)))
    assert load_profile("again").changed(base=None) == load_profile(name).changed(base=None)


def test_use(run: LaunchNotebook, config: Path) -> None:
    (config / "config.toml").write_text('# mine\ncourse = "lab"   # kept\n')
    (event, note) = events_of(run("use", "uni", "--json"))
    assert event["event"] == "saved" and event["path"] == str(config / "config.toml")
    assert "“lab” takes precedence" in str(note["text"])
    assert (config / "config.toml").read_text() == '# mine\ncourse = "lab"   # kept\ncluster = "uni"\n'
    assert run("use", "here").returncode == 0
    assert 'cluster = "here"' in (config / "config.toml").read_text()
    wrong = run("use", "un")
    assert wrong.returncode == 3 and "did you mean launch-notebook clusters use uni?" in wrong.stderr
    assert 'cluster = "here"' in (config / "config.toml").read_text()
    for words in ((), ("uni", "--unset")):
        refused = run("use", *words)
        assert refused.returncode == UsageError.exit_code and "clusters use --unset" in refused.stderr
    assert 'cluster = "here"' in (config / "config.toml").read_text()
    assert run("use", "--unset").returncode == 0
    assert (config / "config.toml").read_text() == '# mine\ncourse = "lab"   # kept\n'


def test_without_a_default_of_ones_own_that_of_the_machine_is_named(
    run: LaunchNotebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "xdg" / "notebook-launcher"
    site.mkdir(parents=True)
    (site / "config.toml").write_text('cluster = "pelle"\n')
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(site.parent))
    assert run("use", "uni").returncode == 0
    assert "the default for everybody is “pelle”" in run("use", "--unset").stderr


@pytest.mark.parametrize("text", ['status = "retired"\n', '[unavailable]\nwhy = "No."\ninstead = "use uni"\n'])
def test_a_cluster_where_nothing_can_be_launched_is_not_made_the_usual_one(
    run: LaunchNotebook, config: Path, text: str
) -> None:
    (config / "clusters" / "closed.toml").write_text(text)
    (config / "config.toml").write_text('cluster = "uni"\n')
    done = run("use", "closed")
    assert (done.returncode, done.stdout) == (5, "")
    assert ("use uni" if "instead" in text else "switched off") in done.stderr
    assert (config / "config.toml").read_text() == 'cluster = "uni"\n'


@pytest.mark.parametrize(
    ("refusal", "command"),
    [
        (AccountRefused("Slurm refused the job.", hint="name one with -A"), "clusters edit generic --account …"),
        (PartitionRefused("Slurm refused the job.", hint="name one with -p"), "clusters edit generic --partition …"),
    ],
)
def test_a_refused_word_that_was_kept_is_mended_where_it_is_kept(
    run: LaunchNotebook, config: Path, refusal: SubmitRefused, command: str
) -> None:
    assert run("edit", "generic", "-A", "proj9", "-p", "gpuu", "--host", "login").returncode == 0
    plan = make_plan(LaunchOptions(cluster="generic"), LocalMachine("laptop"))
    with pytest.raises(SubmitRefused) as caught, name_profile_in_refusal(plan):
        raise refusal
    assert caught.value.hint.startswith(f"keep another: launch-notebook {command}   or for this launch alone: name one")


def test_edit_by_flags_keeps_comments(run: LaunchNotebook, config: Path) -> None:
    done = run("edit", "uni", "-A", "proj1", "--user", "alice", "--set", "defaults.gpus=1", "--set", "port=2222",
               "--set", 'environments."my env".conda=x', "--set", "description=")  # fmt: skip
    assert done.returncode == 0, done.stderr
    text = (config / "clusters" / "uni.toml").read_text()
    assert "# of my group" in text and '"login.uni.example"   # not login2' in text and '"proj1"  # until May' in text
    profile = load_profile("uni")
    assert (profile.user, profile.port, profile.description) == ("alice", 2222, "")
    assert profile.defaults == {"account": "proj1", "gpus": 1}
    assert profile.environments["my env"].conda == "x"
    assert stat.S_IMODE((config / "clusters" / "uni.toml").stat().st_mode) == 0o600
    assert not list(config.rglob("*.new"))


def test_edit_of_a_bundled_profile_stands_on_it(run: LaunchNotebook, config: Path) -> None:
    assert run("edit", "generic", "--host", "alice@login", "--partition", "gpu").returncode == 0
    assert tomlkit.parse((config / "clusters" / "generic.toml").read_text()) == {
        "base": "generic", "host": "alice@login", "defaults": {"partition": "gpu"},
    }  # fmt: skip
    assert load_profile("generic").ask


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--host", "-oProxyCommand=x"], "not the name of a host"),
        (["--user", "$(x)"], "not the name of a user"),
        (["--account", "a b"], "account"),
        (["--set", "prot=22"], "did you mean port?"),
        (["--set", "defaults.time=soon"], "time"),
        (["--set", "nothing"], "--set idle_stop=30m"),
        (["--set", "a b=1"], "--set idle_stop=30m"),
        (["--set", "host.name=x"], "host is not a table"),
    ],
)
def test_a_wrong_word_changes_nothing(run: LaunchNotebook, config: Path, words: list[str], says: str) -> None:
    done = run("edit", "uni", *words)
    assert done.returncode in (2, 3)
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert (config / "clusters" / "uni.toml").read_text() == UNI


def test_edit_of_what_is_not_there(run: LaunchNotebook, config: Path) -> None:
    wrong = run("edit", "unu", "--user", "alice")
    assert wrong.returncode == 3 and "did you mean launch-notebook clusters edit uni?" in wrong.stderr
    assert run("edit", "another", "--host", "login.example").returncode == 0
    assert load_profile("another").host == "login.example"
    assert run("edit", "../x", "--host", "login.example").returncode == 3
    assert run("edit", "uni").returncode == 6  # no terminal, no editor


@pytest.mark.parametrize("words", [["--account", "uppmax2026-1-7"], ["--set", "idle_stop=30m"]])
def test_words_that_a_retired_cluster_would_never_read_are_refused(
    run: LaunchNotebook, config: Path, words: list[str]
) -> None:
    done = run("edit", "snowy", *words)
    assert done.returncode == 3
    assert "a launch goes to pelle" in done.stderr
    assert "launch-notebook clusters edit pelle" in done.stderr
    assert not (config / "clusters" / "snowy.toml").exists()
    assert run("edit", "snowy", "--set", "status=active", *words).returncode == 0  # still in use somewhere


# --- in an editor ----------------------------------------------------------------------------------------------


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """An editor that writes what it is told to, one text at each call; ``None``: it leaves the file alone."""

    def editor(*texts: str | None, exits: int = 0) -> Path:
        folder = tmp_path / "an editor's"
        folder.mkdir(exist_ok=True)
        for number, text in enumerate(texts, 1):
            if text is not None:
                (folder / str(number)).write_text(text)
        program = folder / "edit"
        program.write_text(f'#!/bin/bash\ncd "${{0%/*}}" || exit\necho x >>count\nn=$(wc -l <count)\ncp "$2" "seen$n"\n'
                           f'[ ! -f "$n" ] || cp "$n" "$2"\nexit {exits}\n')  # fmt: skip
        program.chmod(0o755)
        monkeypatch.setenv("VISUAL", f"{shlex.quote(str(program))} -w")
        return folder

    return editor


def edit(name: str) -> Session:
    # COLUMNS is 80 in pytest-xdist's workers, and counts for more than the terminal's own width
    environment = {**os.environ, "COLUMNS": "300"}
    return Session([LAUNCH, "clusters", "edit", name], env=environment, columns=300)


@pytest.mark.real_time
def test_an_editor_sees_hints_and_what_it_writes_is_kept(config: Path, editor: Callable[..., Path]) -> None:
    folder = editor('base = "generic"\nuser = "alice"  # me\n')
    session = edit("generic")
    assert session.end() == 0
    assert "Saved to ~/config/clusters/generic.toml" in session.printed
    assert (config / "clusters" / "generic.toml").read_text() == 'base = "generic"\nuser = "alice"  # me\n'
    seen = (folder / "seen1").read_text()
    assert 'base = "generic"' in seen and '# account = "' in seen
    uncommented = re.sub(r"^# (?=\w+ = |\[)", "", seen, flags=re.M).replace("…", "x")
    assert {"user", "defaults", "environments"} <= set(tomlkit.parse(uncommented))


@pytest.mark.real_time
def test_an_editor_that_changes_nothing(config: Path, editor: Callable[..., Path]) -> None:
    editor(None)
    session = edit("generic")
    assert session.end() == 0
    assert "Nothing was changed." in session.printed
    assert not (config / "clusters" / "generic.toml").exists()
    assert not list((config / "clusters" / "unfinished").iterdir())


@pytest.mark.real_time
def test_a_mistake_is_told_and_the_editor_opened_again(config: Path, editor: Callable[..., Path]) -> None:
    folder = editor("# x\nhots = 1\n", 'host = "better"\n')
    session = edit("uni")
    session.expect(r"uni\.toml:2: there is no key “hots”")
    session.expect(r"did you mean host\?")
    session.expect("Open the editor again")
    session.send("yes\n")
    assert session.end() == 0
    assert (folder / "seen2").read_text() == "# x\nhots = 1\n"
    assert load_profile("uni").host == "better"


@pytest.mark.real_time
def test_what_was_written_with_a_mistake_is_never_lost(config: Path, editor: Callable[..., Path]) -> None:
    folder = editor('host = "x\n', None, 'host = "x"\n')
    session = edit("uni")
    session.expect("Open the editor again")
    session.send("no\n")
    assert session.end() == 3
    assert (config / "clusters" / "uni.toml").read_text() == UNI
    kept = config / "clusters" / "unfinished" / "uni.toml"
    assert kept.read_text() == 'host = "x\n'
    assert "unfinished" in session.printed
    again = edit("uni")
    again.expect("what you wrote last time")
    again.expect("Open the editor again")
    again.send("yes\n")
    assert again.end() == 0
    assert (folder / "seen2").read_text() == 'host = "x\n'
    assert load_profile("uni").host == "x"
    assert not kept.exists()


@pytest.mark.real_time
def test_what_was_written_is_not_put_over_what_was_changed_since(config: Path, editor: Callable[..., Path]) -> None:
    own, kept = config / "clusters" / "uni.toml", config / "clusters" / "unfinished" / "uni.toml"
    editor('host = "x\n', 'host = "y"\n')
    session = edit("uni")
    session.expect("Open the editor again")
    session.send("no\n")
    session.end()
    own.write_text('host = "another terminal"\n')
    again = edit("uni")
    again.expect("is not what it was when you began")
    again.send("no\n")
    assert again.end() == 3
    assert (own.read_text(), kept.read_text()) == ('host = "another terminal"\n', 'host = "x\n')
    agreed = edit("uni")
    agreed.expect("is not what it was")
    agreed.send("yes\n")
    assert agreed.end() == 0
    assert own.read_text() == 'host = "y"\n'
    assert not list(kept.parent.iterdir())


@pytest.mark.parametrize(("answer", "left"), [("no", "there"), ("yes", "mine")])
@pytest.mark.real_time
def test_what_was_changed_while_the_editor_was_open_is_asked_about(
    config: Path, editor: Callable[..., Path], answer: str, left: str
) -> None:
    folder = editor('host = "mine"\n')
    program = folder / "edit"
    own = config / "clusters" / "uni.toml"
    program.write_text(program.read_text().replace("exit 0", f"echo 'host = \"there\"' >'{own}'"))
    session = edit("uni")
    session.expect("was changed while you wrote")
    session.send(f"{answer}\n")
    assert session.end() == (3 if answer == "no" else 0)
    assert load_profile("uni").host == left
    assert (config / "clusters" / "unfinished" / "uni.toml").exists() == (answer == "no")


@pytest.mark.real_time
def test_a_copy_that_nobody_touched_is_made_anew(config: Path, editor: Callable[..., Path]) -> None:
    folder = editor(None, None)
    program = folder / "edit"
    ends = program.read_text()
    program.write_text(ends.replace("exit 0", "kill -KILL $PPID"))  # the terminal, the machine
    edit("uni").child.wait()
    own = config / "clusters" / "uni.toml"
    assert (config / "clusters" / "unfinished" / "uni.toml").exists()
    own.write_text('host = "since"\n')
    program.write_text(ends)
    session = edit("uni")
    assert session.end() == 0
    assert "last time" not in session.printed
    assert (folder / "seen2").read_text() == own.read_text() == 'host = "since"\n'


@pytest.mark.real_time
def test_an_editor_that_fails(config: Path, editor: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    editor('host = "x"\n', exits=3)
    session = edit("uni")
    assert session.end() == 2
    assert "ended with 3" in session.printed
    assert (config / "clusters" / "uni.toml").read_text() == UNI
    for left in (config / "clusters" / "unfinished").iterdir():
        left.unlink()
    monkeypatch.setenv("VISUAL", "/no/such/editor")
    missing = edit("uni")
    assert missing.end() == 2
    assert "export EDITOR=nano" in missing.printed
    assert not list((config / "clusters" / "unfinished").iterdir())


# --- the pieces ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("1.5", 1.5), ("true", True), ('"1"', "1"), ('["a"]', ["a"]), ("2:00:00", "2:00:00"), ("", None),
     ("02:00:00", "02:00:00"), ("30m", "30m"), ("gpu:t4:1", "gpu:t4:1"), ("1\nx = 2", "1\nx = 2"),
     ("{ a = 1 }", {"a": 1})],
)  # fmt: skip
def test_what_a_typed_value_means(text: str, value: object) -> None:
    assert plain_value(text) == value


def test_a_change_takes_only_what_is_meant() -> None:
    text = changed(UNI, {("defaults", "account"): None, ("gpu", "default"): 1, ("no", "such"): None})
    data = tomlkit.parse(text)
    assert data["defaults"] == {}
    assert data["gpu"] == {"default": 1}
    assert "no" not in data
    assert len(data["translations"]) == 1  # type: ignore[arg-type]


def test_a_link_stays_one(config: Path, run: LaunchNotebook, tmp_path: Path) -> None:
    target = tmp_path / "dotfiles.toml"
    target.write_text(UNI)
    (config / "clusters" / "linked.toml").symlink_to(target)
    assert run("edit", "linked", "--user", "alice").returncode == 0
    assert (config / "clusters" / "linked.toml").is_symlink()
    assert 'user = "alice"' in target.read_text()
