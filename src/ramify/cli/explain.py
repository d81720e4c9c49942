"""``ramify explain``: why a label has its score."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ramify.cli.label_sets import given_labels
from ramify.cli.options import load_model
from ramify.cli.output import print_message


def explain(args: argparse.Namespace) -> None:
    """``ramify explain``."""
    model = load_model(args)
    x = {"text": args.text} if model.input_kind_ == "fields" else args.text
    wanted = given_labels(model, args.label) if args.label else [None]
    explanations = [model.explain(x, label, without=args.without) for label in wanted]
    if args.html:
        with Path(args.html).open("w", encoding="utf-8") as file:
            file.write('<!doctype html><meta charset="utf-8">' + "".join(e.to_html() for e in explanations) + "\n")
        print_message(f"wrote {args.html}")
        return
    for explanation in explanations:
        print(json.dumps(explanation.to_dict(), ensure_ascii=False) if args.json else explanation)
