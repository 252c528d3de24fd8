// Runs a model's blocks over many rows at once.
//
// A step is a list of runs: consecutive tokens of one context. Rows of a run are contiguous. What works on rows by
// themselves takes all rows together; what touches persistent memory walks each run in token order, from the state the
// context holds (program.h says how). So it does not matter how tokens are spread over steps, nor which contexts share
// one.
#pragma once

#include <array>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/threads.h"
#include "runtime/context.h"
#include "runtime/model.h"

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

// What each level of a memory counts for in what a head reads, [head, level], from logits [level, head] on the host.
std::vector<float> level_shares(const HostKernels& kernels, const float* logits, size_t heads, size_t levels);

class Executor {
 public:
  virtual ~Executor() = default;

  // Rows a step of a block may have.
  static constexpr size_t max_rows = 128;
  size_t rows_of(size_t block) const { return spaces_[block].rows; }
  static size_t rows_for(const Program& program);
  // How many rows of the block the context's counters leave room for, at most `wanted`; where that is fewer, with a
  // reason.
  size_t room(const Context& context, size_t block, size_t wanted, std::string& reason) const;

  // How many of these rows lie in the segment of the clock that the context stands in: a step goes no further.
  size_t within_segment(const Context& context, size_t block, size_t wanted) const;

  // Takes the memory that a context, which is held, grows by for so many rows; a step does it for those that have not
  // yet. Throws DeviceError where there is none.
  void reserve(Context& context, size_t block, size_t rows) const;

  // Puts the rows of an input of a block there: from the host; or, one row at a time, from the device, a context's
  // table or a result.
  virtual void insert(size_t block, size_t input, std::span<const std::byte> rows) = 0;
  virtual void gather(size_t block, size_t input, std::span<const std::byte* const> rows) = 0;
  // A value of the last step, [rows, bytes of the value]: where it lies on the device, and on the host until the next
  // call here.
  const std::byte* address(size_t block, uint32_t value_id) const { return value(spaces_[block], value_id); }
  virtual const std::byte* fetch(size_t block, uint32_t value_id, size_t rows) = 0;
  // −ln p of a token, from the logits of each of these rows, from `first` on, of the last step of block "predict".
  virtual void surprisals(std::span<const int32_t> expected, size_t first, float* nats) = 0;

  // Whether its rows are pulses: it uses the context's clock.
  bool moves_clock(size_t block) const {
    return model_->graph.clock != no_name && spaces_[block].growth[model_->graph.clock] > 0;
  }
  // Runs a block over the rows of `runs`, whose inputs lie there, which room() has for, which within_segment() allows,
  // and whose contexts are held. Clock and chain are the caller's. A device may still be at work when it returns, and
  // the contexts' tables are the executor's until the step is settled: fetch() and surprisals() do that too.
  virtual void step(size_t block, size_t rows, std::span<const Run> runs);
  virtual void settle() {}

  // Of the last step.
  const std::vector<Fault>& faults() const { return faults_; }
  const std::vector<TraceEntry>& trace() const { return trace_; }
  // Watching: the first node that gave a number that is not finite in a row of this context, if one did.
  const std::string* first_non_finite(const Context* context) const;

  const Model& model() const { return *model_; }
  ThreadPool& pool() { return pool_; }
  const ExecutorOptions& options() const { return options_; }
  const Plan& plan(size_t block) const { return spaces_[block].plan; }

 protected:
  struct Space {
    const Program* program;
    Plan plan;
    size_t rows;
    DeviceMemory memory;
    std::vector<int64_t> growth;  // per declaration: what a row adds to that counter
  };

  // `lifetimes`: of a program's values, by which the device plans their memory.
  Executor(
      std::shared_ptr<const Model> model, ThreadPool& pool, ExecutorOptions options,
      std::vector<Lifetime> (*lifetimes)(const Program&) = [](const Program& program) { return program.lifetimes; });

