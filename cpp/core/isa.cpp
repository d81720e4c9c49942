#include "core/isa.h"

#include <cstdlib>
#include <string_view>

namespace ramify {

namespace baseline {
const HotKernels& kernels();
}
#ifdef RAMIFY_X86_VARIANTS
namespace avx2 {
const HotKernels& kernels();
}
namespace avx512 {
const HotKernels& kernels();
}
#endif

namespace {

struct Choice {
    const HotKernels* kernels;
    const char* name;
};

Choice choose() {
#ifdef RAMIFY_X86_VARIANTS
    const char* wish = std::getenv("RAMIFY_ISA");
    const std::string_view limit = wish ? wish : "";
    __builtin_cpu_init();
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                          __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (limit != "baseline" && limit != "avx2" && has_avx512) return {&avx512::kernels(), "avx512"};
    if (limit != "baseline" && has_avx2) return {&avx2::kernels(), "avx2"};
#endif
    return {&baseline::kernels(), "baseline"};
}

const Choice& choice() {
    static const Choice chosen = choose();
    return chosen;
}

}  // namespace

const HotKernels& hot() { return *choice().kernels; }
const char* isa_name() { return choice().name; }

}  // namespace ramify
