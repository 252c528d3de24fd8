#include "test/kernels/recurrences.h"

namespace continuo::test::ssm_test {

namespace {

// One head of n channels and some keys in rows of its own strides, over some tokens.
struct Head {
  size_t n, keys, stride, heads, key_stride, tokens;
  std::vector<float> x;      // [tokens][stride]
  std::vector<float> dt, w;  // [tokens][heads]
  std::vector<float> b, c;   // [tokens][key_stride]
  std::vector<float> state;  // [keys][n]
  float skip;
};

Head some_head(Random& random, size_t n, size_t keys, bool wild) {
  Head h{
      n,  keys, n + random.below(20), 1 + random.below(9), keys + random.below(20), 1 + random.below(6), {}, {}, {}, {},
      {}, {},   random.uniform(-2, 2)};
  const auto values = [&](size_t count, float low, float high) {
    return wild ? every_kind(random, count) : random.floats(count, low, high);
  };
  h.x = values(h.tokens * h.stride, -2, 2);
  h.dt = values(h.tokens * h.heads, 0, 1);
  h.w = values(h.tokens * h.heads, 0.3f, 1);
  h.b = values(h.tokens * h.key_stride, -1, 1);
  h.c = values(h.tokens * h.key_stride, -1, 1);
  h.state = values(keys * n, -1, 1);
  return h;
}

// The rule of ssm.h, one number at a time.
Outcome rule(const Head& h) {
  Outcome out{std::vector<float>(h.tokens * h.n), h.state};
  for (size_t t = 0; t < h.tokens; ++t) {
    const float dt = h.dt[t * h.heads], w = h.w[t * h.heads];
    for (size_t i = 0; i < h.n; ++i) {
      const float x = h.x[t * h.stride + i], step = x * dt;
      float sum = 0;
      for (size_t j = 0; j < h.keys; ++j) {
        float& s = out.state[j * h.n + i];
        s = std::fma(s, w, step * h.b[t * h.key_stride + j]);
        sum = std::fma(s, h.c[t * h.key_stride + j], sum);
      }
      out.y[t * h.n + i] = std::fma(x, h.skip, sum);
    }
  }
  return out;
}

// On slices that start anywhere.
Outcome run(Random& random, const Kernels* table, const Head& h) {
  const auto slice = [&](const std::vector<float>& values) { return Slice(values, random.below(17)); };
  Slice x = slice(h.x), dt = slice(h.dt), w = slice(h.w), b = slice(h.b), c = slice(h.c);
  return in_parts(random, h, [&](float* state, float* y, size_t t, size_t tokens, size_t lane, size_t end) {
    const SsmRun job{state,
                     x.data() + t * h.stride,
                     dt.data() + t * h.heads,
                     w.data() + t * h.heads,
                     b.data() + t * h.key_stride,
                     c.data() + t * h.key_stride,
                     h.skip,
                     y,
                     h.n,
                     h.keys,
                     h.stride,
                     h.heads,
                     h.key_stride,
                     tokens};
    table->ssm(job, lane, end);
  });
}

}  // namespace

TEST(
    "ssm: every table gives the bits of the written rule, for any size, alignment, cut of tokens, split of lanes and "
    "kind of number") {
  Random random(76);
  for (const size_t n : {1, 2, 5, 8, 16, 17, 31, 33, 64, 67}) {
    for (const size_t keys : {1, 3, 4, 7, 16, 33}) {
      const Head head = some_head(random, n, keys, random.below(2) == 0);
      const auto want = rule(head);
      for (const auto* table : tables()) {
        const auto got = run(random, table, head);
        CHECK(same(got.y, want.y) && same(got.state, want.state));
      }
    }
  }
}

TEST("ssm: within the derived error of the exact recurrence") {
  Random random(77);
  for (const size_t keys : {1, 3, 16, 41, 128, 256}) {
    const Head h = some_head(random, 1 + random.below(64), keys, false);
    // Beside the exact state runs a bound of its error, to first order. A sum of as many fma as there are keys, and one
    // for D, rounds at most as many times, none above Σ|term|.
    std::vector<double> S(h.state.begin(), h.state.end()), E(keys * h.n, 0.0), y(h.tokens * h.n), y_bound(y.size());
    for (size_t t = 0; t < h.tokens; ++t) {
      const double dt = h.dt[t * h.heads], w = h.w[t * h.heads];
      for (size_t i = 0; i < h.n; ++i) {
        const double x = h.x[t * h.stride + i];
        double size = std::abs(x * h.skip);
        y[t * h.n + i] = x * h.skip;
        for (size_t j = 0; j < keys; ++j) {
          double &s = S[j * h.n + i], &e = E[j * h.n + i];
          const double learned = x * dt * h.b[t * h.key_stride + j], c = h.c[t * h.key_stride + j];
          s = s * w + learned;
          // Two products and the fma round.
          e = e * w + unit * (2 * std::abs(learned) + std::abs(s));
          y[t * h.n + i] += s * c;
          y_bound[t * h.n + i] += e * std::abs(c);
          size += std::abs(s * c);
        }
        y_bound[t * h.n + i] += static_cast<double>(keys + 1) * unit * size;
      }
    }
    for (const auto* table : tables()) check_within(run(random, table, h), {y, y_bound, S, E});
  }
}

}  // namespace continuo::test::ssm_test
