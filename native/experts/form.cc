#include "experts/form.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/dtype.h"

namespace continuo::experts {

namespace {

// 64 lanes as bytes, and a quarter of them. The compiler makes instructions of what is written on them, as wide as the
// function's instruction set has them.
typedef uint8_t Lanes64 __attribute__((vector_size(64)));
typedef uint8_t Lanes16 __attribute__((vector_size(16)));
typedef uint16_t Pairs8 __attribute__((vector_size(16)));
typedef uint32_t Words4 __attribute__((vector_size(16)));

#define CONTINUO_INLINE inline __attribute__((always_inline))

CONTINUO_INLINE Lanes64 load64(const uint8_t* from) {
  Lanes64 out;
  __builtin_memcpy(&out, from, sizeof out);
  return out;
}
CONTINUO_INLINE Lanes16 load16(const uint8_t* from) {
  Lanes16 out;
  __builtin_memcpy(&out, from, sizeof out);
  return out;
}
template <class T> CONTINUO_INLINE void store(uint8_t* to, T v) { __builtin_memcpy(to, &v, sizeof v); }

// The kernels' code of 0.
constexpr uint8_t nothing_of(Coding coding) { return coding == Coding::q8 || coding == Coding::i4 ? 128 : 1; }

// The five trits of each byte, the last of them first: it is x ≥ 81 and x ≥ 162.
CONTINUO_INLINE void spread_trits(const uint8_t* codes, uint8_t* out) {
  Lanes64 x = load64(codes);
  for (int i = 4; i > 0; --i) {
    const uint8_t power = i == 4 ? 81 : i == 3 ? 27 : i == 2 ? 9 : 3;
    const Lanes64 one = (Lanes64)(x >= power), two = (Lanes64)(x >= static_cast<uint8_t>(2 * power));
    store(out + static_cast<size_t>(i) * lanes, Lanes64{} - one - two);
    x -= (one & power) + (two & power);
  }
  store(out, x);
}

// Codes [inputs][64] of one tile, as the kernels' dtype has them; those of zeros behind the last input.
CONTINUO_INLINE void spread(Coding coding, const MatrixForm& form, const uint8_t* codes, size_t padded_inputs,
                            uint8_t* out) {
  for (size_t u = 0; u < form.units; ++u, codes += lanes) {
    switch (coding) {
      case Coding::ternary3: spread_trits(codes, out + u * 5 * lanes); break;
      case Coding::ternary2:
        for (int i = 0; i < 4; ++i) store(out + (u * 4 + static_cast<size_t>(i)) * lanes, load64(codes) >> (2 * i) & 3);
        break;
      // A nibble is q + 8, a code of the kernels q + 128.
      case Coding::i4:
        store(out + u * 2 * lanes, (load64(codes) & 15) + 120);
        store(out + (u * 2 + 1) * lanes, (load64(codes) >> 4) + 120);
        break;
      default: store(out + u * lanes, load64(codes) + 128);
    }
  }
  for (size_t k = form.inputs; k < padded_inputs; ++k) __builtin_memset(out + k * lanes, nothing_of(coding), lanes);
}

// The inverse of spread. Past the last row a record has the byte of nothing but zeros, as the kernels' codes have.
CONTINUO_INLINE void gather(Coding coding, const MatrixForm& form, const uint8_t* numbers, uint8_t* codes) {
  const size_t per_unit = coding == Coding::ternary3   ? 5
                          : coding == Coding::ternary2 ? 4
                          : coding == Coding::i4       ? 2
                                                       : 1;
  for (size_t u = 0; u < form.units; ++u, codes += lanes) {
    const auto number = [&](size_t i)
                            __attribute__((always_inline)) { return load64(numbers + (u * per_unit + i) * lanes); };
    switch (coding) {
      case Coding::ternary3: {
        Lanes64 x = number(4);
        for (size_t i = 4; i-- > 0;) x = x * 3 + number(i);
        store(codes, x);
        break;
      }
      case Coding::ternary2: store(codes, number(0) | number(1) << 2 | number(2) << 4 | number(3) << 6); break;
      case Coding::i4: store(codes, (number(0) - 120) | (number(1) - 120) << 4); break;
      default: store(codes, number(0) - 128);
    }
  }
}

// Sixteen lanes of four inputs, lane by lane: [16][4].
CONTINUO_INLINE void interleave(const Lanes16 from[4], Lanes16 out[4]) {
  const Lanes16 a = from[0], b = from[1], c = from[2], d = from[3];
  const auto low = [](Lanes16 x, Lanes16 y) __attribute__((always_inline)) {
    return __builtin_shuffle(x, y, Lanes16{0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23});
  };
  const auto high = [](Lanes16 x, Lanes16 y) __attribute__((always_inline)) {
    return __builtin_shuffle(x, y, Lanes16{8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31});
  };
  const auto pairs = [](Lanes16 x, Lanes16 y, bool upper) __attribute__((always_inline)) {
    const Pairs8 p = (Pairs8)x, q = (Pairs8)y;
    return (Lanes16)(upper ? __builtin_shuffle(p, q, Pairs8{4, 12, 5, 13, 6, 14, 7, 15})
                           : __builtin_shuffle(p, q, Pairs8{0, 8, 1, 9, 2, 10, 3, 11}));
  };
  const Lanes16 ab[2] = {low(a, b), high(a, b)}, cd[2] = {low(c, d), high(c, d)};
  for (int half = 0; half < 2; ++half) {
    out[2 * half] = pairs(ab[half], cd[half], false);
    out[2 * half + 1] = pairs(ab[half], cd[half], true);
  }
}

// The trits of lanes l, l + 16, l + 32 and l + 48 in one byte, the first of them in its lowest bits. A trit has two
// bits, so none leaves its byte where four bytes are shifted together, which processors have an instruction for.
CONTINUO_INLINE Lanes16 fold(const uint8_t* trits) {
  const auto shifted = [&](int quarter) __attribute__((always_inline)) {
    return (Lanes16)((Words4)load16(trits + quarter * 16) << (2 * quarter));
  };
  return shifted(0) | shifted(1) | shifted(2) | shifted(3);
}

// The inverse of interleave.
CONTINUO_INLINE void part(const Lanes16 from[4], uint8_t* out) {
  Lanes16 by_input[4];
  for (int input = 0; input < 4; ++input) {
    uint8_t row[16];
    for (int lane = 0; lane < 16; ++lane) row[lane] = from[lane / 4][lane % 4 * 4 + input];
    by_input[input] = load16(row);
  }
  for (size_t input = 0; input < 4; ++input) store(out + input * lanes, by_input[input]);
}

struct Tile {
  Coding coding;
  const MatrixForm& form;
  const PackedMatrix& m;
  uint8_t *codes, *scales;  // of the tile in a record
  uint8_t* numbers;         // [padded inputs + 8][64]
  uint8_t* packed;          // the tile for the kernels
};

CONTINUO_INLINE void unpack(const Tile& tile) {
  const auto& m = tile.m;
  spread(tile.coding, tile.form, tile.codes, m.groups() * m.group, tile.numbers);
  uint8_t* to = tile.packed;
  for (size_t g = 0; g < m.groups(); ++g) {
    const uint8_t* from = tile.numbers + g * m.group * lanes;
    for (size_t four = 0; four < m.group / 4; ++four, from += 4 * lanes) {
      // Of trits the quarters of the lanes are put together first: then there is one to interleave, not four.
      const size_t quarters = m.dtype == Dtype::q8 ? 4 : 1;
      for (size_t i = 0; i < quarters; ++i, to += lanes) {
        Lanes16 inputs[4], out[4];
        for (size_t k = 0; k < 4; ++k)
          inputs[k] = m.dtype == Dtype::q8 ? load16(from + k * lanes + i * 16) : fold(from + k * lanes);
        interleave(inputs, out);
        for (size_t j = 0; j < 4; ++j) store(to + j * 16, out[j]);
      }
    }
    __builtin_memcpy(to, tile.scales + g * lanes * scale_bytes, lanes * scale_bytes);
    to += lanes * scale_bytes;
  }
}

CONTINUO_INLINE void repack(const Tile& tile) {
  const auto& m = tile.m;
  const uint8_t* from = tile.packed;
  for (size_t g = 0; g < m.groups(); ++g) {
    uint8_t* to = tile.numbers + g * m.group * lanes;
    for (size_t four = 0; four < m.group / 4; ++four, to += 4 * lanes) {
      for (size_t i = 0; i < 4; ++i) {
        Lanes16 quarter[4];
        for (size_t j = 0; j < 4; ++j)
          quarter[j] = m.dtype == Dtype::q8 ? load16(from + (i * 4 + j) * 16)
                                            : load16(from + j * 16) >> static_cast<uint8_t>(2 * i) & 3;
        part(quarter, to + i * 16);
      }
      from += m.dtype == Dtype::q8 ? 4 * lanes : lanes;
    }
    __builtin_memcpy(tile.scales + g * lanes * scale_bytes, from, lanes * scale_bytes);
    from += lanes * scale_bytes;
  }
  // The last unit holds numbers behind those that the kernels have.
  const size_t padded_inputs = m.groups() * m.group;
  __builtin_memset(tile.numbers + padded_inputs * lanes, nothing_of(tile.coding), 8 * lanes);
  gather(tile.coding, tile.form, tile.numbers, tile.codes);
}

void unpack_generic(const Tile& tile) { unpack(tile); }
void repack_generic(const Tile& tile) { repack(tile); }
#if defined(__x86_64__)
__attribute__((target("avx2"))) void unpack_avx2(const Tile& tile) { unpack(tile); }
__attribute__((target("avx2"))) void repack_avx2(const Tile& tile) { repack(tile); }
__attribute__((target("avx512f,avx512bw,avx512vl"))) void unpack_avx512(const Tile& tile) { unpack(tile); }
__attribute__((target("avx512f,avx512bw,avx512vl"))) void repack_avx512(const Tile& tile) { repack(tile); }
#endif

struct Ways {
  void (*unpack)(const Tile&);
  void (*repack)(const Tile&);
};

// The numbers are whole, so each of them gives the same.
Ways chosen() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) return {unpack_avx512, repack_avx512};
  if (__builtin_cpu_supports("avx2")) return {unpack_avx2, repack_avx2};
#endif
  return {unpack_generic, repack_generic};
}

