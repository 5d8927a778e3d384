"""TensorBoard on a Unix socket: ``app_tensorboard.py SOCKET FOLDER``.

TensorBoard itself listens on a port, where every user of the node could read all that it shows: it knows no password.
"""

import os
import sys
import threading
from pathlib import Path

PARENT_EVERY = 2  # seconds between two looks whether JupyterLab is still there
NOT_FOUND = 127  # as a shell has it; session_apps.py starts nothing again after it


def main(path, folder):
    """Serve what is logged below ``folder``, for as long as JupyterLab runs."""
    try:
        from tensorboard import default, program
        from werkzeug.serving import ThreadedWSGIServer
    except ImportError:
        print(f"There is no TensorBoard in the session's environment; {hint()}")
        sys.exit(NOT_FOUND)

    class OnSocket(ThreadedWSGIServer):
        """In place of TensorBoard's own server."""

        def __init__(self, app, flags):
            super().__init__("unix://" + path, 0, app)

        def get_url(self):
            return "unix://" + path

        def print_serving_message(self):
            pass

    board = program.TensorBoard(plugins=default.get_plugins(), server_class=OnSocket)
    # Its fast loader is a server of its own, on a port without any protection.
    board.configure(argv=["tensorboard", "--logdir", folder, "--reload_multifile", "true", "--load_fast", "false"])
    parent = os.getppid()
    board.launch()  # in a thread
    waiting = threading.Event()
    while not waiting.wait(PARENT_EVERY) and os.getppid() == parent:  # a JupyterLab that is killed ends nothing
        pass


def hint():
    """Return what helps: nothing can be installed into an image."""
    lines = Path(__file__).with_name("session.env").read_text(encoding="utf-8", errors="replace").splitlines()
    asked = {key for key, _, value in (line.partition("=") for line in lines) if value}
    if "uv" in asked:
        return "add it to the uv project with: uv add tensorboard"
    if "container" in asked and not asked & {"venv", "conda"}:
        return "choose a container image or an environment that has it"
    return "install it there with: pip install tensorboard"


if __name__ == "__main__":
    sys.path[:1] = []  # the session's directory
    main(*sys.argv[1:])
