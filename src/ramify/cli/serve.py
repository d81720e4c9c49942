"""``ramify serve``: answer requests over HTTP."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ramify.base.errors import DataError
from ramify.cli.help import add_command
from ramify.cli.output import print_message


def add_serve(parent: Any) -> None:
    """Add the command."""
    sub = add_command(parent, "serve", "Serve models over HTTP, with a page to try them and the API of Annif.", serve)
    sub.add_argument("models", nargs="+", metavar="MODEL", help="model directory, or NAME=DIR; or several")
    sub.add_argument("--host", default="127.0.0.1", help="address (default: 127.0.0.1, this machine only)")
    sub.add_argument("--port", type=int, default=8000, help="port (default: 8000)")
    sub.add_argument("--socket", metavar="PATH", help="listen on a Unix socket in place of an address")
    sub.add_argument("--workers", type=int, default=1, metavar="N", help="processes; they share the model (default: 1)")
    sub.add_argument("--threads", type=int, metavar="N", help="worker threads of a process (default: all cores)")
    sub.add_argument(
        "--token-file",
        metavar="FILE",
        help="file with the token that clients must send (default: the variable RAMIFY_SERVE_TOKEN, or none)",
    )
    sub.add_argument(
        "--cors",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="origin whose pages may use the service; may be repeated",
    )
    sub.add_argument("--language", metavar="LANG", help="language of the texts, for clients of Annif, such as de")
    sub.add_argument("--max-queue", type=int, metavar="N", help="texts that may wait (default: 1024)")
    sub.add_argument(
        "--reload-every", type=float, metavar="S", help="seconds between looks for new models (default: 1)"
    )
    sub.add_argument(
        "--log", choices=["info", "warning", "error"], default="warning", help="info: a line for each request"
    )


def serve(args: argparse.Namespace) -> None:
    """``ramify serve``."""
    from ramify.serve import Settings, run  # here, since other commands do not need the web framework
    from ramify.serve.settings import read_token

    models: dict[str, Path] = {}
    for given in args.models:
        name, path = named_model(given)
        if name in models:
            raise DataError(f"two models are named {name}; write another name in front, as in other={path}")
        models[name] = path
    limits = {
        "threads": args.threads,
        "language": args.language,
        "max_queue": args.max_queue,
        "reload_every": args.reload_every,
    }
    settings = Settings(
        token=read_token(args.token_file),
        cors=tuple(args.cors),
        **{name: value for name, value in limits.items() if value is not None},
    )
    where = args.socket or f"http://{args.host}:{args.port}"
    print_message(f"serving {', '.join(models)} at {where} (API: /docs); stop with Ctrl-C")
    run(models, settings, host=args.host, port=args.port, socket=args.socket, workers=args.workers, log_level=args.log)


def named_model(given: str) -> tuple[str, Path]:
    """Name and directory of a model, given as NAME=DIR or as a directory."""
    name, has_name, path = given.partition("=")
    if has_name and name and path and "/" not in name:
        return name, Path(path)
    return Path(given).resolve().name, Path(given)
