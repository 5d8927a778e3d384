"""All timeouts, pauses and rates, in one object; tests use a faster one."""

from __future__ import annotations

from dataclasses import replace

from notebook_launcher.core.frozen import Frozen


class Timing(Frozen):
    """Times in seconds, and rates. The defaults apply to every launch."""

    # following a session
    tick: float = 1.0  # one turn of the loop if nothing arrives
    script_starts_within: float = 180.0  # from the job's start to its script's first line; prologs and mounts are slow
    #: watch.sh prints a line every 2 s; after this long without one, the user is told and a new connection is opened
    silent_after: float = 5.0
    #: after this long the old connection is closed. Until then, a network that was down for 5 s recovers by itself,
    #: with all data in flight: TCP retransmits after 0.2, 0.4, ... 3.2 s, 8.2 s after the first loss at the latest
    lost_after: float = 11.0

    # logging in
    address_refused_for: float = 600.0  # after failed logins: sshd's longest PerSourcePenalties, unless configured
    address_refused_pause: float = 15.0  # between two attempts: the shortest of PerSourcePenalties

    address_maybe_busy_for: float = 20.0  # with short pauses: sshd also refuses an address if many log in at once
    login_busy_for: float = 120.0  # if the login node closes connections because many are made at the same time
    login_busy_pause: float = 1.0  # between two attempts, at random up to this; doubled each time
    longest_login_busy_pause: float = 8.0

    # reconnecting
    stable_after: float = 15.0  # a connection that lasted this long is reconnected without a pause
    remake_pause: float = 0.5  # before reconnecting one that did not; doubled each time
    reconnect_pause: float = 0.2  # between two attempts; doubled each time, short to use a restored network soon
    longest_reconnect_pause: float = 8.0
    connect_within: float = 8.0  # one attempt: short, so that a packet lost while the network comes back costs little
    replace_check: float = 0.1  # between two checks whether the old connection has recovered
    reconnect_pending_for: float = 24 * 3600.0  # while the job is pending, and its end is unknown

    # querying the scheduler: see ``jobs.polling``
    rpcs_per_hour: int = 60  # for one session, at most
    rpcs_at_once: int = 16  # the most in a row; the allowance refills one by one
    poll_pause: float = 2.0  # between two queries; doubled each time, up to the longest
    longest_poll_pause: float = 60.0
    longest_saving_pause: float = 150.0  # the longest pause while few RPCs are left
    longest_unanswered_pause: float = 20.0  # the longest pause while the scheduler does not answer
    near_start: float = 60.0  # around the estimated start, query more often
    near_start_pause: float = 5.0
    evidence_every: float = 1200.0  # after this time, evidence for the same reason is read again
    evidence_shared_for: float = 300.0  # how long several sessions share it
    #: a job that has waited this long is worth a query of all pending jobs, to count those ahead of it: most jobs have
    #: started by then
    settled_after: float = 10.0

    # submitting
    submit_slow_after: float = 5.0  # after this time, a note says that the scheduler is slow
    submitted_appears_within: float = 20.0  # for a job to appear in the queue whose submission was not answered
    lookup_pause: float = 1.0  # between two lookups; doubled each time
    longest_lookup_pause: float = 5.0

    # cancelling
    cancel_within: float = 120.0  # for a cancelled job to end: its grace time and an epilog
    cancel_at_most: float = 300.0  # the same, including the time that queries take
    cancel_check_pause: float = 0.1  # between two checks whether it has ended; longer each time
    longest_cancel_check_pause: float = 3.0
    cancel_again_after: float = 10.0  # a cancel without effect is repeated after this time
    unresponsive_note_after: float = 3.0  # a scheduler may be unresponsive for this long before a note says so
    answer_within: float = 20.0  # for the answer to a cancel; then the connection counts as broken

    # reading what a job prints
    reread_pause: float = 5.0  # before a broken stream is started again: some login nodes kill long-running commands

    # how a job ended
    final_status_within: float = 15.0  # from the job's exit to the scheduler's report of its final state
    final_status_pause: float = 0.2  # between two queries; doubled each time
    longest_final_status_pause: float = 2.0
    history_within: float = 3.0  # how far the scheduler's history may lag behind
    history_pause: float = 0.3
    accounting_pause: float = 0.5  # between two queries to the accounting; doubled each time
    longest_accounting_pause: float = 1.5

    def with_login_shell(self, seconds: float) -> Timing:
        """Return the times for a host whose login shell takes ``seconds``: every scheduler command starts one."""
        return replace(
            self,
            answer_within=self.answer_within + min(2 * seconds, LONGEST_SHELL),
            cancel_within=self.cancel_within + min(4 * seconds, 2 * LONGEST_SHELL),
        )


LONGEST_SHELL = 30.0  # seconds allowed for a login shell; with more, a broken connection would be noticed too late


DEFAULT_TIMING = Timing()
