"""JupyterLab as a job: who gets in, who can read what, and what is left; with a real JupyterLab."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import socket
import struct
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.message import Message
from pathlib import Path

import psutil
import pytest

from tests.doubles import wait_until
from tests.unit.jobscripts.job import VENV_BIN, Job, call, permissions, read_json, token_of, write_evil_settings

pytestmark = pytest.mark.real_time


NASTY = 'it\'s "quoted" $(touch {0}/ran) `touch {0}/ran` ; touch {0}/ran && ${{HOME}} \\ ünïcödé'


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """A real JupyterLab with a kernel, of a user with a past. Shared by the tests that only look."""
    assert (VENV_BIN / "jupyter-lab").exists(), "these tests need JupyterLab beside their Python"
    job = Job(tmp_path_factory.mktemp("lab"))
    job.env |= {
        "JUPYTER_TOKEN": "evil",
        "JUPYTER_PORT": "8888",
        "JUPYTER_IP": "0.0.0.0",
        "JUPYTER_ALLOW_INSECURE_WRITES": "1",
        "JUPYTERHUB_API_TOKEN": "hub",
        "JPY_PARENT_PID": "1",
        "XDG_RUNTIME_DIR": "/run/user/12345",
        "TMPDIR": str(job.work),
        "PYTHONPATH": f"{job.home}:{job.work}",
        "SLURM_JOB_ID": "7",
        "SLURMD_NODENAME": "s1",
    }
    write_evil_settings(job.home)
    job.tool("node", f'#!/bin/sh\necho "$*" >>"{job.root}/node-ran"\n')
    site = f"import os; print(os.getpid(), file=open({str(job.root / 'sites')!r}, 'a'))\n"
    (job.home / "sitecustomize.py").write_text(site)
    nasty = NASTY.format(job.root)
    job.ask("# a comment", "", f"setenv=NASTY={nasty}", f"unknown={nasty}", f"path={nasty}", nasty, f"path={VENV_BIN}")
    job.start(umask=0o027)
    job.endpoint()
    call(job, "api/kernels", b"{}")
    yield job
    job.end()


def test_the_start_is_quickened_and_the_kernels_path_is_the_user_s(lab: Job) -> None:
    endpoint = read_json(lab.dir / "endpoint.json")
    laid, given = lab.dir / "runtime" / "python", lab.env["PYTHONPATH"]
    assert [file.name for file in laid.glob("*.py")] == ["sitecustomize.py"]
    server = psutil.Process(endpoint["pid"])
    assert server.environ()["PYTHONPATH"] == f"{laid}:{given}"
    # yarn is not asked where packages come from; jupyter_lsp may look for language servers, when JupyterLab listens
    ran = lab.root / "node-ran"
    assert "yarn" not in (ran.read_text() if ran.exists() else "")
    (kernel,) = wait_until(
        lambda: [one for one in server.children(recursive=True) if "ipykernel_launcher" in " ".join(one.cmdline())]
    )
    assert kernel.environ()["PYTHONPATH"] == given
    # in the server and in the kernel the user's own has run
    sites = wait_until(lambda: [line for line in (lab.root / "sites").read_text().split() if line == str(kernel.pid)])
    assert sites and str(server.pid) in (lab.root / "sites").read_text().split()


def test_started_tells_where_the_job_runs(lab: Job) -> None:
    started = read_json(lab.dir / "started.json")
    assert lab.process is not None
    assert started["job"] == "7"
    assert started["node"] == os.uname().nodename
    assert started["node_names"][:2] == [os.uname().nodename, "s1"]
    assert started["pid"] == lab.process.pid
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", started["started"])
    keys = [path.read_text().split()[:2] for path in Path("/etc/ssh").glob("ssh_host_*_key.pub")]
    assert sorted(started["host_keys"]) == sorted(" ".join(key) for key in keys)


def test_the_port_opens_with_the_token_and_only_with_it(lab: Job) -> None:
    endpoint = lab.endpoint()
    url = f"http://127.0.0.1:{endpoint['port']}/api/status"
    for address in (url, url + "?token=", url + "?token=evil"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(address, timeout=30)
        assert refused.value.code == 403
    assert call(lab, "api/status")["kernels"] == 1
    assert (endpoint["base_url"], endpoint["secure"], endpoint["job"]) == ("/", False, "7")
    assert endpoint["address"] == "127.0.0.1"


def fetch(job: Job, path: str, *, compressed: bool = True) -> tuple[bytes, str | None]:
    """Return what is sent, and how it is encoded."""
    request = urllib.request.Request(f"http://127.0.0.1:{job.endpoint()['port']}{path}")
    request.add_header("Authorization", f"token {token_of(job)}")
    request.add_header("Accept-Encoding", "gzip, br" if compressed else "identity")
    with urllib.request.urlopen(request, timeout=20) as answer:
        return answer.read(), answer.headers["Content-Encoding"]


def test_the_page_s_program_is_sent_compressed_and_nothing_with_a_secret_in_it(lab: Job) -> None:
    page, how = fetch(lab, "/lab")
    assert (how, len(page) > 1024) == (None, True)
    (script,) = re.findall(rb'src="(/static/lab/main[^"]*[.]js[^"]*)"', page)
    plain, how = fetch(lab, script.decode(), compressed=False)
    assert how is None
    sent, how = fetch(lab, script.decode())
    assert (how, gzip.decompress(sent) == plain, len(sent) < len(plain) / 2) == ("gzip", True, True)
    # it is compressed when the server has started, and then sent as a whole
    path, accepted = script.decode(), {"Accept-Encoding": "gzip"}
    assert int(wait_until(lambda: headers_of(lab, path, **accepted)[1]["Content-Length"])) < len(plain) / 2
    (lab.work / "table.csv").write_text("1,2,3\n" * 1000)
    for path in (
        "/files/table.csv",
        "/api/contents/table.csv",
        "/lab/api/settings",
        "/lab/tree/static/lab/extensions/",
    ):
        assert fetch(lab, path)[1] is None, path
    with pytest.raises(urllib.error.HTTPError) as missing:
        fetch(lab, "/static/guess")
    assert (missing.value.code, missing.value.headers["Content-Encoding"]) == (404, None)
    assert len(missing.value.read()) > 1024


def headers_of(job: Job, path: str, **more: str) -> tuple[int, Message]:
    """Return the status and the headers of an answer."""
    request = urllib.request.Request(f"http://127.0.0.1:{job.endpoint()['port']}{path}", headers=more)
    request.add_header("Authorization", f"token {token_of(job)}")
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.headers


def test_a_browser_keeps_the_page_s_program_and_nothing_that_another_session_has_under_the_same_name(lab: Job) -> None:
    page, _ = fetch(lab, "/lab")
    (script,) = re.findall(rb'src="(/static/lab/main[^"]*[.]js[^"]*)"', page)
    assert headers_of(lab, script.decode())[1]["Cache-Control"] == "private, max-age=31536000, immutable"
    for path in (
        "/lab/extensions/jupyterlab_pygments/static/style.js",
        "/static/favicons/favicon.ico",
        "/lab/api/themes/@jupyterlab/theme-light-extension/index.css",
    ):
        status, headers = headers_of(lab, path)
        assert (status, headers["Cache-Control"]) == (200, "private, no-cache"), path
        status, same = headers_of(lab, path, **{"If-None-Match": headers["ETag"]})
        assert (status, same["Cache-Control"]) == (304, "private, no-cache"), path
        # an older JupyterLab's file, of which the browser has a newer one's; it has its date from there
        old = {"If-None-Match": '"another"', "If-Modified-Since": "Sat, 01 Jan 2050 00:00:00 GMT"}
        assert headers_of(lab, path, **old)[0] == 200, path
    (lab.work / "main.0123456789abcdef.js").write_text("x")
    for path in ("/lab", "/files/main.0123456789abcdef.js", "/api/contents/main.0123456789abcdef.js"):
        assert "max-age" not in str(headers_of(lab, path)[1]["Cache-Control"]), path


def ask_as(user: int, job: Job, path: str, *, hang_up: bool = False) -> bytes:
    """Return the first line of the answer to another user's request with the token; none if there is no answer."""
    with socket.socket() as connection:
        os.fchown(connection.fileno(), user, user)
        connection.connect(("127.0.0.1", job.endpoint()["port"]))
        request = f"PUT /api/contents/{path} HTTP/1.0\r\nHost: 127.0.0.1\r\nAuthorization: token {token_of(job)}\r\n"
        body = b'{"type": "file", "format": "text", "content": "x"}'
        with contextlib.suppress(ConnectionError):
            connection.sendall(f"{request}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            if hang_up:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return b""
            return connection.makefile("rb").readline()
    return b""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_s_program_gets_no_answer_with_the_right_token(lab: Job) -> None:
    assert b" 201 " in ask_as(0, lab, "ours")
    for number in range(20):
        assert ask_as(65534, lab, "strange") == b""
        ask_as(65534, lab, f"strange-{number}", hang_up=True)
    assert b" 200 " in ask_as(0, lab, "ours")
    assert [path.name for path in lab.work.iterdir() if path.name.startswith(("ours", "strange"))] == ["ours"]
    told = [line for line in lab.log.read_text().splitlines() if "another user" in line]
    assert len(told) == 1 and told[0].endswith("a program of another user (65534) was turned away")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::", "::ffff:127.0.0.1"])
def test_it_tells_whose_a_port_is(lab: Job, address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family, dualstack_ipv6=address.startswith("::")) as listener:
        path = f"api/notebook-launcher/ports/{listener.getsockname()[1]}"
        assert call(lab, path) == {"owner": "yours"}
        os.fchown(listener.fileno(), 65534, 65534)
        assert call(lab, path) == {"owner": "others"}
    assert call(lab, path) == {"owner": "nobody"}
    with pytest.raises(urllib.error.HTTPError) as no_token:
        urllib.request.urlopen(f"http://127.0.0.1:{lab.endpoint()['port']}/{path}", timeout=30)
    assert no_token.value.code == 403


def test_it_listens_on_the_loopback_address_and_a_port_of_its_own(lab: Job) -> None:
    endpoint = lab.endpoint()
    server = psutil.Process(endpoint["pid"])
    listening = {c.laddr for c in server.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
    assert ("127.0.0.1", endpoint["port"]) in listening
    assert {address for address, _ in listening} == {"127.0.0.1"}
    assert 8888 not in {port for _, port in listening}


def test_a_kernel_has_sockets_in_a_folder_that_nobody_else_may_enter(lab: Job) -> None:
    folder = Path((lab.dir / "runtime" / "kernels").read_text().strip())
    assert folder.stat().st_mode & 0o777 == 0o700
    wait_until(lambda: len(list(folder.iterdir())) == 5)
    (record,) = [json.loads(path.read_text()) for path in (lab.dir / "runtime").glob("kernel-*.json")]
    assert (record["transport"], Path(record["ip"]).parent) == ("ipc", folder)
    server = psutil.Process(read_json(lab.dir / "endpoint.json")["pid"])
    (kernel,) = [one for one in server.children(recursive=True) if "ipykernel_launcher" in " ".join(one.cmdline())]
    # one is ipykernel's, for forked processes: it takes what begins with its 16 random bytes, and sends nothing
    assert len([one for one in kernel.net_connections("inet") if one.status == psutil.CONN_LISTEN]) <= 1
    assert "NBL_KERNEL_FOLDER" not in kernel.environ()


def test_a_kernel_that_may_not_take_such_sockets_has_ports(lab: Job) -> None:
    """Such as those of Java, which would never be reached; the log says what that means."""
    spec = lab.home / ".local" / "share" / "jupyter" / "kernels" / "other"
    spec.mkdir(parents=True)
    (spec / "other.py").write_text("from ipykernel import kernelapp\nkernelapp.launch_new_instance()\n")
    command = [str(VENV_BIN / "python"), str(spec / "other.py"), "-f", "{connection_file}"]
    (spec / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "Other", "language": "other"}))
    made = call(lab, "api/kernels", json.dumps({"name": "other"}).encode())
    file = lab.dir / "runtime" / f"kernel-{made['id']}.json"
    record = json.loads(file.read_text())
    assert (record["transport"], record["ip"]) == ("tcp", "127.0.0.1")
    wait_until(lambda: call(lab, f"api/kernels/{made['id']}")["execution_state"] in ("idle", "starting"))
    assert "can read what cells of this kernel run and print" in lab.log.read_text()
    file.unlink()  # the other tests know of one kernel


