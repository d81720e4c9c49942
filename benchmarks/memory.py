"""Peak memory of trainings against the estimate before them.

    python benchmarks/memory.py trn.jsonl.xz "XRLinear()" "XRLinear.pecos()" "OneVsAll()"
    python benchmarks/memory.py --catalogue labels.tsv trn.jsonl "LabelMatcher()" "ZestXML()" "Hybrid()"

Each training runs in a process of its own. The peak is what the training adds to the memory of the process that has
read the data, as in `Model.estimate_memory`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from common import run_child

SCRIPT = """
import json, sys
from pathlib import Path
import ramify

def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))

data = ramify.read(sys.argv[1])
model = eval(sys.argv[2], {name: getattr(ramify, name) for name in ramify.__all__}).set_params(verbose=0)
few = slice(0, 400)
catalogue = ramify.LabelCatalogue.read(sys.argv[3]) if sys.argv[3] else None
X, y = data.inputs, data.labels()
model.clone().fit(X[few], y[few], label_catalogue=catalogue)  # what is loaded and allocated once
Path("/proc/self/clear_refs").write_text("5")  # the peak is the present use
before = status("VmRSS")
model.fit(X, y, label_catalogue=catalogue)
peak = status("VmHWM") - before
estimate = model.clone().estimate_memory(X, y, label_catalogue=catalogue)
print(json.dumps({"estimate": estimate, "peak": peak}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Peak memory of trainings against the estimate before them.")
    parser.add_argument("--catalogue", default="", help="names of the labels")
    parser.add_argument("path", help="training data")
    parser.add_argument("models", nargs="+", help='such as "XRLinear()"')
    args = parser.parse_args()
    path, models = args.path, args.models
    print(f"{Path(path).parent.name}\n{'model':48} {'estimate':>9} {'peak':>9} {'ratio':>6}")
    for model in models:
        result = run_child(SCRIPT, path, model, args.catalogue, env={"RAMIFY_THREADS": "2", "OMP_NUM_THREADS": "1"})
        estimate, peak = result["estimate"], result["peak"]
        print(f"{model:48} {estimate / 1e6:6.0f} MB {peak / 1e6:6.0f} MB {estimate / peak:6.2f}", flush=True)


if __name__ == "__main__":
    main()
