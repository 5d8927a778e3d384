"""How JupyterLab is configured in a job: on the node's own 127.0.0.1, on a free port, behind the session's token.

JupyterLab is given this file with ``--config``, in place of the user's ``jupyter_server_config.py``. What the user has
in ``jupyter_config.json`` or ``jupyter_lab_config.py`` still counts, except for what is set here: a password-less or
world-open server of old must not come back to life on a machine shared with others.

The token is read from the session's file, so it stands in no process's arguments and in no kernel's environment.
"""

import os
import sys
from pathlib import Path

import jupyter_server
from traitlets.config import Application

c = get_config()  # noqa: F821 - Jupyter puts it into this file's names


def session_token() -> str:
    """The token of this session. Ends the server where there is none: it must never run open."""
    try:
        token = Path(os.environ["NBL_SESSION_DIR"], "token").read_text().strip()
    except (KeyError, OSError) as problem:
        sys.exit(f"notebook-launcher: the session's token cannot be read: {problem!r}")
    return token or sys.exit("notebook-launcher: the session's token is empty")


def outdo_old_sections(server: dict[str, object]) -> None:
    """Repeat ``server`` in the sections that JupyterLab still moves to ServerApp.

    A ``NotebookApp`` or ``LabApp`` section of the user's ``jupyter_config.json`` would otherwise win over ours. It is
    repeated only where the user set the same name, because JupyterLab warns about each.
    """
    for section in ("NotebookApp", "LabApp"):
        for name in server.keys() & app.config.get(section, {}).keys():
            c[section][name] = server[name]


app = Application.instance()  # the server, which reads this file
token = session_token()

server: dict[str, object] = {
    "ip": "127.0.0.1",
    "port": 0,
    "sock": "",
    "certfile": "",
    "keyfile": "",
    "client_ca": "",
    "base_url": "/",
    "allow_origin": "",
    "allow_origin_pat": "",
    "allow_remote_access": False,
    "allow_root": os.geteuid() == 0,
    "disable_check_xsrf": False,
    "open_browser": False,
    "quit_button": True,
    "root_dir": os.getcwd(),
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
outdo_old_sections(server)

# Not a setting, though it has the looks of one: the file would hold the token and be readable for others.
app.no_browser_open_file = True

# A compute node often has no way to the internet, and a course no use for the question about news.
c.LabApp.open_browser = False
c.LabApp.news_url = None
c.LabApp.check_for_updates_class = "jupyterlab.NeverCheckForUpdate"
c.LabApp.extension_manager = "readonly"
