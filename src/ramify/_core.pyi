"""The compiled core as Python sees it; cpp/bindings*.cpp say the same in C++. Only `ramify.base.native` imports it."""

from collections.abc import Callable
from typing import TypedDict

from ramify.base.types import AnyArray, ByteArray, CodeArray, DoubleArray, FloatArray, IntArray, LongArray

def isa() -> str: ...
def parallel_probe(numbers: list[int], busy_seconds: float, threads: int) -> list[int]: ...

class Analyzer:
    def __init__(
        self, unit: str, min_n: int, max_n: int, lowercase: bool, min_token: int, stop_words: list[str]
    ) -> None: ...

class CorpusCounts:
    @staticmethod
    def count(
        analyzer: Analyzer, texts: list[str], field_weights: list[float], with_tf: bool, threads: int
    ) -> CorpusCounts: ...
    def select(self, min_df: int, max_df: int, threads: int) -> None: ...
    def document_frequency(self) -> LongArray: ...
    def term_frequency(self) -> DoubleArray: ...
    def freeze(self, keep: ByteArray | None) -> tuple[AnyArray, ByteArray, ByteArray]: ...
    def rows(
        self, idf: DoubleArray | None, binary: bool, sublinear: bool, norm: str, threads: int
    ) -> tuple[AnyArray, IntArray, FloatArray]: ...

class Tfidf:
    def __init__(
        self,
        analyzer: Analyzer,
        offsets: AnyArray,
        bytes: ByteArray,
        slots: ByteArray,
        idf: DoubleArray | None,
        binary: bool,
        sublinear: bool,
        norm: str,
    ) -> None: ...
    def transform(
        self, texts: list[str], field_weights: list[float], threads: int
    ) -> tuple[AnyArray, IntArray, FloatArray]: ...

class XmcText:
    def __init__(self, n_features: int, n_labels: int, with_labels: bool, first_line: int, threads: int) -> None: ...
    def feed(self, chunk: ByteArray, last: bool, stop_at_bad: bool) -> int: ...
    def n_bad(self) -> int: ...
    def bad_rows(self) -> LongArray: ...
    def bad_lines(self) -> list[tuple[int, str]]: ...
    def finish(self) -> tuple[LongArray, IntArray, LongArray, IntArray, FloatArray]: ...

def is_canonical(indptr: AnyArray, indices: AnyArray, data: FloatArray, n_rows: int, n_columns: int) -> bool: ...
def spmm(
    a_indptr: AnyArray,
    a_indices: AnyArray,
    a_data: FloatArray,
    b_indptr: AnyArray,
    b_indices: AnyArray,
    b_data: FloatArray,
    n_columns: int,
    unit_rows: bool,
    threads: int,
) -> tuple[AnyArray, IntArray, FloatArray]: ...
def spmm_dense(
    a_indptr: AnyArray, a_indices: AnyArray, a_data: FloatArray, b: FloatArray, threads: int
) -> FloatArray: ...
def largest_entries(
    indptr: AnyArray, indices: AnyArray, data: FloatArray, n: int, threads: int
) -> tuple[AnyArray, IntArray, FloatArray]: ...
def balanced_halves(
    indptr: AnyArray,
    indices: AnyArray,
    data: FloatArray,
    n_columns: int,
    depth: int,
    spherical: bool,
    max_iterations: int,
    tolerance: float,
    seed: int,
    threads: int,
) -> IntArray: ...
def kmeans(
    indptr: AnyArray,
    indices: AnyArray,
    data: FloatArray,
    n_columns: int,
    n_clusters: int,
    balanced: bool,
    spherical: bool,
    max_iterations: int,
    tolerance: float,
    seed: int,
    threads: int,
) -> IntArray: ...
def fit_ovr(
    indptr: AnyArray,
    indices: AnyArray,
    data: FloatArray,
    n_sparse: int,
    dense: FloatArray,
    positives: tuple[LongArray, LongArray, FloatArray | None],
    negatives: tuple[LongArray, LongArray, FloatArray | None] | None,
    clusters: LongArray,
    start: tuple[LongArray, LongArray, FloatArray | None] | None,
    loss: int,
    positive_costs: FloatArray,
    negative_cost: float,
    bias: float,
    tolerance: float,
    max_passes: int,
    threshold: float,
    max_weights: int,
    seed: int,
    threads: int,
    progress: Callable[[int], None] | None,
) -> tuple[tuple[AnyArray, IntArray, FloatArray], int, int, int]: ...
def pack_weights(
    indptr: AnyArray, indices: AnyArray, data: FloatArray, n_features: int, children: LongArray, threads: int
) -> tuple[AnyArray, ByteArray, FloatArray]: ...

