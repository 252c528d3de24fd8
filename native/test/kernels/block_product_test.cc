// Products with matrices of GGUF blocks that are multiplied as they are.
#include "test/kernel_inputs.h"
#include "test/matrices.h"
#include "weights/block_packing.h"
#include "weights/blocks.h"
#include "weights/widen.h"

namespace continuo::test::block_product_test {

namespace {

constexpr double unit = 0x1p-24;  // of rounding

// A matrix in blocks of random bits with ordinary scales.
struct Blocks {
  const BlockFormat* format;
  size_t n, k;
  std::vector<std::byte> bytes;

  const std::byte* block(size_t row, size_t b) const {
    return bytes.data() + (row * (k / format->values) + b) * format->bytes;
  }
  ConstantSpec spec(View view = {}) const {
    return {"w", Layout::packed, {view ? *view.count() : n, k}, "w", false, -1, Storage::plain, "", 0, view};
  }
  Tensor tensor() const { return test::tensor_of("w", std::string(format->name), {n, k}, bytes); }
  Constant packed(View view = {}) const {
    auto constant = test::pack_one(spec(view), {tensor()});
    CHECK(constant);
    return *constant;
  }
  // [n][k], as a float each.
  std::vector<float> widened() const {
    std::vector<float> out(n * k);
    for (size_t i = 0; i < n; ++i) {
      for (size_t b = 0; b < k / format->values; ++b)
        format->widen(block(i, b), out.data() + i * k + b * format->values);
    }
    return out;
  }
};

float half_at(const std::byte* at) {
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return widen_f16(bits);
}

struct Places {
  size_t d, dmin;
};
Places places_of(std::string_view name) {
  if (name == "Q6_K") return {208, 0};
  if (name == "TQ1_0") return {52, 0};
  if (name == "TQ2_0") return {64, 0};
  return {0, name == "Q4_K" ? size_t{2} : 0};
}

Blocks random_blocks(test::Random& random, std::string_view name, size_t n, size_t k) {
  const auto* format = block_format(name);
  Blocks w{format, n, k, std::vector<std::byte>(n * (k / format->values) * format->bytes)};
  const bool extreme = random.below(4) == 0;
  const auto most = static_cast<std::byte>(random.below(2) ? 0xFF : 0x00);
  for (auto& byte : w.bytes) byte = extreme ? most : static_cast<std::byte>(random.next());
  const auto [d, dmin] = places_of(name);
  for (size_t at = 0; at < w.bytes.size(); at += format->bytes) {
    for (const size_t place : {d, dmin}) {
      const auto scale = static_cast<uint16_t>(random.below(0x3C00) | random.below(2) << 15);
      if (place == d || dmin != 0) std::memcpy(&w.bytes[at + place], &scale, 2);
    }
  }
  return w;
}

struct Row {
  std::vector<int> q;         // [k]
  std::vector<float> scales;  // [k / group]
};

Row quantised_row(const float* x, size_t k, size_t group) {
  Row out{std::vector<int>(k), std::vector<float>(k / group)};
  for (size_t g = 0; g < k / group; ++g)
    out.scales[g] = test::quantise_by_the_rule(x + g * group, group, &out.q[g * group]);
  return out;
}

// The rule of jobs.h, number by number.
std::vector<float> by_the_rule(const Blocks& w, const std::vector<float>& x, size_t rows) {
  const size_t group = w.format->values == 256 && w.format->name[0] == 'T' ? 64 : 32, values = w.format->values;
  std::vector<float> y(rows * w.n);
  std::vector<int8_t> codes(w.k);
  const auto [d_at, dmin_at] = places_of(w.format->name);
  for (size_t i = 0; i < w.n; ++i) {
    for (size_t b = 0; b < w.k / values; ++b) w.format->codes(w.block(i, b), codes.data() + b * values);
    for (size_t r = 0; r < rows; ++r) {
      const Row row = quantised_row(&x[r * w.k], w.k, group);
      float total = 0, acc = 0;
      for (size_t g = 0; g < w.k / group; ++g) {
        const std::byte* block = w.block(i, g * group / values);
        const size_t inside = g * group % values;
        const float d = half_at(block + d_at), s = row.scales[g];
        const auto dot = [&](size_t from, size_t count) {
          int sum = 0;
          for (size_t j = g * group + from; j < g * group + from + count; ++j) sum += codes[j] * row.q[j];
          return sum;
        };
        if (w.format->name == "Q4_K") {
          int sum = 0;
          for (size_t j = g * group; j < (g + 1) * group; ++j) sum += row.q[j];
          const auto [sc, mn] = scale_min(block + 4, inside / 32);
          acc = std::fma(static_cast<float>(sc * dot(0, 32)), d * s, acc);
          acc = std::fma(static_cast<float>(mn * -sum), half_at(block + dmin_at) * s, acc);
        } else if (w.format->name == "Q6_K") {
          const auto sc = [&](size_t half) { return static_cast<int8_t>(block[192 + inside / 16 + half]); };
          acc = std::fma(static_cast<float>(sc(0) * dot(0, 16) + sc(1) * dot(16, 16)), d * s, acc);
        } else {
          acc = std::fma(static_cast<float>(dot(0, group)), d * s, acc);
        }
        if ((g + 1) * group % 256 == 0 || (g + 1) * group == w.k) {
          total += acc;
          acc = 0;
        }
      }
      y[r * w.n + i] = total;
    }
  }
  return y;
}

// Against the widened numbers in double precision: an activation is off by at most half a step of its group.
bool near_exact(const Blocks& w, const std::vector<float>& x, size_t rows, const std::vector<float>& y) {
  const auto weights = w.widened();
  const double rounding = (24 + static_cast<double>(w.k) / 256) * unit;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t i = 0; i < w.n; ++i) {
      double exact = 0, allowed = 1e-38;
      for (size_t from = 0; from < w.k; from += 32) {
        // The step of a group is its largest number / 127. Formats with groups of 64 take the largest of all 64
        // numbers, which is no smaller than that of a group of 32.
        double most = 0, size = 0, sum = 0;
        for (size_t j = from / 64 * 64; j < std::min(w.k, from / 64 * 64 + 64); ++j)
          most = std::max(most, std::abs(double{x[r * w.k + j]}));
        for (size_t j = from; j < from + 32; ++j) {
          const double product = double{weights[i * w.k + j]} * x[r * w.k + j];
          exact += product;
          size += std::abs(product);
          sum += std::abs(double{weights[i * w.k + j]});
        }
        // Of q4_k products and minimum round apart, and may take each other away: 63 · 15 + 63 of each number, times 1.
        const double apart = w.format->name == "Q4_K" ? 32 * 1008 * most : 0;
        allowed += sum * most / 127 * (0.5 + 600 * unit) + rounding * (size + sum * most + apart);
      }
      if (!(std::abs(y[r * w.n + i] - exact) <= allowed)) return false;
    }
  }
  return true;
}

