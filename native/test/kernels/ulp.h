// Measures the error of the elementary functions: for each, the exact function, the domains of the measurement and the
// bounds. Used by the tests, which sample the inputs, and by `continuo_ulp`, which takes all inputs.
//
// An error is |result − exact| in units in the last place of the exact value's binade; below 2⁻¹²⁶ the unit is 2⁻¹⁴⁹. A
// NaN, infinity or zero that is not the exact one, or a wrong sign, is an infinite error. The exact value is computed
// in double, whose own error is below 2⁻²⁷ of an f32's unit; where a result is that close to halfway between two f32,
// in long double.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "backends/cpu/kernels/kernels.h"
#include "test/isa/phases.h"

namespace continuo::test {

namespace exact {
constexpr long double pi = 3.14159265358979323846264338327950288L;
template <class F> F exp(F x) { return std::exp(x); }
template <class F> F log(F x) { return std::log(x); }
template <class F> F tanh(F x) { return std::tanh(x); }
template <class F> F sigmoid(F x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }
template <class F> F decay(F x) { return std::exp(-std::exp(F(-0.5)) * sigmoid(x)); }
template <class F> F silu(F x) { return x == -INFINITY ? F(-0.0) : x * sigmoid(x); }
template <class F> F gelu(F x) {
  return x == -INFINITY ? F(-0.0) : x * sigmoid(2 * std::sqrt(2 / F(pi)) * (x + F(44715) / 1000000 * x * x * x));
}
template <class F> F gelu_erf(F x) { return x == -INFINITY ? F(-0.0) : x * std::erfc(-x / std::sqrt(F(2))) / 2; }
template <class F> F softplus(F x) { return std::fmax(x, F(0)) + std::log1p(std::exp(-std::fabs(x))); }
// The phase is folded to a quarter turn on either side of 0 while it is an integer, so that zeros are exact and their
// neighbours precise.
template <class F> F sin_phase(uint32_t phase) {
  int64_t p = static_cast<int32_t>(phase);
  if (p > int64_t{1} << 30) p = (int64_t{1} << 31) - p;
  if (p < -(int64_t{1} << 30)) p = -(int64_t{1} << 31) - p;
  return std::sin(static_cast<F>(p) * F(pi) * F(0x1p-31));
}
template <class F> F cos_phase(uint32_t phase) { return sin_phase<F>(phase + 0x40000000u); }
}  // namespace exact

// The inputs from `low` to `high`; an input belongs to the first domain that has it.
struct Domain {
  const char* name;
  double low, high;
};

struct Elementary {
  using Kernel = std::function<void(const uint32_t* in, float* out, size_t n)>;
  std::string name;
  bool phase;                   // the input is an integer phase, not the bits of an f32
  std::vector<Kernel> kernels;  // of the runnable tables, the fastest first; the last is the generic one
  double (*value)(uint32_t);
  long double (*precise)(uint32_t);
  std::vector<Domain> domains;
  double bound, subnormal_bound;  // ulp, for results of normal size and below 2⁻¹²⁶
  double input(uint32_t bits) const { return phase ? bits : double{std::bit_cast<float>(bits)}; }
};

template <double (*value)(double)> double on_bits(uint32_t bits) { return value(std::bit_cast<float>(bits)); }
template <long double (*value)(long double)> long double on_bits_precisely(uint32_t bits) {
  return value(std::bit_cast<float>(bits));
}

template <double (*value)(double), long double (*precise)(long double)>
Elementary map_function(const char* name, void (*Kernels::*map)(const float*, float*, size_t),
                        std::vector<Domain> domains, double bound, double subnormal_bound) {
  std::vector<Elementary::Kernel> kernels;
  for (const auto* table : runnable_kernels()) {
    kernels.push_back([run = table->*map](const uint32_t* in, float* out, size_t n) {
      std::memcpy(out, in, n * sizeof *out);
      run(out, out, n);
    });
  }
  return {name, false, kernels, on_bits<value>, on_bits_precisely<precise>, domains, bound, subnormal_bound};
}

inline Elementary phase_function(const char* name, bool sine, double (*value)(uint32_t),
                                 long double (*precise)(uint32_t), double bound) {
  std::vector<Elementary::Kernel> kernels;
  for (const auto run : runnable_phases()) {
    kernels.push_back([=](const uint32_t* in, float* out, size_t n) {
      std::vector<float> other(n);
      run(in, sine ? out : other.data(), sine ? other.data() : out, n);
    });
  }
  return {name, true, kernels, value, precise, {{"all", 0, 0xFFFFFFFFu}}, bound, 0};
}

inline std::vector<Elementary> elementary_functions() {
  constexpr double inf = INFINITY;
  const std::vector<Domain> halves{{"x < 0", -inf, -0x1p-149}, {"x ≥ 0", 0, inf}};
  return {
      map_function<exact::exp, exact::exp>("exp", &Kernels::exp, {{"all", -inf, inf}}, 1, 0.85),
      map_function<exact::log, exact::log>(
          "log", &Kernels::log,
          {{"0.5 to 2", 0.5, 2}, {"subnormal x", 0x1p-149, 0x1.fffffcp-127}, {"the rest", -inf, inf}}, 0.95, 0),
      map_function<exact::tanh, exact::tanh>("tanh", &Kernels::tanh,
                                             {{"|x| < 0.625", -0x1.3ffffep-1, 0x1.3ffffep-1}, {"the rest", -inf, inf}},
                                             1.5, 0.501),
      map_function<exact::sigmoid, exact::sigmoid>("sigmoid", &Kernels::sigmoid, halves, 1.8, 0.85),
      map_function<exact::decay, exact::decay>("decay", &Kernels::decay, halves, 1.6, 0),
      map_function<exact::silu, exact::silu>("silu", &Kernels::silu, halves, 2, 1.5),
      map_function<exact::gelu, exact::gelu>("gelu", &Kernels::gelu, halves, 2, 1.5),
      map_function<exact::gelu_erf, exact::gelu_erf>("gelu_erf", &Kernels::gelu_erf, halves, 4.5, 2),
      map_function<exact::softplus, exact::softplus>("softplus", &Kernels::softplus, halves, 1.9, 0.85),
      phase_function("sin_phase", true, exact::sin_phase<double>, exact::sin_phase<long double>, 0.8),
      phase_function("cos_phase", false, exact::cos_phase<double>, exact::cos_phase<long double>, 0.8),
  };
}

// The error of `got`, signed. F is double or long double.
template <class F> F ulp_error(float got, F want) {
  constexpr F wrong = std::numeric_limits<F>::infinity();
  if (std::isnan(want)) return std::isnan(got) ? 0 : wrong;
  if (std::isnan(got) || std::signbit(got) != std::signbit(want)) return wrong;
  if (std::isinf(want) || want == 0) return got == want ? 0 : wrong;
  const F result = std::isinf(got) ? std::copysign(F(0x1p128), want) : F(got);
  if (std::isinf(got) && std::fabs(want) >= F(0x1.ffffffp127)) return 0;  // what rounds to infinity
  const int exponent = std::ilogb(want);
  return std::ldexp(result - want, 23 - (exponent < -126 ? -126 : exponent));
}

struct Worst {
  double error = 0;
  uint32_t input = 0;
  void join(const Worst& other) {
    if (other.error > error || (other.error == error && other.input < input)) *this = other;
  }
};

// Results of one function over many inputs.
struct Measure {
  struct Cell {
    Worst normal, subnormal;  // by the size of the exact value
  };
  std::vector<Cell> cells;   // a domain each
  uint64_t inputs = 0;       // that are no NaN
  uint64_t not_nearest = 0;  // results that are not the f32 nearest to the exact value
  uint64_t compared = 0;     // results compared between tables
  uint64_t different = 0;    // of them with other bits

