#include "linear/ovr_solver.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <type_traits>

#include "core/isa.h"
#include "core/memory.h"
#include "core/parallel.h"

namespace ramify {

namespace {

struct Job {
    std::int64_t cluster, first, last;  // labels [first, last)
};

// Blocks of labels that do not depend on the number of threads: whole clusters where there are many, else parts of
// them. The clusters with the most work come first, so that no long one is left for the end.
std::vector<Job> make_jobs(const std::int64_t* clusters, std::int64_t n_clusters, const std::vector<std::int64_t>& work,
                           std::int64_t block) {
    std::vector<std::int64_t> order(static_cast<std::size_t>(n_clusters));
    for (std::int64_t c = 0; c < n_clusters; ++c) order[static_cast<std::size_t>(c)] = c;
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
        return work[static_cast<std::size_t>(a)] > work[static_cast<std::size_t>(b)];
    });
    std::vector<Job> jobs;
    for (const std::int64_t c : order)
        for (std::int64_t first = clusters[c]; first < clusters[c + 1]; first += block)
            jobs.push_back({c, first, std::min(first + block, clusters[c + 1])});
    return jobs;
}

// Weights of the labels of one job, in the order of its labels.
struct JobResult {
    std::vector<std::int64_t> sizes;
    std::vector<std::int32_t> indices;
    std::vector<float> values;
};

template <class Index>
class Worker {
public:
    Worker(const OvrProblem<Index>& problem, const SolverOptions& options) : problem_(problem), options_(options) {}

    void solve(const Job& job, JobResult& result) {
        if (cluster_ != job.cluster) gather(job.cluster);
        const std::int64_t n_labels = job.last - job.first;
        // Labels with the most positives take longest: they come first, so that the lanes of a group end together.
        std::vector<std::int64_t> order(static_cast<std::size_t>(n_labels));
        for (std::int64_t l = 0; l < n_labels; ++l) order[static_cast<std::size_t>(l)] = job.first + l;
        const auto& positives = problem_.positives;
        std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
            return positives.indptr[a + 1] - positives.indptr[a] > positives.indptr[b + 1] - positives.indptr[b];
        });
        std::vector<std::int64_t> indptr{0};
        std::vector<std::int32_t> rows;
        std::vector<float> cost, relevance;
        for (const std::int64_t label : order) {
            cost.push_back(problem_.positive_costs[label]);
            for (std::int64_t i = positives.indptr[label]; i < positives.indptr[label + 1]; ++i) {
                rows.push_back(local_row(positives.indices[i]));
                if (positives.data != nullptr) relevance.push_back(positives.data[i]);
            }
            indptr.push_back(static_cast<std::int64_t>(rows.size()));
        }
        const int lanes = n_labels <= 8 ? 8 : 16;
        const auto n = static_cast<std::size_t>(rows_.n), width = static_cast<std::size_t>(lanes);
        const std::size_t n_weights = static_cast<std::size_t>(rows_.n_sparse + rows_.n_dense + 1);
        if (weights_.size() < n_weights * width) weights_.resize(n_weights * width);
        dual_.resize(std::max(dual_.size(), n * width));
        if (positives.data != nullptr) cost_.resize(std::max(cost_.size(), n * width));
        positive_.resize(std::max(positive_.size(), n));
        order_.resize(std::max(order_.size(), n));
        active_.resize(std::max(active_.size(), n));
        init_.resize(std::max(init_.size(), n_weights));

        found_.assign(static_cast<std::size_t>(n_labels), {});
        const SolverLabels labels{n_labels, indptr.data(), rows.data(), cost.data(),
                                  positives.data != nullptr ? relevance.data() : nullptr};
        const SolverScratch scratch{weights_.data(),  dual_.data(),  positives.data != nullptr ? cost_.data() : nullptr,
                                    positive_.data(), order_.data(), active_.data(),
                                    init_.data()};
        const WeightSink sink{
            this, [](void* self, std::int64_t label, std::int64_t weight, float value) {
                auto& worker = *static_cast<Worker*>(self);
                worker.found_[static_cast<std::size_t>(label)].push_back({worker.global_weight(weight), value});
            }};
        SolverOptions options = options_;
        const std::int64_t first_label = problem_.cut == nullptr ? 0 : problem_.cut->first_label;
        options.seed += static_cast<std::uint64_t>(first_label + job.first) * 0x9e3779b97f4a7c15ull;
        hot().solve_labels(rows_, labels, options, scratch, sink);

        result.sizes.resize(static_cast<std::size_t>(n_labels));
        std::vector<std::size_t> at(order.size());
        for (std::size_t l = 0; l < order.size(); ++l) at[static_cast<std::size_t>(order[l] - job.first)] = l;
        std::size_t total = 0;
        for (const auto& found : found_) total += found.size();
        result.indices.reserve(total);
        result.values.reserve(total);
        for (std::size_t l = 0; l < order.size(); ++l) {
            auto& found = found_[at[l]];
            keep_largest(found);
            result.sizes[l] = static_cast<std::int64_t>(found.size());
            for (const Weight& w : found) result.indices.push_back(w.index), result.values.push_back(w.value);
        }
    }

