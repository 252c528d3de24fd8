#include "experts/tiles.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/dtype.h"

namespace continuo::experts {

namespace {

// Numbers of one unit, and what is subtracted from a code.
struct Digits {
  size_t per_unit;
  int32_t zero;
};

Digits digits_of(Coding coding) {
  switch (coding) {
    case Coding::q8: return {1, 0};
    case Coding::i4: return {2, 8};
    case Coding::ternary3: return {5, 1};
    case Coding::ternary2: return {4, 1};
    default: return {1, 0};
  }
}

// Number i of a unit as a code, without what is subtracted. Of q8 the bits of the signed byte.
uint8_t digit(Coding coding, uint8_t unit, size_t i) {
  switch (coding) {
    case Coding::i4: return static_cast<uint8_t>(i == 0 ? unit & 15 : unit >> 4);
    case Coding::ternary2: return static_cast<uint8_t>(unit >> (2 * i) & 3);
    case Coding::ternary3: {
      constexpr unsigned powers[] = {1, 3, 9, 27, 81};
      return static_cast<uint8_t>(unit / powers[i] % 3);
    }
    default: return unit;
  }
}

// Codes [inputs][64] of one tile, as the kernels' dtype has them; `zero` behind the last input.
void spread(Coding coding, const MatrixForm& form, const uint8_t* codes, size_t padded_inputs, uint8_t* out) {
  const auto [per_unit, zero] = digits_of(coding);
  for (size_t u = 0; u < form.units; ++u, codes += lanes) {
    uint8_t* to = out + u * per_unit * lanes;
    if (coding == Coding::ternary3) {
      // x / 3 as x · 171 / 512, exact up to 255: the loop is one of vectors.
      std::array<uint16_t, lanes> left;
      for (size_t lane = 0; lane < lanes; ++lane) left[lane] = codes[lane];
      for (size_t i = 0; i < per_unit && u * per_unit + i < padded_inputs; ++i) {
        for (size_t lane = 0; lane < lanes; ++lane) {
          const auto third = static_cast<uint16_t>(left[lane] * 171u >> 9);
          to[i * lanes + lane] = static_cast<uint8_t>(left[lane] - 3u * third);
          left[lane] = third;
        }
      }
      continue;
    }
    const auto move = static_cast<uint8_t>(coding == Coding::q8 || coding == Coding::i4 ? 128 - zero : 0);
    for (size_t i = 0; i < per_unit && u * per_unit + i < padded_inputs; ++i) {
      for (size_t lane = 0; lane < lanes; ++lane)
        to[i * lanes + lane] = static_cast<uint8_t>(digit(coding, codes[lane], i) + move);
    }
  }
  const uint8_t nothing = coding == Coding::q8 || coding == Coding::i4 ? 128 : 1;
  std::fill(out + form.inputs * lanes, out + padded_inputs * lanes, nothing);
}

}  // namespace

PackedMatrix packed_form(const ExpertShape& shape, size_t which) {
  const auto form = form_of(shape, which);
  switch (shape.coding) {
    case Coding::f32: return {Dtype::f32, form.outputs, form.inputs, 0, nullptr};
    case Coding::f16: return {Dtype::f16, form.outputs, form.inputs, 0, nullptr};
    case Coding::bf16: return {Dtype::bf16, form.outputs, form.inputs, 0, nullptr};
    case Coding::q8:
    case Coding::i4: return {Dtype::q8, form.outputs, form.inputs, shape.group, nullptr};
    default: return {Dtype::ternary, form.outputs, form.inputs, shape.group, nullptr};
  }
}

size_t codes_at(const ExpertShape& shape, size_t which) {
  size_t at = 0;
  for (size_t before = 0; before < which; ++before) {
    const auto form = form_of(shape, before);
    at += form.codes() + form.scales();
  }
  return at;
}

void unpack_tile(const ExpertShape& shape, size_t which, std::span<const std::byte> record, size_t tile,
                 std::byte* out) {
  const auto form = form_of(shape, which);
  const auto m = packed_form(shape, which);
  const size_t groups = m.groups(), padded_inputs = groups * m.group;
  const auto* codes = reinterpret_cast<const uint8_t*>(record.data()) + codes_at(shape, which);
  const auto* scales = codes + form.codes() + tile * groups * lanes * scale_bytes;
  thread_local std::vector<uint8_t> numbers;
  numbers.resize(padded_inputs * lanes);
  spread(shape.coding, form, codes + tile * form.units * lanes, padded_inputs, numbers.data());
  for (size_t g = 0; g < groups; ++g, out += m.group_bytes()) {
    auto* to = reinterpret_cast<uint8_t*>(out);
    const uint8_t* from = numbers.data() + g * m.group * lanes;
    for (size_t four = 0; four < m.group / 4; ++four, from += 4 * lanes) {
      for (size_t input = 0; input < 4; ++input) {
        const uint8_t* row = from + input * lanes;
        if (m.dtype == Dtype::q8) {
          for (size_t lane = 0; lane < lanes; ++lane) to[lane * 4 + input] = row[lane];
        } else {
          for (size_t i = 0; i < lanes / 4; ++i)
            to[i * 4 + input] = static_cast<uint8_t>(row[i] | row[16 + i] << 2 | row[32 + i] << 4 | row[48 + i] << 6);
        }
      }
      to += m.dtype == Dtype::q8 ? 4 * lanes : lanes;
    }
    std::memcpy(to, scales + g * lanes * scale_bytes, lanes * scale_bytes);
  }
}

void numbers_of_input(const ExpertShape& shape, const uint8_t* codes, size_t k, int32_t* out) {
  const auto [per_unit, zero] = digits_of(shape.coding);
  const uint8_t* units = codes + k / per_unit * lanes;
  for (size_t lane = 0; lane < lanes; ++lane) {
    const uint8_t code = digit(shape.coding, units[lane], k % per_unit);
    out[lane] = shape.coding == Coding::q8 ? static_cast<int8_t>(code) : code - zero;
  }
}

void widen_matrix(const ExpertShape& shape, size_t which, std::span<const std::byte> record, float* out) {
  const auto form = form_of(shape, which);
  const auto* codes = reinterpret_cast<const uint8_t*>(record.data()) + codes_at(shape, which);
  const auto* scales = codes + form.codes();
  const auto half = [](const uint8_t* at) {
    uint16_t bits;
    std::memcpy(&bits, at, sizeof bits);
    return bits;
  };
  const auto [per_unit, zero] = digits_of(shape.coding);
  for (size_t n = 0; n < form.outputs; ++n) {
    const size_t tile = n / lanes, lane = n % lanes;
    for (size_t k = 0; k < form.inputs; ++k, ++out) {
      const uint8_t* unit = codes + ((tile * form.units + k / per_unit) * lanes + lane) * form.unit_bytes;
      if (shape.coding == Coding::f32) {
        std::memcpy(out, unit, sizeof(float));
      } else if (shape.coding == Coding::f16) {
        *out = widen_f16(half(unit));
      } else if (shape.coding == Coding::bf16) {
        *out = widen_bf16(half(unit));
      } else {
        const uint8_t code = digit(shape.coding, *unit, k % per_unit);
        const int32_t number = shape.coding == Coding::q8 ? static_cast<int8_t>(code) : code - zero;
        const float scale = widen_f16(half(scales + ((tile * form.groups + k / shape.group) * lanes + lane) * 2));
        *out = static_cast<float>(number) * scale;
      }
    }
  }
}

}  // namespace continuo::experts
