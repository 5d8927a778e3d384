"""Configures JupyterLab in a job: on one address of the node, on a free port, protected by the session's token.

The address is 127.0.0.1 unless the job script names another in NBL_LISTEN.

JupyterLab gets this file with ``--config``, in place of the user's ``jupyter_server_config.py``. Settings in the user's
``jupyter_config.json`` or ``jupyter_lab_config.py`` still apply, except for those set here: an old configuration
without a password, or open to the world, must not take effect on a shared machine.

The token is read from the session's file, so that it is in no process's arguments and in no kernel's environment.
"""

import asyncio
import atexit
import contextlib
import ipaddress
import json
import os
import re
import secrets
import shutil
import socket
import sys
import threading
import time
import types
from pathlib import Path

import jupyter_server
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from jupyterlab.labapp import LabApp
from tornado import web
from traitlets.config import Application

c = get_config()  # noqa: F821 - Jupyter puts it into this file's names


def end_quick_start() -> "types.ModuleType | None":
    """Undo the changes of ``quick_start.py``, which are only for this server's start; return that module if it ran.

    It has removed its folder from the path, unless Python ran without ``sitecustomize``.
    """
    os.environ.pop("NBL_IMPORTS", None)
    quick_start = sys.modules.pop("notebook_launcher_quick_start", None)
    if quick_start is not None:
        quick_start.end()
    ours = os.path.normpath(os.environ["NBL_SESSION_DIR"] + "/runtime/python")
    kept = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.path.normpath(folder) != ours]
    if any(kept):
        os.environ["PYTHONPATH"] = os.pathsep.join(kept)
    else:
        os.environ.pop("PYTHONPATH", None)
    sys.path[:] = [folder for folder in sys.path if folder != ours]
    return quick_start


def session_token() -> str:
    """Return the token of this session. Ends the server if there is none: it must never run without protection."""
    try:
        token = Path(os.environ["NBL_SESSION_DIR"], "token").read_text().strip()
    except (KeyError, OSError) as problem:
        sys.exit(f"notebook-launcher: the session's token cannot be read: {problem!r}")
    return token or sys.exit("notebook-launcher: the session's token is empty")


def listening_address() -> str:
    """Return the address to listen on. Ends the server if it is invalid, or stands for all addresses."""
    address = os.environ.get("NBL_LISTEN", "127.0.0.1")
    try:
        if ipaddress.ip_address(address).is_unspecified:
            raise ValueError("it stands for every address")
    except ValueError as problem:
        sys.exit(f"notebook-launcher: JupyterLab cannot listen on NBL_LISTEN={address!r}: {problem}")
    return address


def free_port(address: str) -> int:
    """Return a port that is free now.

    Not 0, with which older servers listen on some port and report it as 0. If somebody else takes the port meanwhile,
    the server chooses another, and writes that to its runtime file.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def outdo_old_sections(server: dict) -> None:
    """Repeat ``server`` in the old sections that JupyterLab still moves to ServerApp.

    Otherwise a ``NotebookApp`` or ``LabApp`` section of the user's ``jupyter_config.json`` would override ours. A
    setting is repeated only if the user has set the same name, because JupyterLab warns about each.
    """
    for section in ("NotebookApp", "LabApp"):
        for name in server.keys() & app.config.get(section, {}).keys():
            c[section][name] = server[name]


def leave_out_announcements(_handler: object, page: dict) -> dict:
    """Remove the extension of JupyterLab's page that asks whether it may fetch news, which `news_url` does not stop."""
    disabled = [*page.get("disabledExtensions", []), "@jupyterlab/apputils-extension:announcements"]
    return {**page, "disabledExtensions": disabled}


def close_replaced_connections_at_once() -> None:
    """End a page's old connection to its kernel as soon as the page has a new one.

    jupyter_server 2 waits up to 5 s for the closing handshake of the old one, which never comes after a silent network
    failure. If both connections end within that time, because the network fails again, and the old one ends last, the
    server keeps the old one's channels for the page, which no longer reach the kernel: no cell of that page would ever
    be answered. Version 1 waits for the end of the old one first.
    """
    try:
        from jupyter_server.services.kernels.websocket import KernelWebsocketHandler
    except ImportError:
        return

    say_goodbye = KernelWebsocketHandler.close

    def close(handler: KernelWebsocketHandler, *reason: object) -> None:
        stream = getattr(handler.ws_connection, "stream", None)
        say_goodbye(handler, *reason)
        if stream is not None:
            stream.close()
        handler.on_connection_close()

    KernelWebsocketHandler.close = close