Dtype dtype_of(Coding coding) {
  switch (coding) {
    case Coding::f32: return Dtype::f32;
    case Coding::f16: return Dtype::f16;
    case Coding::bf16: return Dtype::bf16;
    case Coding::q8:
    case Coding::i4: return Dtype::q8;
    default: return Dtype::ternary;
  }
}

size_t bytes_of(const PackedMatrix& m) { return m.tiles() * m.tile_bytes(); }

// Calls visit(tile) for the tiles of all matrices.
void each_tile(const ExpertShape& shape, std::byte* payload, std::byte* form, const auto& visit) {
  thread_local std::vector<uint8_t> numbers;
  auto* record = reinterpret_cast<uint8_t*>(payload);
  auto* packed = reinterpret_cast<uint8_t*>(form);
  for (size_t which = 0; which < matrices; ++which) {
    const auto of = form_of(shape, which);
    const auto m = matrix_of(shape, which, nullptr);
    // The last unit may hold numbers behind the last input.
    numbers.resize((std::max(m.groups() * m.group, of.inputs) + 8) * lanes);
    for (size_t tile = 0; tile < m.tiles(); ++tile, packed += m.tile_bytes())
      visit(Tile{shape.coding, of, m, record + tile * of.units * lanes,
                 record + of.codes() + tile * of.groups * lanes * scale_bytes, numbers.data(), packed});
    record += of.codes() + of.scales();
  }
}

}  // namespace

