#include "test/kernel_inputs.h"
#include "test/kernels/reference.h"

namespace continuo::test::memory_test {

namespace {

constexpr Rule rules[] = {Rule::titans, Rule::delta, Rule::hebbian};
constexpr Retention retentions[] = {Retention::none, Retention::l2, Retention::elastic, Retention::kl,
                                    Retention::sphere};

// One level of one head of n channels over some tokens, in rows of `stride` and `gates`.
struct Learner {
  MemoryForm form;
  size_t n, stride, gates, tokens;
  uint64_t clock, period;
  float mix;
  std::vector<float> q, k, v, y;         // [tokens][stride]; y as it stands before
  std::vector<float> theta, eta, alpha;  // [tokens][gates]
  std::vector<float> M, S, G;            // [key][value]
  bool begin;
};

Learner some_learner(Random& random, Rule how, Retention retention, size_t n, bool wild) {
  Learner c{};
  c.form = {how, retention, 0, 0, 1, 1, 0};
  const bool capped = retention != Retention::kl && retention != Retention::sphere && random.below(2);
  if (capped) c.form.norm_max = random.uniform(0.3f, 2);
  if (retention == Retention::elastic)
    c.form.elastic_l1 = random.uniform(0, 0.3f), c.form.elastic_l2 = random.uniform(0.3f, 1);
  if (retention == Retention::sphere) c.form.radius = random.uniform(0.5f, 3);
  if (retention == Retention::kl) c.form.floor = random.below(2) ? 1e-12f : 0.01f;
  c.n = n, c.stride = n + random.below(20), c.gates = 1 + random.below(5), c.tokens = 1 + random.below(9);
  c.period = 1 + random.below(5);
  // Also past what a float or 32 bits could count.
  c.clock = random.below(2) ? random.below(100) : (uint64_t{1} << 45) + random.below(100);
  c.mix = random.uniform(0, 1), c.begin = random.below(2) == 0;
  const auto values = [&](size_t count, float low, float high) {
    return wild ? every_kind(random, count) : random.floats(count, low, high);
  };
  const float length = 1.7f / std::sqrt(static_cast<float>(n));
  c.q = values(c.tokens * c.stride, -length, length), c.k = values(c.tokens * c.stride, -length, length),
  c.v = values(c.tokens * c.stride, -1, 1);
  c.y = values(c.tokens * c.stride, -1, 1);
  for (auto* gate : {&c.theta, &c.eta, &c.alpha}) *gate = values(c.tokens * c.gates, 0, 1);
  c.M = retention == Retention::kl ? values(n * n, 0, 1) : values(n * n, -1, 1);
  c.S = values(n * n, -0.3f, 0.3f), c.G = values(n * n, -0.3f, 0.3f);
  return c;
}

struct Outcome {
  std::vector<float> y, M, S, G;  // y [tokens][n]
};

float norm_of(const std::vector<float>& M) {
  return std::sqrt(ordered_sum(M.size(), [&](float acc, size_t i) { return std::fma(M[i], M[i], acc); }) + 1e-12f);
}

void scale(std::vector<float>& M, float by) {
  for (auto& m : M) m *= by;
}

void softmax_columns(std::vector<float>& M, size_t n) {
  for (size_t a = 0; a < n; ++a) {
    float most = M[a], sum = 0;
    for (size_t b = 1; b < n; ++b) most = M[b * n + a] > most ? M[b * n + a] : most;
    for (size_t b = 0; b < n; ++b) sum += M[b * n + a] = reference::exp(M[b * n + a] - most);
    for (size_t b = 0; b < n; ++b) M[b * n + a] /= sum;
  }
}

float kept(const MemoryForm& form, float m, float u, float alpha) {
  switch (form.retention) {
    case Retention::l2: return std::fma(1.0f - alpha, m, u);
    case Retention::elastic: {
      const float x = std::fma(1.0f - alpha * form.elastic_l2, m, u), cut = alpha * form.elastic_l1;
      if (x - cut > 0) return x - cut;
      return x + cut < 0 ? x + cut : 0.0f;
    }
    case Retention::kl: return std::fma(1.0f - alpha, reference::log(m > form.floor ? m : form.floor), u);
    default: return m + u;
  }
}

// The rule of memory.h, one number at a time.
Outcome rule(const Learner& c) {
  const size_t n = c.n;
  Outcome out{{}, c.M, c.S, c.G};
  for (size_t t = 0; t < c.tokens; ++t) {
    const float *q = &c.q[t * c.stride], *k = &c.k[t * c.stride], *v = &c.v[t * c.stride];
    const float theta = c.theta[t * c.gates], eta = c.eta[t * c.gates], alpha = c.alpha[t * c.gates];
    std::vector<float> s(n);
    for (size_t a = 0; a < n; ++a) {
      float p = 0;
      for (size_t b = 0; b < n && c.form.rule != Rule::hebbian; ++b) p = std::fma(out.M[b * n + a], k[b], p);
      s[a] = theta * (p - v[a]);
    }
    const bool fires = (c.clock + t) % c.period == 0;
    for (size_t i = 0; i < n * n; ++i) {
      const float s_a = s[i % n], k_b = k[i / n];
      if (!fires) {
        out.G[i] = std::fma(s_a, k_b, out.G[i]);
        continue;
      }
      float g = s_a * k_b;
      if (c.period > 1) g = std::fma(s_a, k_b, out.G[i]) / static_cast<float>(c.period), out.G[i] = 0;
      float u = -g;
      if (c.form.rule == Rule::titans) u = out.S[i] = std::fma(eta, out.S[i], -((1.0f - eta) * g));
      out.M[i] = kept(c.form, out.M[i], u, alpha);
    }
    if (fires) {
      if (c.form.retention == Retention::kl) softmax_columns(out.M, n);
      if (c.form.retention == Retention::sphere) scale(out.M, c.form.radius / norm_of(out.M));
      const float norm = norm_of(out.M);
      if (c.form.norm_max > 0 && norm > c.form.norm_max) scale(out.M, c.form.norm_max / norm);
    }
    for (size_t a = 0; a < n; ++a) {
      float r = 0;
      for (size_t b = 0; b < n; ++b) r = std::fma(out.M[b * n + a], q[b], r);
      out.y.push_back(std::fma(c.mix, r, c.begin ? 0.0f : c.y[t * c.stride + a]));
    }
  }
  return out;
}

// Runs the tokens in pieces of `cut`, on slices that start anywhere.
Outcome run(Random& random, const Kernels* table, const Learner& c, size_t cut) {
  const auto slice = [&](const std::vector<float>& values) { return Slice(values, random.below(17)); };
  Slice q = slice(c.q), k = slice(c.k), v = slice(c.v), y = slice(c.y), theta = slice(c.theta), eta = slice(c.eta),
        alpha = slice(c.alpha);
  Slice M = slice(c.M), S = slice(c.S), G = slice(c.G);
  for (size_t t = 0; t < c.tokens; t += cut) {
    const size_t at = t * c.stride, gate = t * c.gates;
    MemoryRun job{};
    job.M = M.data();
    if (c.form.rule == Rule::titans) job.S = S.data(), job.eta = eta.data() + gate;
    if (c.period > 1) job.G = G.data();
    if (c.form.retains()) job.alpha = alpha.data() + gate;
    job.q = q.data() + at, job.k = k.data() + at, job.v = v.data() + at, job.y = y.data() + at,
    job.theta = theta.data() + gate;
    job.channels = c.n, job.stride = c.stride, job.gates = c.gates, job.tokens = std::min(cut, c.tokens - t);
    job.clock = c.clock + t, job.period = c.period, job.mix = c.mix, job.begin = c.begin;
    table->memory(c.form, job);
  }
  CHECK(y.fences_stand() && M.fences_stand() && S.fences_stand() && G.fences_stand());
  Outcome out{{}, M.values(), S.values(), G.values()};
  const auto written = y.values();
  for (size_t t = 0; t < c.tokens; ++t) {
    const auto row = written.begin() + static_cast<ptrdiff_t>(t * c.stride);
    out.y.insert(out.y.end(), row, row + static_cast<ptrdiff_t>(c.n));
    // Numbers between the heads' rows belong to other heads and must not change.
    for (size_t i = c.n; i < c.stride && t * c.stride + i < written.size(); ++i)
      CHECK(same(row[static_cast<ptrdiff_t>(i)], c.y[t * c.stride + i]));
  }
  return out;
}

// The equations in double, with M[value][key] as the papers have it.
Outcome exact(const Learner& c) {
  const size_t n = c.n;
  using Matrix = std::vector<double>;
  const auto turned = [n](const std::vector<float>& from) {
    Matrix to(n * n);
    for (size_t a = 0; a < n; ++a)
      for (size_t b = 0; b < n; ++b) to[a * n + b] = from[b * n + a];
    return to;
  };
  Matrix M = turned(c.M), S = turned(c.S), G = turned(c.G);
  const auto norm = [](const Matrix& of) {
    double square = 1e-12;
    for (const double x : of) square += x * x;
    return std::sqrt(square);
  };
  Outcome out;
  for (size_t t = 0; t < c.tokens; ++t) {
    const float *q = &c.q[t * c.stride], *k = &c.k[t * c.stride], *v = &c.v[t * c.stride];
    const double theta = c.theta[t * c.gates], eta = c.eta[t * c.gates], alpha = c.alpha[t * c.gates];
    Matrix g = c.period > 1 ? G : Matrix(n * n, 0.0);
    for (size_t a = 0; a < n; ++a) {
      double error = -double{v[a]};
      if (c.form.rule != Rule::hebbian)
        for (size_t b = 0; b < n; ++b) error += M[a * n + b] * k[b];
      for (size_t b = 0; b < n; ++b) g[a * n + b] += theta * error * k[b];
    }
    if ((c.clock + t) % c.period != 0) {
      G = g;
    } else {
      std::fill(G.begin(), G.end(), 0.0);
      double by = 1;
      for (size_t i = 0; i < n * n; ++i) {
        const double step = g[i] / static_cast<double>(c.period);
        if (c.form.rule == Rule::titans) S[i] = eta * S[i] - (1 - eta) * step;
        const double u = c.form.rule == Rule::titans ? S[i] : -step;
        if (c.form.retention == Retention::l2)
          M[i] = (1 - alpha) * M[i] + u;
        else if (c.form.retention == Retention::kl)
          M[i] = (1 - alpha) * std::log(std::max(M[i], double{c.form.floor})) + u;
        else if (c.form.retention == Retention::elastic) {
          const double x = (1 - alpha * c.form.elastic_l2) * M[i] + u;
          M[i] = std::copysign(std::max(std::abs(x) - alpha * c.form.elastic_l1, 0.0), x);
        } else
          M[i] += u;
      }
      for (size_t a = 0; a < n && c.form.retention == Retention::kl; ++a) {
        double sum = 0;
        for (size_t b = 0; b < n; ++b) sum += std::exp(M[a * n + b]);
        for (size_t b = 0; b < n; ++b) M[a * n + b] = std::exp(M[a * n + b]) / sum;
      }
      if (c.form.retention == Retention::sphere) by = c.form.radius / norm(M);
      if (c.form.norm_max > 0) by = c.form.norm_max / std::max(norm(M), double{c.form.norm_max});
      for (auto& m : M) m *= by;
    }
    for (size_t a = 0; a < n; ++a) {
      double r = 0;
      for (size_t b = 0; b < n; ++b) r += M[a * n + b] * q[b];
      out.y.push_back(static_cast<float>(c.mix * r + (c.begin ? 0 : c.y[t * c.stride + a])));
    }
  }
  const auto back = [n](const Matrix& from) {
    std::vector<float> to(n * n);
    for (size_t a = 0; a < n; ++a)
      for (size_t b = 0; b < n; ++b) to[b * n + a] = static_cast<float>(from[a * n + b]);
    return to;
  };
  out.M = back(M), out.S = back(S), out.G = back(G);
  return out;
}

double farthest(const std::vector<float>& got, const std::vector<float>& want) {
  double most = got.size() == want.size() ? 0 : INFINITY;
  for (size_t i = 0; i < want.size(); ++i)
    most = std::max(most, std::abs(double{got[i]} - want[i]) / std::max(1.0, std::abs(double{want[i]})));
  return most;
}

}  // namespace

TEST(
    "memory: every table gives the bits of the written rule, for every form, any size, alignment, cut of tokens and "
    "kind of number") {
  Random random(81);
  for (const auto how : rules) {
    for (const auto retention : retentions) {
      for (const size_t n : {1, 2, 5, 7, 16, 17, 33, 64, 67}) {
        for (const bool wild : {false, false, true}) {
          const Learner c = some_learner(random, how, retention, n, wild);
          const auto want = rule(c);
          for (const auto* table : tables()) {
            for (const size_t cut : {size_t{1}, 1 + random.below(c.tokens), c.tokens}) {
              const auto got = run(random, table, c, cut);
              CHECK(same(got.y, want.y) && same(got.M, want.M) && same(got.S, want.S) && same(got.G, want.G));
            }
          }
        }
      }
    }
  }
}

TEST("memory: a head of 256 channels, the most there are, has the bits of the written rule") {
  Random random(82);
  for (const auto retention : retentions) {
    Learner c = some_learner(random, Rule::titans, retention, 256, false);
    c.tokens = std::min<size_t>(c.tokens, 3);
    for (const auto* table : tables()) {
      const auto got = run(random, table, c, 2), want = rule(c);
      CHECK(same(got.y, want.y) && same(got.M, want.M) && same(got.S, want.S) && same(got.G, want.G));
    }
  }
}

TEST("memory: rounding moves nothing far from the equations in double") {
  Random random(83);
  for (const auto how : rules) {
    for (const auto retention : retentions) {
      for (const size_t n : {2, 5, 16, 33, 64}) {
        Learner c = some_learner(random, how, retention, n, false);
        // An error grows by at most a factor of 3 a token over the few tokens here; with log and exp of kl it stays
        // below 2⁻²⁴ · 3⁸ · (n + 16).
        const double bound = unit * 400 * static_cast<double>(n + 16);
        const auto want = exact(c);
        for (const auto* table : tables()) {
          const auto got = run(random, table, c, c.tokens);
          CHECK(farthest(got.y, want.y) < bound && farthest(got.M, want.M) < bound);
          if (how == Rule::titans) CHECK(farthest(got.S, want.S) < bound);
          if (c.period > 1) CHECK(farthest(got.G, want.G) < bound);
        }
      }
    }
  }
}

TEST(
    "memory_first, mix, recall and softmax: every table gives the bits of the written rule, for any size, alignment "
    "and kind of number") {
  Random random(84);
  for (const size_t n : {1, 2, 5, 7, 16, 17, 33, 64, 67}) {
    for (const bool wild : {false, true}) {
      const auto values = [&](size_t count) { return wild ? every_kind(random, count) : random.floats(count, -2, 2); };
      const size_t levels = 1 + random.below(4), heads = 1 + random.below(3), rows = 1 + random.below(5),
                   stride = n + random.below(9);
      const auto init = values(n * n), M = values(levels * heads * n * n), logits = values(levels * heads),
                 x = values(rows * stride);

      std::vector<float> shares(levels);
      const size_t head = random.below(heads);
      float most = logits[head], sum = 0;
      for (size_t i = 1; i < levels; ++i) most = logits[i * heads + head] > most ? logits[i * heads + head] : most;
      for (size_t i = 0; i < levels; ++i) sum += shares[i] = reference::exp(logits[i * heads + head] - most);
      for (auto& share : shares) share /= sum;

      std::vector<float> mixed(n * n), read(rows * stride);
      for (size_t i = 0; i < n * n; ++i) {
        for (size_t level = 0; level < levels; ++level)
          mixed[i] = std::fma(shares[level], M[(level * heads + head) * n * n + i], mixed[i]);
      }
      for (size_t row = 0; row < rows; ++row) {
        for (size_t a = 0; a < n; ++a) {
          for (size_t b = 0; b < n; ++b)
            read[row * stride + a] = std::fma(M[b * n + a], x[row * stride + b], read[row * stride + a]);
        }
      }

      for (const auto* table : tables()) {
        Slice in_logits(logits, random.below(17)), in(M, random.below(17)), in_x(x, random.below(17));
        Slice got_shares(levels, random.below(17)), got_mixed(n * n, random.below(17)),
            got_read(std::vector<float>(rows * stride), random.below(17));
        table->softmax(in_logits.data() + head, heads, got_shares.data(), levels);
        table->mix(in.data() + head * n * n, heads * n * n, got_shares.data(), levels, got_mixed.data(), n * n);
        table->recall(in.data(), in_x.data(), got_read.data(), rows, stride, n);
        CHECK(same(got_shares.values(), shares) && same(got_mixed.values(), mixed) && same(got_read.values(), read));
        CHECK(got_shares.fences_stand() && got_mixed.fences_stand() && got_read.fences_stand() && same(in.values(), M));

        for (const auto retention : retentions) {
          const MemoryForm form{Rule::delta, retention, 0, 0, 1, 1.5f, 1e-12f};
          std::vector<float> first(n * n);
          for (size_t i = 0; i < n * n; ++i) first[i] = init[i % n * n + i / n];
          if (retention == Retention::kl) softmax_columns(first, n);
          if (retention == Retention::sphere) scale(first, 1.5f / norm_of(first));
          Slice in_init(init, random.below(17)), got(n * n, random.below(17));
          table->memory_first(form, in_init.data(), got.data(), n);
          CHECK(same(got.values(), first) && got.fences_stand());
        }
        // Nothing given: zeros, which kl spreads evenly.
        Slice empty(n * n, random.below(17)), even(n * n, random.below(17));
        table->memory_first({Rule::delta, Retention::l2, 0, 0, 1, 1, 0}, nullptr, empty.data(), n);
        table->memory_first({Rule::delta, Retention::kl, 0, 0, 1, 1, 1e-12f}, nullptr, even.data(), n);
        CHECK(same(empty.values(), std::vector<float>(n * n)) &&
              same(even.values(), std::vector<float>(n * n, 1.0f / static_cast<float>(n))));
      }
    }
  }
}

}  // namespace continuo::test::memory_test
