// The engine on a CUDA device, real or emulated, has the CPU's bits, also when memory is short or the device is lost.
#include <cmath>

#include "backends/cpu/device.h"
#include "backends/cpu/kernels/kernels.h"
#include "backends/cuda/cuda.h"
#include "backends/cuda/device.h"
#include "backends/cuda/executor.h"
#include "test/cuda/emulated.h"
#include "test/runtime/engines.h"

namespace continuo::test::cuda_engine_test {

namespace {

constexpr size_t vocabulary = 40, channels = 48;

const test::SmallModel& small(Dtype dtype = Dtype::bf16) {
  static const auto bf16 = test::small_model(11, vocabulary, channels, 3, Dtype::bf16),
                    f16 = test::small_model(12, vocabulary, channels, 2, Dtype::f16),
                    f32 = test::small_model(13, vocabulary, channels, 1, Dtype::f32);
  return dtype == Dtype::bf16 ? bf16 : dtype == Dtype::f16 ? f16 : f32;
}

// Compares nats; NaN, which a first token has, equals NaN.
bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y) || (std::isnan(x) && std::isnan(y));
  });
}

bool same(const ItemResult& a, const ItemResult& b) {
  return same(a.nats, b.nats) && a.generated == b.generated && same(a.logprobs, b.logprobs) &&
         a.head.chain == b.head.chain && a.head.pulse == b.head.pulse && a.error.has_value() == b.error.has_value();
}

std::vector<std::byte> state_of(Context& context) {
  std::vector<std::byte> out(context.serialized_bytes());
  CHECK(context.serialize(out));
  return out;
}

// One model on the device and on the host.
struct Twins {
  ThreadPool pool{1};
  Result<std::shared_ptr<Device>> device = open_cuda();
  std::shared_ptr<const Model> there, here;
  Twins() {
    auto on_device = Model::make(small().graph, small().image, pool, *device),
         on_host = Model::make(small().graph, small().image, pool, cpu_device(*runnable_kernels().front()));
    CHECK(on_device && on_host);
    there = *on_device, here = *on_host;
  }
};

}  // namespace

TEST("cuda: any cut and batch gives the CPU's chain, nats, logits and draws, for every number format") {
  for (const Dtype dtype : {Dtype::bf16, Dtype::f16, Dtype::f32}) {
    test::Random random(31);
    auto host = open(small(dtype), 2);
    auto device = open(small(dtype), 2, open_cuda);
    CHECK(device.model->device->name() == "cuda");
    constexpr size_t sessions = 5;
    std::vector<std::shared_ptr<Context>> here, there;
    for (size_t i = 0; i < sessions; ++i) {
      here.push_back(std::make_shared<Context>(host.model));
      there.push_back(std::make_shared<Context>(device.model));
    }
    for (int round = 0; round < 6; ++round) {
      std::vector<Item> items, others;
      for (size_t i = 0; i < sessions; ++i) {
        if (round > 0 && random.below(4) == 0) continue;
        // Usual sampling settings; the first round is long enough for several steps.
        const Sampling sampling{i % 2 == 0 ? 0.0f : 0.9f, i % 3 == 0 ? 7u : 0u, 0.95, 70 + i};
        const Item item{here[i],
                        random_tokens(random, round == 0 ? 1 + random.below(200) : 1 + random.below(30), vocabulary),
                        random.below(2) == 0, static_cast<uint32_t>(random.below(8)), sampling};
        items.push_back(item);
        others.push_back(item);
        others.back().context = there[i];
      }
      const auto want = process(*host.engine, items), got = process(*device.engine, others);
      CHECK(want && got && want->size() == got->size());
      for (size_t i = 0; want && got && i < want->size(); ++i) CHECK(same((*want)[i], (*got)[i]));
    }
    for (size_t i = 0; i < sessions; ++i) {
      CHECK(state_of(*here[i]) == state_of(*there[i]));
      const auto want = logits(*host.engine, here[i]), got = logits(*device.engine, there[i]);
      CHECK(want && got && same(*want, *got));
    }
  }
}

