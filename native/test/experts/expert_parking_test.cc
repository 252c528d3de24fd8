// Runs that leave a step because an expert of theirs is not in memory, and come back to it (executor_parking.cc).
#include "runtime/scheduler/engine.h"
#include "test/experts/expert_stores.h"
#include "test/runtime/engines.h"

namespace continuo::test::expert_parking_test {

namespace {

constexpr size_t vocabulary = 24, channels = 320, count = 16, chosen = 2;

// Two layers, of which each shifts by a token, routes to experts of the store and adds what they give.
SmallModel routed_model(uint64_t seed) {
  Random random(seed);
  std::vector<Weight> weights{{"emb", {vocabulary, channels}, random.floats(vocabulary * channels, -1.0f, 1.0f)},
                              {"head", {vocabulary, channels}, random.floats(vocabulary * channels, -0.3f, 0.3f)},
                              {"mix", {channels}, random.floats(channels, 0.0f, 1.0f)}};
  for (const char* layer : {"1", "4"})
    weights.push_back(
        {std::string("router.") + layer, {count, channels}, random.floats(count * channels, -1.0f, 1.0f)});
  const std::string C = std::to_string(channels), E = std::to_string(count), K = std::to_string(chosen),
                    V = std::to_string(vocabulary);
  const auto value = [](const std::string& name, const std::string& shape, const char* type = "f32") {
    return R"({"kind":"volatile","name":")" + name + R"(","shape":[)" + shape + R"(],"dtype":")" + type + R"("},)";
  };
  const std::string declarations =
      R"({"kind":"dynamic","name":"token","shape":[],"dtype":"i32"},{"kind":"dynamic","name":"h.in","shape":[)" + C +
      R"(],"dtype":"f32"},{"kind":"constant","name":"emb","shape":[)" + V + "," + C +
      R"(],"layout":"rows","ref":"emb"},{"kind":"constant","name":"head","shape":[)" + V + "," + C +
      R"(],"layout":"packed","ref":"head"},{"kind":"constant","name":"mix","shape":[)" + C +
      R"(],"layout":"vector","ref":"mix"},{"kind":"constant","name":"router","shape":[)" + E + "," + C +
      R"(],"layout":"packed","pattern":"router.{a}","over":"a"},{"kind":"constant","name":"experts","shape":[)" + E +
      ",192," + C + R"(],"layout":"experts","pattern":"{a}","over":"a"},)" + value("x", C) + value("before", C) +
      value("m", C) + value("z", E) + value("p", E) + value("ids", K, "i32") + value("w", K) + value("d", K + "," + C) +
      value("y", C) + value("t", C) + value("last.before", C) + value("logits", V) +
      R"({"kind":"persistent","name":"S","dtype":"f32","axes":[{"index":"a"},)" + C +
      R"(],"init":0},{"kind":"persistent","name":"last","dtype":"f32","axes":[)" + C + R"(],"init":0})";
  const std::string layer =
      R"~({"op":"cache.shift","out":"before","in":["x"],"state":"S(a)"},)~"
      R"~({"op":"lerp","out":"m","in":["x","before","mix"]},{"op":"matmul","out":"z","in":["m","router(a)"]},)~"
      R"~({"op":"softmax","out":"p","in":["z"]},{"op":"topk","out":"ids","in":["p"],"count":)~" +
      K +
      R"~(},{"op":"gather","out":"w","in":["p","ids"]},{"op":"experts.ahead","in":["ids","experts(a)"],"count":1},)~"
      R"~({"op":"experts","out":"d","in":["m","ids","experts(a)"]},{"op":"combine","out":"y","in":["d","w"]},)~"
      R"~({"op":"tanh","out":"t","in":["y"]},{"op":"add","out":"x","in":["x","t"]})~";
  return {
      R"({"format":"continuo-graph/2","indices":[{"name":"l","extent":5},{"name":"a","of":"l","at":[1,4]}],"declarations":[)" +
          declarations +
          R"(],"blocks":[{"name":"step","inputs":["token"],"nodes":[)"
          R"({"op":"embed","out":"x","in":["token","emb"]},{"loop":"a","nodes":[)" +
          layer +
          R"(]},{"op":"cache.shift","out":"last.before","in":["x"],"state":"last"},)"
          R"({"return":{"hidden":"x","previous":"last.before"}}]},{"name":"predict","inputs":["h.in"],"nodes":[)"
          R"({"op":"matmul","out":"logits","in":["h.in","head"]},{"return":{"logits":"logits"}}]}]})",
      image_of(weights)};
}

Opened open(const SmallModel& small, std::shared_ptr<experts::ExpertCache> cache, size_t threads = 2) {
  const TemporaryFile file(small.image);
  auto engine = std::make_unique<Engine>(threads);
  std::promise<Result<std::shared_ptr<const Model>>> done;
  engine->load(
      small.graph, {file.path}, {}, {}, [&](auto result) { done.set_value(std::move(result)); }, open_cpu,
      [cache]() -> Result<std::shared_ptr<experts::ExpertCache>> { return cache; });
  auto model = done.get_future().get();
  if (!model) fail(__FILE__, __LINE__, model.error().message);
  return {std::move(engine), *model};
}

std::future<ItemResult> submit(Engine& engine, Item item) {
  auto done = std::make_shared<std::promise<ItemResult>>();
  auto future = done->get_future();
  CHECK(engine.submit(std::move(item), [done](ItemResult result) { done->set_value(std::move(result)); }));
  return future;
}

std::string chain_of(const std::shared_ptr<Context>& context) { return context->head.chain.hex(); }

// What a session reads and then draws.
Item work_of(const std::shared_ptr<Context>& context, uint64_t seed, size_t read, uint32_t drawn) {
  Random random(seed);
  Item item{context, random_tokens(random, read, vocabulary), true, drawn, {}};
  item.sampling.temperature = 1;
  item.sampling.seed = seed;
  return item;
}

// Chains and surprisals of sessions, one after the other in a cache that holds everything.
struct Expected {
  std::vector<std::string> chains;
  std::vector<std::vector<float>> nats;
  std::vector<std::vector<int32_t>> generated;
};
Expected one_by_one(const Store& store, const SmallModel& small, size_t sessions, size_t read, uint32_t drawn) {
  const auto opened = open(small, store.cache(2 * count));
  Expected out;
  for (size_t i = 0; i < sessions; ++i) {
    const auto context = std::make_shared<Context>(opened.model);
    auto done = process(*opened.engine, {work_of(context, i, read + i, drawn)});
    CHECK(done && !(*done)[0].error);
    out.chains.push_back(chain_of(context));
    out.nats.push_back((*done)[0].nats);
    out.generated.push_back((*done)[0].generated);
  }
  return out;
}

}  // namespace

TEST("parking: whichever experts come late, and in whatever order, every session has the bits that it has alone") {
  const Store store(2, count);
  const auto small = routed_model(31);
  constexpr size_t sessions = 9, read = 20;
  constexpr uint32_t drawn = 12;
  const auto expected = one_by_one(store, small, sessions, read, drawn);
  for (const size_t records : {2, 3, 5, 12, 32}) {
    for (const bool shuffled : {false, true}) {
      const auto script = std::make_shared<Script>();
      script->shuffled = shuffled;
      const auto opened = open(small, store.cache(records, scripted(script)));
      std::vector<std::shared_ptr<Context>> contexts;
      std::vector<Item> items;
      for (size_t i = 0; i < sessions; ++i) {
        contexts.push_back(std::make_shared<Context>(opened.model));
        items.push_back(work_of(contexts.back(), i, read + i, drawn));
      }
      const auto results = process(*opened.engine, std::move(items));
      CHECK(results);
      for (size_t i = 0; i < sessions; ++i) {
        CHECK(!(*results)[i].error);
        CHECK(chain_of(contexts[i]) == expected.chains[i]);
        CHECK((*results)[i].generated == expected.generated[i]);
        // The first token has no surprisal.
        CHECK(std::equal((*results)[i].nats.begin() + 1, (*results)[i].nats.end(), expected.nats[i].begin() + 1));
      }
    }
  }
}

TEST("parking: a session whose expert does not come holds up none whose experts are in memory") {
  const Store store(2, count);
  const auto small = routed_model(32);
  const auto expected = one_by_one(store, small, 1, 4, 3);
  const auto script = std::make_shared<Script>();
  const auto opened = open(small, store.cache(2 * count, scripted(script)));
  // The same token again and again comes to the same experts, which soon are in memory.
  const auto near = std::make_shared<Context>(opened.model);
  CHECK(process(*opened.engine, {{near, std::vector<int32_t>(200, 5), false, 0, {}}}));
  CHECK(near->swift());
  script->hold();
  const auto far = std::make_shared<Context>(opened.model);
  const size_t before = script->wait_for(0).size();
  auto waiting = submit(*opened.engine, work_of(far, 0, 4, 3));
  // Its first read has begun, and does not end.
  (void)script->wait_for(before + 1);
  for (int turn = 0; turn < 20; ++turn) {
    const auto done = process(*opened.engine, {{near, {5, 5, 5}, true, 0, {}}});
    CHECK(done && !(*done)[0].error);
    CHECK((*done)[0].nats.size() == 3);
  }
  CHECK(waiting.wait_for(std::chrono::seconds(0)) != std::future_status::ready);
  CHECK(far->head.pulse == 0);
  script->release_all();
  const auto result = waiting.get();
  CHECK(!result.error);
  CHECK(chain_of(far) == expected.chains[0]);
  CHECK(result.generated == expected.generated[0]);
}

TEST("parking: an expert that cannot be read ends the step; its sessions can be reset, and then have their bits") {
  const Store store(2, count);
  const auto small = routed_model(33);
  constexpr size_t sessions = 5;
  const auto expected = one_by_one(store, small, sessions, 6, 8);
  const auto script = std::make_shared<Script>();
  std::atomic<int> left{40};  // reads that go well before all fail
  script->fault = [&](const experts::Piece&, int64_t result) { return --left >= 0 ? result : int64_t{-EIO}; };
  const auto opened = open(small, store.cache(3, scripted(script)));
  std::vector<std::shared_ptr<Context>> contexts;
  for (size_t i = 0; i < sessions; ++i) contexts.push_back(std::make_shared<Context>(opened.model));
  const auto run = [&] {
    std::vector<Item> items;
    for (size_t i = 0; i < sessions; ++i) items.push_back(work_of(contexts[i], i, 6 + i, 8));
    return process(*opened.engine, std::move(items));
  };
  auto results = run();
  CHECK(results);
  size_t failed = 0;
  for (size_t i = 0; i < sessions; ++i) {
    if (!(*results)[i].error) continue;
    ++failed;
    CHECK((*results)[i].error->code == Code::unavailable);
    CHECK(contexts[i]->broken);
  }
  CHECK(failed > 0);
  left = 1 << 30;
  for (auto& context : contexts) {
    context->reset();
    context->head = {};
  }
  results = run();
  CHECK(results);
  for (size_t i = 0; i < sessions; ++i) {
    CHECK(!(*results)[i].error);
    CHECK(chain_of(contexts[i]) == expected.chains[i]);
  }
}

TEST("parking: a model that is closed while runs are parked answers their items") {
  const Store store(2, count);
  const auto small = routed_model(34);
  const auto script = std::make_shared<Script>();
  auto opened = open(small, store.cache(4, scripted(script)));
  script->hold();
  std::vector<std::future<ItemResult>> waiting;
  std::vector<std::shared_ptr<Context>> contexts;
  for (size_t i = 0; i < 4; ++i) {
    contexts.push_back(std::make_shared<Context>(opened.model));
    waiting.push_back(submit(*opened.engine, work_of(contexts.back(), i, 5, 5)));
  }
  (void)script->wait_for(1);
  opened.engine->stop();
  for (auto& each : waiting) {
    const auto result = each.get();
    CHECK(result.error && result.error->code == Code::misuse);
  }
  script->release_all();
}

}  // namespace continuo::test::expert_parking_test
