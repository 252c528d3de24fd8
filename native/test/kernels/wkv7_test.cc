#include <array>

#include "test/kernels/recurrences.h"

namespace continuo::test::wkv7_test {

namespace {

// One head of n value channels in rows of `stride`, and of some key channels, over some tokens.
struct Head {
  size_t keys, n, key_stride, stride, tokens;
  std::vector<float> r, w, k, kk, a;  // [tokens][key_stride]
  std::vector<float> v;               // [tokens][stride]
  std::vector<float> state;           // [keys][n]
};

Head some_head(Random& random, size_t keys, size_t n, bool wild) {
  Head head{keys, n, keys + random.below(20), n + random.below(20), 1 + random.below(6), {}, {}, {}, {}, {}, {}, {}};
  const size_t floats = head.tokens * head.key_stride;
  const auto values = [&](size_t count, float low, float high) {
    return wild ? every_kind(random, count) : random.floats(count, low, high);
  };
  head.r = values(floats, -1, 1);
  head.w = values(floats, 0.55f, 1);
  head.k = values(floats, -1, 1);
  head.v = values(head.tokens * head.stride, -1, 1);
  head.a = values(floats, 0, 1);
  head.state = values(keys * n, -1, 1);
  head.kk = head.k;
  if (wild) return head;
  for (size_t t = 0; t < head.tokens; ++t) {
    double square = 0;
    const size_t at = t * head.key_stride;
    for (size_t j = 0; j < keys; ++j) square += double{head.k[at + j]} * head.k[at + j];
    for (size_t j = 0; j < keys; ++j) head.kk[at + j] = static_cast<float>(head.k[at + j] / std::sqrt(square));
  }
  return head;
}

// The rule of wkv7.h, one number at a time.
Outcome rule(const Head& h) {
  Outcome out{std::vector<float>(h.tokens * h.n), h.state};
  for (size_t t = 0; t < h.tokens; ++t) {
    const size_t at = t * h.key_stride;
    for (size_t i = 0; i < h.n; ++i) {
      const float v = h.v[t * h.stride + i];
      float removed = 0, read = 0;
      for (size_t j = 0; j < h.keys; ++j) removed = std::fma(out.state[j * h.n + i], h.kk[at + j], removed);
      for (size_t j = 0; j < h.keys; ++j) {
        float& s = out.state[j * h.n + i];
        s = std::fma(removed, -(h.kk[at + j] * h.a[at + j]), std::fma(s, h.w[at + j], v * h.k[at + j]));
        read = std::fma(s, h.r[at + j], read);
      }
      out.y[t * h.n + i] = read;
    }
  }
  return out;
}

// On slices that start anywhere.
Outcome run(Random& random, const Kernels* table, const Head& h) {
  const auto slice = [&](const std::vector<float>& values) { return Slice(values, random.below(17)); };
  Slice r = slice(h.r), w = slice(h.w), k = slice(h.k), v = slice(h.v), kk = slice(h.kk), a = slice(h.a);
  return in_parts(random, h, [&](float* state, float* y, size_t t, size_t tokens, size_t lane, size_t end) {
    const size_t at = t * h.key_stride;
    const Wkv7Run job{state,
                      r.data() + at,
                      w.data() + at,
                      k.data() + at,
                      v.data() + t * h.stride,
                      kk.data() + at,
                      a.data() + at,
                      y,
                      h.n,
                      h.keys,
                      h.stride,
                      h.key_stride,
                      tokens};
    table->wkv7(job, lane, end);
  });
}

// Every table against the rule.
void check_head(Random& random, size_t keys, size_t n) {
  for (const bool wild : {false, true}) {
    const Head head = some_head(random, keys, n, wild);
    const auto want = rule(head);
    for (const auto* table : tables()) {
      const auto got = run(random, table, head);
      CHECK(same(got.y, want.y) && same(got.state, want.state));
    }
  }
}

}  // namespace

TEST(
    "wkv7: every table gives the bits of the written rule, for any size, alignment, cut of tokens, split of lanes and "
    "kind of number") {
  Random random(71);
  for (const size_t n : {1, 2, 5, 7, 8, 13, 16, 17, 31, 32, 33, 40, 64, 67}) check_head(random, n, n);
}

TEST("wkv7: the same of states that are not square, for more keys than values and fewer") {
  Random random(73);
  for (const size_t keys : {1, 3, 9, 32, 41, 64, 128, 256}) {
    for (const size_t n : {1, 2, 17, 33, 64, 100, 129}) check_head(random, keys, n);
  }
}

TEST("wkv7: within the derived error of the exact recurrence") {
  Random random(72);
  constexpr std::array<size_t, 2> sizes[] = {{1, 1},     {3, 3},     {16, 16},  {41, 41}, {64, 64},
                                             {128, 128}, {256, 256}, {256, 33}, {7, 90}};
  for (const auto [keys, n] : sizes) {
    const Head h = some_head(random, keys, n, false);
    // Beside the exact state runs a bound of its error, to first order: what every operation rounds and what it passes
    // on. A sum of some fma rounds at most as many times, none above Σ|term|.
    std::vector<double> S(h.state.begin(), h.state.end()), E(keys * n, 0.0), y(h.tokens * n), y_bound(h.tokens * n);
    const double sum = static_cast<double>(keys) * unit;
    for (size_t t = 0; t < h.tokens; ++t) {
      const size_t at = t * h.key_stride;
      for (size_t i = 0; i < n; ++i) {
        double removed = 0, removed_bound = 0;
        for (size_t j = 0; j < keys; ++j) {
          const double kk = h.kk[at + j];
          removed += S[j * n + i] * kk;
          removed_bound += E[j * n + i] * std::abs(kk) + sum * std::abs(S[j * n + i] * kk);
        }
        double& read = y[t * n + i];
        for (size_t j = 0; j < keys; ++j) {
          double &s = S[j * n + i], &e = E[j * n + i];
          const double w = h.w[at + j], learned = double{h.v[t * h.stride + i]} * h.k[at + j],
                       share = double{h.kk[at + j]} * h.a[at + j], faded = s * w + learned;
          s = faded - removed * share;
          // v·k and kk·a are rounded, then either fma.
          e = e * w + unit * (std::abs(learned) + std::abs(removed * share) + std::abs(faded) + std::abs(s)) +
              removed_bound * std::abs(share);
          read += s * h.r[at + j];
          y_bound[t * n + i] += (e + sum * std::abs(s)) * std::abs(h.r[at + j]);
        }
      }
    }
    for (const auto* table : tables()) check_within(run(random, table, h), {y, y_bound, S, E});
  }
}

}  // namespace continuo::test::wkv7_test
