// One step of Adam (Kingma and Ba, 2015) with decoupled weight decay; compiled for several instruction sets
// (core/isa.h).
#pragma once

#include <cmath>
#include <cstdint>

namespace ramify {

struct AdamOptions {
    float learning_rate = 0.001f, beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-8f, weight_decay = 0.0f;
    std::int64_t step = 1;  // from 1 on, for the bias correction
};

// The constants of one step.
struct AdamStep {
    explicit AdamStep(const AdamOptions& o)
        : learning_rate(o.learning_rate),
          beta1(o.beta1),
          beta2(o.beta2),
          epsilon(o.epsilon),
          decay(o.learning_rate * o.weight_decay),
          first_scale(bias_correction(o.beta1, o.step)),
          second_scale(bias_correction(o.beta2, o.step)) {}

    float learning_rate, beta1, beta2, epsilon, decay, first_scale, second_scale;

private:
    // 1 / (1 - β^t)
    static float bias_correction(float beta, std::int64_t step) {
        return 1.0f / (1.0f - static_cast<float>(std::pow(static_cast<double>(beta), static_cast<double>(step))));
    }
};

// Updates n values with gradients g and moments m (first) and v (second):
//   m = β₁ m + (1 - β₁) g,   v = β₂ v + (1 - β₂) g²
//   value -= η λ value (if `decays`) + η · m / (1 - β₁ᵗ) / (√(v / (1 - β₂ᵗ)) + ε)
using AdamUpdate = void (*)(const AdamStep& step, const float* gradients, std::int64_t n, bool decays, float* values,
                            float* first, float* second);

}  // namespace ramify
