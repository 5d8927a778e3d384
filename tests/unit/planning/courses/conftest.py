"""A configuration folder, a course on this machine, and web servers with and without https."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.planning.courses.course_files import CLUSTER, write
from tests.unit.planning.courses.web_server import Server


@pytest.fixture(autouse=True)
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration folder with the profile of a cluster."""
    folder = tmp_path / "configuration"
    (folder / "clusters").mkdir(parents=True)
    (folder / "clusters" / "uni.toml").write_text(CLUSTER)
    (folder / "config.toml").write_text('# mine\ncluster = "uni"\n')
    monkeypatch.setenv("NOTEBOOK_LAUNCHER_CONFIG", str(folder))
    return folder


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """A course's folder on this machine; the path of its file."""
    return write(tmp_path / "teacher")


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for this machine and its key: an institution's own."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a university")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("certificate")
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "cert.pem", folder / "key.pem"


@pytest.fixture
def web(certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A web server with https, which this machine trusts."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    server = Server(context)
    yield server
    server.close()


@pytest.fixture
def plain_web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A web server without https."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Server(None)
    yield server
    server.close()
