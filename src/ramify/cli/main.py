"""``ramify``: entry point and exit codes.

0: success. 1: invalid data, model or parameters, or a missing extra, with the reason on standard error. 2: invalid
command line. 128 + signal number: interrupted (130) or closed pipe (141).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    try:
        from ramify.cli.parser import parse_args  # here, so that a failing import is reported like other errors

        args = parse_args(argv)
        args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        print("ramify: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except ImportError as error:
        print(f"ramify: error: {_describe_import_error(error)}", file=sys.stderr)
        return 1
    except (ValueError, OSError, MemoryError) as error:  # includes RamifyError
        print(f"ramify: error: {error or type(error).__name__}", file=sys.stderr)
        return 1
    return 0


def _describe_import_error(error: ImportError) -> str:
    """Message of a missing extra or of a failed import, with the module that failed."""
    message = str(error) or type(error).__name__
    failed = error.name or ""
    if failed not in message:
        message = f"{message} (while importing {failed})"
    return f"{message} ({error.__cause__})" if error.__cause__ else message


if __name__ == "__main__":
    sys.exit(main())
