"""The native reader of XMC text against the reference implementation, and bad lines."""

from __future__ import annotations

import gzip
import lzma
import tracemalloc

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import ramify
import ramify.io.files
from ramify import DataError
from ramify.io import xmc
from ramify.io.files import BadLines

pytestmark = pytest.mark.native


def read(path, skip=False, threads=None):
    bad = BadLines(path, skip)
    features, labels, _ = xmc.read_xmc(path, bad, threads)
    return features, labels, bad


def assert_same(found, expected):
    expected = sparse.csr_matrix(expected)
    expected.eliminate_zeros()
    assert found.shape == expected.shape
    assert found.has_canonical_format
    assert np.array_equal(found.indptr, expected.indptr)
    assert np.array_equal(found.indices, expected.indices)
    assert np.allclose(found.data, expected.data, rtol=1e-6, atol=0)


def random_text(rng, n, d, n_labels):
    lines = [f"{n} {d} {n_labels}"]
    for _ in range(n):
        labels = rng.choice(n_labels, rng.integers(0, 5), replace=False)
        features = rng.choice(d, rng.integers(0, 30), replace=False)
        values = rng.choice([1.0, -2.5, 0.125, 1e-7, 3.4e5, rng.random(), rng.normal()], len(features))
        pairs = " ".join(f"{f}:{v:.7g}" for f, v in zip(features, values, strict=True))
        lines.append(f"{','.join(map(str, labels))} {pairs}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("chunk", [64, 1000, 1 << 20])
def test_equals_the_reference(tmp_path, monkeypatch, threads, chunk):
    monkeypatch.setattr(xmc, "CHUNK", chunk)
    text = random_text(np.random.default_rng(chunk), 300, 1000, 50)
    path = tmp_path / "a.txt"
    path.write_text(text)
    features, labels, _ = read(path, threads=threads)
    expected = reference.read_xmc(text)
    assert_same(features, expected[0])
    assert_same(labels, expected[1])


def test_order_of_blocks_and_chunks(tmp_path):
    """Several blocks per chunk and several chunks, with one thread and with four."""
    rng = np.random.default_rng(3)
    text = random_text(rng, 96_000, 100_000, 3000)
    assert len(text) > 2 * xmc.CHUNK
    path = tmp_path / "a.txt"
    path.write_text(text)
    one, many = read(path, threads=1), read(path, threads=4)
    for a, b in zip(one[:2], many[:2], strict=True):
        for part in ("indptr", "indices", "data"):
            assert np.array_equal(getattr(a, part), getattr(b, part))
    rows = text.splitlines()
    some = [0, 1, 19_999, 95_999]
    expected = reference.read_xmc("\n".join([f"{len(some)} 100000 3000", *(rows[i + 1] for i in some)]))
    assert_same(one[0][some], expected[0])
    assert_same(one[1][some], expected[1])


@settings(max_examples=200, deadline=None)
@given(
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.sampled_from(["{!r}", "{:.3f}", "{:e}", "{:.17g}", "+{!r}"]),
)
def test_numbers_are_parsed_as_in_python(tmp_path_factory, value, form):
    written = form.format(value).replace("+-", "-")
    path = tmp_path_factory.mktemp("n") / "a.txt"
    path.write_text(f"1 3 2\n1 2:{written} 0:1\n")
    features, _, _ = read(path, threads=1)
    assert features[0, 2] == np.float32(float(written))


@pytest.mark.parametrize("write", [
    lambda p, t: p.write_text(t),
    lambda p, t: p.write_bytes(gzip.compress(t.encode())),
    lambda p, t: p.write_bytes(lzma.compress(t.encode())),
    lambda p, t: p.write_bytes(b"\xef\xbb\xbf" + t.replace("\n", "\r\n").encode()),
    lambda p, t: p.write_text(t + "\n\n"),
    lambda p, t: p.write_text(t.rstrip("\n")),
])  # fmt: skip
def test_compression_line_ends_and_blank_lines(tmp_path, write):
    text = "3 5 4\n0,3 1:0.5 4:2\n 0:1\n2 \n"
    path = tmp_path / "a.txt"
    write(path, text)
    features, labels, _ = read(path)
    expected = reference.read_xmc(text)
    assert_same(features, expected[0])
    assert_same(labels, expected[1])
    assert len(ramify.read(path)) == 3


def test_unsorted_repeated_and_zero_entries(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("4 6 5\n3,1,3 5:1 2:2 5:0.5\n0:1\n\n4\t1:0\t2:3\n")
    features, labels, _ = read(path)
    expected = np.array([[0, 0, 2, 0, 0, 1.5], [1, 0, 0, 0, 0, 0], [0] * 6, [0, 0, 3, 0, 0, 0]])
    assert np.array_equal(features.toarray(), expected)  # sorted, duplicates summed, zero dropped
    assert [row.indices.tolist() for row in labels] == [[1, 3], [], [], [4]]  # a repeated label counts once
    assert features.has_canonical_format
    assert features.nnz == 4
    path.write_text("1 6 5\n1 3:1 3:-1 2:1e-50 1:1\n")
    assert read(path)[0].indices.tolist() == [1]  # values that sum or underflow to zero are dropped


@pytest.mark.parametrize(("line", "reason"), [
    ("5 0:1", "label 5 is beyond the 5"),
    ("-1 0:1", "label '-1'"),
    ("x 0:1", "label 'x'"),
    ("1,,2 0:1", "label"),
    ("1 6:1", "feature 6 is beyond the 6"),
    ("1 2:nan", "not finite"),
    ("1 2:inf", "not finite"),
    ("1 2:1e39", "not finite"),
    ("1 2:1e999", "out of range"),
    ("1 2:3e38 2:3e38", "not finite"),
    ("1 2:", "not a number"),
    ("1 2:1x", "not a number"),
    ("1 2:1:3", "not a number"),
    ("1 2", "expected feature:value"),
    ("1 :3", "feature"),
    ("1 99999999999999999999:1", "feature"),
    ("1 1.5:2", "expected feature:value"),
])  # fmt: skip
def test_bad_lines_are_reported_or_skipped(tmp_path, line, reason):
    path = tmp_path / "a.txt"
    path.write_text(f"4 6 5\n1 0:1\n2 1:1\n{line}\n3 2:1\n")
    with pytest.raises(ramify.DataError, match=reason) as error:
        read(path)
    assert f"{path}:4: " in str(error.value)
    features, labels, bad = read(path, skip=True)
    assert (bad.n_skipped, bad.skipped[0].line) == (1, 4)
    assert reason in bad.skipped[0].reason
    assert labels.indices.tolist() == [1, 2, 3]
    assert features.shape == (3, 6)


@pytest.mark.parametrize(("text", "reason"), [
    ("3 6 5\n1 0:1\n", "header says 3 samples, but the file has 1"),
    ("1 6 5\n1 0:1\n1 0:1\n", "header says 1 samples, but the file has 2"),
    ("6 5\n1 0:1\n", "expected a header"),
    ("nothing here\n", "expected a header"),
    ("", "expected a header"),
    ("1 3000000000 5\n1 0:1\n", "more than"),
])  # fmt: skip
def test_invalid_headers(tmp_path, text, reason):
    path = tmp_path / "a.txt"
    path.write_text(text)
    with pytest.raises(ramify.DataError, match=reason):
        read(path)


def test_truncated_compressed_file(tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(random_text(np.random.default_rng(0), 500, 90, 9).encode())[:-40])
    with pytest.raises(ramify.DataError, match="truncated"):
        read(path)


def test_pairs_of_files(tmp_path):
    (tmp_path / "trn_X_Xf.txt").write_text("3 5\n0:1 2:2\n1:nan\n4:1\n")
    (tmp_path / "trn_X_Y.txt").write_text("3 4\n1:1 0:1\n2:1\n3:7\n")
    with pytest.raises(ramify.DataError, match=r"trn_X_Xf.txt:3: "):
        ramify.read(tmp_path / "trn_X_Y.txt")
    data = ramify.read(tmp_path / "trn_X_Y.txt", skip_bad=True)
    assert data.n_skipped == 1
    assert data.lines.tolist() == [2, 4]
    assert np.array_equal(data.X.toarray(), [[1, 0, 2, 0, 0], [0, 0, 0, 0, 1]])
    assert np.array_equal(data.Y.toarray(), [[1, 1, 0, 0], [0, 0, 0, 1]])  # the value of a label is ignored
    (tmp_path / "trn_X_Xf.txt").write_text("2 5\n0:1 2:2\n4:1\n")
    with pytest.raises(ramify.DataError, match="has 2 samples"):
        ramify.read(tmp_path / "trn_X_Xf.txt")
    (tmp_path / "trn_X_Y.txt").unlink()
    with pytest.raises(ramify.DataError, match="is missing"):
        ramify.read(tmp_path / "trn_X_Xf.txt")


def test_write_and_read(tmp_path):
    text = random_text(np.random.default_rng(1), 50, 80, 12)
    (tmp_path / "a.txt").write_text(text)
    data = ramify.read(tmp_path / "a.txt")
    for name in ("b.txt", "b.txt.gz", "b.txt.xz", "b.npz"):
        ramify.write(data, tmp_path / name)
        again = ramify.read(tmp_path / name)
        assert np.array_equal(again.X.data, data.X.data)
        assert np.array_equal(again.X.indices, data.X.indices)
        assert np.array_equal(again.Y.indices, data.Y.indices)
        assert again.X.shape == data.X.shape


def test_trailing_blank_lines_after_bad_lines(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("3 5 4\n0 1:1\nbroken\n2 2:1\n\n")
    features, _, bad = read(path, skip=True)
    assert features.shape == (2, 5)
    assert [b.line for b in bad.skipped] == [3]


def test_bad_lines_may_hold_any_bytes(tmp_path):
    path = tmp_path / "x.txt"
    path.write_bytes(b"3 5 4\n1 2:1\n0 \xff\xfe\x80:1\n2 3:1\n")
    with pytest.raises(DataError, match=r"x.txt:3: feature '\\xff\\xfe\\x80:1' is not"):
        ramify.read(path)
    data = ramify.read(path, skip_bad=True)
    assert data.Y.indices.tolist() == [1, 2]
    assert data.skipped[0].line == 3
    assert data.lines.tolist() == [2, 4]
    assert data.subset([1]).lines.tolist() == [4]
    path.write_bytes(b"2 5 4\n1 2:1\n2 3:1\n")
    assert ramify.read(path, skip_bad=True).lines is None


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_long_lines_and_lines_around_the_blocks_of_the_parser(tmp_path, suffix):
    """The parser cuts its input into blocks of 256 KiB; lines may be longer than several blocks, or end at a border."""
    rng = np.random.default_rng(0)
    sizes = [3, 90_000, 1, 0, 40_000, 2, 200_000, *rng.integers(0, 40, 3000)]
    lines = [" ".join(["1", *(f"{i}:1" for i in range(n))]) for n in sizes]
    lines[1] = lines[1].ljust(1 << 19, " ")  # ends exactly with a block
    path = tmp_path / f"x.txt{suffix}"
    with ramify.io.files.open_for_writing(path) as out:
        out.write(f"{len(lines)} 200000 2\n".encode() + "\n".join(lines).encode())
    for threads in (1, 3):
        X, Y, _ = xmc.read_xmc(path, BadLines(path, skip=False), threads)
        assert np.diff(X.indptr).tolist() == sizes
        assert Y.indices.tolist() == [1] * len(sizes)


def test_a_header_that_promises_millions_of_columns_costs_nothing(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("1 2000000000 2000000000\n7 1:1 2:0.5\n")
    tracemalloc.start()
    data = ramify.read(path)
    assert data.labels() == [[7]]
    assert tracemalloc.get_traced_memory()[1] < 30_000_000
    tracemalloc.stop()
