"""The matrix of a bench: read, refused, and turned into combinations with names that stay."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from notebook_launcher.bench.matrix import MOST, Combination, beside, check_size, find, parse, with_parameters
from notebook_launcher.core.errors import UsageError


def names(text: str) -> list[str]:
    return [one.name for one in parse(text).combinations()]


def test_every_value_meets_every_other_the_first_axis_slowest() -> None:
    assert names("cores=1,4 gpus=0,1") == ["cores=1 gpus=0", "cores=1 gpus=1", "cores=4 gpus=0", "cores=4 gpus=1"]
    assert len(parse("env=a,b cores=1,4,8 EPOCHS=1,2")) == 12
    assert names("") == ["as it is"]


def test_a_name_stays_in_whichever_order_it_is_typed() -> None:
    one, other = "EPOCHS=1 mem=8G gpus=0 cores=4 env=tf-gpu", "env=tf-gpu cores=04 gpus=00 --mem=8G EPOCHS=1"
    assert names(one) == names(other) == ["env=tf-gpu cores=4 gpus=0 mem=8G EPOCHS=1"]


def only(text: str) -> Combination:
    (one,) = parse(text).combinations()
    return one


def test_what_a_combination_asks_the_scheduler_for() -> None:
    assert only("cores=8").flags() == {"ntasks": "1", "cpus-per-task": "8"}
    assert only("gpus=a100:2").flags() == {"gpus": "a100:2"}
    assert only("nodes=2 mem=8G partition=gpu").flags() == {"nodes": "2", "mem": "8G", "partition": "gpu"}
    assert only("hold=yes").flags() == {"hold": None}
    assert only("hold=no env=x EPOCHS=3").flags() == {}
    assert only("hold=no env=x EPOCHS=3 LR=1e-3").pairs() == [("EPOCHS", "3"), ("LR", "1e-3")]
    assert [one.value("env") for one in parse("env=,tf-mkl").combinations()] == ["", "tf-mkl"]
    assert only("cores=1").value("env") is None


def test_values_with_blanks_and_commas_stand_in_quotes() -> None:
    values = {one.value("TEXT") for one in parse("""TEXT="a b",'c,d',"it's",x=y""").combinations()}
    assert values == {"a b", "c,d", "it's", "x=y"}


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=12))
def test_a_name_can_be_typed_as_a_matrix_again(value: str) -> None:
    one = with_parameters(parse("cores=2"), [("NAME", value)])
    (first,) = one.combinations()
    assert names(first.name) == [first.name]
    assert re.fullmatch(r"[A-Za-z0-9.,=+_-]{1,90}", first.folder)


def test_folders_of_different_combinations_differ() -> None:
    text = """X="a b",a_b,"a/b",../..,'a"b'"""
    folders = [one.folder for one in parse(text).combinations()]
    assert len(set(folders)) == 5
    assert not any("/" in folder for folder in folders)
    assert only("env=tf-gpu cores=4").folder == "env=tf-gpu,cores=4"
    assert len(only(f"X={'y' * 500}").folder) < 120


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("cores", "“cores” in the matrix has no values. | An axis is NAME=VALUE,VALUE."),
        ("cores=0", "“0” is not a number of cores, 1 at least."),
        ("cores=1.5", "“1.5” is not a number of cores"),
        ("gpus=x", "“x” is not a number of GPUs, or with a type a100:1."),
        ("cores=1,,2", "“cores” has an empty value"),
        ("cores=1,01", "“cores” has the value “1” twice"),
        ("cores=1 cores=2", "“cores” is twice"),
        ("X=\udcff", "has a control character"),
        ("cores=1 ntasks=2", "“cores” and “ntasks” mean the same."),
        ("gpus=1 gres=gpu:1", "“gpus” and “gres” mean the same"),
        ("mem=8G mem-per-cpu=1G", "“mem” and “mem-per-cpu” mean the same"),
        ("A='x", "A quote (') is not closed"),
        ("=3", "A name is missing before “=”."),
        ("--epoch=3", "“--epoch” cannot be varied."),
        ("cpus-per-tsk=3", "did you mean cpus-per-task=…?"),
        ("array=1-3", "“array” cannot be in the matrix: a notebook is one job"),
        ("job-name=a,b", "each combination has a name of its own"),
        ("hold=maybe", "--hold takes no value. |  | in the matrix: hold=yes,no"),
        ("A=x\x1by", "control character: 'x\\x1by'"),
    ],
)
def test_what_is_wrong_is_told(text: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    error = caught.value
    assert told in f"{error.what} | {error.why} | {error.hint}"


@settings(deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        matrix = parse(text)
    except UsageError:
        return
    assert len(list(matrix.combinations())) == len(matrix)


def test_too_many_are_asked_for_on_purpose_only() -> None:
    matrix = parse(f"X={','.join(map(str, range(MOST // 2)))} cores=1,2,3")
    with pytest.raises(UsageError, match=r"150 combinations \(50 × 3\)"):
        check_size(matrix, sure=False)
    check_size(matrix, sure=True)
    check_size(parse(f"X={','.join(map(str, range(MOST)))}"), sure=False)


def test_what_is_asked_for_beside_the_matrix_is_what_may_change_a_number() -> None:
    flags = {"time": "1:00:00", "mail-user": "a@b", "account": "me", "job-name": "x", "mem": "4G", "exclusive": None}
    assert beside(flags, {"conda": "my env", "module": ("a", "b"), "uv": None}, ("tf-gpu",)) == (
        "--exclusive --mem=4G '--conda=my env' --module=a --module=b -- tf-gpu"
    )
    assert beside({"time": "5"}, {}, ()) == ""


def test_a_flag_beside_the_matrix_that_says_the_same_is_found() -> None:
    assert parse("cores=1").conflicting_flag(["time", "ntasks"]) == "ntasks"
    assert parse("gpus=1").conflicting_flag(["gres"]) == "gres"
    assert parse("mem=8G").conflicting_flag(["mem-per-cpu"]) == "mem-per-cpu"
    assert parse("cores=1 gpus=1").conflicting_flag(["time", "mem", "account"]) is None


def test_parameters_that_are_the_same_for_all() -> None:
    matrix = with_parameters(parse("cores=1,2"), [("EPOCHS", "1"), ("EPOCHS", "2"), ("time", "x")])
    assert [one.pairs() for one in matrix.combinations()] == [[("EPOCHS", "2"), ("time", "x")]] * 2
    with pytest.raises(UsageError, match="“EPOCHS” stands in the matrix and after -p"):
        with_parameters(parse("EPOCHS=1"), [("EPOCHS", "2")])


def test_a_baseline_is_found_by_some_of_its_values() -> None:
    some = list(parse("env=a,b cores=1,4").combinations())
    assert find(some, "cores=4").name == "env=a cores=4"
    assert find(some, "cores=4 env=b").name == "env=b cores=4"
    for words in ("cores=2", ""):
        with pytest.raises(UsageError, match="No combination"):
            find(some, words)
