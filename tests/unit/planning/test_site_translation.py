"""From what a user types to the words of a cluster: GPUs, accounts, walltimes, and words of another time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_launcher.core.errors import AnswerMissing, ClusterUnavailable, UsageError
from notebook_launcher.planning.site_translation import translate_flags
from notebook_launcher.profiles import ClusterProfile
from notebook_launcher.profiles.layers import Layer, parse_layer
from notebook_launcher.profiles.store import checked_profile
from notebook_launcher.profiles.validation import validated
from tests.golden_profiles import flags_of
from tests.paths import GOLDEN, ROOT

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib  # type: ignore[no-redef]

# a cluster with a partition for each type, and its own spelling
SITE = """
[defaults]
partition = "core"
mem-per-cpu = "4G"

[cpu.flags]
ntasks = 4

[gpu]
default_type = "t4"

[gpu.flags]
gres = "gpu:{type}:{count}"
partition = "gpu"
mem-per-cpu = false

[gpu.per_gpu]
cpus-per-task = 4

[gpu.types.t4]
flags = { qos = "small" }

[gpu.types.A100]
flags = { partition = "big", mem-per-gpu = "60G" }
per_gpu = { cpus-per-task = 16 }
"""


def profile(text: str) -> ClusterProfile:
    return validated(ClusterProfile, [Layer("", tomllib.loads(text))])


def flags(text: str, words: str) -> dict[str, str | None]:
    """Return what words come to on a cluster, but for a walltime that nobody asked for."""
    spoken = dict(translate_flags(profile(text), flags_of(words)).flags)
    assert "time" in spoken  # always sent
    return spoken if "-t " in words else {name: value for name, value in spoken.items() if name != "time"}


def notes(text: str, words: str) -> list[str]:
    return list(translate_flags(profile(text), flags_of(words)).notes)


def test_a_profile_that_says_nothing_changes_nothing() -> None:
    assert flags("", "-p x --gres=gpu:t4:1 --mem 4G") == {"partition": "x", "gres": "gpu:t4:1", "mem": "4G"}
    assert flags("", "--gpus a100:2") == {"gpus": "a100:2"}
    assert notes("", "--gpus a100:2") == []


# --- GPUs --------------------------------------------------------------------------------------------------------

T4 = {"partition": "gpu", "qos": "small", "cpus-per-task": "4"}
A100 = {"partition": "big", "mem-per-gpu": "60G", "cpus-per-task": "16"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", {"partition": "core", "mem-per-cpu": "4G", "ntasks": "4"}),
        ("--gpus 0", {"partition": "core", "mem-per-cpu": "4G", "ntasks": "4"}),
        ("--gres=gpu:t4:0", {"partition": "core", "mem-per-cpu": "4G", "ntasks": "4"}),
        ("--gres=none", {"partition": "core", "mem-per-cpu": "4G", "ntasks": "4", "gres": "none"}),
        ("-n 8 --gpus 0", {"partition": "core", "mem-per-cpu": "4G", "ntasks": "8"}),
        # the site's own words, for the default type and for others, however they are typed
        ("--gpus 1", {**T4, "gres": "gpu:t4:1"}),
        ("--gpus=2", {**T4, "gres": "gpu:t4:2", "cpus-per-task": "8"}),
        ("--gpus t4", {**T4, "gres": "gpu:t4:1"}),
        ("--gpus a100:2", {**A100, "gres": "gpu:A100:2", "cpus-per-task": "32"}),
        ("--gpus A100", {**A100, "gres": "gpu:A100:1"}),
        # other words stay as they are typed, and bring what goes with the type
        ("--gres=gpu:a100:1", {**A100, "gres": "gpu:a100:1"}),
        ("--gpus-per-node=2", {**T4, "gpus-per-node": "2", "cpus-per-task": "8"}),
        ("--gpus-per-task a100:1", {**A100, "gpus-per-task": "a100:1"}),
        ("--gpus t4:1,a100:1", {"partition": "gpu", "cpus-per-task": "8", "gpus": "t4:1,a100:1"}),
        ("--gres=gpu:new:1", {"partition": "gpu", "cpus-per-task": "4", "gres": "gpu:new:1"}),
        # a partition of the user's is theirs, and tells the type
        ("-p mine --gpus 1", {"partition": "mine", "gres": "gpu:1", "cpus-per-task": "4"}),
        ("-p mine --gpus t4:1", {**T4, "partition": "mine", "gres": "gpu:t4:1"}),
        ("-p big --gpus 1", {**A100, "gres": "gpu:A100:1"}),
        # cores and memory of the user's
        ("--gpus 1 -c 2", {**T4, "gres": "gpu:t4:1", "cpus-per-task": "2"}),
        ("--gpus 1 -n 1", {**T4, "gres": "gpu:t4:1", "ntasks": "1"}),
        ("--gpus 1 -n 2", {"partition": "gpu", "qos": "small", "gres": "gpu:t4:1", "ntasks": "2"}),
        ("--gpus a100:1 --mem 9G", {"partition": "big", "cpus-per-task": "16", "gres": "gpu:A100:1", "mem": "9G"}),
        # one flag for GPUs and for other things
        ("--gpus 1 --gres=scratch:1", {**T4, "gres": "gpu:t4:1,scratch:1"}),
        ("--gpus 0 --gres=scratch:1", {"partition": "core", "mem-per-cpu": "4G", "ntasks": "4", "gres": "scratch:1"}),
        # a count for all nodes together is not one for each
        ("--gpus 4 -N 2", {**T4, "gpus": "4", "nodes": "2", "cpus-per-task": "16"}),
    ],
)  # fmt: skip
def test_gpus_in_the_sites_words(words: str, expected: Mapping[str, str]) -> None:
    assert flags(SITE, words) == expected


def test_an_unknown_type_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UsageError) as caught:
        flags(SITE, "--gpus a10:1")
    assert caught.value.what == "There is no GPU type “a10” here."
    assert "t4, A100" in caught.value.why
    assert "did you mean --gpus A100:1?" in caught.value.hint
    with pytest.raises(UsageError, match="t5") as caught:
        flags(SITE, "--gpus t5:1")
    assert "did you mean --gpus t4:1?" in caught.value.hint


def test_types_that_nobody_knows_pass_where_the_site_has_words_for_them() -> None:
    generic = '[gpu.flags]\ngpus-per-node = "{type}:{count}"\n'
    assert flags(generic, "--gpus 2") == {"gpus-per-node": "2"}
    assert flags(generic, "--gpus a100:2") == {"gpus-per-node": "a100:2"}
    assert flags('[gpu.flags]\ngpus-per-node = "{count}"\n', "--gpus a100:2") == {"gpus": "a100:2"}


def test_gpus_in_the_defaults_are_as_good_as_typed_ones() -> None:
    """As a course says it, or a profile of one's own."""
    course = SITE.replace("[defaults]", '[defaults]\ngpus = "a100:1"')
    assert flags(course, "") == {**A100, "gres": "gpu:A100:1"}
    assert flags(course, "--gpus 2") == {**T4, "gres": "gpu:t4:2", "cpus-per-task": "8"}
    assert flags(course, "--gpus 0") == {"partition": "core", "mem-per-cpu": "4G", "ntasks": "4"}
    assert flags('[defaults]\ngres = "gpu:t4:1,scratch:1"', "--gpus 0") == {"gres": "scratch:1"}


