"""TensorBoard on a Unix socket: ``app_tensorboard.py SOCKET FOLDER``.

By itself, TensorBoard listens on a port and has no password, so that every user of the node could read its pages.
"""

import os
import sys
import threading
from pathlib import Path

PARENT_EVERY = 2  # seconds between two checks whether JupyterLab is still running
NOT_FOUND = 127  # a shell's exit code for it; session_apps.py then does not start the program again


def main(path, folder):
    """Serve the logs below ``folder`` for as long as JupyterLab runs."""
    try:
        from tensorboard import default, program
        from werkzeug.serving import ThreadedWSGIServer
    except ImportError:
        print(f"There is no TensorBoard in the session's environment; {hint()}")
        sys.exit(NOT_FOUND)

    class OnSocket(ThreadedWSGIServer):
        """Replaces TensorBoard's own server."""

        def __init__(self, app, flags):
            super().__init__("unix://" + path, 0, app)

        def get_url(self):
            return "unix://" + path

        def print_serving_message(self):
            pass

    board = program.TensorBoard(plugins=default.get_plugins(), server_class=OnSocket)
    # Its fast loader would be another server, on an unprotected port.
    board.configure(argv=["tensorboard", "--logdir", folder, "--reload_multifile", "true", "--load_fast", "false"])
    parent = os.getppid()
    board.launch()  # in a thread
    waiting = threading.Event()
    while not waiting.wait(PARENT_EVERY) and os.getppid() == parent:  # a JupyterLab that is killed does not end us
        pass


def hint():
    """Return a hint on what to do; in an image, nothing can be installed."""
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
