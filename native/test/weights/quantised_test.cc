#include "test/kernel_inputs.h"
#include "test/matrices.h"
#include "weights/widen.h"

namespace continuo::test::quantised_test {

// Beside the overload below.
using continuo::test::product;

namespace {

constexpr double unit = 0x1p-24;  // of rounding
constexpr Storage storages[] = {Storage::q8, Storage::i4, Storage::ternary2, Storage::ternary3};

size_t parts(size_t n, size_t of) { return (n + of - 1) / of; }

// A quantised matrix: its numbers, and the two tensors of the file.
struct Quantised {
  size_t n, k, group;
  std::vector<int> q;            // [n][k]
  std::vector<uint16_t> scales;  // [n][⌈k/group⌉] f16
  Storage storage;
  std::vector<std::byte> codes, scale_bytes;

  size_t groups() const { return parts(k, group); }
  float scale(size_t i, size_t g) const { return widen_f16(scales[i * groups() + g]); }

  ConstantSpec spec() const {
    return {"w", Layout::packed, {n, k}, "w.codes", false, -1, storage, "w.scales", static_cast<uint32_t>(group)};
  }
  size_t per_byte() const {
    return storage == Storage::q8 ? 1 : storage == Storage::i4 ? 2 : storage == Storage::ternary2 ? 4 : 5;
  }
  std::vector<Tensor> tensors() const {
    return {test::tensor_of("w.codes", storage == Storage::q8 ? "I8" : "U8", {n, parts(k, per_byte())}, codes),
            test::tensor_of("w.scales", "F16", {n, groups()}, scale_bytes)};
  }

  // The bytes of the file from the numbers. Numbers past the last input are random.
  void write(test::Random& random) {
    const size_t row = parts(k, per_byte());
    codes.assign(n * row, std::byte{0});
    for (size_t i = 0; i < n; ++i) {
      for (size_t b = 0; b < row; ++b) {
        int byte = 0, power = 1;
        for (size_t j = b * per_byte(); j < (b + 1) * per_byte(); ++j) {
          const bool real = j < k;
          const int number = real ? q[i * k + j] : 0;
          if (storage == Storage::q8) byte = number & 255;
          if (storage == Storage::i4) byte |= (real ? number + 8 : static_cast<int>(random.below(16))) << (4 * (j % 2));
          if (storage == Storage::ternary2)
            byte |= (real ? number + 1 : static_cast<int>(random.below(4))) << (2 * (j % 4));
          if (storage == Storage::ternary3) byte += (real ? number + 1 : static_cast<int>(random.below(3))) * power;
          power *= 3;
        }
        codes[i * row + b] = static_cast<std::byte>(byte);
      }
    }
    scale_bytes.resize(scales.size() * 2);
    std::memcpy(scale_bytes.data(), scales.data(), scale_bytes.size());
  }

  Constant packed() const {
    auto constant = test::pack_one(spec(), tensors());
    CHECK(constant);
    return *constant;
  }
};

Quantised random_quantised(test::Random& random, Storage storage, size_t n, size_t k, size_t group) {
  Quantised w{n, k, group, std::vector<int>(n * k), std::vector<uint16_t>(n * parts(k, group)), storage, {}, {}};
  const int most = storage == Storage::q8 ? 127 : storage == Storage::i4 ? 7 : 1;
  const bool extreme = random.below(4) == 0;
  for (auto& q : w.q)
    q = extreme ? (random.below(2) ? most : -most)
                : static_cast<int>(random.below(static_cast<size_t>(2 * most + 1))) - most;
  for (auto& scale : w.scales) scale = static_cast<uint16_t>(random.below(0x3C00) | random.below(2) << 15);
  w.write(random);
  return w;
}

std::vector<float> by_the_rule(const Quantised& w, const std::vector<float>& x, size_t rows) {
  std::vector<float> y(rows * w.n);
  std::vector<int> q(w.group);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t block = 0; block < w.k; block += 256) {
      std::vector<float> acc(w.n, 0.0f);
      for (size_t from = block; from < std::min(w.k, block + 256); from += w.group) {
        const size_t count = std::min(w.group, w.k - from);
        const float s = quantise_by_the_rule(&x[r * w.k + from], count, q.data());
        for (size_t i = 0; i < w.n; ++i) {
          int dot = 0;
          for (size_t j = 0; j < count; ++j) dot += w.q[i * w.k + from + j] * q[j];
          acc[i] = std::fma(static_cast<float>(dot), w.scale(i, from / w.group) * s, acc[i]);
        }
      }
      for (size_t i = 0; i < w.n; ++i) y[r * w.n + i] = (block == 0 ? 0.0f : y[r * w.n + i]) + acc[i];
    }
  }
  return y;
}

