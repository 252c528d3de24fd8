// The executor of the CPU: every instruction runs at once, its work spread over the pool's threads.
#pragma once

#include <cstdint>

#include "backends/cpu/kernels/kernels.h"
#include "backends/ngram/subwords.h"
#include "base/memory.h"
#include "runtime/executor/executor.h"

namespace continuo {

class CpuExecutor final : public Executor {
 public:
  CpuExecutor(std::shared_ptr<const Model> model, ThreadPool& pool, const ExecutorOptions& options,
              const Kernels& kernels);

  void insert(size_t block, size_t input, std::span<const std::byte> rows) override;
  void gather(size_t block, size_t input, std::span<const std::byte* const> rows) override;
  const std::byte* fetch(size_t block, uint32_t value_id, size_t) override { return address(block, value_id); }
  void surprisals(std::span<const int32_t> expected, size_t first, float* nats) override;

 private:
  // Work below this many multiply-adds is done by the calling thread: waking another costs more.
  static constexpr size_t fork_threshold = 1 << 17;

  std::byte* input(size_t block, size_t index) { return value(spaces_[block], programs()[block].inputs[index]); }
  void zero(Space& space, uint32_t id, size_t rows) override {
    std::memset(value(space, id), 0, space.program->values[id].bytes * rows);
  }
  void rows_together(Space& space, const Stage& stage, size_t rows, std::span<const Run> runs) override;
  void dispatch(Space& space, const Instruction& instruction, size_t first, size_t rows,
                std::span<const Run> runs) override;
  bool truth(Space& space, uint32_t id, size_t row) override {
    return std::to_integer<uint8_t>(value(space, id)[row]) != 0;
  }
  int32_t number(Space& space, uint32_t id, size_t row) override {
    return reinterpret_cast<const int32_t*>(value(space, id))[row];
  }
  const std::byte* look_at(Space& space, uint32_t id, size_t first, size_t) override {
    return value(space, id) + first * space.program->values[id].bytes;
  }

  // Calls work(0 … tasks − 1), on other threads too where `cost` multiply-adds are worth it.
  void fork(size_t tasks, size_t cost, const auto& work) {
    if (cost < fork_threshold) {
      for (size_t i = 0; i < tasks; ++i) work(i);
    } else {
      pool_.parallel_for(tasks, work);
    }
  }
  void locals(Space& space, std::span<const Instruction> code, size_t first, size_t rows);
  void local(Space& space, const Instruction& instruction, size_t first, size_t rows);
  void elementwise(Space& space, const Instruction& instruction, size_t first, size_t rows);
  void embed(Space& space, const Instruction& instruction, size_t first, size_t rows);
  void repeat(Space& space, const Instruction& instruction, size_t first, size_t rows);
  void compare(Space& space, const Instruction& instruction, size_t first, size_t rows);
  void topk(Space& space, const Instruction& instruction, size_t first, size_t rows);
  void gather_numbers(Space& space, const Instruction& instruction, size_t first, size_t rows);
  void combine(Space& space, const Instruction& instruction, size_t first, size_t rows);
  PackedMatrix matrix(const Instruction& instruction) const;
  void matmul(Space& space, std::span<const Instruction> code, size_t first, size_t rows);
  // With ExecutorOptions::moments.
  void observe(Space& space, std::span<const Instruction> code, size_t first, size_t rows);

  // executor_routed.cc. reserve_routed makes room for steps of so many rows, and returns the scratch that they need.
  size_t reserve_routed(const Program& program, size_t rows);
  void routed(Space& space, const Instruction& instruction, size_t first, size_t rows);

  // executor_experts.cc
  void multiply_expert(Space& space, const Instruction& instruction, uint32_t expert, experts::Loan loan,
                       std::span<const size_t> places) override;
  void no_expert(Space& space, const Instruction& instruction, std::span<const size_t> places) override;

  // executor_ngram.cc
  void ngram(Space& space, const Instruction& instruction, std::span<const Run> runs);
  void ngram_first(Space& space, const Instruction& instruction, std::span<const Run> runs);

  // executor_perspective.cc
  void pdr(Space& space, const Instruction& instruction, std::span<const Run> runs);
  void torus(Space& space, const Instruction& instruction, std::span<const Run> runs);
  void nearest(Space& space, const Instruction& instruction, size_t first, size_t rows);
  void project(Space& space, const Instruction& instruction, size_t first, size_t rows);
  void whole(Space& space, const Instruction& instruction, size_t first, size_t rows);
  void adapter(Space& space, const Instruction& instruction, std::span<const Run> runs);

  // executor_state.cc: what touches persistent memory.
  void shift(Space& space, const Instruction& instruction, std::span<const Run> runs);
  struct Lanes {
    size_t begin, end;  // channels of a head
  };
  void recur(Space& space, const Instruction& instruction, std::span<const Run> runs, size_t cost, const auto& work);
  void wkv7(Space& space, const Instruction& instruction, std::span<const Run> runs);
  void ssm(Space& space, const Instruction& instruction, std::span<const Run> runs);
  void read(Space& space, const Instruction& instruction, std::span<const Run> runs);
  void write(Space& space, const Instruction& instruction, std::span<const Run> runs);

  // executor_attend.cc
  void attend(Space& space, const Instruction& instruction, std::span<const Run> runs);
  void attend_split(const AttendRows& run);
  void attend_weights(Space& space, const Instruction& instruction, std::span<const Run> runs);

  // executor_memory.cc: matrix memories and what feeds them.
  void rope(Space& space, const Instruction& instruction, std::span<const Run> runs);
  void conv(Space& space, const Instruction& instruction, std::span<const Run> runs);
  void attend_window(Space& space, const Instruction& instruction, std::span<const Run> runs);
  void memory(Space& space, const Instruction& instruction, std::span<const Run> runs);
  void note_gates(Space& space, const Instruction& instruction, const Run& run, size_t at);
  void memory_first(Space& space, const Instruction& instruction, std::span<const Run> runs);
  void mix(Space& space, const Instruction& instruction, std::span<const Run> runs);
  void recall(Space& space, const Instruction& instruction, std::span<const Run> runs);

  void prepare_subwords();

  const Kernels& kernels_;
  // Of the tokens of a memory of subwords.
  ngram::Subwords subwords_;
  ngram::TokenTexts texts_{};
  // Per program and line: how many products the group has that begins there (products.h); 0 where none begins.
  std::vector<std::vector<size_t>> products_;
  Memory scratch_;   // linear.h
  Memory split_;     // of attend_split
  Memory gathered_;  // of routed and experts: rows that go to one matrix, and their products
};

}  // namespace continuo
