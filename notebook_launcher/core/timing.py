"""How long things may take and how often they are tried, in one object; tests pass one that is quicker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """Times in seconds, and rates. The defaults are those of every launch."""

    # following a session
    tick: float = 1.0  # one turn of the loop in which nothing arrives
    script_starts_within: float = 180.0  # from the job's start to its script's first line: a prolog, a slow mount
    #: watch.sh gives a sign of life every 2 s; after so long without one the user is told, and a new connection begun
    silent_after: float = 5.0
    #: after so long the old connection is given up. A network that was away for 5 s comes back by itself until then,
    #: with all that was on its way: TCP sends again after 0.2, 0.4, ... 3.2 s, 8.2 s after the first loss at the latest
    lost_after: float = 11.0

    # reconnecting
    stable_after: float = 15.0  # a connection that lasts so long counts as a good one, and is remade without a pause
    remake_pause: float = 0.5  # before one that does not is made anew; doubled each time
    reconnect_pause: float = 0.2  # between two attempts; doubled each time: a network that is back is used soon
    longest_reconnect_pause: float = 8.0
    connect_within: float = 8.0  # one attempt: a packet lost while the network comes back must not cost more
    replace_check: float = 0.1  # between two looks at whether the old connection has come back meanwhile
    reconnect_pending_for: float = 24 * 3600.0  # while the job waits, and its end is unknown

    # asking the scheduler: see ``jobs.polling``
    rpcs_per_hour: int = 60  # for one session, at most
    rpcs_at_once: int = 16  # so many may follow each other; they come back one by one
    poll_pause: float = 2.0  # between two questions; doubled each time, up to the longest
    longest_poll_pause: float = 60.0
    longest_saving_pause: float = 150.0  # instead of that, while few RPCs are left
    longest_unanswered_pause: float = 20.0  # to a scheduler that does not answer
    near_start: float = 60.0  # around the estimated start it pays to ask more often
    near_start_pause: float = 5.0
    evidence_every: float = 1200.0  # after which the evidence for the same reason is read again
    evidence_shared_for: float = 300.0  # for which several sessions share it
    #: that a job has waited when it is worth counting those ahead of it, by a list of all that wait: most jobs have
    #: started by then
    settled_after: float = 10.0

    # submitting
    submit_slow_after: float = 5.0  # after which it is said that the scheduler takes its time
    submitted_appears_within: float = 20.0  # in which a job shows in the queue whose submission was not answered
    lookup_pause: float = 1.0  # between two looks for it; doubled each time
    longest_lookup_pause: float = 5.0

    # cancelling
    gone_within: float = 120.0  # that a cancelled job may take to be gone: its grace time and an epilog
    gone_pause: float = 0.1  # between two looks at whether it is gone; longer each time
    longest_gone_pause: float = 3.0
    cancel_again_after: float = 10.0  # after which a cancel that did nothing is repeated
    silence_noted_after: float = 3.0  # for which a scheduler may be silent before that is said
    answer_within: float = 20.0  # the answer to a cancel; then the connection is taken for broken

    # how a job ended
    final_status_within: float = 15.0  # from the job's exit to the scheduler's word on what became of it
    final_status_pause: float = 0.2  # between two questions; doubled each time
    longest_final_status_pause: float = 2.0
    history_within: float = 3.0  # by which the scheduler's history may be behind
    history_pause: float = 0.3
    accounting_pause: float = 0.5  # between two questions to the accounting; doubled each time
    longest_accounting_pause: float = 1.5


DEFAULT_TIMING = Timing()