def test_a_default_count() -> None:
    site = '[gpu]\ndefault = 1\nflags = { gpus-per-node = "{count}" }\n'
    assert flags(site, "") == {"gpus-per-node": "1"}
    assert flags(site, "-c 4") == {"gpus-per-node": "1", "cpus-per-task": "4"}
    assert flags(site, "--gpus 0") == {}


def test_gpus_that_are_a_must() -> None:
    site = '[gpu]\nrequired = "A job must ask for a GPU here."\n'
    for words in ("", "--gpus 0", "--gres=gpu:t4:0"):
        with pytest.raises(UsageError, match="must ask for a GPU here"):
            flags(site, words)
    assert flags(site, "--gpus 1") == {"gpus": "1"}


WHOLE = '[gpu]\nwhole_partitions = { gpu = 4 }\nflags = { partition = "gpu", qos = "default", gpus = false }\n'
WHOLE += '[cpu]\nflags = { partition = "cpu" }\n'


def test_gpus_that_come_with_their_node() -> None:
    expected = {"partition": "gpu", "qos": "default", "nodes": "1"}
    assert flags(WHOLE, "--gpus 1") == expected
    assert flags(WHOLE, "--gpus 8") == {**expected, "nodes": "2"}
    assert flags(WHOLE, "--gpus 8 -N 1") == expected
    assert flags(WHOLE, "-p gpu") == expected  # it is a job with GPUs
    assert notes(WHOLE, "--gpus 2") == ["--gpus 2 is not passed on: GPUs come with their nodes here: 4 with a node."]
    assert notes(WHOLE, "--gpus 5") == ["--gpus 5 is not passed on: GPUs come with their nodes here: 8 with 2 nodes."]
    assert notes(WHOLE, "-p gpu") == []


