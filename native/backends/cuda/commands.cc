// Translates instructions into commands and products.
#include <algorithm>
#include <optional>

#include "backends/cuda/device.h"
#include "backends/cuda/schedule.h"
#include "backends/cuda/translate.h"
#include "graph/narrow.h"
#include "graph/ops.h"
#include "runtime/executor/executor.h"

namespace continuo::cuda {

namespace {

// The task of an op that runs as a command. None for other ops, and for ops that the device cannot run.
std::optional<Task> task_of(Op op) {
  switch (op) {
#define CONTINUO_TASK(name, cost) \
  case Op::name: return Task::name;
    CONTINUO_UNARY_OPS(CONTINUO_TASK)
    CONTINUO_BINARY_OPS(CONTINUO_TASK)
#undef CONTINUO_TASK
    case Op::embed: return Task::embed;
    case Op::norm: return Task::norm;
    case Op::rmsnorm: return Task::rmsnorm;
    case Op::unit: return Task::unit;
    case Op::lerp: return Task::lerp;
    case Op::range: return Task::range;
    case Op::clamp: return Task::clamp;
    case Op::repeat: return Task::repeat;
    case Op::l2norm: return Task::l2norm;
    case Op::bonus: return Task::bonus;
    case Op::scale: return Task::scale;
    case Op::softmax: return Task::softmax;
    case Op::normalise: return Task::normalise;
    case Op::topk: return Task::topk;
    case Op::gather: return Task::gather_numbers;
    case Op::combine: return Task::combine;
    case Op::torus: return Task::torus;
    case Op::nearest: return Task::nearest;
    case Op::project: return Task::project;
    case Op::whole: return Task::whole;
    case Op::adapter: return Task::adapter;
    case Op::rope: return Task::rope;
    case Op::slice: return Task::slice;
    case Op::cast: return Task::cast;
    case Op::less: return Task::less;
    case Op::equal: return Task::equal;
    case Op::remainder: return Task::remainder;
    case Op::attend: return Task::attend;
    case Op::attend_weights: return Task::attend_weights;
    case Op::cache_shift: return Task::shift;
    case Op::cache_conv: return Task::conv;
    case Op::cache_pdr: return Task::pdr;
    case Op::cache_wkv7: return Task::wkv7;
    case Op::cache_ssm: return Task::ssm;
    case Op::cache_attend: return Task::attend_window;
    case Op::cache_memory: return Task::memory;
    case Op::cache_memory_first: return Task::memory_first;
    case Op::cache_mix: return Task::mix;
    case Op::cache_ngram: return Task::ngram;
    case Op::cache_ngram_first: return Task::ngram_first;
    case Op::cache_recall: return Task::recall;
    case Op::cache_read: return Task::read;
    case Op::cache_write: return Task::write;
    default: return std::nullopt;
  }
}

uint32_t narrow(size_t n) { return static_cast<uint32_t>(n); }

class Translator {
 public:
  Translator(const Model& model, const Program& program, Addresses& addresses, Schedule& out)
      : model_(model), program_(program), addresses_(addresses), out_(out) {}

  Command command(const Instruction& instruction) {
    const auto& node = *instruction.node;
    Command c;
    c.task = *task_of(node.op);  // has one: Model::make() has checked Device::runs()
    c.groups = node.groups;
    c.shared = node.shared;
    c.eps = node.eps;
    c.scale = node.scale;
    c.number = node.number;
    c.segment = node.segment;
    c.form = node.memory;
    if (instruction.out != no_name) {
      c.out = addresses_.value(instruction.out);
      c.width = width(instruction.out);
    }
    for (size_t i = 0; i < instruction.in.size(); ++i) {
      const auto& argument = instruction.in[i];
      c.in[i] =
          argument.constant ? static_cast<const void*>(constant(argument).bytes.data()) : addresses_.value(argument.id);
      if (argument.constant) c.constant |= 1u << i;
    }
    if (!instruction.in.empty() && !instruction.in[0].constant) {
      c.type = type(instruction.in[0].id);
      c.in_width = width(instruction.in[0].id);
    }
    particulars(instruction, c);
    return c;
  }

 private:
  const Constant& constant(const Argument& argument) const { return model_.constants[argument.id]; }
  const Declaration& declared(uint32_t id) const { return model_.graph.declarations[program_.values[id].name]; }
  uint32_t width(uint32_t id) const { return narrow(declared(id).elements()); }
  Type type(uint32_t id) const { return declared(id).type; }

  void args_of_runs(Command& c, uint32_t n) {
    c.run_arg = out_.run_args;
    out_.run_args += n;
  }
  void args_of_rows(Command& c, uint32_t n) {
    c.row_arg = out_.row_args;
    out_.row_args += n;
  }
  template <class T> const T* literal(const std::vector<T>& numbers) {
    return static_cast<const T*>(addresses_.literal(numbers.data(), numbers.size() * sizeof(T)));
  }
  // The shares [heads, levels] of a constant vector of logits [levels, heads]. They depend on the weights alone, so
  // they are computed once.
  const float* shares(const Argument& argument, uint32_t heads, uint32_t levels) {
    const std::vector<float> logits = addresses_.numbers(constant(argument));
    return literal(level_shares(model_.host(), logits.data(), heads, levels));
  }

