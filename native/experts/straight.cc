#include "experts/straight.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/dtype.h"
#include "experts/tiles.h"

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

// Calls group(lane 0's output, first input, count, numbers [count][64], scales [64]) for each group of each tile.
void each_group(const ExpertShape& shape, size_t which, std::span<const std::byte> record, const auto& visit) {
  const auto form = form_of(shape, which);
  std::vector<float> scales(lanes);
  std::vector<int32_t> numbers(shape.group * lanes);
  const auto* codes = reinterpret_cast<const uint8_t*>(record.data()) + codes_at(shape, which);
  const auto* halves = codes + form.codes();
  for (size_t tile = 0; tile < form.tiles(); ++tile) {
    for (size_t g = 0; g < form.groups; ++g) {
      const size_t first = g * shape.group, count = std::min<size_t>(shape.group, form.inputs - first);
      for (size_t k = 0; k < count; ++k)
        numbers_of_input(shape, codes + tile * form.units * lanes, first + k, numbers.data() + k * lanes);
      for (size_t lane = 0; lane < lanes; ++lane) {
        uint16_t bits;
        std::memcpy(&bits, halves + ((tile * form.groups + g) * lanes + lane) * scale_bytes, sizeof bits);
        scales[lane] = widen_f16(bits);
      }
      visit(tile * lanes, first, count, numbers.data(), scales.data());
    }
  }
}

}  // namespace

void product(const ExpertShape& shape, size_t which, std::span<const std::byte> record, const float* x, float* y) {
  const auto form = form_of(shape, which);
  std::vector<int32_t> q(form.inputs);
  std::vector<float> s(form.groups);
  for (size_t g = 0; g < form.groups; ++g) {
    const size_t first = g * shape.group;
    s[g] = rounded(x + first, std::min<size_t>(shape.group, form.inputs - first), q.data() + first);
  }
  std::vector<float> sums(form.tiles() * lanes, 0), block(lanes, 0);
  each_group(shape, which, record,
             [&](size_t output, size_t first, size_t count, const int32_t* numbers, const float* scales) {
               if (first % block_terms == 0) std::fill(block.begin(), block.end(), 0.0f);
               for (size_t lane = 0; lane < lanes; ++lane) {
                 int32_t dot = 0;
                 for (size_t k = 0; k < count; ++k) dot += numbers[k * lanes + lane] * q[first + k];
                 block[lane] = std::fma(static_cast<float>(dot), scales[lane] * s[first / shape.group], block[lane]);
               }
               if (first + count < form.inputs && (first + count) % block_terms != 0) return;
               for (size_t lane = 0; lane < lanes; ++lane) sums[output + lane] += block[lane];
             });
  std::copy_n(sums.begin(), form.outputs, y);
}

void straight(const ExpertShape& shape, size_t which, std::span<const std::byte> record, const float* x, float* y) {
  const auto form = form_of(shape, which);
  std::vector<float> sums(form.tiles() * lanes, 0), group(lanes, 0);
  each_group(shape, which, record,
             [&](size_t output, size_t first, size_t count, const int32_t* numbers, const float* scales) {
               std::fill(group.begin(), group.end(), 0.0f);
               for (size_t k = 0; k < count; ++k) {
                 for (size_t lane = 0; lane < lanes; ++lane)
                   group[lane] += static_cast<float>(numbers[k * lanes + lane]) * x[first + k];
               }
               for (size_t lane = 0; lane < lanes; ++lane) sums[output + lane] += group[lane] * scales[lane];
             });
  std::copy_n(sums.begin(), form.outputs, y);
}

}  // namespace continuo::experts