ALL = (
    '[gpu]\nwhole_partitions = { gpu = 4 }\nflags = { partition = "gpu", gpus = "{count}" }\n'
    '[account]\ngpu_suffix = "-gpu"\ncpu_suffix = "-cpu"\n'
)


@pytest.mark.parametrize("words", ["-p gpu", "-p gpu --gpus 0"])
def test_a_partition_whose_jobs_get_all_gpus(words: str) -> None:
    assert flags(ALL, f"{words} -A x") == {"partition": "gpu", "account": "x-gpu"}
    assert notes(ALL, words) == ["A job in partition gpu gets all 4 GPUs of a node: --gpus 1 asks for one."]
    assert flags(ALL, "-p gpu --gpus 1 -A x") == {"partition": "gpu", "gpus": "1", "account": "x-gpu"}


def test_a_partition_that_is_not_that_of_the_type() -> None:
    site = '[gpu.types.h]\nflags = { partition = "h", qos = "h" }\n[gpu.types.a]\n[gpu.flags]\npartition = "gpu"\n'
    assert flags(site, "-p gpu --gpus h:1") == {"partition": "gpu", "gpus": "h:1"}
    assert notes(site, "-p gpu --gpus h:1") == [
        "By the profile GPUs of type h are in h, not in your -p gpu; -q h is left out."
    ]
    assert notes(site, "-p gpu -q mine --gpus h:1") == ["By the profile GPUs of type h are in h, not in your -p gpu."]
    assert notes(site, "-p h --gpus a:1") == ["By the profile GPUs of type a are in gpu, not in your -p h."]
    assert notes(site, "-p dev --gpus a:1") == notes(site, "-p h --gpus h:1") == []


def test_a_type_where_the_profile_knows_none_is_passed_on_and_told() -> None:
    site = '[gpu]\ndescription = "they are constraints"\nflags = { gpus = "{count}" }\n'
    (note,) = notes(site, "--gpus h100:1")
    assert note == (
        "--gpus h100:1 is passed on as it is: the profile knows no types of GPUs here (they are constraints)."
    )
    assert notes(site, "--gpus 1") == []


def test_more_gpus_than_a_qos_allows() -> None:
    site = '[gpu]\nmost = { shared = 2 }\nflags = { qos = "shared", gpus = "{count}" }\n'
    assert notes(site, "--gpus 3") == [
        "3 GPUs are more than QOS shared allows by its profile, 2: the job may be refused."
    ]
    assert notes(site, "--gpus 2") == notes(site, "--gpus 4 -q regular") == []


def test_a_partition_with_gpus_and_no_word_of_them() -> None:
    (note,) = notes(SITE, "-p big")
    assert note == "No GPU is asked for, although partition big has some: --gpus 1 asks for one."
    assert notes(SITE, "-p big --gpus 0") == []
    assert notes(SITE, "-p core") == []


def test_false_takes_away() -> None:
    site = '[defaults]\npartition = "a"\nrequeue = true\n[cpu.flags]\npartition = false\nrequeue = false\n'
    assert flags(site, "") == {}
    assert flags(site, "-p b --requeue") == {"partition": "b", "requeue": None}


# --- layers of profiles --------------------------------------------------------------------------------------------


def test_the_defaults_of_an_upper_file_go_before_the_gpus_of_a_lower_one() -> None:
    below = parse_layer(SITE.encode(), "below")
    above = parse_layer(b'[defaults]\npartition = "course"\nmem = "8G"\ngpus = 1\n', "above")
    spoken = translate_flags(checked_profile([below, above]), {"gpus": "a100:1"}).flags
    assert spoken["partition"] == "course"  # kept together with GPUs, so it has some
    assert spoken["mem"] == "8G"
    assert "mem-per-gpu" not in spoken
    assert spoken["cpus-per-task"] == "16"
    assert translate_flags(checked_profile([below]), {"gpus": "a100:1"}).flags["partition"] == "big"


