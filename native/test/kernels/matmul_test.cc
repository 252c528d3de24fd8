#include "backends/cpu/linear.h"
#include "test/kernel_inputs.h"
#include "test/matrices.h"

namespace continuo::test::matmul_test {

namespace {

constexpr double unit = 0x1p-24;  // of rounding

// A matrix as the file holds it (bits), as numbers, and packed.
struct Matrix {
  size_t n, k;
  std::vector<float> dense;  // [n][k]
  Constant packed;
};

struct Format {
  const char* name;
  size_t bytes;
  float (*widen)(uint32_t bits);
  uint32_t (*any)(test::Random& random);  // bits of a number of ordinary size
};

uint32_t around_one(test::Random& random) { return std::bit_cast<uint32_t>(random.uniform(-1, 1)); }

const Format formats[] = {
    {"F32", 4, [](uint32_t bits) { return std::bit_cast<float>(bits); }, around_one},
    {"BF16", 2, [](uint32_t bits) { return std::bit_cast<float>(bits << 16); },
     [](test::Random& random) { return around_one(random) >> 16; }},
    {"F16", 2, [](uint32_t bits) { return widen_f16(static_cast<uint16_t>(bits)); },
     [](test::Random& random) { return static_cast<uint32_t>(random.below(0x3C00) | random.below(2) << 15); }},
    {"F8_E4M3", 1, [](uint32_t bits) { return widen_f16(widen_f8(static_cast<uint8_t>(bits))); },
     [](test::Random& random) { return static_cast<uint32_t>(random.below(0x38) | random.below(2) << 7); }},
};

Matrix matrix_of(const Format& format, size_t n, size_t k, bool transposed, const std::vector<uint32_t>& bits) {
  Matrix out{n, k, std::vector<float>(n * k), {}};
  std::vector<std::byte> data(n * k * format.bytes);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < k; ++j) {
      std::memcpy(data.data() + (transposed ? j * n + i : i * k + j) * format.bytes, &bits[i * k + j], format.bytes);
      out.dense[i * k + j] = format.widen(bits[i * k + j]);
    }
  }
  ConstantSpec spec;
  spec.layout = Layout::packed;
  spec.shape = {n, k};
  spec.tensor = "w";
  spec.transposed = transposed;
  auto packed = test::pack_one(
      spec, {test::tensor_of("w", format.name, transposed ? std::vector<uint64_t>{k, n} : std::vector<uint64_t>{n, k},
                             data)});
  CHECK(packed);
  out.packed = *packed;
  return out;
}

Matrix random_matrix(test::Random& random, const Format& format, size_t n, size_t k) {
  std::vector<uint32_t> bits(n * k);
  for (auto& b : bits) b = format.any(random);
  return matrix_of(format, n, k, random.below(2) == 0, bits);
}

// The rule, written out: blocks of 256 terms, fma from 0, block sums added in order from 0.
std::vector<float> by_the_rule(const Matrix& w, const std::vector<float>& x, size_t rows) {
  std::vector<float> y(rows * w.n);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t i = 0; i < w.n; ++i) {
      float total = 0;
      for (size_t block = 0; block < w.k; block += 256) {
        float acc = 0;
        for (size_t j = block; j < std::min(w.k, block + 256); ++j)
          acc = std::fma(w.dense[i * w.k + j], x[r * w.k + j], acc);
        total += acc;
      }
      y[r * w.n + i] = total;
    }
  }
  return y;
}

// A term takes part in at most 256 fmas and one addition a block, each of which rounds by at most a unit of what it has
// summed.
bool near_exact(const Matrix& w, const std::vector<float>& x, size_t rows, const std::vector<float>& y) {
  const double bound = (256 + static_cast<double>(w.k) / 256 + 2) * unit;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t i = 0; i < w.n; ++i) {
      double exact = 0, size = 0;
      for (size_t j = 0; j < w.k; ++j) {
        const double term = double{w.dense[i * w.k + j]} * x[r * w.k + j];
        exact += term;
        size += std::abs(term);
      }
      if (!(std::abs(y[r * w.n + i] - exact) <= bound * size + 1e-40)) return false;
    }
  }
  return true;
}

}  // namespace

TEST("matmul: every table gives the bits of the written rule, for any shape, format, cut of rows and cut of tiles") {
  test::Random random(3);
  for (const auto& [n, k, rows] : products(random)) {
    for (const auto& format : formats) {
      const auto w = random_matrix(random, format, n, k);
      const auto x = random.floats(rows * k, -1, 1);
      const auto want = by_the_rule(w, x, rows);
      CHECK(near_exact(w, x, rows, want));
      const auto packed = w.packed.matrix();
      for (const auto* table : test::tables()) {
        std::vector<float> whole(rows * n, NAN), parts(rows * n, NAN);
        table->matmul(packed, x.data(), whole.data(), 0, rows, 0, packed.tiles());
        CHECK(same_numbers(whole, want));
        test::in_parts(random, rows, packed.tiles(), [&](size_t row, size_t count, size_t tile, size_t end) {
          table->matmul(packed, x.data(), parts.data(), row, count, tile, end);
        });
        CHECK(same_numbers(parts, want));
      }
    }
  }
}

