// The kernels that the perspective family adds, against the rules of kernels/pdr.h, one number at a time.
#include "test/kernels/recurrences.h"

namespace continuo::test::pdr_test {

namespace {

// A state of some keys and n channels over some tokens.
struct Head {
  size_t n, keys, tokens, stride;  // stride: n
  bool convex;
  std::vector<float> gamma, v;  // [tokens][n]
  std::vector<float> k, q;      // [tokens][keys]
  std::vector<float> state;     // [keys][n]
};

Head some_head(Random& random, size_t n, size_t keys, bool wild) {
  Head h{n, keys, 1 + random.below(6), n, random.below(2) == 0, {}, {}, {}, {}, {}};
  const auto values = [&](size_t count, float low, float high) {
    return wild ? every_kind(random, count) : random.floats(count, low, high);
  };
  h.gamma = values(h.tokens * n, 0, 1);
  h.v = values(h.tokens * n, -2, 2);
  h.k = values(h.tokens * keys, -1, 1);
  h.q = values(h.tokens * keys, -1, 1);
  h.state = values(keys * n, -1, 1);
  return h;
}

Outcome rule(const Head& h) {
  Outcome out{std::vector<float>(h.tokens * h.n), h.state};
  for (size_t t = 0; t < h.tokens; ++t) {
    for (size_t a = 0; a < h.n; ++a) {
      const float gamma = h.gamma[t * h.n + a], v = h.v[t * h.n + a], u = h.convex ? (1.0f - gamma) * v : v;
      float sum = 0;
      for (size_t b = 0; b < h.keys; ++b) {
        float& s = out.state[b * h.n + a];
        s = std::fma(gamma, s, h.k[t * h.keys + b] * u);
        sum = std::fma(s, h.q[t * h.keys + b], sum);
      }
      out.y[t * h.n + a] = sum;
    }
  }
  return out;
}

Outcome run(Random& random, const Kernels* table, const Head& h) {
  const auto slice = [&](const std::vector<float>& values) { return Slice(values, random.below(17)); };
  Slice gamma = slice(h.gamma), v = slice(h.v), k = slice(h.k), q = slice(h.q);
  return in_parts(random, h, [&](float* state, float* y, size_t t, size_t tokens, size_t lane, size_t end) {
    const PdrRun job{state,
                     gamma.data() + t * h.n,
                     v.data() + t * h.n,
                     k.data() + t * h.keys,
                     q.data() + t * h.keys,
                     y,
                     h.n,
                     h.keys,
                     tokens,
                     h.convex};
    table->pdr(job, lane, end);
  });
}

// z less the largest whole number that is not above it; a tiny negative z may give 1.
float frac(float z) { return std::isfinite(z) ? z - std::floor(z) : NAN; }

float torus_distance(const float* z, const float* position, const float* offset) {
  float delta[2];
  for (size_t axis = 0; axis < 2; ++axis) {
    const float apart = std::abs(frac(offset ? position[axis] + offset[axis] : position[axis]) - frac(z[axis]));
    delta[axis] = std::isnan(apart) ? apart : std::min(apart, 1.0f - apart);
  }
  return std::fma(delta[1], delta[1], delta[0] * delta[0]);
}

// Points inside and outside of the torus, on its seam and next to it.
std::vector<float> points(Random& random, size_t count, bool wild) {
  constexpr float edges[] = {0.0f,      -0.0f,     1.0f,       -1.0f, 0x1.fffffep-1f,
                             -0x1p-30f, 0x1p-149f, -0x1p-149f, 0.5f,  8388607.5f};
  auto out = wild ? every_kind(random, count) : random.floats(count, -3, 3);
  for (auto& point : out) {
    if (random.below(6) == 0) point = edges[random.below(std::size(edges))];
  }
  return out;
}

}  // namespace

TEST(
    "pdr: every table gives the bits of the written rule, for any size, alignment, cut of tokens, split of lanes and "
    "kind of number") {
  Random random(401);
  for (const size_t n : {1, 2, 5, 8, 16, 17, 31, 33, 64, 67, 129}) {
    for (const size_t keys : {1, 3, 7, 8, 9, 16, 33, 300}) {
      const Head head = some_head(random, n, keys, random.below(3) == 0);
      const auto want = rule(head);
      for (const auto* table : tables()) {
        const auto got = run(random, table, head);
        CHECK(same(got.y, want.y) && same(got.state, want.state));
      }
    }
  }
}

TEST("pdr: within the derived error of the exact recurrence") {
  Random random(402);
  for (const size_t keys : {1, 8, 41, 256}) {
    const Head h = some_head(random, 1 + random.below(64), keys, false);
    // Beside the exact state runs a bound of its error, to first order.
    std::vector<double> S(h.state.begin(), h.state.end()), E(keys * h.n, 0.0), y(h.tokens * h.n), y_bound(y.size());
    for (size_t t = 0; t < h.tokens; ++t) {
      for (size_t a = 0; a < h.n; ++a) {
        const double gamma = h.gamma[t * h.n + a], v = h.v[t * h.n + a], u = h.convex ? (1 - gamma) * v : v;
        double size = 0;
        for (size_t b = 0; b < keys; ++b) {
          double &s = S[b * h.n + a], &e = E[b * h.n + a];
          const double written = h.k[t * keys + b] * u, q = h.q[t * keys + b];
          s = gamma * s + written;
          // 1 − γ, its product with v, that with k, and the fma round.
          e = gamma * e + unit * (3 * std::abs(written) + std::abs(s));
          y[t * h.n + a] += s * q;
          y_bound[t * h.n + a] += e * std::abs(q);
          size += std::abs(s * q);
        }
        y_bound[t * h.n + a] += static_cast<double>(keys) * unit * size;
      }
    }
    for (const auto* table : tables()) check_within(run(random, table, h), {y, y_bound, S, E});
  }
}

TEST("recall_keys: reads what pdr has read of the state that it left, bit for bit") {
  Random random(403);
  for (const size_t n : {1, 3, 8, 17, 64, 67}) {
    for (const size_t keys : {1, 5, 8, 13, 67, 300}) {
      const Head h = some_head(random, n, keys, random.below(3) == 0);
      const auto want = rule(h);
      for (const auto* table : tables()) {
        Slice S(want.state, random.below(17)), y(n, random.below(17));
        Slice q({h.q.end() - static_cast<ptrdiff_t>(keys), h.q.end()}, random.below(17));
        table->recall_keys(S.data(), q.data(), y.data(), keys, n);
        CHECK(y.fences_stand());
        CHECK(same(y.values(), {want.y.end() - static_cast<ptrdiff_t>(n), want.y.end()}));
        // Of as many keys as channels the engine takes the kernel of square memories; it has the same bits.
        if (keys != n) continue;
        table->recall(S.data(), q.data(), y.data(), 1, n, n);
        CHECK(same(y.values(), {want.y.end() - static_cast<ptrdiff_t>(n), want.y.end()}));
      }
    }
  }
}

TEST("torus: every table gives the bits of the written rule, with offsets and without, on the seam and far outside") {
  Random random(404);
  for (int round = 0; round < 200; ++round) {
    const bool wild = round % 4 == 0;
    const size_t experts = some_length(random);
    const auto z = points(random, 2, wild), offsets = points(random, 2 * experts, wild);
    auto positions = random.floats(2 * experts, 0, 0x1.fffffep-1f);
    for (auto& position : positions) {
      if (random.below(8) == 0) position = random.below(2) ? 0.0f : 0x1.fffffep-1f;
    }
    for (const auto* table : tables()) {
      for (const bool moved : {false, true}) {
        Slice at(z, random.below(17)), of(positions, random.below(17)), by(offsets, random.below(17));
        Slice d(experts, random.below(17));
        table->torus(at.data(), of.data(), moved ? by.data() : nullptr, d.data(), experts);
        CHECK(d.fences_stand());
        const auto got = d.values();
        for (size_t i = 0; i < experts; ++i) {
          CHECK(same(got[i], torus_distance(z.data(), &positions[2 * i], moved ? &offsets[2 * i] : nullptr)));
          CHECK(std::isnan(got[i]) || (got[i] >= 0 && got[i] <= 0.5f));
        }
      }
    }
  }
}

TEST("torus: the point that rounds to 1 is the point 0") {
  for (const auto* table : tables()) {
    const float seam[2] = {-0x1p-40f, 1.0f}, zero[2] = {0, 0}, positions[6] = {0, 0, 0.25f, 0.5f, 0.9f, 0.1f};
    float on_seam[3], at_zero[3];
    table->torus(seam, positions, nullptr, on_seam, 3);
    table->torus(zero, positions, nullptr, at_zero, 3);
    for (size_t i = 0; i < 3; ++i) CHECK(std::abs(on_seam[i] - at_zero[i]) < 1e-7f);
    CHECK(on_seam[0] == 0);
  }
}

TEST("axpy: every table gives fma(factor, x, y)") {
  Random random(405);
  for (int round = 0; round < 60; ++round) {
    const size_t n = some_length(random);
    const auto x = every_kind(random, n), y = every_kind(random, n);
    const float factor = every_kind(random, 1)[0];
    for (const auto* table : tables()) {
      Slice in(x, random.below(17)), out(y, random.below(17));
      table->axpy(factor, in.data(), out.data(), n);
      CHECK(out.fences_stand());
      const auto got = out.values();
      for (size_t i = 0; i < n; ++i) CHECK(same(got[i], std::fma(factor, x[i], y[i])));
    }
  }
}

TEST("whole: every table rounds to the nearest by one scale, ties to even; to 0 where there is no scale") {
  Random random(406);
  for (int round = 0; round < 200; ++round) {
    const size_t n = some_length(random);
    auto x = round % 3 == 0 ? every_kind(random, n) : random.floats(n, -5, 5);
    if (round % 3 == 1) {
      // The scale is 1 or 2, and most quotients are ties.
      for (auto& value : x) value = std::floor(value * 20) + 0.5f;
      x[random.below(n)] = random.below(2) ? -127.0f : 127.0f;
    }
    if (round % 10 == 7) std::fill(x.begin(), x.end(), random.below(2) ? 0.0f : -0.0f);
    if (round % 10 == 8) x[random.below(n)] = random.below(2) ? NAN : INFINITY;
    float most = 0;
    bool finite = true;
    for (const float value : x) {
      most = std::max(most, std::abs(value));
      finite = finite && std::isfinite(value);
    }
    const float s = most / 127.0f;
    for (const auto* table : tables()) {
      Slice in(x, random.below(17));
      const size_t offset = random.below(67);
      std::vector<int8_t> out(offset + n + 64, 99);
      table->whole(in.data(), out.data() + offset, n);
      for (size_t i = 0; i < n; ++i) {
        const float q = finite && s > 0 ? std::clamp(std::nearbyint(x[i] / s), -127.0f, 127.0f) : 0.0f;
        CHECK(out[offset + i] == static_cast<int8_t>(q));
      }
      const auto stands = [](int8_t byte) { return byte == 99; };
      CHECK(std::all_of(out.begin(), out.begin() + static_cast<ptrdiff_t>(offset), stands));
      CHECK(std::all_of(out.end() - 64, out.end(), stands));
    }
  }
}

}  // namespace continuo::test::pdr_test
