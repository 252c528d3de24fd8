// Blocks in huge pages.
#include "base/arena.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <new>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "test/check.h"

namespace continuo::test::arena_test {

namespace {

constexpr size_t sizes[] = {Arena::least_bytes, (size_t{3} << 19) + 64, size_t{5} << 20, (size_t{33} << 20) + 1};

struct Block {
  std::byte* data;
  size_t bytes;
  uint64_t seed;
  // Its first and last words, and one in each piece of 32 KB between.
  bool has(uint64_t value) const {
    for (size_t at = 0; at < bytes; at = at + 1 == bytes ? bytes : std::min(at + (size_t{32} << 10), bytes - 1)) {
      if (std::to_integer<uint64_t>(data[at]) != value) return false;
    }
    return true;
  }
  void write(uint64_t value) { std::memset(data, static_cast<int>(value), bytes); }
};

size_t resident() {
  std::ifstream file("/proc/self/statm");
  size_t all = 0, held = 0;
  file >> all >> held;
  return held * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

TEST("arena: blocks are apart, zeroed where asked for, and keep what is written, whatever threads take and give") {
  Arena arena;
  const auto work = [&](uint64_t seed) {
    test::Random random(seed);
    std::vector<Block> held;
    for (size_t step = 0; step < 400; ++step) {
      if (held.size() < 12 && random.below(2) == 0) {
        Block block{nullptr, sizes[random.below(random.below(8) == 0 ? 4 : 3)], 1 + random.below(255)};
        const bool zeroed = random.below(2) == 0;
        block.data = arena.take(block.bytes, zeroed);
        CHECK(reinterpret_cast<uintptr_t>(block.data) % 4096 == 0);
        if (zeroed) CHECK(block.has(0));
        block.write(block.seed);
        held.push_back(block);
      } else if (!held.empty()) {
        std::swap(held[random.below(held.size())], held.back());
        CHECK(held.back().has(held.back().seed));
        arena.give(held.back().data, held.back().bytes);
        held.pop_back();
      }
    }
    for (const auto& block : held) {
      CHECK(block.has(block.seed));
      arena.give(block.data, block.bytes);
    }
  };
  std::thread other(work, 11);
  work(12);
  other.join();
  CHECK(arena.reserved() == 0);
}

#if defined(__linux__) && !defined(__SANITIZE_THREAD__)  // which keeps a shadow of what was written
TEST("arena: what goes gives its memory back, also beside a block that stays") {
  Arena arena;
  constexpr size_t bytes = size_t{3} << 19, count = 100;
  std::vector<std::byte*> blocks;
  const size_t before = resident();
  for (size_t i = 0; i < count; ++i) std::memset(blocks.emplace_back(arena.take(bytes, true)), 1, bytes);
  CHECK(resident() > before + count * bytes * 9 / 10);
  for (size_t i = 0; i < count; ++i) {
    if (i % 21 != 5) arena.give(blocks[i], bytes);
  }
  CHECK(resident() < before + count * bytes / 3);
  // Those that stay have what was written into them.
  for (size_t i = 5; i < count; i += 21) {
    CHECK(blocks[i][0] == std::byte{1} && blocks[i][bytes - 1] == std::byte{1});
    arena.give(blocks[i], bytes);
  }
  CHECK(arena.reserved() == 0);
}
#endif

TEST("arena: a block larger than the address space throws std::bad_alloc, and no address space stays reserved") {
  Arena arena;
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX / 2, size_t{1} << 60}) {
    bool refused = false;
    try {
      arena.take(bytes, true);
    } catch (const std::bad_alloc&) {
      refused = true;
    }
    CHECK(refused);
  }
  CHECK(arena.reserved() == 0);
}

}  // namespace continuo::test::arena_test
