// Executor: runs the blocks of a model over many rows at once.
//
// A row is one token of one context. A step has a list of runs; a run is consecutive tokens of one context in
// contiguous rows. Ops without state take all rows together. Ops on persistent memory walk each run in token order,
// from the context's state (compile/program.h says which rows may run at once). So no result depends on how tokens are
// spread over steps, or on which contexts share a step.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/threads.h"
#include "runtime/executor/moments.h"
#include "runtime/executor/volatile_tables.h"
#include "runtime/model/model.h"
#include "runtime/model/ticket.h"
#include "runtime/state/context.h"

namespace continuo {

namespace experts {
class Loan;
}
struct TokenBytes;

struct Run {
  Context* context;
  size_t row;              // first row of the step
  size_t rows;             // consecutive rows
  size_t number = 0;       // of the first row, counted among the rows of its context in this step
  bool tentative = false;  // its last rows may be taken back: see Executor::keep
  bool noted = false;      // what is taken back can be had again: see Executor::walk
  bool drawn = false;      // its tokens were drawn for a request, and not read
};

struct ExecutorOptions {
  bool reuse = true;   // values whose lifetimes do not overlap share memory; else each value has its own
  bool trace = false;  // time every node
  bool watch = false;  // look for non-finite numbers after every node
  // What matrices are multiplied with is added up here. The CPU's executor alone does it.
  std::shared_ptr<Moments> moments = nullptr;
  // What tokens stand for: a graph with reads_subwords() needs it.
  std::shared_ptr<const TokenBytes> vocabulary = nullptr;
};

// Totals of one node in the last step of a block.
struct TraceEntry {
  const Instruction* instruction;
  std::string node;
  Name out;
  size_t rows = 0;
  double microseconds = 0;
  size_t bytes = 0;  // of the values and constants that it read and wrote; state is not counted
};

// An error of one row: an index outside its axis, or a counter at its bound. The row's context is broken.
struct Fault {
  const Context* context;
  std::string message;
};

// The share of each level of a memory in what a head reads, [heads, levels]: a softmax over the levels of `logits`,
// [levels, heads] on the host.
std::vector<float> level_shares(const HostKernels& kernels, const float* logits, size_t heads, size_t levels);

class Executor {
 public:
  virtual ~Executor() = default;

  // Rows that a step of a block may have.
  static constexpr size_t max_rows = 128;
  size_t rows_of(size_t block) const { return spaces_[block].rows; }
  static size_t rows_for(const Program& program);
  // How many rows of the block fit under the bounds of the context's counters, at most `wanted`. Where fewer fit,
  // `reason` says why.
  size_t room(const Context& context, size_t block, size_t wanted, std::string& reason) const;

  // How many of `wanted` rows lie in the current segment of the context's clock. A step must end with the segment.
  size_t within_segment(const Context& context, size_t block, size_t wanted) const;

  // Makes room in the tables of a pinned context for so many rows. A step does the same where nobody did it before.
  // Throws DeviceError where the device has no memory.
  void reserve(Context& context, size_t block, size_t rows) const;

  // Writes an input of a block, [rows, bytes of the value]: from the host; or, row by row, from addresses on the
  // device.
  virtual void insert(size_t block, size_t input, std::span<const std::byte> rows) = 0;
  virtual void gather(size_t block, size_t input, std::span<const std::byte* const> rows) = 0;
  // A value of the last step, [rows, bytes of the value]: its address on the device; and a copy on the host, valid
  // until the next call of the executor.
  const std::byte* address(size_t block, uint32_t value_id) const { return value(spaces_[block], value_id); }
  virtual const std::byte* fetch(size_t block, uint32_t value_id, size_t rows) = 0;
  // nats[i] = −ln p(expected[i]), from row `first` + i of the logits of the last step of block "predict".
  virtual void surprisals(std::span<const int32_t> expected, size_t first, float* nats) = 0;

  // Whether each row of the block is a pulse, because the block uses the context's clock.
  bool moves_clock(size_t block) const {
    return model_->graph.clock != no_name && spaces_[block].growth[model_->graph.clock] > 0;
  }
  // Runs a block over the rows of `runs`. Before: the inputs are written, room() and within_segment() allow these rows,
  // and the contexts are pinned. The caller moves clock and chain. A device may still compute on return: until
  // settle(), fetch() or surprisals() has returned, nobody else may touch the contexts' tables.
  virtual void step(size_t block, size_t rows, std::span<const Run> runs);
  virtual void settle() {}

