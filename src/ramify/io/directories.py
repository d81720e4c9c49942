"""Directories that appear whole or not at all: written beside their path, synced, and swapped in by one system call."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import itertools
import os
import secrets
import shutil
import sys
from pathlib import Path

_SAVING, _OLD = ".saving", ".old"


class StagingDirectory:
    """A new directory beside `target`, which becomes `target` with `publish`.

    Its process holds a lock on it. A directory without a lock was left by a process that died; the next
    `StagingDirectory` for the same target removes it.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(target)
        self.path, self._lock = _locked_directory(target, _SAVING)

    def publish(self, *, durable: bool = True) -> None:
        """Put the directory at the target, synced if `durable`; what was there before is removed."""
        if durable:
            sync_directory(self.path)
        _replace_directory(self.path, self.target)
        if durable:
            sync_directory(self.target.parent)

    def close(self) -> None:
        """Remove what is at the temporary path: an unfinished directory, or the former target."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def remove_leftovers(target: Path) -> None:
    """Remove directories that dead processes left beside the target; restore a target that was moved aside."""
    for entry in target.parent.glob(f".{_escaped(target.name)}.*"):
        if entry.suffix not in (_SAVING, _OLD) or entry.is_symlink() or not entry.is_dir():
            continue
        try:
            lock = os.open(entry, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if entry.suffix == _OLD and (entry / target.name).is_dir() and not target.exists():
                (entry / target.name).rename(target)
            shutil.rmtree(entry, ignore_errors=True)
        except OSError:  # its process is alive, or the file system has no locks: leave it alone
            pass
        finally:
            os.close(lock)


def remove_directory(path: Path) -> None:
    """Remove a directory: it vanishes at once, and then its files."""
    aside, lock = _locked_directory(path, _SAVING)
    try:
        path.rename(aside / path.name)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        os.close(lock)


def sync_directory(path: Path) -> None:
    """Write the names in a directory to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:  # some file systems cannot sync directories
        pass
    finally:
        os.close(descriptor)


def _locked_directory(target: Path, suffix: str) -> tuple[Path, int]:
    """Make a directory beside the target, with the permissions of the umask, and lock it."""
    while True:
        path = target.with_name(f".{target.name}.{secrets.token_hex(6)}{suffix}")
        try:
            path.mkdir()  # without a parent it fails, and would fail again
        except FileExistsError:
            continue
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:  # taken for a leftover by another process, and removed
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno != errno.EWOULDBLOCK:  # a file system without locks: leftovers stay
                return path, lock
        try:  # another process may have taken it for a leftover before it was locked
            if os.path.samestat(path.stat(), os.fstat(lock)):
                return path, lock
        except FileNotFoundError:
            pass
        os.close(lock)


def _replace_directory(new: Path, target: Path) -> None:
    """Rename `new` to `target`; an existing directory is exchanged atomically and left at `new`."""
    for attempt in itertools.count():
        try:
            if not target.exists():
                new.rename(target)
            elif not _exchange(new, target):
                _move_aside_and_replace(new, target)
            return
        except OSError as error:
            # Another process saved to the target at the same time: replace what it wrote.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT) or not new.exists() or attempt > 100:
                raise


def _move_aside_and_replace(new: Path, target: Path) -> None:
    """Replace a directory by two renames; a process that dies in between leaves the old one to `remove_leftovers`."""
    aside, lock = _locked_directory(target, _OLD)
    try:
        target.rename(aside / target.name)
        try:
            new.rename(target)
        except OSError:
            (aside / target.name).rename(target)
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        os.close(lock)


def _exchange(a: Path, b: Path) -> bool:
    """Exchange two directories atomically; False if the system does not support it."""
    libc = ctypes.CDLL(None, use_errno=True)
    source, target = os.fsencode(a), os.fsencode(b)
    if sys.platform == "darwin" and hasattr(libc, "renamex_np"):
        return bool(libc.renamex_np(source, target, 2) == 0)
    if hasattr(libc, "renameat2"):
        at_current_directory, swap = -100, 2
        return bool(libc.renameat2(at_current_directory, source, at_current_directory, target, swap) == 0)
    return False


def _escaped(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)
