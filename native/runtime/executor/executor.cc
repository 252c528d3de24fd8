#include "runtime/executor/executor.h"

#include <algorithm>
#include <chrono>

#include "graph/ops.h"

namespace continuo {

namespace {

// Memory that the rows of a block's widest value may take (16 MiB). It bounds the rows of a step.
constexpr size_t widest_bytes = size_t{1} << 24;

bool writes_volatile_table(const Graph& graph, const Instruction& instruction) {
  return traits_of(instruction.node->op).state != State::reads &&
         std::any_of(instruction.places.begin(), instruction.places.end(),
                     [&](const Place& place) { return graph.declarations[place.table].volatile_table(); });
}

}  // namespace

Executor::Executor(std::shared_ptr<const Model> model, ThreadPool& pool, ExecutorOptions options,
                   std::vector<Lifetime> (*lifetimes)(const Program&))
    : model_(std::move(model)), pool_(pool), options_(options), volatile_tables_(*model_) {
  for (const auto& program : model_->programs) {
    Space space{&program, lifetimes(program), {}, rows_for(program), parks(program), {}, {}};
    space.plan = Plan::make(space.lifetimes, options.reuse);
    space.memory = DeviceMemory(model_->device, space.plan.bytes * space.rows);
    space.growth.assign(model_->graph.declarations.size(), 0);
    for (const auto& [counter, by] : program.growth) space.growth[counter] = by;
    space.undoing = undoing_of(space);
    spaces_.push_back(std::move(space));
  }
}

size_t Executor::rows_for(const Program& program) {
  return std::clamp<size_t>(widest_bytes / program.widest, 1, max_rows);
}

size_t Executor::room(const Context& context, size_t block, size_t wanted, std::string& reason) const {
  size_t rows = wanted;
  for (const auto& [counter, by] : programs()[block].growth) {
    const auto& d = model_->graph.declarations[counter];
    // The clock has no bound, and what is derived is laid anew before it comes to its own.
    if (d.clock || d.derived) continue;
    const auto left = (static_cast<int64_t>(d.bound) - context.counter(counter)) / by;
    if (static_cast<size_t>(left) >= rows) continue;
    rows = static_cast<size_t>(left);
    const auto end = static_cast<uint64_t>(context.counter(counter)) + static_cast<uint64_t>(by) * wanted;
    reason = text(end, " positions exceed the ", d.bound, " of counter \"", d.name, "\", which stands at ",
                  context.counter(counter),
                  ". Nothing was written: ", rows == 0 ? text("") : text("feed at most ", rows, ", or "),
                  "reset the context.");
  }
  if (model_->graph.memory && block == model_->graph.language->step) return room_of_archive(context, rows, reason);
  return rows;
}

// Of the counters that the external memory raises at its beats.
size_t Executor::room_of_archive(const Context& context, size_t wanted, std::string& reason) const {
  const auto& memory = *model_->graph.memory;
  const auto& all = model_->graph.declarations;
  const uint64_t blocks = std::min(all[memory.names.rows].bound, all[memory.names.archived].bound);
  const uint64_t most = memory.most_tokens(blocks), count = static_cast<uint64_t>(context.counter(memory.names.count));
  const uint64_t left = most - std::min(most, count);
  if (left >= wanted) return wanted;
  reason =
      text(count + wanted, " tokens exceed the ", most, " that a context with this memory.json can read; it has read ",
           count, ". Nothing was written: ", left == 0 ? text("") : text("feed at most ", left, ", or "),
           "reset the context.");
  return static_cast<size_t>(left);
}

size_t Executor::within_segment(const Context& context, size_t block, size_t wanted) const {
  for (const uint64_t segment : programs()[block].segments)
    wanted = std::min<size_t>(wanted, segment - context.head.pulse % segment);
  const auto& graph = model_->graph;
  if (graph.memory && block == graph.language->step)
    wanted = std::min(wanted, graph.memory->block - static_cast<size_t>(context.counter(graph.memory->names.count)) %
                                                        graph.memory->block);
  return wanted;
}

const std::string* Executor::first_non_finite(const Context* context) const {
  for (const auto& entry : non_finite_) {
    if (entry.context == context) return &entry.message;
  }
  return nullptr;
}

void Executor::begin(Space& space, std::span<const Run> runs) {
  faults_.clear();
  trace_.clear();
  non_finite_.clear();
  end_row();  // of a step that did not come to its end
  // Now, because growing moves a block, and rows will hold addresses into it.
  for (const auto& run : runs) {
    run.context->settle();
    reserve(*run.context, static_cast<size_t>(&space - spaces_.data()), run.rows);
  }
  // A block without runs changes no context.
  if (!runs.empty()) begin_tentative(space, runs);
}

void Executor::reserve(Context& context, size_t block, size_t rows) const {
  for (const auto& [counter, by] : programs()[block].growth)
    context.reserve(counter, context.counter(counter) + by * static_cast<int64_t>(rows));
}

void Executor::end(const Space& space, std::span<const Run> runs) {
  for (const auto& run : runs) {
    if (!run.tentative) raise(space, run);
  }
}

void Executor::raise(const Space& space, const Run& run) {
  for (const auto& [counter, by] : space.program->growth)
    run.context->raise(counter, run.context->counter(counter) + by * static_cast<int64_t>(run.rows));
}

void Executor::step(size_t block, size_t rows, std::span<const Run> runs) {
  auto& space = spaces_[block];
  const auto& program = *space.program;
  begin(space, runs);
  for (uint32_t id = 0; id < program.values.size(); ++id) {
    if (program.values[id].reset) zero(space, id, rows);
  }
  for (const auto& stage : program.stages) {
    if (stage.order == Stage::Order::row_serial)
      row_by_row(space, stage, rows, runs);
    else
      rows_together(space, stage, rows, runs);
  }
  end(space, runs);
}

void Executor::row_by_row(Space& space, const Stage& stage, size_t rows, std::span<const Run> runs) {
  const auto code = std::span(space.program->code).subspan(stage.first, stage.last - stage.first + 1);
  const bool apart = std::any_of(code.begin(), code.end(), [&](const Instruction& i) {
    return i.node->op == Op::branch || writes_volatile_table(model_->graph, i);
  });
  // With one row of each context, no branch and no volatile table that a row writes, no row depends on another: all
  // rows run at once.
  if (!apart && std::all_of(runs.begin(), runs.end(), [](const Run& run) { return run.rows == 1; })) {
    for (const auto& instruction : code) run(space, instruction, 0, rows, runs);
    return;
  }
  for (const auto& run : runs) {
    for (size_t i = 0; i < run.rows; ++i) {
      Run row = run;
      row.row += i, row.rows = 1, row.number += i;
      row_through(space, code, row);
      end_row();
    }
  }
}

void Executor::end_row() {
  if (!volatile_tables_.written()) return;
  settle();
  volatile_tables_.end_row();
}

bool Executor::row_through(Space& space, std::span<const Instruction> code, const Run& row) {
  for (const auto& instruction : code) {
    if (instruction.node->op == Op::return_) return false;
    if (instruction.node->op != Op::branch) {
      run(space, instruction, row.row, 1, {&row, 1});
      continue;
    }
    const bool taken = truth(space, instruction.in[0].id, row.row);
    if (!row_through(space, taken ? instruction.then : instruction.otherwise, row)) return false;
  }
  return true;
}

void Executor::run(Space& space, const Instruction& instruction, size_t first, size_t rows, std::span<const Run> runs) {
  note_inputs(space, instruction, runs);
  if (!options_.trace && !options_.watch) return dispatch(space, instruction, first, rows, runs);
  const auto started = std::chrono::steady_clock::now();
  dispatch(space, instruction, first, rows, runs);
  settle();
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - started;
  if (options_.trace) note(space, instruction, rows, took.count());
  if (options_.watch) look(space, instruction, first, rows, runs);
}

// Where rows ran the instruction one after the other, adds to the instruction's entry.
void Executor::note(Space& space, const Instruction& instruction, size_t rows, double microseconds) {
  size_t bytes = 0;
  for (const auto& argument : instruction.in)
    bytes += argument.constant ? model_->constants[argument.id].bytes.size()
                               : rows * space.program->values[argument.id].bytes;
  if (instruction.out != no_name) bytes += rows * space.program->values[instruction.out].bytes;
  const auto found = std::find_if(trace_.begin(), trace_.end(),
                                  [&](const TraceEntry& entry) { return entry.instruction == &instruction; });
  if (found == trace_.end()) {
    trace_.push_back(
        {&instruction, instruction_text(model_->graph, instruction), instruction.node->out, rows, microseconds, bytes});
  } else {
    found->rows += rows;
    found->microseconds += microseconds;
    found->bytes += bytes;
  }
}

void Executor::look(Space& space, const Instruction& instruction, size_t first, size_t rows,
                    std::span<const Run> runs) {
  if (instruction.out == no_name || declared(space, instruction.out).type != Type::f32) return;
  const size_t n = width(space, instruction.out);
  const auto* numbers = reinterpret_cast<const float*>(look_at(space, instruction.out, first, rows));
  for (size_t row = first; row < first + rows; ++row) {
    if (model_->host().finite(numbers + (row - first) * n, n)) continue;
    const auto run =
        std::find_if(runs.begin(), runs.end(), [&](const Run& r) { return row >= r.row && row < r.row + r.rows; });
    const Context* context = run == runs.end() ? nullptr : run->context;
    if (!first_non_finite(context)) non_finite_.push_back({context, instruction_text(model_->graph, instruction)});
  }
}

void predict(Executor& executor, std::span<const std::byte* const> hiddens) {
  const size_t block = executor.model().graph.language->predict;
  executor.gather(block, 0, hiddens);
  executor.step(block, hiddens.size(), {});
}

const float* predicted(Executor& executor, size_t rows) {
  const auto& language = *executor.model().graph.language;
  return reinterpret_cast<const float*>(
      executor.fetch(language.predict, executor.model().programs[language.predict].last_value[language.logits], rows));
}

}  // namespace continuo
