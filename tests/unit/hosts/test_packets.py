"""Packets under AES-GCM: as paramiko's own and OpenSSH make and read them, and what a server may not send."""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from notebook_launcher.hosts.paramiko.connection import _AsSocket
from notebook_launcher.hosts.paramiko.host import ParamikoHost
from notebook_launcher.hosts.paramiko.library import paramiko
from notebook_launcher.hosts.paramiko.login import Credentials
from notebook_launcher.hosts.paramiko.packets import MOST, Gcm, Packets
from tests.ssh_server import Server, User, there_and_back

KEY, NONCE = bytes(range(16)), b"four" + (7).to_bytes(8, "big")
MIB = 1024 * 1024

Packetizer = paramiko.packet.Packetizer


def with_keys(connection: socket.socket, kind: type[Any] = Packets) -> Any:
    """Return what sends and receives over a connection, with the same key and nonce each way."""
    made = kind(connection)
    for name, nonce in (("set_outbound_cipher", "iv_out"), ("set_inbound_cipher", "iv_in")):
        named = {"block_engine": AESGCM(KEY), "block_size": 16, "mac_engine": None, "mac_size": 16, "mac_key": None}
        getattr(made, name)(**named, aead=True, **{nonce: NONCE})
    return made


@pytest.fixture
def line() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The two ends of a connection."""
    here, there = socket.socketpair()
    with here, there:
        here.settimeout(5)
        there.settimeout(5)
        yield here, there


@pytest.mark.parametrize("ours_sends", [True, False])
def test_paramikos_own_packets_are_the_same(line: tuple[socket.socket, socket.socket], ours_sends: bool) -> None:
    ends = [with_keys(line[0]), with_keys(line[1], Packetizer)]
    sender, receiver = ends if ours_sends else reversed(ends)
    for number, size in enumerate([*range(1, 40), 32 * 1024]):
        payload = bytes([94]) + os.urandom(size - 1)
        sender.send_message(paramiko.Message(payload))
        kind, message = receiver.read_message()
        assert bytes([kind]) + message.asbytes() == payload
        assert message.seqno == number


def test_the_packets_number_goes_on_from_paramikos_and_begins_anew_when_the_keys_are_strict(
    line: tuple[socket.socket, socket.socket],
) -> None:
    numbers = []
    sender, receiver = Packetizer(line[0]), Packets(line[1])
    sender.send_message(paramiko.Message(b"\x02plain"))
    numbers.append(receiver.read_message()[1].seqno)
    for is_strict in (False, True):
        sender, renewed = with_keys(line[0], Packetizer), with_keys(line[1])
        receiver._in = renewed._in
        if is_strict:
            receiver.reset_seqno_in()
        sender.send_message(paramiko.Message(b"\x02secret"))
        numbers.append(receiver.read_message()[1].seqno)
    assert numbers == [0, 1, 0]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Python ends the calls")
def test_a_timeout_of_a_connection_is_the_systems_and_none_is_left_of_the_one_before(
    line: tuple[socket.socket, socket.socket],
) -> None:
    found = []
    for seconds in (1.5, 1e-9, None, 1e-9, 0):
        _AsSocket(line[0]).settimeout(seconds)
        options = [line[0].getsockopt(socket.SOL_SOCKET, name, 16) for name in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO)]
        found.append([*map(struct.Struct("@ll").unpack, options), line[0].gettimeout()])
    tick = found[1][0]
    assert (0, 0) < tick <= (0, 10_000), "Linux rounds up to its clock"
    assert found == [
        [(1, 500_000)] * 2 + [None],
        [tick] * 2 + [None],
        [(0, 0)] * 2 + [None],
        [tick] * 2 + [None],
        [(0, 0)] * 2 + [0.0],
    ]


def test_a_nonce_is_never_used_again_and_its_number_begins_at_zero_after_the_last_one() -> None:
    gcm = Gcm(AESGCM(KEY), b"four" + b"\xff" * 8)
    first, second = gcm.encrypt(b"same", b""), gcm.encrypt(b"same", b"")
    assert AESGCM(KEY).decrypt(b"four" + b"\xff" * 8, first, b"") == b"same"
    assert AESGCM(KEY).decrypt(b"four" + bytes(8), second, b"") == b"same"


@pytest.mark.parametrize("size", [0, 15, 17, MOST + 16, 0xFFFF_FFF0])
def test_a_packet_of_an_impossible_length_is_not_waited_for(
    line: tuple[socket.socket, socket.socket], size: int
) -> None:
    line[0].sendall(struct.pack(">I", size))
    with pytest.raises(paramiko.SSHException, match=f"{size} bytes"):
        with_keys(line[1]).read_message()


def test_a_packet_that_somebody_has_changed_is_refused(line: tuple[socket.socket, socket.socket]) -> None:
    middle, away = socket.socketpair()
    with middle, away:
        with_keys(middle).send_message(paramiko.Message(b"\x5ehello"))
        packet = bytearray(away.recv(100))
    packet[8] ^= 1
    line[0].sendall(packet)
    with pytest.raises(InvalidTag):
        with_keys(line[1]).read_message()


@pytest.mark.parametrize(
    ("padding", "why"), [(0, "0 of padding"), (3, "3 of"), (15, "without content"), (16, "16 of"), (255, "255 of")]
)
def test_a_packet_with_too_little_padding_or_nothing_else_is_refused(
    line: tuple[socket.socket, socket.socket], padding: int, why: str
) -> None:
    length = struct.pack(">I", 16)
    line[0].sendall(length + AESGCM(KEY).encrypt(NONCE, bytes([padding]) + bytes(15), length))
    with pytest.raises(paramiko.SSHException, match=why):
        with_keys(line[1]).read_message()


def test_other_ciphers_are_paramikos_until_one_comes_after_aes_gcm(line: tuple[socket.socket, socket.socket]) -> None:
    def counter_mode(packets: Any, *, sends: bool) -> None:
        cipher = Cipher(algorithms.AES(KEY), modes.CTR(KEY))
        keys: tuple[Any, ...] = (16, paramiko.transport.sha256, 32, KEY)
        if sends:
            packets.set_outbound_cipher(cipher.encryptor(), *keys, True)
        else:
            packets.set_inbound_cipher(cipher.decryptor(), *keys)

    sender, receiver = Packets(line[0]), Packets(line[1])
    counter_mode(sender, sends=True)
    counter_mode(receiver, sends=False)
    sender.send_message(paramiko.Message(b"\x5ehello"))
    kind, message = receiver.read_message()
    assert (kind, message.asbytes()) == (94, b"hello")
    for sends in (True, False):
        with pytest.raises(paramiko.SSHException, match="another kind"):
            counter_mode(with_keys(line[0]), sends=sends)


def test_keys_are_to_be_renewed_after_so_many_bytes_either_way_and_a_server_that_does_not_is_left(
    line: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Packets, "REKEY_BYTES", 100)
    monkeypatch.setattr(Packets, "REKEY_BYTES_OVERFLOW_MAX", 100)
    sender, receiver = with_keys(line[0]), with_keys(line[1])
    found = []
    for _ in range(6):  # of 36 bytes
        sender.send_message(paramiko.Message(b"\x02"))
    for _ in range(5):
        receiver.read_message()
        found.append(receiver.need_rekey())
    assert found == [False, False, True, True, True]
    assert sender.need_rekey()
    with pytest.raises(paramiko.SSHException, match="does not renew"):
        receiver.read_message()


@pytest.mark.real_time
@pytest.mark.timeout(60)
def test_nothing_is_lost_while_an_sshd_and_we_renew_the_keys(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Packets, "REKEY_BYTES", MIB)
    renewed = []
    monkeypatch.setattr(Packets, "set_outbound_cipher", noting(renewed, Packets.set_outbound_cipher))
    data = os.urandom(4 * MIB)
    with ParamikoHost.open(server.destination(), Credentials(User())) as host:
        stream = host.open_process(["cat"])
        assert there_and_back(stream, data) == data
        stream.close()
    assert len(renewed) > 2


def noting(calls: list[object], function: Any) -> Any:
    """Return the same function, which notes its calls."""

    def noted(*given: Any, **named: Any) -> Any:
        calls.append(None)
        return function(*given, **named)

    return noted
