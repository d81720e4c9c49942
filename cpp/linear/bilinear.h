// Training of a sparse bilinear model: score(x, l) = xᵀ W z_l + β xᵀ z_l + bias, with weights only where W
// has entries.
#pragma once

#include <cstdint>

#include "core/csr.h"

namespace ramify {

constexpr float direct_scale = 4;  // of β: raising it regularizes β less

struct BilinearOptions {
    float positive_cost = 1;  // C of pairs with the target 1
    float negative_cost = 1;  // C of pairs with the target -1
    float tolerance = 0.1f;   // training stops at this largest violation of the optimality conditions
    int max_epochs = 10;
    std::uint64_t seed = 0;
};

struct BilinearShared {
    float direct = 0;  // β: weight of terms that a sample and a label have in common, one for all terms
    float bias = 0;
};

// Minimizes ½‖W‖² + ½ (β / direct_scale)² + ½ bias² + Σ_pairs C · cost(row) · max(0, 1 - target · score)² by dual
// coordinate descent (Hsieh et al. 2008) over the pairs (n × L), whose data are the targets 1 and -1. X (n × d),
// Z (L × e), W (d × e); the first columns of X and Z are the same terms; costs (n) are above 0. Writes weights (nnz of
// W). One thread: each pair sees what the pairs before it have changed.
BilinearShared fit_bilinear(const CsrView<std::int32_t>& X, const CsrView<std::int32_t>& Z,
                            const CsrView<std::int32_t>& pairs, const float* costs, const CsrView<std::int32_t>& W,
                            const BilinearOptions& options, float* weights);

}  // namespace ramify
