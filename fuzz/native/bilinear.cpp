// Bilinear weights of samples, labels and links with values up to the largest that are accepted: finite, and the same
// again.
#include "linear/bilinear.h"

#include <cmath>

#include "input.h"

using namespace ramify;

namespace {

// Input is checked before it gets here: finite, of magnitudes up to 1e15, and rows of samples and labels are scaled.
float checked(float x) { return std::isfinite(x) ? std::clamp(x, -16.0f, 16.0f) : 1.0f; }

SparseRows rows_of(Input& input, std::int64_t n, std::int64_t n_columns, std::uint8_t most) {
    SparseRows rows = input.rows(n, n_columns, most);
    for (float& x : rows.data) x = checked(x);
    return rows;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input input{data, size};
    const std::int64_t n = input.between(0, 12), d = input.between(1, 10), n_labels = input.between(1, 12);
    const std::int64_t e = input.between(1, 20);
    const SparseRows X = rows_of(input, n, d, 6), Z = rows_of(input, n_labels, e, 5), W = rows_of(input, d, e, 6);
    SparseRows pairs = rows_of(input, n, n_labels, 8);
    for (float& target : pairs.data) target = target < 0 ? -1.0f : 1.0f;
    std::vector<float> costs;
    for (std::int64_t i = 0; i < n; ++i) costs.push_back(0.1f + std::abs(checked(input.number())));
    const BilinearOptions options{0.5f + std::abs(checked(input.number())), 0.5f + std::abs(checked(input.number())),
                                  1e-3f, static_cast<int>(input.between(1, 8)), input.take<std::uint64_t>()};
    std::vector<float> weights(W.indices.size(), 7.0f), again(W.indices.size(), -7.0f);
    const auto first = fit_bilinear(X.view(), Z.view(), pairs.view(), costs.data(), W.view(), options, weights.data());
    const auto second = fit_bilinear(X.view(), Z.view(), pairs.view(), costs.data(), W.view(), options, again.data());
    require(weights == again && first.direct == second.direct && first.bias == second.bias);
    require(std::isfinite(first.direct) && std::isfinite(first.bias));
    for (const float weight : weights) require(std::isfinite(weight));
    return 0;
}