class BeamTree:
    def __init__(self, n_sparse: int, labels: IntArray | None, n_labels: int, repeats: bool) -> None: ...
    def add_level(
        self,
        children: LongArray,
        heads: AnyArray,
        table: ByteArray,
        codebook: FloatArray,
        bias: FloatArray,
        dense: FloatArray,
        transform: int,
        power: float,
    ) -> None: ...
    def search(
        self,
        indptr: AnyArray,
        indices: AnyArray,
        data: FloatArray,
        dense: FloatArray,
        depth: int,
        beam_size: int,
        k: int,
        threads: int,
    ) -> tuple[IntArray, FloatArray]: ...
    def score_selected(
        self,
        indptr: AnyArray,
        indices: AnyArray,
        data: FloatArray,
        dense: FloatArray,
        rows: LongArray,
        labels: IntArray,
        place_begin: LongArray,
        places: IntArray,
        threads: int,
    ) -> FloatArray: ...

def blend_rankings(ids: IntArray, scores: FloatArray, k: int, threads: int) -> tuple[IntArray, FloatArray]: ...
def list_topk(ids: IntArray, scores: FloatArray, k: int, threads: int) -> tuple[IntArray, FloatArray]: ...

class RankingSums(TypedDict):
    hits: DoubleArray
    ndcg: DoubleArray
    recall: DoubleArray
    weighted_hits: DoubleArray
    weighted_ndcg: DoubleArray
    best_weighted_hits: DoubleArray
    best_weighted_ndcg: DoubleArray
    first_rank: IntArray
    n_rows: int