  // executor_undo.cc
  // The most rows of a tentative run of the block; 0: what its rows change cannot be taken back.
  virtual size_t tentative_rows(size_t block) const { return spaces_[block].undoing.rows; }
  // Bytes that are copied for each tentative run.
  size_t tentative_bytes(size_t block) const { return spaces_[block].undoing.bytes; }
  // A row that was taken back: the ops that change tables, in order, each with its inputs.
  struct Walk {
    std::vector<const Instruction*> ops;
    std::vector<std::byte> inputs;
  };
  // After a step with tentative runs, before anything else touches their contexts: of those in `kept` only so many
  // rows, at least one, have happened, of the others all. Values of the step stay as they are. Gives of each run in
  // `kept` that is noted the rows that were taken back, else none.
  std::vector<std::vector<Walk>> keep(std::span<const Run> kept);
  // What the row did to the tables of its context, which stand as they did before it in that step. The caller moves
  // clock and chain.
  void walk(Context& context, size_t block, const Walk& row);
  // A copy of what so many rows of a context are about to overwrite, and the way back from behind these rows; of
  // several copies the newest first. The caller moves clock and chain. Of a block with as many tentative_rows().
  struct Mark {
    size_t rows = 0;
    std::vector<std::byte> before;  // of the images, then of the rings
    std::vector<Positions> rings;   // of each ring: the positions that the rows write
    std::map<std::pair<Name, size_t>, GateSums> gates;
  };
  Mark mark(Context& context, size_t block, size_t rows);
  void back(Context& context, size_t block, const Mark& mark);

  // executor_parking.cc
  // Whether runs of the block may leave a step for want of experts.
  bool parks(size_t block) const { return spaces_[block].parks; }
  // How pass() waits for the disk. `wake` may be called from any thread and ends wait(). wait() returns false when the
  // step should go on without the missing experts, because other work would be held up.
  struct Idle {
    std::function<void()> wake;
    std::function<bool()> wait;
  };
  // As step(), of a block that parks, but runs may leave it, and parked runs join it where their experts have come.
  // Gives the runs that came through to the end, with the rows that they have in the block's values. `runs` may be
  // empty where can_join(). The context of a parked run stays pinned, and nobody else touches it.
  virtual std::vector<Run> pass(size_t block, std::span<const Run> runs, const Idle& idle);
  // Whether a parked run could join a step; `swift`: one whose experts mostly are in memory.
  bool can_join(bool swift = false) const;
  // Visits the parked runs: visit(context, ticket), which opens when the run can join.
  void each_parked(const auto& visit) const {
    for (const auto& parked : parked_) visit(parked.run.context, parked.ticket);
  }
  // Forgets the parked runs. Their contexts are unusable.
  void abandon();

  // Of the last step.
  const std::vector<Fault>& faults() const { return faults_; }
  const std::vector<TraceEntry>& trace() const { return trace_; }
  // With ExecutorOptions::watch: the first node that gave a non-finite number in a row of this context; else null.
  const std::string* first_non_finite(const Context* context) const;

  const Model& model() const { return *model_; }
  ThreadPool& pool() { return pool_; }
  const ExecutorOptions& options() const { return options_; }
  const Plan& plan(size_t block) const { return spaces_[block].plan; }

 protected:
  // How tentative runs of a block are taken back.
  struct Undoing {
    size_t rows = 0, bytes = 0;    // see tentative_rows(), tentative_bytes()
    std::vector<uint32_t> images;  // slices that are copied before the step
    std::vector<uint32_t> rings;   // slices of which the places are copied that the rows take
  };

  // The memory of a block's values.
  struct Space {
    const Program* program;
    std::vector<Lifetime> lifetimes;  // [values]
    Plan plan;                        // offsets for a step of one row
    size_t rows;                      // the most rows of a step
    bool parks;                       // see parks()
    DeviceMemory memory;  // [plan.bytes × rows]; value i at plan.offsets[i] × rows, as [rows, bytes of the value]
    std::vector<int64_t> growth;  // [declarations]: what a row adds to that counter; 0 where it is none
    Undoing undoing = {};
  };

