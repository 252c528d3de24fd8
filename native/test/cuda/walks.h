// What a run of a step has of a session's memory, on both sides: tables, rings, and the runs that a launch takes.
#pragma once

#include <array>
#include <cstdint>
#include <tuple>
#include <vector>

#include "test/cuda/steps.h"

namespace continuo::test::walks {

struct Table {
  Both<float> numbers;
  size_t each;
  std::vector<uint64_t> args;

  Table(Steps& steps, size_t n, const std::vector<bool>& there, float low = -1, float high = 1) : each(n) {
    const size_t count = steps.runs.size() * n;
    const float* members =
        steps.both(numbers, low == high ? std::vector<float>(count, low) : steps.random.floats(count, low, high));
    for (size_t run = 0; run < steps.runs.size(); ++run) args.push_back(there[run] ? arg_of(members + run * n) : 0);
  }
  Table(const Table&) = delete;
  float* want(size_t run) { return &numbers.want[run * each]; }
};

// A ring of each run, in one span or in blocks of 256 places that lie in the opposite order.
struct Ring {
  Table table;
  size_t stride, blocks;
  std::vector<std::vector<BlockAt>> lists;  // [runs]
  std::vector<uint64_t> args;

  Ring(Steps& steps, size_t slots, size_t of, size_t count, const std::vector<bool>& there)
      : table(steps, slots * of, there), stride(of), blocks(count), args(table.args) {
    for (size_t run = 0; run < args.size() && blocks > 0; ++run) {
      const auto listed = [&](const float* base) {
        std::vector<BlockAt> list;
        for (size_t i = blocks; i-- > 0;)
          list.push_back({reinterpret_cast<const std::byte*>(base + i * block_positions * stride), block_positions});
        return list;
      };
      lists.push_back(listed(table.want(run)));
      if (there[run]) args[run] = arg_of(steps.in(listed(reinterpret_cast<const float*>(table.args[run]))));
    }
  }
  BlockList list(size_t run, size_t channel) const {
    return blocks > 0 ? BlockList{lists[run].data(), blocks, 0, channel} : BlockList{};
  }
  float* place(size_t run, size_t position, size_t slots) {
    if (blocks == 0) return table.want(run) + position % slots * stride;
    return reinterpret_cast<float*>(const_cast<std::byte*>(list(run, 0).at(position, stride, sizeof(float))));
  }
};

inline std::vector<bool> some_there(Steps& steps) {
  std::vector<bool> there;
  for (size_t run = 0; run < steps.runs.size(); ++run) there.push_back(steps.random.below(8) != 0);
  return there;
}

// Runs [first, first + count) of a step, and the parts of a launch.
struct Cut {
  size_t first, count;
  uint32_t parts;
  explicit Cut(Steps& steps) {
    std::tie(first, count) = some_range(steps.random, steps.runs.size());
    parts = 1 + static_cast<uint32_t>(steps.random.below(4));
  }
  bool has(size_t run) const { return run >= first && run < first + count; }
};

inline uint32_t narrow(size_t n) { return static_cast<uint32_t>(n); }

struct Heads {
  size_t groups, n, width;
  explicit Heads(Random& random)
      : groups(1 + random.below(5)),
        n(random.below(3) ? 1 + random.below(40) : std::array<size_t, 3>{16, 32, 64}[random.below(3)]),
        width(groups * n) {}
};

}  // namespace continuo::test::walks
