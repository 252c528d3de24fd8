// Shared by the tests of products.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "backends/cpu/linear.h"
#include "test/check.h"
#include "weights/weights.h"

namespace continuo::test {

// Equal bits; of NaNs only that they are NaN.
inline bool same_numbers(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) ? !std::isnan(b[i]) : std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]))
      return false;
  }
  return true;
}

// A tensor over bytes that the caller keeps alive.
inline Tensor tensor_of(const std::string& name, const std::string& dtype, std::vector<uint64_t> shape,
                        const std::vector<std::byte>& data) {
  return {name, dtype, std::move(shape), 0, data};
}

inline Result<Constant> pack_one(const ConstantSpec& spec, const std::vector<Tensor>& tensors) {
  ThreadPool pool(1);
  auto constants = pack_weights({&spec, 1}, tensors, pool);
  if (!constants) return constants.error();
  return constants->constants[0];
}

// Shapes [outputs, inputs] and rows that touch every edge: one, odd, prime, whole and broken tiles, blocks, groups and
// panels.
struct Product {
  size_t n, k, rows;
};

inline std::vector<Product> products(Random& random) {
  std::vector<Product> out{{1, 1, 1},      {64, 32, 1},  {65, 257, 3},   {12, 600, 13}, {130, 96, 25}, {192, 256, 5},
                           {40, 511, 16},  {7, 1030, 2}, {128, 64, 50},  {63, 33, 4},   {97, 768, 6},  {256, 255, 7},
                           {64, 1024, 12}, {3, 5, 130},  {191, 300, 24}, {66, 70, 49}};
  for (int i = 0; i < 12; ++i) out.push_back({1 + random.below(200), 1 + random.below(700), 1 + random.below(50)});
  return out;
}

inline std::vector<float> product(const Kernels& table, ThreadPool& pool, const PackedMatrix& m,
                                  const std::vector<float>& x, size_t rows) {
  Memory scratch(scratch_bytes(m, rows));
  std::vector<float> y(rows * m.outputs, -1.0f);
  const continuo::Product product{m, x.data(), y.data()};
  multiply(pool, table, {&product, 1}, rows, scratch);
  return y;
}

// Calls run(row, rows, tile, tile_end) for a random cut of rows and tiles that covers everything once.
template <class Run> void in_parts(Random& random, size_t rows, size_t tiles, const Run& run) {
  for (size_t row = 0; row < rows;) {
    const size_t count = 1 + random.below(rows - row);
    for (size_t tile = 0; tile < tiles;) {
      const size_t end = tile + 1 + random.below(tiles - tile);
      run(row, count, tile, end);
      tile = end;
    }
    row += count;
  }
}

// The product with a quantised matrix by a kernel table's own function, called for random parts of the rows and tiles.
inline std::vector<float> quantised_in_parts(Random& random, const Kernels& table, const PackedMatrix& m,
                                             const std::vector<float>& x, size_t rows) {
  Memory memory(scratch_bytes(m, rows));
  auto* blocks = memory.as<QuantisedBlock>();
  for (size_t r = 0; r < rows; ++r) table.quantise(m, &x[r * m.inputs], blocks + r, rows);
  std::vector<float> y(rows * m.outputs, NAN);
  in_parts(random, rows, m.tiles(), [&](size_t row, size_t count, size_t tile, size_t end) {
    table.matmul_quantised(m, blocks, rows, y.data(), row, count, tile, end);
  });
  return y;
}

// One group of activations by the rule of jobs.h: writes the integers, returns the scale.
inline float quantise_by_the_rule(const float* x, size_t count, int* q) {
  float most = 0;
  bool finite = true;
  for (size_t i = 0; i < count; ++i) {
    most = std::max(most, std::abs(x[i]));
    finite = finite && std::isfinite(x[i]);
  }
  const float s = most / 127.0f;
  for (size_t i = 0; i < count; ++i)
    q[i] = finite && s > 0 ? static_cast<int>(std::clamp(std::nearbyint(x[i] / s), -127.0f, 127.0f)) : 0;
  return finite ? s : NAN;
}

}  // namespace continuo::test
