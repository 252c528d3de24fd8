#include "base/cast.h"
#include "test/kernel_inputs.h"
#include "test/kernels/reference.h"

namespace continuo::test::attend_test {

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

struct Ruled {
  std::vector<float> y;
  float m, total;
};

float score_of(const Query& query, const Part& part, size_t position) {
  const size_t at = position % part.slots * part.stride;
  return query.scale *
         ordered_sum(query.channels, [&](float acc, size_t i) { return std::fma(part.q[i], part.keys[at + i], acc); });
}

// The rule of attend.h, one number at a time.
Ruled ruled(const Query& query) {
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
        scores.push_back(score_of(query, part, p));
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
  return {std::move(y), m, total};
}

std::vector<float> rule(const Query& query) { return ruled(query).y; }

// Queries of tokens [rows][stride], those of each of `key_heads` heads of keys behind those of the head before; the
// last token sees the whole part. Each by itself, one behind the other.
std::vector<float> rule(const Query& query, const std::vector<float>& queries, size_t rows, size_t key_heads,
                        size_t heads, size_t stride) {
  const size_t channels = query.channels;
  const auto& part = query.parts[0];
  std::vector<float> out;
  Query one = query;
  std::vector<std::vector<float>> keys, values;
  for (size_t head = 0; head < key_heads; ++head) {
    const auto from = static_cast<ptrdiff_t>(head * channels);
    keys.emplace_back(part.keys.begin() + from, part.keys.end());
    values.emplace_back(part.values.begin() + from, part.values.end());
  }
  for (size_t row = 0; row < rows; ++row) {
    for (size_t head = 0; head < key_heads * heads; ++head) {
      const auto* q = &queries[row * stride + head * channels];
      one.parts[0].q.assign(q, q + channels);
      one.parts[0].last = part.last - rows + 1 + row;
      if (head % heads == 0) one.parts[0].keys = keys[head / heads], one.parts[0].values = values[head / heads];
      const auto y = rule(one);
      out.insert(out.end(), y.begin(), y.end());
    }
  }
  return out;
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

TEST("attend_shares: every table gives the weights that attend sums with, and 0 for positions that are not there") {
  Random random(97);
  for (const size_t channels : {1, 7, 16, 33, 64, 128}) {
    for (size_t turn = 0; turn < 12; ++turn) {
      const Query query = some_query(random, channels, 1, turn % 4 == 3);
      const auto& part = query.parts[0];
      const auto rule = ruled(query);
      const size_t first = part.first + random.below(part.last - part.first + 40), count = 1 + random.below(60);
      std::vector<float> want;
      for (size_t p = first; p < first + count; ++p)
        want.push_back(p < part.last ? reference::exp(score_of(query, part, p) - rule.m) / rule.total : 0.0f);
      for (const auto* table : runnable_kernels()) {
        Slice q(part.q, random.below(17)), keys(part.keys, random.below(17));
        const AttendRun job{{{q.data(), keys.data(), nullptr, part.stride, part.first, part.last, part.slots}},
                            1,
                            nullptr,
                            channels,
                            query.scale};
        Slice out(std::vector<float>(count, NAN), random.below(17));
        table->attend_shares(job, first, count, out.data());
        CHECK(out.fences_stand());
        CHECK(same(out.values(), want));
      }
    }
  }
}

// What attend_rows computes, as a series of splits of one to four blocks. The steps take a split's blocks from the last
// one to the first, one or two in a call.
void split(Random& random, const Kernels* table, const AttendRows& run) {
  AttendSplit split{run, run.part.first};
  const size_t most = 1 + random.below(4);
  // Nothing that lies in the scratch before may matter.
  std::vector<float> scratch(split.floats(most), NAN);
  split.lay(scratch.data(), most);
  while (split.first < split.end()) {
    split.blocks = std::min(most, split.blocks_left());
    for (const auto step : {table->split_scores, table->split_values}) {
      for (size_t end = split.blocks; end > 0;) {
        const size_t block = end - std::min<size_t>(end, 1 + random.below(2));
        step(split, block, end);
        end = block;
      }
    }
    for (size_t head = run.key_heads; head > 0; --head) table->split_join(split, head - 1, head);
    split.first = (split.first / block_positions + split.blocks) * block_positions;
  }
}

TEST(
    "attend: consecutive queries of several heads have, at once or by blocks of positions, the bits of each by itself, "
    "for any number of them, heads that share keys, place in a ring and kind of number") {
  Random random(93);
  // Around the numbers of queries that go together, which heads and rows make up.
  constexpr struct {
    size_t rows, key_heads, heads;
  } counts[] = {{1, 1, 1}, {2, 1, 1}, {7, 2, 1}, {31, 1, 1}, {70, 1, 1}, {129, 1, 1}, {1, 2, 3}, {1, 12, 1},
                {1, 3, 8}, {1, 9, 8}, {1, 1, 9}, {3, 3, 2},  {3, 2, 4},  {33, 1, 4},  {2, 1, 65}};
  for (const size_t channels : {1, 5, 16, 33, 64, 67, 256, 272}) {
    for (const auto [rows, key_heads, heads] : counts) {
      // The written rule takes its time.
      if (channels > 67 && rows * key_heads * heads > 40) continue;
      if (left_out(random)) continue;
      const bool wild = random.below(3) == 0;
      Query query = some_query(random, channels, 1, wild);
      auto& part = query.parts[0];
      const size_t every = key_heads * heads * channels, stride = every + random.below(9);
      part.stride = key_heads * channels + random.below(9);
      // The last query sees the whole part: the first one may see one position, or begin anywhere in a block.
      part.slots += rows, part.last += random.below(2) * (rows - 1);
      if (part.last - part.first < rows) part.last = part.first + rows;
      const auto values = [&](size_t count) { return wild ? every_kind(random, count) : random.floats(count, -2, 2); };
      part.keys = values(part.slots * part.stride), part.values = values(part.slots * part.stride);
      const auto queries = values(rows * stride);
      const auto want = rule(query, queries, rows, key_heads, heads, stride);
      for (const auto* table : tables()) {
        Slice q(queries, random.below(17)), keys(part.keys, random.below(17)), v(part.values, random.below(17));
        Slice y(std::vector<float>(rows * stride, NAN), random.below(17));
        const AttendPart first{q.data(),   keys.data(),          v.data(),  part.stride,
                               part.first, part.last - rows + 1, part.slots};
        const AttendRows all{first, y.data(), rows, key_heads, heads, stride, channels, query.scale};
        const auto check = [&] {
          CHECK(y.fences_stand());
          // Between the rows nothing is written.
          std::vector<float> got;
          for (size_t row = 0; row < rows; ++row) {
            const float* of = y.data() + row * stride;
            for (size_t i = every; i < stride; ++i) CHECK(std::isnan(of[i]));
            got.insert(got.end(), of, of + every);
          }
          CHECK(same(got, want));
        };
        table->attend_rows(all);
        check();
        if (!table->split_scores || rows * key_heads * heads > split_queries) continue;
        std::fill_n(y.data(), rows * stride, NAN);
        split(random, table, all);
        check();
      }
    }
  }
}

TEST("attend: narrow keys and values give the bits of their widened ones, in slots and in blocks, one query and many") {
  Random random(94);
  for (const Type type : {Type::f32, Type::f16, Type::bf16}) {
    for (const size_t channels : {1, 5, 16, 33, 64, 100, 256}) {
      for (const size_t rows : {1, 2, 7, 40}) {
        if (left_out(random)) continue;
        const size_t key_heads = 1 + random.below(2), heads = 1 + random.below(3);
        Query query = some_query(random, channels, 1, false);
        auto& part = query.parts[0];
        part.stride = key_heads * channels + random.below(9);
        const bool blocks = random.below(3) > 0, ring = blocks && random.below(2) == 0;
        if (ring) {
          part.slots = 256 * (1 + random.below(3)), part.first = random.below(5000);
          part.last = part.first + rows + random.below(part.slots - rows + 1);
        } else if (blocks) {
          part.first = 0, part.last = rows + random.below(700);
          part.slots = (part.last + 255) / 256 * 256;
        } else {
          part.slots += rows, part.last = std::max(part.last, part.first + rows);
        }
        // Subnormal numbers too.
        const auto narrowed = [&](std::vector<float>& wide) {
          wide = random.floats(part.slots * part.stride, -2, 2);
          std::vector<std::byte> out(wide.size() * size_of(type));
          for (size_t i = 0; i < wide.size(); ++i) {
            if (random.below(9) == 0) wide[i] *= 0x1p-20f;
            write_number(out.data(), type, i, wide[i]);
            wide[i] = static_cast<float>(read_number(out.data(), type, i));
          }
          return out;
        };
        const auto keys = narrowed(part.keys), values = narrowed(part.values);
        // The member's blocks lie between others'; [2][256][stride] each.
        const size_t bytes = 256 * part.stride * size_of(type);
        std::vector<std::vector<std::byte>> held;
        std::vector<BlockAt> lists[2];
        for (const size_t which : {0, 1}) {
          const auto& from = which == 0 ? keys : values;
          for (size_t base = 0; blocks && base < part.slots; base += 256) {
            auto& block = held.emplace_back(2 * bytes, std::byte{0x7F});
            std::copy_n(&from[base / 256 * bytes], bytes, &block[bytes]);
            lists[which].push_back({block.data(), 256});
          }
        }
        const size_t every = key_heads * heads * channels, stride = every + random.below(9);
        const auto queries = random.floats(rows * stride, -2, 2);
        const auto want = rule(query, queries, rows, key_heads, heads, stride);
        for (const auto* table : tables()) {
          std::vector<float> y(rows * stride, NAN), got;
          AttendPart first{queries.data(),
                           blocks ? nullptr : keys.data(),
                           blocks ? nullptr : values.data(),
                           part.stride,
                           part.first,
                           part.last - rows + 1,
                           part.slots};
          if (blocks) {
            first.slots = 0;
            first.key_blocks = {lists[0].data(), lists[0].size(), 1, 0};
            first.value_blocks = {lists[1].data(), lists[1].size(), 1, 0};
          }
          first.dtype = stored_as(type);
          if (rows == 1 && key_heads * heads == 1)
            table->attend({{first}, 1, y.data(), channels, query.scale});
          else if (table->split_scores && rows * key_heads * heads <= split_queries && random.below(2) == 0)
            split(random, table, {first, y.data(), rows, key_heads, heads, stride, channels, query.scale});
          else
            table->attend_rows({first, y.data(), rows, key_heads, heads, stride, channels, query.scale});
          for (size_t row = 0; row < rows; ++row)
            got.insert(got.end(), y.data() + row * stride, y.data() + row * stride + every);
          CHECK(same(got, want));
        }
      }
    }
  }
}

TEST("attend: weights far below the highest have the bits of exp, down to 0, in whole blocks and in parts of them") {
  Random random(95);
  Query query{16, 1, {{16, 250, 1030, 800, std::vector<float>(16, 0.0f), {}, {}}}};
  auto& part = query.parts[0];
  part.q[0] = 1;
  part.keys = random.floats(part.slots * 16, -1, 1), part.values = random.floats(part.slots * 16, -2, 2);
  // From gradual underflow to below it, and ±∞ beside NaN where nothing is left to weigh.
  for (size_t p = 0; p < part.slots; ++p) part.keys[p * 16] = -random.uniform(0, p % 3 ? 112 : 2);
  for (const float odd : {0.0f, -INFINITY, NAN, INFINITY}) {
    part.keys[(part.first + 300) % part.slots * 16] = odd;
    const auto want = rule(query);
    for (const auto* table : tables()) CHECK(same(run(random, table, query), want));
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

}  // namespace continuo::test::attend_test
