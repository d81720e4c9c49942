"""Load on the service on this machine: peak, latency at half of it, without keep-alive, overload, memory.

    ramify train xr-linear train.jsonl --out model/
    python benchmarks/serve.py model/ test.jsonl.xz --seconds 20 --soak 600
    python benchmarks/serve.py model/ test.jsonl.xz --annif http://127.0.0.1:5000/v1/projects/ID/suggest --annif-pid PID

The texts are those of the file, one for each request. wrk must be installed. It sends as fast as it gets answers; the
runs at a part of the peak are those of `paced_load`, which sends at a rate. With --annif, the same texts go to another
server with Annif's API, as forms, with and without keep-alive.
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

from paced_load import paced_load

import ramify
from ramify.cli.output import print_table

N_TEXTS = 1000
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


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def cpu_of_the_model(path: str, texts: list[str], batch: int) -> float:
    """CPU µs of a text in `predict_topk`, on one thread."""
    model = ramify.load(path).set_params(threads=1, verbose=0)
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        for i in range(0, len(texts), batch):
            model.predict_topk(texts[i : i + batch], 10)
        best = min(best, time.process_time() - start)
    return 1e6 * best / len(texts)


class Load:
    """Runs of wrk against a service of this library, and the table of what they found."""

    header = ("run", "answers/s", "p50 ms", "p99 ms", "refused", "CPU µs of the service", "RSS MB")

    def __init__(self, model: str, texts: list[str], connections: int, seconds: float, threads: int | None) -> None:
        self.connections, self.seconds = connections, seconds
        self.rows: list[list[str]] = [list(self.header)]
        folder = Path(tempfile.mkdtemp())
        self._jsons, self._forms = folder / "json", folder / "forms"
        self._jsons.write_text("".join(json.dumps({"input": text}, ensure_ascii=False) + "\n" for text in texts))
        self._forms.write_text("".join(urllib.parse.urlencode({"text": text, "limit": 10}) + "\n" for text in texts))
        port = free_port()
        command = [sys.executable, "-m", "ramify", "serve", f"model={model}", "--port", str(port)]
        command += ["--threads", str(threads)] if threads else []
        self.server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self.address = f"http://127.0.0.1:{port}"

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

    def run_paced(self, name: str, url: str, rate: float, seconds: float) -> float:
        """Send the texts at a rate, whatever the answers take; returns the answers per second."""
        before = cpu_seconds(self.server.pid)
        found = paced_load(url, self._jsons.read_bytes().splitlines(), JSON_TYPE, rate, seconds)
        return self._add(f"{name}, {rate:,.0f}/s", found, self.server.pid, before)

    def _add(self, name: str, found: dict[str, Any], pid: int, cpu_before: float) -> float:
        n = max(1, found["n"])
        cpu = 1e6 * (cpu_seconds(pid) - cpu_before) / n
        answered = found["rate"] * (1 - found["refused"] / n)
        refused = f"{found['refused']:,} of {n:,} {found['errors']}".strip() if found["refused"] else "0"
        times = [f"{found['p50']:.1f}", f"{found['p99']:.1f}"]
        self.rows.append([name, f"{answered:,.0f}", *times, refused, f"{cpu:.0f}", f"{resident(pid):.1f}"])
        print("  ".join(self.rows[-1]), flush=True)
        return answered

    def run_all(self, overload: int, soak: float) -> None:
        """Peak, half of it, the soak, without keep-alive, Annif's API, overload, and the time after it."""
        suggest = f"{self.address}/v1/suggest"
        self.run("warm-up", suggest, seconds=min(3.0, self.seconds))
        peak = self.run(f"keep-alive, {self.connections} connections", suggest)
        self.run_paced("half of the peak", suggest, peak / 2, self.seconds)
        if soak:  # before the overload, after which there is free memory that would hide growth
            self.soak(suggest, peak / 2, soak)
        self.run("without keep-alive", suggest, close=True)
        self.run("Annif's API, keep-alive", f"{self.address}/v1/projects/model/suggest")
        self.run(f"overload, {overload:,} connections", suggest, connections=overload)
        start = time.perf_counter()
        urllib.request.urlopen(f"{self.address}/healthz", timeout=60).close()
        print(f"the first answer after it took {1000 * (time.perf_counter() - start):.0f} ms")
        self.run("after it", suggest)

    def soak(self, url: str, rate: float, seconds: float) -> None:
        """Send at a rate for long, in ten parts, and tell the memory after each."""
        memory = [resident(self.server.pid)]
        for i in range(10):
            self.run_paced(f"soak, part {i + 1} of 10", url, rate, seconds / 10)
            memory.append(resident(self.server.pid))
        print(f"memory at the start and after each part of {seconds / 10:g} s at {rate:,.0f} requests/s, MB:")
        print("  ".join(f"{size:.1f}" for size in memory))

    def run_other(self, url: str, pid: int) -> None:
        """Send the same texts to another server with Annif's API."""
        self.run("other server, keep-alive", url, pid=pid)
        self.run("other server, without", url, pid=pid, close=True)

    def close(self) -> None:
        """End the service."""
        self.server.send_signal(signal.SIGTERM)
        self.server.wait(60)


def main() -> None:
    args = parse_arguments()
    texts = [text for text in ramify.read(args.file).texts if isinstance(text, str)][:N_TEXTS]
    n_words = sum(len(text.split()) for text in texts) / len(texts)
    print(f"{len(texts)} texts of {n_words:.0f} words; load of the machine {os.getloadavg()[0]:.1f}")
    load = Load(args.model, texts, args.connections, args.seconds, args.threads)
    try:
        wait_for(load.address, load.server)
        load.run_all(args.overload, args.soak)
        if args.annif:
            load.run_other(args.annif, args.annif_pid or load.server.pid)
    finally:
        load.close()
    print_table(load.rows)
    for batch in (1, 8):
        cpu = cpu_of_the_model(args.model, texts, batch)
        print(f"predict_topk alone, batches of {batch}: {cpu:.0f} CPU µs of a text")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="directory of a saved model of texts")
    parser.add_argument("file", help="data file with the texts")
    parser.add_argument("--seconds", type=float, default=10, help="of each run (default: 10)")
    parser.add_argument(
        "--soak", type=float, default=0, metavar="S", help="seconds at half of the peak, for memory (default: 0)"
    )
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument(
        "--overload", type=int, default=3000, metavar="N", help="connections of the overload (default: 3000)"
    )
    parser.add_argument("--threads", type=int, help="worker threads of the service")
    parser.add_argument("--annif", metavar="URL", help="suggest route of another server with Annif's API")
    parser.add_argument("--annif-pid", type=int, metavar="PID", help="its process, for CPU time and memory")
    return parser.parse_args()


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
