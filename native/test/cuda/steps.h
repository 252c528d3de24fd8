// Random steps for the interpreter of commands: runs of rows, their words, and buffers on both sides of which one is
// the CPU's.
#pragma once

#include <memory>
#include <utility>

#include "backends/cuda/kernels/kernels.h"
#include "test/cuda/staged.h"
#include "test/kernel_inputs.h"

namespace continuo::test {

using cuda::Command;
using cuda::RunWords;

// What a command wrote there, and what it should have written.
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

  // The first of words for each run, or for each row, that hold these: [words][runs], [words][rows].
  uint32_t words_of_runs(const std::vector<std::vector<uint64_t>>& words) {
    return append(run_words_, words, runs.size());
  }
  uint32_t words_of_rows(const std::vector<std::vector<uint64_t>>& words) { return append(row_words_, words, rows); }

  // Numbers that a command reads.
  template <class T> const T* in(const std::vector<T>& values) { return staged_->in(values.data(), values.size()); }
  // Numbers that it may change: `values` are what stands there before.
  template <class T> T* both(Both<T>& pair, std::vector<T> values) {
    pair.want = pair.got = std::move(values);
    return staged_->both(pair.got.data(), pair.got.size());
  }
  // As many that nobody wrote.
  template <class T> T* out(Both<T>& pair, size_t n) {
    std::vector<T> before(n);
    for (auto& value : before) {
      const uint64_t bits = random.next();
      std::memcpy(&value, &bits, sizeof value);
    }
    return both(pair, std::move(before));
  }

  // Runs the commands over rows or runs [first, first + indices), in `parts` parts, once all words are there.
  void launch(const std::vector<Command>& commands, cuda::Family family, size_t first, size_t indices, uint32_t parts) {
    cuda::Step step{};
    step.rows = static_cast<uint32_t>(rows);
    step.runs = static_cast<uint32_t>(runs.size());
    step.run_words = static_cast<uint32_t>(run_words_.size() / runs.size());
    std::vector<uint64_t> words;
    for (const auto& r : runs) words.insert(words.end(), {r.row, r.rows, r.clock, r.origin});
    words.insert(words.end(), run_of.begin(), run_of.end());
    words.insert(words.end(), run_words_.begin(), run_words_.end());
    words.insert(words.end(), row_words_.begin(), row_words_.end());
    CHECK(words.size() == cuda::words_in(rows, runs.size(), step.run_words, row_words_.size() / rows));
    notes.assign(words.size(), 0);
    step.words = staged_->in(words.data(), words.size());
    step.notes = staged_->both(notes.data(), notes.size());
    constexpr uint32_t sizes[] = {32, 64, 96, 128, 256, 512};
    cuda::run(staged_->in(commands.data(), commands.size()), static_cast<uint32_t>(commands.size()), step,
              static_cast<uint32_t>(first), static_cast<uint32_t>(indices), parts, sizes[random.below(6)], nullptr,
              family);
  }
  // The same, the last time: copies what was written into each `got`.
  void run(const std::vector<Command>& commands, cuda::Family family, size_t first, size_t indices, uint32_t parts) {
    launch(commands, family, first, indices, parts);
    staged_.reset();
  }

  Random& random;
  size_t rows = 0;
  std::vector<RunWords> runs;
  std::vector<size_t> run_of;
  std::vector<uint64_t> notes;

 private:
  static uint32_t append(std::vector<uint64_t>& to, const std::vector<std::vector<uint64_t>>& words, size_t each) {
    const size_t first = to.size() / each;
    for (const auto& word : words) to.insert(to.end(), word.begin(), word.end());
    return static_cast<uint32_t>(first);
  }
  std::vector<uint64_t> run_words_, row_words_;
  std::unique_ptr<Staged> staged_ = std::make_unique<Staged>();
};

inline uint64_t word_of(const void* device) { return reinterpret_cast<uintptr_t>(device); }

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

}  // namespace continuo::test
