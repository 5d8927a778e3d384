"""Commands that hosts need for themselves: a relay to an address, and a wrapper that ends a command with its input."""

from __future__ import annotations

from collections.abc import Sequence

from notebook_launcher.core.bash_options import PLAIN_BASH


def relay_command(address: tuple[str, int]) -> list[str]:
    """Return the command that connects its standard input and output to an address.

    For login nodes whose SSH server forbids TCP forwarding. Ends when its input does.
    """
    return ["bash", "-c", _RELAY, "relay", address[0], str(address[1])]


_RELAY = 'exec 3<>"/dev/tcp/$1/$2" || exit 1; cat <&3 & cat >&3; kill $! 2>/dev/null'


def bound_to_stdin(argv: Sequence[str]) -> list[str]:
    """Return a command that runs another one without input, and ends it when its own input ends.

    Its child processes are ended, too. No SSH server ends a command without a terminal when the connection breaks, but
    it closes the command's input.
    """
    return ["bash", "-c", PLAIN_BASH + _LIFELINE, "lifeline", *argv]


# set -m: the command gets a process group of its own. A guard that has begun to end it is waited for. It waits three
# seconds before SIGKILL: srun ends its step on the first signal, but killed it would leave the step running. bash's
# message about a killed child is dropped. With TMOUT, which many sites set, `read` gives up after some minutes (142)
# although the input is still open.
_LIFELINE = (
    'exec 3<&0; set -m; "$@" </dev/null 3<&- & child=$!; set +m; '
    '{ until read -r _ <&3 || (($? <= 128)); do :; done; trap "" TERM; kill -- "-$child"; '
    'for _ in {1..30}; do kill -0 -- "-$child" || exit; sleep 0.1; done; kill -KILL -- "-$child"; } 2>/dev/null & '
    "guard=$!; exec 3<&-; "
    '{ wait "$child"; code=$?; kill "$guard"; wait "$guard"; kill -- "-$child"; } 2>/dev/null; exit "$code"'
)
