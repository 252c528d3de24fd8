// A key or a value for the list of an external memory (runtime/model/list_rows.h): read as it is kept, widened exactly
// and, where it is a key, turned to the position of its slot as rope.h does, in one pass.
#pragma once

#include <cstdint>

#include "backends/cpu/kernels/elementwise.h"
#include "backends/jobs.h"

namespace continuo::CONTINUO_ISA {

struct F8 {
  uint8_t bits;
};
// F8_E4M3: the bits of a magnitude are those of a float that is 2¹²⁰ times too small, subnormal or not.
CONTINUO_INLINE Vec load_weights(const F8* p) {
#if defined(__AVX512F__)
  const Words bits = (Words)_mm512_maskz_cvtepu8_epi32(0xFFFF, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#elif defined(__AVX2__)
  const Words bits = (Words)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
#else
  typedef uint8_t Bytes __attribute__((vector_size(width)));
  Bytes bytes;
  __builtin_memcpy(&bytes, p, sizeof bytes);
  const Words bits = __builtin_convertvector(bytes, Words);
#endif
  const Words magnitude = bits & 0x7F, sign = (bits & 0x80) << 24;
  const Words finite = cast<Words>(cast<Vec>(magnitude << 20) * splat<Vec>(0x1p120f));
  const Words nan = Words{} + 0x7FC00000;
  return cast<Vec>(magnitude == 0x7F ? nan : sign | finite);
}

// The first `count` numbers; what is behind them may be another's memory.
template <class S> CONTINUO_INLINE Vec load_some(const S* p, size_t count) {
  if (count >= width) return load_weights(p);
  S numbers[width] = {};
  for (size_t lane = 0; lane < count; ++lane) numbers[lane] = p[lane];
  return load_weights(numbers);
}
CONTINUO_INLINE void store_some(float* p, Vec v, size_t count) {
  if (count >= width) return store(p, v);
  for (size_t lane = 0; lane < count; ++lane) p[lane] = v[lane];
}

template <class S> CONTINUO_INLINE void rerotate_kv_of(const ListJob& job) {
  const size_t turned = job.increments ? job.pairs : 0;
  const auto head_of = [&](size_t head)
                           CONTINUO_LAMBDA { return reinterpret_cast<const S*>(job.from + head * job.from_head); };
  // A power of two, so that the product is exact.
  const auto scale_of = [&](size_t head) CONTINUO_LAMBDA {
    return job.exponents ? splat<Vec>(cast<float>((int32_t{job.exponents[head]} + 127) << 23)) : splat<Vec>(1.0f);
  };
  for (size_t i = 0; i < turned; i += width) {
    const size_t count = turned - i;
    uint32_t increments[width] = {};
    for (size_t lane = 0; lane < width && lane < count; ++lane) increments[lane] = job.increments[i + lane];
    Words phase;
    __builtin_memcpy(&phase, increments, sizeof phase);
    const auto [sin, cos] = sincos_phase<Vec>(phase * job.position);
    for (size_t head = 0; head < job.heads; ++head) {
      const Vec a = load_some(head_of(head) + i, count) * scale_of(head);
      const Vec b = load_some(head_of(head) + turned + i, count) * scale_of(head);
      float* to = job.to + head * job.channels + i;
      store_some(to, fma(a, cos, -(b * sin)), count);
      store_some(to + turned, fma(b, cos, a * sin), count);
    }
  }
  for (size_t head = 0; head < job.heads; ++head) {
    for (size_t i = 2 * turned; i < job.channels; i += width) {
      const size_t count = job.channels - i;
      store_some(job.to + head * job.channels + i, load_some(head_of(head) + i, count) * scale_of(head), count);
    }
  }
}

inline void rerotate_kv(const ListJob& job) {
  switch (job.type) {
    case Type::f8: return rerotate_kv_of<F8>(job);
    case Type::f16: return rerotate_kv_of<F16>(job);
    case Type::bf16: return rerotate_kv_of<Bf16>(job);
    default: return rerotate_kv_of<float>(job);
  }
}

}  // namespace continuo::CONTINUO_ISA
