"""``ramify tune``: the few parameters that matter, by successive halving within a budget of time."""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ramify.base.errors import DataError
from ramify.base.extras import needed_for
from ramify.base.splits import hold_out
from ramify.cli.halving import Choice, Outcome, Search, Settings, Space, Trial, TrialLog
from ramify.cli.help import add_command
from ramify.cli.new import flat_params, toml_of
from ramify.cli.options import add_catalogue_option, add_data_options, configured_model, read_labelled_data
from ramify.cli.output import print_message, print_table
from ramify.io.catalogue import LabelCatalogue
from ramify.io.dataset import Dataset
from ramify.models import model_class
from ramify.models.base import Model

VALIDATION_SIZE = 2000
MAX_SETTINGS = 27
MAX_GROUPS = 5
"""A parameter with more values is summarized below and above their median."""

LINEAR: Space = {
    "linear.C": Choice(low=0.5, high=20.0),
    "linear.tail_weight": Choice(low=1.0, high=40.0),
    "linear.threshold": Choice(values=(0.05, 0.1, 0.2, 0.3)),
}
TRAINING: Space = {
    "training.learning_rate": Choice(low=0.002, high=0.05),
    "training.encoder_learning_rate": Choice(low=0.002, high=0.05),
    "training.dropout": Choice(values=(0.1, 0.3, 0.5)),
}
SPACES: dict[str, Space] = {
    "xr-linear": {
        **LINEAR,
        "tree.max_leaf_size": Choice(values=(50, 100, 200, 400)),
        "matcher_kept": Choice(values=(3, 4, 8)),
    },
    "one-vs-all": LINEAR,
    "neural-one-vs-all": TRAINING,
    "lightdxml": {**TRAINING, "shortlist_size": Choice(values=(100, 300, 500))},
    "astec": TRAINING,
    "elias": {
        "stage1.learning_rate": Choice(low=0.002, high=0.05),
        "stage2.learning_rate": Choice(low=0.002, high=0.05),
        "stage1.dropout": Choice(values=(0.1, 0.3, 0.5)),
    },
    "xr-transformer": {
        "embedding_weight": Choice(low=0.3, high=3.0),
        "ranker.linear.C": Choice(low=0.5, high=20.0),
        "ranker.linear.tail_weight": Choice(low=1.0, high=40.0),
    },
}
"""Parameters that matter most, by model."""
NAMED_SPACES: dict[str, Space] = {"xr-linear": {"label_text_weight": Choice(values=(0.3, 1.0, 3.0))}}
"""The same, of labels that have names."""


def add_tune(parent: Any) -> None:
    """Add the command."""
    summary = "Search good parameters: many settings on subsets, the best on all data."
    sub = add_command(parent, "tune", summary, tune)
    sub.add_argument("model", choices=list(SPACES), metavar="MODEL", help=f"one of: {', '.join(SPACES)}")
    sub.add_argument("file", metavar="FILE", help="training data")
    sub.add_argument(
        "--out", default="tuned.toml", metavar="FILE", help="TOML file of the best parameters (default: tuned.toml)"
    )
    sub.add_argument("--dev", metavar="FILE", help="validation data (default: rows held out of the training data)")
    sub.add_argument(
        "--budget", type=parse_duration, default=600.0, metavar="TIME", help="such as 90s, 20m or 2h (default: 10m)"
    )
    sub.add_argument(
        "--sampler",
        choices=["random", "optuna"],
        default="random",
        help="how settings are proposed; optuna needs the extra tune (default: random)",
    )
    sub.add_argument("--max-settings", type=int, default=MAX_SETTINGS, metavar="N", help="settings to try at most")
    add_catalogue_option(sub)
    sub.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="fix a parameter")
    sub.add_argument("--seed", type=int, default=0, help="seed of the proposals (default: 0)")
    sub.add_argument("--threads", type=int, metavar="N", help="threads to use (default: RAMIFY_THREADS or all cores)")
    add_data_options(sub)


