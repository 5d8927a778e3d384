"""Translates a user's flags to those of one cluster: GPUs, accounts, and outdated flags. Pure.

Everything that differs between sites is in their profiles; nothing here is specific to a site.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from notebook_launcher.core.errors import AnswerMissing, ClusterUnavailable, UsageError
from notebook_launcher.core.frozen import Frozen
from notebook_launcher.core.glob_match import match_glob
from notebook_launcher.core.request import GPU_FLAGS, MEMORY_FLAGS, gpu_items, gpus_in, merge_flags
from notebook_launcher.core.sbatch_options import as_typed
from notebook_launcher.core.suggestions import did_you_mean
from notebook_launcher.core.walltime import DEFAULT_WALLTIME, Walltime
from notebook_launcher.profiles.models import AccountRule, ClusterProfile, Flags, FlagValue, Translation
from notebook_launcher.profiles.store import as_flags, default_flags
from notebook_launcher.schedulers.make import make_scheduler

Options = Mapping[str, str | None]
_Limit = TypeVar("_Limit", str, int)

MAY_BE_REFUSED = "the job may be refused"  # part of the notes on what only the scheduler decides
# flags that set the number of cores: with one of these, the cores that a profile adds for GPUs are left out
_CORES = frozenset({"cpus-per-gpu", "ntasks", "ntasks-per-node", "ntasks-per-gpu"})


class Translated(Frozen):
    """All flags of a request as the cluster expects them, and notes for the user.

    ``gpu_type``: the type of the GPUs by its name in the profile, if known.
    """

    flags: Mapping[str, str | None]
    notes: tuple[str, ...] = ()
    gpu_type: str | None = None


class _Added(Frozen):
    """The flags that a table of the profile adds to the defaults, and the defaults that it removes (``gone``)."""

    flags: Mapping[str, str | None]
    gone: frozenset[str] = frozenset()


class _GpuRequest(Frozen):
    """The number of GPUs, and the site's name of their type (``kind``).

    ``is_requested``: whether flags request any; ``plain``: only with ``--gpus``; ``named``: whether they name the type.
    ``whole``: whether it is all GPUs of a node, because no number is given.
    """

    count: int
    kind: str | None = None
    is_requested: bool = False
    plain: bool = True
    named: bool = False
    whole: bool = False


def translate_flags(
    profile: ClusterProfile, typed_flags: Options, name: str | None = None, placeholders: Collection[str] = ()
) -> Translated:
    """Return the flags for a cluster: the profile's defaults, its additions for GPU or CPU jobs, and the user's flags.

    Outdated flags are translated first, each with a note. Then ``[gpu]`` and its type, or ``[cpu]``, are added below
    the user's own flags, ``--gpus`` is spelled as the site does, and the account gets its suffix. ``name``: that of
    the profile, for messages. ``placeholders``: flags whose value is not known yet, and gets no notes.

    Raises ``ClusterUnavailable`` if no session can be launched, ``AnswerMissing`` if an account is required, and
    ``UsageError`` if GPUs are required, or their type is unknown.
    """
    refuse_if_closed(profile)
    notes = [profile.notice] if profile.notice else []
    defaults, options = _with_gpus_apart(default_flags(profile), typed_flags)
    defaults, options = _with_chosen(profile.chosen, defaults, options)
    defaults, options = _translated(profile.translations, defaults, options, typed_flags, notes)
    options = _without_kept_partition(profile, options, typed_flags, notes)
    gpus = _gpus_of(profile, options)
    if gpus.count:
        added = _without_cores(_for_gpus(profile, gpus), defaults, options)
        added = _in_partition(profile, added, options, gpus, notes)
        options = _respelled(profile, added, options, gpus, notes)
    elif profile.gpu.required:
        raise UsageError(profile.gpu.required, hint="ask for one: --gpus 1")
    else:
        added = _without_cores(_table(profile.cpu, gpus), defaults, options)
        _note_missing_gpus(profile, options, gpus, notes)
    flags = merge_flags(_layered(defaults, added), options)
    _put_account(profile.account, flags, bool(gpus.count), name, [] if "account" in placeholders else notes)
    _note_walltime_limit(profile.max_time, flags, notes)
    _note_gpu_limit(profile.gpu.most, flags, gpus, notes)
    return Translated(flags, tuple(notes), gpus.kind)


def refuse_if_closed(profile: ClusterProfile) -> None:
    """Raise ``ClusterUnavailable``, with the alternative, if no session can be launched on the cluster."""
    if profile.unavailable is not None:
        raise ClusterUnavailable(profile.unavailable.why, hint=profile.unavailable.instead)
    if profile.status == "retired" and profile.successor is None:
        raise ClusterUnavailable(profile.notice or "This cluster was switched off.", hint="launch-notebook clusters")


# --- outdated flags --------------------------------------------------------------------------------------------------


def _translated(
    translations: Iterable[Translation], defaults: Options, options: Options, typed_flags: Options, notes: list[str]
) -> tuple[Options, Options]:
    """Replace outdated flags by current ones, one translation after the other, each with a note.

    The result of a translation counts as typed, since it replaces flags that somebody chose. A flag that the user
    typed, and that the translation does not match, is not overwritten; if nothing is left to add, the translation is
    not applied.
    """
    for translation in translations:
        when = {flag.replace("_", "-"): pattern for flag, pattern in translation.when.items()}
        all_options = {**defaults, **options}
        meant = _matched(when, all_options)
        if meant is None:
            continue
        becoming = {flag: _filled(value, meant) for flag, value in as_flags(translation.set).items()}
        typed = {flag: options[flag] for flag in becoming.keys() & typed_flags.keys() & options.keys() - when.keys()}
        typed = {flag: value for flag, value in typed.items() if value != becoming[flag]}
        new = {flag: value for flag, value in becoming.items() if flag not in typed}
        if typed and not new:
            kept = as_typed({flag: all_options[flag] for flag in when})
            notes.append(f"{kept} stays, beside your {as_typed(typed)}: {translation.note}")
            continue
        gone = {flag.replace("_", "-") for flag in translation.drop} | (new.keys() & when.keys())
        old = {flag: value for flag, value in all_options.items() if flag in gone}
        if others := _split("gres", when.get("gres", ""), old.get("gres") or "")[1]:  # GRES other than GPUs are kept
            new["gres"] = ",".join(filter(None, (new.get("gres"), others)))
        defaults = {
            flag: value for flag, value in defaults.items() if flag not in gone or _keeps_default(when, flag, value)
        }
        options = {**{flag: value for flag, value in options.items() if flag not in gone}, **new}
        outdated = old or {flag: all_options[flag] for flag in when}
        becomes = f"is now {as_typed(new)}" if new else "is left out"
        stays = f" Your {as_typed(typed)} stays." if typed else ""
        notes.append(f"{as_typed(outdated)} {becomes}: {translation.note}{stays}")
    return defaults, options


def _keeps_default(when: Mapping[str, str], flag: str, value: str | None) -> bool:
    """Return whether to keep a default that an outdated flag overrode, and that is not outdated itself."""
    return flag in when and _matched({flag: when[flag]}, {flag: value}) is None


def _matched(when: Mapping[str, str], options: Options) -> dict[str, str] | None:
    """Return what the last ``*`` of each pattern matched, by flag; ``None`` unless all patterns match."""
    meant = {}
    for flag, pattern in when.items():
        found = match_glob(pattern, _split(flag, pattern, options[flag] or "")[0]) if flag in options else None
        if found is None:
            return None
        meant[flag] = meant[flag.replace("-", "_")] = found
    return meant


def _split(flag: str, pattern: str, value: str) -> tuple[str, str]:
    """Split a value into the part that a pattern is about and the rest: for a GPU pattern, the GPUs of a GRES list.

    If the list has several GPU entries, the first part is empty: one pattern cannot match two types of GPUs.
    """
    if flag != "gres" or not pattern.lower().startswith("gpu"):
        return value, ""
    gpus = [item for item in value.split(",") if gpu_items("gres", item)]
    return gpus[0] if len(gpus) == 1 else "", ",".join(item for item in value.split(",") if item not in gpus)


def _filled(value: str | None, meant: Mapping[str, str]) -> str | None:
    """Return a value with its placeholders filled in: ``gpu:{type}:{count}``; an empty type is dropped."""
    if value is None:
        return None
    return re.sub(r"\{([a-z_-]+)\}:?", lambda match: _filling(match, meant), value)


def _filling(match: re.Match[str], meant: Mapping[str, str]) -> str:
    if match[1] not in meant:
        return match[0]
    return meant[match[1]] + (":" if match[0].endswith(":") and meant[match[1]] else "")


# --- GPUs -----------------------------------------------------------------------------------------------------------


def _with_gpus_apart(defaults: Options, typed_flags: Options) -> tuple[Options, Options]:
    """Return the defaults without GPU flags, and the user's flags with the GPU flags, typed or by default."""
    gpu_defaults = {flag: value for flag, value in defaults.items() if gpus_in(flag, value or "") is not None}
    if any(gpus_in(flag, value or "") is not None for flag, value in typed_flags.items()):
        kept = merge_flags(defaults, {"gpus": "1"})  # removes the default's GPU flags, but not other GRES
        return {flag: value for flag, value in kept.items() if flag in defaults and flag != "gpus"}, typed_flags
    return {flag: value for flag, value in defaults.items() if flag not in gpu_defaults}, {
        **gpu_defaults,
        **typed_flags,
    }


