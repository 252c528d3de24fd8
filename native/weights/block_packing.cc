#include "weights/block_packing.h"

#include <cmath>

namespace continuo {

namespace {

std::byte bits_in(std::byte byte, size_t shift, uint8_t mask, uint8_t bits) {
  return (byte & ~(std::byte{mask} << shift)) | std::byte{bits} << shift;
}

uint16_t half_at(const std::byte* block) {
  uint16_t bits;
  std::memcpy(&bits, block, 2);
  return bits;
}

void put_half(std::byte* scales, size_t lane, uint16_t bits) { std::memcpy(scales + lane * 2, &bits, 2); }

// Where the scales of a block stand in the file: d, and dmin of Q4_K.
struct ScalePlaces {
  size_t d;
  std::optional<size_t> dmin;
};
ScalePlaces scale_places(const BlockFormat& format) {
  if (format.name == "Q6_K") return {208, {}};
  if (format.name == "TQ1_0") return {52, {}};
  if (format.name == "TQ2_0") return {64, {}};
  if (format.name == "Q4_K") return {0, 2};
  return {0, {}};
}

// The groups of a file's block, which share its scale.
void put_groups(const PackedMatrix& m, std::byte* tile, size_t block, size_t values, size_t lane, const int8_t* codes,
                uint16_t d) {
  for (size_t from = 0; from < values; from += m.group) {
    std::byte* group = tile + (block * values + from) / m.group * m.group_bytes();
    put_codes(m.dtype, group, lane, codes + from, m.group);
    put_half(group + m.group_bytes() - PackedMatrix::scales_bytes, lane, d);
  }
}

void put_q4_k(std::byte* out, size_t lane, const int8_t* codes, const std::byte* block) {
  put_half(out, lane, half_at(block));
  put_half(out + PackedMatrix::scales_bytes, lane, half_at(block + 2));
  for (size_t j = 0; j < 8; ++j) {
    std::byte* group = out + PackedMatrix::q4_k_head + j * PackedMatrix::q4_k_group;
    put_codes(Dtype::q4_k, group, lane, codes + 32 * j, 32);
    const auto [scale, minimum] = scale_min(block + 4, j);
    group[PackedMatrix::q4_k_codes + lane] = static_cast<std::byte>(scale);
    group[PackedMatrix::q4_k_codes + tile_lanes + lane] = static_cast<std::byte>(minimum);
  }
}

// `codes`: from −32.
void put_q6_k(std::byte* out, size_t lane, const int8_t* codes, const std::byte* block) {
  put_half(out, lane, block ? half_at(block + 208) : 0);
  for (size_t i = 0; i < 16; ++i)
    out[PackedMatrix::q6_k_scales + i * tile_lanes + lane] = block ? block[192 + i] : std::byte{0};
  for (size_t k = 0; k < 256; ++k) {
    const auto code = static_cast<uint8_t>(codes[k] + 32);
    const size_t line = k / 4, at = lane * 4 + k % 4;
    std::byte& low = out[PackedMatrix::q6_k_low + line / 2 * 256 + at];
    low = bits_in(low, line % 2 * 4, 15, code & 15);
    std::byte& high = out[PackedMatrix::q6_k_high + line / 4 * 256 + at];
    high = bits_in(high, line % 4 * 2, 3, static_cast<uint8_t>(code >> 4));
  }
}

}  // namespace

void put_codes(Dtype dtype, std::byte* group, size_t lane, const int8_t* numbers, size_t count) {
  const int zero = dtype == Dtype::q4_k ? 0 : zero_code(dtype);
  for (size_t k = 0; k < count; ++k) {
    const auto code = static_cast<uint8_t>(numbers[k] + zero);
    const size_t line = k / 4, at = lane * 4 + k % 4;  // in the [64][4] of this k
    if (dtype == Dtype::q8) {
      group[line * 256 + at] = std::byte{code};
    } else if (dtype == Dtype::ternary) {
      std::byte& byte = group[line * 64 + at % 64];
      byte = bits_in(byte, at / 64 * 2, 3, code);
    } else {
      std::byte& byte = group[line / 2 * 256 + at];
      byte = bits_in(byte, line % 2 * 4, 15, code);
    }
  }
}

std::optional<PackedAs> packed_as(const BlockFormat& format) {
  if (format.name == "Q8_0" || format.name == "Q5_0") return PackedAs{Dtype::q8, 32};
  if (format.name == "Q4_0") return PackedAs{Dtype::q4, 32};
  if (format.name == "TQ1_0" || format.name == "TQ2_0") return PackedAs{Dtype::ternary, 64};
  if (format.name == "Q4_K") return PackedAs{Dtype::q4_k, 32};
  if (format.name == "Q6_K") return PackedAs{Dtype::q6_k, 32};
  return std::nullopt;
}

std::optional<Error> pack_blocks(const Tensor& tensor, std::span<const size_t> rows, const PackedMatrix& m,
                                 std::byte* out) {
  const BlockFormat& format = *block_format(tensor.dtype);
  const size_t blocks = m.inputs / format.values;
  const auto [d_at, dmin_at] = scale_places(format);
  int8_t codes[max_block_values];
  for (size_t n = 0; n < m.tiles() * tile_lanes; ++n) {
    std::byte* tile = out + n / tile_lanes * m.tile_bytes();
    const size_t lane = n % tile_lanes;
    const bool exists = n < m.outputs;
    for (size_t b = 0; b < blocks; ++b) {
      const std::byte* block = exists ? tensor.data.data() + (rows[n] * blocks + b) * format.bytes : nullptr;
      std::memset(codes, 0, sizeof codes);
      if (block) {
        format.codes(block, codes);
        if (!std::isfinite(widen_f16(half_at(block + d_at))) ||
            (dmin_at && !std::isfinite(widen_f16(half_at(block + *dmin_at)))))
          return invalid("tensor \"", tensor.name, "\" holds a scale that is not finite in block ", b, " of row ",
                         rows[n], ", expected finite numbers. The model is damaged: fetch it again.");
      }
      if (m.dtype == Dtype::q6_k)
        put_q6_k(tile + b * PackedMatrix::q6_k_bytes, lane, codes, block);
      else if (m.dtype != Dtype::q4_k)
        put_groups(m, tile, b, format.values, lane, codes, block ? half_at(block + d_at) : 0);
      else if (block)  // what is not there is 0 in every part
        put_q4_k(tile + b * PackedMatrix::q4_k_bytes, lane, codes, block);
    }
  }
  return std::nullopt;
}

}  // namespace continuo
