#include "text/xmc_text.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

#include "core/parallel.h"

namespace ramify {

namespace {

constexpr std::size_t max_recorded = 100;

struct LineError {
    std::string reason;
};

[[noreturn]] void fail(std::string reason) { throw LineError{std::move(reason)}; }

bool blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

const char* skip_blanks(const char* p, const char* end) {
    while (p < end && blank(*p)) ++p;
    return p;
}

std::string quoted(const char* p, const char* end) {
    const char* stop = p;
    while (stop < end && !blank(*stop) && stop - p < 40) ++stop;
    std::string text(1, '\'');
    text.append(p, stop);
    text.push_back('\'');
    return text;
}

// Reads the digits at p, appends them to a decimal number, and returns their count: eight at a time within one word
// where eight bytes are left, since a loop that ends after a few digits is mostly mispredicted branches. The number
// overflows silently after 19 digits.
[[gnu::always_inline]] inline std::int64_t read_digits(const char*& p, const char* end, std::uint64_t& number) {
    static constexpr std::uint64_t powers[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
    const char* const start = p;
    while (end - p >= 8) {
        std::uint64_t x;
        std::memcpy(&x, p, 8);
        x ^= 0x3030303030303030u;  // digits become 0 to 9
        const std::uint64_t other = ((x + 0x7676767676767676u) | x) & 0x8080808080808080u;
        const int n = std::countr_zero(other) / 8;  // 8 if all are digits
        if (n == 0) return p - start;
        x <<= (8 - n) * 8;  // leading zeros
        x = (x * 10 + (x >> 8)) & 0x00ff00ff00ff00ffu;
        x = (x * 100 + (x >> 16)) & 0x0000ffff0000ffffu;
        x = (x * 10000 + (x >> 32)) & 0xffffffffu;
        number = number * powers[n] + x;
        p += n;
        if (n < 8) return p - start;
    }
    while (p < end && *p >= '0' && *p <= '9') number = number * 10 + static_cast<std::uint64_t>(*p++ - '0');
    return p - start;
}

std::int64_t parse_id(const char*& p, const char* end, const char* what, std::int64_t limit) {
    const char* const start = p;
    std::uint64_t number = 0;
    const std::int64_t n_digits = read_digits(p, end, number);
    if (n_digits == 0 || n_digits > 18)
        fail(std::string(what) + " " + quoted(start, end) + " is not a non-negative integer");
    const auto id = static_cast<std::int64_t>(number);
    if (id >= limit)
        fail(std::string(what) + " " + std::to_string(id) + " is beyond the " + std::to_string(limit) +
             " of the header");
    return id;
}

// Most values have few digits: an integer below 2^53 divided by a power of ten up to 10^22 is correctly rounded.
double parse_value(const char*& p, const char* end) {
    static constexpr double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                        1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const char* const start = p;
    const char* q = p;
    const bool negative = q < end && *q == '-';
    if (q < end && (*q == '-' || *q == '+')) ++q;
    std::uint64_t mantissa = 0;
    std::int64_t n_digits = 1, n_fraction = 0;
    if (end - q > 1 && q[0] == '0' && q[1] == '.') {  // by far the most common prefix
        ++q;
    } else {
        n_digits = read_digits(q, end, mantissa);
    }
    if (q < end && *q == '.') {
        n_fraction = read_digits(++q, end, mantissa);
        n_digits += n_fraction;
    }
    const bool ended = q == end || blank(*q) || *q == '\n';
    if (ended && n_digits > 0 && n_digits <= 18 && mantissa < (std::uint64_t{1} << 53)) {
        p = q;
        const double v = static_cast<double>(mantissa) / powers[n_fraction];
        return negative ? -v : v;
    }
    double v = 0.0;
    const char* from = start < end && *start == '+' ? start + 1 : start;
    const auto [stop, error] = std::from_chars(from, end, v);
    if (error == std::errc::result_out_of_range) fail("value " + quoted(start, end) + " is out of range");
    if (error != std::errc() || (stop < end && !blank(*stop))) fail("value " + quoted(start, end) + " is not a number");
    p = stop;
    return v;
}

// Contents of one block of lines; rows in order.
struct BlockRows {
    std::vector<std::int64_t> label_ends, feature_ends;
    std::vector<std::int32_t> labels;
    GrowingArray<std::int32_t> features;
    GrowingArray<float> values;
    std::vector<BadLine> bad;  // line numbers within the block
    std::vector<std::int64_t> bad_rows;
    std::int64_t n_lines = 0;
};

struct LineParser {
    const XmcTextParser::Limits& limits;
    BlockRows& rows;
    std::vector<std::pair<std::int32_t, float>> sorting;

    void parse(const char* p, const char* end) {
        const std::size_t first_label = rows.labels.size(), first_feature = rows.features.size();
        try {
            if (limits.with_labels) p = parse_labels(p, end, first_label);
            parse_features(p, end, first_feature);
            rows.label_ends.push_back(static_cast<std::int64_t>(rows.labels.size()));
            rows.feature_ends.push_back(static_cast<std::int64_t>(rows.features.size()));
        } catch (LineError& error) {
            rows.labels.resize(first_label);
            rows.features.cut(first_feature);
            rows.values.cut(first_feature);
            rows.bad_rows.push_back(rows.n_lines);
            if (rows.bad.size() < max_recorded) rows.bad.push_back({rows.n_lines, std::move(error.reason)});
        }
        ++rows.n_lines;
    }

    const char* parse_labels(const char* p, const char* end, std::size_t first) {
        if (p == end || blank(*p)) return p;  // no labels
        const char* token_end = p;
        while (token_end < end && !blank(*token_end) && *token_end != ':') ++token_end;
        if (token_end < end && *token_end == ':') return p;  // features already: no labels either
        while (true) {
            rows.labels.push_back(static_cast<std::int32_t>(parse_id(p, end, "label", limits.n_labels)));
            if (p == end || blank(*p)) break;
            if (*p != ',') fail("label " + quoted(p, end) + " is not a non-negative integer");
            ++p;
        }
        // A repeated label counts once.
        const auto begin = rows.labels.begin() + static_cast<std::ptrdiff_t>(first);
        if (!std::is_sorted(begin, rows.labels.end())) std::sort(begin, rows.labels.end());
        rows.labels.erase(std::unique(begin, rows.labels.end()), rows.labels.end());
        return p;
    }

    void parse_features(const char* p, const char* end, std::size_t first) {
        std::int64_t last = -1;
        bool ascending = true;
        const auto most = static_cast<std::size_t>((end - p) / 4 + 1);  // " f:v" has four characters
        rows.features.reserve_more(most);
        rows.values.reserve_more(most);
        for (p = skip_blanks(p, end); p < end; p = skip_blanks(p, end)) {
            const char* const token = p;
            const std::int64_t id = parse_id(p, end, "feature", limits.n_features);
            if (p == end || *p != ':') fail("expected feature:value, found " + quoted(token, end));
            ++p;
            const float value = static_cast<float>(parse_value(p, end));
            if (!std::isfinite(value))
                fail("feature " + std::to_string(id) + " has the value " + quoted(token, end) +
                     ", which is not finite");
            if (value == 0.0f) continue;  // zeros are not stored
            ascending &= id > last;
            last = id;
            rows.features.push_back_reserved(static_cast<std::int32_t>(id));
            rows.values.push_back_reserved(value);
        }
        if (!ascending) sort_features(first);
    }

    // Sorts features by id; values of a repeated id are summed.
    void sort_features(std::size_t first) {
        sorting.clear();
        for (std::size_t i = first; i < rows.features.size(); ++i)
            sorting.emplace_back(rows.features[i], rows.values[i]);
        std::stable_sort(sorting.begin(), sorting.end(), [](auto& a, auto& b) { return a.first < b.first; });
        std::size_t out = first;
        for (std::size_t i = 0; i < sorting.size();) {
            float sum = 0.0f;
            const std::int32_t id = sorting[i].first;
            for (; i < sorting.size() && sorting[i].first == id; ++i) sum += sorting[i].second;
            if (!std::isfinite(sum))
                fail("the values of feature " + std::to_string(id) + " have a sum that is not finite");
            if (sum == 0.0f) continue;
            rows.features[out] = id;
            rows.values[out] = sum;
            ++out;
        }
        rows.features.cut(out);
        rows.values.cut(out);
    }
};

}  // namespace

XmcTextParser::XmcTextParser(Limits limits, std::int64_t first_line, int threads)
    : limits_(limits), first_line_(first_line), threads_(threads) {}

std::int64_t XmcTextParser::feed(const char* data, std::int64_t size, bool last, bool stop_at_bad) {
    const char* end = data + size;
    if (!last) {
        while (end > data && end[-1] != '\n') --end;
    }
    constexpr std::int64_t block_size = 1 << 18;
    const std::int64_t used = end - data, n_blocks = (used + block_size - 1) / block_size;
    // The first line that starts in each block or behind it. One after the other: the blocks of a long line would all
    // search for its end.
    std::vector<const char*> starts(static_cast<std::size_t>(n_blocks) + 1, end);
    if (n_blocks > 0) starts[0] = data;
    for (std::int64_t b = 1; b < n_blocks; ++b) {
        const char *const at = data + b * block_size, *before = starts[static_cast<std::size_t>(b) - 1];
        const void* found =
            before >= at ? before - 1 : std::memchr(at - 1, '\n', static_cast<std::size_t>(end - at + 1));
        if (found == nullptr) break;
        starts[static_cast<std::size_t>(b)] = static_cast<const char*>(found) + 1;
    }
    std::vector<BlockRows> blocks(static_cast<std::size_t>(n_blocks));
    parallel_for(n_blocks, threads_, [&](std::int64_t b, int) {
        const char* p = starts[static_cast<std::size_t>(b)];
        const char* const stop = starts[static_cast<std::size_t>(b) + 1];
        LineParser parser{limits_, blocks[static_cast<std::size_t>(b)], {}};
        while (p < stop) {
            const void* found = std::memchr(p, '\n', static_cast<std::size_t>(stop - p));
            const char* const line_end = found != nullptr ? static_cast<const char*>(found) : stop;
            parser.parse(p, line_end);
            p = line_end + 1;
        }
    });
    // First the position of each block, in order; then all are copied in parallel.
    struct Position {
        std::size_t row, label, feature;
    };
    std::vector<Position> positions;
    for (BlockRows& block : blocks) {
        for (BadLine& bad : block.bad) {
            if (bad_.size() < max_recorded) bad_.push_back({first_line_ + row_ + bad.line, std::move(bad.reason)});
        }
        for (const std::int64_t row : block.bad_rows) bad_rows_.push_back(row_ + row);
        row_ += block.n_lines;
        if (stop_at_bad && !block.bad_rows.empty()) return used;
        label_ends.grow(block.label_ends.size());
        values.grow(block.values.size());
        positions.push_back({feature_ends.grow(block.feature_ends.size()), labels.grow(block.labels.size()),
                             features.grow(block.features.size())});
    }
    parallel_for(n_blocks, threads_, [&](std::int64_t b, int) {
        BlockRows& block = blocks[static_cast<std::size_t>(b)];
        const auto [row, label, feature] = positions[static_cast<std::size_t>(b)];
        for (std::size_t i = 0; i < block.label_ends.size(); ++i) {
            label_ends[row + i] = block.label_ends[i] + static_cast<std::int64_t>(label);
            feature_ends[row + i] = block.feature_ends[i] + static_cast<std::int64_t>(feature);
        }
        std::copy_n(block.labels.data(), block.labels.size(), labels.data() + label);
        std::copy_n(block.features.data(), block.features.size(), features.data() + feature);
        std::copy_n(block.values.data(), block.values.size(), values.data() + feature);
    });
    return used;
}

}  // namespace ramify
