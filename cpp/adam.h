// One step of Adam for one number (Kingma and Ba, 2015), with decoupled weight decay.
#pragma once

#include <cmath>
#include <cstdint>

namespace ramify {

struct AdamOptions {
    float rate = 0.001f, beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-8f, weight_decay = 0.0f;
    std::int64_t step = 1;  // from 1 on, for the bias correction
};

struct AdamStep {
    explicit AdamStep(const AdamOptions& o)
        : options(o),
          first_scale(1.0f / (1.0f - static_cast<float>(std::pow(static_cast<double>(o.beta1), static_cast<double>(o.step))))),
          second_scale(1.0f / (1.0f - static_cast<float>(std::pow(static_cast<double>(o.beta2), static_cast<double>(o.step))))) {}

    void operator()(float& value, float gradient, float& m, float& v, bool decays) const {
        m = options.beta1 * m + (1.0f - options.beta1) * gradient;
        v = options.beta2 * v + (1.0f - options.beta2) * gradient * gradient;
        if (decays) value -= options.rate * options.weight_decay * value;
        value -= options.rate * (m * first_scale) / (std::sqrt(v * second_scale) + options.epsilon);
    }

    const AdamOptions& options;
    const float first_scale, second_scale;
};

}  // namespace ramify