def parse_duration(text: str) -> float:
    """Seconds of a duration such as 90, 90s, 20m or 2h."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if match is None or float(match[1]) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 90s, 20m or 2h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def tune(args: argparse.Namespace) -> None:
    """``ramify tune``; the budget begins here, with the reading of the data."""
    started = time.monotonic()
    base = configured_model(model_class(args.model), None, args.set).set_params(threads=args.threads, verbose=0)
    data = read_labelled_data(args.file, args)
    dev = read_labelled_data(args.dev, args) if args.dev else None
    train_rows, validation = np.arange(len(data)), dev
    if validation is None:
        train_rows, held = hold_out(data.Y, VALIDATION_SIZE, args.seed)
        validation = data.subset(held)
        if not len(held):
            raise ValueError(f"{args.file} is too small to hold out a validation set; name one with --dev")
    fixed = {setting.partition("=")[0].strip() for setting in args.set}
    catalogue = LabelCatalogue.of(args.labels) if args.labels else None
    space = SPACES[args.model] | (NAMED_SPACES.get(args.model, {}) if catalogue else {})
    usable = {path: choice for path, choice in space.items() if path not in fixed}
    if not usable:
        raise ValueError(f"--set fixes all that tune compares for {args.model}: {', '.join(space)}")
    if args.sampler == "optuna":
        proposals, tell = optuna_proposals(usable, args.seed)
    else:
        proposals, tell = random_proposals(usable, args.seed), _ignore
    key = json.dumps([args.model, args.set, args.sampler, args.seed, len(data), data.n_labels, int(data.Y.nnz)]
                     + ([len(catalogue)] if catalogue else []))  # fmt: skip
    log = TrialLog.open(f"{args.out}.trials.jsonl", key)
    if log.trials:
        print_message(f"resuming: {len(log.trials)} trainings are in {log.path}")
    trainer = _trainer(base, data, train_rows, validation, args.seed, catalogue)
    search = Search(trainer, log, started + args.budget - time.monotonic(), _report)
    outcome = search.run(proposals, tell, len(train_rows), args.max_settings)
    if outcome is None:
        raise DataError(
            f"the budget of {args.budget:g} s was over before a first training ended, so nothing was compared and "
            f"{args.out} was not written; raise --budget"
        )
    best = outcome.best[0]
    default = next(trial for trial in outcome.best if not trial.settings)
    tuned = _configured(base, best.settings).set_params(threads=None, verbose=1)
    Path(args.out).write_text(toml_of(tuned), encoding="utf-8")
    if len(outcome.first) == 1:
        print_message("the budget was over after the training of the defaults: nothing was compared; raise --budget")
    else:
        print_table(_lessons(outcome, flat_params(base)))
    if len(outcome.first) > 1 and best.n_samples < len(train_rows):
        print_message(
            f"the budget is too short for trainings on all {len(train_rows):,} samples: settings were compared on "
            f"{best.n_samples:,}; raise --budget to compare them on more"
        )
    print(f"validation nDCG@5 {best.score:.2f}, with the defaults {default.score:.2f}, on {best.n_samples:,} samples")
    names = f" --labels {args.labels}" if args.labels else ""
    print_message(
        f"wrote {args.out}; use it with: ramify train {args.model} {args.file} --config {args.out}{names} --out DIR"
    )


def _ignore(settings: Settings, score: float) -> None:
    """Random proposals learn nothing."""


def _configured(base: Model, settings: Settings) -> Model:
    return base.clone().set_params(**settings)


def _trainer(
    base: Model, data: Dataset, rows: Any, validation: Dataset, seed: int, catalogue: LabelCatalogue | None
) -> Callable[[Settings, int], float]:
    order = np.random.default_rng(seed).permutation(rows)  # subsets are nested
    truth = validation.labels()

    def train(settings: Settings, n_samples: int) -> float:
        subset = data.subset(np.sort(order[:n_samples]))
        model = _configured(base, settings).fit(
            subset.inputs, subset.labels(), sample_weight=subset.sample_weight, label_catalogue=catalogue
        )
        return 100 * model.score(validation.inputs, truth)

    return train


def random_proposals(space: Space, seed: int) -> Iterator[Settings]:
    """Yield the defaults, then settings that change each parameter with probability one half."""
    yield {}
    random = np.random.default_rng(seed)
    while True:
        drawn = {path: _plain(choice.sample(random)) for path, choice in space.items() if random.random() < 0.5}
        if drawn or not space:
            yield drawn


def optuna_proposals(space: Space, seed: int) -> tuple[Iterator[Settings], Callable[[Settings, float], None]]:
    """Proposals of Optuna's TPE, which learns from the scores; the first are the defaults."""
    with needed_for("--sampler optuna", "Optuna", "tune"):
        import optuna
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    asked: dict[str, Any] = {}

    def propose() -> Iterator[Settings]:
        yield {}
        while True:
            trial = study.ask()
            settings = {
                path: json.loads(trial.suggest_categorical(path, [json.dumps(v) for v in choice.values]))
                if choice.values
                else float(f"{trial.suggest_float(path, choice.low, choice.high, log=True):.3g}")
                for path, choice in space.items()
            }
            asked[json.dumps(settings)] = trial
            yield settings

    def tell(settings: Settings, score: float) -> None:
        trial = asked.pop(json.dumps(settings), None)
        if trial is not None:
            study.tell(trial, score)

    return propose(), tell


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _report(trial: Trial) -> None:
    changed = ", ".join(f"{path}={json.dumps(value)}" for path, value in trial.settings.items()) or "defaults"
    print_message(f"{trial.n_samples:,} samples, {trial.seconds:.1f} s: nDCG@5 {trial.score:.2f}  {changed}")


def _lessons(outcome: Outcome, defaults: Settings) -> list[list[str]]:
    """Table of each parameter: its best value, and the mean score of its values in the first rung."""
    first = outcome.first
    rows = [["parameter", "best", "mean nDCG@5 by value"]]
    for path in sorted({path for trial in first for path in trial.settings}):
        pairs = [(trial.settings.get(path, _plain(defaults.get(path))), trial.score) for trial in first]
        groups: dict[str, list[float]] = {}
        middle = None
        if all(isinstance(value, float) for value, _ in pairs) and len({value for value, _ in pairs}) > MAX_GROUPS:
            middle = float(np.median([value for value, _ in pairs]))
        for value, score in sorted(pairs, key=lambda pair: (str(type(pair[0])), pair[0])):
            name = json.dumps(value) if middle is None else f"{'up to' if value <= middle else 'above'} {middle:g}"
            groups.setdefault(name, []).append(score)
        best = outcome.best[0].settings.get(path)
        means = ", ".join(f"{name}: {np.mean(scores):.1f}" for name, scores in groups.items())
        rows.append([path, "default" if best is None else json.dumps(best), means])
    return rows