def test_the_token_is_in_no_argument_no_environment_and_no_log(lab: Job) -> None:
    token = token_of(lab)
    commands = lab.commands()
    assert any("ipykernel_launcher" in command for command in commands), "kernels are looked at, too"
    assert not [command for command in commands if token in command]
    looked_at = 0
    for process in lab.processes():
        with contextlib.suppress(OSError):  # it has just ended
            assert token.encode() not in Path(f"/proc/{process.pid}/environ").read_bytes()
            looked_at += 1
    assert looked_at >= 3, "the script, JupyterLab and a kernel"
    assert token not in lab.log.read_text()


def test_nobody_else_can_read_the_session(lab: Job) -> None:
    assert permissions(lab.dir) == 0o700
    assert permissions(lab.dir / "runtime") == 0o700
    token = token_of(lab).encode()
    holders = {path for path in lab.root.rglob("*") if path.is_file() and token in path.read_bytes()}
    assert {path.name for path in holders} == {"token", f"jpserver-{lab.endpoint()['pid']}.json"}
    assert {permissions(path) for path in holders} == {0o600}
    for name in ("started.json", "endpoint.json", "lib.sh", "jupyterlab.sh", "jupyter_server_config.py"):
        assert permissions(lab.dir / name) == 0o600, name


def test_nothing_is_left_half_written(lab: Job) -> None:
    assert not [path for path in lab.dir.iterdir() if ".new" in path.name]


