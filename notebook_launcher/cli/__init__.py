"""The command line: arguments (``commands``), prompts, and what is shown (``views``).

Nothing is decided here: a command calls the package, which is imported only then, so that ``--help`` is quick.
May import: everything.
"""

from __future__ import annotations

# Only what Python has loaded already: nobody can answer a Ctrl-C before main does.
import os
import sys

TYPE_CHECKING = False  # not from typing, which takes longer to load than all of this
if TYPE_CHECKING:
    from collections.abc import Sequence

_INTERRUPTED = 130  # as of the error Interrupted
_NEW_OBJECTS = 20_000  # after which Python looks for garbage among them, by itself after 700 or 2000


def main(argv: Sequence[str] | None = None) -> None:
    """Run ``launch-notebook`` and exit with its documented exit code."""
    import _signal  # type: ignore[import-not-found]  # what signal stands on: a part of Python itself

    # Until there is something to clean up, Ctrl-C simply ends the program, also in the middle of an import.
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    import atexit
    import gc
    import signal

    # Modules leave no garbage, and Python would look for it again and again while it imports them.
    gc.set_threshold(_NEW_OBJECTS)

    code: list[int] = []
    atexit.register(_leave, code)  # the first that is registered is the last that is called
    from notebook_launcher.cli.app import run
    from notebook_launcher.cli.views import errors  # noqa: F401 - with this it can answer Ctrl-C

    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code.append(run(sys.argv[1:] if argv is None else argv))
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is left to clean up
    except KeyboardInterrupt:  # once more, while the answer to the first was shown
        code.append(_INTERRUPTED)
    sys.exit(code[0])


def _leave(code: list[int]) -> None:
    """End for good, once all is said and tidied.

    Python would now throw its last threads out of whatever they do, and a compiled library may answer that by aborting
    the program: an exit code of its own, and a core file (seen: “FATAL: exception not rethrown”).
    """
    import contextlib

    if code:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code[0])
