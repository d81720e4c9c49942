// The walk from the clusters in the beam to their labels, for one row at a time; used by explore.cpp and
// graph_search.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/histogram.h"
#include "core/scratch.h"
#include "core/topk.h"
#include "neural/label_graph.h"

namespace ramify {

// Best path to every label that was reached. Its arrays have the size of all labels, so it is kept between rows and
// calls.
class Explorer {
public:
    struct Path {
        std::uint32_t row;  // that reached the label last
        float score;        // of its best path then
    };

    std::vector<std::int32_t> beam;     // explored clusters of the row, ascending
    std::vector<std::int32_t> reached;  // labels
    LogScoreBins bins;
    TopK best;

    bool is_reached(std::int32_t label) const { return paths_[static_cast<std::size_t>(label)].row == row_; }
    float score(std::int32_t label) const { return paths_[static_cast<std::size_t>(label)].score; }
    std::int32_t edge(std::int32_t label) const { return edges_[static_cast<std::size_t>(label)]; }

    // Adds the best beam_size clusters by `order` to those that are in the beam already.
    void choose_clusters(const float* order, std::int64_t n_clusters, std::int64_t beam_size) {
        ranked_.clear();
        for (std::int64_t c = 0; c < n_clusters; ++c) ranked_.push_back({order[c], static_cast<std::int32_t>(c)});
        if (beam_size < n_clusters)
            std::nth_element(ranked_.begin(), ranked_.begin() + beam_size, ranked_.end(), better);
        for (std::int64_t i = 0; i < std::min(beam_size, n_clusters); ++i)
            beam.push_back(ranked_[static_cast<std::size_t>(i)].id);
        std::sort(beam.begin(), beam.end());
        beam.erase(std::unique(beam.begin(), beam.end()), beam.end());
    }

    // Finds the best path to every label below the clusters in the beam; of equal ones that of the lower cluster. Not
    // inlined: inside a large function its inner loop would run out of registers.
    [[gnu::noinline]] void walk(const GraphView& graph, const float* clusters) {
        start_row(graph.n_labels);
        // Copies: the compiler has to assume that the stores below change the originals.
        Path* const paths = paths_.data();
        std::int32_t* const edges = edges_.data();
        const std::uint32_t row = row_;
        for (const std::int32_t c : beam)
            for (std::int64_t i = graph.indptr[c]; i < graph.indptr[c + 1]; ++i) {
                const auto label = static_cast<std::size_t>(graph.labels[i]);
                const float score = clusters[c] + graph.scores[i];
                Path& path = paths[label];
                if (path.row != row) {
                    reached.push_back(static_cast<std::int32_t>(label));
                } else if (!(score > path.score)) {
                    continue;
                }
                path = {row, score};
                edges[label] = static_cast<std::int32_t>(i);
            }
    }

    // Puts the `width` best of the reached labels into bins.
    void bin_best(std::int64_t width) {
        bins.start();
        for (const std::int32_t label : reached) bins.add({score(label), label});
        bins.finish(width);
    }

    // Reduces the reached labels to the `width` best, ascending.
    void keep_best(std::int64_t width) {
        if (static_cast<std::int64_t>(reached.size()) > width) {
            bin_best(width);
            reached.clear();
            for (std::int64_t i = 0; i < width; ++i) reached.push_back(bins[i].id);
        }
        std::sort(reached.begin(), reached.end());
    }

private:
    void start_row(std::int64_t n_labels) {
        if (static_cast<std::int64_t>(paths_.size()) < n_labels) {
            paths_.resize(static_cast<std::size_t>(n_labels), {row_, 0.0f});
            edges_.resize(static_cast<std::size_t>(n_labels));
        }
        if (++row_ == 0) {  // the counter has wrapped around
            for (Path& path : paths_) path.row = 0;
            row_ = 1;
        }
        reached.clear();
    }

    std::vector<Path> paths_;          // (n_labels)
    std::vector<std::int32_t> edges_;  // (n_labels) last edge of the path
    std::uint32_t row_ = 0;
    std::vector<Scored> ranked_;
};

using ExplorerPool = ScratchPool<Explorer>;
inline ExplorerPool explorers;

}  // namespace ramify
