#include "../kernels/cpu/kernels.h"

#include <bit>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "../weights.h"
#include "image.h"

using namespace continuo;

namespace {

// Every table this CPU can run; the first is the generic one.
std::vector<const Kernels*> tables() {
  auto out = runnable_kernels();
  std::reverse(out.begin(), out.end());
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) { return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0; }

struct Matrix {
  std::vector<float> dense;  // [n][k]
  Constant packed;
};

Matrix random_matrix(test::Random& random, size_t n, size_t k, Dtype dtype, bool transposed) {
  const auto image = test::image_of({{"w", transposed ? std::vector<size_t>{k, n} : std::vector<size_t>{n, k}, random.floats(n * k, -1, 1), dtype}});
  auto tensors = read_safetensors(image);
  Graph graph;
  graph.declarations.push_back({Kind::constant, "w", {n, k}, false, Layout::packed, "w", transposed, -1, 0});
  ThreadPool pool(1);
  auto constants = pack_weights(graph, *tensors, pool);
  Matrix out{std::vector<float>(n * k), std::move((*constants)[0])};
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < k; ++j) out.dense[i * k + j] = read_element((*tensors)[0].data.data(), dtype, transposed ? j * n + i : i * k + j);
  }
  return out;
}

}  // namespace

TEST("matmul: every table gives the bits of the written rule, for any shape, dtype, row block and tile range") {
  test::Random random(3);
  for (const auto& [n, k, rows] : std::vector<std::array<size_t, 3>>{{1, 1, 1}, {64, 32, 1}, {65, 257, 3}, {12, 600, 13}, {130, 96, 25}, {192, 256, 5}, {40, 511, 16}}) {
    for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
      const auto w = random_matrix(random, n, k, dtype, random.below(2) == 0);
      const auto x = random.floats(rows * k, -1, 1);
      // The rule, written out: blocks of 256 terms, fma from 0, block sums added in order from 0.
      std::vector<float> want(rows * n);
      double worst_error = 0;
      for (size_t r = 0; r < rows; ++r) {
        for (size_t i = 0; i < n; ++i) {
          float total = 0;
          double exact = 0;
          for (size_t b = 0; b < k; b += 256) {
            float acc = 0;
            for (size_t j = b; j < std::min(k, b + 256); ++j) {
              acc = std::fma(w.dense[i * k + j], x[r * k + j], acc);
              exact += double{w.dense[i * k + j]} * x[r * k + j];
            }
            total += acc;
          }
          want[r * n + i] = total;
          worst_error = std::max(worst_error, std::abs(total - exact));
        }
      }
      CHECK(worst_error < 1e-6 * static_cast<double>(k));
      for (const auto* table : tables()) {
        std::vector<float> got(rows * n, NAN);
        const auto packed = w.packed.matrix();
        const size_t split = random.below(rows + 1), middle = random.below(packed.tiles() + 1);
        for (const auto& [from, to] : {std::pair{size_t{0}, split}, std::pair{split, rows}}) {
          table->matmul(packed, x.data(), got.data(), from, to - from, 0, middle);
          table->matmul(packed, x.data(), got.data(), from, to - from, middle, packed.tiles());
        }
        CHECK(same_bits(got, want));
      }
    }
  }
}