def _with_chosen(chosen: frozenset[str], defaults: Options, options: Options) -> tuple[Options, Options]:
    """Move the defaults that a layer above the profile, such as a course, has set to the typed flags."""
    kept = merge_flags(defaults, options)
    moved = {flag: value for flag, value in defaults.items() if flag in chosen & kept.keys() and flag not in options}
    return {flag: value for flag, value in defaults.items() if flag not in moved}, {**moved, **options}


def _without_kept_partition(
    profile: ClusterProfile, options: Options, typed_flags: Options, notes: list[str]
) -> Options:
    """Drop a saved default partition if GPUs are requested and the partition has none.

    It stays if the profile's GPUs are there, if it was saved together with GPUs, and with a reservation.
    """
    partition, kept = options.get("partition"), default_flags(profile)
    is_typed = "partition" in typed_flags or kept.get("partition") != partition
    were_kept_too = any(gpus_in(flag, kept.get(flag) or "") for flag in profile.chosen & kept.keys())
    if partition is None or is_typed or were_kept_too or "reservation" in options:
        return options
    others = {flag: value for flag, value in options.items() if flag != "partition"}
    gpus = _gpus_of(profile, others)
    home = _for_gpus(profile, gpus).flags.get("partition")
    has_some = partition in _gpu_partitions(profile) and (not gpus.named or partition == home)
    if not any(gpus_in(flag, value or "") for flag, value in typed_flags.items()) or home is None or has_some:
        return options
    kind = f"GPUs of type {gpus.kind}" if gpus.named else "GPUs"
    notes.append(f"-p {partition}, a saved default, is left out: {kind} are in {home} by the profile.")
    return others


