#include "test/kernel_inputs.h"
#include "test/kernels/reference.h"

namespace continuo::test::reduce_test {

TEST("sum_exp: every table gives the bits of the written order, for any length, alignment and kind of number") {
  Random random(61);
  for (int round = 0; round < 200; ++round) {
    const size_t n = some_length(random);
    const auto x = round % 2 ? every_kind(random, n) : random.floats(n, -12, 12);
    const float shift = random.uniform(-3, 3);
    const float want = ordered_sum(n, [&](float acc, size_t i) { return acc + reference::exp(x[i] - shift); });
    for (const auto* table : tables()) {
      Slice in(x, random.below(17));
      CHECK(same(table->sum_exp(in.data(), shift, n), want));
    }
  }
}

TEST("sum_exp: within the derived error of the exact sum") {
  Random random(62);
  for (int round = 0; round < 200; ++round) {
    const size_t n = some_length(random);
    const auto x = random.floats(n, -60, 20);
    const float shift = *std::max_element(x.begin(), x.end());
    double want = 0, bound = 0;
    for (const float value : x) {
      const double distance = double{value} - shift, e = std::exp(distance);
      want += e;
      // The rounding of the distance is a relative error of its exponential; exp adds one ulp, 2u; then the error of
      // the sum. Results too small to be normal are nothing beside the 1 of the largest.
      bound += e * (unit * std::abs(distance) + 2 * unit + sum_error(n));
    }
    for (const auto* table : tables()) CHECK(std::abs(table->sum_exp(x.data(), shift, n) - want) <= 1.01 * bound);
  }
}

TEST("max: the largest, wherever it stands; NaN is passed over; of two equal zeros every table keeps the same") {
  Random random(63);
  for (int round = 0; round < 300; ++round) {
    const size_t n = some_length(random);
    auto x = round % 3 == 0   ? every_kind(random, n)
             : round % 3 == 1 ? random.floats(n, -1, 1)
                              : std::vector<float>(n, -0.0f);
    if (round % 3 == 2)
      for (auto& value : x)
        if (random.below(9) == 0) value = 0.0f;
    if (std::isnan(x[0])) x[0] = -INFINITY;
    float largest = -INFINITY;
    for (const float value : x) largest = std::fmax(largest, value);
    const float first = tables().front()->max(x.data(), n);
    CHECK(first == largest);
    for (const auto* table : tables()) {
      Slice in(x, random.below(17));
      CHECK(same(table->max(in.data(), n), first));
    }
  }
}

TEST("finite sees a single NaN or infinity anywhere, and nothing else") {
  Random random(64);
  for (const size_t n : {1, 7, 16, 37, 257}) {
    auto x = every_kind(random, n);
    for (auto& value : x) value = std::isfinite(value) ? value : std::numeric_limits<float>::max();
    for (const auto* table : tables()) {
      for (const size_t offset : {0, 1, 5}) {
        Slice in(x, offset);
        CHECK(table->finite(in.data(), n));
        for (size_t i = 0; i < n; ++i) {
          const float kept = in.data()[i];
          for (const float bad : {NAN, -NAN, INFINITY, -INFINITY}) {
            in.data()[i] = bad;
            CHECK(!table->finite(in.data(), n));
          }
          in.data()[i] = kept;
        }
      }
    }
  }
}

}  // namespace continuo::test::reduce_test
