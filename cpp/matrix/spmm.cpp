#include "matrix/spmm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/parallel.h"
#include "core/scratch.h"
#include "core/vector_ops.h"

namespace ramify {

namespace {

constexpr std::int64_t block_size = 64;

// Accumulates one row of the result: a dense row of sums, and a bitmap of the columns in use.
class RowSum {
public:
    void resize(std::int64_t n_columns) {
        sums_.resize(static_cast<std::size_t>(n_columns), 0.0f);
        touched_.resize(static_cast<std::size_t>(n_columns + 63) / 64, 0);
    }

    // Whether so few additions make a row that listing the words of the bitmap is cheaper than looking at all of them:
    // rows times columns would grow with the square of the features.
    bool is_few(std::int64_t n) const { return n < static_cast<std::int64_t>(touched_.size()) / 16; }

    template <bool few, class Index>
    void add(float scale, const Index* columns, const float* values, std::int64_t n) {
        for (std::int64_t i = 0; i < n; ++i) {
            const auto c = static_cast<std::size_t>(columns[i]);
            if constexpr (few)
                if (touched_[c / 64] == 0) words_.push_back(c / 64);
            touched_[c / 64] |= std::uint64_t{1} << (c % 64);
            sums_[c] += scale * values[i];
        }
    }

    // Appends the row in column order, scaled to unit norm if asked, and starts the next.
    template <bool few>
    void take(bool unit_rows, std::vector<std::int32_t>& columns, std::vector<float>& values) {
        const std::size_t first = values.size();
        double square = 0;
        const auto take_word = [&](std::size_t word) {
            for (std::uint64_t bits = touched_[word]; bits != 0; bits &= bits - 1) {
                const std::size_t c = 64 * word + static_cast<std::size_t>(__builtin_ctzll(bits));
                columns.push_back(static_cast<std::int32_t>(c));
                values.push_back(sums_[c]);
                square += static_cast<double>(sums_[c]) * sums_[c];
                sums_[c] = 0.0f;
            }
            touched_[word] = 0;
        };
        if constexpr (few) {
            std::sort(words_.begin(), words_.end());
            for (const std::size_t word : words_) take_word(word);
            words_.clear();
        } else {
            for (std::size_t word = 0; word < touched_.size(); ++word) take_word(word);
        }
        if (!unit_rows || square <= 0) return;
        const double norm = std::sqrt(square);
        for (std::size_t i = first; i < values.size(); ++i) values[i] = static_cast<float>(values[i] / norm);
    }

private:
    std::vector<float> sums_;
    std::vector<std::uint64_t> touched_;
    std::vector<std::size_t> words_;
};

}  // namespace

template <class Index>
CsrRows spmm(const CsrView<Index>& a, const CsrView<Index>& b, bool unit_rows, int threads) {
    struct Block {
        std::vector<std::int32_t> columns;
        std::vector<float> values;
    };
    const std::int64_t n_blocks = (a.rows + block_size - 1) / block_size;
    std::vector<Block> blocks(static_cast<std::size_t>(n_blocks));
    std::vector<std::int64_t> indptr(static_cast<std::size_t>(a.rows) + 1, 0);
    ScratchPool<RowSum> sums;

    parallel_for(n_blocks, threads, [&](std::int64_t index, int) {
        Block& block = blocks[static_cast<std::size_t>(index)];
        const ScratchPool<RowSum>::Lease lease(sums);
        RowSum& sum = *lease;
        sum.resize(b.cols);
        const auto add_row = [&]<bool few>(std::int64_t row) {
            for (Index i = a.indptr[row]; i < a.indptr[row + 1]; ++i) {
                const Index inner = a.indices[i], start = b.indptr[inner];
                sum.template add<few>(a.data[i], b.indices + start, b.data + start, b.indptr[inner + 1] - start);
            }
            sum.template take<few>(unit_rows, block.columns, block.values);
        };
        for (std::int64_t row = index * block_size; row < std::min(a.rows, (index + 1) * block_size); ++row) {
            std::int64_t n = 0;
            for (Index i = a.indptr[row]; i < a.indptr[row + 1] && sum.is_few(n); ++i)
                n += b.indptr[a.indices[i] + 1] - b.indptr[a.indices[i]];
            const std::size_t before = block.columns.size();
            if (sum.is_few(n)) add_row.template operator()<true>(row);
            else add_row.template operator()<false>(row);
            indptr[static_cast<std::size_t>(row) + 1] = static_cast<std::int64_t>(block.columns.size() - before);
        }
    });

    accumulate(indptr);
    CsrRows rows = allocate_rows(std::move(indptr));
    parallel_for(n_blocks, threads, [&](std::int64_t index, int) {
        Block block = std::move(blocks[static_cast<std::size_t>(index)]);
        const std::int64_t at = rows.indptr[static_cast<std::size_t>(index * block_size)];
        std::copy(block.columns.begin(), block.columns.end(), rows.indices.get() + at);
        std::copy(block.values.begin(), block.values.end(), rows.data.get() + at);
    });
    return rows;
}

template <class Index>
void spmm_dense(const CsrView<Index>& a, const float* b, std::int64_t q, int threads, float* out) {
    parallel_for((a.rows + block_size - 1) / block_size, threads, [&](std::int64_t block, int) {
        for (std::int64_t row = block * block_size; row < std::min(a.rows, (block + 1) * block_size); ++row) {
            std::fill(out + row * q, out + (row + 1) * q, 0.0f);
            ScaledSum sum(q, out + row * q);
            for (Index i = a.indptr[row]; i < a.indptr[row + 1]; ++i)
                sum.add(a.data[i], b + static_cast<std::int64_t>(a.indices[i]) * q);
            sum.finish();
        }
    });
}

template CsrRows spmm(const CsrView<std::int32_t>&, const CsrView<std::int32_t>&, bool, int);
template CsrRows spmm(const CsrView<std::int64_t>&, const CsrView<std::int64_t>&, bool, int);
template void spmm_dense(const CsrView<std::int32_t>&, const float*, std::int64_t, int, float*);
template void spmm_dense(const CsrView<std::int64_t>&, const float*, std::int64_t, int, float*);

}  // namespace ramify
