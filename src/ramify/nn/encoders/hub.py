"""Whether a model may be found on the Hugging Face hub, asked before its client, which retries for a minute."""

from __future__ import annotations

import os
import re
import urllib.error
import urllib.request

TIMEOUT = 5.0
"""Seconds to wait for the hub."""


def check_hub(name: str) -> None:
    """Raise `OSError` if a name is a path, which the hub does not have, or if the hub cannot be reached."""
    if re.fullmatch(r"(?:[\w.-]+/)?[\w.-]+", name) is None or name.startswith((".", "~")):
        raise OSError("no such directory")
    if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
        raise OSError("no such directory, and HF_HUB_OFFLINE forbids to ask the hub")
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    try:
        with urllib.request.urlopen(urllib.request.Request(endpoint, method="HEAD"), timeout=TIMEOUT):
            pass
    except urllib.error.HTTPError:
        pass  # an answer
    except (OSError, ValueError) as error:
        raise OSError(f"no such directory, and the hub {endpoint} cannot be reached ({error})") from error
