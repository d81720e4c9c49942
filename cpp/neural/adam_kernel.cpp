// Compiled once for each instruction set; core/kernel_table.cpp says what that forbids.
#include "neural/adam_kernel.h"

#include <string.h>

namespace ramify::RAMIFY_VARIANT {

namespace {

void update(const AdamStep& step, const float* __restrict gradients, std::int64_t n, bool decays,
            float* __restrict values, float* __restrict first, float* __restrict second) {
    const float keep1 = step.beta1, new1 = 1.0f - step.beta1, keep2 = step.beta2, new2 = 1.0f - step.beta2;
    const float decay = decays ? step.decay : 0.0f, rate = step.learning_rate, epsilon = step.epsilon;
    const float scale1 = step.first_scale, scale2 = step.second_scale;
    for (std::int64_t i = 0; i < n; ++i) {
        const float g = gradients[i], m = keep1 * first[i] + new1 * g, v = keep2 * second[i] + new2 * g * g;
        const float value = values[i] - decay * values[i];
        first[i] = m;
        second[i] = v;
        values[i] = value - rate * (m * scale1) / (__builtin_sqrtf(v * scale2) + epsilon);
    }
}

}  // namespace

extern const AdamUpdate adam;
const AdamUpdate adam = update;

}  // namespace ramify::RAMIFY_VARIANT
