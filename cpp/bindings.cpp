// The border to Python, and the only file that knows of it. It turns arrays into views, strings into code points and
// results into arrays. Sizes that belong together are checked here or in src/ramify/base/native.py.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "beam.h"
#include "corpus_counts.h"
#include "csr.h"
#include "isa.h"
#include "kmeans.h"
#include "metrics.h"
#include "ovr_solver.h"
#include "packed.h"
#include "parallel.h"
#include "spmm.h"
#include "text.h"
#include "tfidf.h"
#include "topk.h"
#include "vocabulary.h"
#include "xmc_text.h"

namespace nb = nanobind;
using namespace ramify;

namespace {

template <class T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using In2 = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Out = nb::ndarray<nb::numpy, T>;

template <class T>
Out<T> give(T* data, std::initializer_list<std::size_t> shape, void (*destroy)(void*) noexcept) {
    return Out<T>(data, shape, nb::capsule(data, destroy));
}
template <class T>
Out<T> give_new(std::unique_ptr<T[]> data, std::initializer_list<std::size_t> shape) {
    return give(data.release(), shape, [](void* p) noexcept { delete[] static_cast<T*>(p); });
}
template <class T>
Out<T> give_vector(std::vector<T>&& items, std::initializer_list<std::size_t> shape) {
    auto* kept = new std::vector<T>(std::move(items));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return Out<T>(kept->data(), shape, owner);
}
template <class T>
Out<T> give_vector(std::vector<T>&& items) {
    const std::size_t n = items.size();
    return give_vector(std::move(items), {n});
}

void check_signals() {
    nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

// ---- text ----

std::uint32_t classify(std::uint32_t c) {
    std::uint32_t entry = Py_UNICODE_TOLOWER(static_cast<Py_UCS4>(c)) & UnicodeTable::lower_mask;
    if (Py_UNICODE_ISALNUM(static_cast<Py_UCS4>(c)) || c == '_') entry |= UnicodeTable::word_flag;
    if (Py_UNICODE_ISSPACE(static_cast<Py_UCS4>(c))) entry |= UnicodeTable::space_flag;
    return entry;
}

std::shared_ptr<const UnicodeTable> unicode_table() {
    static const auto table = std::make_shared<const UnicodeTable>(classify);
    return table;
}

// Two letters have a lower case that depends on their neighbours or is longer than they are: İ and Σ.
template <class Unit>
bool has_special_lower_case(const void* text, std::int64_t n) {
    const Unit* units = static_cast<const Unit*>(text);
    bool found = false;
    for (std::int64_t i = 0; i < n; ++i) found |= (units[i] == 0x130) | (units[i] == 0x3a3);  // no exit: it vectorises
    return found;
}
bool has_special_lower_case(const TextView& text) {
    if (text.width == 1) return false;
    return text.width == 2 ? has_special_lower_case<std::uint16_t>(text.data, text.length)
                           : has_special_lower_case<std::uint32_t>(text.data, text.length);
}

// Views of Python strings. It owns references, so the strings outlive the work even while other Python threads run.
class Texts {
public:
    Texts(nb::list texts, bool lowercase) : kept_(nb::steal<nb::tuple>(PyList_AsTuple(texts.ptr()))) {
        if (!kept_.is_valid()) throw nb::python_error();
        views_.reserve(nb::len(kept_));
        for (std::size_t i = 0; i < nb::len(kept_); ++i) {
            PyObject* text = PyTuple_GET_ITEM(kept_.ptr(), static_cast<Py_ssize_t>(i));
            if (!PyUnicode_Check(text))
                throw nb::type_error(("text " + std::to_string(i) + " is " + Py_TYPE(text)->tp_name + ", not str").c_str());
            TextView view = view_of(text);
            if (lowercase && has_special_lower_case(view)) {
                lowered_.push_back(nb::borrow(text).attr("lower")());
                view = view_of(lowered_.back().ptr());
            }
            views_.push_back(view);
        }
    }
    const std::vector<TextView>& views() const { return views_; }

private:
    static TextView view_of(PyObject* text) {
        return {PyUnicode_DATA(text), static_cast<std::int64_t>(PyUnicode_GET_LENGTH(text)), static_cast<int>(PyUnicode_KIND(text))};
    }

    nb::tuple kept_;
    std::vector<nb::object> lowered_;
    std::vector<TextView> views_;
};

struct PyAnalyzer {
    AnalyzerSpec spec;

    PyAnalyzer(const std::string& unit, int min_n, int max_n, bool lowercase, int min_token,
               const std::vector<std::string>& stop_words) {
        spec.unit = unit == "word" ? TermUnit::word : unit == "char" ? TermUnit::chars : TermUnit::chars_in_words;
        spec.min_n = min_n;
        spec.max_n = max_n;
        spec.lowercase = lowercase;
        spec.min_token = min_token;
        spec.unicode = unicode_table();
        for (std::string word : stop_words) {
            const std::size_t n = word.size();
            word.resize(n + term_padding);
            spec.stop_words.find_or_add({reinterpret_cast<const std::uint8_t*>(word.data()), n});
        }
    }
};

struct FieldCorpus {
    Texts texts;
    std::vector<float> weights;
    Corpus corpus;

    FieldCorpus(nb::list list, std::vector<float> field_weights, bool lowercase)
        : texts(list, lowercase), weights(std::move(field_weights)) {
        const auto n_fields = static_cast<std::int64_t>(weights.size());
        if (n_fields == 0 || texts.views().size() % weights.size() != 0)
            throw std::invalid_argument("every document needs a text for each field");
        corpus = {texts.views().data(), static_cast<std::int64_t>(texts.views().size()) / n_fields, n_fields, weights.data()};
    }
};

Weighting make_weighting(bool binary, bool sublinear, const std::string& norm, const double* idf) {
    const auto kind = norm == "l1" ? Weighting::Norm::l1 : norm == "l2" ? Weighting::Norm::l2 : Weighting::Norm::none;
    return {binary, sublinear, kind, idf};
}

// scipy wants both index arrays of one type; it widens them itself in the rare case that needs it.
nb::tuple give_rows(CsrRows&& rows) {
    const auto nnz = static_cast<std::size_t>(rows.indptr.back());
    nb::object indptr;
    if (rows.indptr.back() <= std::numeric_limits<std::int32_t>::max()) {
        indptr = nb::cast(give_vector(std::vector<std::int32_t>(rows.indptr.begin(), rows.indptr.end())));
    } else {
        indptr = nb::cast(give_vector(std::move(rows.indptr)));
    }
    return nb::make_tuple(indptr, give_new(std::move(rows.indices), {nnz}), give_new(std::move(rows.data), {nnz}));
}

std::vector<std::uint8_t> slots_to_bytes(const SlotTable& slots) {
    std::vector<std::uint8_t> bytes(slots.size() * sizeof(Slot));
    std::memcpy(bytes.data(), slots.data(), bytes.size());
    return bytes;
}

struct PyCorpusCounts {
    CorpusCounts counts;

    static PyCorpusCounts make(const PyAnalyzer& analyzer, nb::list texts, std::vector<float> weights, bool with_tf, int threads) {
        FieldCorpus corpus(texts, std::move(weights), analyzer.spec.lowercase);
        nb::gil_scoped_release release;
        return {CorpusCounts(analyzer.spec, corpus.corpus, with_tf, threads)};
    }
};

// A finished vocabulary with its weights, over arrays that Python keeps alive (memory-mapped, mostly).
class PyTfidf {
public:
    PyTfidf(const PyAnalyzer& analyzer, In<std::uint64_t> offsets, In<std::uint8_t> bytes, In<std::uint8_t> slots,
            std::optional<In<double>> idf, bool binary, bool sublinear, const std::string& norm)
        : analyzer_(analyzer), offsets_(offsets), bytes_(bytes), slots_(slots), idf_(idf) {
        if (offsets.shape(0) < 1 || slots.shape(0) % sizeof(Slot) != 0)
            throw std::invalid_argument("the vocabulary's arrays have impossible sizes");
        if (reinterpret_cast<std::uintptr_t>(slots.data()) % alignof(Slot) != 0)
            throw std::invalid_argument("the vocabulary's hash table is not aligned");
        vocabulary_ = {static_cast<std::int64_t>(offsets.shape(0)) - 1, offsets.data(), bytes.data(),
                       reinterpret_cast<const Slot*>(slots.data()), slots.shape(0) / sizeof(Slot)};
        if (idf && static_cast<std::int64_t>(idf->shape(0)) != vocabulary_.n_terms)
            throw std::invalid_argument("the vocabulary and its idf differ in length");
        check_vocabulary(vocabulary_, bytes.shape(0));
        weighting_ = make_weighting(binary, sublinear, norm, idf ? idf->data() : nullptr);
    }

    nb::tuple transform(nb::list texts, std::vector<float> weights, int threads) const {
        FieldCorpus corpus(texts, std::move(weights), analyzer_.spec.lowercase);
        CsrRows rows;
        {
            nb::gil_scoped_release release;
            rows = tfidf_rows(analyzer_.spec, vocabulary_, weighting_, corpus.corpus, threads);
        }
        return give_rows(std::move(rows));
    }

private:
    PyAnalyzer analyzer_;
    In<std::uint64_t> offsets_;
    In<std::uint8_t> bytes_, slots_;
    std::optional<In<double>> idf_;
    VocabularyView vocabulary_;
    Weighting weighting_;
};

// ---- XMC text ----

struct PyXmcText {
    XmcTextParser parser;

    PyXmcText(std::int64_t n_features, std::int64_t n_labels, bool with_labels, std::int64_t first_line, int threads)
        : parser({n_features, n_labels, with_labels}, first_line, threads) {}

    std::int64_t feed(nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig> chunk, bool last, bool stop_at_bad) {
        nb::gil_scoped_release release;
        return parser.feed(reinterpret_cast<const char*>(chunk.data()), static_cast<std::int64_t>(chunk.shape(0)), last, stop_at_bad);
    }

    std::vector<std::tuple<std::int64_t, std::string>> bad_lines() const {
        std::vector<std::tuple<std::int64_t, std::string>> lines;
        for (const BadLine& bad : parser.bad_lines()) lines.emplace_back(bad.line, bad.reason);
        return lines;
    }

    template <class T>
    static Out<T> give_growing(GrowingArray<T>& items) {
        const std::size_t n = items.size();
        return give(items.release(), {n}, [](void* p) noexcept { std::free(p); });
    }

    nb::tuple finish() {
        return nb::make_tuple(give_growing(parser.label_ends), give_growing(parser.labels), give_growing(parser.feature_ends),
                              give_growing(parser.features), give_growing(parser.values));
    }
};

// ---- matrices ----

template <class Index>
CsrView<Index> csr_view(In<Index> indptr, In<Index> indices, const float* data, std::int64_t cols) {
    return {static_cast<std::int64_t>(indptr.shape(0)) - 1, cols, indptr.data(), indices.data(), data};
}

template <class Index>
bool py_is_canonical(In<Index> indptr, In<Index> indices, In<float> data, std::int64_t n_rows, std::int64_t n_columns) {
    if (static_cast<std::int64_t>(indptr.shape(0)) != n_rows + 1) return false;
    return is_canonical(csr_view<Index>(indptr, indices, data.data(), n_columns),
                        static_cast<std::int64_t>(std::min(indices.shape(0), data.shape(0))));
}

template <class Index>
nb::tuple py_spmm(In<Index> a_indptr, In<Index> a_indices, In<float> a_data, In<Index> b_indptr, In<Index> b_indices,
                  In<float> b_data, std::int64_t n_columns, bool unit_rows, int threads) {
    const auto a = csr_view<Index>(a_indptr, a_indices, a_data.data(), static_cast<std::int64_t>(b_indptr.shape(0)) - 1);
    const auto b = csr_view<Index>(b_indptr, b_indices, b_data.data(), n_columns);
    CsrRows rows;
    {
        nb::gil_scoped_release release;
        rows = spmm(a, b, unit_rows, threads);
    }
    return give_rows(std::move(rows));
}

template <class Index>
Out<float> py_spmm_dense(In<Index> a_indptr, In<Index> a_indices, In<float> a_data, In2<float> b, int threads) {
    const auto a = csr_view<Index>(a_indptr, a_indices, a_data.data(), static_cast<std::int64_t>(b.shape(0)));
    const auto m = static_cast<std::size_t>(a.rows), q = b.shape(1);
    auto out = std::make_unique_for_overwrite<float[]>(m * q);
    {
        nb::gil_scoped_release release;
        spmm_dense(a, b.data(), static_cast<std::int64_t>(q), threads, out.get());
    }
    return give_new(std::move(out), {m, q});
}

// ---- clusters ----

template <class Index>
Out<std::int32_t> py_balanced_halves(In<Index> indptr, In<Index> indices, In<float> data, std::int64_t n_columns, int depth,
                                     bool spherical, int max_iterations, double tolerance, std::uint64_t seed, int threads) {
    std::vector<std::int32_t> order;
    {
        nb::gil_scoped_release release;
        order = balanced_halves(csr_view<Index>(indptr, indices, data.data(), n_columns), depth,
                                {spherical, max_iterations, tolerance, seed}, threads);
    }
    return give_vector(std::move(order));
}

template <class Index>
Out<std::int32_t> py_kmeans(In<Index> indptr, In<Index> indices, In<float> data, std::int64_t n_columns, std::int64_t n_clusters,
                            bool balanced, bool spherical, int max_iterations, double tolerance, std::uint64_t seed, int threads) {
    std::vector<std::int32_t> clusters;
    {
        nb::gil_scoped_release release;
        clusters = kmeans(csr_view<Index>(indptr, indices, data.data(), n_columns), n_clusters, balanced,
                          {spherical, max_iterations, tolerance, seed}, threads);
    }
    return give_vector(std::move(clusters));
}

// ---- linear rankers ----

using LongCsr = std::tuple<In<std::int64_t>, In<std::int64_t>, std::optional<In<float>>>;

CsrView<std::int64_t> long_view(const LongCsr& matrix, std::int64_t cols) {
    const auto& [indptr, indices, data] = matrix;
    return csr_view<std::int64_t>(indptr, indices, data ? data->data() : nullptr, cols);
}

template <class Index>
nb::tuple py_fit_ovr(In<Index> indptr, In<Index> indices, In<float> data, std::int64_t n_sparse, In2<float> dense,
                     LongCsr positives, std::optional<LongCsr> negatives, In<std::int64_t> clusters,
                     std::optional<LongCsr> start, int loss, float positive_cost, float negative_cost, float bias,
                     float tolerance, int max_passes, float threshold, std::int64_t max_weights, std::uint64_t seed,
                     int threads, std::optional<nb::callable> progress) {
    OvrProblem<Index> problem;
    problem.sparse = csr_view<Index>(indptr, indices, data.data(), n_sparse);
    problem.dense = dense.data();
    problem.n_dense = static_cast<std::int64_t>(dense.shape(1));
    problem.positives = long_view(positives, problem.sparse.rows);
    if (negatives) problem.negatives = long_view(*negatives, problem.sparse.rows);
    if (start) problem.start = long_view(*start, n_sparse + problem.n_dense + 1);
    problem.clusters = clusters.data();
    problem.n_clusters = static_cast<std::int64_t>(clusters.shape(0)) - 1;
    const SolverOptions options{static_cast<Loss>(loss), positive_cost, negative_cost, bias, tolerance, max_passes, threshold, seed};
    std::function<void(std::int64_t)> report;
    if (progress)
        report = [&](std::int64_t done) {
            nb::gil_scoped_acquire gil;
            (*progress)(done);
        };
    CsrRows rows;
    SolverCounts counts;
    {
        nb::gil_scoped_release release;
        rows = fit_ovr(problem, options, max_weights, threads, report, counts);
    }
    return nb::make_tuple(give_rows(std::move(rows)), counts.visits, counts.passes, counts.unfinished);
}

nb::tuple py_pack_weights(LongCsr weights, std::int64_t n_features, In<std::int64_t> children, int threads) {
    std::vector<std::int32_t> first_piece;
    std::vector<std::int64_t> pieces;
    PackedWeights packed;
    {
        nb::gil_scoped_release release;
        make_pieces(children.data(), static_cast<std::int64_t>(children.shape(0)) - 1, first_piece, pieces);
        packed = pack_weights(long_view(weights, n_features), n_features, pieces.data(), static_cast<std::int64_t>(pieces.size()) - 1, threads);
    }
    return nb::make_tuple(give_vector(std::move(packed.heads)), give_vector(std::move(packed.table)), give_vector(std::move(packed.codebook)));
}

// A tree of packed levels over arrays that Python keeps alive (memory-mapped, mostly).
class PyBeamTree {
public:
    PyBeamTree(std::int64_t n_sparse, std::optional<In<std::int32_t>> labels, std::int64_t n_labels, bool repeats)
        : n_sparse_(n_sparse), labels_(labels) {
        model_.labels = labels ? labels->data() : nullptr;
        model_.n_labels = n_labels;
        model_.repeats = repeats && labels.has_value();  // nodes never repeat
    }

    // Sizes are checked here; what the table says is checked by the search, as far as it follows it.
    void add_level(In<std::int64_t> children, In<std::uint32_t> heads, In<std::uint8_t> table, In<float> codebook,
                   In<float> bias, In2<float> dense, int transform, float power) {
        const std::int64_t n_above = model_.levels.empty() ? 1 : model_.levels.back().n_nodes;
        const auto n_parents = static_cast<std::int64_t>(children.shape(0)) - 1;
        if (n_parents != n_above || children.data()[0] != 0 || !std::is_sorted(children.data(), children.data() + n_parents + 1) ||
            children.data()[n_parents] > std::numeric_limits<std::int32_t>::max())
            throw std::invalid_argument("the levels of the tree do not fit together");
        BeamLevel level;
        level.n_parents = n_parents;
        level.n_nodes = children.data()[n_parents];
        level.children = children.data();
        const auto n_nodes = static_cast<std::size_t>(level.n_nodes);
        if (heads.shape(0) != static_cast<std::size_t>(n_sparse_) + 1 || codebook.shape(0) != 256 || bias.shape(0) != n_nodes ||
            dense.shape(0) != n_nodes || static_cast<std::int64_t>(table.shape(0)) < table_padding ||
            (!model_.levels.empty() && static_cast<std::int64_t>(dense.shape(1)) != model_.levels.back().n_dense))
            throw std::invalid_argument("the weights of a level do not fit its nodes");
        make_pieces(level.children, n_parents, level.first_piece, level.pieces);
        level.weights = {n_sparse_, heads.data(), table.data(), static_cast<std::int64_t>(table.shape(0)), codebook.data(),
                         static_cast<std::int64_t>(level.pieces.size()) - 1};
        level.bias = bias.data();
        level.dense = dense.data();
        level.n_dense = static_cast<std::int64_t>(dense.shape(1));
        level.transform = static_cast<Transform>(transform);
        level.power = power;
        model_.levels.push_back(std::move(level));
        kept_.emplace_back(children, heads, table, codebook, bias, dense);
    }

    template <class Index>
    nb::tuple search(In<Index> indptr, In<Index> indices, In<float> data, In2<float> dense, std::int64_t depth,
                     std::int64_t beam_size, std::int64_t k, int threads) const {
        const QueryRows<Index> queries = rows_of(indptr, indices, data, dense);
        if (depth < 1 || depth > static_cast<std::int64_t>(model_.levels.size()) || beam_size < 1 || k < 1)
            throw std::invalid_argument("depth, beam and k must be at least 1, and the tree that deep");
        if (labels_ && static_cast<std::int64_t>(labels_->shape(0)) != model_.levels.back().n_nodes)
            throw std::invalid_argument("the labels of the tree do not fit its last level");
        const auto n = static_cast<std::size_t>(queries.sparse.rows), width = static_cast<std::size_t>(k);
        auto ids = std::make_unique_for_overwrite<std::int32_t[]>(n * width);
        auto scores = std::make_unique_for_overwrite<float[]>(n * width);
        {
            nb::gil_scoped_release release;
            beam_search(model_, queries, depth, beam_size, k, threads, ids.get(), scores.get());
        }
        return nb::make_tuple(give_new(std::move(ids), {n, width}), give_new(std::move(scores), {n, width}));
    }

    template <class Index>
    Out<float> selected(In<Index> indptr, In<Index> indices, In<float> data, In2<float> dense, In<std::int64_t> rows,
                        In<std::int32_t> labels, In<std::int64_t> place_begin, In<std::int32_t> places, int threads) const {
        const QueryRows<Index> queries = rows_of(indptr, indices, data, dense);
        auto scores = std::make_unique_for_overwrite<float[]>(labels.shape(0));
        {
            nb::gil_scoped_release release;
            score_selected(model_, queries, rows.data(), labels.data(), place_begin.data(), places.data(), threads, scores.get());
        }
        return give_new(std::move(scores), {labels.shape(0)});
    }

private:
    template <class Index>
    QueryRows<Index> rows_of(In<Index> indptr, In<Index> indices, In<float> data, In2<float> dense) const {
        const std::int64_t n_dense = model_.levels.empty() ? 0 : model_.levels.back().n_dense;
        if (static_cast<std::int64_t>(dense.shape(1)) != n_dense || dense.shape(0) + 1 != indptr.shape(0))
            throw std::invalid_argument("the dense part of the query does not fit the model");
        return {csr_view<Index>(indptr, indices, data.data(), n_sparse_), dense.data()};
    }

    BeamModel model_;
    std::int64_t n_sparse_;
    std::optional<In<std::int32_t>> labels_;
    std::vector<std::tuple<In<std::int64_t>, In<std::uint32_t>, In<std::uint8_t>, In<float>, In<float>, In2<float>>> kept_;
};

// ---- rankings ----

template <class Index>
Out<std::uint8_t> py_hits(In2<std::int32_t> ids, In<Index> indptr, In<Index> indices, std::int64_t n_labels, int threads) {
    const RankingView ranking{ids.data(), static_cast<std::int64_t>(ids.shape(0)), static_cast<std::int64_t>(ids.shape(1))};
    auto hit = std::make_unique_for_overwrite<std::uint8_t[]>(ids.size());
    {
        nb::gil_scoped_release release;
        ranking_hits(ranking, csr_view<Index>(indptr, indices, nullptr, n_labels), threads, hit.get());
    }
    return give_new(std::move(hit), {ids.shape(0), ids.shape(1)});
}

template <class Index>
nb::dict py_sums(In2<std::int32_t> ids, In<Index> indptr, In<Index> indices, std::int64_t n_labels,
                 In<std::int64_t> cutoffs, In<double> weights, In<std::uint8_t> groups, std::int64_t n_groups, int threads) {
    const RankingView ranking{ids.data(), static_cast<std::int64_t>(ids.shape(0)), static_cast<std::int64_t>(ids.shape(1))};
    RankingSums sums;
    {
        nb::gil_scoped_release release;
        sums = ranking_sums(ranking, csr_view<Index>(indptr, indices, nullptr, n_labels), cutoffs.data(),
                            static_cast<std::int64_t>(cutoffs.shape(0)), weights.data(), groups.data(), n_groups, threads);
    }
    const std::size_t g = static_cast<std::size_t>(n_groups), k = cutoffs.shape(0);
    nb::dict result;
    result["hits"] = give_vector(std::move(sums.hits), {g, k});
    result["ndcg"] = give_vector(std::move(sums.ndcg), {g, k});
    result["recall"] = give_vector(std::move(sums.recall), {g, k});
    result["weighted_hits"] = give_vector(std::move(sums.weighted_hits), {g, k});
    result["weighted_ndcg"] = give_vector(std::move(sums.weighted_ndcg), {g, k});
    result["best_weighted_hits"] = give_vector(std::move(sums.best_weighted_hits));
    result["best_weighted_ndcg"] = give_vector(std::move(sums.best_weighted_ndcg));
    result["first_rank"] = give_vector(std::move(sums.first_rank));
    result["n_rows"] = sums.n_rows;
    return result;
}

template <class Index>
nb::tuple py_topk(In<Index> indptr, In<Index> indices, In<float> data, std::int64_t k, int threads) {
    const CsrView<Index> matrix = csr_view<Index>(indptr, indices, data.data(), 0);
    const auto n = static_cast<std::size_t>(matrix.rows), width = static_cast<std::size_t>(k);
    auto ids = std::make_unique_for_overwrite<std::int32_t[]>(n * width);
    auto scores = std::make_unique_for_overwrite<float[]>(n * width);
    {
        nb::gil_scoped_release release;
        csr_topk(matrix, k, threads, ids.get(), scores.get());
    }
    return nb::make_tuple(give_new(std::move(ids), {n, width}), give_new(std::move(scores), {n, width}));
}

template <class Index>
nb::tuple py_largest_entries(In<Index> indptr, In<Index> indices, In<float> data, std::int64_t n, int threads) {
    CsrRows rows;
    {
        nb::gil_scoped_release release;
        rows = largest_entries(csr_view<Index>(indptr, indices, data.data(), 0), n, threads);
    }
    return give_rows(std::move(rows));
}

nb::tuple py_blend_rankings(nb::ndarray<const std::int32_t, nb::ndim<3>, nb::c_contig> ids,
                            nb::ndarray<const float, nb::ndim<3>, nb::c_contig> scores, std::int64_t k, int threads) {
    const std::size_t n = ids.shape(1), width = static_cast<std::size_t>(k);
    auto best_ids = std::make_unique_for_overwrite<std::int32_t[]>(n * width);
    auto best_scores = std::make_unique_for_overwrite<float[]>(n * width);
    {
        nb::gil_scoped_release release;
        blend_rankings(ids.data(), scores.data(), static_cast<std::int64_t>(ids.shape(0)), static_cast<std::int64_t>(n),
                       static_cast<std::int64_t>(ids.shape(2)), k, threads, best_ids.get(), best_scores.get());
    }
    return nb::make_tuple(give_new(std::move(best_ids), {n, width}), give_new(std::move(best_scores), {n, width}));
}

// For tests of the parallel loop: doubles each number; a negative one is an error, and `busy` spends time on each.
std::vector<std::int64_t> py_parallel_probe(std::vector<std::int64_t> numbers, double busy_seconds, int threads) {
    nb::gil_scoped_release release;
    parallel_for(static_cast<std::int64_t>(numbers.size()), threads, [&](std::int64_t i, int) {
        std::int64_t& x = numbers[static_cast<std::size_t>(i)];
        if (x < 0) throw std::invalid_argument("block " + std::to_string(i) + " is negative");
        const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(busy_seconds);
        while (std::chrono::steady_clock::now() < until) {}
        x *= 2;
    });
    return numbers;
}

}  // namespace

NB_MODULE(_core, m) {
    interrupt_check = check_signals;
    m.def("isa", [] { return std::string(isa_name()); });
    m.def("parallel_probe", py_parallel_probe, nb::arg("numbers"), nb::arg("busy_seconds"), nb::arg("threads"));

    nb::class_<PyAnalyzer>(m, "Analyzer")
        .def(nb::init<const std::string&, int, int, bool, int, const std::vector<std::string>&>(), nb::arg("unit"),
             nb::arg("min_n"), nb::arg("max_n"), nb::arg("lowercase"), nb::arg("min_token"), nb::arg("stop_words"));
    nb::class_<PyCorpusCounts>(m, "CorpusCounts")
        .def_static("count", PyCorpusCounts::make, nb::arg("analyzer"), nb::arg("texts"), nb::arg("field_weights"), nb::arg("with_tf"), nb::arg("threads"))
        .def("select", [](PyCorpusCounts& self, std::int64_t min_df, std::int64_t max_df, int threads) {
            nb::gil_scoped_release release;
            self.counts.select(min_df, max_df, threads);
        }, nb::arg("min_df"), nb::arg("max_df"), nb::arg("threads"))
        .def("document_frequency", [](PyCorpusCounts& self) { return give_vector(std::vector<std::int64_t>(self.counts.document_frequency())); })
        .def("term_frequency", [](PyCorpusCounts& self) { return give_vector(std::vector<double>(self.counts.term_frequency())); })
        .def("freeze", [](PyCorpusCounts& self, std::optional<In<std::uint8_t>> keep) {
            if (keep && keep->shape(0) != self.counts.document_frequency().size())
                throw std::invalid_argument("keep has another length than the selected terms");
            FrozenVocabulary frozen;
            {
                nb::gil_scoped_release release;
                frozen = self.counts.freeze(keep ? keep->data() : nullptr);
            }
            return nb::make_tuple(give_vector(std::move(frozen.offsets)), give_vector(std::move(frozen.bytes)),
                                  give_vector(slots_to_bytes(frozen.slots)));
        }, nb::arg("keep").none())
        .def("rows", [](PyCorpusCounts& self, std::optional<In<double>> idf, bool binary, bool sublinear, const std::string& norm, int threads) {
            CsrRows rows;
            {
                nb::gil_scoped_release release;
                rows = self.counts.rows(make_weighting(binary, sublinear, norm, idf ? idf->data() : nullptr), threads);
            }
            return give_rows(std::move(rows));
        }, nb::arg("idf").none(), nb::arg("binary"), nb::arg("sublinear"), nb::arg("norm"), nb::arg("threads"));
    nb::class_<PyTfidf>(m, "Tfidf")
        .def(nb::init<const PyAnalyzer&, In<std::uint64_t>, In<std::uint8_t>, In<std::uint8_t>, std::optional<In<double>>, bool, bool,
                      const std::string&>(),
             nb::arg("analyzer"), nb::arg("offsets"), nb::arg("bytes"), nb::arg("slots"), nb::arg("idf").none(), nb::arg("binary"),
             nb::arg("sublinear"), nb::arg("norm"))
        .def("transform", &PyTfidf::transform, nb::arg("texts"), nb::arg("field_weights"), nb::arg("threads"));

    nb::class_<PyXmcText>(m, "XmcText")
        .def(nb::init<std::int64_t, std::int64_t, bool, std::int64_t, int>(), nb::arg("n_features"), nb::arg("n_labels"),
             nb::arg("with_labels"), nb::arg("first_line"), nb::arg("threads"))
        .def("feed", &PyXmcText::feed, nb::arg("chunk"), nb::arg("last"), nb::arg("stop_at_bad"))
        .def("n_bad", [](const PyXmcText& self) { return static_cast<std::int64_t>(self.parser.bad_rows().size()); })
        .def("bad_rows", [](const PyXmcText& self) { return give_vector(std::vector<std::int64_t>(self.parser.bad_rows())); })
        .def("bad_lines", &PyXmcText::bad_lines)
        .def("finish", &PyXmcText::finish);

    m.def("ranking_hits", py_hits<std::int32_t>, nb::arg("ids"), nb::arg("indptr"), nb::arg("indices"), nb::arg("n_labels"), nb::arg("threads"));
    m.def("ranking_hits", py_hits<std::int64_t>, nb::arg("ids"), nb::arg("indptr"), nb::arg("indices"), nb::arg("n_labels"), nb::arg("threads"));
    m.def("ranking_sums", py_sums<std::int32_t>, nb::arg("ids"), nb::arg("indptr"), nb::arg("indices"), nb::arg("n_labels"),
          nb::arg("cutoffs"), nb::arg("weights"), nb::arg("groups"), nb::arg("n_groups"), nb::arg("threads"));
    m.def("ranking_sums", py_sums<std::int64_t>, nb::arg("ids"), nb::arg("indptr"), nb::arg("indices"), nb::arg("n_labels"),
          nb::arg("cutoffs"), nb::arg("weights"), nb::arg("groups"), nb::arg("n_groups"), nb::arg("threads"));
    m.def("is_canonical", py_is_canonical<std::int32_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("n_rows"), nb::arg("n_columns"));
    m.def("is_canonical", py_is_canonical<std::int64_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("n_rows"), nb::arg("n_columns"));
    m.def("spmm", py_spmm<std::int32_t>, nb::arg("a_indptr"), nb::arg("a_indices"), nb::arg("a_data"), nb::arg("b_indptr"),
          nb::arg("b_indices"), nb::arg("b_data"), nb::arg("n_columns"), nb::arg("unit_rows"), nb::arg("threads"));
    m.def("spmm", py_spmm<std::int64_t>, nb::arg("a_indptr"), nb::arg("a_indices"), nb::arg("a_data"), nb::arg("b_indptr"),
          nb::arg("b_indices"), nb::arg("b_data"), nb::arg("n_columns"), nb::arg("unit_rows"), nb::arg("threads"));
    m.def("spmm_dense", py_spmm_dense<std::int32_t>, nb::arg("a_indptr"), nb::arg("a_indices"), nb::arg("a_data"), nb::arg("b"), nb::arg("threads"));
    m.def("spmm_dense", py_spmm_dense<std::int64_t>, nb::arg("a_indptr"), nb::arg("a_indices"), nb::arg("a_data"), nb::arg("b"), nb::arg("threads"));
    m.def("balanced_halves", py_balanced_halves<std::int32_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("n_columns"),
          nb::arg("depth"), nb::arg("spherical"), nb::arg("max_iterations"), nb::arg("tolerance"), nb::arg("seed"), nb::arg("threads"));
    m.def("balanced_halves", py_balanced_halves<std::int64_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("n_columns"),
          nb::arg("depth"), nb::arg("spherical"), nb::arg("max_iterations"), nb::arg("tolerance"), nb::arg("seed"), nb::arg("threads"));
    m.def("kmeans", py_kmeans<std::int32_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("n_columns"), nb::arg("n_clusters"),
          nb::arg("balanced"), nb::arg("spherical"), nb::arg("max_iterations"), nb::arg("tolerance"), nb::arg("seed"), nb::arg("threads"));
    m.def("kmeans", py_kmeans<std::int64_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("n_columns"), nb::arg("n_clusters"),
          nb::arg("balanced"), nb::arg("spherical"), nb::arg("max_iterations"), nb::arg("tolerance"), nb::arg("seed"), nb::arg("threads"));
    m.def("pack_weights", py_pack_weights, nb::arg("weights"), nb::arg("n_features"), nb::arg("children"), nb::arg("threads"));
    nb::class_<PyBeamTree>(m, "BeamTree")
        .def(nb::init<std::int64_t, std::optional<In<std::int32_t>>, std::int64_t, bool>(), nb::arg("n_sparse"),
             nb::arg("labels").none(), nb::arg("n_labels"), nb::arg("repeats"))
        .def("add_level", &PyBeamTree::add_level, nb::arg("children"), nb::arg("heads"), nb::arg("table"), nb::arg("codebook"),
             nb::arg("bias"), nb::arg("dense"), nb::arg("transform"), nb::arg("power"))
        .def("search", &PyBeamTree::search<std::int32_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("dense"),
             nb::arg("depth"), nb::arg("beam_size"), nb::arg("k"), nb::arg("threads"))
        .def("search", &PyBeamTree::search<std::int64_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("dense"),
             nb::arg("depth"), nb::arg("beam_size"), nb::arg("k"), nb::arg("threads"))
        .def("score_selected", &PyBeamTree::selected<std::int32_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"),
             nb::arg("dense"), nb::arg("rows"), nb::arg("labels"), nb::arg("place_begin"), nb::arg("places"), nb::arg("threads"))
        .def("score_selected", &PyBeamTree::selected<std::int64_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"),
             nb::arg("dense"), nb::arg("rows"), nb::arg("labels"), nb::arg("place_begin"), nb::arg("places"), nb::arg("threads"));
    m.def("fit_ovr", py_fit_ovr<std::int32_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("n_sparse"), nb::arg("dense"), nb::arg("positives"), nb::arg("negatives").none(), nb::arg("clusters"), nb::arg("start").none(), nb::arg("loss"), nb::arg("positive_cost"), nb::arg("negative_cost"), nb::arg("bias"), nb::arg("tolerance"), nb::arg("max_passes"), nb::arg("threshold"), nb::arg("max_weights"), nb::arg("seed"), nb::arg("threads"), nb::arg("progress").none());
    m.def("fit_ovr", py_fit_ovr<std::int64_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("n_sparse"), nb::arg("dense"), nb::arg("positives"), nb::arg("negatives").none(), nb::arg("clusters"), nb::arg("start").none(), nb::arg("loss"), nb::arg("positive_cost"), nb::arg("negative_cost"), nb::arg("bias"), nb::arg("tolerance"), nb::arg("max_passes"), nb::arg("threshold"), nb::arg("max_weights"), nb::arg("seed"), nb::arg("threads"), nb::arg("progress").none());
    m.def("largest_entries", py_largest_entries<std::int32_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("n"), nb::arg("threads"));
    m.def("largest_entries", py_largest_entries<std::int64_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("n"), nb::arg("threads"));
    m.def("blend_rankings", py_blend_rankings, nb::arg("ids"), nb::arg("scores"), nb::arg("k"), nb::arg("threads"));
    m.def("csr_topk", py_topk<std::int32_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("k"), nb::arg("threads"));
    m.def("csr_topk", py_topk<std::int64_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"), nb::arg("k"), nb::arg("threads"));
}
