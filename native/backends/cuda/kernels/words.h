// What a thread does at once.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/scalar.h"

namespace continuo::cuda {

// One load or store: sixteen bytes, at an address that is a multiple of sixteen.
struct alignas(16) Four {
  float at[4];
};
struct alignas(16) FourWords {
  uint32_t at[4];
};

// Calls f.operator()<count>(i) along n numbers, Side at a time and the rest one by one: so that f can load what all of
// them need before it uses or writes any.
template <uint32_t Side, class F> CONTINUO_INLINE void some_at_once(size_t n, const F& f) {
  size_t i = 0;
  for (; i + Side <= n; i += Side) f.template operator()<Side>(i);
  for (; i < n; ++i) f.template operator()<1>(i);
}

}  // namespace continuo::cuda
