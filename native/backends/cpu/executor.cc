#include "backends/cpu/executor.h"

#include <algorithm>
#include <array>
#include <limits>

#include "backends/cpu/linear.h"
#include "backends/cpu/moments.h"
#include "backends/cpu/products.h"
#include "base/cast.h"
#include "graph/ops.h"
#include "runtime/sampling/sampler.h"

namespace continuo {

namespace {

// Rows that go through local nodes together, so that what one node wrote is still near when the next one reads it.
constexpr size_t local_rows = 8;

// The places of the `chosen` largest of n numbers, ascending; of equal numbers the first. NaN counts as −∞.
void largest(const float* numbers, size_t n, int32_t* places, size_t chosen) {
  std::array<float, max_scores> scores;
  std::array<bool, max_scores> taken{};
  for (size_t i = 0; i < n; ++i) {
    const float x = numbers[i];
    scores[i] = x == x ? x : -std::numeric_limits<float>::infinity();
  }
  for (size_t k = 0; k < chosen; ++k) {
    size_t best = n;
    for (size_t i = 0; i < n; ++i) {
      if (!taken[i] && (best == n || scores[i] > scores[best])) best = i;
    }
    taken[best] = true;
  }
  for (size_t i = 0; i < n; ++i) {
    if (taken[i]) *places++ = static_cast<int32_t>(i);
  }
}

}  // namespace

CpuExecutor::CpuExecutor(std::shared_ptr<const Model> model, ThreadPool& pool, const ExecutorOptions& options,
                         const Kernels& kernels)
    : Executor(std::move(model), pool, options, grouped_lifetimes), kernels_(kernels) {
  size_t scratch = 0;
  for (const auto& program : programs()) {
    auto& counts = products_.emplace_back(program.code.size(), 0);
    for (const auto& [first, count] : product_groups(program)) {
      counts[first] = count;
      size_t bytes = 0;
      for (size_t line = first; line < first + count; ++line)
        bytes += scratch_bytes(matrix(program.code[line]), max_rows);
      scratch = std::max(scratch, bytes);
    }
  }
  for (const auto& program : programs()) scratch = std::max(scratch, reserve_routed(program, max_rows));
  // Products that go row after row are in no group.
  for (const auto& constant : model_->constants) {
    if (constant.layout == Layout::packed) scratch = std::max(scratch, scratch_bytes(constant.matrix(), max_rows));
  }
  scratch_ = Memory(scratch);
  prepare_subwords();
  if (options_.moments) prepare_moments(*options_.moments, *model_, pool_, kernels_);
}

void CpuExecutor::insert(size_t block, size_t index, std::span<const std::byte> rows) {
  std::memcpy(input(block, index), rows.data(), rows.size());
}

void CpuExecutor::gather(size_t block, size_t index, std::span<const std::byte* const> rows) {
  const size_t bytes = programs()[block].values[programs()[block].inputs[index]].bytes;
  for (size_t row = 0; row < rows.size(); ++row) std::memcpy(input(block, index) + row * bytes, rows[row], bytes);
}

void CpuExecutor::surprisals(std::span<const int32_t> expected, size_t first, float* nats) {
  const auto& language = *model_->graph.language;
  const size_t vocabulary = model_->graph.vocabulary();
  const auto* logits = reinterpret_cast<const float*>(
                           address(language.predict, programs()[language.predict].last_value[language.logits])) +
                       first * vocabulary;
  fork(expected.size(), expected.size() * vocabulary,
       [&](size_t row) { nats[row] = surprisal(kernels_, {logits + row * vocabulary, vocabulary}, expected[row]); });
}

void CpuExecutor::rows_together(Space& space, const Stage& stage, size_t rows, std::span<const Run> runs) {
  const auto code = std::span(space.program->code).subspan(stage.first, stage.last - stage.first + 1);
  // Timing and watching want nodes one by one.
  const bool apart = options_.trace || options_.watch;
  if (code[0].node->op == Op::matmul && !apart) {
    const size_t count = products_[static_cast<size_t>(&space - spaces_.data())][stage.first];
    if (count > 0) matmul(space, std::span(space.program->code).subspan(stage.first, count), 0, rows);
    return;
  }
  if (stage.order == Stage::Order::row_parallel || apart) {
    for (const auto& instruction : code) run(space, instruction, 0, rows, runs);
    return;
  }
  locals(space, code, 0, rows);
}

// Nodes that work on each row by itself: some rows at a time go through all of them.
void CpuExecutor::locals(Space& space, std::span<const Instruction> code, size_t first, size_t rows) {
  size_t cost = 0;
  for (const auto& instruction : code) cost += width(space, instruction.out) * traits_of(instruction.node->op).cost;
  const size_t tasks = (rows + local_rows - 1) / local_rows;
  const auto task = [&](size_t i) {
    const size_t from = i * local_rows;
    for (const auto& instruction : code) local(space, instruction, first + from, std::min(local_rows, rows - from));
  };
  fork(tasks, rows * cost, task);
}

void CpuExecutor::dispatch(Space& space, const Instruction& instruction, size_t first, size_t rows,
                           std::span<const Run> runs) {
  switch (instruction.node->op) {
    case Op::matmul: return matmul(space, {&instruction, 1}, first, rows);
    case Op::routed: return routed(space, instruction, first, rows);
    case Op::experts: return experts(space, instruction, first, rows);
    case Op::experts_ahead: return experts_ahead(space, instruction, first, rows);
    case Op::torus: return torus(space, instruction, runs);
    case Op::adapter: return adapter(space, instruction, runs);
    case Op::rope: return rope(space, instruction, runs);
    case Op::attend: return attend(space, instruction, runs);
    case Op::attend_weights: return attend_weights(space, instruction, runs);
    case Op::cache_conv: return conv(space, instruction, runs);
    case Op::cache_attend: return attend_window(space, instruction, runs);
    case Op::cache_memory: return memory(space, instruction, runs);
    case Op::cache_memory_first: return memory_first(space, instruction, runs);
    case Op::cache_mix: return mix(space, instruction, runs);
    case Op::cache_recall: return recall(space, instruction, runs);
    case Op::cache_shift: return shift(space, instruction, runs);
    case Op::cache_wkv7: return wkv7(space, instruction, runs);
    case Op::cache_ssm: return ssm(space, instruction, runs);
    case Op::cache_pdr: return pdr(space, instruction, runs);
    case Op::cache_ngram: return ngram(space, instruction, runs);
    case Op::cache_ngram_first: return ngram_first(space, instruction, runs);
    case Op::cache_read: return read(space, instruction, runs);
    case Op::cache_write: return write(space, instruction, runs);
    case Op::cache_increment:
    case Op::cache_decrement: return move_counter(space, instruction, runs);
    case Op::cache_reset: return reset(space, instruction, runs);
    default: return locals(space, {&instruction, 1}, first, rows);
  }
}

PackedMatrix CpuExecutor::matrix(const Instruction& instruction) const {
  return model_->constants[instruction.in[1].id].matrix();
}

// Products of one group.
void CpuExecutor::matmul(Space& space, std::span<const Instruction> code, size_t first, size_t rows) {
  std::array<Product, max_products> products;
  if (options_.moments) observe(space, code, first, rows);
  for (size_t i = 0; i < code.size(); ++i) {
    const PackedMatrix w = matrix(code[i]);
    products[i] = {w, floats(space, code[i].in[0].id) + first * w.inputs,
                   floats(space, code[i].out) + first * w.outputs};
  }
  multiply(pool_, kernels_, std::span(products).first(code.size()), rows, scratch_);
}

// Rows of products that share a sum are added once.
void CpuExecutor::observe(Space& space, std::span<const Instruction> code, size_t first, size_t rows) {
  auto& moments = *options_.moments;
  for (size_t i = 0; i < code.size(); ++i) {
    const uint32_t sum = moments.sum_of[code[i].in[1].id];
    const auto shares = [&](const Instruction& other) { return moments.sum_of[other.in[1].id] == sum; };
    if (sum == no_name || std::any_of(code.begin(), code.begin() + static_cast<ptrdiff_t>(i), shares)) continue;
    add_rows(moments.sums[sum], floats(space, code[i].in[0].id) + first * moments.sums[sum].inputs, rows, pool_,
             kernels_);
  }
}

void CpuExecutor::local(Space& space, const Instruction& instruction, size_t first, size_t rows) {
  const auto& node = *instruction.node;
  switch (node.op) {
    case Op::embed: return embed(space, instruction, first, rows);
    case Op::repeat: return repeat(space, instruction, first, rows);
    case Op::less:
    case Op::equal:
    case Op::remainder: return compare(space, instruction, first, rows);
    case Op::topk: return topk(space, instruction, first, rows);
    case Op::gather: return gather_numbers(space, instruction, first, rows);
    case Op::combine: return combine(space, instruction, first, rows);
    case Op::nearest: return nearest(space, instruction, first, rows);
    case Op::project: return project(space, instruction, first, rows);
    case Op::whole: return whole(space, instruction, first, rows);
    default: break;
  }
  if (node.op != Op::slice && node.op != Op::cast) return elementwise(space, instruction, first, rows);
  const uint32_t from = instruction.in[0].id;
  const Type type = declared(space, from).type;
  const size_t in_bytes = space.program->values[from].bytes, out_bytes = space.program->values[instruction.out].bytes;
  const std::byte* in = value(space, from) + first * in_bytes;
  std::byte* out = value(space, instruction.out) + first * out_bytes;
  if (node.op == Op::cast) return cast(in, type, out, node.type, rows * width(space, instruction.out));
  const size_t group_in = in_bytes / node.groups, group_out = out_bytes / node.groups;
  for (size_t group = 0; group < rows * node.groups; ++group)
    std::memcpy(out + group * group_out, in + group * group_in + node.from * size_of(type), group_out);
}

void CpuExecutor::embed(Space& space, const Instruction& instruction, size_t first, size_t rows) {
  const auto& table = model_->constants[instruction.in[1].id];
  const auto* ids = reinterpret_cast<const int32_t*>(value(space, instruction.in[0].id));
  float* out = floats(space, instruction.out);
  for (size_t row = first; row < first + rows; ++row) {
    // Token ids were checked when they came; any other number outside the table gives what nobody can miss.
    if (ids[row] < 0 || static_cast<size_t>(ids[row]) >= table.outputs) {
      std::fill_n(out + row * table.inputs, table.inputs, std::numeric_limits<float>::quiet_NaN());
      continue;
    }
    const size_t from = static_cast<size_t>(ids[row]) * table.inputs;
    for (size_t i = 0; i < table.inputs; ++i)
      out[row * table.inputs + i] = read_element(table.bytes.data(), table.dtype, from + i);
  }
}

void CpuExecutor::repeat(Space& space, const Instruction& instruction, size_t first, size_t rows) {
  const auto& node = *instruction.node;
  const size_t n = width(space, instruction.in[0].id) / node.groups;
  const float* in = floats(space, instruction.in[0].id) + first * n * node.groups;
  float* out = floats(space, instruction.out) + first * n * node.groups * node.times;
  for (size_t group = 0; group < rows * node.groups; ++group, in += n) {
    for (size_t i = 0; i < node.times; ++i, out += n) std::copy_n(in, n, out);
  }
}

void CpuExecutor::compare(Space& space, const Instruction& instruction, size_t first, size_t rows) {
  const auto& node = *instruction.node;
  const size_t n = width(space, instruction.out), from = first * n, to = (first + rows) * n;
  std::byte* out = value(space, instruction.out);
  const auto each = [&]<class T>(const T* a, const T* b) {
    for (size_t i = from; i < to; ++i) {
      const T right = b ? b[i] : static_cast<T>(node.number);
      if (node.op == Op::remainder) {
        // Of a flooring division, so that it is never negative; nothing is divided by less than one.
        const auto divisor = static_cast<int64_t>(right);
        const int64_t rest = divisor > 0 ? static_cast<int64_t>(a[i]) % divisor : 0;
        reinterpret_cast<int32_t*>(out)[i] = static_cast<int32_t>(rest < 0 ? rest + divisor : rest);
      } else {
        out[i] = static_cast<std::byte>(node.op == Op::less ? a[i] < right : a[i] == right);
      }
    }
  };
  const std::byte* a = value(space, instruction.in[0].id);
  const std::byte* b = instruction.in.size() > 1 ? value(space, instruction.in[1].id) : nullptr;
  if (declared(space, instruction.in[0].id).type == Type::f32)
    each(reinterpret_cast<const float*>(a), reinterpret_cast<const float*>(b));
  else
    each(reinterpret_cast<const int32_t*>(a), reinterpret_cast<const int32_t*>(b));
}

void CpuExecutor::topk(Space& space, const Instruction& instruction, size_t first, size_t rows) {
  const size_t n = width(space, instruction.in[0].id), chosen = width(space, instruction.out);
  for (size_t row = first; row < first + rows; ++row) {
    auto* out = reinterpret_cast<int32_t*>(value(space, instruction.out)) + row * chosen;
    largest(floats(space, instruction.in[0].id) + row * n, n, out, chosen);
  }
}

void CpuExecutor::gather_numbers(Space& space, const Instruction& instruction, size_t first, size_t rows) {
  const size_t n = width(space, instruction.in[0].id), each = width(space, instruction.out);
  const auto* ids = reinterpret_cast<const int32_t*>(value(space, instruction.in[1].id));
  const float* in = floats(space, instruction.in[0].id);
  float* out = floats(space, instruction.out);
  for (size_t row = first; row < first + rows; ++row) {
    for (size_t at = row * each; at < (row + 1) * each; ++at) {
      const bool there = ids[at] >= 0 && static_cast<size_t>(ids[at]) < n;
      out[at] = there ? in[row * n + static_cast<size_t>(ids[at])] : std::numeric_limits<float>::quiet_NaN();
    }
  }
}

void CpuExecutor::combine(Space& space, const Instruction& instruction, size_t first, size_t rows) {
  const size_t n = width(space, instruction.out), count = width(space, instruction.in[1].id);
  for (size_t row = first; row < first + rows; ++row) {
    kernels_.combine(floats(space, instruction.in[0].id) + row * count * n,
                     floats(space, instruction.in[1].id) + row * count, floats(space, instruction.out) + row * n, count,
                     n);
  }
}

void CpuExecutor::elementwise(Space& space, const Instruction& instruction, size_t first, size_t rows) {
  const auto& node = *instruction.node;
  const auto& kernels = kernels_;
  const size_t n = width(space, instruction.out);
  // Operand i at row `first`: a value's rows, or a constant vector.
  const auto in = [&](size_t i) {
    const auto& argument = instruction.in[i];
    return argument.constant ? model_->constants[argument.id].vector()
                             : static_cast<const float*>(floats(space, argument.id)) + first * n;
  };
  float* out = floats(space, instruction.out) + first * n;

  // Values only: all rows are one long array. With a constant vector in the last place: row by row, and the last
  // operand begins anew with each (`again`).
  const bool broadcast = instruction.in.back().constant;
  const auto spread = [&](const auto& kernel) {
    if (!broadcast) return kernel(size_t{0}, size_t{0}, rows * n);
    for (size_t row = 0; row < rows; ++row) kernel(row * n, size_t{0}, n);
  };
  switch (node.op) {
#define CONTINUO_UNARY_CASE(name, cost) \
  case Op::name: return kernels.name(in(0), out, rows * n);
#define CONTINUO_BINARY_CASE(name, cost) \
  case Op::name:                         \
    return spread(                       \
        [&](size_t at, size_t again, size_t count) { kernels.name(in(0) + at, in(1) + again, out + at, count); });
    CONTINUO_UNARY_OPS(CONTINUO_UNARY_CASE)
    CONTINUO_BINARY_OPS(CONTINUO_BINARY_CASE)
#undef CONTINUO_UNARY_CASE
#undef CONTINUO_BINARY_CASE
    case Op::lerp:
      return spread([&](size_t at, size_t again, size_t count) {
        kernels.lerp(in(0) + at, in(1) + at, in(2) + again, out + at, count);
      });
    case Op::range:
    case Op::clamp: {
      const auto kernel = node.op == Op::range ? kernels.range : kernels.clamp;
      const size_t levels = node.low.size(), each = n / levels;
      for (size_t i = 0; i < rows * levels; ++i)
        kernel(in(0) + i * each, node.low[i % levels], node.high[i % levels], out + i * each, each);
      return;
    }
    case Op::scale: return kernels.scale(in(0), node.scale, out, rows * n);
    case Op::softmax: return kernels.softmax_rows(in(0), out, rows, n);
    case Op::normalise: return kernels.normalise(in(0), out, rows, n);
    case Op::rmsnorm: return kernels.rmsnorm(in(0), in(1), out, rows, n, node.groups, node.eps);
    case Op::unit: return kernels.unit(in(0), out, rows, n, node.groups, node.eps);
    case Op::norm: return kernels.norm(in(0), in(1), in(2), out, rows, n, node.groups, node.eps);
    case Op::l2norm: return kernels.l2norm(in(0), out, rows, n, node.groups, node.eps);
    case Op::bonus: return kernels.bonus(in(0), in(1), in(2), in(3), in(4), out, rows, n, node.groups);
    default: return;  // the others have functions of their own
  }
}

}  // namespace continuo
