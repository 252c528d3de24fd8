// Runs a model's blocks over many rows at once.
//
// A step is a list of runs: consecutive tokens of one context. Rows of a run are contiguous. What works on rows by themselves
// takes all rows together; what touches persistent memory walks each run in token order, from the state the context holds
// (program.h says how). So it does not matter how tokens are spread over steps, nor which contexts share one.
#pragma once

#include <array>
#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "context.h"
#include "model.h"
#include "threads.h"

namespace continuo {

struct Run {
  Context* context;
  size_t row;  // first row
  size_t rows;
  size_t number = 0;  // of the first row, among those its context has in this step
};

struct ExecutorOptions {
  bool reuse = true;   // volatile memory planned by liveness; else every value has its own
  bool trace = false;  // time every node
  bool watch = false;  // look for numbers that are not finite after every node
};

// What one node did in the last step of a block.
struct TraceEntry {
  const Instruction* instruction;
  std::string node;
  Name out;
  size_t rows = 0;
  double microseconds = 0;
  size_t bytes = 0;  // of the values and constants it read and wrote; state is not counted
};

// A row that could not go on: an index outside its axis, a counter at its bound. Its context is broken.
struct Fault {
  const Context* context;
  std::string message;
};

class Executor {
 public:
  Executor(std::shared_ptr<const Model> model, ThreadPool& pool, ExecutorOptions options = {});

  // Rows a step of a block may have.
  static constexpr size_t max_rows = 128;
  // Work below this many multiply-adds is done by the calling thread: waking another costs more.
  static constexpr size_t fork_threshold = 1 << 18;
  size_t rows_of(size_t block) const { return spaces_[block].rows; }
  static size_t rows_for(const Program& program);
  // How many rows of the block the context's counters leave room for, at most `wanted`; where that is fewer, with a reason.
  size_t room(const Context& context, size_t block, size_t wanted, std::string& reason) const;

  // How many of these rows lie in the segment of the clock that the context stands in: a step goes no further.
  size_t within_segment(const Context& context, size_t block, size_t wanted) const;

  // An input of a block, or one of its results: [rows, bytes of the value].
  std::byte* input(size_t block, size_t index) { return value(spaces_[block], programs()[block].inputs[index]); }
  const std::byte* result(size_t block, uint32_t value_id) const { return value(spaces_[block], value_id); }
  // Whether its rows are pulses: it uses the context's clock.
  bool moves_clock(size_t block) const { return model_->graph.clock != no_name && spaces_[block].growth[model_->graph.clock] > 0; }
  // Runs a block over the rows of `runs`, whose inputs lie there, which room() has for, and which within_segment() allows. Clock and
  // chain are the caller's.
  void step(size_t block, size_t rows, std::span<const Run> runs);

  // Of the last step.
  const std::vector<Fault>& faults() const { return faults_; }
  const std::vector<TraceEntry>& trace() const { return trace_; }
  // Watching: the first node that gave a number that is not finite in a row of this context, if one did.
  const std::string* culprit(const Context* context) const;

  const Model& model() const { return *model_; }
  ThreadPool& pool() { return pool_; }
  const ExecutorOptions& options() const { return options_; }
  const Plan& plan(size_t block) const { return spaces_[block].plan; }

 private:
  struct Space {
    const Program* program;
    Plan plan;
    size_t rows;
    Memory memory;
    std::vector<int64_t> growth;  // per declaration: what a row adds to that counter
  };

  const std::vector<Program>& programs() const { return model_->programs; }
  std::byte* value(Space& space, uint32_t id) { return space.memory.data() + space.plan.offsets[id] * space.rows; }
  const std::byte* value(const Space& space, uint32_t id) const { return space.memory.data() + space.plan.offsets[id] * space.rows; }
  float* floats(Space& space, uint32_t id) { return reinterpret_cast<float*>(value(space, id)); }
  const Declaration& declared(const Space& space, uint32_t id) const { return model_->graph.declarations[space.program->values[id].name]; }
  size_t width(const Space& space, uint32_t id) const { return static_cast<size_t>(declared(space, id).elements()); }

