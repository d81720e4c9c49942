"""Annif's own server with omikuji, for the load benchmark: trained on records, started, found on a port.

The project is that of `annif.py`: three Bonsai trees over words stemmed by Snowball.
"""

from __future__ import annotations

import os
import subprocess
import time
import urllib.request
from pathlib import Path

from annif import write_inputs
from text_features import read


class AnnifServer:
    """The server of an Annif with a trained project, in a folder that keeps it for the next run.

    Parameters
    ----------
    command : the command annif of an environment with `annif[omikuji]`
    folder : where the project is, or is made
    data : directory with trn.jsonl and labels.txt
    n_train : records to train on; None: all
    """

    def __init__(self, command: str, folder: Path, data: Path, n_train: int | None, port: int) -> None:
        self._command, self._folder = str(Path(command).absolute()), folder
        if not (folder / "data" / "projects" / "bonsai").exists():
            self._train(data, n_train)
        self.n_train = sum(1 for _ in (folder / "trn.tsv").open(encoding="utf-8"))
        self.url = f"http://127.0.0.1:{port}/v1/projects/bonsai/suggest"
        with (folder / "server.log").open("w") as log:
            arguments = [self._command, "run", "--host", "127.0.0.1", "--port", str(port)]
            self._process = subprocess.Popen(arguments, cwd=folder, env=self._environment(), stdout=log, stderr=log)
        self._wait(self.url.removesuffix("/suggest"))

    @property
    def pid(self) -> int:
        """Process of the server."""
        return self._process.pid

    def close(self) -> None:
        """End the server."""
        self._process.terminate()
        self._process.wait(60)

    def _train(self, data: Path, n_train: int | None) -> None:
        folder = self._folder
        folder.mkdir(parents=True, exist_ok=True)
        names = (data / "labels.txt").read_text(encoding="utf-8").split("\n")
        write_inputs(folder, names, {"trn": read(data, "trn", n_train, None)}, "german")
        for arguments in (
            ["load-vocab", "subjects", "subjects.tsv", "--language", "de"],
            ["train", "bonsai", "trn.tsv"],
        ):
            done = subprocess.run(
                [self._command, *arguments], cwd=folder, env=self._environment(), capture_output=True, text=True
            )
            if done.returncode != 0:
                raise SystemExit(f"annif {' '.join(arguments)} failed:\n{done.stderr[-3000:]}")

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "NLTK_DATA": str((self._folder / "nltk").absolute())}

    def _wait(self, url: str) -> None:
        while self._process.poll() is None:
            try:
                urllib.request.urlopen(url, timeout=60).close()
                return
            except OSError:
                time.sleep(0.5)
        raise SystemExit(f"Annif's server did not start; see {self._folder / 'server.log'}")