  // A run that left a step.
  struct ParkedRun {
    Space* space;
    size_t line;                                      // of Program::code: where it goes on
    Run run;                                          // `row` has no meaning
    std::map<uint32_t, std::vector<size_t>> pending;  // experts yet to be multiplied, each with its places in the run
    DeviceMemory values;                              // those of its rows that are alive at the line, one by one
    std::vector<Fault> faults;
    size_t arrivals;  // experts that its ticket waits for and that may not go before it opens, but for one
    std::shared_ptr<Ticket> ticket;
  };

  // `lifetimes` gives the lifetimes of a program's values by which this device plans their memory.
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

  // The parts of a step before its first node and after its last one.
  void begin(Space& space, std::span<const Run> runs);
  void end(const Space& space, std::span<const Run> runs);
  // Raises the counters by the rows of the run.
  void raise(const Space& space, const Run& run);
  // Zeroes a value's rows.
  virtual void zero(Space& space, uint32_t id, size_t rows) = 0;
  // Runs a stage whose rows may run at once (row_parallel, row_local).
  virtual void rows_together(Space& space, const Stage& stage, size_t rows, std::span<const Run> runs) = 0;
  // Runs one instruction over rows first … first + rows − 1, which are the rows of `runs`.
  virtual void dispatch(Space& space, const Instruction& instruction, size_t first, size_t rows,
                        std::span<const Run> runs) = 0;
  // A value of one row that the host needs to go on: a condition, or an index into a table.
  virtual bool truth(Space& space, uint32_t id, size_t row) = 0;
  virtual int32_t number(Space& space, uint32_t id, size_t row) = 0;
  // Rows of a value on the host, for ExecutorOptions::watch.
  virtual const std::byte* look_at(Space& space, uint32_t id, size_t first, size_t rows) = 0;

  void row_by_row(Space& space, const Stage& stage, size_t rows, std::span<const Run> runs);
  // Runs the instructions over one row. False where the row reached a return.
  bool row_through(Space& space, std::span<const Instruction> code, const Run& row);
  // dispatch(), with the trace and the check for finite numbers where the options ask for them.
  void run(Space& space, const Instruction& instruction, size_t first, size_t rows, std::span<const Run> runs);

  // executor_experts.cc. Experts of a store, each multiplied as it comes. A place is the number of a row times the
  // experts that a row goes to, plus the place among those.
  void experts(Space& space, const Instruction& instruction, size_t first, size_t rows);
  void experts_ahead(Space& space, const Instruction& instruction, size_t first, size_t rows);
  // Rows of a value of whole numbers on the host, [rows, elements], valid until the next call of the executor.
  std::span<const int32_t> numbers(Space& space, uint32_t id, size_t first, size_t rows);
  // What the expert makes of the rows of these places, as rows of the result. `loan`: the expert in the host's memory,
  // or nothing where the device holds it.
  virtual void multiply_expert(Space& space, const Instruction& instruction, uint32_t expert, experts::Loan loan,
                               std::span<const size_t> places) = 0;
  // The results of places whose id names no expert: NaN.
  virtual void no_expert(Space& space, const Instruction& instruction, std::span<const size_t> places) = 0;
  // Whether the device has the expert in memory of its own, until the next call of multiply_expert.
  virtual bool holds_expert(uint32_t /*layer*/, uint32_t /*expert*/) { return false; }

