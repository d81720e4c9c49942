// The compiled module ramify._core; see common.h.
#include <chrono>
#include <stdexcept>
#include <string>

#include "bindings/common.h"
#include "core/isa.h"
#include "core/parallel.h"
#include "linear/packed.h"

namespace ramify {

namespace {

void check_signals() {
    nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

// Damage of a model that only the search finds has the error of a damaged model.
void translate_damage(const std::exception_ptr& error, void*) {
    try {
        std::rethrow_exception(error);
    } catch (const DamagedTable& damage) {
        const nb::object kind = nb::module_::import_("ramify.base.errors").attr("ModelFormatError");
        PyErr_SetString(kind.ptr(), damage.what());
    }
}

// For tests of the parallel loop: doubles each number after spending busy_seconds on it; a negative one is an error.
std::vector<std::int64_t> parallel_probe(std::vector<std::int64_t> numbers, double busy_seconds, int threads) {
    nb::gil_scoped_release release;
    parallel_for(ssize(numbers.size()), threads, [&](std::int64_t i, int) {
        std::int64_t& x = numbers[static_cast<std::size_t>(i)];
        if (x < 0) throw std::invalid_argument("block " + std::to_string(i) + " is negative");
        const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(busy_seconds);
        while (std::chrono::steady_clock::now() < until) {
        }
        x *= 2;
    });
    return numbers;
}

}  // namespace

}  // namespace ramify

NB_MODULE(_core, m) {
    using namespace ramify;
    interrupt_check = check_signals;
    nb::register_exception_translator(translate_damage);
    isa_name();  // chosen now: a fork while another thread chooses would leave the child waiting
    m.def("isa", [] { return std::string(isa_name()); });
    m.def("parallel_probe", parallel_probe, nb::arg("numbers"), nb::arg("busy_seconds"), nb::arg("threads"));
    bind_text(m);
    bind_names(m);
    bind_xmc_text(m);
    bind_matrix(m);
    bind_linear(m);
    bind_neural(m);
    bind_ann(m);
}
