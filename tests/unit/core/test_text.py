"""Text from elsewhere, made fit for a terminal: nothing that it would obey, and nothing else lost."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from notebook_launcher.core.text import joined, one_line, printable

PLAIN = [
    "",
    "sbatch: error: Batch job submission failed",
    "one\ntwo\n\tthree",
    "Ärger über große Größen, œuvre, ñandú",
    "節點無法連線。ノードに接続できません",
    "שלום עולם",
    "مرحبا بالعالم",
    "नमस्ते",
    "🚀 👩‍💻 🇸🇪 ❤️",
    "e\u0301 o\u0308",
    "50 % [████░░░] ±0.5 “quoted” – dash…",
    "[31m is only text without its escape",
    "C:\\Users\\alice\\x",
]


@pytest.mark.parametrize("text", PLAIN)
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


# no category of its own has these: fillers, joiners and selectors that show nothing
UNSEEN = "\u034f\u115f\u1160\u3164\uffa0" + "".join(map(chr, range(0xE0000, 0xE1000)))
SAFE = st.lists(
    st.characters(exclude_categories=("Cc", "Cf", "Cs", "Zl", "Zp"), exclude_characters=UNSEEN)
    | st.sampled_from(["\n", "\t", "👩‍💻", "\ufe0f"])
).map("".join)


@given(SAFE)
def test_whatever_can_be_seen_stays(text: str) -> None:
    assert printable(text) == text


WILD = st.text(
    st.sampled_from("\x1b\x9b\x9d\x90\x07\x08\r\n\t\x00\x7f\x84[]()PX^_\\;?0123mHJK \u202e\u2066\u200f\ufeff\ud800")
    | st.characters()
)


@given(WILD)
@example("\x1b\x00[31m")
@example("\x1b\x1b[31m[31m")
@example("\r\r\n")
@example("\x1b]0;title")
@example("\x9b\x9b31m31m")
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    shown = printable(text)
    assert not [char for char in shown if unicodedata.category(char) in ("Cc", "Cs") and char not in "\n\t"]
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c\u2028\u2029")
    shown.encode()  # nothing that cannot be written


@given(WILD)
def test_once_is_enough(text: str) -> None:
    assert printable(printable(text)) == printable(text)


@given(WILD)
def test_nothing_is_added_and_nothing_changes_places(text: str) -> None:
    rest = iter(text)
    assert all(char in rest for char in printable(text))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[1;38;5;196mbold\x1b[m plain", "bold plain"),
        ("\x9b31mred\x9bm", "red"),
        ("\x1b[2J\x1b[Hcleared", "cleared"),
        ("\x1b[?25lhidden cursor\x1b[?25h", "hidden cursor"),
        ("\x1b]0;alice@login:~\x07text", "text"),
        ("\x1b]0;title\x1b\\text", "text"),
        ("\x9d0;title\x9ctext", "text"),
        ("\x1b]0;a title of several words\x07text", "0;a title of several wordstext"),
        ("\x1b]8;;http://evil.org/\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;cm0gLXJmIH4=\x07clipboard", "clipboard"),
        ("\x1bPdevice\x1b\\text", "text"),
        ("\x1b_application\x1b\\text", "text"),
        ("\x1b(0text\x1b(B", "text"),
        ("\x1b7saved\x1b8", "saved"),
        ("\x1bcreset", "reset"),
        ("before\x1b]0;a title that never ends\nafter", "before0;a title that never ends\nafter"),
        ("good\rbad", "goodbad"),
        ("a line\r\nanother\r\n", "a line\nanother\n"),
        ("back\b\b\b\bspace", "backspace"),
        ("be\x07ll", "bell"),
        ("zero\0", "zero"),
        ("\ufefftext", "text"),
        ("access \u202edrowssap", "access drowssap"),
        ("\u2066isolated\u2069", "isolated"),
        ("one\u2028two", "onetwo"),
        ("half a pair \ud83d", "half a pair "),
    ],
)
def test_commands_go_whole(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_sentences_do_not_run_into_each_other() -> None:
    assert joined("It is closed", "Its last output:") == "It is closed. Its last output:"
    assert joined("Over.", "", "Why?", " And so on ") == "Over. Why? And so on"
    assert joined("no such partition", "not queued", stop=";") == "no such partition; not queued"
    assert joined() == joined("") == ""


@pytest.mark.parametrize("opened", ["\x1b]", "\x1b]0;", "\x9d", "\x1bP", "\x1b_", "\x1b^", "\x1bX"])
@pytest.mark.parametrize("closed", ["", "\x07", "\x1b\\"])
def test_nobody_takes_away_what_we_say(opened: str, closed: str) -> None:
    """A name that begins a string, and another that ends it: the sentence between them is ours."""
    shown = printable(f"The file {opened}a was not copied: the checksum of b{closed} differs.")
    assert "was not copied: the checksum of b differs." in shown


@pytest.mark.parametrize("unseen", ["\u200b", "\u200c", "\u200d", "\u2060", "\u00ad", "\U000e0041", "\u3164", "\ufeff"])
def test_no_name_passes_for_another(unseen: str) -> None:
    assert printable(f"resu{unseen}lts") == "results"


@pytest.mark.parametrize(
    ("text", "most", "line"),
    [
        (" two\tlines\n\nof \x1b[31mtext ", None, "two lines of text"),
        ("four", 4, "four"),
        ("more than four", 4, "mor…"),
        ("", 4, ""),
    ],
)
def test_one_line(text: str, most: int | None, line: str) -> None:
    assert one_line(text, most) == line
