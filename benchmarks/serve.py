"""Load on the service on this machine, with wrk: one command for all figures, which ends with their tables.

    ramify train xr-linear DATA/trn.jsonl.xz --out model/
    python benchmarks/serve.py model/ DATA/tst.jsonl.xz --annif ENVIRONMENT/bin/annif --annif-folder annif/
    python benchmarks/serve.py model/ DATA/tst.jsonl.xz --parts peak,half,layers --seconds 5

Parts: `peak` with keep-alive, `half` of it at a steady rate, `soak` for ten minutes at that rate with the memory,
`close` without keep-alive, `annif-api` of our service, `overload` at three times the peak and with 3,000 connections,
with the time after it, `layers` of the CPU time of an answer, `annif`: Annif's own server with omikuji on the same
texts (ENVIRONMENT: a virtual environment with `annif[omikuji]`; trained first, on DATA/trn.jsonl.xz and
DATA/labels.txt, unless the folder has it).

The texts are a thousand of the file, evenly spaced: library records stand in an order, and the first ones are short.
wrk sends as fast as it gets answers; the runs at a part or a multiple of the peak are those of `paced_load`, which
sends at a rate. All of it shares the cores with the service.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from annif_server import AnnifServer
from common import print_machine, print_table
from paced_load import paced_load
from serve_layers import describe, layers

import ramify

N_TEXTS = 1000
PARTS = ("peak", "half", "soak", "close", "annif-api", "overload", "layers", "annif")
JSON_TYPE, FORM_TYPE = "application/json", "application/x-www-form-urlencoded"
SCRIPT = """
local bodies, i = {}, 0
for line in io.lines(os.getenv("BODIES")) do bodies[#bodies + 1] = line end
wrk.method = "POST"
wrk.headers["Content-Type"] = os.getenv("CONTENT_TYPE")
if os.getenv("CLOSE") == "1" then wrk.headers["Connection"] = "close" end
request = function() i = i % #bodies + 1; return wrk.format(nil, nil, nil, bodies[i]) end
"""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wrk(url: str, bodies: Path, kind: str, connections: int, seconds: float, close: bool = False) -> dict[str, Any]:
    """Run wrk; returns requests per second, latencies in milliseconds and answers that were not 2xx or 3xx."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(SCRIPT)
        script.flush()
        environment = {"BODIES": str(bodies), "CONTENT_TYPE": kind, "CLOSE": str(int(close))}
        command = [
            "wrk",
            "-t1",
            f"-c{connections}",
            f"-d{math.ceil(seconds)}s",
            "--latency",
            "--timeout",
            "20s",
            "-s",
            script.name,
            url,
        ]
        done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    text = done.stdout
    units = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}
    # wrk writes a space after seconds
    found = re.findall(r"^\s+(\d+)%\s+([\d.]+)(us|ms|s|m)\s*$", text, re.M)
    latency = {percentile: float(value) * units[unit] for percentile, value, unit in found}
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", text)[1])
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    n = int(re.search(r"(\d+) requests in", text)[1])
    errors = re.search(r"Socket errors: (.*)", text)
    return {
        "n": n, "rate": rate, "refused": int(refused[1]) if refused else 0, "p50": latency.get("50", float("nan")),
        "p99": latency.get("99", float("nan")),
        "errors": errors[1] if errors else "",
    }  # fmt: skip


