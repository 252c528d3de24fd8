// A row of the list of an external memory, decoded and turned in one pass: what CpuDevice::lay computes.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/cast.h"
#include "backends/cuda/kernels/elementwise.h"
#include "backends/cuda/kernels/kernels.h"

namespace continuo::cuda {

// A number as it is kept; `scale`: of f8, a power of two.
CONTINUO_INLINE float kept_number(Type type, const std::byte* from, size_t i, float scale) {
  switch (type) {
    case Type::f16: return widen_f16(reinterpret_cast<const uint16_t*>(from)[i]);
    case Type::bf16: return cast<float>(static_cast<uint32_t>(reinterpret_cast<const uint16_t*>(from)[i]) << 16);
    case Type::f8: return cast<float>(widen_eighth(reinterpret_cast<const uint8_t*>(from)[i])) * scale;
    default: return reinterpret_cast<const float*>(from)[i];
  }
}

// The key or value of a row in one layer, by the threads of a block: a thread has a pair of a head's channels.
CONTINUO_INLINE void rerotate_row(const ListLaying& list, uint32_t index_of_row, size_t layer, size_t which) {
  const ListRow& row = list.rows[index_of_row];
  const uint32_t slot = list.first + index_of_row;
  const size_t d = list.channels, pairs = list.pairs, units = d - pairs;  // of a head: pairs, then single channels
  const std::byte* from = row.from[which] + layer * row.from_layer;
  float* to = reinterpret_cast<float*>(row.to[which] + layer * row.to_layer);
  for (size_t index = threadIdx.x; index < list.heads * units; index += blockDim.x) {
    const size_t head = index / units, i = index % units;
    const std::byte* x = from + head * row.from_head;
    float* y = to + head * d;
    float scale = 1.0f;
    if (row.type == Type::f8) {
      const auto exponent =
          reinterpret_cast<const int8_t*>(row.exponents)[(layer * keys_and_values + which) * list.heads + head];
      scale = cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
    }
    if (i >= pairs) {
      y[i + pairs] = kept_number(row.type, x, i + pairs, scale);
      continue;
    }
    const float a = kept_number(row.type, x, i, scale), b = kept_number(row.type, x, i + pairs, scale);
    if (which == 1) {
      y[i] = a;
      y[i + pairs] = b;
      continue;
    }
    const auto [sin, cos] = sincos_phase<float>(list.increments[i] * slot);
    y[i] = fma(a, cos, -(b * sin));
    y[i + pairs] = fma(b, cos, a * sin);
  }
}

}  // namespace continuo::cuda
