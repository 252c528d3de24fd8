// Shared by the tests of recurrences: what a head gives, and how it is run in parts.
#pragma once

#include "test/kernel_inputs.h"

namespace continuo::test {

struct Outcome {
  std::vector<float> y, state;  // y [tokens][n]
};

// Runs the tokens and lanes of a head in parts. Head: n channels in rows of `stride`, `tokens`, `state`.
// part(state, y, first, tokens, lane, end) runs `tokens` tokens from `first` on through lanes [lane, end), from the
// state, and writes from y on.
template <class Head> Outcome in_parts(Random& random, const Head& h, const auto& part) {
  Slice state(h.state, random.below(17)), y(h.tokens * h.stride, random.below(17));
  const size_t cut = 1 + random.below(h.tokens);
  for (size_t first = 0; first < h.tokens; first += cut) {
    const size_t tokens = std::min(cut, h.tokens - first), middle = random.below(h.n + 1);
    float* const to = y.data() + first * h.stride;
    part(state.data(), to, first, tokens, size_t{0}, middle);
    part(state.data(), to, first, tokens, middle, h.n);
  }
  CHECK(y.fences_stand() && state.fences_stand());
  Outcome out{{}, state.values()};
  for (size_t t = 0; t < h.tokens; ++t)
    out.y.insert(out.y.end(), y.data() + t * h.stride, y.data() + t * h.stride + h.n);
  return out;
}

// An outcome in double, and how far it may be from the exact one.
struct Bounded {
  std::vector<double> y, y_bound, state, state_bound;
};

inline void check_within(const Outcome& got, const Bounded& exact) {
  for (size_t i = 0; i < exact.y.size(); ++i) CHECK(std::abs(got.y[i] - exact.y[i]) <= 1.01 * exact.y_bound[i]);
  for (size_t i = 0; i < exact.state.size(); ++i)
    CHECK(std::abs(got.state[i] - exact.state[i]) <= 1.01 * exact.state_bound[i]);
}

}  // namespace continuo::test