  // The bounds of the half-spaces and 1 / Σ n² of their normals depend on the weights alone.
  void half_spaces(const Instruction& instruction, Command& c) {
    const auto& node = *instruction.node;
    const auto normals = addresses_.numbers(constant(instruction.in[1]));
    auto bounds = addresses_.numbers(constant(instruction.in[2]));
    c.count = narrow(bounds.size());
    std::vector<float> inverse(bounds.size());
    for (size_t j = 0; j < bounds.size(); ++j) {
      const float* normal = normals.data() + j * c.width;
      inverse[j] = 1.0f / model_.host().dot(normal, normal, c.width);
      bounds[j] += node.scale;
    }
    c.in[2] = literal(bounds);
    c.in[3] = literal(inverse);
    c.in[4] = addresses_.own(bounds.size() * sizeof(float));
    c.constant |= 0xC;
  }

  void ngram_memory(const Instruction& instruction, Command& c) {
    const auto& axes = model_.graph.declarations[instruction.places[0].table].axes;
    c.slots = narrow(axes[axes.size() - 2].extent);
    c.levels = narrow(model_.graph.declarations[instruction.places.back().table].axes.back().extent);
    c.count = reads_subwords(*instruction.node) ? 2 : narrow(instruction.in.size() - 1);
    if (const auto* subwords = addresses_.subwords(); c.count == 2 && subwords) {
      c.in[2] = literal(subwords->bytes);
      c.in[3] = literal(subwords->ends);
      c.in[4] = literal(subwords->classes);
      c.constant |= 0x1C;
    }
    args_of_runs(c, narrow(instruction.places.size() + 1));
  }

  void particulars(const Instruction& instruction, Command& c) {
    const auto& node = *instruction.node;
    const auto& in = instruction.in;
    const auto& places = instruction.places;
    switch (node.op) {
      case Op::embed:
        c.dtype = constant(in[1]).dtype;
        c.in_width = narrow(constant(in[1]).outputs);
        break;
      case Op::slice: c.from = narrow(node.from); break;
      case Op::cast: c.type_out = node.type; break;
      case Op::less:
      case Op::equal:
      case Op::remainder: c.count = narrow(in.size()); break;
      case Op::repeat: c.count = node.times; break;
      case Op::combine: c.count = width(in[1].id); break;
      case Op::torus:
        c.count = narrow(places.size());
        if (c.count > 0) args_of_runs(c, 1);
        break;
      case Op::nearest: c.count = narrow(in.size()); break;
      case Op::project: half_spaces(instruction, c); break;
      case Op::adapter: {
        const auto& axes = model_.graph.declarations[places[0].table].axes;
        c.count = narrow(axes[places[0].picks.size()].extent);
        c.from = width(in[1].id);
        c.in[2] = addresses_.own(c.count * sizeof(float));
        args_of_runs(c, 2);
        break;
      }
      case Op::range:
      case Op::clamp:
        c.levels = narrow(node.low.size());
        c.in[1] = literal(node.low);
        c.in[2] = literal(node.high);
        c.constant |= 6;
        break;
      case Op::rope:
        c.count = narrow(node.increments.size());
        c.in[1] = literal(node.increments);
        c.constant |= 2;
        args_of_rows(c, 1);
        break;
      case Op::attend:
        c.dtype = stored_as(model_.graph.declarations[places[0].table].type);
        args_of_rows(c, attend_args);
        break;
      case Op::attend_weights:
        c.dtype = stored_as(model_.graph.declarations[places[0].table].type);
        c.count = narrow(static_cast<size_t>(node.number));
        args_of_rows(c, attend_weights_args);
        break;
      case Op::cache_conv:
        c.taps = narrow(constant(in[1]).outputs / c.width);
        c.silu = node.silu;
        args_of_runs(c, 1);
        break;
      case Op::cache_shift:
      case Op::cache_recall: args_of_runs(c, 1); break;
      case Op::cache_wkv7:
        c.count = width(in[0].id) / c.groups;
        args_of_runs(c, 1);
        break;
      case Op::cache_pdr:
        c.count = width(in[1].id);
        c.convex = node.convex;
        args_of_runs(c, 1);
        break;
      case Op::cache_ssm: {
        const auto& axes = model_.graph.declarations[places[0].table].axes;
        c.count = narrow(axes[axes.size() - 2].extent);
        c.shared = c.groups / (width(in[3].id) / c.count);
        args_of_runs(c, 1);
        break;
      }
      case Op::cache_attend: {
        c.count = narrow(places.size());
        const auto& table = model_.graph.declarations[places[0].table];
        c.slots = narrow(table.axes[places[0].picks.size()].extent);
        if (in.size() > (c.count == 4 ? 5u : 3u))
          c.learned = narrow(constant(in.back()).outputs / (c.width / c.shared));
        if (model_.layout[model_.slice_of[places[0].table]].in_blocks()) c.blocks = narrow(c.slots / block_positions);
        args_of_runs(c, c.blocks > 0 ? 2 * c.count : c.count);
        break;
      }
      case Op::cache_memory:
        c.levels = narrow(node.periods.size());
        c.count = 1u + (node.memory.rule == Rule::titans) + node.memory.retains();
        c.periods = literal(node.periods);
        c.shares = shares(in.back(), c.groups, c.levels);
        args_of_runs(c, 3);
        break;
      case Op::cache_memory_first:
        c.levels = narrow(node.periods.size());
        c.count = narrow(in.size());
        c.width = narrow(model_.graph.declarations[places[0].table].axes.back().extent) * c.groups;
        args_of_runs(c, 1);
        break;
      case Op::cache_mix:
        c.levels = narrow(constant(in[0]).outputs / node.groups);
        c.width = narrow(model_.graph.declarations[places[1].table].axes.back().extent) * c.groups;
        c.shares = shares(in[0], c.groups, c.levels);
        args_of_runs(c, 2);
        break;
      case Op::cache_ngram: ngram_memory(instruction, c); break;
      case Op::cache_ngram_first:
        c.count = narrow(in.size());
        c.width = narrow(model_.graph.declarations[places[0].table].axes.back().extent);
        args_of_runs(c, 1);
        break;
      case Op::cache_read:
        c.type = model_.graph.declarations[places[0].table].counter ? Type::i64 : type(instruction.out);
        args_of_rows(c, 1);
        break;
      case Op::cache_write:
        c.width = c.in_width;
        c.in_width = narrow(program_.values[in[0].id].bytes);
        args_of_rows(c, 1);
        break;
      default: break;
    }
  }