// Against double precision: an activation is off by at most half a step of its group, and each group's contribution
// takes part in a product of scales, at most 8 fmas and an addition a block, each of which rounds by at most a unit.
bool near_exact(const Quantised& w, const std::vector<float>& x, size_t rows, const std::vector<float>& y) {
  const double rounding = (2 + 8 + static_cast<double>(w.k) / 256 + 2) * unit;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t i = 0; i < w.n; ++i) {
      double exact = 0, allowed = 1e-40;
      for (size_t from = 0; from < w.k; from += w.group) {
        double most = 0, weights = 0, size = 0;
        for (size_t j = from; j < std::min(w.k, from + w.group); ++j) {
          const double weight = double{w.scale(i, from / w.group)} * w.q[i * w.k + j];
          exact += weight * x[r * w.k + j];
          size += std::abs(weight * x[r * w.k + j]);
          weights += std::abs(weight);
          most = std::max(most, std::abs(double{x[r * w.k + j]}));
        }
        const double half_step = most / 127 / 2 * (1 + 4 * unit) + 127 * 4 * unit * most / 127;
        allowed += weights * half_step + rounding * (size + weights * half_step);
      }
      if (!(std::abs(y[r * w.n + i] - exact) <= allowed)) return false;
    }
  }
  return true;
}

std::vector<float> product(const Kernels& table, const Quantised& w, const std::vector<float>& x, size_t rows) {
  ThreadPool pool(1);
  const auto constant = w.packed();
  return test::product(table, pool, constant.matrix(), x, rows);
}

}  // namespace

TEST(
    "quantised: every table gives the bits of the written rule, for any storage, group, shape, cut of rows and cut of "
    "tiles") {
  test::Random random(40);
  for (const auto& [n, k, rows] : products(random)) {
    for (const Storage storage : storages) {
      for (const size_t group : {32, 64}) {
        if (test::left_out(random)) continue;
        const auto w = random_quantised(random, storage, n, k, group);
        const auto x = random.floats(rows * k, -2, 2);
        const auto want = by_the_rule(w, x, rows);
        CHECK(near_exact(w, x, rows, want));
        const auto constant = w.packed();
        const auto m = constant.matrix();
        for (const auto* table : test::tables()) {
          CHECK(same_numbers(product(*table, w, x, rows), want));
          CHECK(same_numbers(test::quantised_in_parts(random, *table, m, x, rows), want));
        }
      }
    }
  }
}

TEST("quantised: every number of rows from 1 to 50 gives each row the bits it has alone") {
  test::Random random(41);
  constexpr size_t n = 70, k = 300, most = 50;
  for (const Storage storage : {Storage::q8, Storage::ternary3}) {
    const auto w = random_quantised(random, storage, n, k, 32);
    const auto x = random.floats(most * k, -1, 1);
    const auto want = by_the_rule(w, x, most);
    for (const auto* table : test::tables()) {
      for (size_t rows = 1; rows <= most; ++rows)
        CHECK(
            same_numbers(product(*table, w, x, rows), {want.begin(), want.begin() + static_cast<ptrdiff_t>(rows * n)}));
    }
  }
}

