// Scores of candidates by feature weights of arbitrary bytes: an answer or DamagedTable.
#include "linear/candidates.h"
#include "input.h"

using namespace ramify;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input input{data, size};
    const std::int64_t n_features = input.between(1, 40);
    const std::int64_t n_labels = input.take<std::uint8_t>() % 32 == 0 ? 70'000 : input.between(1, 300);
    std::vector<std::uint32_t> starts = input.array<std::uint32_t>(static_cast<std::size_t>(n_features) + 1);
    const std::int64_t n_bytes = input.between(0, 600);
    for (auto& start : starts)
        if (start % 8 != 0) start %= static_cast<std::uint32_t>(n_bytes / 4 + 2);
    if (input.take<std::uint8_t>() % 4 != 0) std::sort(starts.begin(), starts.end());
    const auto blocks = input.array<std::uint8_t>(static_cast<std::size_t>(n_bytes + feature_block_padding));
    std::vector<std::int32_t> positions(static_cast<std::size_t>(n_labels)), indptr{0}, indices, candidates;
    for (std::size_t i = 0; i < positions.size(); ++i)
        positions[i] = static_cast<std::int32_t>(positions.size() - 1 - i);
    std::vector<float> bias(positions.size(), 0.5f), values;
    for (std::int32_t f = 0; f < n_features; ++f) indices.push_back(f), values.push_back(0.5f);
    indptr.push_back(static_cast<std::int32_t>(indices.size()));
    const std::int64_t width = input.between(1, 40);
    for (std::int64_t i = 0; i < width; ++i)
        candidates.push_back(static_cast<std::int32_t>(input.between(-1, n_labels - 1)));
    const LinearClassifiers classifiers{
        {n_features, n_labels, starts.data(), blocks.data(), static_cast<std::int64_t>(blocks.size())},
        positions.data(),
        nullptr,
        0,
        bias.data()};
    const CandidateQueries<std::int32_t> queries{
        {1, n_features, indptr.data(), indices.data(), values.data()}, nullptr, 1.0f, candidates.data(), width};
    std::vector<float> out(static_cast<std::size_t>(width));
    try {
        score_candidates(classifiers, queries, out.data(), 1);
    } catch (const DamagedTable&) {
    }
    return 0;
}