  explicit Measure(const Elementary& f) : cells(f.domains.size()) {}

  void join(const Measure& other) {
    for (size_t i = 0; i < cells.size(); ++i) {
      cells[i].normal.join(other.cells[i].normal);
      cells[i].subnormal.join(other.cells[i].subnormal);
    }
    inputs += other.inputs;
    not_nearest += other.not_nearest;
    compared += other.compared;
    different += other.different;
  }

  // The fastest table is measured at every input and compared with the others: with the generic one at one of `stride`
  // inputs.
  void take(const Elementary& f, std::span<const uint32_t> in, size_t stride) {
    std::vector<float> got(in.size()), other(in.size());
    f.kernels[0](in.data(), got.data(), in.size());
    for (size_t k = 1; k + 1 < f.kernels.size(); ++k) {
      f.kernels[k](in.data(), other.data(), in.size());
      for (size_t i = 0; i < in.size(); ++i) compare(got[i], other[i]);
    }
    std::vector<uint32_t> few;
    for (size_t i = 0; i < in.size(); i += stride) few.push_back(in[i]);
    f.kernels.back()(few.data(), other.data(), few.size());
    for (size_t i = 0; i < few.size(); ++i) compare(got[i * stride], other[i]);
    for (size_t i = 0; i < in.size(); ++i) judge(f, in[i], got[i]);
  }

 private:
  // A NaN's payload is not part of the arithmetic.
  void compare(float a, float b) {
    ++compared;
    if (std::bit_cast<uint32_t>(a) != std::bit_cast<uint32_t>(b) && !(std::isnan(a) && std::isnan(b))) ++different;
  }

  void judge(const Elementary& f, uint32_t bits, float got) {
    const double x = f.input(bits);
    if (std::isnan(x)) {
      if (!std::isnan(got)) cells.back().normal.join({INFINITY, bits});
      return;
    }
    const double want = f.value(bits);
    double error = std::fabs(ulp_error(got, want));
    if (std::fabs(error - 0.5) < 0x1p-20) error = static_cast<double>(std::fabs(ulp_error(got, f.precise(bits))));
    ++inputs;
    if (error > 0.5) ++not_nearest;
    size_t at = 0;
    while (!(x >= f.domains[at].low && x <= f.domains[at].high)) ++at;
    const bool subnormal = std::fabs(want) < 0x1p-126 && want != 0;
    (subnormal ? cells[at].subnormal : cells[at].normal).join({error, bits});
  }
};

}  // namespace continuo::test
