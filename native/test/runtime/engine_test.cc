#include <cfenv>
#include <cmath>

#include "backends/cpu/device.h"
#include "backends/cpu/kernels/kernels.h"
#include "test/runtime/engines.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace continuo::test::engine_test {

namespace {

// Every float of a state that does not grow.
void fill_state(Context& context, float value) {
  for (const auto& slice : context.model().layout)
    context.model().device->fill(context.data(slice.name), slice.type, slice.elements, value);
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

const test::SmallModel& shared_small() {
  static const auto small = test::small_model(11, 40, 48, 3, Dtype::bf16);
  return small;
}

}  // namespace

TEST("engine: any cut, thread count, batch and instruction set gives the same chain, nats and logits") {
  test::Random random(12);
  constexpr size_t vocabulary = 40;
  const auto tokens = random_tokens(random, 300, vocabulary);
  auto reference = open(shared_small(), 1);
  auto context = std::make_shared<Context>(reference.model);
  auto want = process(*reference.engine, {{context, tokens, true, 0, {}}});
  CHECK(want);
  auto want_logits = logits(*reference.engine, context);
  CHECK(want_logits && want_logits->size() == vocabulary);
  CHECK(std::isnan((*want)[0].nats[0]) && std::isfinite((*want)[0].nats[1]));

  for (const size_t threads : {1, 2, 5}) {
    auto opened = open(shared_small(), threads);
    for (int round = 0; round < 6; ++round) {
      auto own = std::make_shared<Context>(opened.model);
      std::vector<float> nats;
      for (size_t at = 0; at < tokens.size();) {
        const size_t n = std::min(tokens.size() - at, 1 + random.below(round == 0 ? 1 : 200));
        std::vector<Item> items;
        const size_t others = random.below(5);
        for (size_t i = 0; i < others; ++i)
          items.push_back({std::make_shared<Context>(opened.model),
                           random_tokens(random, random.below(90), vocabulary),
                           random.below(2) == 0,
                           0,
                           {}});
        const size_t place = random.below(others + 1);
        items.insert(items.begin() + static_cast<ptrdiff_t>(place),
                     {own,
                      {tokens.begin() + static_cast<ptrdiff_t>(at), tokens.begin() + static_cast<ptrdiff_t>(at + n)},
                      true,
                      0,
                      {}});
        auto got = process(*opened.engine, std::move(items));
        CHECK(got);
        nats.insert(nats.end(), (*got)[place].nats.begin(), (*got)[place].nats.end());
        at += n;
      }
      CHECK(own->head.chain == context->head.chain);
      CHECK(own->head.pulse == 300);
      CHECK(same(nats, (*want)[0].nats));
      CHECK(same(*logits(*opened.engine, own), *want_logits));
    }
  }
}

TEST("executor: memory of its own for every value changes no bit, nor does the instruction set") {
  test::Random random(13);
  ThreadPool pool(2);
  const auto tokens = random_tokens(random, 70, 40);
  std::vector<Chain> chains;
  const auto run = [&](const Kernels* kernels, bool reuse) {
    auto model = Model::make(shared_small().graph, shared_small().image, pool, cpu_device(*kernels));
    CHECK(model);
    const auto executor = (*model)->device->executor(*model, pool, {.reuse = reuse});
    Context context(*model);
    const auto hidden = test::hidden_vectors(*executor, context, tokens);
    for (size_t r = 0; r < tokens.size(); ++r) context.head.chain.pulse(tokens[r], {hidden.data() + r * 48, 48});
    chains.push_back(context.head.chain);
  };
  run(&generic_kernels, false);
  for (const auto* table : runnable_kernels()) run(table, true);
  for (const auto& chain : chains) CHECK(chain == chains[0]);
}

TEST("engine: generation feeds what it samples, alone or in a batch, and resumes with the same draws") {
  auto opened = open(shared_small(), 2);
  const Sampling sampling{0.9f, 0, 0.95, 77};
  const auto start = std::make_shared<Context>(opened.model);
  const auto whole = process(*opened.engine, {{start, {1, 2, 3}, false, 50, sampling}});
  CHECK(whole && (*whole)[0].generated.size() == 50);

  // Once more in pieces, with another session generating beside it, and with serialize and restore in between.
  auto pieces = std::make_shared<Context>(opened.model);
  std::vector<int32_t> generated;
  std::vector<float> logprobs;
  CHECK(process(*opened.engine, {{pieces, {1, 2, 3}, false, 0, {}}}));
  while (generated.size() < 50) {
    auto other = std::make_shared<Context>(opened.model);
    auto part = process(*opened.engine, {{other, {5}, true, 7, {1, 3, 1, 2}}, {pieces, {}, false, 10, sampling}});
    CHECK(part);
    generated.insert(generated.end(), (*part)[1].generated.begin(), (*part)[1].generated.end());
    logprobs.insert(logprobs.end(), (*part)[1].logprobs.begin(), (*part)[1].logprobs.end());
    std::vector<std::byte> state(pieces->serialized_bytes());
    CHECK(pieces->serialize(state));
    auto restored = std::make_shared<Context>(opened.model);
    CHECK(restored->restore(state, pieces->head));
    pieces = restored;
  }
  CHECK(generated == (*whole)[0].generated);
  CHECK(same(logprobs, (*whole)[0].logprobs));
  CHECK(pieces->head.chain == start->head.chain);

  // Feeding the same tokens is the same computation; their nats are the logprobs, negated.
  auto fed = std::make_shared<Context>(opened.model);
  std::vector<int32_t> tokens{1, 2, 3};
  tokens.insert(tokens.end(), generated.begin(), generated.end());
  const auto read = process(*opened.engine, {{fed, tokens, true, 0, {}}});
  CHECK(fed->head.chain == start->head.chain);
  for (size_t i = 0; i < 50; ++i) CHECK((*read)[0].nats[3 + i] == -logprobs[i]);
}

TEST("engine: more sessions than a step has rows") {
  auto opened = open(shared_small(), 2);
  std::vector<Item> items;
  std::vector<std::shared_ptr<Context>> contexts;
  for (int32_t i = 0; i < 150; ++i) {
    contexts.push_back(std::make_shared<Context>(opened.model));
    items.push_back({contexts.back(), {i % 40, 7}, true, static_cast<uint32_t>(i % 3), {}});
  }
  const auto done = process(*opened.engine, items);
  CHECK(done);
  for (size_t i = 0; i < 150; ++i) {
    CHECK((*done)[i].generated.size() == i % 3);
    auto alone = std::make_shared<Context>(opened.model);
    CHECK(
        process(*opened.engine, {{alone, {static_cast<int32_t>(i % 40), 7}, false, static_cast<uint32_t>(i % 3), {}}}));
    CHECK(alone->head.chain == contexts[i]->head.chain);
  }
}

TEST("context: reset returns to the first state while the clock goes on") {
  auto opened = open(shared_small(), 1);
  auto context = std::make_shared<Context>(opened.model);
  CHECK(process(*opened.engine, {{context, {1, 2, 3, 4}, false, 0, {}}}));
  const Chain before = context->head.chain;
  context->reset();
  CHECK(context->head.pulse == 4 && context->head.origin == 4 && !(context->head.chain == before));
  CHECK_SAYS(logits(*opened.engine, context), "first token");
  CHECK_SAYS(process(*opened.engine, {{context, {}, false, 1, {}}}), "first token");
  const auto again = process(*opened.engine, {{context, {9, 8}, true, 0, {}}});
  auto fresh = std::make_shared<Context>(opened.model);
  const auto first = process(*opened.engine, {{fresh, {9, 8}, true, 0, {}}});
  CHECK(std::isnan((*again)[0].nats[0]) && (*again)[0].nats[1] == (*first)[0].nats[1]);
}

TEST("context: restore refuses wrong lengths, numbers that are not finite and impossible heads, and changes nothing") {
  auto opened = open(shared_small(), 1);
  auto context = std::make_shared<Context>(opened.model);
  CHECK(process(*opened.engine, {{context, {1, 2}, false, 0, {}}}));
  std::vector<std::byte> good(context->serialized_bytes()), after(good.size());
  CHECK(context->serialize(good));
  CHECK_SAYS(context->restore(std::span(good).first(good.size() - 1), context->head), "bytes");
  Head impossible = context->head;
  impossible.origin = 3;
  CHECK_SAYS(context->restore(good, impossible), "origin");
  auto bad = good;
  const float nan = NAN;
  std::memcpy(bad.data() + 400, &nan, 4);
  CHECK_SAYS(context->restore(bad, context->head), "not finite");
  CHECK(context->serialize(after));
  CHECK(after == good);
  CHECK(context->restore(good, context->head));
}

TEST("engine: invalid items are refused before anything is claimed or written") {
  auto opened = open(shared_small(), 1);
  auto one = std::make_shared<Context>(opened.model), two = std::make_shared<Context>(opened.model);
  CHECK_SAYS(process(*opened.engine, {{two, {40}, false, 0, {}}}), "token 0 is 40");
  CHECK_SAYS(process(*opened.engine, {{two, {1, -1}, false, 0, {}}}), "token 1 is -1");
  CHECK_SAYS(process(*opened.engine, {{two, {1}, false, 1, {}, {7, 40}}}), "end token 1 is 40");
  CHECK_SAYS(process(*opened.engine, {{two, {}, false, 1, {}}}), "before the first token");
  CHECK(one->claim());
  CHECK_SAYS(process(*opened.engine, {{one, {1}, false, 0, {}}}), "busy");
  one->release();
  CHECK(!one->busy() && !two->busy() && one->head.pulse == 0);
  CHECK(process(*opened.engine, {{one, {1}, false, 0, {}}, {two, {}, true, 0, {}}}));
}

TEST("engine: a state that stops being finite is reported with its item, and its context needs a reset") {
  auto small = test::small_model(14, 8, 16, 2, Dtype::f32);
  auto opened = open(small, 1);
  auto good = std::make_shared<Context>(opened.model), bad = std::make_shared<Context>(opened.model);
  fill_state(*bad, 3e38f);
  const auto alone = std::make_shared<Context>(opened.model);
  const auto want = process(*opened.engine, {{alone, {1, 2}, false, 5, {}}});
  const auto got = process(*opened.engine, {{good, {1, 2}, false, 5, {}}, {bad, {1, 2, 3}, false, 5, {}}});
  CHECK(want && got);
  // The neighbour is not affected.
  CHECK(!(*got)[0].error && (*got)[0].generated == (*want)[0].generated &&
        good->head.chain.hex() == alone->head.chain.hex());
  CHECK((*got)[1].error && (*got)[1].error->message.starts_with("The state stopped being finite at pulse"));
  CHECK_SAYS(process(*opened.engine, {{bad, {1}, false, 0, {}}}), "reset or restore");
  bad->reset();
  CHECK(process(*opened.engine, {{bad, {1}, false, 0, {}}}));
}

TEST("engine: logits that are not finite end the item, not the state, and other items are finished first") {
  auto small = test::small_model(15, 8, 16, 2, Dtype::f32);
  auto opened = open(small, 1);
  std::vector<Item> items;
  std::vector<std::shared_ptr<Context>> contexts;
  for (int i = 0; i < 130; ++i) {
    contexts.push_back(std::make_shared<Context>(opened.model));
    CHECK(process(*opened.engine, {{contexts.back(), {1, 2}, false, 0, {}}}));
    // A huge hidden vector makes the logits overflow while the state stays finite.
    const bool huge = i < 128;
    float* last = reinterpret_cast<float*>(contexts.back()->data(opened.model->graph.language->last));
    for (size_t c = 0; huge && c < 16; ++c) last[c] = 3e38f;
    items.push_back({contexts.back(), {}, false, 3, {}});
  }
  const auto got = process(*opened.engine, items);
  CHECK(got);
  for (size_t i = 0; i < 128; ++i)
    CHECK((*got)[i].error && (*got)[i].error->message.starts_with("The logits stopped being finite at pulse 2"));
  for (size_t i = 128; i < 130; ++i) CHECK(!(*got)[i].error && (*got)[i].generated.size() == 3);
  CHECK(!contexts[0]->broken && contexts[0]->head.pulse == 2);
  const auto read = process(*opened.engine, {{contexts[0], {3}, true, 0, {}}});
  CHECK(read && (*read)[0].error && !std::isfinite((*read)[0].nats[0]));
}

TEST("engine: threads compute with the defaults of IEEE 754, whatever the thread that made them had set") {
  const auto chain = [] {
    auto opened = open(shared_small(), 2);
    auto context = std::make_shared<Context>(opened.model);
    fill_state(*context, 1e-40f);
    CHECK(process(*opened.engine, {{context, {1, 2, 3}, false, 0, {}}}));
    return context->head.chain.hex();
  };
  const auto normal = chain();
  std::fesetround(FE_UPWARD);
#if defined(__x86_64__)
  const auto before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);  // flush to zero, denormals are zero
#endif
  const auto odd = chain();
#if defined(__x86_64__)
  _mm_setcsr(before);
#endif
  std::fesetround(FE_TONEAREST);
  CHECK(odd == normal);
}

