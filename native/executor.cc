#include "executor.h"

#include <algorithm>

#include "linear.h"

namespace continuo {

namespace {

// Work below this many multiply-adds is done by the calling thread: waking another costs more.
constexpr size_t fork_threshold = 1 << 18;
// Logits of at most this many floats at once (16 MiB).
constexpr size_t predict_floats = size_t{1} << 22;
constexpr size_t wkv7_lanes = 64;

// Multiply-adds that cost as much as one element of the operation; a guess is enough.
size_t cost_of(Op op) {
  switch (op) {
    case Op::tanh:
    case Op::sigmoid:
    case Op::decay: return 12;
    case Op::norm: return 4;
    default: return 2;
  }
}

}  // namespace

Executor::Executor(std::shared_ptr<const Model> model, ThreadPool& pool, bool reuse_slots)
    : model_(std::move(model)), pool_(pool), predict_rows_(std::clamp<size_t>(predict_floats / model_->graph.vocabulary(), 1, max_rows)) {
  const auto& graph = model_->graph;
  step_ = make_space(Plan::make(graph, graph.step, {graph.hidden, graph.previous}, reuse_slots), max_rows);
  predict_ = make_space(Plan::make(graph, graph.predict, {graph.logits}, reuse_slots), predict_rows_);
  size_t scratch = 0;
  for (const auto& constant : model_->constants) {
    if (constant.layout == Layout::packed) scratch = std::max(scratch, scratch_bytes(constant.matrix(), max_rows));
  }
  scratch_ = Memory(scratch);
}

Executor::Space Executor::make_space(Plan plan, size_t rows) {
  Space space{std::move(plan), {}, {}};
  size_t floats = 0;
  for (const size_t width : space.plan.widths) {
    space.offsets.push_back(floats);
    floats += (width * rows + 15) / 16 * 16;
  }
  space.memory = Memory(floats * sizeof(float));
  return space;
}

void Executor::step(std::span<const int32_t> tokens, std::span<const Run> runs) {
  for (const auto& node : model_->graph.step.nodes) run(node, step_, tokens.size(), tokens, runs);
}

const float* Executor::predict(size_t rows) {
  for (const auto& node : model_->graph.predict.nodes) run(node, predict_, rows, {}, {});
  return value(predict_, model_->graph.logits);
}

void Executor::run(const Node& node, Space& space, size_t rows, std::span<const int32_t> tokens, std::span<const Run> runs) {
  switch (node.op) {
    case Op::matmul: return matmul(node, space, rows);
    case Op::cache_shift: return shift(node, space, runs);
    case Op::cache_wkv7: return wkv7(node, space, runs);
    default: break;
  }
  const auto work = [&](size_t first, size_t count) {
    if (node.op == Op::embed) embed(node, space, first, count, tokens);
    else elementwise(node, space, first, count);
  };
  if (rows * model_->graph.width(node.out) * cost_of(node.op) < fork_threshold) return work(0, rows);
  const size_t tasks = std::min(rows, pool_.threads() * 2);
  pool_.parallel_for(tasks, [&](size_t task) {
    const size_t first = rows * task / tasks;
    work(first, rows * (task + 1) / tasks - first);
  });
}

void Executor::matmul(const Node& node, Space& space, size_t rows) {
  multiply(pool_, model_->kernels, model_->constants[node.in[1]].matrix(), value(space, node.in[0]), value(space, node.out), rows, scratch_);
}

void Executor::embed(const Node& node, Space& space, size_t first, size_t rows, std::span<const int32_t> tokens) {
  const auto& table = model_->constants[node.in[1]];
  const size_t width = table.inputs;
  float* out = value(space, node.out);
  for (size_t row = first; row < first + rows; ++row) {
    const size_t from = static_cast<size_t>(tokens[row]) * width;
    for (size_t i = 0; i < width; ++i) out[row * width + i] = read_element(table.bytes.data(), table.dtype, from + i);
  }
}

void Executor::elementwise(const Node& node, Space& space, size_t first, size_t rows) {
  const auto& graph = model_->graph;
  const auto& kernels = model_->kernels;
  const size_t width = graph.width(node.out);
  const auto constant = [&](size_t i) { return graph.declarations[node.in[i]].kind == Kind::constant; };
  // Operand i at row `first`: a value's rows, or a constant vector.
  const auto in = [&](size_t i) {
    return constant(i) ? model_->constants[node.in[i]].vector() : static_cast<const float*>(value(space, node.in[i])) + first * width;
  };
  float* out = value(space, node.out) + first * width;

  // Values only: all rows are one long array. With a constant vector in the last place: row by row, and the last operand
  // begins anew with each (`again`).
  const bool broadcast = constant(node.in.size() - 1);
  const auto spread = [&](const auto& kernel) {
    if (!broadcast) return kernel(size_t{0}, size_t{0}, rows * width);
    for (size_t row = 0; row < rows; ++row) kernel(row * width, size_t{0}, width);
  };
  switch (node.op) {
    case Op::add: return spread([&](size_t at, size_t again, size_t n) { kernels.add(in(0) + at, in(1) + again, out + at, n); });
    case Op::mul: return spread([&](size_t at, size_t again, size_t n) { kernels.mul(in(0) + at, in(1) + again, out + at, n); });
    case Op::lerp: return spread([&](size_t at, size_t again, size_t n) { kernels.lerp(in(0) + at, in(1) + at, in(2) + again, out + at, n); });
    case Op::tanh: return kernels.tanh(in(0), out, rows * width);
    case Op::sigmoid: return kernels.sigmoid(in(0), out, rows * width);
    case Op::relu2: return kernels.relu2(in(0), out, rows * width);
    case Op::decay: return kernels.decay(in(0), out, rows * width);
    case Op::norm: return kernels.norm(in(0), in(1), in(2), out, rows, width, node.groups, node.eps);
    case Op::l2norm: return kernels.l2norm(in(0), out, rows, width, node.groups, node.eps);
    case Op::bonus: return kernels.bonus(in(0), in(1), in(2), in(3), in(4), out, rows, width, node.groups);
    default: return;  // the others have functions of their own
  }
}

void Executor::shift(const Node& node, Space& space, std::span<const Run> runs) {
  const size_t width = model_->graph.width(node.out);
  const float* in = value(space, node.in[0]);
  float* out = value(space, node.out);
  const size_t bytes = width * sizeof(float);
  for (const auto& run : runs) {
    float* kept = run.context->state() + model_->state_offset[node.state];
    std::memcpy(out + run.row * width, kept, bytes);
    std::memcpy(out + (run.row + 1) * width, in + run.row * width, (run.rows - 1) * bytes);
    std::memcpy(kept, in + (run.row + run.rows - 1) * width, bytes);
  }
}

void Executor::wkv7(const Node& node, Space& space, std::span<const Run> runs) {
  const size_t width = model_->graph.width(node.out);
  const size_t n = width / node.groups;
  const size_t stripes = (n + wkv7_lanes - 1) / wkv7_lanes;
  const size_t per_run = node.groups * stripes;
  size_t rows = 0;
  for (const auto& run : runs) rows += run.rows;
  const auto work = [&](size_t task) {
    const Run& run = runs[task / per_run];
    const size_t head = task % per_run / stripes;
    const size_t lane = task % stripes * wkv7_lanes;
    const size_t at = run.row * width + head * n;
    const auto in = [&](size_t i) { return static_cast<const float*>(value(space, node.in[i])) + at; };
    float* state = run.context->state() + model_->state_offset[node.state] + head * n * n;
    const Wkv7Run job{state, in(0), in(1), in(2), in(3), in(4), in(5), value(space, node.out) + at, n, width, run.rows};
    model_->kernels.wkv7(job, lane, std::min(n, lane + wkv7_lanes));
  };
  const size_t tasks = runs.size() * per_run;
  if (rows * width * n * 4 < fork_threshold) {
    for (size_t task = 0; task < tasks; ++task) work(task);
  } else {
    pool_.parallel_for(tasks, work);
  }
}

}  // namespace continuo
