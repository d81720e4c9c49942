"""Saves: whole or not there, whatever happens meanwhile, and permissions of what they write."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from stores import ARRAY, write_store

import ramify
from ramify import ModelFormatError
from ramify.io.store import Store, StoreWriter, read_store


def test_failed_save_keeps_the_old_model(tmp_path):
    path = tmp_path / "m"
    write_store(path)

    def save_twice_under_one_name():
        with StoreWriter(path) as writer:
            writer.array("other", np.zeros(3))
            writer.array("other", np.zeros(3))

    with pytest.raises(ValueError, match="already used"):
        save_twice_under_one_name()
    with pytest.raises(ValueError, match="manifest"), StoreWriter(path):
        pass
    assert "a.npy" in Store(path, verify=True).files
    assert [p.name for p in tmp_path.iterdir()] == ["m"]
    write_store(path, np.ones(2))
    assert Store(path).array("a", np.float64).tolist() == [1, 1]
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_killed_save_keeps_the_old_model(tmp_path):
    """A process that saves repeatedly is killed at random times; there is always one complete model."""
    code = f"""
import sys; import numpy as np
from ramify.io.store import StoreWriter
i = 0
while True:
    i += 1
    with StoreWriter({str(tmp_path / "m")!r}) as writer:
        writer.array("a", np.full(200_000, i))
        writer.array("b", np.full(10, i))
        writer.manifest("x", {{}}, {{"i": i}})
    if i == 1: print("ready", flush=True)
