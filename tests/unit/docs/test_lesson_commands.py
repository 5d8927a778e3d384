"""How the commands of a lesson are found, and what a terminal shows of them; the practice cluster runs them."""

from __future__ import annotations

import pytest

from tests.cluster_tests import lessons

LESSON = """Text.

<!-- fails: python3 mean.py -->
```console
login$ cat >mean.py <<'END'
> 1 / 0
> END
login$ python3 mean.py
ZeroDivisionError
login$ rm mean.py
```
"""


def test_a_command_that_fails_is_marked() -> None:
    typed = list(lessons.typed_in(LESSON))
    assert [one.lines[0] for one in typed] == ["cat >mean.py <<'END'", "python3 mean.py", "rm mean.py"]
    assert [one.fails for one in typed] == [False, True, False]
    assert (typed[0].lines[1:], typed[1].expected, typed[1].number) == (("1 / 0", "END"), "ZeroDivisionError", 8)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("```console\n", "  ```console\n"),
        ("login$ rm mean.py\n```", "login$ rm mean.py"),
        ("fails: python3 mean.py", "fails: python3 other.py"),
    ],
)
def test_a_block_that_would_not_be_typed_is_an_error(before: str, after: str) -> None:
    with pytest.raises(ValueError, match=r"blocks are complete|not in the block"):
        list(lessons.typed_in(LESSON.replace(before, after)))


def test_what_was_typed_has_to_be_in_the_terminal() -> None:
    assert lessons._without_echo("\x1b[0mecho a\r\na\r\n", "echo a") == "a"
    with pytest.raises(AssertionError, match="does not show what was typed"):
        lessons._without_echo("echo \r a\r\nb\r\n", "echo a")
