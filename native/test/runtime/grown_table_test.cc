// Tables that grow along several counters, against a map from positions to numbers.
#include <array>
#include <cstring>
#include <limits>
#include <map>

#include "backends/cpu/device.h"
#include "runtime/state/context.h"
#include "test/image.h"

namespace continuo::test::grown_table_test {

namespace {

constexpr int64_t most[] = {11, 70};
constexpr double init = 0.5;

// M [2, r, 3, c, 2] with counters r and c; a block writes its newest place.
std::shared_ptr<const Model> model_of(ThreadPool& pool) {
  const std::string graph = R"json({"format":"continuo-graph/2","declarations":[
    {"kind":"persistent","name":"r","counter":true,"max":11},
    {"kind":"persistent","name":"c","counter":true,"max":70},
    {"kind":"persistent","name":"before","dtype":"i32","init":7,"axes":[3]},
    {"kind":"persistent","name":"M","dtype":"f32","init":0.5,"axes":[2,{"grows":"r"},3,{"grows":"c"},2]},
    {"kind":"persistent","name":"bools","dtype":"bool","init":1,"axes":[{"grows":"c"},{"grows":"r"}]},
    {"kind":"dynamic","name":"x","shape":[2],"dtype":"f32"},{"kind":"volatile","name":"y","shape":[2],"dtype":"f32"}],
    "blocks":[{"name":"run","inputs":["x"],"nodes":[{"op":"cache.reset","state":"before"},{"op":"cache.reset","state":"bools"},
    {"op":"cache.write","in":["x"],"state":"M(1,r-1,0,c-1)"},{"op":"tanh","in":["x"],"out":"y"},{"return":{"y":"y"}}]}]})json";
  const auto image = test::image_of(std::string("{}"));
  auto model = Model::make(graph, image, pool, *open_cpu());
  CHECK(model);
  return *model;
}

Name named(const Model& model, std::string_view name) {
  for (Name i = 0; i < model.graph.declarations.size(); ++i) {
    if (model.graph.declarations[i].name == name) return i;
  }
  return no_name;
}

std::vector<std::byte> state_of(Context& context) {
  std::vector<std::byte> out(context.serialized_bytes());
  context.serialize(out);
  return out;
}

using Cell = std::array<int64_t, 5>;  // along the axes of M

struct Reference {
  int64_t counts[2]{};
  std::map<Cell, float> numbers;  // those that were written and are there still

  std::vector<float> dense() const {
    std::vector<float> out;
    for (int64_t a = 0; a < 2; ++a) {
      for (int64_t r = 0; r < counts[0]; ++r) {
        for (int64_t b = 0; b < 3; ++b) {
          for (int64_t c = 0; c < counts[1]; ++c) {
            for (int64_t i = 0; i < 2; ++i) {
              const auto found = numbers.find({a, r, b, c, i});
              out.push_back(found == numbers.end() ? static_cast<float>(init) : found->second);
            }
          }
        }
      }
    }
    return out;
  }
};

float* place(Context& context, Name M, const Cell& at) {
  const auto room = [&](size_t axis) { return static_cast<int64_t>(context.room(M, axis)); };
  const int64_t offset = (((at[0] * room(1) + at[1]) * 3 + at[2]) * room(3) + at[3]) * 2 + at[4];
  return reinterpret_cast<float*>(context.data(M)) + offset;
}

std::vector<float> table_in(const std::vector<std::byte>& state, size_t count) {
  std::vector<float> out(count);
  if (count > 0)
    std::memcpy(out.data(), state.data() + 2 * sizeof(int64_t) + 3 * sizeof(int32_t), count * sizeof(float));
  return out;
}

}  // namespace

