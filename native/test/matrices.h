// Shared by the tests of products.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

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

}  // namespace continuo::test