def _gpus_of(profile: ClusterProfile, options: Options) -> _GpuRequest:
    """Return the number and type of the GPUs. Raises ``UsageError`` for an unknown type."""
    found = {flag: items for flag, value in options.items() if (items := gpu_items(flag, value or "")) is not None}
    whole = profile.gpu.whole_partitions.get(options.get("partition") or "", 0)
    default = 0 if whole else profile.gpu.default
    count = max((sum(number for _, number in items) for items in found.values()), default=default)
    if not count:
        kind = _type_of_partition(profile, options.get("partition")) if whole else None
        return _GpuRequest(whole, kind, is_requested=bool(found), whole=bool(whole))
    types = {kind for items in found.values() for kind, number in items if kind and number}
    plain = not found.keys() - {"gpus"} and len(types) < 2
    if types:
        kind = _known_type(profile, next(iter(types)), strict=plain) if len(types) == 1 else None
    else:
        kind = _type_of_partition(profile, options.get("partition"))
    return _GpuRequest(count, kind, bool(found), plain, named=bool(types) and kind is not None)


def _known_type(profile: ClusterProfile, word: str, *, strict: bool) -> str | None:
    """Return a type as the site spells it. Raises ``UsageError`` for an unknown one that has to be translated.

    ``strict``: whether it has to be.
    """
    types = {name.lower(): name for name in profile.gpu.types}
    if word.lower() in types:
        return types[word.lower()]
    if not types:
        return word
    if not strict:
        return None
    meant = did_you_mean(word, types.values(), "--gpus {}:1", cutoff=0.5)  # low enough for t5 and t4
    example = f"for example: --gpus {next(iter(types.values()))}:1"
    is_passed_on = make_scheduler(profile.scheduler, "").passes_gres
    as_typed_too = f"   (--gres=gpu:{word}:1 goes to the scheduler as you type it)" if is_passed_on else ""
    raise UsageError(
        f"There is no GPU type “{word}” here.",
        why=f"By the profile there are: {', '.join(types.values())}.",
        hint=f"{meant or example}{as_typed_too}",
    )