TEST(
    "multiply: products side by side have the bits of each by itself, for any formats, inputs they share, rows and "
    "threads") {
  test::Random random(45);
  constexpr size_t k = 600, other_k = 96, most = 40;
  const auto x = random.floats(most * k, -1, 1), z = random.floats(most * other_k, -1, 1);
  const auto plain = random.floats(130 * k, -1, 1);
  std::vector<std::byte> bytes_of(plain.size() * sizeof(float));
  std::memcpy(bytes_of.data(), plain.data(), bytes_of.size());
  const auto floats = test::pack_one({"w", Layout::packed, {130, k}, "w", false, -1, Storage::plain, "", 0},
                                     {test::tensor_of("w", "F32", {130, k}, bytes_of)});
  CHECK(floats);
  std::vector<Constant> constants{*floats};
  for (const auto& [storage, n, inputs, group] :
       {std::tuple(Storage::q8, size_t{1040}, k, size_t{32}), std::tuple(Storage::ternary2, size_t{70}, k, size_t{32}),
        std::tuple(Storage::q8, size_t{64}, k, size_t{32}), std::tuple(Storage::q8, size_t{64}, k, size_t{64}),
        std::tuple(Storage::q8, size_t{700}, other_k, size_t{32})})
    constants.push_back(random_quantised(random, storage, n, inputs, group).packed());
  for (const size_t rows : {1, 3, 6, 7, 40}) {
    size_t bytes = 0;
    std::vector<std::vector<float>> want, got;
    std::vector<continuo::Product> products;
    for (const auto& constant : constants) {
      const auto m = constant.matrix();
      bytes += scratch_bytes(m, rows);
      const auto& in = m.inputs == k ? x : z;
      ThreadPool alone(1);
      want.push_back(product(*test::tables().front(), alone, m, in, rows));
      got.emplace_back(rows * m.outputs);
      products.push_back({m, in.data(), got.back().data()});
    }
    Memory scratch(bytes);
    for (const size_t threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      for (const auto* table : test::tables()) {
        for (auto& y : got) std::fill(y.begin(), y.end(), NAN);
        multiply(pool, *table, products, rows, scratch);
        for (size_t i = 0; i < got.size(); ++i) CHECK(same_numbers(got[i], want[i]));
      }
    }
  }
}

TEST("quantised: the same numbers in any storage, by either kernel, give the same bits") {
  test::Random random(42);
  auto w = random_quantised(random, Storage::ternary2, 150, 333, 64);
  const auto x = random.floats(7 * w.k, -1, 1);
  const auto want = by_the_rule(w, x, 7);
  for (const Storage storage : storages) {
    w.storage = storage;
    w.write(random);
    for (const auto* table : test::tables()) CHECK(same_numbers(product(*table, w, x, 7), want));
  }
}

TEST("quantised: the largest sums of products do not overflow") {
  test::Random random(43);
  for (const int sign : {1, -1}) {
    auto w = random_quantised(random, Storage::q8, 64, 512, 64);
    std::fill(w.q.begin(), w.q.end(), 127 * sign);
    std::fill(w.scales.begin(), w.scales.end(), uint16_t{0x3C00});
    w.write(random);
    const std::vector<float> x(w.k, 127.0f);
    const auto want = by_the_rule(w, x, 1);
    CHECK(want[63] == static_cast<float>(sign * 512 * 127 * 127));
    for (const auto* table : test::tables()) CHECK(same_numbers(product(*table, w, x, 1), want));
  }
}

