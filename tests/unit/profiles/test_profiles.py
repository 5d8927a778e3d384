"""Profiles and the configuration: what is read, and that every mistake names its file and its key."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from notebook_launcher.core.errors import ProfileError
from notebook_launcher.core.sbatch_options import FLAGS, REFUSED
from notebook_launcher.profiles import ClusterProfile, Environment, load_configuration, load_profile, profile_names
from notebook_launcher.profiles.models import AccountRule
from notebook_launcher.profiles.store import bundled_profiles, config_folder, default_flags
from tests.unit.profiles.conftest import Write

COURSE = """
description = "The course's GPUs"
host = "rackham"
login_nodes = ["rackham[0-9]*"]
user = "alice"
port = 2222
scheduler = "slurm"
environment = "tf-gpu"
image_dir = "/proj/course/images"

[defaults]
account = "g2021027"
clusters = "snowy"
gres = "gpu:t4:1"
ntasks = 4
exclusive = true
requeue = false
cpus_per_task = 2

[environments.tf-gpu]
container = "container.sif"
bind = ["/proj"]
activate = "conda activate tf-gpu"

[environments.tf-mkl]
container = "container.sif"
activate = ["source /opt/a", "conda activate tf-mkl"]
gpu = "none"
env = { OMP_NUM_THREADS = "4" }
"""


def test_a_courses_profile(write: Write) -> None:
    write(COURSE)
    profile = load_profile("uni")
    assert (profile.host, profile.user, profile.port) == ("rackham", "alice", 2222)
    assert profile.environment == "tf-gpu"
    assert profile.environments["tf-gpu"].bind == ("/proj",)
    assert profile.environments["tf-mkl"].activate == ("source /opt/a", "conda activate tf-mkl")
    assert profile.environments["tf-mkl"].env == {"OMP_NUM_THREADS": "4"}
    assert default_flags(profile) == {
        "account": "g2021027",
        "clusters": "snowy",
        "gres": "gpu:t4:1",
        "ntasks": "4",
        "exclusive": None,
        "cpus-per-task": "2",
    }


def test_the_route_may_have_its_former_name(write: Write) -> None:
    write('base = "below"\nstream = "step"\n')
    write('route = "node-ssh"\n', "clusters/below.toml")
    assert load_profile("uni").route == "step"
    write('base = "below"\nstream = "step"\nroute = "direct"\n')
    with pytest.raises(ProfileError, match="no key “stream”"):
        load_profile("uni")


def test_what_an_empty_profile_means(write: Write) -> None:
    write("")
    profile = load_profile("uni")
    assert profile == ClusterProfile()
    assert (profile.host, profile.scheduler, profile.route) == (None, "slurm", "auto")
    assert profile.session_root == "~/.notebook-launcher/sessions"
    assert default_flags(profile) == {}
    assert Environment().is_plain
    assert (Environment().gpu, Environment().start_timeout) == ("auto", 600)


@pytest.mark.parametrize(
    ("text", "key", "suggestion"),
    [
        ('hots = "login"', "hots", "host"),
        ('enviroment = "tf"', "enviroment", "environment"),
        ('[environments.tf]\ncontaner = "x.sif"', "environments.tf.contaner", "container"),
        ('[environments.tf]\nmodule = ["x"]', "environments.tf.module", "modules"),
        ("xyzzy = 1", "xyzzy", ""),
        ('[price]\nunit = "SBU"\ngpu_hours = 1', "price.gpu_hours", "gpu_hour?"),
        ('[price]\nunit = "SBU"\ngpu_hour = "many"', "price.gpu_hour", "must be a number, without quotes"),
        ('[price]\nunit = "SBU"\ncore_hour = -1', "price.core_hour", "must be at least 0"),
        ("[price]\ncore_hour = 1", "price.unit", "missing"),
        ('[price]\nunit = "SBU"\ncore_hour = nan', "price.core_hour", "number"),
        ("port = true", "port", "whole number"),
        ('[account]\nrequired = "yes"', "account.required", "true or false"),
        ('[account]\npattern = "("', "account.pattern", "regular expression"),
        ("[gpu.per_gpu]\ncpus-per-task = 0", "cpus-per-task", "1"),
        ('description = "a\u200bb"', "description", "has an invisible character"),
        ('[budget]\ncommand = ["x"]\npattern = "[0-9]+"', "budget.pattern", "(?P<left>"),
        ('[budget]\ncommand = []\npattern = "(?P<left>x)"', "budget.command", "empty"),
        ('[gpu]\ndefault_type = "t4"', "gpu", "[gpu.types]"),
        ('[gpu.flags]\ngpus-per-nod = "{count}"', "[gpu.flags]", "gpus-per-node"),
        ("[gpu.per_gpu]\ncpus-per-task = 1.5", "gpu.per_gpu.cpus-per-task", "whole number"),
        ('[gpu.types."a b"]', "gpu.types", "kind of GPU"),
        ('[[translations]]\nnote = "x"\ndrop = ["partitoin"]\nwhen = { gres = "x" }', "partitoin", "partition"),
        ('[container]\ncommand = "aptainer"', "container.command", "apptainer"),
        ('max_time = "soon"', "max_time", "hours:minutes:seconds"),
        ('ask = ["hots"]', "ask", "host?"),
        ('status = "dead"', "status", "retired"),
        ('session_root = "sessions"', "session_root", "begins with /"),
        ("keep_days = 0", "keep_days", "keep_days = 1"),
        ('presets.big = "stop --all"', "presets", "is not a launch"),
        ('presets.big = "--json stop --all"', "presets", "is not a launch"),
        ('presets.big = "--cluster here copy x y"', "presets", "is not a launch"),
        ('presets.big = "--json --ssh-config=f clusters edit x --set host=y"', "presets", "is not a launch"),
        ('presets.big = "--host x --engine openssh --course y again big"', "presets", "is not a launch"),
        ('presets.big = "-h run"', "presets", "is not a launch"),
        ('presets.big = "-t 1h --save other"', "presets", "has --save"),
        ('presets.big = "-t 1h --save=other"', "presets", "has --save"),
        ('presets."v1.2" = "-t 1h"', "presets", "only letters, digits, _ and - are allowed"),
        ('presets.big = "-J \'open"', "presets", "cannot be read"),
        (f'contact = "{"x" * 201}"', "contact", "200 characters"),
        ('contact = "ask\u202ehere"', "contact", "has an invisible character"),
        ("base = 3", "base", "generic"),
        ('base = "nowhere"', "as base", "generic"),
        ('host = ""', "host", ""),
        ('host = "-oProxyCommand=touch /tmp/x"', "host", "not the name of a host"),
        ('host = "two words"', "host", "not the name of a host"),
        ('user = "a\\nb"', "user", "more than one line"),
        ('[environments.tf]\nactivate = """a\nb"""', "environments.tf.activate", "list of lines"),
        ('login_setup = """a\nb"""', "login_setup", "list of lines"),
        ('login_setup = ["module load slurm", ""]', "login_setup", "write something there"),
        ('login_setup = "a\\u200bb"', "login_setup", "write it again"),
        ("port = 0", "port", ""),
        ("port = 70000", "port", ""),
        ('port = "ssh"', "port", ""),
        ('scheduler = "slrum"', "scheduler", "slurm"),
        ('route = "carrier-pigeon"', "route", "node-ssh"),
        ('login_nodes = "login"', "login_nodes", ""),
        ('[environments.tf]\ngpu = "voodoo"', "environments.tf.gpu", "nvidia"),
        ("[environments.tf]\nstart_timeout = 0", "environments.tf.start_timeout", ""),
        ('[environments.tf]\nbind = ["/proj", "a\\nb"]', "environments.tf.bind", ""),
        ('[environments.tf]\ncontainer_command = "docker"', "environments.tf.container_command", "apptainer"),
        ('[environments.tf.env]\n"MY-VAR" = "1"', "environments.tf.env", "MY-VAR"),
        ('[environments.tf.env]\nA = "1\\n2"', "environments.tf.env", "value of A"),
        ('[environments]\ntf = "x.sif"', "environments.tf", ""),
        ("[defaults]\nntasks = 4.5", "defaults.ntasks must be text in quotes.", ""),
        ("[defaults]\nmem = [1]", "defaults.mem", ""),
        ("[defaults]\ntime = 02:00:00", "defaults.time", ""),
        ('[defaults]\npartitoin = "core"', "partitoin", "partition"),
        ('[defaults]\ngpu = "1"', "gpu", "gpus"),
        ("[defaults]\nxyzzyplugh = 1", "xyzzyplugh", "sbatch --help"),
        ("[defaults]\naccount = true", "account", "needs a value"),
        ('[defaults]\nhold = "yes"', "hold", "true or false"),
        ('[defaults]\narray = "1-3"', "array", "one job"),
        ('[defaults]\ntime = "soon"', "time", "hours:minutes:seconds"),
        ('[defaults]\ncomment = "a\\nb"', "comment", "more than one line"),
        ('environment = "tf"\n[environments.tf-gpu]', "environment", "tf-gpu"),
    ],
)
def test_a_mistake_names_the_file_and_the_key_and_suggests(write: Write, text: str, key: str, suggestion: str) -> None:
    path = write(text)
    with pytest.raises(ProfileError) as caught:
        load_profile("uni")
    error = caught.value
    lines = [number for number, line in enumerate(text.splitlines(), 1) if not line.startswith("[defaults]")]
    assert re.match(rf"{re.escape(str(path))}:({'|'.join(map(str, lines))}): ", error.what), error.what
    assert key in error.what
    assert suggestion in f"{error.what} {error.why} {error.hint}"
    assert "pydantic" not in f"{error.what} {error.why}"
    assert error.why or error.hint


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("time = 2:00:00", 'time = "2:00:00"'),
        ("time = 1-00:00:00", 'time = "1-00:00:00"'),
        ("time = 02:00:00", 'time = "02:00:00"'),
        ("idle_stop = 30m", 'idle_stop = "30m"'),
        ("last = 18.12.2026", "last = 2026-12-18"),
        ("last = 12/18/2026", "a day is written year-month-day, for example: last = 2026-11-22"),
        ("last = 2026-12-32", "a day is written year-month-day, for example: last = 2026-11-22"),
        ("gpu_hour = 1,84", 'a line is: key = "a text", or a [table]'),
    ],
)
def test_times_and_days_that_are_no_toml_are_told_as_they_are_meant(write: Write, line: str, hint: str) -> None:
    write(f"[defaults]\n{line}")
    with pytest.raises(ProfileError) as caught:
        load_profile("uni")
    assert caught.value.hint.endswith(hint)


def test_a_mistake_without_a_hint_of_its_own_leads_to_a_command_that_everybody_has(write: Write) -> None:
    write('[apps.x]\ncommand = ["x"]')
    with pytest.raises(ProfileError) as caught:
        load_profile("uni")
    hint = caught.value.hint
    assert "launch-notebook clusters show NAME" in hint
    assert "docs/profiles.md of the project's documentation" in hint


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[environments.tf-gpu]\nactivate = """a\nb"""', ":2: environments.tf-gpu.activate has more than one line."),
        ('max_time = 5', ":1: max_time must be text in quotes."),
        ('[price]\nunit = "x"\ngpu_hour = "x"', ":3: price.gpu_hour must be a number, without quotes."),
        ("[cpu.flags]\nntasks = 4.5", ":2: cpu.flags.ntasks must be text in quotes."),
    ],
)  # fmt: skip
def test_a_key_that_may_be_of_two_types_is_told_once(write: Write, text: str, told: str) -> None:
    path = write(text)
    with pytest.raises(ProfileError) as caught:
        load_profile("uni")
    assert caught.value.what == f"{path}{told}"
    assert caught.value.why == ""
    assert caught.value.hint


LONG = """\
description = "x"
activation = 1

