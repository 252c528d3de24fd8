// Random steps for the interpreter of commands: runs of rows, their step arguments, and pairs of buffers, one written
// by the device and one by the CPU.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "backends/cuda/kernels/kernels.h"
#include "test/cuda/staged.h"
#include "test/kernel_inputs.h"

namespace continuo::test {

using cuda::Command;
using cuda::RunArgs;
using cuda::Task;

// Whose bits the device must give.
inline const Kernels& cpu = generic_kernels;

// The result of a command (`got`), and the result that the CPU gives (`want`).
template <class T> struct Both {
  std::vector<T> want, got;
};

class Steps {
 public:
  // `single`: every run has one row.
  explicit Steps(Random& source, bool single = false) : random(source) {
    const size_t count = 1 + random.below(4);
    for (size_t i = 0; i < count; ++i) {
      const size_t own = single ? 1 : 1 + random.below(6);
      const uint64_t clock = random.below(2) ? random.below(40) : (uint64_t{1} << 45) + random.below(40);
      runs.push_back(
          {rows, own, clock, clock - random.below(std::min<uint64_t>(clock + 1, random.below(2) ? 12 : 2000))});
      for (size_t row = 0; row < own; ++row) run_of.push_back(i);
      rows += own;
    }
  }

  // Adds step arguments for each run, or for each row: [args][runs], [args][rows]. Returns the index of the first.
  uint32_t args_of_runs(const std::vector<std::vector<uint64_t>>& args) { return append(run_args_, args, runs.size()); }
  uint32_t args_of_rows(const std::vector<std::vector<uint64_t>>& args) { return append(row_args_, args, rows); }

  // Numbers that a command reads.
  template <class T> const T* in(const std::vector<T>& values) { return staged_->in(values.data(), values.size()); }
  // Numbers that a command may change; `values`: their content before the launch.
  template <class T> T* both(Both<T>& pair, std::vector<T> values) {
    pair.want = pair.got = std::move(values);
    return staged_->both(pair.got.data(), pair.got.size());
  }
  // `n` numbers with random bits before the launch.
  template <class T> T* out(Both<T>& pair, size_t n) {
    std::vector<T> before(n);
    for (auto& value : before) {
      const uint64_t bits = random.next();
      std::memcpy(&value, &bits, sizeof value);
    }
    return both(pair, std::move(before));
  }

  // Runs the commands over rows or runs [first, first + indices), in `parts` parts. All arguments must be added before.
  void launch(const std::vector<Command>& commands, cuda::Family family, size_t first, size_t indices, uint32_t parts) {
    cuda::Step step{};
    step.rows = static_cast<uint32_t>(rows);
    step.runs = static_cast<uint32_t>(runs.size());
    step.run_args = static_cast<uint32_t>(run_args_.size() / runs.size());
    std::vector<uint64_t> args;
    for (const auto& r : runs) args.insert(args.end(), {r.row, r.rows, r.clock, r.origin});
    args.insert(args.end(), run_of.begin(), run_of.end());
    args.insert(args.end(), run_args_.begin(), run_args_.end());
    args.insert(args.end(), row_args_.begin(), row_args_.end());
    CHECK(args.size() == cuda::args_in(rows, runs.size(), step.run_args, row_args_.size() / rows));
    notes.assign(args.size(), 0);
    step.args = staged_->in(args.data(), args.size());
    step.notes = staged_->both(notes.data(), notes.size());
    constexpr uint32_t sizes[] = {32, 64, 96, 128, 256, 512};
    cuda::run(staged_->in(commands.data(), commands.size()), static_cast<uint32_t>(commands.size()), step,
              static_cast<uint32_t>(first), static_cast<uint32_t>(indices), parts, sizes[random.below(6)], nullptr,
              family);
  }
  // The last launch: also copies the results into each `got`.
  void run(const std::vector<Command>& commands, cuda::Family family, size_t first, size_t indices, uint32_t parts) {
    launch(commands, family, first, indices, parts);
    staged_.reset();
  }

  Random& random;
  size_t rows = 0;
  std::vector<RunArgs> runs;
  std::vector<size_t> run_of;
  std::vector<uint64_t> notes;

 private:
  static uint32_t append(std::vector<uint64_t>& to, const std::vector<std::vector<uint64_t>>& args, size_t each) {
    const size_t first = to.size() / each;
    for (const auto& arg : args) to.insert(to.end(), arg.begin(), arg.end());
    return static_cast<uint32_t>(first);
  }
  std::vector<uint64_t> run_args_, row_args_;
  std::unique_ptr<Staged> staged_ = std::make_unique<Staged>();
};

inline uint64_t arg_of(const void* device) { return reinterpret_cast<uintptr_t>(device); }

inline bool same(const Both<float>& pair) { return same(pair.want, pair.got); }
template <class T> bool same(const Both<T>& pair) { return pair.want == pair.got; }

// Cuts [0, n) at random.
inline std::pair<size_t, size_t> some_range(Random& random, size_t n) {
  const size_t first = random.below(3) ? 0 : random.below(n),
               count = random.below(3) ? n - first : 1 + random.below(n - first);
  return {first, count};
}

inline std::vector<float> some_numbers(Random& random, size_t n, bool wild) {
  return wild ? every_kind(random, n) : random.floats(n, -2, 2);
}

inline std::vector<uint8_t> some_bytes(Random& random, size_t n) {
  std::vector<uint8_t> out(n);
  for (auto& byte : out) byte = static_cast<uint8_t>(random.next());
  return out;
}

inline std::byte* bytes(std::vector<uint8_t>& of) { return reinterpret_cast<std::byte*>(of.data()); }
inline const std::byte* bytes(const std::vector<uint8_t>& of) { return reinterpret_cast<const std::byte*>(of.data()); }

// One command whose output is rows of floats. `fill(command)` sets its operands and width; `want(row, out)` writes the
// row that the CPU makes.
template <class Fill, class Want>
void check_rows(Steps& steps, Task task, size_t width, uint32_t parts, const Fill& fill, const Want& want) {
  Command c;
  c.task = task;
  c.width = static_cast<uint32_t>(width);
  Both<float> y;
  c.out = steps.out(y, steps.rows * width);
  fill(c);
  const auto [first, count] = some_range(steps.random, steps.rows);
  for (size_t row = first; row < first + count; ++row) want(row, &y.want[row * width]);
  steps.run({c}, cuda::Family::rows, first, count, parts);
  CHECK(same(y));
}

}  // namespace continuo::test
