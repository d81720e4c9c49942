// Settings of one step of Adam (Kingma and Ba, 2015), with decoupled weight decay.
#pragma once

#include <cmath>
#include <cstdint>

namespace ramify {

struct AdamOptions {
    float rate = 0.001f, beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-8f, weight_decay = 0.0f;
    std::int64_t step = 1;  // from 1 on, for the bias correction
};

// The same as the loops want it: what does not change within a step.
struct AdamStep {
    explicit AdamStep(const AdamOptions& o)
        : rate(o.rate), beta1(o.beta1), beta2(o.beta2), epsilon(o.epsilon), decay(o.rate * o.weight_decay),
          first_scale(1.0f / (1.0f - static_cast<float>(std::pow(static_cast<double>(o.beta1), static_cast<double>(o.step))))),
          second_scale(1.0f / (1.0f - static_cast<float>(std::pow(static_cast<double>(o.beta2), static_cast<double>(o.step))))) {}

    float rate, beta1, beta2, epsilon, decay, first_scale, second_scale;
};

}  // namespace ramify
