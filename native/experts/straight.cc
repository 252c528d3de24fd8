#include "experts/straight.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/dtype.h"

namespace continuo::experts {

namespace {

constexpr size_t block_terms = 256;  // an inner product's terms per block sum

// Whole numbers and scale of a group of a row; a scale that is not finite becomes NaN.
float rounded(const float* x, size_t n, int32_t* q) {
  float most = 0;
  for (size_t i = 0; i < n; ++i) {
    const float size = std::fabs(x[i]);
    if (size > most || size != size) most = size;
  }
  const float s = most / 127.0f;
  const bool finite = s - s == 0.0f;
  for (size_t i = 0; i < n; ++i) {
    const float nearest = finite && s > 0.0f ? std::nearbyint(x[i] / s) : 0.0f;
    q[i] = static_cast<int32_t>(std::clamp(nearest, -127.0f, 127.0f));
  }
  return finite ? s : std::numeric_limits<float>::quiet_NaN();
}

// The whole number of an output and an input of a group.
int32_t number_of(Dtype dtype, const uint8_t* group, size_t lane, size_t k) {
  if (dtype == Dtype::q8) return group[k / 4 * 4 * tile_lanes + lane * 4 + k % 4] - 128;
  return (group[k / 4 * tile_lanes + lane % 16 * 4 + k % 4] >> (lane / 16 * 2) & 3) - 1;
}

// Calls visit(first output, first input, inputs, numbers [inputs][64], scales [64]) for each group of each tile.
void each_group(const PackedMatrix& w, const auto& visit) {
  std::vector<float> scales(tile_lanes);
  std::vector<int32_t> numbers(w.group * tile_lanes);
  const auto* group = static_cast<const uint8_t*>(w.data);
  for (size_t tile = 0; tile < w.tiles(); ++tile) {
    for (size_t g = 0; g < w.groups(); ++g, group += w.group_bytes()) {
      const size_t first = g * w.group, count = std::min(w.group, w.inputs - first);
      const uint8_t* halves = group + w.group_bytes() - PackedMatrix::scales_bytes;
      for (size_t lane = 0; lane < tile_lanes; ++lane) {
        for (size_t k = 0; k < count; ++k) numbers[k * tile_lanes + lane] = number_of(w.dtype, group, lane, k);
        uint16_t bits;
        std::memcpy(&bits, halves + lane * sizeof bits, sizeof bits);
        scales[lane] = widen_f16(bits);
      }
      visit(tile * tile_lanes, first, count, numbers.data(), scales.data());
    }
  }
}

}  // namespace

void product(const PackedMatrix& w, const float* x, float* y) {
  std::vector<int32_t> q(w.inputs);
  std::vector<float> s(w.groups());
  for (size_t g = 0; g < w.groups(); ++g) {
    const size_t first = g * w.group;
    s[g] = rounded(x + first, std::min(w.group, w.inputs - first), q.data() + first);
  }
  std::vector<float> sums(w.tiles() * tile_lanes, 0), block(tile_lanes, 0);
  each_group(w, [&](size_t output, size_t first, size_t count, const int32_t* numbers, const float* scales) {
    if (first % block_terms == 0) std::fill(block.begin(), block.end(), 0.0f);
    for (size_t lane = 0; lane < tile_lanes; ++lane) {
      int32_t dot = 0;
      for (size_t k = 0; k < count; ++k) dot += numbers[k * tile_lanes + lane] * q[first + k];
      block[lane] = std::fma(static_cast<float>(dot), scales[lane] * s[first / w.group], block[lane]);
    }
    if (first + count < w.inputs && (first + count) % block_terms != 0) return;
    for (size_t lane = 0; lane < tile_lanes; ++lane) sums[output + lane] += block[lane];
  });
  std::copy_n(sums.begin(), w.outputs, y);
}

void straight(const PackedMatrix& w, const float* x, float* y) {
  std::vector<float> sums(w.tiles() * tile_lanes, 0), group(tile_lanes, 0);
  each_group(w, [&](size_t output, size_t first, size_t count, const int32_t* numbers, const float* scales) {
    std::fill(group.begin(), group.end(), 0.0f);
    for (size_t k = 0; k < count; ++k) {
      for (size_t lane = 0; lane < tile_lanes; ++lane)
        group[lane] += static_cast<float>(numbers[k * tile_lanes + lane]) * x[first + k];
    }
    for (size_t lane = 0; lane < tile_lanes; ++lane) sums[output + lane] += group[lane] * scales[lane];
  });
  std::copy_n(sums.begin(), w.outputs, y);
}

}  // namespace continuo::experts