TEST("matmul: every number of rows from 1 to 50 gives each row the bits it has alone") {
  test::Random random(31);
  constexpr size_t n = 70, k = 300, most = 50;
  const auto w = random_matrix(random, formats[1], n, k);
  const auto x = random.floats(most * k, -1, 1);
  const auto want = by_the_rule(w, x, most);
  for (const auto* table : test::tables()) {
    for (size_t rows = 1; rows <= most; ++rows) {
      std::vector<float> got(rows * n, NAN);
      table->matmul(w.packed.matrix(), x.data(), got.data(), 0, rows, 0, w.packed.matrix().tiles());
      CHECK(same_numbers(got, {want.begin(), want.begin() + static_cast<ptrdiff_t>(rows * n)}));
    }
  }
}

TEST("matmul: denormal and huge numbers keep their bits; NaN and infinities stay visible, in their row only") {
  test::Random random(32);
  constexpr size_t n = 67, k = 530, rows = 9;
  const float odd[] = {0x1p-149f, -0x1p-127f, 0x1.fffffep127f, -0x1p100f, 0.0f, -0.0f, 1.0f};
  for (const auto& format : formats) {
    const auto w = random_matrix(random, format, n, k);
    std::vector<float> x(rows * k);
    for (auto& value : x) value = odd[random.below(7)];
    const auto plain = by_the_rule(w, random.floats(k, -1, 1), 1);
    for (const float bad : {NAN, INFINITY, -INFINITY, 1.0f}) {
      auto with = x;
      const size_t row = random.below(rows);
      with[row * k + random.below(k)] = bad;
      const auto want = by_the_rule(w, with, rows);
      for (const auto* table : test::tables()) {
        std::vector<float> got(rows * n);
        table->matmul(w.packed.matrix(), with.data(), got.data(), 0, rows, 0, w.packed.matrix().tiles());
        CHECK(same_numbers(got, want));
        for (size_t i = 0; i < n && !std::isfinite(bad); ++i) CHECK(!std::isfinite(got[row * n + i]));
      }
    }
  }
}

TEST("multiply: any number of threads gives the same bits") {
  test::Random random(33);
  for (const auto& [n, k, rows] :
       std::vector<test::Product>{{1000, 300, 1}, {640, 256, 5}, {300, 520, 40}, {64, 768, 128}, {1030, 96, 128}}) {
    for (const auto& format : formats) {
      const auto w = random_matrix(random, format, n, k);
      const auto x = random.floats(rows * k, -1, 1);
      const auto want = by_the_rule(w, x, rows);
      for (const size_t threads : {1, 2, 3}) {
        ThreadPool pool(threads);
        Memory scratch(scratch_bytes(w.packed.matrix(), rows));
        for (const auto* table : runnable_kernels()) {
          std::vector<float> got(rows * n, NAN);
          const continuo::Product product{w.packed.matrix(), x.data(), got.data()};
          multiply(pool, *table, {&product, 1}, rows, scratch);
          CHECK(same_numbers(got, want));
        }
      }
    }
  }
}

TEST("F8_E4M3 widens exactly: every code is its sign, exponent and mantissa; its NaNs are NaN") {
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const float value = widen_f16(widen_f8(static_cast<uint8_t>(code)));
    if ((code & 0x7F) == 0x7F) {
      CHECK(std::isnan(value));
      continue;
    }
    const double magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    CHECK(std::abs(value) == magnitude && std::signbit(value) == (code >= 128));
  }
}

TEST("weights: F8_E4M3 is read in every layout, and its NaN is refused") {
  std::vector<std::byte> data;
  for (int i = 0; i < 12; ++i) data.push_back(static_cast<std::byte>(i * 9));
  const std::vector<Tensor> tensors{test::tensor_of("t", "F8_E4M3", {3, 4}, data)};
  const auto number = [&](size_t i) { return widen_f16(widen_f8(std::to_integer<uint8_t>(data[i]))); };
  const auto rows = test::pack_one({"r", Layout::rows, {3, 4}, "t", false, -1, Storage::plain, "", 0}, tensors);
  CHECK(rows && rows->dtype == Dtype::f16 && rows->bytes.size() == 24);
  for (size_t i = 0; i < 12; ++i) CHECK(read_element(rows->bytes.data(), rows->dtype, i) == number(i));
  const auto vector = test::pack_one({"v", Layout::vector, {4}, "t", false, 2, Storage::plain, "", 0}, tensors);
  CHECK(vector);
  for (size_t i = 0; i < 4; ++i) CHECK(vector->vector()[i] == number(8 + i));
  data[5] = std::byte{0xFF};
  CHECK_SAYS(test::pack_one({"r", Layout::rows, {3, 4}, "t", false, -1, Storage::plain, "", 0}, tensors),
             "tensor \"t\" holds NaN at element 5");
}

TEST("weights: a spec without a tensor gives an empty constant; copies of a constant share its bytes") {
  const std::vector<std::byte> data(16);
  const std::vector<Tensor> tensors{test::tensor_of("t", "F32", {4}, data)};
  ThreadPool pool(1);
  std::vector<ConstantSpec> specs(2);
  specs[1] = {"v", Layout::vector, {4}, "t", false, -1, Storage::plain, "", 0};
  auto packed = pack_weights(specs, tensors, pool);
  CHECK(packed && packed->constants[0].bytes.empty() && packed->constants[1].outputs == 4);
  const Constant copy = packed->constants[1];
  packed->constants.clear();
  CHECK(copy.vector()[3] == 0);
}

}  // namespace continuo::test::matmul_test
