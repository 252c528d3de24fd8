#include "runtime/block_cache.h"

#include <atomic>
#include <thread>

#include "test/check.h"

using namespace continuo;
using namespace continuo::test;

namespace {

constexpr size_t size = 64;

std::vector<std::byte> filled(uint8_t value) { return std::vector<std::byte>(size, std::byte{value}); }

// Keeps the bytes of blocks that sleep, and brings those that are wanted. A listener hears once, under the mutex of the
// cache: so it only notes.
struct Owner {
  explicit Owner(BlockCache& of) : cache(of) { listen(); }
  ~Owner() { cache.listen(nullptr); }
  void listen() {
    cache.listen([this](BlockCache::News news) {
      for (const auto number : news.full) full.push_back(number);
      for (const auto number : news.wanted) wanted.push_back(number);
      for (const auto number : news.gone) gone.push_back(number);
      used += news.used.size();
    });
  }
  BlockCache& cache;
  std::vector<uint64_t> full, wanted, gone;
  size_t used = 0;
};

}  // namespace

TEST("block cache: a block that is full sleeps and comes back; one that is lent or awaited stays") {
  const auto cache = std::make_shared<BlockCache>();
  auto block = std::make_unique<SleepyBytes>(cache, size, false);
  SleepyBytes* const blocks[] = {block.get()};
  const uint64_t number = block->number;
  CHECK(block->filling_bytes() == size && block->data()[0] == std::byte{0});
  CHECK(!cache->sleep(number) && !cache->copy(number));
  block->data()[0] = std::byte{7};
  block->full();
  CHECK(block->filling_bytes() == 0);
  const auto bytes = cache->copy(number);
  CHECK(bytes && (*bytes)[0] == std::byte{7});

  auto lent = cache->borrow(blocks);
  CHECK(lent && !*lent && !cache->sleep(number));
  cache->give_back(blocks);
  CHECK(cache->sleep(number) && block->data() == nullptr && !cache->copy(number));

  auto awaited = cache->borrow(blocks);
  CHECK(awaited && *awaited && !(*awaited)->ready());
  const auto again = cache->borrow(blocks);
  CHECK(again && *again == *awaited);
  CHECK(!cache->wake(number, std::span(*bytes).first(size - 1)));
  CHECK(cache->wake(number, *bytes));
  CHECK((*awaited)->ready() && block->data()[0] == std::byte{7});
  // Somebody waited for it, and has not read it yet.
  CHECK(!cache->sleep(number));
  {
    Loan loan(*cache, {block.get()});
    const auto taken = loan.take();
    CHECK(taken && !*taken && !cache->sleep(number));
  }
  CHECK(cache->sleep(number));
  block.reset();
  CHECK(!cache->sleep(number) && cache->wake(number, *bytes));
}

TEST("block cache: all or none are lent; what cannot be had is an error for who asks next, and is wanted again then") {
  const auto cache = std::make_shared<BlockCache>();
  SleepyBytes first(cache, size, false), second(cache, size, true), third(cache, size, true);
  first.full();
  SleepyBytes* const blocks[] = {&first, &second, &third};
  auto awaited = cache->borrow(blocks);
  CHECK(awaited && *awaited && !cache->sleep(first.number));
  CHECK(cache->wake(third.number, filled(3)));
  CHECK(!(*awaited)->ready());
  cache->refuse(second.number, {Code::unavailable, "away"});
  CHECK((*awaited)->ready());
  const auto refused = cache->borrow(blocks);
  CHECK(!refused && refused.error().message == "away");
  awaited = cache->borrow(blocks);
  CHECK(awaited && *awaited && !(*awaited)->ready());
  CHECK(cache->wake(second.number, filled(2)));
  const auto lent = cache->borrow(blocks);
  CHECK(lent && !*lent && second.data()[0] == std::byte{2} && third.data()[0] == std::byte{3});
  cache->give_back(blocks);
  CHECK(cache->sleep(second.number));
  // Wanted without a need to keep it: it may go again at once.
  CHECK(cache->want(blocks, false).size() == 1);
  CHECK(cache->wake(second.number, filled(2)) && cache->sleep(second.number));
  CHECK(cache->want(blocks, true).size() == 1);
  CHECK(cache->wake(second.number, filled(2)) && !cache->sleep(second.number));
}

TEST("block cache: news has every block once, in order, also those from before anybody listened") {
  const auto cache = std::make_shared<BlockCache>();
  std::vector<std::unique_ptr<SleepyBytes>> blocks;
  for (size_t i = 0; i < 3; ++i) blocks.push_back(std::make_unique<SleepyBytes>(cache, size, false));
  blocks[0]->full();
  blocks[0]->full();
  Owner owner(*cache);
  CHECK(owner.full == std::vector{blocks[0]->number});
  // Noted, until somebody listens again.
  blocks[1]->full();
  SleepyBytes* const some[] = {blocks[0].get(), blocks[1].get()};
  (void)cache->borrow(some);
  cache->give_back(some);
  CHECK(owner.used == 0);
  owner.listen();
  CHECK((owner.full == std::vector{blocks[0]->number, blocks[1]->number}) && owner.used == 2);
  owner.listen();
  CHECK(cache->sleep(blocks[0]->number));
  CHECK(cache->want(some, false).size() == 1 && cache->want(some, false).size() == 1);
  CHECK(owner.wanted == std::vector{blocks[0]->number});
  owner.listen();
  const uint64_t last = blocks[1]->number;
  // One that never was full was never told of.
  blocks.pop_back();
  blocks.pop_back();
  CHECK(owner.gone == std::vector{last});
}

TEST(
    "block cache: threads that read while others send blocks to sleep and bring them find the bytes that were "
    "written") {
  const auto cache = std::make_shared<BlockCache>();
  std::vector<std::unique_ptr<SleepyBytes>> blocks;
  for (size_t i = 0; i < 8; ++i) {
    blocks.push_back(std::make_unique<SleepyBytes>(cache, size, true));
    CHECK(cache->wake(blocks[i]->number, filled(static_cast<uint8_t>(i))));
  }
  std::atomic<bool> over{false}, wrong{false};
  std::thread owner([&] {
    while (!over) {
      for (size_t i = 0; i < blocks.size(); ++i) {
        (void)cache->sleep(blocks[i]->number);
        (void)cache->wake(blocks[i]->number, filled(static_cast<uint8_t>(i)));
      }
    }
  });
  const auto read = [&](size_t seed) {
    for (size_t round = 0; round < 2000; ++round) {
      const size_t a = (round + seed) % 8, b = (round * 3 + 1) % 8;
      std::vector<SleepyBytes*> some{blocks[a].get()};
      if (a != b) some.push_back(blocks[b].get());
      Loan loan(*cache, some);
      for (;;) {
        auto awaited = loan.take();
        if (!awaited) wrong = true;
        if (!awaited || !*awaited) break;
        while (!(*awaited)->ready()) std::this_thread::yield();
      }
      for (const auto* block : some) {
        const size_t which = block == some[0] ? a : b;
        if (block->data()[size - 1] != std::byte{static_cast<uint8_t>(which)}) wrong = true;
      }
    }
  };
  std::thread other(read, 5);
  read(0);
  other.join();
  over = true;
  owner.join();
  CHECK(!wrong);
}
