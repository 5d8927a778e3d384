"""Host keys: known, unknown, changed, revoked; with known_hosts files as ssh-keygen writes them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import paramiko
import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_launcher.core.errors import HostKeyChanged, HostKeyUnknown
from notebook_launcher.hosts.paramiko.host_keys import (
    KnownKey,
    check_host_key,
    fingerprint,
    known_keys,
    preferred_algorithms,
)
from notebook_launcher.hosts.ssh_config import SshSettings

KEY = paramiko.ECDSAKey.generate()
OTHER = paramiko.ECDSAKey.generate()
RSA = paramiko.RSAKey.generate(2048)


def public(key: paramiko.PKey) -> str:
    return f"{key.get_name()} {key.get_base64()}"


class NoPrompts:
    """Nobody is there to be asked."""

    def secret(self, _text: str) -> str | None:
        return None

    def confirm(self, _text: str) -> bool:
        return False


class Somebody(NoPrompts):
    """Gives an answer, and remembers the questions."""

    def __init__(self, answer: bool) -> None:
        self.answer = answer
        self.asked: list[str] = []

    def confirm(self, text: str) -> bool:
        self.asked.append(text)
        return self.answer


Settings = Callable[..., SshSettings]


@pytest.fixture
def known_hosts(tmp_path: Path) -> Path:
    return tmp_path / "known_hosts"


@pytest.fixture
def settings(known_hosts: Path) -> Settings:
    def settings(**others: object) -> SshSettings:
        values: dict[str, object] = {"destination": "alice@login", "hostname": "login.uni.example", "user": "alice"}
        values |= {"user_known_hosts": (known_hosts,)}
        return SshSettings(**(values | others))  # type: ignore[arg-type]

    return settings


def accepted(settings: SshSettings, expected: tuple[str, ...] = ()) -> bool:
    """Whether our key is taken without a question."""
    try:
        check_host_key(settings, KEY, NoPrompts().confirm, expected)
    except HostKeyUnknown:
        return False
    return True


# --- known ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "others", "known"),
    [
        ("login.uni.example KEY", {}, True),
        ("login.uni.example KEY a comment", {}, True),
        ("LOGIN.Uni.Example KEY", {}, True),
        ("a.example,login.uni.example,192.0.2.1 KEY", {}, True),
        ("*.uni.example KEY", {}, True),
        ("login.???.example KEY", {}, True),
        ("*.uni.example,!login.uni.example KEY", {}, False),
        ("!other.uni.example,*.uni.example KEY", {}, True),
        ("!login.uni.example KEY", {}, False),
        ("other.uni.example KEY", {}, False),
        ("login KEY", {}, False),
        ("[a-z]*.uni.example KEY", {}, False),
        ("[login.uni.example]:2222 KEY", {"port": 2222}, True),
        ("[login.uni.example]:2222 KEY", {}, False),
        ("[*.uni.example]:2222 KEY", {"port": 2222}, True),
        ("alias KEY", {"host_key_alias": "alias", "port": 2222}, True),
        ("login.uni.example KEY", {"host_key_alias": "alias"}, False),
        ("# login.uni.example KEY", {}, False),
        ("@cert-authority login.uni.example KEY", {}, False),
        ("@nonsense login.uni.example KEY", {}, False),
        ("", {}, False),
        ("login.uni.example", {}, False),
        ("|1|damaged|line= KEY", {}, False),
        ("|1| KEY", {}, False),
        ("\tlogin.uni.example\tKEY", {}, True),
        ("login.uni.example RSA\nlogin.uni.example KEY", {}, True),
        ("login.uni.example OTHER\nlogin.uni.example KEY", {}, True),
        ("login.uni.example KEY", {"port": 2222}, True),
        ("login.uni.example OTHER", {"port": 2222}, False),
        ("login.uni.example KEY\n[login.uni.example]:2223 OTHER", {"port": 2222}, True),
        ("@revoked * RSA\nlogin.uni.example KEY", {"port": 2222}, True),
        ("login.uni.example KEY", {"port": 2222, "host_key_alias": "alias"}, False),
        ("login.uni.example ssh-dss AAAA", {}, False),
    ],
)  # fmt: skip
def test_which_lines_speak_of_a_server(
    known_hosts: Path, settings: Settings, line: str, others: dict[str, object], known: bool
) -> None:
    known_hosts.write_text(line.replace("KEY", public(KEY)).replace("OTHER", public(OTHER)).replace("RSA", public(RSA)))
    assert accepted(settings(**others)) is known


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="no ssh-keygen here")
@pytest.mark.parametrize("name", ["login.uni.example", "[login.uni.example]:2222"])
def test_hashed_names(known_hosts: Path, settings: Settings, name: str) -> None:
    known_hosts.write_text(f"{name} {public(KEY)}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", known_hosts], check=True, capture_output=True)
    assert known_hosts.read_text().startswith("|1|")
    port = 2222 if "2222" in name else 22
    assert accepted(settings(port=port))
    assert accepted(settings(port=port, hostname="Login.Uni.Example"))
    assert not accepted(settings(port=port, hostname="other.uni.example"))


def test_the_systems_file_counts_too(tmp_path: Path, settings: Settings) -> None:
    (tmp_path / "system").write_text(f"login.uni.example {public(KEY)}\n")
    assert accepted(settings(system_known_hosts=(tmp_path / "not there", tmp_path / "system")))


def test_a_known_key_has_its_place(known_hosts: Path, settings: Settings) -> None:
    known_hosts.write_text(f"# head\n\n@revoked *.example {public(KEY)}\nlogin.uni.example {public(RSA)}\n")
    assert known_keys(settings()) == [
        KnownKey(known_hosts, 3, "@revoked", KEY.get_name(), KEY.get_base64()),
        KnownKey(known_hosts, 4, "", "ssh-rsa", RSA.get_base64()),
    ]


@given(st.binary(max_size=200) | st.text(alphabet="|1=,!*?@ \nabcA+/", max_size=120).map(str.encode))
def test_no_damaged_file_makes_us_stumble(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    known_hosts = tmp_path_factory.getbasetemp() / "damaged"
    known_hosts.write_bytes(content)
    assert not accepted(SshSettings("x", "login.uni.example", "alice", user_known_hosts=(known_hosts,), batch=True))


# --- changed and revoked -------------------------------------------------------------------------------------


def test_a_changed_key_is_refused_naming_file_and_line(known_hosts: Path, settings: Settings) -> None:
    text = f"# mine\nlogin.uni.example {public(OTHER)}\n"
    known_hosts.write_text(text)
    somebody = Somebody(True)
    for strict in ("ask", "no", "accept-new"):
        with pytest.raises(HostKeyChanged) as caught:
            check_host_key(settings(strict=strict), KEY, somebody.confirm)
        assert f"{known_hosts}, line 2" in caught.value.why
        assert fingerprint(KEY) in caught.value.why
        assert "ssh-keygen -R 'login.uni.example'" in caught.value.hint
    assert somebody.asked == []
    assert known_hosts.read_text() == text


def test_the_file_and_line_are_those_of_the_other_key(known_hosts: Path, settings: Settings, tmp_path: Path) -> None:
    known_hosts.write_text(f"other.example {public(OTHER)}\n")
    (tmp_path / "second").write_text(f"\n\n*.uni.example {public(RSA)}\nlogin.uni.example {public(OTHER)}\n")
    (tmp_path / "system").write_text(f"login.uni.example {public(OTHER)}\n")
    files = {"user_known_hosts": (known_hosts, tmp_path / "second"), "system_known_hosts": (tmp_path / "system",)}
    with pytest.raises(HostKeyChanged) as caught:
        check_host_key(settings(**files), KEY, Somebody(True).confirm)
    assert f"{tmp_path}/second, line 4" in caught.value.why


def test_a_known_key_of_another_kind_means_that_the_key_has_changed(known_hosts: Path, settings: Settings) -> None:
    """As in OpenSSH: the server was asked for the kind that is known first, and does not have it any more."""
    known_hosts.write_text(f"login.uni.example {public(RSA)}\n")
    somebody = Somebody(True)
    with pytest.raises(HostKeyChanged) as caught:
        check_host_key(settings(), KEY, somebody.confirm)
    assert f"{known_hosts}, line 1" in caught.value.why
    assert somebody.asked == []


def test_a_bare_name_is_believed_and_contradicts_nothing(known_hosts: Path, settings: Settings) -> None:
    known_hosts.write_text(f"login.uni.example {public(OTHER)}\n")
    somebody = Somebody(True)
    check_host_key(settings(port=2222), KEY, somebody.confirm)
    assert len(somebody.asked) == 1
    known_hosts.write_text(f"@revoked login.uni.example {public(KEY)}\n")
    with pytest.raises(HostKeyChanged, match="revoked"):
        check_host_key(settings(port=2222), KEY, somebody.confirm)


def test_another_clusters_node_of_the_same_name_does_not_matter(known_hosts: Path, settings: Settings) -> None:
    known_hosts.write_text(f"login.uni.example {public(OTHER)}\n")
    somebody = Somebody(False)
    check_host_key(settings(), KEY, somebody.confirm, [public(KEY)])
    assert somebody.asked == []


def test_a_revoked_key_is_refused_even_where_it_is_known(known_hosts: Path, settings: Settings) -> None:
    known_hosts.write_text(f"login.uni.example {public(KEY)}\n@revoked * {public(KEY)}\n")
    with pytest.raises(HostKeyChanged, match="revoked") as caught:
        check_host_key(settings(), KEY, Somebody(True).confirm, [public(KEY)])
    assert caught.value.why == f"{known_hosts}, line 2"


def test_another_revoked_key_says_nothing_about_this_one(known_hosts: Path, settings: Settings) -> None:
    known_hosts.write_text(f"@revoked login.uni.example {public(OTHER)}\n")
    somebody = Somebody(True)
    check_host_key(settings(), KEY, somebody.confirm)
    assert len(somebody.asked) == 1


# --- expected ------------------------------------------------------------------------------------------------


def test_an_expected_key_needs_no_question(settings: Settings, known_hosts: Path) -> None:
    assert accepted(settings(), (public(RSA), f"{public(KEY)} root@node1"))
    assert not known_hosts.exists()


def test_a_key_other_than_the_expected_one_is_refused(settings: Settings) -> None:
    somebody = Somebody(True)
    with pytest.raises(HostKeyChanged) as caught:
        check_host_key(settings(strict="no"), KEY, somebody.confirm, [public(OTHER), public(RSA)])
    assert "job" in caught.value.why
    assert somebody.asked == []


@pytest.mark.parametrize("strict", ["ask", "no", "accept-new"])
def test_a_key_of_another_kind_than_the_expected_one_is_refused(settings: Settings, strict: str) -> None:
    somebody = Somebody(True)
    with pytest.raises(HostKeyChanged):
        check_host_key(settings(strict=strict), KEY, somebody.confirm, [public(RSA), "", "damaged"])
    assert somebody.asked == []


# --- asked ---------------------------------------------------------------------------------------------------


def test_yes_is_remembered(settings: Settings, known_hosts: Path) -> None:
    somebody = Somebody(True)
    check_host_key(settings(), KEY, somebody.confirm)
    assert fingerprint(KEY) in somebody.asked[0]
    assert "login.uni.example" in somebody.asked[0]
    assert known_hosts.read_text() == f"login.uni.example {public(KEY)}\n"
    check_host_key(settings(), KEY, NoPrompts().confirm)


def test_a_new_line_goes_below_the_others(settings: Settings, known_hosts: Path) -> None:
    known_hosts.write_text("other ssh-rsa AAAA")
    check_host_key(settings(port=2222), KEY, Somebody(True).confirm)
    assert known_hosts.read_text() == f"other ssh-rsa AAAA\n[login.uni.example]:2222 {public(KEY)}\n"


def test_the_first_file_gets_it_and_its_folder_is_made(settings: Settings, tmp_path: Path) -> None:
    files = (tmp_path / "new" / "folder" / "known", tmp_path / "second")
    check_host_key(settings(user_known_hosts=files), KEY, Somebody(True).confirm)
    assert files[0].read_text() == f"login.uni.example {public(KEY)}\n"
    assert not files[1].exists()
    check_host_key(settings(user_known_hosts=()), KEY, Somebody(True).confirm)


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="no ssh-keygen here")
@pytest.mark.parametrize("port", [22, 2222])
def test_names_are_hashed_where_the_configuration_says_so(known_hosts: Path, settings: Settings, port: int) -> None:
    check_host_key(settings(port=port, hash_known_hosts=True), KEY, Somebody(True).confirm)
    assert known_hosts.read_text().startswith("|1|")
    assert accepted(settings(port=port))
    name = "login.uni.example" if port == 22 else f"[login.uni.example]:{port}"
    found = subprocess.run(["ssh-keygen", "-F", name, "-f", known_hosts], capture_output=True, text=True, check=True)
    assert KEY.get_base64() in found.stdout


@pytest.mark.parametrize("name", ["*", "a?", "#x", "@revoked", "|1|x"])
def test_a_name_that_would_be_a_pattern_is_not_remembered(known_hosts: Path, settings: Settings, name: str) -> None:
    check_host_key(settings(hostname=name), KEY, Somebody(True).confirm)
    assert not known_hosts.exists()


def test_a_file_that_cannot_be_written_is_no_reason_to_stop(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    check_host_key(settings(user_known_hosts=(tmp_path / "file" / "known",)), KEY, Somebody(True).confirm)


def test_no_is_no(settings: Settings, known_hosts: Path) -> None:
    with pytest.raises(HostKeyUnknown) as caught:
        check_host_key(settings(), KEY, Somebody(False).confirm)
    assert fingerprint(KEY) in caught.value.why
    assert "ssh alice@login" in caught.value.hint
    assert not known_hosts.exists()


@pytest.mark.parametrize(
    ("others", "taken", "asked"),
    [
        ({"strict": "ask"}, True, 1),
        ({"strict": "yes"}, False, 0),
        ({"strict": "accept-new"}, True, 0),
        ({"strict": "no"}, True, 0),
        ({"strict": "ask", "batch": True}, False, 0),
        ({"strict": "accept-new", "batch": True}, True, 0),
    ],
)
def test_what_the_configuration_says_about_asking(
    settings: Settings, known_hosts: Path, others: dict[str, object], taken: bool, asked: int
) -> None:
    somebody = Somebody(True)
    if taken:
        check_host_key(settings(**others), KEY, somebody.confirm)
    else:
        with pytest.raises(HostKeyUnknown):
            check_host_key(settings(**others), KEY, somebody.confirm)
    assert len(somebody.asked) == asked
    assert known_hosts.exists() is taken


def test_where_nobody_can_be_asked_it_is_refused(settings: Settings) -> None:
    with pytest.raises(HostKeyUnknown):
        check_host_key(settings(), KEY, NoPrompts().confirm)


# --- fingerprints and algorithms -----------------------------------------------------------------------------


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="no ssh-keygen here")
@pytest.mark.parametrize("key", [KEY, RSA], ids=lambda key: key.get_name())
def test_the_fingerprint_is_the_one_that_ssh_prints(tmp_path: Path, key: paramiko.PKey) -> None:
    (tmp_path / "key.pub").write_text(public(key))
    shown = subprocess.run(
        ["ssh-keygen", "-l", "-E", "sha256", "-f", tmp_path / "key.pub"], capture_output=True, text=True, check=True
    )
    assert shown.stdout.split()[1] == fingerprint(key)


OFFERED = ("ssh-ed25519", "ecdsa-sha2-nistp256", "rsa-sha2-512", "rsa-sha2-256")


@pytest.mark.parametrize(
    ("kinds", "first"),
    [
        ([], OFFERED),
        (["ecdsa-sha2-nistp256"], ("ecdsa-sha2-nistp256", "ssh-ed25519", "rsa-sha2-512", "rsa-sha2-256")),
        (["ssh-rsa"], ("rsa-sha2-512", "rsa-sha2-256", "ssh-ed25519", "ecdsa-sha2-nistp256")),
        (["ssh-dss"], OFFERED),
        (["@revoked ssh-rsa"], OFFERED),
    ],
)
def test_the_server_is_asked_for_a_key_that_is_known(kinds: list[str], first: tuple[str, ...]) -> None:
    known = [KnownKey(Path("f"), 1, kind.rpartition(" ")[0], kind.rpartition(" ")[2], "AAAA") for kind in kinds]
    assert preferred_algorithms(known, OFFERED) == first