MOST_UPLOADS = 100  # uploads whose state is remembered


class Upload:
    """The parts that have been appended to one uploaded file, and a lock for appending the next."""

    def __init__(self) -> None:
        self.parts, self.is_whole, self.turn = [], False, asyncio.Lock()

    def has(self, number: int, content: object) -> bool:
        """Whether this part has been appended already. Raises if it cannot be the next one."""
        if number == 1 or not self.parts:
            return False
        place = number if number != -1 else len(self.parts) + (not self.is_whole)
        if place <= len(self.parts) and self.parts[place - 1] == content:
            return True
        if self.is_whole or place != len(self.parts) + 1:
            raise web.HTTPError(409, f"Part {number} does not follow what this file has: please upload it again.")
        return False

    def add(self, number: int, content: object) -> None:
        """Record an appended part; the first one starts a new upload. Ignores uploads whose first part was not seen."""
        if number == 1:
            self.parts = [content]
        elif self.parts:
            self.parts.append(content)
        self.is_whole = number == -1


def append_each_part_once() -> None:
    """Never append a part of a large file twice: if a connection ends before the answer, a browser sends a part again.

    JupyterLab numbers the parts, the last being -1; jupyter_server appends all but the first.
    """
    try:
        from jupyter_server.services.contents import largefilemanager
    except ImportError:
        return
    uploads = {}  # by path, the most recently used last

    def upload_to(path: str) -> Upload:
        uploads[path] = upload = uploads.pop(path, None) or Upload()
        if len(uploads) > MOST_UPLOADS:
            del uploads[next((each for each in uploads if not uploads[each].turn.locked()), path)]
        return upload

    def part_of(model: dict) -> tuple:
        return model["chunk"], hash(str(model.get("content")))

    def once(save):
        def save_once(manager, model, path=""):
            if model.get("chunk") is None:
                uploads.pop(path.strip("/"), None)
                return save(manager, model, path)
            upload = upload_to(path.strip("/"))
            if upload.has(*part_of(model)):
                return manager.get(path, content=False)
            saved = save(manager, model, path)
            upload.add(*part_of(model))
            return saved

        return save_once

    def once_async(save):
        async def save_once(manager, model, path=""):
            if model.get("chunk") is None:
                uploads.pop(path.strip("/"), None)
                return await save(manager, model, path)
            upload = upload_to(path.strip("/"))
            async with upload.turn:
                if upload.has(*part_of(model)):
                    return await manager.get(path, content=False)
                saved = await save(manager, model, path)
                upload.add(*part_of(model))
                return saved

        return save_once

    for name, changed in (("LargeFileManager", once), ("AsyncLargeFileManager", once_async)):
        manager = getattr(largefilemanager, name, None)
        if manager is not None:
            manager.save = changed(manager.save)


class PortHandler(APIHandler):
    """Tells whose program listens on a port of this node that the launcher's tunnel would connect to."""

    @web.authenticated
    def get(self, port: str) -> None:
        """Answer with ``yours``, ``others``, or ``nobody``."""
        every_address = ("0.0.0.0", "::")  # noqa: S104
        reached = {name for ip in (address, *every_address) for name in own.names_of(ip, int(port))}
        owners = {owner for here, _, state, owner, _ in own.tcp_sockets() if state == own.LISTENING and here in reached}
        # programs of root are as trustworthy as the node itself
        owner = "nobody" if not owners else "yours" if owners <= {0, os.geteuid()} else "others"
        self.finish(json.dumps({"owner": owner}))


def tell_whose_ports() -> None:
    """Let the launcher ask whose a port is before it forwards it to a browser: it may be another user's."""
    set_up = app.init_shutdown_no_activity  # the last step in JupyterLab 3 and 4 for which everything is there

    def set_up_and_tell() -> None:
        set_up()
        path = url_path_join(app.web_app.settings["base_url"], "api/notebook-launcher/ports/([0-9]{1,5})")
        app.web_app.add_handlers(".*$", [(path, PortHandler)])

    if Path("/proc/net/tcp").exists():
        app.init_shutdown_no_activity = set_up_and_tell