TEST("engine: stopping fails what is queued and calls every callback") {
  std::atomic<int> called{0};
  {
    auto opened = open(shared_small(), 2);
    for (int i = 0; i < 20; ++i) {
      auto context = std::make_shared<Context>(opened.model);
      CHECK(opened.engine->submit({context, std::vector<int32_t>(3000, 1), false, 0, {}}, [&](auto) { ++called; }));
    }
    opened.engine->stop();
  }
  CHECK(called == 20);
}

namespace {

// A device that lacks an op.
class OldDevice final : public CpuDevice {
 public:
  OldDevice() : CpuDevice(generic_kernels) {}
  std::string_view name() const override { return "old"; }
  bool runs(Op op) const override { return op != Op::cache_wkv7; }
};

}  // namespace

TEST("model: an op that the device cannot run is refused when the model is loaded") {
  ThreadPool pool(1);
  const auto& small = shared_small();
  CHECK_SAYS(Model::make(small.graph, small.image, pool, std::make_shared<OldDevice>()),
             "the device \"old\" does not have this operation");
  CHECK_SAYS(Model::make(small.graph, small.image, pool, std::make_shared<OldDevice>()), "graph: node cache.wkv7");
}

TEST("model: a tensor that does not fit the graph is refused by name") {
  ThreadPool pool(2);
  const auto small = test::small_model(15, 8, 16, 2, Dtype::f32);
  const auto make = [&](std::vector<test::Weight> weights) {
    return Model::make(small.graph, test::image_of(weights), pool, cpu_device(generic_kernels));
  };
  CHECK_SAYS(make({}), "tensor \"emb\" is missing");
  CHECK_SAYS(make({{"emb", {16, 8}, std::vector<float>(128)}}), "tensor \"emb\" has shape [16, 8], expected [8, 16]");
  auto image = small.image;
  const float nan = NAN;
  std::memcpy(image.data() + image.size() - 4 * 9, &nan, 4);
  CHECK_SAYS(Model::make(small.graph, image, pool, cpu_device(generic_kernels)),
             "tensor \"head\" holds NaN at element 119");
  const auto whole = test::image_of("{\"emb\":{\"dtype\":\"I64\",\"shape\":[8,16],\"data_offsets\":[0,1024]}}", 1024);
  CHECK_SAYS(Model::make(small.graph, whole, pool, cpu_device(generic_kernels)), "stored as I64");
}

TEST("thread pool: every task runs exactly once, whatever the number of threads") {
  for (const size_t threads : {1, 2, 4, 9}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 300; ++round) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(round % 40));
      pool.parallel_for(seen.size(), [&](size_t i) { ++seen[i]; });
      for (const auto& count : seen) CHECK(count == 1);
    }
  }
}

}  // namespace continuo::test::engine_test