TEST(
    "quantise: scales and integers follow the rule for ties, zeros, denormal and huge numbers, whatever lies beside "
    "the group") {
  test::Random random(44);
  for (const size_t group : {size_t{32}, size_t{64}}) {
    constexpr size_t k = 511;
    const PackedMatrix m{Dtype::q8, 1, k, group, nullptr};
    for (int round = 0; round < 400; ++round) {
      std::vector<float> x(k);
      for (size_t from = 0; from < k; from += group) {
        const int kind = static_cast<int>(random.below(6));
        const float size = kind == 0   ? 0.0f
                           : kind == 1 ? 0x1p-149f * static_cast<float>(1 + random.below(400))
                           : kind == 2 ? 0x1.fffffep127f
                           : kind == 3 ? 0x1p-130f
                                       : random.uniform(0.01f, 100);
        for (size_t i = from; i < std::min(k, from + group); ++i) {
          x[i] = random.uniform(-size, size);
          // Ties: odd multiples of half a step, where the step is a power of two.
          if (kind == 5) x[i] = (static_cast<float>(random.below(253)) - 126.0f) * 0.5f;
        }
        if (kind == 5) x[from] = 127.0f;
      }
      for (const auto* table : test::tables()) {
        QuantisedBlock got[2];
        table->quantise(m, x.data(), got, 1);
        for (size_t from = 0; from < k; from += group) {
          std::vector<int> q(group);
          const size_t count = std::min(group, k - from);
          const float s = quantise_by_the_rule(&x[from], count, q.data());
          const auto& block = got[from / 256];
          const size_t g = from % 256 / group;
          int sum = 0;
          bool equal = true;
          for (size_t i = 0; i < group; ++i) {
            equal = equal && block.terms[from % 256 + i] == q[i];
            sum += q[i];
          }
          CHECK(equal && std::bit_cast<uint32_t>(block.scales[g]) == std::bit_cast<uint32_t>(s) &&
                block.corrections[g] == -128 * sum);
        }
      }
    }
  }
}

TEST("quantised: a NaN or an infinity in the activations makes its row NaN, and no other") {
  test::Random random(45);
  for (const Storage storage : {Storage::q8, Storage::ternary2}) {
    const auto w = random_quantised(random, storage, 70, 300, 32);
    const auto good = random.floats(5 * w.k, -1, 1);
    const auto want = by_the_rule(w, good, 5);
    for (const float bad : {NAN, -NAN, INFINITY, -INFINITY}) {
      for (int round = 0; round < 20; ++round) {
        auto x = good;
        x[2 * w.k + random.below(w.k)] = bad;
        for (const auto* table : test::tables()) {
          const auto y = product(*table, w, x, 5);
          for (size_t i = 0; i < w.n; ++i) CHECK(std::isnan(y[2 * w.n + i]));
          for (size_t i = 0; i < 5 * w.n; ++i) CHECK(i / w.n == 2 || y[i] == want[i]);
        }
      }
    }
  }
}

TEST("multiply: quantised products have the same bits on any number of threads") {
  test::Random random(46);
  for (const auto& [n, k, rows] :
       std::vector<test::Product>{{3000, 768, 1}, {700, 300, 9}, {64, 768, 128}, {1030, 520, 60}}) {
    for (const Storage storage : storages) {
      const auto w = random_quantised(random, storage, n, k, 32);
      const auto x = random.floats(rows * k, -1, 1);
      const auto want = by_the_rule(w, x, rows);
      const auto constant = w.packed();
      for (const size_t threads : {1, 2, 3}) {
        ThreadPool pool(threads);
        for (const auto* table : runnable_kernels())
          CHECK(same_numbers(product(*table, pool, constant.matrix(), x, rows), want));
      }
    }
  }
}

