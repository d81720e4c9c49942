"""A training that test_ranks.py runs with several ranks: ``torchrun train_with_ranks.py SETTINGS.json OUT.json``.

With a third argument, a number, all ranks kill themselves once they have written as many checkpoints.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import ramify
from ramify.nn.ranks import current_ranks
from ramify.nn.trainer import _TrainingState


def trained(settings: dict) -> dict:
    """Train the models of the settings; return what is compared: losses, and the scores of the training texts."""
    texts, labels = settings["texts"], settings["labels"]
    results = {}
    for name, (kind, params) in settings["models"].items():
        params = dict(params)
        encoder = params.pop("encoder", None)
        if encoder is not None:
            params["encoder"] = ramify.TransformerEncoder(**encoder)
        model = getattr(ramify, kind)(threads=1, verbose=0).set_params(**params).fit(texts, labels)
        ranking = model.predict_topk(texts, k=3)
        results[name] = {"history": history(model), "ids": ranking.ids.tolist(), "scores": ranking.scores.tolist()}
    return results


def history(model: ramify.Model) -> list:
    """Loss and validation nDCG@5 after each epoch of ELIAS; P@1 and PSP@1 of others, which keep no losses."""
    if isinstance(model, ramify.Elias):
        return [list(entry) for member in model.members_ for entry in member.history]
    return [list(entry) for rows in model.curves().values() for entry in rows]


def die_after(n: int) -> None:
    """Kill this process once n checkpoints are written."""
    save, n_saved = _TrainingState.save, []

    def save_and_die(self, *arguments):
        save(self, *arguments)
        n_saved.append(None)
        if len(n_saved) == n:
            os.kill(os.getpid(), signal.SIGKILL)

    _TrainingState.save = save_and_die


if __name__ == "__main__":
    if len(sys.argv) > 3:
        die_after(int(sys.argv[3]))
    found = trained(json.loads(Path(sys.argv[1]).read_text()))
    Path(f"{sys.argv[2]}.{current_ranks().rank}").write_text(json.dumps(found))