def test_settings_are_taken_literally(lab: Job) -> None:
    assert not (lab.root / "ran").exists()
    environment = psutil.Process(lab.endpoint()["pid"]).environ()
    assert environment["NASTY"] == NASTY.format(lab.root)
    assert NASTY.format(lab.root) in environment["PATH"]
    assert "unknown key 'unknown'" in lab.log.read_text()


def test_jupyter_gets_a_clean_environment(lab: Job) -> None:
    environment = psutil.Process(lab.endpoint()["pid"]).environ()
    assert environment["TMPDIR"] == str(lab.work)
    assert environment["JUPYTER_RUNTIME_DIR"] == str(lab.dir / "runtime")
    assert environment["NBL_USAGE_CSV"] == str(lab.dir / "usage.csv")
    gone = {"JUPYTER_TOKEN", "JUPYTER_PORT", "JUPYTER_IP", "JUPYTERHUB_API_TOKEN", "JPY_PARENT_PID", "XDG_RUNTIME_DIR"}
    assert not gone & environment.keys()


def test_notebooks_keep_the_users_umask_and_directory(lab: Job) -> None:
    call(lab, "api/contents/made.txt", b'{"type": "file", "format": "text", "content": "x"}', "PUT")
    assert permissions(lab.work / "made.txt") == 0o640
    server = psutil.Process(lab.endpoint()["pid"])
    assert "Umask:\t0027" in Path(f"/proc/{server.pid}/status").read_text()


def test_jupyterlab_asks_nobody_outside(lab: Job) -> None:
    page = urllib.request.Request(f"http://127.0.0.1:{lab.endpoint()['port']}/lab")
    page.add_header("Authorization", f"token {token_of(lab)}")
    with urllib.request.urlopen(page, timeout=20) as answer:
        text = answer.read().decode()
    assert "Extension Manager is 'readonly'" in lab.log.read_text()
    assert '"news": {"disabled": true}' in text
