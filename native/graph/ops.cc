#include "graph/ops.h"

#include <algorithm>
#include <array>

#include "graph/checker.h"

namespace continuo {

namespace {

constexpr std::array<OpRule, 41> rules{{
    //                                        inputs  output grouped  eps    state  elementwise
    {Op::embed, "embed", 2, true, false, false, false, false},
    {Op::norm, "norm", 3, true, true, true, false, false},
    {Op::rmsnorm, "rmsnorm", 2, true, true, true, false, false},
    {Op::unit, "unit", 1, true, true, true, false, false},
    {Op::matmul, "matmul", 2, true, false, false, false, false},
    {Op::add, "add", 2, true, false, false, false, true},
    {Op::mul, "mul", 2, true, false, false, false, true},
    {Op::lerp, "lerp", 3, true, false, false, false, true},
    {Op::tanh, "tanh", 1, true, false, false, false, true},
    {Op::sigmoid, "sigmoid", 1, true, false, false, false, true},
    {Op::relu2, "relu2", 1, true, false, false, false, true},
    {Op::silu, "silu", 1, true, false, false, false, true},
    {Op::gelu, "gelu", 1, true, false, false, false, true},
    {Op::softplus, "softplus", 1, true, false, false, false, true},
    {Op::decay, "decay", 1, true, false, false, false, true},
    {Op::range, "range", 1, true, false, false, false, true},
    {Op::l2norm, "l2norm", 1, true, true, true, false, false},
    {Op::bonus, "bonus", 5, true, true, false, false, false},
    {Op::rope, "rope", 1, true, true, false, true, false},
    {Op::slice, "slice", 1, true, false, false, false, false},
    {Op::cast, "cast", 1, true, false, false, false, false},
    {Op::less, "less", 2, true, false, false, false, false},
    {Op::equal, "equal", 2, true, false, false, false, false},
    {Op::remainder, "remainder", 2, true, false, false, false, false},
    {Op::attend, "attend", 3, true, true, false, false, false},
    {Op::cache_shift, "cache.shift", 1, true, false, false, true, false},
    {Op::cache_conv, "cache.conv", 2, true, false, false, true, false},
    {Op::cache_wkv7, "cache.wkv7", 6, true, true, false, true, false},
    {Op::cache_attend, "cache.attend", 5, true, true, false, false, false},
    {Op::cache_memory, "cache.memory", 5, true, true, false, true, false},
    {Op::cache_memory_first, "cache.memory.first", 0, false, true, false, true, false},
    {Op::cache_mix, "cache.mix", 2, false, true, false, true, false},
    {Op::cache_recall, "cache.recall", 1, true, true, false, true, false},
    {Op::cache_read, "cache.read", 0, true, false, false, true, false},
    {Op::cache_write, "cache.write", 1, false, false, false, true, false},
    {Op::cache_increment, "cache.increment", 0, false, false, false, true, false},
    {Op::cache_decrement, "cache.decrement", 0, false, false, false, true, false},
    {Op::cache_reset, "cache.reset", 0, false, false, false, true, false},
    {Op::loop, "loop", 0, false, false, false, false, false},
    {Op::branch, "branch", 0, false, false, false, false, false},
    {Op::return_, "return", 0, false, false, false, false, false},
}};

}  // namespace

const OpRule* find_op(std::string_view name) {
  const auto found = std::find_if(rules.begin(), rules.end(), [&](const auto& rule) { return rule.name == name; });
  return found == rules.end() || found->op == Op::loop || found->op == Op::branch || found->op == Op::return_ ? nullptr
                                                                                                              : &*found;
}

const OpRule& rule_of(Op op) {
  return *std::find_if(rules.begin(), rules.end(), [&](const auto& rule) { return rule.op == op; });
}

Result<RowShape> check_node(const Graph& graph, const Node& node) {
  Checker check(graph, node);
  RowShape out;
  switch (node.op) {
    case Op::embed:
      check.need_type(0, Type::i32);
      if (check.ok() && check.in(0).elements() != 1)
        check.fail("input \"", check.in(0).name, "\" must be one number a row");
      check.need_constant(1, Layout::rows, "a constant table (layout rows)");
      if (check.ok()) out.extents = {check.shape(1)[1]};
      break;
    case Op::matmul:
      check.need_vector(0);
      check.need_constant(1, Layout::packed, "a constant matrix (layout packed)");
      if (check.ok()) {
        check.need_shape(0, {check.shape(1)[1]});
        out.extents = {check.shape(1)[0]};
      }
      break;
    case Op::norm:
      check.need_vector(0);
      out.extents = check.shape(0);
      for (size_t i = 1; i < 3; ++i) {
        check.need_constant(i, Layout::vector, "a constant vector");
        if (check.ok()) check.need_shape(i, out.extents);
      }
      break;
    case Op::rmsnorm:
      check.need_vector(0);
      out.extents = check.shape(0);
      check.need_constant(1, Layout::vector, "a constant vector");
      if (check.ok()) check.need_shape(1, out.extents);
      break;
    case Op::add:
    case Op::mul:
    case Op::lerp:
      check.need_type(0, Type::f32);
      out.extents = check.shape(0);
      for (size_t i = 1; i < node.in.size(); ++i) check.need_operand(i, out.extents);
      if (node.op == Op::lerp && check.ok() && check.in(1).kind == Kind::constant)
        check.fail("input \"", check.in(1).name, "\" must be a value of the row");
      break;
    case Op::tanh:
    case Op::sigmoid:
    case Op::relu2:
    case Op::silu:
    case Op::gelu:
    case Op::softplus:
    case Op::decay:
      check.need_type(0, Type::f32);
      out.extents = check.shape(0);
      break;
    case Op::l2norm:
    case Op::unit:
      check.need_vector(0);
      out.extents = check.shape(0);
      break;
    case Op::range:
      check.need_vector(0);
      out.extents = check.shape(0);
      if (check.ok() && (node.low.size() != node.high.size() || out.extents[0] % node.low.size() != 0)) {
        check.fail("its ", node.low.size(), " lows and ", node.high.size(), " highs cannot be levels of ",
                   out.extents[0], " channels");
      }
      break;
    case Op::rope:
      check.need_vector(0);
      out.extents = check.shape(0);
      check.need_clock();
      if (check.ok()) check.need_groups(out.extents[0]);
      if (check.ok() && out.extents[0] / node.groups != 2 * node.increments.size()) {
        check.fail("has ", node.increments.size(), " increments for heads of ", out.extents[0] / node.groups,
                   " channels, expected one for each pair");
      }
      break;
    case Op::bonus:
      check.need_vector(0);
      out.extents = check.shape(0);
      for (const size_t i : {1, 2, 4}) {
        check.need_vector(i);
        if (check.ok()) check.need_shape(i, out.extents);
      }
      check.need_constant(3, Layout::vector, "a constant vector");
      if (check.ok()) check.need_shape(3, out.extents);
      break;
    case Op::slice:
      check.need_row(0);
      out = {{node.to - node.from}, check.in(0).type};
      if (check.ok() && (check.shape(0).size() != 1 || node.to > check.shape(0)[0])) {
        check.fail("input \"", check.in(0).name, "\" has shape ", shape_text(check.shape(0)), ", which has no part ",
                   node.from, " to ", node.to);
      }
      break;
    case Op::cast:
      check.need_row(0);
      out = {check.shape(0), node.type};
      break;
    case Op::less:
    case Op::equal:
    case Op::remainder:
      check.need_row(0);
      out = {check.shape(0), node.op == Op::remainder ? Type::i32 : Type::boolean};
      if (check.in(0).type != Type::f32 || node.op == Op::remainder) check.need_type(0, Type::i32);
      if (node.in.size() > 1) {
        check.need_type(1, check.in(0).type);
        if (check.ok()) check.need_shape(1, out.extents);
      } else if (check.ok() && check.in(0).type != Type::i32) {
        check.fail("input \"", check.in(0).name, "\" is compared with a whole number, expected i32");
      } else if (node.op == Op::remainder && node.number <= 0) {
        check.fail("its value is ", node.number, ", expected at least 1");
      }
      break;
    case Op::attend: {
      check.need_vector(0);
      out.extents = check.shape(0);
      if (check.ok()) check.need_groups(out.extents[0]);
      if (check.ok() && (node.shared == 0 || node.groups % node.shared != 0))
        check.fail("cannot share ", node.groups, " heads by ", node.shared);
      if (!check.ok()) break;
      const uint64_t channels = out.extents[0] / node.shared;
      const Name keys = check.need_history(1, channels);
      const Name values = check.need_history(2, channels);
      if (check.ok() && (keys != values || check.in(1).axes[node.in[1].at.size()].extent !=
                                               check.in(2).axes[node.in[2].at.size()].extent)) {
        check.fail("keys \"", check.in(1).name, "\" and values \"", check.in(2).name,
                   "\" do not follow the same counter with the same extent");
      }
      break;
    }
    case Op::cache_shift:
      check.need_vector(0);
      out.extents = check.shape(0);
      if (check.ok()) check.need_state(out.extents, Type::f32);
      break;
    case Op::cache_conv:
    case Op::cache_attend:
    case Op::cache_memory:
    case Op::cache_memory_first:
    case Op::cache_mix:
    case Op::cache_recall: check_memory_node(check, graph, node, out); break;
    case Op::cache_wkv7:
      check.need_vector(0);
      out.extents = check.shape(0);
      for (size_t i = 1; i < 6; ++i) {
        check.need_vector(i);
        if (check.ok()) check.need_shape(i, out.extents);
      }
      check.need_groups(check.ok() ? out.extents[0] : 0);
      if (check.ok()) {
        const uint64_t n = out.extents[0] / node.groups;
        // Both sums of the recurrence are single blocks of the one arithmetic.
        if (n > 256) check.fail("a head has ", n, " channels, expected at most 256");
        check.need_state({node.groups, n, n}, Type::f32);
      }
      break;
    case Op::cache_read:
      if (check.state().counter) {
        check.need_counter();
        if (check.ok() && check.state().bound >= uint64_t{1} << 31 && node.number == 0) {
          check.fail(
              "counter \"", check.state().name,
              "\" has no max below 2³¹, so that its value may not fit i32: give it one, or read it modulo a number");
        }
        out.type = Type::i32;
      } else {
        out = {check.picked(*node.state), check.state().type};
        if (check.ok() && node.number != 0) check.fail("only a counter is read modulo a number");
        if (check.ok() && std::find(out.extents.begin(), out.extents.end(), 0u) != out.extents.end()) {
          check.fail("state \"", operand_text(graph, *node.state), "\" still grows: pick a member along that axis");
        }
      }
      break;
    case Op::cache_write:
      check.need_row(0);
      if (check.ok() && check.state().counter)
        check.fail("state \"", check.state().name, "\" is a counter: increment, decrement or reset it");
      if (check.ok()) check.need_state(check.shape(0), check.in(0).type);
      break;
    case Op::cache_increment:
    case Op::cache_decrement:
      check.need_counter();
      if (check.ok() && check.state().clock)
        check.fail("\"", check.state().name, "\" is the context's clock, which moves by itself");
      break;
    case Op::cache_reset:
      (void)check.picked(*node.state);
      if (check.ok() && check.state().clock)
        check.fail("\"", check.state().name, "\" is the context's clock, which moves by itself");
      break;
    case Op::loop:
    case Op::branch:
    case Op::return_: break;
  }
  if (rule_of(node.op).grouped && check.ok() && !out.extents.empty()) check.need_groups(out.extents[0]);
  return check.finish(std::move(out));
}

}  // namespace continuo
