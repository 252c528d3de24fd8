// Exact products of bytes: in every lane Σ of four u8 weights × four s8 terms, added to an int32. VNNI has it as one
// instruction; AVX-512 and AVX2 widen to 16 bits, for their own u8 × s8 product saturates.
#pragma once

#include <cstdint>

#include "backends/cpu/kernels/simd.h"

namespace continuo::CONTINUO_ISA {

CONTINUO_INLINE Ints load_ints(const void* p) {
  Ints v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
CONTINUO_INLINE Ints splat_int(int32_t x) { return Ints{} + x; }
CONTINUO_INLINE int32_t four_bytes(const int8_t* p) {
  int32_t bytes;
  __builtin_memcpy(&bytes, p, sizeof bytes);
  return bytes;
}

#if defined(__AVX512VNNI__)

// Four weights of every lane, made ready; four terms, the same for every lane.
struct Codes {
  Ints all;
};
struct Terms {
  Ints all;
};
CONTINUO_INLINE Codes codes_of(Ints bytes) { return {bytes}; }
CONTINUO_INLINE Terms load_terms(const int8_t* p) { return {(Ints)_mm512_set1_epi32(four_bytes(p))}; }
CONTINUO_INLINE Ints dot4(Ints acc, Codes w, Terms x) {
  return (Ints)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)w.all, (__m512i)x.all);
}

#elif defined(__AVX2__)

// As 16-bit numbers: bytes 0 and 2 of each lane, bytes 1 and 3.
typedef int16_t Shorts __attribute__((vector_size(width * 4)));
typedef uint16_t Unsigned __attribute__((vector_size(width * 4)));
struct Codes {
  Ints even, odd;
};
struct Terms {
  Ints even, odd;
};
CONTINUO_INLINE Codes codes_of(Ints w) { return {w & 0x00FF00FF, cast<Ints>(cast<Unsigned>(w) >> 8)}; }
CONTINUO_INLINE Terms load_terms(const int8_t* p) {
  const Shorts x = cast<Shorts>(splat_int(four_bytes(p)));
  return {cast<Ints>((x << 8) >> 8), cast<Ints>(x >> 8)};
}
CONTINUO_INLINE Ints multiply_pairs(Ints a, Ints b) {
#if defined(__AVX512F__)
  return (Ints)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#else
  return (Ints)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#endif
}
CONTINUO_INLINE Ints dot4(Ints acc, Codes w, Terms x) {
  return acc + multiply_pairs(w.even, x.even) + multiply_pairs(w.odd, x.odd);
}

#else

struct Codes {
  Ints at[4];
};
struct Terms {
  int32_t at[4];
};
CONTINUO_INLINE Codes codes_of(Ints w) {
  return {{w & 255, (w >> 8) & 255, (w >> 16) & 255, cast<Ints>(cast<Words>(w) >> 24)}};
}
CONTINUO_INLINE Terms load_terms(const int8_t* p) { return {{p[0], p[1], p[2], p[3]}}; }
CONTINUO_INLINE Ints dot4(Ints acc, Codes w, Terms x) {
  return acc + w.at[0] * x.at[0] + w.at[1] * x.at[1] + w.at[2] * x.at[2] + w.at[3] * x.at[3];
}

#endif

CONTINUO_INLINE Codes load_codes(const uint8_t* p) { return codes_of(load_ints(p)); }

}  // namespace continuo::CONTINUO_ISA