private:
    struct Weight {
        std::int32_t index;
        float value;
    };

    std::int32_t global_weight(std::int64_t local) const {
        const std::int64_t n_columns = columns_.empty() ? rows_.n_sparse : rows_.n_columns;
        if (local >= n_columns) return static_cast<std::int32_t>(problem_.sparse.cols + local - n_columns);
        return features_.empty() ? static_cast<std::int32_t>(local) : features_[static_cast<std::size_t>(local)];
    }

    void keep_largest(std::vector<Weight>& found) const {
        if (options_.max_weights <= 0) return;
        const auto bias = static_cast<std::int32_t>(problem_.sparse.cols + problem_.n_dense);
        const auto size = static_cast<std::int64_t>(found.size()) - (!found.empty() && found.back().index == bias);
        if (size <= options_.max_weights) return;
        const auto end = found.begin() + size;
        std::nth_element(found.begin(), found.begin() + options_.max_weights, end,
                         [](const Weight& a, const Weight& b) {
                             const float x = std::abs(a.value), y = std::abs(b.value);
                             return x != y ? x > y : a.index < b.index;
                         });
        found.erase(found.begin() + options_.max_weights, end);
        std::sort(found.begin(), found.end(), [](const Weight& a, const Weight& b) { return a.index < b.index; });
    }

    std::int32_t local_row(std::int64_t row) const {
        if (rows_used_.empty()) return static_cast<std::int32_t>(row);
        return static_cast<std::int32_t>(std::lower_bound(rows_used_.begin(), rows_used_.end(), row) -
                                         rows_used_.begin());
    }

    // Features that no positive of the cluster has get no weights: only negatives would shape them.
    bool drops_features() const { return options_.positive_features && problem_.negatives.indptr != nullptr; }

    // Collects the rows of a cluster: its negatives and every positive of its labels.
    void gather(std::int64_t cluster) {
        const std::int64_t n_rows = problem_.sparse.rows;
        const std::int64_t n_rows_whole = problem_.cut == nullptr ? n_rows : problem_.cut->n_rows;
        const bool is_wide = !std::is_same_v<Index, std::int32_t> || (problem_.cut != nullptr && problem_.cut->is_wide);
        cluster_ = cluster;
        rows_used_.clear();
        features_.clear();
        columns_.clear();
        singleton_values_.clear();
        bool all = problem_.negatives.indptr == nullptr;
        if (!all) {
            const auto& m = problem_.negatives;
            rows_used_.assign(m.indices + m.indptr[cluster], m.indices + m.indptr[cluster + 1]);
            const std::size_t n_negatives = rows_used_.size();
            for (std::int64_t l = problem_.clusters[cluster]; l < problem_.clusters[cluster + 1]; ++l)
                rows_used_.insert(rows_used_.end(), problem_.positives.indices + problem_.positives.indptr[l],
                                  problem_.positives.indices + problem_.positives.indptr[l + 1]);
            std::sort(rows_used_.begin() + static_cast<std::ptrdiff_t>(n_negatives), rows_used_.end());
            std::inplace_merge(rows_used_.begin(), rows_used_.begin() + static_cast<std::ptrdiff_t>(n_negatives),
                               rows_used_.end());
            rows_used_.erase(std::unique(rows_used_.begin(), rows_used_.end()), rows_used_.end());
            all = static_cast<std::int64_t>(n_negatives) == n_rows;
            negative_.assign(rows_used_.size(), 0.0f);
            std::size_t at = 0;
            for (std::int64_t i = m.indptr[cluster]; i < m.indptr[cluster + 1]; ++i) {
                while (rows_used_[at] < m.indices[i]) ++at;
                negative_[at] = m.data != nullptr ? m.data[i] : 1.0f;
            }
        }
        if (all) {
            rows_used_.clear();
            if (problem_.negatives.indptr == nullptr) negative_.assign(static_cast<std::size_t>(n_rows), 1.0f);
        }
        const std::int64_t n = all ? n_rows : static_cast<std::int64_t>(rows_used_.size());
        // A cluster with a large fraction of all rows has nearly all features: a copy would save nothing.
        const bool direct = !is_wide && !drops_features() && 4 * n >= n_rows_whole;
        auto row_of = [&](std::int64_t row) { return all ? row : rows_used_[static_cast<std::size_t>(row)]; };
        start_.resize(static_cast<std::size_t>(n));
        length_.resize(static_cast<std::size_t>(n));
        squares_.resize(static_cast<std::size_t>(n));
        dense_row_.resize(static_cast<std::size_t>(problem_.n_dense > 0 ? n : 0));
        std::int64_t total = 0;
        for (std::int64_t row = 0; row < n; ++row) {
            const std::int64_t p = row_of(row), from = problem_.sparse.indptr[p];
            const std::int64_t count = problem_.sparse.indptr[p + 1] - from;
            start_[static_cast<std::size_t>(row)] = direct ? from : total;
            length_[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(count);
            total += count;
            double square = static_cast<double>(options_.bias) * options_.bias;
            for (std::int64_t i = 0; i < count; ++i)
                square += static_cast<double>(problem_.sparse.data[from + i]) * problem_.sparse.data[from + i];
            if (problem_.n_dense > 0) {
                dense_row_[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(p);
                const float* x = problem_.dense + p * problem_.n_dense;
                for (std::int64_t j = 0; j < problem_.n_dense; ++j) square += static_cast<double>(x[j]) * x[j];
            }
            squares_[static_cast<std::size_t>(row)] = static_cast<float>(square);
        }
        rows_ = {};
        rows_.n = n;
        rows_.start = start_.data();
        rows_.length = length_.data();
        rows_.dense = problem_.dense;
        rows_.dense_row = dense_row_.data();
        rows_.n_dense = problem_.n_dense;
        rows_.squares = squares_.data();
        rows_.negative = negative_.data();
        if constexpr (std::is_same_v<Index, std::int32_t>) {
            if (direct) {
                rows_.indices = problem_.sparse.indices;
                rows_.values = problem_.sparse.data;
                rows_.n_sparse = problem_.sparse.cols;
                return;
            }
        }
        copy_rows(n, total, row_of);
    }

    template <class RowOf>
    void copy_rows(std::int64_t n, std::int64_t total, const RowOf& row_of) {
        const std::size_t n_words = static_cast<std::size_t>(problem_.sparse.cols + 63) / 64;
        const bool extract = options_.loss != Loss::logistic && options_.loss != Loss::dead_zone_logistic;
        const bool drops = drops_features();
        used_.assign(n_words, 0);
        shared_.assign(n_words, 0);
        local_index_.resize(static_cast<std::size_t>(problem_.sparse.cols));
        auto use_features = [&](std::int64_t p) {
            for (std::int64_t i = problem_.sparse.indptr[p]; i < problem_.sparse.indptr[p + 1]; ++i) {
                const auto f = static_cast<std::size_t>(problem_.sparse.indices[i]);
                const std::uint64_t bit = std::uint64_t{1} << (f % 64);
                shared_[f / 64] |= used_[f / 64] & bit;
                used_[f / 64] |= bit;
            }
        };
        if (drops) {
            const auto& positives = problem_.positives;
            for (std::int64_t i = positives.indptr[problem_.clusters[cluster_]];
                 i < positives.indptr[problem_.clusters[cluster_ + 1]]; ++i)
                use_features(positives.indices[i]);
        } else {
            for (std::int64_t row = 0; row < n; ++row) use_features(row_of(row));
        }
        std::int32_t n_shared = 0;
        for (std::size_t w = 0; w < n_words; ++w)
            for (std::uint64_t bits = used_[w]; bits != 0; bits &= bits - 1) {
                const int bit = __builtin_ctzll(bits);
                const std::size_t f = 64 * w + static_cast<std::size_t>(bit);
                const bool is_shared = !extract || ((shared_[w] >> bit) & 1) != 0;
                local_index_[f] = is_shared ? n_shared : -1 - static_cast<std::int32_t>(features_.size());
                columns_.push_back(is_shared ? n_shared++ : -1);
                features_.push_back(static_cast<std::int32_t>(f));
            }
        indices_.resize(std::max(indices_.size(), static_cast<std::size_t>(total)));
        values_.resize(std::max(values_.size(), static_cast<std::size_t>(total)));
        singleton_rows_.clear();
        singleton_squares_.assign(static_cast<std::size_t>(n), 0.0f);
        std::size_t at = 0;
        for (std::int64_t row = 0; row < n; ++row) {
            const std::int64_t p = row_of(row), from = problem_.sparse.indptr[p];
            const std::size_t first = at;
            double singleton_square = 0, dropped_square = 0;
            for (std::int64_t i = from; i < problem_.sparse.indptr[p + 1]; ++i) {
                const auto f = static_cast<std::size_t>(problem_.sparse.indices[i]);
                const float value = problem_.sparse.data[i];
                if (drops && (used_[f / 64] >> (f % 64) & 1) == 0) {
                    dropped_square += static_cast<double>(value) * value;
                    continue;
                }
                const std::int32_t index = local_index_[f];
                if (index >= 0) {
                    indices_[at] = index;
                    values_[at++] = value;
                } else {
                    columns_[static_cast<std::size_t>(-1 - index)] =
                        -1 - static_cast<std::int32_t>(singleton_values_.size());
                    singleton_values_.push_back(value);
                    singleton_rows_.push_back(static_cast<std::int32_t>(row));
                    singleton_square += static_cast<double>(value) * value;
                }
            }
            start_[static_cast<std::size_t>(row)] = static_cast<std::int64_t>(first);
            length_[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(at - first);
            singleton_squares_[static_cast<std::size_t>(row)] = static_cast<float>(singleton_square);
            float& square = squares_[static_cast<std::size_t>(row)];
            square = std::max(0.0f, square - static_cast<float>(dropped_square));
        }
        rows_.indices = indices_.data();
        rows_.values = values_.data();
        rows_.n_sparse = n_shared;
        rows_.n_columns = static_cast<std::int64_t>(features_.size());
        rows_.columns = columns_.data();
        if (extract) {
            rows_.singleton_values = singleton_values_.data();
            rows_.singleton_squares = singleton_squares_.data();
            rows_.singleton_rows = singleton_rows_.data();
        }
    }

    const OvrProblem<Index>& problem_;
    const SolverOptions& options_;

    std::int64_t cluster_ = -1;
    SolverRows rows_;
    std::vector<std::int64_t> rows_used_;  // rows of the cluster, ascending; empty: all
    std::vector<std::int32_t> features_;   // global index of each local feature; empty: the same
    std::vector<std::int64_t> start_;
    std::vector<std::int32_t> length_, dense_row_, local_index_, columns_, singleton_rows_;
    std::vector<float> squares_, singleton_values_, singleton_squares_;
    std::vector<float> negative_;
    std::vector<std::uint64_t> used_, shared_;
    LargeVector<std::int32_t> indices_;
    LargeVector<float> values_, weights_, dual_, cost_, init_;
    std::vector<std::uint16_t> positive_;
    std::vector<std::int32_t> order_, active_;
    std::vector<std::vector<Weight>> found_;
};

}  // namespace

std::int64_t ovr_job_size(std::int64_t n_labels) {
    return std::clamp<std::int64_t>((n_labels / 64 + 15) / 16 * 16, 16, 256);
}

template <class Index>
CsrRows fit_ovr(const OvrProblem<Index>& problem, const SolverOptions& options, int threads,
                const std::function<void(std::int64_t)>& progress) {
    const std::int64_t n_labels = problem.clusters[problem.n_clusters];
    std::vector<std::int64_t> work(static_cast<std::size_t>(problem.n_clusters));
    for (std::int64_t c = 0; c < problem.n_clusters; ++c) {
        const bool all = problem.negatives.indptr == nullptr;
        const std::int64_t n_rows =
            all ? problem.sparse.rows : problem.negatives.indptr[c + 1] - problem.negatives.indptr[c];
        work[static_cast<std::size_t>(c)] = n_rows * (problem.clusters[c + 1] - problem.clusters[c]);
    }
    std::vector<Job> jobs = make_jobs(problem.clusters, problem.n_clusters, work,
                                      ovr_job_size(problem.cut == nullptr ? n_labels : problem.cut->n_labels));
    if (problem.cut != nullptr)
        std::erase_if(jobs,
                      [&](const Job& job) { return job.first < problem.cut->begin || job.first >= problem.cut->end; });
    const auto n_jobs = static_cast<std::int64_t>(jobs.size());
    // A job gives the same weights in a part as in the whole.
    jobs = {jobs.begin() + n_jobs * problem.part / problem.n_parts,
            jobs.begin() + n_jobs * (problem.part + 1) / problem.n_parts};
    std::vector<JobResult> results(jobs.size());
    std::atomic<std::int64_t> done{0};
    {
        std::vector<std::unique_ptr<Worker<Index>>> workers(
            static_cast<std::size_t>(worker_count(static_cast<std::int64_t>(jobs.size()), threads)));
        parallel_for(static_cast<std::int64_t>(jobs.size()), threads, [&](std::int64_t j, int w) {
            auto& worker = workers[static_cast<std::size_t>(w)];
            if (!worker) worker = std::make_unique<Worker<Index>>(problem, options);
            const auto at = static_cast<std::size_t>(j);
            worker->solve(jobs[at], results[at]);
            const std::int64_t finished = done += jobs[at].last - jobs[at].first;
            if (w == 0 && progress) progress(finished);
        });
    }
    if (progress) progress(done);  // helper threads may have finished the last jobs
    std::vector<std::int64_t> indptr(static_cast<std::size_t>(n_labels) + 1);
    for (std::size_t j = 0; j < jobs.size(); ++j)
        std::copy(results[j].sizes.begin(), results[j].sizes.end(), indptr.begin() + jobs[j].first + 1);
    accumulate(indptr);
    CsrRows rows = allocate_rows(std::move(indptr));
    for (std::size_t j = 0; j < jobs.size(); ++j) {  // frees each part once it is copied
        const auto to = rows.indptr[static_cast<std::size_t>(jobs[j].first)];
        std::copy(results[j].indices.begin(), results[j].indices.end(), rows.indices.get() + to);
        std::copy(results[j].values.begin(), results[j].values.end(), rows.data.get() + to);
        results[j] = {};
    }
    return rows;
}

template CsrRows fit_ovr(const OvrProblem<std::int32_t>&, const SolverOptions&, int,
                         const std::function<void(std::int64_t)>&);
template CsrRows fit_ovr(const OvrProblem<std::int64_t>&, const SolverOptions&, int,
                         const std::function<void(std::int64_t)>&);

}  // namespace ramify
