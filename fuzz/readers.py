"""Coverage-guided fuzzing of what is read in Python: data files, label catalogues and model directories.

    python fuzz/readers.py TARGET [-max_total_time=1800 and other options of libFuzzer]

Needs atheris. What is read is an answer or a `DataError` or `ModelFormatError`; anything else is a finding.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["ramify.io", "ramify.base.sparse", "ramify.models.base"]):
    import ramify
    from ramify.io import catalogue, dataset, formats, inputs, labels, npz, records, store, xmc  # noqa: F401

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from mutations import Directory
from subjects import GOLDEN, scratch_directory

SUFFIXES = {"jsonl": ".jsonl", "csv": ".csv", "tsv": ".tsv", "annif": ".tsv", "xmc": ".txt", "npz": ".npz"}
MAX_BYTES = 1 << 14


def read_records(data: bytes, folder: Path) -> None:
    """Files of texts, with detected and with given format, with bad lines skipped and refused."""
    source = atheris.FuzzedDataProvider(data)
    format = source.PickValueInList(["jsonl", "csv", "tsv", "annif", None])
    skip_bad, separator = source.ConsumeBool(), source.PickValueInList([";", ",", "|"])
    path = folder / f"data{SUFFIXES.get(format, '')}"
    path.write_bytes(source.ConsumeBytes(MAX_BYTES))
    found = formats.read(path, format=format, skip_bad=skip_bad, label_sep=separator)
    found.stats()
    formats.write(found, folder / "again.jsonl")
    if len(found):
        assert len(formats.read(folder / "again.jsonl")) == len(found)


def read_xmc(data: bytes, folder: Path) -> None:
    """XMC files, and pairs of them."""
    source = atheris.FuzzedDataProvider(data)
    skip_bad, is_pair = source.ConsumeBool(), source.ConsumeBool()
    path = folder / ("trn_X_Xf.txt" if is_pair else "data.txt")
    path.write_bytes(source.ConsumeBytes(MAX_BYTES // 2))
    if is_pair:
        (folder / "trn_X_Y.txt").write_bytes(source.ConsumeBytes(MAX_BYTES // 2))
    found = formats.read(path, format="xmc", skip_bad=skip_bad, threads=1)
    assert found.X is not None
    assert found.X.shape[0] == found.Y.shape[0]
    assert np.isfinite(found.X.data).all()


def read_npz(data: bytes, folder: Path) -> None:
    """NPZ files: arrays whose headers and bytes are the fuzzer's."""
    source = atheris.FuzzedDataProvider(data)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in ("X_data", "X_indices", "X_indptr", "X_shape", "Y_data", "Y_indices", "Y_indptr", "Y_shape"):
            if source.ConsumeIntInRange(0, 15) == 0:
                continue
            dtype = source.PickValueInList(["<f4", "<i4", "<i8", "<u2", "<f8", ">i4", "|b1"])
            content = source.ConsumeBytes(source.ConsumeIntInRange(0, 80))
            size = len(content) // np.dtype(dtype).itemsize
            claimed = source.PickValueInList([size, size, size, size, 2**40, 0])
            header = io.BytesIO()
            np.lib.format.write_array_header_1_0(header, {"descr": dtype, "fortran_order": False, "shape": (claimed,)})
            archive.writestr(f"{name}.npy", header.getvalue() + content)
    (folder / "data.npz").write_bytes(out.getvalue())
    found = formats.read(folder / "data.npz", format="npz")
    assert found.X is not None
    assert found.X.shape[0] == found.Y.shape[0]


def read_catalogue(data: bytes, folder: Path) -> None:
    """Files of label names."""
    source = atheris.FuzzedDataProvider(data)
    path = folder / source.PickValueInList(["labels.tsv", "labels.csv", "labels.jsonl", "labels.txt"])
    path.write_bytes(source.ConsumeBytes(MAX_BYTES))
    found = catalogue.LabelCatalogue.of(path)
    for label in found:
        found.display_name(label, "en")
    formats.read_label_names(path)


SOURCE = Directory(GOLDEN / "popular")


def read_store(data: bytes, folder: Path) -> None:
    """Model directories: the text of the manifest, values in it, and the bytes of a file."""
    source = atheris.FuzzedDataProvider(data)
    model = SOURCE.copy()
    kind = source.ConsumeIntInRange(0, 2)
    if kind == 0:
        text = json.dumps(model.manifest).encode()
        at = source.ConsumeIntInRange(0, len(text))
        model.raw_manifest = text[:at] + source.ConsumeBytes(100) + text[at + source.ConsumeIntInRange(0, 50) :]
    elif kind == 1:
        model.raw_manifest = source.ConsumeBytes(MAX_BYTES)
    else:
        name = source.PickValueInList(sorted(model.files))
        content = model.files[name]
        at = source.ConsumeIntInRange(0, len(content))
        model.files[name] = content[:at] + source.ConsumeBytes(200) + content[at + source.ConsumeIntInRange(0, 200) :]
        model.mend(name)
    model.write(folder / "model")
    ramify.load(folder / "model", verify=source.ConsumeBool()).predict_topk(["a fox"], k=3).labels()


TARGETS: dict[str, Callable[[bytes, Path], None]] = {
    "records": read_records,
    "xmc": read_xmc,
    "npz": read_npz,
    "catalogue": read_catalogue,
    "store": read_store,
}


def main() -> None:
    """Fuzz one target."""
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        raise SystemExit(f"usage: python fuzz/readers.py TARGET [options of libFuzzer]; of {', '.join(TARGETS)}")
    read, arguments = TARGETS[sys.argv[1]], [sys.argv[0], *sys.argv[2:]]
    with scratch_directory() as name:
        folder = Path(name)

        def test_one(data: Any) -> None:
            with contextlib.suppress(ramify.DataError, ramify.ModelFormatError):
                read(bytes(data), folder)

        atheris.Setup(arguments, test_one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
