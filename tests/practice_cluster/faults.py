"""Temporary network faults and properties of difficult sites: each is undone, also after an exception."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from . import network, sshd, state, totp
from .errors import ClusterError
from .fault_tools import overwrite
from .grid_engine import GridEngine
from .layout import BOXES, COMPUTE_NODES, LOGIN_NODES, MOVED_LOGIN, USERS
from .other_users_jobs import Crowds
from .site_faults import SiteFaults
from .slow_storage import SlowStorage
from .slurm_faults import SlurmFaults
from .slurm_service_faults import SlurmServiceFaults

# Server and sessions are one program up to OpenSSH 9.7, and three from 9.8 on.
_SSHD_NAMES = "sshd(-session|-auth)?"
# The port is free only when the last of them is gone, not when it gets the signal.
_STOP_SSHD = f"while pkill -KILL -x '{_SSHD_NAMES}'; do sleep 0.02; done"
_START_SSHD = "pgrep -x sshd >/dev/null || /usr/sbin/sshd"
_HIDE_SSHD = "mv /usr/sbin/sshd /usr/sbin/.sshd-elsewhere"
_SHOW_SSHD = "mv /usr/sbin/.sshd-elsewhere /usr/sbin/sshd"


class Faults(SlurmFaults, SlurmServiceFaults, SiteFaults, SlowStorage, GridEngine, Crowds):
    """The methods of PracticeCluster that change a running cluster."""

    # ---- the network -----------------------------------------------------------------------------------------

    @contextmanager
    def unplugged(self, box: str = "laptop", *, carrier: bool = True) -> Iterator[None]:
        """Cut a box's link to the outside, or to the cluster if it has no other.

        With `carrier`, packets are dropped and the box does not notice, as when a phone loses its network. Without, the
        box sees that the link is down, as when a cable is pulled.
        """
        self.unplug(box, carrier=carrier)
        try:
            yield
        finally:
            self.plug(box)

    def unplug(self, box: str = "laptop", *, carrier: bool = True) -> None:
        """Cut a box's link until `plug`; see `unplugged`."""
        self._pid(box)
        network.unplug(self._switch(), box, carrier=carrier)

    def plug(self, box: str = "laptop") -> None:
        """Plug a box in again."""
        network.plug(self._switch(), box)

    @contextmanager
    def login_moves_to(self, where: str) -> Iterator[None]:
        """Let the laptop's names for the login node resolve to another address.

        `login2` is another machine. `new-address` is the same one, which then has another address instead of its own:
        existing connections go silent. This also affects programs of the host that `laptop_argv` starts afterwards.
        """
        if where not in ("login2", "new-address"):
            raise ClusterError(f"The login node moves to login2 or to new-address, and not to {where}.")
        address = BOXES["login2"].outside if where == "login2" else MOVED_LOGIN
        try:
            if where == "new-address":
                network.give_address(self._pid("login"), "login", MOVED_LOGIN)
            self._name_login(address)
            yield
        finally:
            self._name_login(None)
            if where == "new-address":
                network.give_address(self._pid("login"), "login", str(BOXES["login"].outside))
                # The laptop's ARP entry for the old address would delay it for seconds.
                network.forget_neighbours(self._pid("laptop"), "laptop")

    def _name_login(self, address: str | None) -> None:
        text = network.hosts_of_laptop(address)
        for path in (self.root_folder("laptop") / "etc/hosts", self.directory / "hosts.laptop"):
            overwrite(path, text)

    @contextmanager
    def delayed(self, milliseconds: float) -> Iterator[None]:
        """Let every round trip between the laptop and the other boxes take so much longer.

        To combine this with `unplugged`, enter that inside of this.
        """
        with network.delayed(self._switch(), "laptop", milliseconds, self.directory):
            yield

    def _switch(self) -> int:
        """Return the process in whose network namespace the bridges are."""
        self._pid("laptop")
        return state.load(self.generation).pid("switch")

    # ---- sshd ------------------------------------------------------------------------------------------------

    def stop_sshd(self, box: str) -> None:
        """End a box's sshd with all its sessions. Other processes stay, jobs for example."""
        self._shell(box, _STOP_SSHD)

    def start_sshd(self, box: str) -> None:
        """Start a box's sshd, unless it is running."""
        self._shell(box, _START_SSHD)

    def restart_sshd(self, box: str) -> None:
        """End a box's sshd with all its sessions, and start it again."""
        self.stop_sshd(box)
        self.start_sshd(box)

    def kill_connections(self, box: str, user: str) -> None:
        """End a user's ssh sessions on a box; those of others, and the server, stay."""
        self._shell(box, f"pkill -KILL -f '^sshd(-session)?: {user}[ @]' || true")

    @contextmanager
    def no_sshd(self, *nodes: str) -> Iterator[None]:
        """Let these compute nodes (default: all) have no sshd, neither a running one nor the program."""
        with self._changed(nodes or COMPUTE_NODES, f"{_HIDE_SSHD}; {_STOP_SSHD}", f"{_SHOW_SSHD}; {_START_SSHD}"):
            yield

    @contextmanager
    def penalties(self, box: str) -> Iterator[None]:
        """Let a box's sshd refuse addresses for a while after failed logins, as OpenSSH does since 9.8.

        At the end the refused addresses are forgotten. Raises ClusterError if the sshd is too old for that.
        """
        with self._changed([box], sshd.PENALTIES, sshd.NO_PENALTIES):
            yield

    @contextmanager
    def pam_slurm(self, *nodes: str) -> Iterator[None]:
        """Let these compute nodes (default: all) accept ssh logins only from users who have a job there."""
        without = [
            node for node in nodes or COMPUTE_NODES if "no" in self._shell(node, f"{sshd.HAS_PAM_SLURM} || echo no")
        ]
        with self._changed(without, sshd.ADD_PAM_SLURM, sshd.REMOVE_PAM_SLURM):
            yield

    # ---- one-time codes --------------------------------------------------------------------------------------

    def forget_codes(self, user: str) -> None:
        """Let every code of a user that a box has already seen be valid again, so that a test need not wait."""
        person = USERS[user]
        for name in (*LOGIN_NODES, *COMPUTE_NODES):
            if person.totp_secret and BOXES[name].role in person.totp_on:
                where = self.root_folder(name) / totp.DIRECTORY / user
                overwrite(where, totp.secret_file(person.totp_secret))
