"""Counters of the service in the text format of Prometheus."""

from __future__ import annotations

import bisect
import os
from pathlib import Path

from ramify.serve.served import ModelRegistry
from ramify.serve.work import WorkQueue

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
"""Upper bounds of the latency histogram, in seconds."""


class Metrics:
    """What has been answered, by route."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, int], int] = {}
        self._latency: dict[str, list[float]] = {}

    def count(self, route: str, status: int, seconds: float) -> None:
        """Count an answer."""
        key = (route, status)
        self._requests[key] = self._requests.get(key, 0) + 1
        histogram = self._latency.get(route)
        if histogram is None:
            histogram = self._latency[route] = [0.0] * (len(BOUNDS) + 2)
        histogram[bisect.bisect_left(BOUNDS, seconds)] += 1
        histogram[-1] += seconds

    def render(self, models: ModelRegistry, work: WorkQueue) -> str:
        """All metrics as text."""
        lines = ["# HELP ramify_requests_total Answers by route and status.", "# TYPE ramify_requests_total counter"]
        for (route, status), n in sorted(self._requests.items()):
            route = escape(route)
            lines.append(f'ramify_requests_total{{route="{route}",status="{status}"}} {n}')
        shed = sum(n for (_, status), n in self._requests.items() if status in (429, 503))
        lines += _single("ramify_shed_total", "counter", "Requests refused because of load.", shed)
        lines += _single("ramify_texts_total", "counter", "Texts that were ranked.", work.n_ranked)
        lines += _single("ramify_batches_total", "counter", "Batches that the texts were ranked in.", work.n_batches)
        lines += _single("ramify_queue_texts", "gauge", "Texts that wait or are worked on.", work.texts)
        name = "ramify_request_seconds"
        lines += [f"# HELP {name} Time from the request to the answer.", f"# TYPE {name} histogram"]
        for route, histogram in sorted(self._latency.items()):
            route, reached = escape(route), 0.0
            for bound, count in zip((*BOUNDS, "+Inf"), histogram, strict=False):
                reached += count
                lines.append(f'{name}_bucket{{route="{route}",le="{bound}"}} {reached:.0f}')
            lines.append(f'{name}_sum{{route="{route}"}} {histogram[-1]:.6f}')
            lines.append(f'{name}_count{{route="{route}"}} {reached:.0f}')
        lines += ["# HELP ramify_model_info Models that are served.", "# TYPE ramify_model_info gauge"]
        for loaded in models:
            facts = f'model="{escape(loaded.name)}",version="{loaded.version}",kind="{loaded.kind}"'
            lines.append(f"ramify_model_info{{{facts}}} 1")
        lines += _single("process_resident_memory_bytes", "gauge", "Resident memory.", resident_bytes())
        lines += _single("process_cpu_seconds_total", "counter", "CPU time.", round(sum(os.times()[:2]), 2))
        return "\n".join(lines) + "\n"


def _single(name: str, kind: str, doc: str, value: float) -> list[str]:
    return [f"# HELP {name} {doc}", f"# TYPE {name} {kind}", f"{name} {value}"]


def escape(text: str) -> str:
    """Escape the value of a Prometheus label."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def resident_bytes() -> int:
    """Resident memory of this process; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0
