"""``ramify labels``: the labels of a model and their names."""

from __future__ import annotations

import argparse
import json

from ramify.base.errors import DataError
from ramify.cli.output import print_message, print_table
from ramify.io.catalogue import LabelCatalogue
from ramify.models import load

SHOWN_LABELS = 20


def labels(args: argparse.Namespace) -> None:
    """``ramify labels``: show the labels, find them by name, or give them names."""
    model = load(args.model)
    if args.set:
        catalogue = LabelCatalogue.read(args.set)
        known = sum(catalogue.get_entry(label) is not None for label in model.labels_)
        if not known:
            other = f", not {next(iter(catalogue))!r}" if len(catalogue) else ""
            raise DataError(
                f"{args.set} has a name for none of the {model.n_labels:,} labels of {args.model}, such as "
                f"{str(model.labels_[0])!r}{other}"
            )
        model.set_catalogue(catalogue).save(args.out or args.model)
        print_message(f"{known:,} of {model.n_labels:,} labels have a name; saved to {args.out or args.model}")
        return
    found = []
    for i, label in enumerate(model.labels_):
        entry = None if model.catalogue_ is None else model.catalogue_.get_entry(label)
        texts = [str(label), *([] if entry is None else [*entry.names.values(), *entry.synonyms])]
        if args.find is None or any(args.find.lower() in text.lower() for text in texts):
            count = int(model.label_counts_.counts[i])
            found.append((label, "" if entry is None else entry.name(args.language) or "", count))
    found.sort(key=lambda row: -row[2])
    if args.json:
        for label, name, count in found:
            print(json.dumps({"label": label, "name": name or None, "samples": count}, ensure_ascii=False))
        return
    rows = [[str(label), name, f"{count:,}"] for label, name, count in found[: args.n]]
    print_table([["label", "name", "samples"], *rows])
    if len(found) > args.n:
        print_message(f"{len(found) - args.n:,} more; use --n or --json")