TEST("cuda: a snapshot of one device is restored on the other, and the session goes on with the same bits") {
  auto host = open(small(), 1);
  auto device = open(small(), 1, open_cuda);
  const Sampling sampling{0.8f, 0, 0.9, 5};
  auto whole = std::make_shared<Context>(host.model);
  const auto want = process(*host.engine, {{whole, {1, 2, 3}, false, 30, sampling}});
  std::vector<int32_t> generated;
  std::shared_ptr<Context> now = std::make_shared<Context>(device.model);
  CHECK(process(*device.engine, {{now, {1, 2, 3}, false, 0, {}}}));
  for (int turn = 0; turn < 6; ++turn) {
    const bool on_device = turn % 2 == 0;
    auto part = process(on_device ? *device.engine : *host.engine, {{now, {}, false, 5, sampling}});
    CHECK(part);
    generated.insert(generated.end(), (*part)[0].generated.begin(), (*part)[0].generated.end());
    auto next = std::make_shared<Context>(on_device ? host.model : device.model);
    CHECK(next->restore(state_of(*now), now->head));
    now = next;
  }
  CHECK(generated == (*want)[0].generated && now->head.chain == whole->head.chain &&
        state_of(*now) == state_of(*whole));
}

TEST("cuda: a step of one shape is launched, then captured, then replayed, with the same bits") {
  test::Random random(32);
  Twins twins;
  cuda::CudaExecutor replaying(std::static_pointer_cast<cuda::CudaDevice>(*twins.device), twins.there, twins.pool, {});
  const auto plain = twins.here->device->executor(twins.here, twins.pool, {});
  Context there(twins.there), here(twins.here);
  for (const size_t rows : {1, 1, 1, 7, 7, 1, 7, 1}) {
    const auto tokens = random_tokens(random, rows, vocabulary);
    CHECK(same(test::hidden_vectors(*plain, here, tokens), test::hidden_vectors(replaying, there, tokens)));
    here.head.pulse += rows;
    there.head.pulse += rows;
  }
  CHECK(replaying.graphs() == 2);
  CHECK(state_of(here) == state_of(there));
}

TEST("cuda: steps without a wait between them run in order, each with its own rows") {
  test::Random random(34);
  Twins twins;
  const auto block = twins.here->graph.language->step;
  const auto device = twins.there->device->executor(twins.there, twins.pool, {}),
             host = twins.here->device->executor(twins.here, twins.pool, {});
  Context there(twins.there), here(twins.here);
  for (int round = 0; round < 60; ++round) {
    const size_t rows = 1 + random.below(3);
    for (int again = 0; again < 2; ++again) {
      const auto tokens = random_tokens(random, rows, vocabulary);
      for (auto* executor : {device.get(), host.get()}) executor->insert(block, 0, std::as_bytes(std::span(tokens)));
    }
    for (auto& [executor, context] : {std::pair{device.get(), &there}, std::pair{host.get(), &here}}) {
      const Run run{context, 0, rows};
      executor->step(block, rows, {&run, 1});
      context->head.pulse += rows;
    }
  }
  device->settle();
  CHECK(state_of(here) == state_of(there));
}

TEST(
    "cuda: tracing and watching go line by line and change no bit; a number that is not finite is found where it was "
    "made") {
  test::Random random(33);
  ThreadPool pool(1);
  const auto opened = open_cuda();
  auto model = Model::make(small().graph, small().image, pool, *opened);
  CHECK(model);
  const auto tokens = random_tokens(random, 9, vocabulary);
  const auto plain = (*model)->device->executor(*model, pool, {}),
             told = (*model)->device->executor(*model, pool, {.reuse = false, .trace = true, .watch = true});
  Context a(*model), b(*model);
  CHECK(same(test::hidden_vectors(*plain, a, tokens), test::hidden_vectors(*told, b, tokens)));
  CHECK(told->trace().size() == (*model)->programs[(*model)->graph.language->step].code.size());
  CHECK(told->first_non_finite(&b) == nullptr);
  for (const auto& slice : (*model)->layout) {
    if ((*model)->graph.declarations[slice.name].name == "S")
      (*model)->device->fill(b.data(slice.name), slice.type, slice.elements, NAN);
  }
  CHECK(!b.finite() && a.finite());
  (void)test::hidden_vectors(*told, b, tokens);
  CHECK(told->first_non_finite(&b) && told->first_non_finite(&b)->find("cache.wkv7") != std::string::npos);
}

TEST("cuda: a model decodes in a handful of launches for a layer") {
  ThreadPool pool(1);
  const auto opened = open_cuda();
  auto model = Model::make(small().graph, small().image, pool, *opened);
  cuda::CudaExecutor executor(std::static_pointer_cast<cuda::CudaDevice>(*opened), *model, pool, {});
  // embed … lerp | r, w.z | add, decay | k, v, a.z → a | heads | f → f.e | f.o → f.t | add, shift
  CHECK(executor.launches((*model)->graph.language->step) == 8);
}

