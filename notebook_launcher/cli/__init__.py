"""The command line: parses arguments (``commands``), asks questions, and shows events (``views``).

It contains no logic of its own: a command calls the package, and imports it only then, so that ``--help`` is quick.
May import: everything.
"""

from __future__ import annotations

# Only modules that Python has already loaded: until main runs, Ctrl-C would show a traceback.
import os
import sys

TYPE_CHECKING = False  # not from typing, which takes longer to load than all of this
if TYPE_CHECKING:
    from collections.abc import Sequence

_INTERRUPTED = 130  # the exit code of the error Interrupted
_NEW_OBJECTS = 20_000  # new objects after which Python collects garbage; its default is 700 or 2000


def main(argv: Sequence[str] | None = None) -> None:
    """Run ``launch-notebook`` and exit with its documented exit code."""
    import _signal  # type: ignore[import-not-found]  # the built-in module below signal

    # Until there is something to clean up, Ctrl-C simply ends the program, even in the middle of an import.
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    import atexit
    import gc
    import signal

    # Importing modules creates no garbage, but Python would look for it again and again meanwhile.
    gc.set_threshold(_NEW_OBJECTS)

    code: list[int] = []
    atexit.register(_leave, code)  # the first function registered is the last one called
    from notebook_launcher.cli.app import run
    from notebook_launcher.cli.views import errors  # noqa: F401 - with this it can answer Ctrl-C

    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code.append(run(sys.argv[1:] if argv is None else argv))
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is left to clean up
    except KeyboardInterrupt:  # a second Ctrl-C, while the first was being reported
        code.append(_INTERRUPTED)
    sys.exit(code[0])


def _leave(code: list[int]) -> None:
    """Exit at once, after all output and cleaning up.

    Python would now terminate its remaining threads, which can make a compiled library abort the program, with another
    exit code and a core file (seen: “FATAL: exception not rethrown”).
    """
    import contextlib

    if code:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code[0])