def hide_kernels() -> None:
    """Let kernels listen on Unix sockets in a folder closed to other users, not on ports of 127.0.0.1.

    On such a port, every user of the node can read what each cell runs and prints: a kernel does not authenticate
    readers, only the messages sent to it are signed. Kernels not known to support Unix sockets keep their ports.
    """
    folder = os.environ.pop("NBL_KERNEL_FOLDER", "")
    if not folder:
        return
    try:
        Path(folder).mkdir(mode=0o700)
    except OSError as problem:
        app.log.warning(
            "notebook-launcher: the kernels' sockets have no private folder, so other users of this node can read what"
            " cells run and print: %s",
            problem,
        )
        return
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    from jupyter_client.connect import ConnectionFileMixin

    c.KernelManager.transport = "ipc"
    write = ConnectionFileMixin.write_connection_file

    def write_connection_file(manager: ConnectionFileMixin, *args: object, **options: object) -> None:
        command = " ".join(getattr(getattr(manager, "kernel_spec", None), "argv", ()))
        if manager.transport == "ipc" and not re.search("ipykernel|IRkernel", command):
            manager.transport, manager.ip = "tcp", "127.0.0.1"
            app.log.warning(
                "notebook-launcher: other users of this node can read what cells of this kernel run and print"
            )
        elif manager.transport == "ipc" and not manager.ip.startswith(folder):
            # the default is beside the connection file, whose path is too long for a socket
            manager.ip = f"{folder}/{secrets.token_hex(4)}"
        write(manager, *args, **options)

    ConnectionFileMixin.write_connection_file = write_connection_file


def load_beside(folder: str, name: str) -> types.ModuleType:
    """Load a module from the session's directory, so that modules loaded later can import it.

    Without changing the import path, which kernels would inherit, and without bytecode in the session's directory.
    """
    path = Path(folder, f"{name}.py")
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), module.__dict__)  # noqa: S102
    return module


def send_files_compressed() -> None:
    """Send JupyterLab's own files compressed, and let browsers cache them. A failure does not prevent the start."""
    folder = os.environ["NBL_SESSION_DIR"]
    try:
        static_files = load_beside(folder, "static_files")
        c.ServerApp.tornado_settings["transforms"] = [static_files.StaticFilesSentOnce]
        static_files.compare_files_by_content()
        if quick_start is not None:
            when_it_answers.append(lambda: static_files.compress_ahead(app))
    except Exception as problem:
        app.log.warning("notebook-launcher: JupyterLab's page is sent uncompressed: %r", problem)


def guard_against_idleness() -> None:
    """End this server when nobody uses it, if that is requested. A failure does not prevent the start."""
    idle_stop = int(os.environ.get("NBL_IDLE_STOP") or 0)
    if not idle_stop:
        return
    folder = os.environ["NBL_SESSION_DIR"]
    try:
        load_beside(folder, "idle_rules")
        guard = load_beside(folder, "idle_guard")
        guard.watch(app, folder, idle_stop, os.environ.get("NBL_GPU_IDLE"), int(os.environ.get("NBL_USAGE") or 0))
    except Exception as problem:
        app.log.warning("notebook-launcher: this session does not end when nobody uses it: %r", problem)


def bring_panel() -> None:
    """Show the session's panel in JupyterLab's page, if that is requested. A failure does not prevent the start."""
    folder = os.environ["NBL_SESSION_DIR"]
    if os.environ.pop("NBL_PANEL", "") != "yes" or not Path(folder, "panel.py").exists():
        return
    try:
        for name in ("panel_facts", "panel_saving"):
            load_beside(folder, name)
        load_beside(folder, "panel").bring(app, c, folder)
    except Exception as problem:
        app.log.warning("notebook-launcher: JupyterLab's page has no panel: %r", problem)