@pytest.mark.parametrize(
    ("kept", "words", "partition", "told"),
    [
        ("thin", {"gpus": "a100:1"}, "big", "-p thin, a saved default, is left out: GPUs of type A100 are in "
                                            "big by the profile."),
        ("thin", {"gres": "gpu:1"}, "gpu", "-p thin, a saved default, is left out: GPUs are in gpu by the profile."),
        ("big", {"gpus": "1"}, "big", None),  # tells the type
        ("big", {"gpus": "t4:1"}, "gpu", "-p big, a saved default, is left out: GPUs of type t4 are in gpu by the "
                                         "profile."),
        ("thin", {}, "thin", None),
        ("thin", {"gpus": "0"}, "thin", None),
        ("thin", {"gpus": "1", "partition": "thin"}, "thin", None),
        ("thin", {"gpus": "1", "reservation": "lab"}, "thin", None),
    ],
)  # fmt: skip
def test_a_kept_partition_gives_way_to_that_of_typed_gpus(
    kept: str, words: Mapping[str, str], partition: str, told: str | None
) -> None:
    own = parse_layer(f'[defaults]\npartition = "{kept}"\n'.encode(), "own")
    spoken = translate_flags(checked_profile([parse_layer(SITE.encode(), "below"), own]), words)
    assert spoken.flags["partition"] == partition
    assert list(spoken.notes) == ([told] if told else [])


def test_a_flag_of_an_upper_file_that_says_the_same_in_other_words_gives_way_to_the_users() -> None:
    below = parse_layer(SITE.encode(), "below")
    above = parse_layer(b'[defaults]\nmem = "8G"\nrequeue = true\n', "above")
    spoken = translate_flags(checked_profile([below, above]), {"mem-per-cpu": "1G", "no-requeue": None}).flags
    assert spoken["mem-per-cpu"] == "1G"
    assert not {"mem", "requeue"} & spoken.keys()


# --- words of another time -----------------------------------------------------------------------------------------

OLD = (
    SITE
    + """
[[translations]]
when = { clusters = "old*" }
drop = ["clusters"]
note = "there is one cluster."

[[translations]]
when = { gres = "gpu:*" }
drop = ["gres"]
set = { gpus = "{gres}" }
note = "newer words."

[[translations]]
when = { partition = "dev[0-9]", ntasks = "?" }
drop = ["partition"]
set = { qos = "dev", exclusive = true }
note = "it is a QOS now."
"""
)


@pytest.mark.parametrize(
    ("words", "expected", "told"),
    [
        ("-M old-one", {"partition": "core", "mem-per-cpu": "4G", "ntasks": "4"},
         ["-M old-one is left out: there is one cluster."]),
        ("-M new", {"partition": "core", "mem-per-cpu": "4G", "ntasks": "4", "clusters": "new"}, []),
        ("--gres=gpu:a100:2", {**A100, "gres": "gpu:A100:2", "cpus-per-task": "32"},
         ["--gres gpu:a100:2 is now --gpus a100:2: newer words."]),
        ("--gres=gpu:t4:0", {"partition": "core", "mem-per-cpu": "4G", "ntasks": "4"},
         ["--gres gpu:t4:0 is now --gpus t4:0: newer words."]),
        ("-p dev1 -n 2", {"partition": "core", "mem-per-cpu": "4G", "ntasks": "2", "qos": "dev", "exclusive": None},
         ["-p dev1 is now --exclusive -q dev: it is a QOS now."]),
        ("-p dev1 -n 20", {"partition": "dev1", "mem-per-cpu": "4G", "ntasks": "20"}, []),
        ("-p dev -n 2", {"partition": "dev", "mem-per-cpu": "4G", "ntasks": "2"}, []),
    ],
)  # fmt: skip
def test_words_of_another_time(words: str, expected: Mapping[str, str | None], told: list[str]) -> None:
    assert flags(OLD, words) == expected
    assert notes(OLD, words) == told


def test_old_words_in_the_defaults_are_translated_too() -> None:
    course = OLD.replace("[defaults]", '[defaults]\nclusters = "old"\ngres = "gpu:t4:1"')
    assert flags(course, "") == {**T4, "gres": "gpu:t4:1"}
    assert flags(course, "--gpus 0") == {"partition": "core", "mem-per-cpu": "4G", "ntasks": "4"}


