// Arbitrary bytes as XMC text, in one piece and in pieces: the same rows, or the same bad lines.
#include <cstdlib>

#include "input.h"
#include "text/xmc_text.h"

using namespace ramify;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input input{data, size};
    const XmcTextParser::Limits limits{input.between(1, 1000), input.between(1, 1000),
                                       input.take<std::uint8_t>() % 2 != 0};
    const auto cut = input.take<std::uint16_t>();
    const std::vector<std::uint8_t> bytes = input.rest();
    const char* text = reinterpret_cast<const char*>(bytes.data());
    const auto n = static_cast<std::int64_t>(bytes.size());
    XmcTextParser whole(limits, 1, 1), parts(limits, 1, 1);
    whole.feed(text, n, true, false);
    const std::int64_t used = parts.feed(text, n > 0 ? cut % (n + 1) : 0, false, false);
    parts.feed(text + used, n - used, true, false);
    if (whole.bad_rows() != parts.bad_rows() || whole.values.size() != parts.values.size() ||
        whole.labels.size() != parts.labels.size() || whole.feature_ends.size() != parts.feature_ends.size())
        std::abort();
    return 0;
}
