#include "test/kernel_inputs.h"
#include "test/reference.h"

using namespace continuo;
using namespace continuo::test;

namespace {

// A row of keys and values: positions [first, last) in a ring of `slots`.
struct Part {
  size_t stride, first, last, slots;
  std::vector<float> q, keys, values;
};
struct Query {
  size_t channels;
  float scale;
  std::vector<Part> parts;
};

Part some_part(Random& random, size_t channels, bool wild) {
  Part part{channels + random.below(9), 0, 0, 0, {}, {}, {}};
  const size_t seen = 1 + random.below(random.below(3) ? 40 : 600);
  // Rings as long as what is seen, and longer; positions far behind the first ones.
  part.slots = seen + random.below(40) * random.below(2);
  part.first = random.below(2) ? random.below(700) : (size_t{1} << 45) + random.below(700);
  part.last = part.first + seen;
  const auto values = [&](size_t count) { return wild ? every_kind(random, count) : random.floats(count, -2, 2); };
  part.q = values(channels), part.keys = values(part.slots * part.stride),
  part.values = values(part.slots * part.stride);
  return part;
}

Query some_query(Random& random, size_t channels, size_t parts, bool wild) {
  Query query{channels, 1 / std::sqrt(static_cast<float>(channels)), {}};
  for (size_t i = 0; i < parts; ++i) query.parts.push_back(some_part(random, channels, wild));
  return query;
}

// The rule of attend.h, one number at a time.
std::vector<float> rule(const Query& query) {
  std::vector<float> y(query.channels);
  float m = 0, total = 0;
  bool begun = false;
  for (const auto& part : query.parts) {
    for (size_t first = part.first; first < part.last;) {
      const size_t last = std::min(part.last, (first / 256 + 1) * 256);
      const auto at = [&](size_t p) { return p % part.slots * part.stride; };
      std::vector<float> scores;
      float most = m;
      for (size_t p = first; p < last; ++p) {
        scores.push_back(query.scale * ordered_sum(query.channels, [&](float acc, size_t i) {
                           return std::fma(part.q[i], part.keys[at(p) + i], acc);
                         }));
        if ((!begun && p == first) || scores.back() > most) most = scores.back();
      }
      const float carry = begun ? reference::exp(m - most) : 0.0f;
      float partial[16] = {};
      for (size_t p = first; p < last; ++p) {
        scores[p - first] = reference::exp(scores[p - first] - most);
        partial[p % 16] += scores[p - first];
      }
      for (const size_t half : {8, 4, 2, 1}) {
        for (size_t lane = 0; lane < half; ++lane) partial[lane] += partial[lane + half];
      }
      total = total * carry + partial[0];
      for (size_t i = 0; i < query.channels; ++i) {
        float sum = 0;
        for (size_t p = first; p < last; ++p) sum = std::fma(scores[p - first], part.values[at(p) + i], sum);
        y[i] = (begun ? y[i] * carry : 0.0f) + sum;
      }
      m = most, begun = true, first = last;
    }
  }
  for (auto& each : y) each /= total;
  return y;
}

std::vector<float> run(Random& random, const Kernels* table, const Query& query) {
  std::vector<Slice> held;
  AttendRun job{{}, query.parts.size(), nullptr, query.channels, query.scale};
  for (const auto& part : query.parts) {
    for (const auto* each : {&part.q, &part.keys, &part.values}) held.emplace_back(*each, random.below(17));
  }
  for (size_t i = 0; i < query.parts.size(); ++i) {
    const auto& part = query.parts[i];
    job.parts[i] = {
        held[3 * i].data(), held[3 * i + 1].data(), held[3 * i + 2].data(), part.stride, part.first, part.last,
        part.slots};
  }
  // The old content of y must not matter.
  Slice y(std::vector<float>(query.channels, NAN), random.below(17));
  job.y = y.data();
  table->attend(job);
  CHECK(y.fences_stand());
  return y.values();
}

}  // namespace

TEST(
    "attend: every table gives the bits of the written rule, for any size, number of parts, place in a ring, alignment "
    "and kind of number") {
  Random random(91);
  for (const size_t channels : {1, 2, 5, 7, 16, 17, 33, 64, 67, 128}) {
    for (size_t parts = 1; parts <= 3; ++parts) {
      for (const bool wild : {false, false, true}) {
        const Query query = some_query(random, channels, parts, wild);
        const auto want = rule(query);
        for (const auto* table : tables()) CHECK(same(run(random, table, query), want));
      }
    }
  }
}

TEST("attend: several parts are the softmax over all their positions, to rounding") {
  Random random(92);
  for (const size_t channels : {2, 16, 33, 64}) {
    for (size_t parts = 1; parts <= 3; ++parts) {
      const Query query = some_query(random, channels, parts, false);
      double most = -INFINITY, total = 0;
      const auto score = [&](const Part& part, size_t p) {
        double dot = 0;
        for (size_t i = 0; i < channels; ++i) dot += double{part.q[i]} * part.keys[p % part.slots * part.stride + i];
        return dot * query.scale;
      };
      for (const auto& part : query.parts)
        for (size_t p = part.first; p < part.last; ++p) most = std::max(most, score(part, p));
      std::vector<double> want(channels);
      for (const auto& part : query.parts) {
        for (size_t p = part.first; p < part.last; ++p) {
          const double weight = std::exp(score(part, p) - most);
          total += weight;
          for (size_t i = 0; i < channels; ++i) want[i] += weight * part.values[p % part.slots * part.stride + i];
        }
      }
      // A score is below 4·√channels and errs by sum_error of that; weights err by as much relatively, sums over at
      // most 1800 positions by 256 roundings and the joins. Values are below 2.
      const double bound = 2 * (8 * std::sqrt(static_cast<double>(channels)) * sum_error(channels) + 600 * unit);
      for (const auto* table : tables()) {
        const auto got = run(random, table, query);
        for (size_t i = 0; i < channels; ++i) CHECK(std::abs(got[i] - want[i] / total) < bound);
      }
    }
  }
}