def test_old_words_of_an_upper_file_give_way_to_what_the_cluster_has_today() -> None:
    """A course's ``partition = "dev1"`` goes, and with it what it would have kept out."""
    below = parse_layer(OLD.encode(), "below")
    above = parse_layer(b'[defaults]\npartition = "dev1"\nntasks = 1\ngres = "gpu:a100:1"\n', "above")
    spoken = translate_flags(checked_profile([below, above]), {}).flags
    assert (spoken["partition"], spoken["qos"], spoken["gres"]) == ("big", "dev", "gpu:A100:1")


def test_the_last_star_is_what_is_meant() -> None:
    site = '[[translations]]\nwhen = { gpus-per-node = "*:*" }\ndrop = ["gpus_per_node"]\n'
    site += 'set = { gpus = "{gpus-per-node}" }\nnote = "one type."\n'
    assert flags(site, "--gpus-per-node=V100:2") == {"gpus": "2"}


SET = (
    '[[translations]]\nwhen = { ntasks = "*" }\ndrop = ["ntasks"]\nset = { cpus-per-task = "{ntasks}" }\n'
    'note = "why."\n'
    '[[translations]]\nwhen = { gres = "gpu:*" }\ndrop = ["gres"]\nset = { gpus = "{gres}", constraint = "new" }\n'
    'note = "why."\n'
)


def test_what_was_typed_is_not_written_over() -> None:
    assert flags(SET, "-n 2 -c 4") == {"ntasks": "2", "cpus-per-task": "4"}
    assert notes(SET, "-n 2 -c 4") == ["-n 2 stays, beside your -c 4: why."]
    assert flags(SET, "-C mine --gres=gpu:2") == {"constraint": "mine", "gpus": "2"}
    assert notes(SET, "-C mine --gres=gpu:2") == ["--gres gpu:2 is now --gpus 2: why. Your -C mine stays."]


def test_gpus_are_taken_out_of_a_list_with_other_things() -> None:
    expected = {"gpus": "t4:1", "constraint": "new", "gres": "scratch:1"}
    assert flags(SET, "--gres=gpu:t4:1,scratch:1") == flags(SET, "--gres=scratch:1,gpu:t4:1") == expected
    assert flags(SET, "--gres=scratch:1") == {"gres": "scratch:1"}
    same = '[[translations]]\nwhen = { gres = "gpu:P4:*" }\nset = { gres = "gpu:{gres}" }\nnote = "why."\n'
    assert flags(same, "--gres=gpu:P4:2,scratch:1") == {"gres": "gpu:2,scratch:1"}
    two = "--gres=gpu:t4:1,gpu:a100:1"
    assert flags(SET, two) == {"gres": "gpu:t4:1,gpu:a100:1"}  # one word for both there is not


SIGNS = st.text(alphabet="ab*?[]!-{}:.\\^$", max_size=8)


@given(SIGNS.filter(lambda text: text.strip() != ""), SIGNS)
def test_any_pattern_matches_or_does_not(pattern: str, value: str) -> None:
    """Nothing in a pattern is read as anything but ``*``, ``?`` and ``[…]``, and nothing in it makes a mess."""
    data: dict[str, Any] = {"when": {"comment": pattern}, "drop": ["comment"], "note": "gone."}
    spoken = translate_flags(validated(ClusterProfile, [Layer("", {"translations": [data]})]), {"comment": value})
    assert spoken.flags.get("comment") in (None, value)


def test_signs_of_regular_expressions_in_a_pattern_mean_themselves() -> None:
    site = '[[translations]]\nwhen = { comment = "a.b+" }\ndrop = ["comment"]\nnote = "gone."\n'
    assert flags(site, "--comment=a.b+") == {}
    assert flags(site, "--comment=axbb") == {"comment": "axbb"}


# --- what is closed ------------------------------------------------------------------------------------------------


def test_a_cluster_where_nothing_can_be_launched() -> None:
    with pytest.raises(ClusterUnavailable) as caught:
        flags('[unavailable]\nwhy = "Nothing is forwarded."\ninstead = "use the web page"\n', "--gpus 1")
    assert (caught.value.what, caught.value.hint) == ("Nothing is forwarded.", "use the web page")