def _homes(profile: ClusterProfile) -> dict[str, FlagValue | None]:
    """Return the partition of each type of GPU by the profile, ``None`` if it names none."""
    of_all = profile.gpu.flags.get("partition")
    return {name: kind.flags.get("partition", of_all) for name, kind in profile.gpu.types.items()}


def _type_of_partition(profile: ClusterProfile, partition: str | None) -> str | None:
    """Return the type to use if none is named: the default, unless the user's partition has another."""
    default, homes = profile.gpu.default_type, _homes(profile)
    if partition is None or (default is not None and homes[default] in (None, partition)):
        return default
    there = [name for name, home in homes.items() if home == partition]
    return there[0] if len(there) == 1 else None


def _gpu_partitions(profile: ClusterProfile) -> set[FlagValue | None]:
    """Return the partitions that the profile uses only for GPU jobs."""
    of_all = None if "partition" in profile.chosen else profile.defaults.get("partition")
    others = {of_all, profile.cpu.flags.get("partition"), None}
    return {profile.gpu.flags.get("partition"), *_homes(profile).values()} - others


def _note_missing_gpus(profile: ClusterProfile, options: Options, gpus: _GpuRequest, notes: list[str]) -> None:
    partition = options.get("partition")
    if not gpus.is_requested and partition in _gpu_partitions(profile):
        notes.append(f"No GPU is asked for, although partition {partition} has some: --gpus 1 asks for one.")


# --- the site's additions --------------------------------------------------------------------------------------------


def _table(rule: Flags, gpus: _GpuRequest) -> _Added:
    """Return what a table of the profile adds, with the number and the type of GPUs filled in."""
    meant = {"count": str(gpus.count), "type": gpus.kind or ""}
    flags = {flag: _filled(value, meant) for flag, value in as_flags(rule.flags).items()}
    grown = {flag.replace("_", "-"): str(number * gpus.count) for flag, number in rule.per_gpu.items()}
    gone = {flag.replace("_", "-") for flag, value in rule.flags.items() if value is False}
    return _Added(flags | grown, frozenset(gone))


def _for_gpus(profile: ClusterProfile, gpus: _GpuRequest) -> _Added:
    """Return what the profile adds to a GPU job; the type's flags override those for all types."""
    below, kind = _table(profile.gpu, gpus), profile.gpu.types.get(gpus.kind or "")
    if kind is None:
        return below
    above = _table(kind, gpus)
    return _Added(_layered(below.flags, above), (below.gone - above.flags.keys()) | above.gone)


def _layered(flags: Options, added: _Added) -> dict[str, str | None]:
    """Merge a table's flags into others, of which those with the same meaning are dropped."""
    merged = {flag: value for flag, value in flags.items() if flag not in added.gone}
    for family in (GPU_FLAGS, MEMORY_FLAGS):
        if family & added.flags.keys():
            merged = {flag: value for flag, value in merged.items() if flag not in family}
    return {**merged, **added.flags}