def ranking_hits(ids: IntArray, indptr: AnyArray, indices: AnyArray, n_labels: int, threads: int) -> ByteArray: ...
def ranking_sums(
    ids: IntArray,
    indptr: AnyArray,
    indices: AnyArray,
    n_labels: int,
    cutoffs: LongArray,
    weights: DoubleArray,
    groups: ByteArray,
    n_groups: int,
    threads: int,
) -> RankingSums: ...
def csr_topk(
    indptr: AnyArray, indices: AnyArray, data: FloatArray, k: int, threads: int
) -> tuple[IntArray, FloatArray]: ...
def explore(
    begin: LongArray,
    labels: IntArray,
    edge_scores: FloatArray,
    n_labels: int,
    clusters: FloatArray,
    order: FloatArray,
    beam: int,
    width: int,
    truth: tuple[LongArray, IntArray, IntArray] | None,
    threads: int,
) -> tuple[IntArray, FloatArray, IntArray, ByteArray, FloatArray, IntArray]: ...
def spread_gradients(
    edges: IntArray, gradients: FloatArray, edge_cluster: IntArray, by_cluster: FloatArray, by_edge: DoubleArray
) -> None: ...
def path_loss(
    labels: IntArray, scores: FloatArray, logits: FloatArray, targets: ByteArray, weight: float, threads: int
) -> tuple[float, FloatArray, FloatArray]: ...
def score_edges(
    begin: LongArray, logits: FloatArray, raw: FloatArray, scores: FloatArray, log_beta: float, threads: int
) -> None: ...
def step_edges(
    begin: LongArray,
    gradients: DoubleArray,
    logits: FloatArray,
    raw: FloatArray,
    scores: FloatArray,
    first: FloatArray,
    second: FloatArray,
    clusters: IntArray,
    log_beta: float,
    adam: tuple[float, float, float, float, float, int],
    threads: int,
) -> None: ...
def score_lists(
    begin: LongArray,
    features: IntArray,
    weights: FloatArray,
    dense_weights: FloatArray,
    offset: FloatArray,
    indptr: AnyArray,
    indices: AnyArray,
    data: FloatArray,
    n_columns: int,
    dense: FloatArray,
    lists: IntArray,
    threads: int,
) -> FloatArray: ...
def group_pairs(lists: IntArray, n_rows: int) -> tuple[IntArray, LongArray, LongArray]: ...
def gather_dot(
    pairs: tuple[IntArray, LongArray, LongArray],
    width: int,
    table: FloatArray,
    offset: FloatArray,
    vectors: FloatArray,
    threads: int,
) -> FloatArray: ...
def all_products(table: FloatArray, vectors: FloatArray, threads: int) -> FloatArray: ...
def gather_dot_back(
    pairs: tuple[IntArray, LongArray, LongArray], table: FloatArray, gradients: FloatArray, threads: int
) -> FloatArray: ...
def row_adam(
    pairs: tuple[IntArray, LongArray, LongArray],
    gradients: FloatArray,
    vectors: FloatArray,
    table: FloatArray,
    offset: FloatArray | None,
    slots: LongArray,
    first: FloatArray,
    second: FloatArray,
    adam: tuple[float, float, float, float, float, int],
    threads: int,
) -> None: ...
def flat_adam(
    values: FloatArray,
    gradients: FloatArray,
    first: FloatArray,
    second: FloatArray,
    adam: tuple[float, float, float, float, float, int],
) -> None: ...
def encode_bags(
    indptr: AnyArray,
    indices: AnyArray,
    data: FloatArray,
    words: FloatArray,
    residual: FloatArray,
    offset: FloatArray,
    threads: int,
) -> FloatArray: ...
def encode_dense(h: FloatArray, residual: FloatArray, offset: FloatArray, threads: int) -> FloatArray: ...
def search_graph(
    begin: LongArray,
    labels: IntArray,
    edge_scores: FloatArray,
    cluster_weights: FloatArray,
    cluster_offsets: FloatArray,
    label_weights: FloatArray,
    label_offsets: FloatArray,
    log_alpha: float,
    beam: int,
    width: int,
    vectors: FloatArray,
    k: int,
    threads: int,
) -> tuple[IntArray, FloatArray]: ...
def unit_vectors(vectors: FloatArray, threads: int) -> FloatArray: ...
def encode_vectors(vectors: FloatArray, threads: int) -> tuple[CodeArray, FloatArray]: ...
def search_lists(
    middles: CodeArray,
    middle_steps: FloatArray,
    begin: LongArray,
    names: IntArray,
    vectors: FloatArray,
    codes: CodeArray,
    steps: FloatArray,
    queries: FloatArray,
    n_read: int,
    k: int,
    ordered: bool,
    threads: int,
) -> tuple[IntArray, FloatArray]: ...
def rank_lists(
    table: FloatArray,
    offset: FloatArray,
    beta: float,
    lists: IntArray,
    evidence: FloatArray,
    vectors: FloatArray,
    k: int,
    threads: int,
) -> tuple[IntArray, FloatArray]: ...
def merge_votes(
    label_ids: IntArray,
    label_similarities: FloatArray,
    point_ids: IntArray,
    point_similarities: FloatArray,
    begin: LongArray,
    labels: IntArray,
    n_labels: int,
    share: float,
    k: int,
    threads: int,
) -> tuple[IntArray, FloatArray]: ...

class TextEncoder:
    def __init__(
        self,
        words: FloatArray,
        positions: FloatArray,
        norm: tuple[FloatArray, FloatArray],
        n_heads: int,
        hidden: int,
        epsilon: float,
    ) -> None: ...
    def add_layer(
        self,
        query: tuple[FloatArray, FloatArray],
        key: tuple[FloatArray, FloatArray],
        value: tuple[FloatArray, FloatArray],
        out: tuple[FloatArray, FloatArray],
        attention_norm: tuple[FloatArray, FloatArray],
        up: tuple[FloatArray, FloatArray],
        down: tuple[FloatArray, FloatArray],
        norm: tuple[FloatArray, FloatArray],
    ) -> None: ...
    def encode(self, tokens: IntArray, begin: LongArray, first: bool, threads: int) -> FloatArray: ...
