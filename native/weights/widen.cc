#include "weights/widen.h"

namespace continuo {

namespace {

float half_at(const std::byte* scales, size_t lane) { return read_element(scales, Dtype::f16, lane); }

// The code of input k of a group in the place where `put_codes` writes it (packed_matrix.h).
int code_at(Dtype dtype, const std::byte* group, size_t lane, size_t k) {
  const size_t line = k / 4, at = lane * 4 + k % 4;
  if (dtype == Dtype::q8) return std::to_integer<int>(group[line * 256 + at]);
  if (dtype == Dtype::ternary) return std::to_integer<int>(group[line * 64 + at % 64]) >> (at / 64 * 2) & 3;
  return std::to_integer<int>(group[line / 2 * 256 + at]) >> (line % 2 * 4) & 15;
}

float q4_k_at(const std::byte* block, size_t lane, size_t k) {
  using M = PackedMatrix;
  const std::byte* group = block + M::q4_k_head + k / 32 * M::q4_k_group;
  const auto scale = std::to_integer<int>(group[M::q4_k_codes + lane]),
             minimum = std::to_integer<int>(group[M::q4_k_codes + tile_lanes + lane]);
  const float d = half_at(block, lane) * static_cast<float>(scale),
              m = half_at(block + M::scales_bytes, lane) * static_cast<float>(minimum);
  const float product = d * static_cast<float>(code_at(Dtype::q4_k, group, lane, k % 32));
  return product - m;
}

float q6_k_at(const std::byte* block, size_t lane, size_t k) {
  using M = PackedMatrix;
  const size_t line = k / 4, at = lane * 4 + k % 4;
  const int low = std::to_integer<int>(block[M::q6_k_low + line / 2 * 256 + at]) >> (line % 2 * 4) & 15,
            high = std::to_integer<int>(block[M::q6_k_high + line / 4 * 256 + at]) >> (line % 4 * 2) & 3;
  const auto scale = static_cast<int8_t>(block[M::q6_k_scales + k / 16 * tile_lanes + lane]);
  const float d = half_at(block, lane) * static_cast<float>(scale);
  return d * static_cast<float>((low | high << 4) - zero_code(Dtype::q6_k));
}

// Input k of output n.
float number_at(const PackedMatrix& m, size_t n, size_t k) {
  const auto* tile = static_cast<const std::byte*>(m.data) + n / tile_lanes * m.tile_bytes();
  const size_t lane = n % tile_lanes, block = k / PackedMatrix::block_inputs;
  switch (m.dtype) {
    case Dtype::f32:
    case Dtype::f16:
    case Dtype::bf16: return read_element(tile, m.dtype, k * tile_lanes + lane);
    case Dtype::q4_k: return q4_k_at(tile + block * PackedMatrix::q4_k_bytes, lane, k % PackedMatrix::block_inputs);
    case Dtype::q6_k: return q6_k_at(tile + block * PackedMatrix::q6_k_bytes, lane, k % PackedMatrix::block_inputs);
    case Dtype::q8:
    case Dtype::ternary:
    case Dtype::q4: break;
  }
  const std::byte* group = tile + k / m.group * m.group_bytes();
  const float scale = half_at(group + m.group_bytes() - PackedMatrix::scales_bytes, lane);
  return static_cast<float>(code_at(m.dtype, group, lane, k % m.group) - zero_code(m.dtype)) * scale;
}

}  // namespace

void widen(const Constant& constant, std::span<const std::byte> bytes, float* out) {
  Constant host = constant;
  host.bytes = bytes;
  if (host.layout == Layout::vector || host.layout == Layout::rows) {
    const Dtype dtype = host.layout == Layout::vector ? Dtype::f32 : host.dtype;
    for (size_t i = 0; i < numbers_of(host); ++i) out[i] = read_element(bytes.data(), dtype, i);
    return;
  }
  for (size_t e = 0; e < host.members; ++e) {
    const PackedMatrix m = host.matrix(e);
    for (size_t n = 0; n < m.outputs; ++n) {
      for (size_t k = 0; k < m.inputs; ++k) *out++ = number_at(m, n, k);
    }
  }
}

}  // namespace continuo