def test_a_retired_cluster_without_a_successor() -> None:
    with pytest.raises(ClusterUnavailable, match="Switched off in May"):
        flags('status = "retired"\nnotice = "Switched off in May."\n', "")


def test_a_notice_is_told_at_each_launch() -> None:
    assert notes('notice = "Closed on Friday."\n', "") == ["Closed on Friday."]


# --- who pays ------------------------------------------------------------------------------------------------------

ACCOUNT = (
    '[account]\nrequired = true\npattern = "p\\\\d+"\nexample = "p123"\ngpu_suffix = "-gpu"\ncpu_suffix = "-cpu"\n'
)


@pytest.mark.parametrize(
    ("words", "account", "told"),
    [
        ("-A p1 --gpus 1", "p1-gpu", "-A p1 is now -A p1-gpu: accounts of jobs with GPUs end in -gpu here."),
        ("-A p1-gpu --gpus 1", "p1-gpu", None),
        ("-A p1-gpu --gpus 0", "p1-cpu", "-A p1-gpu is now -A p1-cpu: accounts of jobs without GPUs end in -cpu here."),
        ("-A p1", "p1-cpu", "-A p1 is now -A p1-cpu: accounts of jobs without GPUs end in -cpu here."),
        ("-A P1-cpu", "P1-cpu", None),
        ("-A q1-cpu", "q1-cpu", "The account q1-cpu does not look like one of this cluster, such as p123."),
    ],
)
def test_the_accounts_ending(words: str, account: str, told: str | None) -> None:
    assert flags(ACCOUNT, words)["account"] == account
    assert notes(ACCOUNT, words) == ([told] if told else [])


def test_an_ending_of_gpus_alone_goes_for_a_job_without() -> None:
    site = '[account]\ngpu_suffix = "_g"\n'
    assert flags(site, "-A m1_g --gpus 0") == {"account": "m1"}
    assert notes(site, "-A m1_g --gpus 0") == ["-A m1_g is now -A m1: only accounts of jobs with GPUs end in _g here."]
    assert flags(site + '[defaults]\naccount = "m1_g"\n', "") == {"account": "m1"}  # as it was kept
    assert notes(site, "-A m1") == notes(site, "-A m1_g --gpus 1") == []


def test_an_account_that_must_be_named() -> None:
    with pytest.raises(AnswerMissing) as caught:
        translate_flags(profile(ACCOUNT), {}, "uni")
    assert caught.value.what == "The account that pays must be named on “uni”."
    assert caught.value.hint == "name it: -A p123   or save it: launch-notebook clusters edit uni --account p123"
    assert flags('[account]\nrequired = true\n[defaults]\naccount = "kept"\n', "") == {"account": "kept"}


# --- for how long --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("longest", "words", "told"),
    [
        ('max_time = "2-00:00:00"', "-t 2-0", None),
        ('max_time = "2-00:00:00"', "-t 2-1", "A walltime of 2 days 1 hour is longer than the cluster allows"),
        ('max_time = "2-00:00:00"', "-t unlimited", "A walltime of no limit is longer than the cluster allows"),
        ('max_time = { gpu = "1:00:00" }', "-p gpu -t 2:00:00", "longer than partition gpu allows by its profile, 1 h"),
        ('max_time = { gpu = "1:00:00" }', "-p gpu", None),
        ('max_time = { gpu = "1:00:00" }', "-p cpu -t 2:00:00", None),
        ('max_time = { gpu = "1:00:00", long = "9:00:00" }', "-p gpu -q long -t 2:00:00", None),
        ('max_time = { long = "1:00:00" }', "-p gpu -q long -t 2:00:00", "longer than QOS long allows"),
        ('max_time = "30:00"', "", "A walltime of 59 minutes is longer"),
    ],
)
def test_a_walltime_beyond_what_is_allowed_is_told(longest: str, words: str, told: str | None) -> None:
    said = notes(longest, words)
    assert said == [] if told is None else told in said[0]
    assert "longer" not in "".join(said) or flags(longest, words) is not None  # a note, and no refusal


def test_no_site_is_named_in_the_code() -> None:
    text = (ROOT / "notebook_launcher" / "planning" / "site_translation.py").read_text(encoding="utf-8")
    names = [path.stem for path in (GOLDEN / "profiles").glob("*.txt") if path.stem != "generic"]
    assert names
    assert [name for name in names if re.search(rf"\b{name}\b", text, re.I)] == []
