// Parts of a state: positions of tables that grow, places of rings, and the rest, against the whole.
#include <algorithm>

#include "backends/cpu/device.h"
#include "backends/cuda/cuda.h"
#include "runtime/state/context.h"
#include "test/image.h"
#include "test/kernel_inputs.h"

namespace continuo::test::context_parts_test {

namespace {

constexpr size_t entered = 40, clocked = 300;  // positions; places of Q

// A growing table [2, len, 3], a ring [3, places, 2] by the same counter, one [clocked] by the clock, and a vector.
std::shared_ptr<const Model> model_of(ThreadPool& pool, std::shared_ptr<Device> device, size_t places) {
  const std::string graph = R"json({"format":"continuo-graph/2","declarations":[
    {"kind":"persistent","name":"clock","counter":true,"clock":true},
    {"kind":"persistent","name":"len","counter":true,"max":100},
    {"kind":"persistent","name":"K","dtype":"f32","init":0,"axes":[2,{"grows":"len"},3]},
    {"kind":"persistent","name":"R","dtype":"f32","init":0,"axes":[3,{"ring":)json" +
                            std::to_string(places) + R"json(,"counter":"len"},2]},
    {"kind":"persistent","name":"v","dtype":"f32","init":0,"axes":[5]},
    {"kind":"persistent","name":"Q","dtype":"f32","init":0,"axes":[{"ring":300,"counter":"clock"}]},
    {"kind":"dynamic","name":"x","shape":[2],"dtype":"f32"},{"kind":"volatile","name":"y","shape":[2],"dtype":"f32"}],
    "blocks":[{"name":"run","inputs":["x"],"nodes":[{"op":"cache.reset","state":"K"},
    {"op":"cache.reset","state":"R"},{"op":"cache.reset","state":"v"},{"op":"cache.reset","state":"Q"},
    {"op":"cache.reset","state":"len"},{"op":"tanh","in":["x"],"out":"y"},{"return":{"y":"y"}}]}]})json";
  const auto image = test::image_of(std::string("{}"));
  auto model = Model::make(graph, image, pool, std::move(device));
  CHECK(model);
  return *model;
}

using Bytes = std::vector<std::byte>;

Bytes part_of(Context& context, const std::vector<Positions>& rows, bool rest) {
  Bytes out(context.part_bytes(rows, rest));
  CHECK(context.serialize_part(rows, rest, out));
  return out;
}

// Of a dense [outer, extent, inner] of f32 that begins at `from`: positions first … last − 1.
void cut(Bytes& out, const Bytes& whole, size_t from, size_t outer, size_t extent, size_t inner, Positions rows) {
  for (size_t part = 0; part < outer; ++part) {
    const auto begin = whole.begin() + static_cast<ptrdiff_t>(from + part * extent * inner * sizeof(float));
    out.insert(out.end(), begin + static_cast<ptrdiff_t>(rows.from * inner * sizeof(float)),
               begin + static_cast<ptrdiff_t>(rows.to * inner * sizeof(float)));
  }
}

// A state of the model with so many places and these numbers.
Bytes state_of(size_t places, uint64_t seed) {
  Bytes whole(sizeof(int64_t) + (2 * entered * 3 + 3 * places * 2 + 5 + clocked) * sizeof(float));
  test::Random random(seed);
  const auto numbers = random.floats(whole.size() / sizeof(float), -1, 1);
  std::memcpy(whole.data(), numbers.data(), whole.size());
  const int64_t len = entered;
  std::memcpy(whole.data(), &len, sizeof len);
  return whole;
}

Bytes state(Context& context) {
  Bytes out(context.serialized_bytes());
  CHECK(context.serialize(out));
  return out;
}

void parts(std::shared_ptr<Device> device, size_t places) {
  ThreadPool pool(1);
  const auto model = model_of(pool, std::move(device), places);
  Context context(model);
  const size_t K = sizeof(int64_t), R = K + 2 * entered * 3 * sizeof(float), v = R + 3 * places * 2 * sizeof(float),
               Q = v + 5 * sizeof(float);
  const auto whole = state_of(places, 3);
  CHECK(context.restore(whole, Head{}));
  CHECK(context.serialized_bytes() == whole.size());

  const std::vector<Positions> spans = {
      {0, 0}, {0, 7}, {5, 40}, {0, 256}, {256, 300}, {299, 300}, {0, 300}, {places - 1, places}, {0, places}};
  for (const Positions grown : {spans[0], spans[1], spans[2], Positions{0, entered}}) {
    for (const Positions ring : spans) {
      for (const Positions other : {spans[0], spans[4], spans[6]}) {
        for (const bool rest : {false, true}) {
          Bytes want;
          if (rest) want.assign(whole.begin(), whole.begin() + K);
          cut(want, whole, K, 2, entered, 3, grown);
          cut(want, whole, R, 3, places, 2, ring);
          if (rest) cut(want, whole, v, 1, 5, 1, {0, 5});
          cut(want, whole, Q, 1, clocked, 1, other);
          CHECK(part_of(context, {{}, grown, ring, {}, other}, rest) == want);
        }
      }
    }
  }
}

// A ring of a context and of its forks: what one does to it, the others do not see.
void forks(std::shared_ptr<Device> device, size_t places) {
  ThreadPool pool(1);
  const auto model = model_of(pool, std::move(device), places);
  const Name len = 1;
  CHECK(model->graph.declarations[len].name == "len");
  const auto parent = std::make_shared<Context>(model);
  const auto first = state_of(places, 4), second = state_of(places, 5);
  CHECK(parent->restore(first, Head{}));
  const auto child = parent->fork(), third = parent->fork();
  // The blocks of the ring are there once.
  const bool in_blocks = places % 256 == 0;
  const size_t ring = 3 * places * 2 * sizeof(float);
  CHECK((child->bytes() + ring <= parent->bytes()) == in_blocks);
  // Room for positions whose places another one holds, before they are written.
  const size_t before = child->bytes();
  CHECK(child->reserve(len, entered + 1));
  CHECK(child->bytes() == before + (in_blocks ? ring / (places / 256) : 0));
  CHECK(state(*child) == first);
  CHECK(child->restore(second, Head{}));
  CHECK(state(*parent) == first && state(*third) == first && state(*child) == second);
  parent->lower(len, entered - 10);
  const auto lowered = state(*parent);
  CHECK(lowered != first && state(*third) == first && state(*child) == second);
  const auto fourth = parent->fork();
  parent->reset();
  Context fresh(model);
  CHECK(state(*parent) == state(fresh) && state(*fourth) == lowered && state(*third) == first);
}

}  // namespace

TEST("context: forks share a ring's blocks, and what one of them does to it the others do not see") {
  for (const size_t places : {300, 512, 768}) {
    forks(*open_cpu(), places);
    if (auto cuda = open_cuda()) forks(*cuda, places);
  }
}

TEST("context: a part has those positions and places of the whole, and what follows no counter only with the rest") {
  for (const size_t places : {300, 512}) {
    parts(*open_cpu(), places);
    if (auto cuda = open_cuda()) parts(*cuda, places);
  }
}

}  // namespace continuo::test::context_parts_test