def _in_partition(
    profile: ClusterProfile, added: _Added, options: Options, gpus: _GpuRequest, notes: list[str]
) -> _Added:
    """Adapt the additions to the partition: no QOS of another one, and enough nodes if it allocates whole nodes."""
    flags, partition = dict(added.flags), options.get("partition") or added.flags.get("partition") or ""
    if gpus.named and not _may_have(profile, gpus.kind, partition):
        home = _homes(profile)[str(gpus.kind)]
        left_out = {name: flags.pop(name) for name in ("qos",) if name in profile.gpu.types[str(gpus.kind)].flags}
        also = f"; {as_typed(left_out)} is left out" if left_out and "qos" not in options else ""
        notes.append(f"By the profile GPUs of type {gpus.kind} are in {home}, not in your -p {partition}{also}.")
    whole = profile.gpu.whole_partitions.get(partition)
    if gpus.whole and GPU_FLAGS & flags.keys():
        notes.append(f"A job in partition {partition} gets all {gpus.count} GPUs of a node: --gpus 1 asks for one.")
        flags = {name: value for name, value in flags.items() if name not in GPU_FLAGS}
    elif whole and not GPU_FLAGS & flags.keys():
        flags["nodes"] = str(-(-gpus.count // whole))
    return _Added(flags, added.gone)


def _may_have(profile: ClusterProfile, kind: str | None, partition: str) -> bool:
    """Return whether a partition may have a type of GPU, as far as the profile knows."""
    own = {name: one.flags.get("partition") for name, one in profile.gpu.types.items()}
    home = own.get(kind or "")
    return home in partition.split(",") if home else partition not in own.values()


def _respelled(
    profile: ClusterProfile, added: _Added, options: Options, gpus: _GpuRequest, notes: list[str]
) -> dict[str, str | None]:
    """Return the user's flags without a ``--gpus`` that the site's own flags replace."""
    options = dict(options)
    if gpus.is_requested and not gpus.whole and not _can_be_respelled(profile, added, options, gpus):
        _note_unknown_type(profile, options, gpus, notes)
        return options
    if "gpus" in options and not gpus.whole and not GPU_FLAGS & added.flags.keys():
        coming = _gpus_of_nodes(profile, {**added.flags, **options})
        notes.append(
            f"{as_typed({'gpus': options['gpus']})} is not passed on: GPUs come with their nodes here{coming}."
        )
    options.pop("gpus", None)
    if "gres" in options and "gres" in added.flags:  # one flag for GPUs and for other resources
        options["gres"] = f"{added.flags['gres']},{options['gres']}"
    return options


def _note_unknown_type(profile: ClusterProfile, options: Options, gpus: _GpuRequest, notes: list[str]) -> None:
    """Add a note if a type is passed on that the site may spell differently."""
    if gpus.plain and gpus.named and not profile.gpu.types and GPU_FLAGS & profile.gpu.flags.keys():
        about = f" ({profile.gpu.description})" if profile.gpu.description else ""
        typed = as_typed({"gpus": options["gpus"]})
        notes.append(f"{typed} is passed on as it is: the profile knows no types of GPUs here{about}.")


def _gpus_of_nodes(profile: ClusterProfile, flags: Options) -> str:
    """Return how many GPUs the nodes have, as text; empty if not known."""
    nodes, whole = flags.get("nodes") or "1", profile.gpu.whole_partitions.get(flags.get("partition") or "")
    if not whole or not re.fullmatch(r"[0-9]{1,6}", nodes):
        return ""
    of = "a node" if int(nodes) == 1 else f"{nodes} nodes"
    return f": {whole * int(nodes)} with {of}"


def _can_be_respelled(profile: ClusterProfile, added: _Added, options: Options, gpus: _GpuRequest) -> bool:
    """Return whether the site's own flags can express all that ``--gpus`` requests."""
    if not gpus.plain or not GPU_FLAGS & (added.flags.keys() | added.gone):
        return False
    if GPU_FLAGS & added.flags.keys() and options.get("nodes") not in (None, "1"):
        return False  # --gpus counts all nodes together; the site's flags may count per node
    values = [str(value) for flag, value in profile.gpu.flags.items() if flag.replace("_", "-") in GPU_FLAGS]
    return gpus.kind in (None, *profile.gpu.types) or any("{type}" in value for value in values)


def _without_cores(added: _Added, defaults: Options, options: Options) -> _Added:
    """Drop the cores added for GPUs if the user sets cores or tasks; a single task counts as not set."""
    chosen = {flag for flag in _CORES if {**defaults, **options}.get(flag) not in (None, "1")}
    flags = {flag: value for flag, value in added.flags.items() if not chosen or flag != "cpus-per-task"}
    return _Added(flags, added.gone)


# --- account and walltime --------------------------------------------------------------------------------------------


def _put_account(
    rule: AccountRule, flags: dict[str, str | None], has_gpus: bool, name: str | None, notes: list[str]
) -> None:
    """Add the account's suffix, and notes on what looks wrong. Raises ``AnswerMissing`` if one is required."""
    account = flags.get("account")
    if not account:
        if rule.required:
            example = rule.example or "ACCOUNT"
            kept = f"   or save it: launch-notebook clusters edit {name} --account {example}" if name else ""
            where = f"on “{name}”" if name else "here"
            raise AnswerMissing(f"The account that pays must be named {where}.", hint=f"name it: -A {example}{kept}")
        return
    suffix, other = (rule.gpu_suffix, rule.cpu_suffix) if has_gpus else (rule.cpu_suffix, rule.gpu_suffix)
    kinds = ("with GPUs", "without GPUs") if has_gpus else ("without GPUs", "with GPUs")
    bare = account.removesuffix(other) if other else account
    if suffix and not account.endswith(suffix):
        flags["account"] = bare + suffix
        notes.append(f"-A {account} is now -A {bare}{suffix}: accounts of jobs {kinds[0]} end in {suffix} here.")
    elif not suffix and bare and bare != account:
        flags["account"] = bare
        notes.append(f"-A {account} is now -A {bare}: only accounts of jobs {kinds[1]} end in {other} here.")
    plain = account.removesuffix(suffix) if suffix and account.endswith(suffix) else bare
    if not any(map(rule.fits, (account, plain))):
        like = f", such as {rule.example}" if rule.example else ""
        notes.append(f"The account {account} does not look like one of this cluster{like}.")


def _note_walltime_limit(longest: str | Mapping[str, str] | None, flags: Options, notes: list[str]) -> None:
    """Add a note if the walltime exceeds the limit of the partition or the QOS in the profile."""
    place, limit = _limit(longest, flags)
    if not limit:
        return
    allowed = Walltime.parse(limit)
    walltime = Walltime.parse(flags.get("time") or DEFAULT_WALLTIME)
    if walltime > allowed:
        there = f"{place} allows" if place else "the cluster allows"
        notes.append(
            f"A walltime of {walltime.as_text()} is longer than {there} by its profile, "
            f"{allowed.as_text()}: {MAY_BE_REFUSED}, or wait for ever."
        )


def _note_gpu_limit(most: Mapping[str, int], flags: Options, gpus: _GpuRequest, notes: list[str]) -> None:
    """Add a note if the GPUs exceed the limit of the partition or the QOS in the profile."""
    place, limit = _limit_in(most, flags)
    if limit is not None and gpus.count > limit:
        notes.append(f"{gpus.count} GPUs are more than {place} allows by its profile, {limit}: {MAY_BE_REFUSED}.")


def _limit(longest: str | Mapping[str, str] | None, flags: Options) -> tuple[str, str | None]:
    """Return the partition or QOS that sets the limit, as text, and the limit."""
    return ("", longest) if longest is None or isinstance(longest, str) else _limit_in(longest, flags)


def _limit_in(longest: Mapping[str, _Limit], flags: Options) -> tuple[str, _Limit | None]:
    for flag, word in (("qos", "QOS"), ("partition", "partition")):
        place = flags.get(flag) or ""
        if place in longest:
            return f"{word} {place}", longest[place]
    return "", None
