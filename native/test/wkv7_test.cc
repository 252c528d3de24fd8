#include "test/recurrences.h"

namespace continuo::test::wkv7_test {

namespace {

// One head of n channels in rows of `stride`, over some tokens.
struct Head {
  size_t n, stride, tokens;
  std::vector<float> r, w, k, v, kk, a;  // [tokens][stride]
  std::vector<float> state;              // [n][n]
};

Head some_head(Random& random, size_t n, bool wild) {
  Head head{n, n + random.below(20), 1 + random.below(6), {}, {}, {}, {}, {}, {}, {}};
  const size_t floats = head.tokens * head.stride;
  const auto values = [&](size_t count, float low, float high) {
    return wild ? every_kind(random, count) : random.floats(count, low, high);
  };
  head.r = values(floats, -1, 1);
  head.w = values(floats, 0.55f, 1);
  head.k = values(floats, -1, 1);
  head.v = values(floats, -1, 1);
  head.a = values(floats, 0, 1);
  head.state = values(n * n, -1, 1);
  head.kk = head.k;
  if (wild) return head;
  for (size_t t = 0; t < head.tokens; ++t) {
    double square = 0;
    for (size_t j = 0; j < n; ++j) square += double{head.k[t * head.stride + j]} * head.k[t * head.stride + j];
    for (size_t j = 0; j < n; ++j)
      head.kk[t * head.stride + j] = static_cast<float>(head.k[t * head.stride + j] / std::sqrt(square));
  }
  return head;
}

// The rule of wkv7.h, one number at a time.
Outcome rule(const Head& h) {
  Outcome out{std::vector<float>(h.tokens * h.n), h.state};
  for (size_t t = 0; t < h.tokens; ++t) {
    const size_t at = t * h.stride;
    for (size_t i = 0; i < h.n; ++i) {
      float removed = 0, read = 0;
      for (size_t j = 0; j < h.n; ++j) removed = std::fma(out.state[j * h.n + i], h.kk[at + j], removed);
      for (size_t j = 0; j < h.n; ++j) {
        float& s = out.state[j * h.n + i];
        s = std::fma(removed, -(h.kk[at + j] * h.a[at + j]), std::fma(s, h.w[at + j], h.v[at + i] * h.k[at + j]));
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
    const size_t at = t * h.stride;
    const Wkv7Run job{state, r.data() + at, w.data() + at, k.data() + at, v.data() + at, kk.data() + at, a.data() + at,
                      y,     h.n,           h.stride,      tokens};
    table->wkv7(job, lane, end);
  });
}

}  // namespace

TEST(
    "wkv7: every table gives the bits of the written rule, for any size, alignment, cut of tokens, split of lanes and "
    "kind of number") {
  Random random(71);
  for (const size_t n : {1, 2, 5, 7, 8, 13, 16, 17, 31, 32, 33, 40, 64, 67}) {
    for (const bool wild : {false, true}) {
      const Head head = some_head(random, n, wild);
      const auto want = rule(head);
      for (const auto* table : tables()) {
        const auto got = run(random, table, head);
        CHECK(same(got.y, want.y) && same(got.state, want.state));
      }
    }
  }
}

TEST("wkv7: within the derived error of the exact recurrence") {
  Random random(72);
  for (const size_t n : {1, 3, 16, 41, 64, 128, 256}) {
    const Head h = some_head(random, n, false);
    // Beside the exact state runs a bound of its error, to first order: what every operation rounds and what it passes
    // on. A sum of n fma rounds at most n times, none above Σ|term|.
    std::vector<double> S(h.state.begin(), h.state.end()), E(n * n, 0.0), y(h.tokens * n), y_bound(h.tokens * n);
    const double sum = static_cast<double>(n) * unit;
    for (size_t t = 0; t < h.tokens; ++t) {
      const size_t at = t * h.stride;
      for (size_t i = 0; i < n; ++i) {
        double removed = 0, removed_bound = 0;
        for (size_t j = 0; j < n; ++j) {
          const double kk = h.kk[at + j];
          removed += S[j * n + i] * kk;
          removed_bound += E[j * n + i] * std::abs(kk) + sum * std::abs(S[j * n + i] * kk);
        }
        double& read = y[t * n + i];
        for (size_t j = 0; j < n; ++j) {
          double &s = S[j * n + i], &e = E[j * n + i];
          const double w = h.w[at + j], learned = double{h.v[at + i]} * h.k[at + j],
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