  void rows_together(Space& space, const Stretch& stretch, size_t rows, std::span<const Run> runs);
  void row_by_row(Space& space, const Stretch& stretch, size_t rows, std::span<const Run> runs);
  // False when the row returned.
  bool row_through(Space& space, std::span<const Instruction> code, const Run& row);
  void run(Space& space, const Instruction& instruction, size_t first, size_t rows, std::span<const Run> runs);
  void dispatch(Space& space, const Instruction& instruction, size_t first, size_t rows, std::span<const Run> runs);
  void locals(Space& space, std::span<const Instruction> code, size_t first, size_t rows);
  void local(Space& space, const Instruction& instruction, size_t first, size_t rows);
  void elementwise(Space& space, const Instruction& instruction, size_t first, size_t rows);
  void embed(Space& space, const Instruction& instruction, size_t first, size_t rows);
  void compare(Space& space, const Instruction& instruction, size_t first, size_t rows);
  void matmul(Space& space, const Instruction& instruction, size_t first, size_t rows);

  // executor_state.cc: what touches persistent memory.
  void rope(Space& space, const Instruction& instruction, std::span<const Run> runs);
  void shift(Space& space, const Instruction& instruction, std::span<const Run> runs);
  void wkv7(Space& space, const Instruction& instruction, std::span<const Run> runs);
  void attend(Space& space, const Instruction& instruction, std::span<const Run> runs);
  // Calls work(0 … tasks − 1), on other threads too where `cost` multiply-adds are worth it.
  void fork(size_t tasks, size_t cost, const auto& work) {
    if (cost < fork_threshold) {
      for (size_t i = 0; i < tasks; ++i) work(i);
    } else {
      pool_.parallel_for(tasks, work);
    }
  }
  void read(Space& space, const Instruction& instruction, std::span<const Run> runs);
  void write(Space& space, const Instruction& instruction, std::span<const Run> runs);
  void move_counter(Space& space, const Instruction& instruction, std::span<const Run> runs);
  void reset(Space& space, const Instruction& instruction, std::span<const Run> runs);

  // executor_memory.cc: matrix memories and what feeds them.
  void conv(Space& space, const Instruction& instruction, std::span<const Run> runs);
  void attend_window(Space& space, const Instruction& instruction, std::span<const Run> runs);
  void memory(Space& space, const Instruction& instruction, std::span<const Run> runs);
  void note_gates(Space& space, const Instruction& instruction, const Run& run, size_t at);
  void memory_first(Space& space, const Instruction& instruction, std::span<const Run> runs);
  void mix(Space& space, const Instruction& instruction, std::span<const Run> runs);
  void recall(Space& space, const Instruction& instruction, std::span<const Run> runs);
  std::vector<float> level_shares(const float* logits, size_t heads, size_t levels) const;
  using Tables = std::array<float*, 4>;  // no operation has more places
  Tables tables(Space& space, const Instruction& instruction, const Run& run);

  int64_t count_at(const Space& space, Name counter, int64_t seen, const Run& run, size_t i) const;
  // First element of the member that `place` picks for row i of the run, or none after a fault.
  std::optional<size_t> locate(Space& space, const Instruction& instruction, const Place& place, const Run& run, size_t i);
  size_t elements_left(const Place& place, Context& context) const;
  void fault(const Instruction& instruction, Context& context, const std::string& what);

  void note(Space& space, const Instruction& instruction, size_t rows, double microseconds);
  void look(Space& space, const Instruction& instruction, size_t first, size_t rows, std::span<const Run> runs);

  std::shared_ptr<const Model> model_;
  ThreadPool& pool_;
  ExecutorOptions options_;
  std::vector<Space> spaces_;
  std::vector<Fault> faults_;
  std::vector<TraceEntry> trace_;
  std::vector<Fault> culprits_;
  Memory scratch_;  // linear.h
};

}  // namespace continuo