def start_apps() -> None:
    """Start the programs requested beside JupyterLab (``apps.json``). A failure does not prevent the start."""
    folder = os.environ["NBL_SESSION_DIR"]
    if not Path(folder, "apps.json").exists():
        return
    try:
        load_beside(folder, "app_requests")
        load_beside(folder, "session_apps").bring(app, own, folder)
    except Exception as problem:
        app.log.warning("notebook-launcher: no programs are started beside JupyterLab: %r", problem)


LOOKS, EVERY = 600, 0.2  # how often, and every how many seconds, to check whether the server answers
NICER = 10  # increment of the niceness of work that is done later


def do_later(steps: list, answers: Path) -> None:
    """Do these steps one after the other, once the job has written the file ``answers`` because the server answers.

    Until then, the start and the launcher's tunnel need the processor; afterwards the steps run at low priority.
    """

    def do() -> None:
        for _ in range(LOOKS):
            if answers.exists():
                break
            time.sleep(EVERY)
        with contextlib.suppress(OSError):
            if sys.platform == "linux":  # where each thread has its own priority
                os.setpriority(os.PRIO_PROCESS, 0, min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICER))
        for step in steps:
            with contextlib.suppress(Exception):
                step()

    set_up = app.init_shutdown_no_activity  # the last step in JupyterLab 3 and 4 for which everything is there

    def set_up_and_do() -> None:
        set_up()
        with contextlib.suppress(RuntimeError):  # no more threads are allowed: skip these steps
            threading.Thread(target=do, name="after-start", daemon=True).start()

    if steps:
        app.init_shutdown_no_activity = set_up_and_do


app = Application.instance()  # the server, which reads this file
own = load_beside(os.environ["NBL_SESSION_DIR"], "own_connections")
token = session_token()
quick_start = end_quick_start()
address = listening_address()

server: dict = {
    "ip": address,
    "port": free_port(address),
    "port_retries": 50,
    "sock": "",
    "certfile": "",
    "keyfile": "",
    "client_ca": "",
    "base_url": "/",
    "allow_origin": "",
    "allow_origin_pat": "",
    # Even if the address is not the loopback's: requests come through the tunnel, with the host 127.0.0.1. By default
    # Jupyter would then accept any host name, and with it a website whose name resolves to this node (DNS rebinding).
    "allow_remote_access": False,
    "local_hostnames": ["localhost"],
    "allow_root": os.geteuid() == 0,
    "disable_check_xsrf": False,
    "open_browser": False,
    "quit_button": True,
    "root_dir": str(Path.cwd()),
}

if jupyter_server.version_info[0] < 2:
    server.update(token=token, password="", password_required=False, allow_password_change=False)
else:
    server.update(identity_provider_class="jupyter_server.auth.identity.PasswordIdentityProvider")
    for provider in ("IdentityProvider", "PasswordIdentityProvider"):
        c[provider].token = token
    c.PasswordIdentityProvider.hashed_password = ""
    c.PasswordIdentityProvider.password_required = False
    c.PasswordIdentityProvider.allow_password_change = False

c.ServerApp.update(server)
c.ServerApp.tornado_settings = {"page_config_hook": leave_out_announcements}
outdo_old_sections(server)

# No setting prevents Jupyter from writing a page that contains the token and that others may read: older versions do
# not know the attribute, and newer ones do not accept it from a configuration.
app.no_browser_open_file = True
app.write_browser_open_files = lambda: None

# A compute node often has no internet access, and a course does not need the question about news. JupyterLab 3 knows
# only some of these settings, and refuses to start with the others.
lab: dict = {
    "open_browser": False,
    "news_url": None,
    "check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
    "extension_manager": "readonly",
}
c.LabApp.update({name: value for name, value in lab.items() if name in LabApp.class_trait_names()})

when_it_answers = [] if quick_start is None else [quick_start.import_what_was_put_off]
send_files_compressed()
if getattr(quick_start, "imports", None) is not None:
    when_it_answers.append(quick_start.imports.end)
close_replaced_connections_at_once()
append_each_part_once()
own.turn_strangers_away(app.log.warning)
tell_whose_ports()
hide_kernels()
bring_panel()
start_apps()
guard_against_idleness()
do_later(when_it_answers, Path(os.environ["NBL_SESSION_DIR"], "endpoint.json"))
