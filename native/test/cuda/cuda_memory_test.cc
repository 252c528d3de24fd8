// An external memory on a CUDA device: what its controller reads of a step comes in one piece, and lists are there for
// the step that attends to them.
#include "backends/cpu/device.h"
#include "backends/cuda/cuda.h"
#include "runtime/scheduler/scheduler.h"
#include "test/cuda/emulated.h"
#include "test/runtime/engines.h"
#include "test/runtime/outer_memory.h"

namespace continuo::test::cuda_memory_test {

namespace {

constexpr size_t vocabulary = 30;

// Contexts of one model, and a scheduler that works for them in this thread: what goes together into a step is certain.
class Sessions {
 public:
  Sessions(std::shared_ptr<Device> device, size_t count)
      : small_(outer_memory(511, vocabulary)),
        model_(*Model::make(small_.graph, small_.image, pool_, std::move(device))),
        executor_(model_->device->executor(model_, pool_, {})) {
    for (size_t i = 0; i < count; ++i) contexts.push_back(std::make_shared<Context>(model_));
  }

  // All sessions do this in the same steps. How many steps that took.
  uint64_t process(size_t reads, uint32_t generates) {
    const InUse in_use(model_->device);
    const uint64_t before = scheduler_.counts().steps;
    for (size_t i = 0; i < contexts.size(); ++i) {
      CHECK(contexts[i]->claim());
      Random random(i);
      scheduler_.admit({contexts[i], random_tokens(random, reads, vocabulary), false, generates, {1, 0, 1, i}},
                       [this](ItemResult result) {
                         CHECK(!result.error);
                         events += result.events.size();
                       });
    }
    while (!scheduler_.empty()) scheduler_.step(*executor_);
    return scheduler_.counts().steps - before;
  }
  // Chains and states, to be compared.
  std::vector<std::pair<Chain, std::vector<std::byte>>> told() const {
    std::vector<std::pair<Chain, std::vector<std::byte>>> out;
    for (const auto& context : contexts) {
      std::vector<std::byte> state(context->serialized_bytes());
      CHECK(context->serialize(state));
      out.emplace_back(context->head.chain, std::move(state));
    }
    return out;
  }
  const ExternalMemory::Names& names() const { return model_->graph.memory->names; }
  // Steps the first session by a token, and has its controller work behind it.
  template <class Finish> void step_alone(const Finish& finish) {
    auto& context = *contexts[0];
    const auto& language = *model_->graph.language;
    const int32_t token = 3;
    std::vector<MemoryEvent> seen;
    const Run run{&context, 0, 1};
    CHECK(MemoryController(context, pool_, seen).prepare() == nullptr);
    executor_->insert(language.step, 0, std::as_bytes(std::span(&token, 1)));
    executor_->step(language.step, 1, {&run, 1});
    const uint32_t value = model_->programs[language.step].last_value[language.hidden];
    const auto* hidden = reinterpret_cast<const float*>(executor_->fetch(language.step, value, 1));
    ++context.head.pulse;
    MemoryController controller(context, pool_, seen);
    controller.take(0, 1, {hidden, model_->graph.width(language.hidden)});
    finish([&] { controller.finish(token); });
  }

  std::vector<std::shared_ptr<Context>> contexts;
  size_t events = 0;

 private:
  const SmallModel small_;
  ThreadPool pool_{2};
  const std::shared_ptr<const Model> model_;
  const std::unique_ptr<Executor> executor_;
  Scheduler scheduler_{1, [] {}, [] { return false; }};
};

}  // namespace

TEST("cuda memory: sessions with an external memory that share their steps have the bits of the CPU") {
  Sessions here(*open_cpu(), 6);
  (void)here.process(70, 40);
  const auto want = here.told();
  CHECK(here.events > 6 * 30);
  for (const bool late : {true, false}) {
    const Late pace(late);
    Sessions there(*open_cuda(), 6);
    (void)there.process(70, 40);
    CHECK(there.told() == want && there.events == here.events);
  }
}

TEST(
    "cuda memory: rows of rings of several contexts have the bytes of where they lie, also when some are there "
    "already") {
  Sessions here(*open_cpu(), 3), there(*open_cuda(), 3);
  for (auto* sessions : {&here, &there}) (void)sessions->process(37, 0);
  const auto& names = there.names();
  std::vector<HostRows> want, got;
  for (size_t i = 0; i < 3; ++i) {
    want.emplace_back(*here.contexts[i]);
    got.emplace_back(*there.contexts[i]);
  }
  const auto same = [&](Name ring, size_t position) {
    bool all = true;
    for (size_t i = 0; i < 3; ++i)
      all = all && std::memcmp(got[i].at(ring, 0, position), want[i].at(ring, 0, position), 8 * sizeof(float)) == 0;
    return all;
  };
  std::vector<HostRows::Wanted> wanted;
  for (auto& rows : got) {
    wanted.push_back({&rows, names.window_k, 23, 26});
    wanted.push_back({&rows, names.window_k, 33, 37});
    wanted.push_back({&rows, names.window_v, 30, 34});
  }
  HostRows::bring(wanted);
  for (const size_t position : {23, 24, 25, 33, 34, 35, 36}) CHECK(same(names.window_k, position));
  for (const size_t position : {30, 31, 32, 33}) CHECK(same(names.window_v, position));
  for (auto& rows : got) rows.bring(names.window_k, 27, 28);
  CHECK(same(names.window_k, 27) && same(names.window_v, 31));
}

#if defined(CONTINUO_EMULATE)
TEST("cuda memory: a step waits for the device as often for many sessions as for one") {
  // The waits of a step in which no block is completed, where nothing grows and no item begins or ends.
  const auto waits = [](size_t sessions) {
    Sessions all(*open_cuda(), sessions);
    CHECK(all.process(80, 1) > 0);
    const auto of = [&](uint32_t tokens) {
      const auto before = emulate::calls().waits;
      CHECK(all.process(0, tokens) == tokens);
      return emulate::calls().waits - before;
    };
    const auto one = of(1);
    return of(3) - one;
  };
  const auto alone = waits(1);
  // In each of the two steps for the logits, for the hidden vectors, and for what was asked.
  CHECK(alone == 2 * 3 && waits(7) == alone);
}

TEST("cuda memory: a beat reads the block that it closes and the block that it archives with one download") {
  Sessions one(*open_cuda(), 1);
  (void)one.process(79, 0);
  one.step_alone([&](const auto& finish) {
    const auto archived = one.contexts[0]->counter(one.names().archived);
    const auto before = emulate::calls().waits;
    finish();
    CHECK(emulate::calls().waits == before + 1);
    CHECK(one.contexts[0]->counter(one.names().archived) == archived + 1);
  });
}
#endif

}  // namespace continuo::test::cuda_memory_test
