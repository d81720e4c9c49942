"""Options of the commands that work on many files, by many processes or machines."""

from __future__ import annotations

import argparse


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for many processes or machines."""
    group = parser.add_argument_group("many processes or machines")
    group.add_argument(
        "--engine",
        choices=["process", "pool", "ray"],
        help="work on many files, FILE being a pattern such as 'part-*.jsonl.xz': in this process, in processes of "
        "this machine, or on a Ray cluster",
    )
    group.add_argument("--work-dir", metavar="DIR", help="directory for what is made on the way; a run resumes from it")
    group.add_argument(
        "--workers", type=int, metavar="N", help="pool: processes at a time (default: one for each core)"
    )
    group.add_argument("--no-shared-folder", action="store_true", help="ray: the nodes share no folder (training only)")
    group.add_argument("--address", metavar="HOST:PORT", help="ray: the cluster; auto: the one of this machine")