TEST("weights: an invalid quantised matrix is refused with the tensor's name") {
  test::Random random(47);
  const auto pack = [](const Quantised& w, const ConstantSpec& spec) { return test::pack_one(spec, w.tensors()); };
  const auto make = [&](Storage storage) { return random_quantised(random, storage, 3, 70, 32); };
  for (const Storage storage : storages) {
    const auto w = make(storage);
    CHECK(pack(w, w.spec()));
    auto spec = w.spec();
    spec.tensor = "other";
    CHECK_SAYS(pack(w, spec), "tensor \"other\" is missing from the model's files, expected shape [3, 70]");
    spec = w.spec();
    spec.scales = "other";
    CHECK_SAYS(pack(w, spec), "tensor \"other\" is missing from the model's files, expected the scales of \"w.codes\"");
    spec = w.spec();
    spec.group = 48;
    CHECK_SAYS(pack(w, spec), "constant \"w\" has groups of 48 inputs, expected 32 or 64");
    spec = w.spec();
    spec.transposed = true;
    CHECK_SAYS(pack(w, spec), "only a matrix [outputs, inputs] of the layout packed can be");
    spec = w.spec();
    spec.layout = Layout::rows;
    CHECK_SAYS(pack(w, spec), "only a matrix [outputs, inputs] of the layout packed can be");
    spec = w.spec();
    spec.shape[1] = 80;
    CHECK_SAYS(pack(w, spec), "tensor \"w.codes\" has shape [3, ");
    spec = w.spec();
    spec.group = 64;
    CHECK_SAYS(pack(w, spec), "tensor \"w.scales\" has shape [3, 3], expected [3, 2]");
    auto tensors = w.tensors();
    tensors[0].dtype = "BOOL";
    CHECK_SAYS(test::pack_one(w.spec(), tensors), "tensor \"w.codes\" is stored as BOOL, expected ");
    tensors = w.tensors();
    tensors[1].dtype = "BF16";
    CHECK_SAYS(test::pack_one(w.spec(), tensors), "tensor \"w.scales\" is stored as BF16, expected F16");
  }
  const auto damaged = [&](Storage storage, size_t at, int byte) {
    auto w = make(storage);
    w.codes[at] = static_cast<std::byte>(byte);
    return pack(w, w.spec());
  };
  CHECK_SAYS(damaged(Storage::q8, 75, 128),
             "tensor \"w.codes\" holds -128 at element 75, expected -127 to 127 for q8 weights");
  CHECK(damaged(Storage::i4, 5, 0));
  CHECK_SAYS(damaged(Storage::ternary2, 20, 0x31),
             "tensor \"w.codes\" holds 49 at element 20, expected codes 0, 1 and 2 of two bits for ternary2 weights");
  CHECK_SAYS(damaged(Storage::ternary3, 14, 243),
             "tensor \"w.codes\" holds 243 at element 14, expected at most 242 for ternary3 weights");
  // Past the last of 70 inputs lie the two upper codes of a row's last byte.
  CHECK(damaged(Storage::ternary2, 17, 0xF5));
  const auto scale = [&](uint16_t bits) {
    auto w = make(Storage::i4);
    std::memcpy(w.scale_bytes.data() + 2 * 4, &bits, 2);
    return pack(w, w.spec());
  };
  CHECK_SAYS(scale(0x7C00), "tensor \"w.scales\" holds an infinity at element 4");
  CHECK_SAYS(scale(0xFE00), "tensor \"w.scales\" holds NaN at element 4");
}

TEST("quantised: a constant read back gives its integers times their scales") {
  test::Random random(71);
  for (const Storage storage : storages) {
    for (const size_t group : {32, 64}) {
      for (const auto& [n, k] : {std::pair<size_t, size_t>{1, 1}, {65, 257}, {3, 700}}) {
        const auto w = random_quantised(random, storage, n, k, group);
        const Constant constant = w.packed();
        std::vector<float> got(numbers_of(constant)), want(n * k);
        widen(constant, constant.bytes, got.data());
        for (size_t i = 0; i < n * k; ++i) want[i] = static_cast<float>(w.q[i]) * w.scale(i / k, i % k / group);
        CHECK(same_numbers(got, want));
      }
    }
  }
}

}  // namespace continuo::test::quantised_test