  // executor_state.cc
  // The value of a counter as row i of the run sees it; `seen`: see Pick.
  int64_t count_at(const Space& space, Name counter, int64_t seen, const Run& run, size_t i) const;
  // Whether positions of the table lie in blocks.
  bool in_blocks(Name table) const;
  // The first element of the member that `place` picks for row i of the run, by its indices before, on and behind the
  // axis whose positions lie in blocks; where there is none, `before` alone counts. None after a fault.
  struct Member {
    size_t before = 0, position = 0, behind = 0;
  };
  std::optional<Member> locate(Space& space, const Instruction& instruction, const Place& place, const Run& run,
                               size_t i);
  // The address of that element on the device, to be read, or written as well; null after a fault. Of a volatile table
  // to be written: in the copy that the row writes.
  std::byte* find(Space& space, const Instruction& instruction, const Place& place, const Run& run, size_t i,
                  bool writes);
  // Elements of the member that `place` picks, of a table that is volatile or grows along several counters. They lie
  // side by side.
  size_t elements_left(const Place& place, const Context& context) const;
  using Tables = std::array<float*, 4>;  // no op has more places
  // The addresses of the members that the instruction's places pick in the run's context; all null after a fault.
  Tables tables(Space& space, const Instruction& instruction, const Run& run);
  // A member of a ring that cache.attend writes and reads: position p lies in slot p mod places from `data`, or in
  // blocks; then data is null.
  struct Ring {
    float* data;
    BlockList blocks;
    bool there() const { return data || blocks.blocks; }
  };
  using Rings = std::array<Ring, 4>;
  // The members that the instruction's places pick in the run's context, all in blocks or none; not there after a
  // fault.
  Rings rings(Space& space, const Instruction& instruction, const Run& run);
  // The keys and values that row i of a run attends to, positions first … last − 1. In a ring that is one span position
  // p lies in slot p mod slots from keys and values; else slots is 0, and the blocks say where. None after a fault.
  struct History {
    const std::byte *keys, *values;
    size_t first, last, slots;
    BlockList key_blocks, value_blocks;
  };
  std::optional<History> history(Space& space, const Instruction& instruction, const Run& run, size_t i);
  // The low word of the position that row i has by the counter of a rope: the last one that the counter counts.
  uint32_t position(const Space& space, const Instruction& instruction, const Run& run, size_t i) const;
  // The result of a cache.read of a counter in row i.
  int32_t count_read(const Space& space, const Instruction& instruction, const Run& run, size_t i) const;
  void move_counter(Space& space, const Instruction& instruction, std::span<const Run> runs);
  void reset(Space& space, const Instruction& instruction, std::span<const Run> runs);
  void clear(Space& space, const Instruction& instruction, const Run& run, size_t i);
  void fault(const Instruction& instruction, Context& context, const std::string& what);

  std::shared_ptr<const Model> model_;
  ThreadPool& pool_;
  ExecutorOptions options_;
  VolatileTables volatile_tables_;
  std::vector<Space> spaces_;      // [blocks]
  std::vector<ParkedRun> parked_;  // in the order in which they left
  std::vector<Fault> faults_;
  std::vector<TraceEntry> trace_;
  std::vector<Fault> non_finite_;  // with ExecutorOptions::watch: per context its first such node, in `message`

 private:
  // executor_parking.cc
  class WantedExperts;
  class Stop;
  bool parks(const Program& program) const;

  // executor_undo.cc
  struct Tentative {
    Space* space;
    Run run;
    size_t stay = 0;  // rows of it
    Mark mark = {};
    bool whole() const { return stay == run.rows; }
  };
  struct Noted {
    const Instruction* instruction;
    std::vector<Run> runs;
    size_t bytes_at;  // in note_bytes_: per run, per input that is no constant, its rows
    bool copied;      // it writes tables of which there is a copy
  };
  bool writes_own_position(const Instruction& instruction, const Place& place) const;
  Undoing undoing_of(const Space& space) const;
  void begin_tentative(Space& space, std::span<const Run> runs);
  void each_ring_row(Context& context, const StateSlice& slice, Positions positions, const auto& visit);
  void each_input(const Space& space, const Instruction& instruction, const auto& visit) const;
  void beside_values(Space& space, const auto& work);
  void note_inputs(const Space& space, const Instruction& instruction, std::span<const Run> runs);
  void walk_again(std::span<const Tentative> own);
  void note_before(const Space& space, Context& context, size_t rows, Mark& mark);
  void give_images(const Space& space, Context& context, const Mark& mark);
  void take_back(const Space& space, Context& context, const Mark& mark, size_t stay);
  std::vector<Walk> walks_of(const Tentative& own) const;
  std::vector<Tentative> tentative_;  // the first `tentatives_` of them are runs of this step
  size_t tentatives_ = 0;
  std::vector<Noted> noted_;  // in the order in which they ran
  std::vector<std::byte> note_bytes_;
  DeviceMemory again_;  // in place of the memory of a block's values

  size_t room_of_archive(const Context& context, size_t wanted, std::string& reason) const;
  // The member of a volatile table that a place picks.
  uint32_t member_of(const Place& place) const;
  void end_row();
  void note(Space& space, const Instruction& instruction, size_t rows, double microseconds);
  void look(Space& space, const Instruction& instruction, size_t first, size_t rows, std::span<const Run> runs);
};

// Runs block "predict". `hiddens`: per row the address of a hidden vector [channels] f32 on the device.
void predict(Executor& executor, std::span<const std::byte* const> hiddens);
// Logits [rows, vocabulary] of the last step of block "predict", on the host.
const float* predicted(Executor& executor, size_t rows);

}  // namespace continuo