[environments.tf]
activate = [
    "export A='",
    "description = 1",  # ] in a comment
]

[environments."tf gpu"]
env = { A = 1 }

[[translations]]
note = "first"
when = { gres = "gpu:t4:*" }

[[translations]]
[translations.when]
gres = "gpu:t4:*"
[translations.set]
gups = 1
"""


def test_each_mistake_has_its_line(write: Write) -> None:
    path = write(LONG)
    with pytest.raises(ProfileError) as caught:
        load_profile("uni")
    told = f"{caught.value.what} {caught.value.why}"
    assert sorted(set(re.findall(rf"{re.escape(str(path))}:(\d+)", told)), key=int) == ["2", "11", "17"], told
    mended = LONG.replace("activation = 1\n", "\n").replace("A = 1", 'A = "1"')
    write(mended.replace("[[translations]]\n[translations.w", '[[translations]]\nnote = "second"\n[translations.w'))
    with pytest.raises(ProfileError) as caught:
        load_profile("uni")
    assert caught.value.what == f"{path}:22: [translations.set] has “gups”, which is not a flag of sbatch."
    assert caught.value.hint == "did you mean gpus?"


def test_every_mistake_is_told_at_once(write: Write) -> None:
    write('hots = "x"\nport = 0\n')
    with pytest.raises(ProfileError) as caught:
        load_profile("uni")
    assert "hots" in f"{caught.value.what} {caught.value.why}"
    assert "port" in f"{caught.value.what} {caught.value.why}"


@pytest.mark.parametrize(
    ("text", "line", "hint"),
    [
        ("# x\nhost = login", 2, 'host = "login"'),
        ('description = "x"\n\n[defaults\n', 3, "[table]"),
        ('host = "a"\nuser = "b"\nhost = "c"\n', 3, "remove"),
        ("[defaults]\ntime = 1:00\n", 2, "a text"),
        ('host = "a', 1, "a text"),
        ("x = " + "[" * 5000, 1, "a text"),
        (b"# x\nhost = '\xff'", 2, "UTF-8"),
    ],
)
def test_a_broken_file(write: Write, text: str | bytes, line: int, hint: str) -> None:
    path = write(text)
    with pytest.raises(ProfileError) as caught:
        load_profile("uni")
    assert caught.value.what.startswith(f"{path}:{line} ")
    assert hint in caught.value.hint
    assert len(caught.value.why) < 200
    assert caught.value.why


def test_a_file_of_windows_editor(write: Write) -> None:
    write(b'\xef\xbb\xbfhost = "login"\r\n[defaults]\r\nntasks = 2\r\n')
    assert load_profile("uni").host == "login"


def test_a_file_that_cannot_be_read(write: Write, tmp_path: Path) -> None:
    write("").unlink()
    (tmp_path / "clusters" / "uni.toml").mkdir()
    with pytest.raises(ProfileError, match=r"uni\.toml cannot be read"):
        load_profile("uni")


# --- layers ----------------------------------------------------------------------------------------------------


def test_profiles_stand_on_each_other(write: Write) -> None:
    write(
        'host = "login"\n[defaults]\naccount = "a"\nntasks = 2\n[gpu.types.t4]\ndescription = "x"', "clusters/low.toml"
    )
    write('base = "low"\n[defaults]\naccount = "b"\nntasks = false\n[gpu]\ndefault_type = "t4"', "clusters/mid.toml")
    write('base = "mid"\nuser = "u"')
    profile = load_profile("uni")
    assert (profile.host, profile.user, profile.gpu.default_type) == ("login", "u", "t4")
    assert default_flags(profile) == {"account": "b"}


def test_ones_own_words_stand_on_the_bundled_profile_of_that_name(write: Write) -> None:
    write('base = "generic"\nhost = "login"', "clusters/generic.toml")
    profile = load_profile("generic")
    assert profile.host == "login"
    assert profile.ask == ("host", "account", "partition")  # of the bundled one


def test_a_mistake_is_told_of_the_file_that_it_is_in(write: Write) -> None:
    low = write("\nport = 0\n[price]\ncore_hour = 1", "clusters/low.toml")
    write('base = "low"\nuser = "u"\n[defaults]\naccount = "a"')
    with pytest.raises(ProfileError) as caught:
        load_profile("uni")
    assert caught.value.what.startswith(f"{low}:2: port")
    assert f"{low}:3: price.unit is missing" in caught.value.why


@pytest.mark.parametrize(
    ("one", "other", "says"),
    [
        ('# x\nbase = "other"', 'base = "uni"', "in a circle"),
        ('# x\nbase = "uni"', "", "there is no profile “uni” to use as base"),
        ('# x\nbase = "../other"', "", "there is no profile “../other” to use as base"),
        ('# x\nbase = "othr"', "", "there is no profile “othr” to use as base"),
    ],
)
def test_a_base_that_leads_nowhere(write: Write, one: str, other: str, says: str) -> None:
    path = write(one)
    write(other, "clusters/other.toml")
    with pytest.raises(ProfileError) as caught:
        load_profile("uni")
    assert says in caught.value.what
    assert re.match(rf"{re.escape(str(path.parent))}/\w+\.toml:[12]: ", caught.value.what)
    assert caught.value.why and caught.value.hint


def test_no_such_profile(write: Write) -> None:
    write("", "clusters/uppsala.toml")
    with pytest.raises(ProfileError) as caught:
        load_profile("upsala")
    assert "uppsala" in caught.value.why
    assert caught.value.hint == "did you mean --cluster uppsala?"  # not one of the bundled ones
    with pytest.raises(ProfileError) as caught:
        load_profile("kraken")
    assert "launch-notebook init" in caught.value.hint
    assert profile_names() == sorted(["uppsala", *bundled_profiles()])


@pytest.mark.parametrize("name", ["../config", "/etc/passwd", "", ".hidden", "a/b", "a\nb"])
def test_a_name_that_leads_elsewhere_is_none(write: Write, name: str) -> None:
    write("", "config.toml")
    write("", "clusters/.hidden.toml")
    with pytest.raises(ProfileError, match="There is no cluster profile"):
        load_profile(name)


def test_defaults_take_the_flags_that_a_launch_takes(write: Write) -> None:
    for flag in FLAGS:
        value = "true" if flag.argument == "none" else '"2:00:00"'
        write(f"[defaults]\n{flag.name} = {value}\n")
        if flag.name in REFUSED:
            with pytest.raises(ProfileError):
                load_profile("uni")
        else:
            assert default_flags(load_profile("uni")) == {flag.name: None if flag.argument == "none" else "2:00:00"}


# --- the configuration ---------------------------------------------------------------------------------------


def test_the_configuration(write: Write) -> None:
    assert load_configuration().cluster is None
    write('cluster = "uni"', "config.toml")
    assert load_configuration().cluster == "uni"


@pytest.mark.parametrize(("text", "says"), [("clutser = 'x'", "did you mean cluster?"), ("cluster = 3", "cluster")])
def test_a_mistake_in_the_configuration(write: Write, text: str, says: str) -> None:
    path = write(text, "config.toml")
    with pytest.raises(ProfileError) as caught:
        load_configuration()
    assert caught.value.what.startswith(f"{path}:1: ")
    assert says in f"{caught.value.what} {caught.value.hint}"


def test_where_the_configuration_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NOTEBOOK_LAUNCHER_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert config_folder().name == "notebook-launcher"
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(tmp_path / "elsewhere"))
    assert config_folder() == tmp_path / "elsewhere"


def test_an_account_is_not_doubted_where_its_expression_finds_no_end() -> None:
    began = time.monotonic()
    assert AccountRule(pattern="(a|aa)*[bc]").fits("a" * 150)
    assert time.monotonic() - began < 60
    assert AccountRule(pattern="(a|aa)*[bc]").fits("aaB")
    assert not AccountRule(pattern="(a|aa)*[bc]").fits("d")


def test_a_table_is_not_changed_at_a_key_that_it_does_not_have() -> None:
    assert ClusterProfile().changed(host="login").host == "login"
    with pytest.raises(TypeError, match="ClusterProfile has no field: hots"):
        ClusterProfile().changed(hots="login")