constexpr std::string_view names[] = {"Q8_0", "Q5_0", "Q4_0", "TQ1_0", "TQ2_0", "Q4_K", "Q6_K"};

}  // namespace

TEST("blocks: every table gives the bits of the written rule, for any format, shape, cut of rows and cut of tiles") {
  test::Random random(50);
  for (const std::string_view name : names) {
    const size_t step = block_format(name)->values;
    for (const auto& [n, k, rows] : std::vector<test::Product>{
             {1, 1, 1}, {64, 2, 1}, {65, 3, 3}, {130, 1, 25}, {12, 5, 13}, {70, 2, 7}, {191, 1, 2}, {63, 4, 50}}) {
      const auto w = random_blocks(random, name, n, k * step);
      const auto x = random.floats(rows * w.k, -2, 2);
      const auto want = by_the_rule(w, x, rows);
      CHECK(near_exact(w, x, rows, want));
      const auto constant = w.packed();
      const auto m = constant.matrix();
      CHECK(is_quantised(m.dtype));
      for (const auto* table : test::tables()) {
        ThreadPool pool(1);
        CHECK(same_numbers(product(*table, pool, m, x, rows), want));
        CHECK(same_numbers(test::quantised_in_parts(random, *table, m, x, rows), want));
      }
    }
  }
}

