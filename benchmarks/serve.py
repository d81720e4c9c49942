"""Load on the service with wrk, on this machine: peak, latency at half of it, without keep-alive, overload, memory.

    ramify train xr-linear train.jsonl --out model/
    python benchmarks/serve.py model/ test.jsonl.xz --seconds 20 --soak 600
    python benchmarks/serve.py model/ test.jsonl.xz --annif http://127.0.0.1:5000/v1/projects/ID/suggest

The texts are those of the file, one for each request. wrk must be installed. With --annif, the same texts go to another
server with Annif's API, as forms, with and without keep-alive.
"""

from __future__ import annotations

import argparse
import json
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

import ramify
from ramify.cli.output import print_table

N_TEXTS = 1000
SCRIPT = """
local bodies, i = {}, 0
for line in io.lines(os.getenv("BODIES")) do bodies[#bodies + 1] = line end
wrk.method = "POST"
wrk.headers["Content-Type"] = os.getenv("CONTENT_TYPE")
if os.getenv("CLOSE") == "1" then wrk.headers["Connection"] = "close" end
local pause = tonumber(os.getenv("DELAY_MS") or "0")
request = function() i = i % #bodies + 1; return wrk.format(nil, nil, nil, bodies[i]) end
if pause > 0 then delay = function() return pause end end
"""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wrk(
    url: str, bodies: Path, kind: str, connections: int, seconds: float, close=False, delay_ms=0
) -> dict[str, float]:
    """Run wrk; returns requests per second, latencies in milliseconds and answers that were not 2xx or 3xx."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(SCRIPT)
        script.flush()
        environment = {"BODIES": str(bodies), "CONTENT_TYPE": kind, "CLOSE": str(int(close)), "DELAY_MS": str(delay_ms)}
        command = [
            "wrk",
            "-t1",
            f"-c{connections}",
            f"-d{seconds:g}s",
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="directory of a saved model of texts")
    parser.add_argument("file", help="data file with the texts")
    parser.add_argument("--seconds", type=float, default=10, help="of each run (default: 10)")
    parser.add_argument(
        "--soak", type=float, default=0, metavar="S", help="seconds at half load, for memory (default: 0)"
    )
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument(
        "--overload", type=int, default=3000, metavar="N", help="connections of the overload (default: 3000)"
    )
    parser.add_argument("--threads", type=int, help="worker threads of the service")
    parser.add_argument("--annif", metavar="URL", help="suggest route of another server with Annif's API")
    args = parser.parse_args()
    texts = [text for text in ramify.read(args.file).texts if isinstance(text, str)][:N_TEXTS]
    n_words = sum(len(text.split()) for text in texts) / len(texts)
    print(f"{len(texts)} texts of {n_words:.0f} words; load of the machine {os.getloadavg()[0]:.1f}")
    folder = Path(tempfile.mkdtemp())
    jsons, forms = folder / "json", folder / "forms"
    jsons.write_text("".join(json.dumps({"input": text}, ensure_ascii=False) + "\n" for text in texts))
    forms.write_text("".join(urllib.parse.urlencode({"text": text, "limit": 10}) + "\n" for text in texts))
    json_type, form_type = "application/json", "application/x-www-form-urlencoded"
    rows: list[list[str]] = [["run", "answers/s", "p50 ms", "p99 ms", "refused", "CPU µs of the service", "RSS MB"]]

    port = free_port()
    command = [sys.executable, "-m", "ramify", "serve", f"model={args.model}", "--port", str(port)]
    command += ["--threads", str(args.threads)] if args.threads else []
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"

    def run(name: str, url: str, bodies: Path, kind: str, connections: int, seconds: float, **options: Any) -> float:
        before = cpu_seconds(server.pid)
        found = wrk(url, bodies, kind, connections, seconds, **options)
        n = max(1, found["n"])
        cpu = 1e6 * (cpu_seconds(server.pid) - before) / n
        answered = found["rate"] * (1 - found["refused"] / n)
        refused = f"{found['refused']:,} {found['errors']}".strip()
        cost = f"{cpu:.0f}" if url.startswith(address) else ""
        times = [f"{found['p50']:.1f}", f"{found['p99']:.1f}"]
        rows.append([name, f"{answered:,.0f}", *times, refused, cost, f"{resident(server.pid):.0f}"])
        print("  ".join(rows[-1]), flush=True)
        return answered

    try:
        wait_for(address, server)
        suggest = f"{address}/v1/suggest"
        run("warm-up", suggest, jsons, json_type, args.connections, min(3.0, args.seconds))
        peak = run(
            f"keep-alive, {args.connections} connections", suggest, jsons, json_type, args.connections, args.seconds
        )
        # wrk pauses between an answer and the next request, so that the rate stays below half of the peak.
        delay = 1000 * args.connections / (peak / 2)
        half = {"delay_ms": round(delay)}
        run("at most half of the peak", suggest, jsons, json_type, args.connections, args.seconds, **half)
        run("without keep-alive", suggest, jsons, json_type, args.connections, args.seconds, close=True)
        run(
            "Annif's API, keep-alive",
            f"{address}/v1/projects/model/suggest",
            forms,
            form_type,
            args.connections,
            args.seconds,
        )
        run(f"overload, {args.overload:,} connections", suggest, jsons, json_type, args.overload, args.seconds)
        run("right after it", suggest, jsons, json_type, args.connections, args.seconds)
        if args.soak:
            first = resident(server.pid)
            for i in range(4):
                run(f"half load, part {i + 1} of 4", suggest, jsons, json_type, args.connections, args.soak / 4, **half)
            print(
                f"memory before and after {args.soak:g} s at half load: {first:.1f} and {resident(server.pid):.1f} MB"
            )
        if args.annif:
            run("other server, keep-alive", args.annif, forms, form_type, args.connections, args.seconds)
            run("other server, without", args.annif, forms, form_type, args.connections, args.seconds, close=True)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
    print_table(rows)
    for batch in (1, 8):
        print(
            f"predict_topk alone, batches of {batch}: {cpu_of_the_model(args.model, texts, batch):.0f} CPU µs of a text"
        )


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
