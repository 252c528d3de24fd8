#include "runtime/model/block_cache.h"

#include <atomic>
#include <thread>

#include "test/check.h"

namespace continuo::test::block_cache_test {

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

TEST("block cache: a block that is full sleeps and comes back; one that is lent stays") {
  const auto cache = std::make_shared<BlockCache>();
  const Owner owner(*cache);
  auto block = std::make_shared<SleepyBytes>(cache, size, false);
  const uint64_t number = block->number;
  CHECK(block->filling_bytes() == size && block->data()[0] == std::byte{0});
  CHECK(!cache->sleep(number) && !cache->copy(number));
  block->data()[0] = std::byte{7};
  block->note_full();
  CHECK(block->filling_bytes() == 0);
  const auto bytes = cache->copy(number);
  CHECK(bytes && (*bytes)[0] == std::byte{7});
  {
    Loan loan({block}), another({block});
    CHECK(loan.missing().empty() && !cache->sleep(number));
    another = Loan();
    CHECK(!cache->sleep(number));
  }
  CHECK(cache->sleep(number) && block->data() == nullptr && !cache->copy(number));
  {
    Loan loan({block}), another({block});
    const auto missing = loan.missing();
    CHECK(missing.size() == 1 && !missing[0]->ready() && another.missing() == missing);
    CHECK(!cache->wake(number, std::span(*bytes).first(size - 1)) && !missing[0]->ready());
    CHECK(cache->wake(number, *bytes));
    CHECK(missing[0]->ready() && !missing[0]->error() && loan.missing().empty());
    // Both have it until both end.
    another = Loan();
    CHECK(!cache->sleep(number) && block->data()[0] == std::byte{7});
  }
  CHECK(cache->sleep(number));
  block.reset();
  CHECK(!cache->sleep(number) && cache->wake(number, *bytes));
}

TEST("block cache: what cannot be had is told to who waits for it, and to nobody who comes later") {
  const auto cache = std::make_shared<BlockCache>();
  const Owner owner(*cache);
  const auto first = std::make_shared<SleepyBytes>(cache, size, false),
             second = std::make_shared<SleepyBytes>(cache, size, true),
             third = std::make_shared<SleepyBytes>(cache, size, true);
  first->note_full();
  {
    Loan loan({first, second, third});
    const auto missing = loan.missing();
    CHECK(missing.size() == 2 && !cache->sleep(first->number));
    CHECK(cache->wake(third->number, filled(3)) && missing[1]->ready() && !missing[0]->ready());
    cache->refuse(second->number, {Code::unavailable, "away"});
    CHECK(missing[0]->ready() && missing[0]->error() && missing[0]->error()->message == "away");
    // Asked for again, it is wanted again.
    const auto again = loan.missing();
    CHECK(again.size() == 1 && !again[0]->ready());
  }
  cache->refuse(second->number, {Code::unavailable, "away"});
  Loan loan({first, second, third});
  const auto missing = loan.missing();
  CHECK(missing.size() == 1 && !missing[0]->ready());
  CHECK(cache->wake(second->number, filled(2)) && loan.missing().empty());
  CHECK(second->data()[0] == std::byte{2} && third->data()[0] == std::byte{3});
}

TEST("block cache: where its owner goes, who waits or comes to wait is told") {
  const auto cache = std::make_shared<BlockCache>();
  const auto block = std::make_shared<SleepyBytes>(cache, size, true);
  {
    const Owner owner(*cache);
    Loan loan({block});
    const auto missing = loan.missing();
    CHECK(missing.size() == 1 && !missing[0]->ready());
    cache->listen(nullptr);
    CHECK(missing[0]->ready() && missing[0]->error());
  }
  Loan loan({block});
  const auto missing = loan.missing();
  CHECK(missing.size() == 1 && missing[0]->ready() && missing[0]->error());
}

TEST("block cache: news has every block once, in order, also those from before anybody listened") {
  const auto cache = std::make_shared<BlockCache>();
  std::vector<std::shared_ptr<SleepyBytes>> blocks;
  for (size_t i = 0; i < 3; ++i) blocks.push_back(std::make_shared<SleepyBytes>(cache, size, false));
  blocks[0]->note_full();
  blocks[0]->note_full();
  Owner owner(*cache);
  CHECK(owner.full == std::vector{blocks[0]->number});
  // Noted, until somebody listens again.
  blocks[1]->note_full();
  Loan({blocks[0], blocks[1]});
  CHECK(owner.used == 0);
  owner.listen();
  CHECK((owner.full == std::vector{blocks[0]->number, blocks[1]->number}) && owner.used == 2);
  owner.listen();
  CHECK(cache->sleep(blocks[0]->number));
  {
    Loan loan({blocks[0], blocks[1]});
    CHECK(loan.missing().size() == 1);
    CHECK(owner.wanted == std::vector{blocks[0]->number});
  }
  // It was not there, so it was not used.
  owner.listen();
  CHECK(owner.used == 3);
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
  const Owner listener(*cache);
  std::vector<std::shared_ptr<SleepyBytes>> blocks;
  for (size_t i = 0; i < 8; ++i) {
    blocks.push_back(std::make_shared<SleepyBytes>(cache, size, true));
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
      Loan::Blocks some{blocks[a]};
      if (a != b) some.push_back(blocks[b]);
      Loan loan(some);
      for (auto missing = loan.missing(); !missing.empty(); missing = loan.missing()) {
        while (!missing[0]->ready()) std::this_thread::yield();
        if (missing[0]->error()) wrong = true;
      }
      for (const auto& block : some) {
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

}  // namespace continuo::test::block_cache_test