TEST("blocks: products have the same bits on any number of threads, and side by side with others") {
  test::Random random(51);
  for (const size_t rows : {1, 9, 60}) {
    constexpr size_t k = 512;
    const auto x = random.floats(rows * k, -1, 1);
    std::vector<Constant> constants;
    std::vector<std::vector<float>> want, got;
    std::vector<continuo::Product> all;
    size_t bytes = 0;
    for (const std::string_view name : names) {
      const auto w = random_blocks(random, name, 300, k);
      constants.push_back(w.packed());
      want.push_back(by_the_rule(w, x, rows));
      got.emplace_back(rows * w.n);
    }
    for (size_t i = 0; i < constants.size(); ++i) {
      all.push_back({constants[i].matrix(), x.data(), got[i].data()});
      bytes += scratch_bytes(all.back().w, rows);
    }
    Memory scratch(bytes);
    for (const size_t threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      for (const auto* table : runnable_kernels()) {
        multiply(pool, *table, all, rows, scratch);
        for (size_t i = 0; i < got.size(); ++i) CHECK(same_numbers(got[i], want[i]));
      }
    }
  }
}

TEST("blocks: a NaN or an infinity in the activations makes its row NaN, and no other") {
  test::Random random(52);
  for (const std::string_view name : names) {
    const auto w = random_blocks(random, name, 70, 512);
    const auto good = random.floats(5 * w.k, -1, 1);
    const auto want = by_the_rule(w, good, 5);
    const auto constant = w.packed();
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      auto x = good;
      x[2 * w.k + random.below(w.k)] = bad;
      for (const auto* table : test::tables()) {
        ThreadPool pool(1);
        const auto y = product(*table, pool, constant.matrix(), x, 5);
        for (size_t i = 0; i < 5 * w.n; ++i) CHECK(i / w.n == 2 ? std::isnan(y[i]) : y[i] == want[i]);
      }
    }
  }
}

TEST("blocks: rows that a view picks are packed in its order; what a file has otherwise is widened") {
  test::Random random(53);
  const auto w = random_blocks(random, "Q4_K", 8, 256);
  const auto x = random.floats(256, -1, 1);
  // Even rows, then odd ones.
  const View view{0, 1, 0, 0, {{0, 4, 2}, {1, 4, 2}}};
  ThreadPool pool(1);
  const auto straight = product(*test::tables().front(), pool, w.packed().matrix(), x, 1);
  const auto picked = product(*test::tables().front(), pool, w.packed(view).matrix(), x, 1);
  for (size_t i = 0; i < 8; ++i) CHECK(picked[i] == straight[i < 4 ? 2 * i : 2 * (i - 4) + 1]);
  auto spec = w.spec();
  spec.layout = Layout::rows;
  auto rows = test::pack_one(spec, {w.tensor()});
  CHECK(rows && rows->dtype == Dtype::f32);
  spec.layout = Layout::packed;
  spec.columns = View{0, 1, 0, 0, {{128, 128, 1}, {0, 128, 1}}};
  auto columns = test::pack_one(spec, {w.tensor()});
  CHECK(columns && columns->dtype == Dtype::f32);
}

TEST("blocks: a scale that is not finite is refused with the tensor's name") {
  test::Random random(54);
  for (const std::string_view name : names) {
    auto w = random_blocks(random, name, 3, 512);
    const uint16_t infinity = 0x7C00;
    std::memcpy(&w.bytes[w.format->bytes * (512 / w.format->values) + places_of(name).d], &infinity, 2);
    CHECK_SAYS(test::pack_one(w.spec(), {w.tensor()}),
               "tensor \"w\" holds a scale that is not finite in block 0 of row 1");
  }
}

TEST("block products: a constant read back gives the numbers of its file's blocks, those of a view in its order") {
  test::Random random(72);
  for (const char* name : {"Q8_0", "Q5_0", "Q4_0", "TQ1_0", "TQ2_0", "Q4_K", "Q6_K"}) {
    for (const size_t n : {1, 66, 130}) {
      const auto w = random_blocks(random, name, n, 512);
      const auto numbers = w.widened();
      const auto read_back = [](const Constant& constant) {
        std::vector<float> out(numbers_of(constant));
        widen(constant, constant.bytes, out.data());
        return out;
      };
      CHECK(same_numbers(read_back(w.packed()), numbers));
      if (n == 1) continue;
      // Every other row.
      std::vector<float> some;
      for (size_t row = 1; row < n; row += 2) some.insert(some.end(), &numbers[row * 512], &numbers[row * 512] + 512);
      CHECK(same_numbers(read_back(w.packed({1, 1, 0, 0, {{0, n / 2, 2}}})), some));
    }
  }
}

}  // namespace continuo::test::block_product_test
