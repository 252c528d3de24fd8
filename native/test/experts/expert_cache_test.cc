// The cache of experts: what it lends is what the store has, whatever its size and whichever way a record came; what it
// evicts is what docs/experts.md says.
#include <thread>

#include "test/experts/expert_stores.h"

namespace continuo::test::expert_cache_test {

using namespace continuo::experts;

namespace {

void run_random_steps(const Store& store, const std::shared_ptr<ExpertCache>& cache, size_t steps, uint64_t seed) {
  Random random(seed);
  const size_t count = store.layers[0].payloads.size();
  for (size_t step = 0; step < steps; ++step) {
    const size_t layer = step % store.layers.size();
    const auto chosen = some_experts(random, 1 + random.below(6), count);
    route(cache, store.numbers[layer], chosen);
    cache->want(store.numbers[layer], chosen, Reason::demand);
    const size_t next = (layer + 1) % store.layers.size();
    const auto guess = some_experts(random, 3, count);
    cache->predicted(store.numbers[next], 1, guess);
    cache->want(store.numbers[next], guess, Reason::ahead1);
    take_all(store, cache, layer, chosen);
  }
}

}  // namespace

TEST("expert cache: every payload is that of the record, for any size, backend, order and way") {
  const Store store;
  for (const size_t records : {2, 3, 9, 32}) {
    for (const bool deltas : {false, true}) {
      for (const Io io : {Io::direct, Io::buffered}) {
        for (const Backend backend : {Backend::automatic, Backend::threads}) {
          CacheOptions options;
          options.deltas = deltas;
          options.io = io;
          options.backend = backend;
          const auto cache = store.cache(records, options);
          run_random_steps(store, cache, rounds(60), records);
          const auto told = cache->statistics();
          CHECK(told.failed_checks == 0 && told.retries == 0 && told.deltas_refused == 0);
          CHECK(told.resident_bytes <= records * store.memory);
          CHECK((told.deltas_used > 0) == (deltas && records > 2) || records == 2);
          CHECK(records < 32 || told.evictions == 0);
          CHECK(told.hits <= told.uses && told.prefetched <= told.hits);
        }
      }
      const auto script = std::make_shared<Script>();
      script->shuffled = true;
      auto options = scripted(script);
      options.deltas = deltas;
      run_random_steps(store, store.cache(records, options), rounds(60), records);
    }
  }
}

TEST("expert cache: records of several pieces come whole, in any order of their pieces") {
  const Store store(1, 8, 3, {Coding::ternary3, 2048, 1536, 32});
  CHECK(store.record > 2 * (size_t{1} << 20));
  const auto script = std::make_shared<Script>();
  script->shuffled = true;
  run_random_steps(store, store.cache(3, scripted(script)), 12, 5);
  run_random_steps(store, store.cache(3), 12, 5);
}

TEST("expert cache: of a bound that holds one record the number that it needs is said") {
  const Store store;
  CacheOptions options;
  options.bytes = 2 * store.memory - 1;
  const auto refused = store.open(options);
  const auto needed = text("two experts of layer 1 need ", 2 * store.memory, " bytes");
  CHECK(!refused && refused.error().message.find(needed) != std::string::npos);
  options.bytes = 2 * store.memory;
  CHECK(store.open(options));
  options.depth = 7;
  CHECK_SAYS(store.open(options), "The depth of reads is 7, expected 8 to 32");
}

TEST("expert cache: layers and experts that there are not are an error in take, and ignored elsewhere") {
  const Store store;
  const auto cache = store.cache(4);
  const Experts none{16}, first{0};
  CHECK_SAYS(cache->take(1, none), "has no expert 16");
  CHECK_SAYS(cache->take(2, first), "layer 2");
  CHECK_SAYS(cache->take(1, Experts{}), "no expert of layer 1 was asked for");
  cache->want(2, first, Reason::demand);
  cache->want(1, none, Reason::warm);
  cache->routed(7, first, first);
  cache->predicted(1, 3, first);
  cache->predicted(1, 1, none);
  CHECK(!cache->ready(2, 0) && !cache->index(2) && cache->index(4)->layer == 4);
  take_all(store, cache, 0, first);
  CHECK(cache->ready(1, 0));
}

TEST("expert cache: of the residents the one that came first is lent first") {
  const Store store(1);
  const auto cache = store.cache(8);
  for (const uint32_t expert : {5u, 2u, 7u}) take_all(store, cache, 0, {expert});
  const Experts pending{0, 7, 2, 5};
  const auto loan = cache->take(1, pending);
  CHECK(loan && loan->index == 3);
}

TEST("expert cache: what is lent, and what is demanded, is not evicted; what was given up is") {
  const Store store(1);
  const auto cache = store.cache(2);
  const auto held = cache->take(1, Experts{3});
  CHECK(held);
  for (uint32_t e = 4; e < 16; ++e) take_all(store, cache, 0, {e});
  CHECK(held && store.is(*held, 0, 3));

  const auto other = store.cache(2);
  const Experts both{0, 1};
  other->want(1, both, Reason::demand);
  take_all(store, other, 0, {0, 1});
  other->want(1, both, Reason::demand);
  // Nobody comes for them; who waits may take their room all the same.
  take_all(store, other, 0, {9, 12, 2});
  other->want(1, both, Reason::demand);
  other->unwant(1, both);
  take_all(store, other, 0, {5, 6});
}

TEST("expert cache: a wake is called when the expert arrives, and at once where nothing is on its way") {
  const Store store(1);
  const auto script = std::make_shared<Script>();
  script->hold();
  const auto cache = store.cache(4, scripted(script));
  std::atomic<int> woken{0};
  const auto wake = [&] { woken.fetch_add(1), woken.notify_all(); };
  cache->on_arrival(1, 3, wake);
  CHECK(woken == 1);
  const Experts wanted{3};
  cache->want(1, wanted, Reason::ahead1);
  script->wait_for(1);
  cache->on_arrival(1, 3, wake);
  CHECK(woken == 1 && !cache->ready(1, 3));
  script->release_all();
  woken.wait(1);
  CHECK(woken == 2 && cache->ready(1, 3));
  cache->on_arrival(1, 3, wake);
  CHECK(woken == 3);
}

TEST("expert cache: a demand overtakes look-ahead and warm-up among what was not begun") {
  const Store store(1, 32);
  const auto script = std::make_shared<Script>();
  script->hold();
  auto options = scripted(script);
  options.depth = 8;
  options.deltas = false;
  const auto cache = store.cache(32, options);
  Experts ahead;
  for (uint32_t e = 0; e < 12; ++e) ahead.push_back(e);
  const Experts warm{12, 13}, demand{20, 21}, raised{11};
  cache->want(1, ahead, Reason::ahead1);
  script->wait_for(8);
  cache->want(1, warm, Reason::warm);
  cache->want(1, demand, Reason::demand);
  cache->want(1, raised, Reason::demand);
  script->release_all();
  take_all(store, cache, 0, ahead);
  take_all(store, cache, 0, warm);
  take_all(store, cache, 0, demand);
  const auto started = script->wait_for(16);
  Experts order;
  for (const uint64_t offset : started)
    order.push_back(static_cast<uint32_t>((offset - store.offset(0, 0)) / store.record));
  CHECK((order == Experts{0, 1, 2, 3, 4, 5, 6, 7, 20, 21, 11, 8, 9, 10, 12, 13}));
  const auto told = cache->statistics();
  CHECK(told.demand_bytes == 2 * store.record && told.ahead_bytes == 12 * store.record);
  CHECK(told.warm_bytes == 2 * store.record);
}

TEST("expert cache: four callers take at once from a cache that holds fewer experts than they want") {
  const Store store;
  for (const size_t records : {2, 4, 20}) {
    const auto script = std::make_shared<Script>();
    script->shuffled = true;
    for (const auto& cache : {store.cache(records), store.cache(records, scripted(script))}) {
      std::vector<std::thread> callers;
      for (uint64_t i = 0; i < 4; ++i) callers.emplace_back([&, i] { run_random_steps(store, cache, 80, 100 + i); });
      for (auto& caller : callers) caller.join();
      CHECK(cache->statistics().resident_bytes <= records * store.memory);
    }
  }
}

TEST("expert cache: it is destroyed with reads on their way, queued and ended") {
  const Store store(1, 16, 2, {Coding::ternary3, 2048, 1536, 32});
  Experts all;
  for (uint32_t e = 0; e < 16; ++e) all.push_back(e);
  for (const size_t ended : {0, 3, 9}) {
    const auto script = std::make_shared<Script>();
    script->hold();
    auto cache = store.cache(8, scripted(script));
    cache->want(1, all, Reason::demand);
    script->release(ended);
    script->wait_for(16);
    std::thread destroyer([&] { cache.reset(); });
    script->release_all();
    destroyer.join();
  }
  for (const Backend backend : {Backend::automatic, Backend::threads}) {
    CacheOptions options;
    options.backend = backend;
    auto cache = store.cache(8, options);
    cache->want(1, all, Reason::demand);
  }
  // A loan keeps what it lends.
  auto cache = store.cache(2);
  const auto loan = cache->take(1, all);
  cache.reset();
  CHECK(loan && store.is(*loan, 0, all[loan->index]));
}

TEST("expert cache: predictions are judged when their layer is routed; what was wrong and still waits is dropped") {
  const Store store;
  const auto script = std::make_shared<Script>();
  const auto cache = store.cache(12, scripted(script));
  take_all(store, cache, 1, {0});
  const Experts guess{0, 1, 2, 3}, right{0, 1, 9};
  cache->predicted(4, 1, guess);
  const Experts read{1, 2};
  cache->want(4, read, Reason::ahead1);
  take_all(store, cache, 1, read);
  cache->predicted(4, 2, guess);
  script->hold();
  const Experts waiting{3};
  cache->want(4, waiting, Reason::ahead2);
  route(cache, 4, right);
  auto told = cache->statistics();
  const auto &first = told.ahead[0], &second = told.ahead[1];
  CHECK(first.predictions == 4 && first.right == 2 && first.already_resident == 1);
  CHECK(first.in_time == 1 && first.useless == 2);  // 2 was read, 3 is on its way
  CHECK(second.predictions == 4 && second.right == 2 && second.already_resident == 3 && second.in_time == 0);
  CHECK(told.uses == 3 && told.hits == 2 && told.prefetched == 1);
  script->release_all();
}

}  // namespace continuo::test::expert_cache_test
