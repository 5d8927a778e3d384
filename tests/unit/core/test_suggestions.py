"""What was probably meant by a word that is not known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_launcher.core.suggestions import did_you_mean, similar


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("tf-mlk", ["tf-gpu", "tf-mkl", "tf-pip"], ["tf-mkl"]),
        ("tf-gpu", ["tf-mkl", "tf-pip", "torch"], ["tf-pip", "tf-mkl"]),
        ("tf-gpu", ["tf-cpu", "tf-pip"], ["tf-pip", "tf-cpu"]),
        ("tf-gpu", ["tf-cpu"], ["tf-cpu"]),
        ("tf-xpu", ["torch", "tf-cpu", "tf-gpu"], ["tf-cpu", "tf-gpu"]),
        ("tf-gpu", ["torch-cpu", "torch-gpu"], ["torch-gpu"]),
        ("prot", ["presets", "route", "port"], ["port"]),
        ("trian2", ["train1", "train2"], ["train2"]),
        ("train", ["train4", "train1", "train2", "train3", "other"], ["train4", "train1", "train2"]),
        ("SNWY", ["practice", "snowy"], ["snowy"]),
        ("prac", ["rackham", "practice"], ["practice"]),
        ("TF", ["torch", "tf-gpu", "tf-mkl"], ["tf-gpu", "tf-mkl"]),
        ("torch", ["tensorflow"], []),
        ("", ["a"], []),
        ("a", [""], []),
    ],
)
def test_the_closest_are_meant(word: str, known: list[str], meant: list[str]) -> None:
    assert similar(word, known) == meant


def test_a_hint_says_how_each_is_typed() -> None:
    assert did_you_mean("tf-gpu", ["tf-mkl", "tf-pip"], "-- {}") == "did you mean -- tf-pip or -- tf-mkl?"
    assert did_you_mean("x", ["y"]) == ""
    assert did_you_mean("t5", ["t4"]) == "" and did_you_mean("t5", ["t4"], cutoff=0.5) == "did you mean t4?"


@given(st.text(max_size=200), st.lists(st.text(max_size=80), max_size=10))
def test_any_words_can_be_compared(word: str, known: list[str]) -> None:
    assert set(similar(word, known)) <= {*known}