size_t form_bytes(const ExpertShape& shape) {
  size_t bytes = 0;
  for (size_t which = 0; which < matrices; ++which) bytes += bytes_of(matrix_of(shape, which, nullptr));
  return bytes;
}

PackedMatrix matrix_of(const ExpertShape& shape, size_t which, const std::byte* form) {
  const auto dtype = dtype_of(shape.coding);
  size_t before = 0;
  for (size_t i = 0; form && i < which; ++i) before += bytes_of(matrix_of(shape, i, nullptr));
  const auto of = form_of(shape, which);
  return {dtype, of.outputs, of.inputs, is_float(shape.coding) ? 0 : shape.group, form ? form + before : nullptr};
}

void to_form(const ExpertShape& shape, std::span<const std::byte> payload, std::byte* form) {
  if (is_float(shape.coding)) {
    std::memcpy(form, payload.data(), payload.size());
    return;
  }
  static const Ways ways = chosen();
  each_tile(shape, const_cast<std::byte*>(payload.data()), form, ways.unpack);
}

void from_form(const ExpertShape& shape, const std::byte* form, std::span<std::byte> payload) {
  if (is_float(shape.coding)) {
    std::memcpy(payload.data(), form, payload.size());
    return;
  }
  static const Ways ways = chosen();
  each_tile(shape, payload.data(), const_cast<std::byte*>(form), ways.repack);
}

}  // namespace continuo::experts