#if defined(CONTINUO_EMULATE)
TEST("cuda: an unusable device is refused with what is missing and what to do") {
  const auto says = [](const char* kind, const char* part) {
    const Emulated device("CONTINUO_EMULATED_DEVICE", kind);
    const auto opened = open_cuda();
    CHECK(!opened && opened.error().code == Code::unavailable &&
          opened.error().message.find(part) != std::string::npos);
    CHECK(cuda_status().reason.find(part) != std::string::npos);
  };
  says("none", "shows no device");
  says("driver", "update the driver");
  says("old", "compute capability 7.5");
}

TEST("cuda: more sessions than the device has memory for take turns, with the bits of sessions that have room") {
  test::Random random(34);
  const Emulated device("CONTINUO_EMULATED_MEMORY", std::to_string(size_t{14} << 20));
  auto host = open(small(), 1);
  auto opened = open(small(), 1, open_cuda);
  const auto& residency = std::static_pointer_cast<cuda::CudaDevice>(opened.model->device)->residency();
  // Each session has 4 kB of state, and CUDA takes memory in large pieces: the test fills the remaining memory first.
  std::vector<DeviceMemory> filler;
  for (const size_t piece : {size_t{1} << 20, size_t{1} << 14}) {
    try {
      for (;;) filler.emplace_back(opened.model->device, piece);
    } catch (const DeviceError& error) {
      CHECK(std::string(error.what()).find("were asked for") != std::string::npos);
    }
  }
  filler.pop_back();
  std::vector<std::shared_ptr<Context>> here, there;
  for (size_t i = 0; i < 12; ++i) {
    here.push_back(std::make_shared<Context>(host.model));
    there.push_back(std::make_shared<Context>(opened.model));
  }
  CHECK(residency.paged_out() > 0);
  for (int round = 0; round < 4; ++round) {
    std::vector<Item> items, others;
    for (size_t i = 0; i < here.size(); ++i) {
      items.push_back({here[i],
                       random_tokens(random, 1 + random.below(20), vocabulary),
                       true,
                       static_cast<uint32_t>(random.below(5)),
                       {1, 0, 1, i}});
      others.push_back(items.back());
      others.back().context = there[i];
    }
    const auto want = process(*host.engine, items), got = process(*opened.engine, others);
    CHECK(want && got);
    for (size_t i = 0; want && got && i < want->size(); ++i) CHECK(same((*want)[i], (*got)[i]));
  }
  for (size_t i = 0; i < here.size(); ++i) CHECK(state_of(*here[i]) == state_of(*there[i]));
}

TEST(
    "cuda: a device that is lost takes its contexts with it; the model comes back, and contexts restored go on as if "
    "nothing had been") {
  auto host = open(small(), 1);
  const test::TemporaryFile file(small().image);
  for (const uint64_t launch : {3, 40, 90}) {
    const Emulated fault("CONTINUO_EMULATED_FAULT", std::to_string(emulate::launches() + launch));
    Engine engine(1);
    std::promise<Result<std::shared_ptr<const Model>>> loaded;
    engine.load(
        small().graph, {file.path}, {}, {}, [&](auto result) { loaded.set_value(std::move(result)); }, open_cuda);
    CHECK(loaded.get_future().get());
    auto reference = std::make_shared<Context>(host.model);
    CHECK(process(*host.engine, {{reference, {1, 2, 3}, false, 0, {}}}));
    auto now = std::make_shared<Context>(engine.model());
    std::vector<std::byte> saved;
    Head head;
    size_t losses = 0;
    CHECK(now->restore(state_of(*reference), reference->head));
    for (int turn = 0; turn < 12;) {
      const auto want = turn;
      const auto done = process(engine, {{now, {static_cast<int32_t>(turn)}, false, 2, {1, 0, 1, 9}}});
      if (done && !(*done)[0].error) {
        saved = state_of(*now);
        head = now->head;
        ++turn;
        continue;
      }
      CHECK(want == turn && ++losses < 3);
      CHECK(done && (*done)[0].error && (*done)[0].error->message.find("lost") != std::string::npos);
      CHECK(now->model().device->lost() && !engine.model()->device->lost());
      CHECK_SAYS(process(engine, {{now, {1}, false, 0, {}}}), "");
      now = std::make_shared<Context>(engine.model());
      CHECK(saved.empty() ? now->restore(state_of(*reference), reference->head) : now->restore(saved, head));
    }
    CHECK(losses == 1);
    for (int turn = 0; turn < 12; ++turn)
      CHECK(process(*host.engine, {{reference, {static_cast<int32_t>(turn)}, false, 2, {1, 0, 1, 9}}}));
    CHECK(reference->head.chain == now->head.chain);
  }
}
#endif

}  // namespace continuo::test::cuda_engine_test
