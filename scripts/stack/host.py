"""What of a server and its sandboxes is on this host: memory, processes, mounts, cgroups, folders."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")


def memory_of(pid: int) -> int:
    """Resident memory of a process, in bytes."""
    for line in (PROC / str(pid) / "status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(f"process {pid} has no memory: it ended")


def command_line(pid: int) -> list[str]:
    """The arguments of a process; empty when it has ended."""
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return []


def processes() -> list[int]:
    """Every process of this host."""
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]


def descendants(pid: int) -> set[int]:
    """Every process below `pid`."""
    parents: dict[int, int] = {}
    for child in processes():
        try:
            # The name in parentheses may hold anything, so the fields are counted from its end.
            parents[child] = int((PROC / str(child) / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found: set[int] = set()
    fresh = {pid}
    while fresh:
        fresh = {child for child, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return found


@dataclasses.dataclass(frozen=True)
class Leftovers:
    """Everything on this host that belongs to machines, and not to the server, of one state folder.

    Two of these are compared: what a test left behind is their difference.
    """

    processes: frozenset[str]
    mounts: frozenset[str]
    cgroups: frozenset[str]
    folders: frozenset[str]

    @classmethod
    def of(cls, state: Path, but: set[int] = frozenset()) -> Leftovers:
        """What there is now for `state`, without the processes `but`."""
        where = str(state.resolve())
        folders = {
            str(entry.relative_to(where))
            for name in ("machines", "runsc")
            for entry in (state / name).glob("*")
            if not entry.name.endswith(".lock")
        }
        return cls(
            processes=frozenset(
                f"{pid} {' '.join(arguments)}"
                for pid in processes()
                if pid not in but
                if where in " ".join(arguments := command_line(pid)) and "serve" not in arguments
            ),
            mounts=frozenset(
                line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if f"{where}/" in line
            ),
            cgroups=frozenset(machine_cgroups(state.resolve())),
            folders=frozenset(folders),
        )

    def beyond(self, earlier: Leftovers) -> dict[str, list[str]]:
        """What is here and was not `earlier`; empty when nothing is."""
        differences = {
            field.name: sorted(getattr(self, field.name) - getattr(earlier, field.name))
            for field in dataclasses.fields(self)
        }
        return {name: found for name, found in differences.items() if found}


def machine_cgroups(state: Path) -> set[str]:
    """The control groups of the machines of one state folder.

    They lie in one parent whose name ends in a digest of the folder's path (FNV-1a of 32 bits).
    """
    digest = 0x811C9DC5
    for byte in os.fsencode(state):
        digest = (digest ^ byte) * 0x01000193 & 0xFFFFFFFF
    return {str(folder) for folder in CGROUPS.glob(f"**/atoll-*{digest:08x}/*/")}