  const std::vector<Program>& programs() const { return model_->programs; }
  std::byte* value(Space& space, uint32_t id) { return space.memory.data() + space.plan.offsets[id] * space.rows; }
  const std::byte* value(const Space& space, uint32_t id) const {
    return space.memory.data() + space.plan.offsets[id] * space.rows;
  }
  float* floats(Space& space, uint32_t id) { return reinterpret_cast<float*>(value(space, id)); }
  const Declaration& declared(const Space& space, uint32_t id) const {
    return model_->graph.declarations[space.program->values[id].name];
  }
  size_t width(const Space& space, uint32_t id) const { return static_cast<size_t>(declared(space, id).elements()); }

  // What a step does before its first node and after its last.
  void begin(Space& space, std::span<const Run> runs);
  void end(const Space& space, std::span<const Run> runs);
  // Zeroes a value's rows.
  virtual void zero(Space& space, uint32_t id, size_t rows) = 0;
  // Runs a stage whose rows go side by side.
  virtual void rows_together(Space& space, const Stage& stage, size_t rows, std::span<const Run> runs) = 0;
  // Runs one instruction over rows [first, first + rows), which are those of `runs`.
  virtual void dispatch(Space& space, const Instruction& instruction, size_t first, size_t rows,
                        std::span<const Run> runs) = 0;
  // A number that a row has computed and the host needs: a condition, a place in a table.
  virtual bool truth(Space& space, uint32_t id, size_t row) = 0;
  virtual int32_t number(Space& space, uint32_t id, size_t row) = 0;
  // A value's rows on the host, for watching.
  virtual const std::byte* look_at(Space& space, uint32_t id, size_t first, size_t rows) = 0;

  void row_by_row(Space& space, const Stage& stage, size_t rows, std::span<const Run> runs);
  // False when the row returned.
  bool row_through(Space& space, std::span<const Instruction> code, const Run& row);
  // dispatch(), timed and watched where that is asked for.
  void run(Space& space, const Instruction& instruction, size_t first, size_t rows, std::span<const Run> runs);

  // executor_state.cc
  int64_t count_at(const Space& space, Name counter, int64_t seen, const Run& run, size_t i) const;
  // First element of the member that `place` picks for row i of the run, or none after a fault.
  std::optional<size_t> locate(Space& space, const Instruction& instruction, const Place& place, const Run& run,
                               size_t i);
  // Its address on the device, or null after a fault.
  std::byte* find(Space& space, const Instruction& instruction, const Place& place, const Run& run, size_t i);
  using Tables = std::array<float*, 4>;  // no operation has more places
  // Where the members of its places begin in the run's context; all null after a fault with one of them.
  Tables tables(Space& space, const Instruction& instruction, const Run& run);
  // Which positions row i of a run attends to, and in which slots of its tables they lie.
  struct Window {
    size_t first, last, slots;
  };
  Window window(Space& space, const Instruction& instruction, const Run& run, size_t i);
  // What row i reads of a counter.
  int32_t count_read(const Space& space, const Instruction& instruction, const Run& run, size_t i) const;
  size_t elements_left(const Place& place, Context& context) const;
  void move_counter(Space& space, const Instruction& instruction, std::span<const Run> runs);
  void reset(Space& space, const Instruction& instruction, std::span<const Run> runs);
  void fault(const Instruction& instruction, Context& context, const std::string& what);

  std::shared_ptr<const Model> model_;
  ThreadPool& pool_;
  ExecutorOptions options_;
  std::vector<Space> spaces_;
  std::vector<Fault> faults_;
  std::vector<TraceEntry> trace_;
  std::vector<Fault> non_finite_;

 private:
  void note(Space& space, const Instruction& instruction, size_t rows, double microseconds);
  void look(Space& space, const Instruction& instruction, size_t first, size_t rows, std::span<const Run> runs);
};

}  // namespace continuo