def cpu_seconds(pid: int) -> tuple[float, float]:
    """CPU seconds of a process, in its own code and in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    tick = os.sysconf("SC_CLK_TCK")
    return int(fields[11]) / tick, int(fields[12]) / tick


def resident(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


class Load:
    """Runs against a service, and the table of what they found."""

    header = ("run", "answers/s", "p50 ms", "p99 ms", "refused", "CPU µs of the service", "cores", "RSS MB")

    def __init__(self, model: str, texts: list[str], connections: int, seconds: float, threads: int | None) -> None:
        self.connections, self.seconds = connections, seconds
        self.rows: list[list[str]] = []
        self.notes: list[str] = []
        self.user = self.system = 0.0
        folder = Path(tempfile.mkdtemp())
        self._jsons, self._forms = folder / "json", folder / "forms"
        self._jsons.write_text("".join(json.dumps({"input": text}, ensure_ascii=False) + "\n" for text in texts))
        self._forms.write_text("".join(urllib.parse.urlencode({"text": text, "limit": 10}) + "\n" for text in texts))
        port = free_port()
        command = [sys.executable, "-m", "ramify", "serve", f"model={model}", "--port", str(port)]
        command += ["--threads", str(threads)] if threads else []
        self.server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self.address = f"http://127.0.0.1:{port}"
        self.suggest = f"{self.address}/v1/suggest"

    @property
    def bodies(self) -> list[bytes]:
        """The requests as JSON."""
        return self._jsons.read_bytes().splitlines()

    def run(
        self, name: str, url: str, *, connections: int = 0, seconds: float = 0, pid: int = 0, **options: Any
    ) -> float:
        """Send the texts to a route with wrk, as forms to that of Annif; returns the answers per second.

        `pid`: the process whose CPU time is counted, if it is not that of our service.
        """
        is_form = url.endswith("/suggest") and "/projects/" in url
        bodies, kind = (self._forms, FORM_TYPE) if is_form else (self._jsons, JSON_TYPE)
        before = cpu_seconds(pid or self.server.pid)
        found = wrk(url, bodies, kind, connections or self.connections, seconds or self.seconds, **options)
        return self._add(name, found, pid or self.server.pid, before)

    def run_paced(self, name: str, rate: float, seconds: float) -> float:
        """Send the texts at a rate, whatever the answers take; returns the answers per second."""
        before = cpu_seconds(self.server.pid)
        found = paced_load(self.suggest, self.bodies, JSON_TYPE, rate, seconds)
        return self._add(f"{name}, {found['offered']:,.0f}/s sent", found, self.server.pid, before)

    def _add(self, name: str, found: dict[str, Any], pid: int, before: tuple[float, float]) -> float:
        n = max(1, found["n"])
        self.user, self.system = (1e6 * (b - a) / n for a, b in zip(before, cpu_seconds(pid), strict=True))
        cpu = self.user + self.system
        answered = found["rate"] * (1 - found["refused"] / n)
        refused = f"{found['refused']:,} of {n:,} {found['errors']}".strip() if found["refused"] else "0"
        times = [f"{found['p50']:.1f}", f"{found['p99']:.1f}"]
        cores = f"{1e-6 * cpu * found['rate']:.2f}"
        self.rows.append([name, f"{answered:,.0f}", *times, refused, f"{cpu:.0f}", cores, f"{resident(pid):.1f}"])
        print("  ".join(self.rows[-1]), flush=True)
        return answered

    def soak(self, rate: float, seconds: float) -> None:
        """Send at a rate for long, in ten parts, and note the memory at the start and after each."""
        memory = [resident(self.server.pid)]
        for i in range(10):
            self.run_paced(f"soak, part {i + 1} of 10", rate, seconds / 10)
            memory.append(resident(self.server.pid))
        shown = ", ".join(f"{size:.1f}" for size in memory)
        self.notes.append(f"Memory in MB before and after each tenth of {seconds:g} s at half of the peak: {shown}.")

    def overload(self, peak: float, connections: int) -> None:
        """Send three times the peak, then over many connections; what comes right after each."""
        self.run_paced("three times the peak", 3 * peak, self.seconds)
        self._after("three times the peak")
        self.run_paced("half of the peak, right after it", peak / 2, self.seconds)
        self.run(f"{connections:,} connections", self.suggest, connections=connections)
        self._after(f"{connections:,} connections")
        self.run("keep-alive, right after it", self.suggest)

    def _after(self, what: str) -> None:
        request = urllib.request.Request(self.suggest, self.bodies[0], {"Content-Type": JSON_TYPE})
        start = time.perf_counter()
        urllib.request.urlopen(request, timeout=60).close()
        self.notes.append(f"After {what}, the first answer took {1000 * (time.perf_counter() - start):.0f} ms.")

    def close(self) -> None:
        """End the service."""
        self.server.send_signal(signal.SIGTERM)
        self.server.wait(60)


def main() -> None:
    args = parse_arguments()
    texts = [text for text in ramify.read(args.file).texts if isinstance(text, str)]
    texts = texts[:: max(1, len(texts) // N_TEXTS)][:N_TEXTS]
    n_words = sum(len(text.split()) for text in texts) / len(texts)
    print_machine()
    print(f"{len(texts)} texts of {n_words:.0f} words; load of the machine {os.getloadavg()[0]:.1f}")
    print(describe(args.model), flush=True)
    load = Load(args.model, texts, args.connections, args.seconds, args.threads)
    layer_rows: list[list[str]] = []
    try:
        wait_for(load.address, load.server)
        load.run("warm-up", load.suggest, seconds=min(3.0, args.seconds))
        peak = load.run(f"keep-alive, {load.connections} connections", load.suggest)
        cpu = load.user, load.system
        if "half" in args.parts:
            load.run_paced("half of the peak", peak / 2, args.seconds)
        if "soak" in args.parts:  # before the overload, after which there is free memory that would hide growth
            load.soak(peak / 2, args.soak)
        if "close" in args.parts:
            load.run("without keep-alive", load.suggest, close=True)
        if "annif-api" in args.parts:
            load.run("Annif's API, keep-alive", f"{load.address}/v1/projects/model/suggest")
        if "overload" in args.parts:
            load.overload(peak, args.overload)
    finally:
        load.close()
    if "layers" in args.parts:
        layer_rows = layers(args.model, texts, load.bodies, *cpu)
    if "annif" in args.parts:
        run_annif(load, args)
    print_tables(load, layer_rows)


def run_annif(load: Load, args: argparse.Namespace) -> None:
    """Send the same texts to Annif's own server."""
    if args.annif is None:
        load.notes.append("Annif's own server was not measured: name its command with --annif.")
        return
    other = AnnifServer(args.annif, args.annif_folder, Path(args.file).parent, args.annif_train, free_port())
    try:
        name = f"Annif's server, omikuji ({other.n_train:,} records)"
        load.run("Annif's server, warm-up", other.url, seconds=min(5.0, args.seconds), pid=other.pid)
        load.run(f"{name}, keep-alive", other.url, pid=other.pid)
        load.run(f"{name}, without", other.url, pid=other.pid, close=True)
    finally:
        other.close()


