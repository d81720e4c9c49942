#include "neural/shortlist.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

#include "core/dots.h"
#include "core/parallel.h"
#include "core/topk.h"

namespace ramify {

namespace {

constexpr std::int64_t rows_at_once = 8;
constexpr std::int64_t labels_ahead = 3;  // whose weights are asked for before they are needed
constexpr float negligible = -14.0f;  // log of a probability that is not worth a gradient

// What one thread knows of the labels while it explores for a row; kept between rows and calls, since it has the size of
// all labels.
struct Explorer {
    struct Path {
        std::uint32_t row;  // that reached the label last
        float score;        // of its best path then
    };
    std::vector<Path> paths;         // (n_labels)
    std::vector<std::int32_t> edge;  // (n_labels) last of the path
    std::uint32_t row = 0;
    std::vector<std::int32_t> reached, chosen;
    std::vector<Scored> ranked;
    Steps steps;
    TopK best;

    float path(std::int32_t label) const { return paths[static_cast<std::size_t>(label)].score; }

    void start(std::int64_t n_labels) {
        if (static_cast<std::int64_t>(paths.size()) < n_labels) {
            paths.resize(static_cast<std::size_t>(n_labels), {row, 0.0f});
            edge.resize(static_cast<std::size_t>(n_labels));
        }
        if (++row == 0) {  // the counter has gone round
            for (Path& path : paths) path.row = 0;
            row = 1;
        }
        reached.clear();
    }
};

// Explorers outlive the threads that use them: they have the size of all labels.
class Lease {
public:
    Lease() {
        std::lock_guard<std::mutex> lock(mutex);
        if (free.empty()) {
            explorer_ = std::make_unique<Explorer>();
        } else {
            explorer_ = std::move(free.back());
            free.pop_back();
        }
    }
    ~Lease() {
        std::lock_guard<std::mutex> lock(mutex);
        free.push_back(std::move(explorer_));
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Explorer& operator*() const { return *explorer_; }

private:
    static inline std::mutex mutex;
    static inline std::vector<std::unique_ptr<Explorer>> free;
    std::unique_ptr<Explorer> explorer_;
};

// The explored clusters of a row, ascending: the best `beam` by `order`, and what is in e.chosen already.
void choose_clusters(Explorer& e, const float* order, std::int64_t n_clusters, std::int64_t beam) {
    e.ranked.clear();
    for (std::int64_t c = 0; c < n_clusters; ++c) e.ranked.push_back({order[c], static_cast<std::int32_t>(c)});
    if (beam < n_clusters) std::nth_element(e.ranked.begin(), e.ranked.begin() + beam, e.ranked.end(), better);
    for (std::int64_t i = 0; i < std::min(beam, n_clusters); ++i) e.chosen.push_back(e.ranked[static_cast<std::size_t>(i)].id);
    std::sort(e.chosen.begin(), e.chosen.end());
    e.chosen.erase(std::unique(e.chosen.begin(), e.chosen.end()), e.chosen.end());
}

// The best path to every label that the chosen clusters lead to.
void walk(Explorer& e, const GraphView& graph, const float* clusters) {
    e.start(graph.n_labels);
    for (const std::int32_t c : e.chosen)
        for (std::int64_t i = graph.begin[c]; i < graph.begin[c + 1]; ++i) {
            const auto label = static_cast<std::size_t>(graph.labels[i]);
            const float score = clusters[c] + graph.scores[i];
            Explorer::Path& path = e.paths[label];
            if (path.row != e.row) {
                e.reached.push_back(static_cast<std::int32_t>(label));
            } else if (!(score > path.score)) {
                continue;
            }
            path = {e.row, score};
            e.edge[label] = static_cast<std::int32_t>(i);
        }
}

// The `width` best of the reached labels, in steps.
void rank(Explorer& e, std::int64_t width) {
    e.steps.start();
    for (const std::int32_t label : e.reached) e.steps.add({e.path(label), label});
    e.steps.finish(width);
}

// Leaves the `width` best of the reached labels, ascending.
void cut(Explorer& e, std::int64_t width) {
    if (static_cast<std::int64_t>(e.reached.size()) > width) {
        rank(e, width);
        e.reached.clear();
        for (std::int64_t i = 0; i < width; ++i) e.reached.push_back(e.steps[i].id);
    }
    std::sort(e.reached.begin(), e.reached.end());
}

}  // namespace

void explore(const GraphView& graph, const float* clusters, const float* order, std::int64_t rows, std::int64_t beam,
             const std::int64_t* truth_begin, const std::int32_t* truth, const std::int32_t* parents, const Shortlists& out,
             int threads) {
    const float nothing = -std::numeric_limits<float>::infinity();
    parallel_for((rows + rows_at_once - 1) / rows_at_once, threads, [&](std::int64_t block, int) {
        const Lease lease;
        Explorer& e = *lease;
        for (std::int64_t row = block * rows_at_once; row < std::min(rows, (block + 1) * rows_at_once); ++row) {
            e.chosen.clear();
            if (parents != nullptr)
                for (std::int64_t i = truth_begin[row]; i < truth_begin[row + 1]; ++i)
                    if (parents[i] >= 0) e.chosen.push_back(parents[i]);
            choose_clusters(e, order + row * graph.n_clusters, graph.n_clusters, beam);
            walk(e, graph, clusters + row * graph.n_clusters);
            if (truth_begin != nullptr && out.truth_scores != nullptr)
                for (std::int64_t i = truth_begin[row]; i < truth_begin[row + 1]; ++i) {
                    const auto label = static_cast<std::size_t>(truth[i]);
                    const bool found = e.paths[label].row == e.row;
                    out.truth_scores[i] = found ? e.paths[label].score : nothing;
                    out.truth_edges[i] = found ? e.edge[label] : -1;
                }
            cut(e, out.width);
            const auto n = static_cast<std::int64_t>(e.reached.size());
            for (std::int64_t i = 0; i < out.width; ++i) {
                const std::int64_t at = row * out.width + i;
                const bool there = i < n;
                const std::int32_t label = there ? e.reached[static_cast<std::size_t>(i)] : -1;
                out.labels[at] = label;
                out.scores[at] = there ? e.path(label) : nothing;
                if (out.edges != nullptr) out.edges[at] = there ? e.edge[static_cast<std::size_t>(label)] : -1;
            }
            if (out.targets == nullptr) continue;
            std::uint8_t* targets = out.targets + row * out.width;
            std::fill(targets, targets + out.width, std::uint8_t{0});
            for (std::int64_t i = truth_begin[row]; i < truth_begin[row + 1]; ++i) {
                const auto at = std::lower_bound(e.reached.begin(), e.reached.end(), truth[i]);
                if (at != e.reached.end() && *at == truth[i]) targets[at - e.reached.begin()] = 1;
            }
        }
    });
}

void spread_gradients(const std::int32_t* edges, const float* gradients, std::int64_t rows, std::int64_t width,
                      const std::int32_t* edge_cluster, std::int64_t n_clusters, float* by_cluster, double* by_edge) {
    for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t i = row * width; i < (row + 1) * width; ++i) {
            if (edges[i] < 0 || gradients[i] == 0.0f) continue;
            by_cluster[row * n_clusters + edge_cluster[edges[i]]] += gradients[i];
            by_edge[edges[i]] += gradients[i];
        }
}

namespace {

void score_cluster(const EdgeTable& edges, std::int64_t first, std::int64_t end, float log_beta) {
    float top = -std::numeric_limits<float>::infinity();
    for (std::int64_t e = first; e < end; ++e) top = std::max(top, edges.logits[e]);
    double total = 0;
    for (std::int64_t e = first; e < end; ++e) total += std::exp(static_cast<double>(edges.logits[e] - top));
    const auto shift = static_cast<float>(top + std::log(total) - log_beta);
    for (std::int64_t e = first; e < end; ++e) {
        edges.raw[e] = edges.logits[e] - shift;
        edges.scores[e] = std::min(0.0f, edges.raw[e]);
    }
}

}  // namespace

void score_edges(const EdgeTable& edges, std::int64_t n_clusters, float log_beta, int threads) {
    parallel_for(n_clusters, threads, [&](std::int64_t c, int) { score_cluster(edges, edges.begin[c], edges.begin[c + 1], log_beta); });
}

void step_edges(const EdgeTable& edges, const std::int32_t* clusters, std::int64_t n, float log_beta, const AdamOptions& options, int threads) {
    const AdamStep step(options);
    const auto adam = hot().adam;
    parallel_for((n + rows_at_once - 1) / rows_at_once, threads, [&](std::int64_t block, int) {
        std::vector<float> gradients;
        for (std::int64_t i = block * rows_at_once; i < std::min(n, (block + 1) * rows_at_once); ++i) {
            const std::int64_t first = edges.begin[clusters[i]], end = edges.begin[clusters[i] + 1];
            // What is cut at 1 passes nothing on.
            auto passed = [&](std::int64_t e) { return edges.raw[e] <= 0 ? edges.gradients[e] : 0.0; };
            double sum = 0;
            bool any = false;
            for (std::int64_t e = first; e < end; ++e) {
                sum += passed(e);
                any |= passed(e) != 0;
            }
            if (!any) continue;
            gradients.clear();
            for (std::int64_t e = first; e < end; ++e) {
                const double share = std::exp(static_cast<double>(edges.raw[e]) - log_beta);
                gradients.push_back(static_cast<float>(passed(e) - share * sum));
            }
            adam(step, gradients.data(), end - first, false, edges.logits + first, edges.first + first, edges.second + first);
            score_cluster(edges, first, end, log_beta);
        }
    });
}

double path_loss(const std::int32_t* labels, const float* scores, const float* logits, const std::uint8_t* targets, std::int64_t rows,
                 std::int64_t width, float weight, float* d_scores, float* d_logits, int threads) {
    std::vector<double> sums(static_cast<std::size_t>(rows));
    parallel_for(rows, threads, [&](std::int64_t row, int) {
        double sum = 0;
        for (std::int64_t i = row * width; i < (row + 1) * width; ++i) {
            d_scores[i] = d_logits[i] = 0.0f;
            if (labels[i] < 0) continue;
            const float v = logits[i], u = scores[i];
            if (targets[i] == 0 && u + std::min(v, 0.0f) < negligible) continue;
            const float e = std::exp(-std::abs(v));
            const float yes = v >= 0 ? 1.0f / (1.0f + e) : e / (1.0f + e), no = v >= 0 ? e / (1.0f + e) : 1.0f / (1.0f + e);
            if (targets[i] != 0) {
                const float log_yes = std::min(v, 0.0f) - std::log1p(e);
                sum -= log_yes + u;
                d_scores[i] = -weight;
                d_logits[i] = -weight * no;
            } else {
                // 1 - p = (1 - e^u) + e^u · (1 - σ(v)), which stays exact when both factors are near 1.
                const float path = std::exp(u), rest = std::max(-std::expm1(u) + path * no, 1e-6f), p = path * yes;
                sum -= std::log(rest);
                d_scores[i] = weight * p / rest;
                d_logits[i] = weight * p * no / rest;
            }
        }
        sums[static_cast<std::size_t>(row)] = sum;
    });
    double total = 0;
    for (const double sum : sums) total += sum;
    return total * weight;
}

void search_graph(const GraphSearch& model, const float* vectors, std::int64_t rows, std::int64_t d, std::int64_t k, int threads,
                  std::int32_t* ids, float* scores) {
    const auto dot = hot().dot;
    const GraphView& graph = model.graph;
    parallel_for((rows + rows_at_once - 1) / rows_at_once, threads, [&](std::int64_t block, int) {
        const Lease lease;
        Explorer& e = *lease;
        std::vector<float> clusters(static_cast<std::size_t>(graph.n_clusters)), order(clusters.size());
        for (std::int64_t row = block * rows_at_once; row < std::min(rows, (block + 1) * rows_at_once); ++row) {
            const float* vector = vectors + row * d;
            float largest = -std::numeric_limits<float>::infinity();
            dots(vector, d, graph.n_clusters, [&](std::int64_t c) { return model.cluster_weights + c * d; }, order.data());
            for (std::size_t c = 0; c < order.size(); ++c) {
                order[c] += model.cluster_offsets[c];
                largest = std::max(largest, order[c]);
            }
            double sum = 0;
            for (const float logit : order) sum += std::exp(static_cast<double>(logit) - largest);
            const auto normaliser = static_cast<float>(largest + std::log(sum) - model.log_alpha);
            for (std::size_t c = 0; c < order.size(); ++c) clusters[c] = std::min(0.0f, order[c] - normaliser);
            e.chosen.clear();
            choose_clusters(e, order.data(), graph.n_clusters, model.beam);
            walk(e, graph, clusters.data());
            rank(e, model.width);
            e.best.start(k);
            // A classifier only lowers the score of a path. Best paths first: when a step cannot get among the best k any more,
            // neither can those behind it.
            std::int64_t i = 0;
            for (int step = 0; step < Steps::n && !(Steps::highest(step) < e.best.cutoff()); ++step)
                for (; i < e.steps.end(step); ++i) {
                    // The table is large and read at random.
                    if (i + labels_ahead < e.steps.size()) fetch_ahead(model.label_weights + e.steps[i + labels_ahead].id * d, d);
                    const auto [path, label] = e.steps[i];
                    const float v = dot(model.label_weights + label * d, vector, d) + model.label_offsets[label];
                    const float bound = std::min(v, 0.0f) + path;
                    if (!(bound < e.best.cutoff())) e.best.add({bound - std::log1p(std::exp(-std::abs(v))), label});
                }
            const std::vector<Scored>& found = e.best.finish();
            write_row(found.data(), static_cast<std::int64_t>(found.size()), k, ids + row * k, scores + row * k);
        }
    });
}

}  // namespace ramify