  const Model& model_;
  const Program& program_;
  Addresses& addresses_;
  Schedule& out_;
};

}  // namespace

Command command_of(const Model& model, const Program& program, const Instruction& instruction, Addresses& addresses,
                   Schedule& schedule) {
  return Translator(model, program, addresses, schedule).command(instruction);
}

Command gates_of(const Command& memory, Schedule& schedule) {
  Command c = memory;
  c.task = Task::gates;
  const bool titans = memory.form.rule == Rule::titans;
  c.in[0] = memory.in[3];
  c.in[1] = titans ? memory.in[4] : nullptr;
  c.in[2] = memory.form.retains() ? memory.in[titans ? 5 : 4] : nullptr;
  c.run_arg = schedule.run_args;
  schedule.run_args += 3 * c.levels;
  return c;
}

Product product_of(const PackedMatrix& w) {
  Product p;
  p.dtype = w.dtype;
  p.outputs = narrow(w.outputs);
  p.inputs = narrow(w.inputs);
  p.group = narrow(w.group);
  p.data = w.data;
  return p;
}

namespace {

// A product of input 0 with a packed matrix.
Product product_with(const PackedMatrix& w, const Instruction& instruction, Addresses& addresses) {
  Product p = product_of(w);
  p.x = static_cast<const float*>(addresses.value(instruction.in[0].id));
  p.y = static_cast<float*>(addresses.value(instruction.out));
  return p;
}

}  // namespace

Product product_of(const Model& model, const Instruction& instruction, Addresses& addresses) {
  return product_with(model.constants[instruction.in[1].id].matrix(), instruction, addresses);
}

Routed routed_of(const Model& model, const Program& program, const Instruction& instruction, Addresses& addresses) {
  const auto& stack = model.constants[instruction.in[2].id];
  const auto declared = [&](size_t i) -> const Declaration& {
    return model.graph.declarations[program.values[instruction.in[i].id].name];
  };
  Routed routed;
  routed.product = product_with(stack.matrix(), instruction, addresses);
  routed.ids = static_cast<const int32_t*>(addresses.value(instruction.in[1].id));
  routed.chosen = narrow(declared(1).elements());
  routed.one_input = declared(0).shape.size() == 1;
  routed.matrices = narrow(stack.members);
  routed.matrix_bytes = stack.bytes.size() / stack.members;
  return routed;
}

Task epilogue_task_of(Op op) { return *task_of(op); }

bool on_host(Op op) {
  const auto& traits = traits_of(op);
  return traits.state == State::counts || traits.state == State::resets || traits.rows == Rows::control;
}

bool of_store(Op op) { return op == Op::experts || op == Op::experts_ahead; }

bool CudaDevice::runs(Op op) const {
  return on_host(op) || of_store(op) || op == Op::matmul || op == Op::routed || task_of(op).has_value();
}

}  // namespace continuo::cuda