def print_tables(load: Load, layer_rows: list[list[str]]) -> None:
    """Print the tables of RESULTS.md and the README."""
    print("\nFor RESULTS.md\n")
    print_table(list(load.header), load.rows)
    if layer_rows:
        print()
        print_table(["layer", "CPU µs of an answer"], layer_rows)
    print("", *load.notes, sep="\n")
    print("\nFor README.md\n")
    wanted = [row for row in load.rows if "warm-up" not in row[0] and "soak" not in row[0]]
    print_table(["", "answers/s", "p50 ms", "p99 ms"], [row[:4] for row in wanted])


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="directory of a saved model of texts")
    parser.add_argument("file", help="data file with the texts")
    parser.add_argument("--parts", type=parts, default=PARTS, help=f"some of {','.join(PARTS)} (default: all)")
    parser.add_argument("--seconds", type=float, default=20, help="of each run (default: 20)")
    parser.add_argument("--soak", type=float, default=600, metavar="S", help="seconds of the soak (default: 600)")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument(
        "--overload", type=int, default=3000, metavar="N", help="connections of the second overload (default: 3000)"
    )
    parser.add_argument("--threads", type=int, help="worker threads of the service")
    parser.add_argument("--annif", metavar="COMMAND", help="the command annif of an environment with annif[omikuji]")
    parser.add_argument(
        "--annif-folder",
        type=Path,
        default=Path("annif-project"),
        metavar="DIR",
        help="its project (%(default)s)",
    )
    parser.add_argument("--annif-train", type=int, metavar="N", help="records that omikuji trains on (default: all)")
    return parser.parse_args()


def parts(text: str) -> tuple[str, ...]:
    """Names of parts, separated by commas."""
    found = tuple(text.split(","))
    unknown = set(found) - set(PARTS)
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    return found


def wait_for(address: str, server: subprocess.Popen[bytes]) -> None:
    while server.poll() is None:
        try:
            urllib.request.urlopen(f"{address}/readyz", timeout=10).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the service did not start")


if __name__ == "__main__":
    main()