TEST("grown tables: what stands stays where it is through growth, and is gone where a counter was lowered") {
  ThreadPool pool(1);
  const auto model = model_of(pool);
  const Name M = named(*model, "M"), counters[] = {named(*model, "r"), named(*model, "c")};
  test::Random random(81);
  for (int round = 0; round < 20; ++round) {
    Context context(model);
    Reference reference;
    for (int turn = 0; turn < 120; ++turn) {
      const size_t which = random.below(2);
      int64_t& count = reference.counts[which];
      const size_t kind = random.below(8);
      if (kind == 0) {
        const int64_t to = static_cast<int64_t>(random.below(static_cast<size_t>(count) + 1));
        context.lower(counters[which], to);
        std::erase_if(reference.numbers, [&](const auto& entry) { return entry.first[which == 0 ? 1 : 3] >= to; });
        count = to;
      } else if (kind < 4) {
        const int64_t to = std::min(most[which], count + static_cast<int64_t>(random.below(which == 0 ? 3 : 12)));
        CHECK(context.raise(counters[which], to));
        count = to;
      } else if (reference.counts[0] > 0 && reference.counts[1] > 0) {
        const auto below = [&](int64_t n) { return static_cast<int64_t>(random.below(static_cast<size_t>(n))); };
        const Cell at{below(2), below(reference.counts[0]), below(3), below(reference.counts[1]), below(2)};
        reference.numbers[at] = *place(context, M, at) = random.uniform(-1, 1);
      }
      for (size_t i = 0; i < 2; ++i) {
        const size_t room = context.room(M, i == 0 ? 1 : 3);
        CHECK(room >= static_cast<size_t>(reference.counts[i]) && room <= static_cast<size_t>(most[i]));
      }
    }
    const auto want = reference.dense();
    const auto state = state_of(context);
    CHECK(state.size() ==
          2 * 8 + 3 * 4 + want.size() * 4 + static_cast<size_t>(reference.counts[0] * reference.counts[1]));
    CHECK(table_in(state, want.size()) == want);
    Context other(model);
    CHECK(other.raise(counters[1], 5) && other.raise(counters[0], 5));
    CHECK(other.restore(state, context.head));
    CHECK(state_of(other) == state);
    // What is entered after a restore holds the first value.
    if (reference.counts[0] == most[0] || reference.counts[1] == 0) continue;
    CHECK(other.raise(counters[0], reference.counts[0] + 1));
    CHECK(*place(other, M, {1, reference.counts[0], 2, reference.counts[1] - 1, 1}) == static_cast<float>(init));
  }
}

TEST("grown tables: beyond a counter's bound nothing changes, and a reset gives the room back") {
  ThreadPool pool(1);
  const auto model = model_of(pool);
  const Name M = named(*model, "M"), r = named(*model, "r"), c = named(*model, "c");
  Context context(model);
  const size_t empty = context.bytes();
  CHECK(context.raise(r, 11) && context.bytes() == empty);
  CHECK(context.raise(c, 33) && context.room(M, 1) == 11 && context.room(M, 3) == 64);
  CHECK(context.bytes() == empty + 2 * 11 * 3 * 64 * 2 * 4 + 11 * 64);
  CHECK(!context.raise(r, 12) && !context.reserve(c, 71) && context.counter(r) == 11 && context.room(M, 3) == 64);
  CHECK(context.reserve(c, 65) && context.room(M, 3) == 70 && context.counter(c) == 33);
  context.reset();
  CHECK(context.bytes() == empty && context.counter(r) == 0);
}

TEST("grown tables: only where a row could have written is looked at for numbers that are not finite") {
  ThreadPool pool(1);
  const auto model = model_of(pool);
  const Name M = named(*model, "M"), r = named(*model, "r"), c = named(*model, "c");
  Context context(model);
  const auto spoil = [&](const Cell& at) { *place(context, M, at) = std::numeric_limits<float>::quiet_NaN(); };
  const auto mend = [&](const Cell& at) { *place(context, M, at) = 1; };
  CHECK(context.raise(r, 4) && context.raise(c, 20));
  for (const Cell& at : {Cell{0, 0, 0, 0, 0}, Cell{1, 3, 2, 19, 1}, Cell{0, 2, 1, 7, 0}}) {
    spoil(at);
    CHECK(!context.finite());
    mend(at);
  }
  CHECK(context.finite());
  // The block writes at r − 1, c − 1: from here on positions from 3 and 19 on.
  spoil({0, 2, 0, 19, 0});
  CHECK(context.finite() && !context.finite(true));
  spoil({0, 3, 0, 19, 0});
  CHECK(!context.finite());
  mend({0, 2, 0, 19, 0});
  mend({0, 3, 0, 19, 0});
  context.lower(r, 1);
  CHECK(context.raise(r, 4));
  spoil({1, 0, 0, 19, 0});
  CHECK(!context.finite());
}

}  // namespace continuo::test::grown_table_test