"""
    rng = random.Random(0)
    for _ in range(8):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"ready\n"
        time.sleep(rng.random() * 0.1)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        store = Store(tmp_path / "m", verify=True)
        i = store.state["i"]
        assert set(store.array("a", np.int64).tolist()) == {i}
        assert set(store.array("b", np.int64).tolist()) == {i}


def test_only_models_are_overwritten(tmp_path):
    path = tmp_path / "photos"
    path.mkdir()
    (path / "cat.jpg").write_text("meow")
    with pytest.raises(ramify.ModelFormatError, match="not part of a model"):
        StoreWriter(path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(ramify.ModelFormatError, match="is a file"):
        StoreWriter(tmp_path / "file")
    assert (path / "cat.jpg").read_text() == "meow"
    (path / "manifest.json").write_text('{"name": "my web app"}')
    with pytest.raises(ramify.ModelFormatError, match="not part of a model"):
        StoreWriter(path)
    write_store(tmp_path / "m")
    (tmp_path / "m" / "notes.txt").write_text("mine")
    with pytest.raises(ramify.ModelFormatError, match="not part of a model"):
        StoreWriter(tmp_path / "m")


def test_permissions_follow_the_umask(tmp_path):
    write_store(tmp_path / "m")
    assert Path(tmp_path / "m").stat().st_mode & 0o055 == 0o055 & ~_umask()


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def test_save_without_atomic_exchange(tmp_path, monkeypatch):
    """Without the system call the old model is moved aside, and restored if the new one cannot be renamed."""
    from ramify.io import directories

    monkeypatch.setattr(directories, "_exchange", lambda a, b: False)
    write_store(tmp_path / "m")
    write_store(tmp_path / "m", np.ones(2))
    assert Store(tmp_path / "m").array("a", np.float64).tolist() == [1, 1]
    assert [p.name for p in tmp_path.iterdir()] == ["m"]
    rename = Path.rename

    def fail_for_new(self, target):
        if self.name.endswith(".saving"):
            raise OSError("no")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_for_new)
    with pytest.raises(OSError, match="no"):
        write_store(tmp_path / "m", np.zeros(3))
    assert Store(tmp_path / "m").array("a", np.float64).tolist() == [1, 1]


def test_a_save_removes_what_dead_processes_left(tmp_path):
    write_store(tmp_path / "m")
    script = (
        "import os, sys\nfrom ramify.io.store import StoreWriter\nimport numpy as np\n"
        "with StoreWriter(sys.argv[1]) as writer:\n    writer.array('a', np.zeros(3))\n    os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "m")], check=False)
    assert len(list(tmp_path.glob(".m.*.saving"))) == 1
    with StoreWriter(tmp_path / "m") as other:  # a save that is under way is not a leftover
        assert len(list(tmp_path.glob(".m.*.saving"))) == 1
        write_store(tmp_path / "m")
        other.manifest("y", {}, {})
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    assert Store(tmp_path / "m").kind == "y"


def test_a_model_that_was_moved_aside_is_restored_by_the_next_save(tmp_path):
    """On systems that cannot exchange directories, a process may die between two renames."""
    write_store(tmp_path / "m")
    (tmp_path / ".m.0123.old").mkdir()
    (tmp_path / "m").rename(tmp_path / ".m.0123.old" / "m")
    with StoreWriter(tmp_path / "m") as writer:
        assert Store(tmp_path / "m").kind == "x"
        writer.manifest("y", {}, {})
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_the_umask_is_never_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("other threads would see it"))
    write_store(tmp_path / "m")
    assert np.array_equal(Store(tmp_path / "m").array("a", ARRAY.dtype), ARRAY)


def test_an_opened_model_stays_whole_while_another_is_saved_to_its_path(tmp_path):
    write_store(tmp_path / "m")
    store = Store(tmp_path / "m")
    mapped = store.array("a", ARRAY.dtype)
    assert np.array_equal(mapped, ARRAY)
    with StoreWriter(tmp_path / "m") as writer:
        writer.array("a", np.zeros((7, 3), np.float32))
        writer.manifest("y", {}, {})
    assert np.array_equal(mapped, ARRAY)
    with pytest.raises(ModelFormatError, match="missing"):  # never an array of the other model
        store.array("a", ARRAY.dtype)


def test_processes_that_save_to_one_path_leave_one_whole_model(tmp_path):
    """Each save is whole; the last one stays, and a reader finds a whole model at any time."""
    script = (
        "import sys\nimport numpy as np\nfrom ramify.io.store import StoreWriter\n"
        "for i in range(40):\n    with StoreWriter(sys.argv[1]) as writer:\n"
        "        writer.array('a', np.full(500, int(sys.argv[2])))\n"
        "        writer.array('b', np.full(500, int(sys.argv[2])))\n        writer.manifest('x', {}, {})\n"
    )
    write_store(tmp_path / "m", np.zeros(3, np.int64))
    writers = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "m"), str(i)]) for i in range(3)]

    def read(store):
        return [store.array(name, np.int64).tolist() if f"{name}.npy" in store.files else [] for name in "ab"]

    n_read = 0
    while any(writer.poll() is None for writer in writers):
        a, b = read_store(tmp_path / "m", read, verify=n_read % 2 == 0)
        assert not b or len({*a, *b}) == 1  # never files of two models
        n_read += 1
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert n_read > 0
    assert Store(tmp_path / "m", verify=True).kind == "x"
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


@pytest.mark.parametrize("kind", ["full disk", "read-only folder"])
def test_a_save_that_cannot_be_written_says_so_and_keeps_the_old_model(kind):
    """Under a limit of the file size, which a process sets for itself: writing beyond it fails as on a full disk."""
    with tempfile.TemporaryDirectory() as folder:  # where another user may read
        check_failing_save(Path(folder), kind)


def check_failing_save(folder, kind):
    folder.chmod(0o755)
    write_store(folder / "m")
    script = (
        "import os, resource, signal, sys\nimport numpy as np\nfrom ramify.io.store import StoreWriter\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "if sys.argv[2] == 'full disk':\n    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "else:\n    os.chmod(os.path.dirname(sys.argv[1]), 0o555)\n    os.geteuid() or os.setuid(65534)\n"
        "try:\n    with StoreWriter(sys.argv[1]) as writer:\n        writer.array('a', np.zeros(10**5))\n"
        "        writer.manifest('y', {}, {})\n"
        "except OSError as error:\n    print(error)\n"
    )
    command = [sys.executable, "-c", script, str(folder / "m"), kind]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    folder.chmod(0o755)
    assert "could not be saved, and is as it was before" in result.stdout, result.stderr
    assert Store(folder / "m", verify=True).kind == "x"
    assert [path.name for path in folder.iterdir()] == ["m"]


def test_a_save_ends_where_no_directory_can_be_made(tmp_path, monkeypatch):
    """As below /proc, or if somebody removes the parent meanwhile."""

    def fail(self, *args, **options):
        raise FileNotFoundError(2, "No such file or directory")

    model = ramify.Popular().fit(["a"], [["b"]])
    monkeypatch.setattr(Path, "mkdir", lambda self, *a, **o: fail(self) if self.name.startswith(".m.") else None)
    with pytest.raises(OSError, match="could not be saved"):
        model.save(tmp_path / "m")
