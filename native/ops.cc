#include "ops.h"

#include <algorithm>
#include <array>

#include "safetensors.h"

namespace continuo {

namespace {

constexpr std::array<OpRule, 41> rules{{
    //                                        inputs  output grouped  eps    state  elementwise
    {Op::embed, "embed",                           2, true,  false, false, false, false},
    {Op::norm, "norm",                             3, true,  true,  true,  false, false},
    {Op::rmsnorm, "rmsnorm",                       2, true,  true,  true,  false, false},
    {Op::unit, "unit",                             1, true,  true,  true,  false, false},
    {Op::matmul, "matmul",                         2, true,  false, false, false, false},
    {Op::add, "add",                               2, true,  false, false, false, true},
    {Op::mul, "mul",                               2, true,  false, false, false, true},
    {Op::lerp, "lerp",                             3, true,  false, false, false, true},
    {Op::tanh, "tanh",                             1, true,  false, false, false, true},
    {Op::sigmoid, "sigmoid",                       1, true,  false, false, false, true},
    {Op::relu2, "relu2",                           1, true,  false, false, false, true},
    {Op::silu, "silu",                             1, true,  false, false, false, true},
    {Op::gelu, "gelu",                             1, true,  false, false, false, true},
    {Op::softplus, "softplus",                     1, true,  false, false, false, true},
    {Op::decay, "decay",                           1, true,  false, false, false, true},
    {Op::range, "range",                           1, true,  false, false, false, true},
    {Op::l2norm, "l2norm",                         1, true,  true,  true,  false, false},
    {Op::bonus, "bonus",                           5, true,  true,  false, false, false},
    {Op::rope, "rope",                             1, true,  true,  false, true,  false},
    {Op::slice, "slice",                           1, true,  false, false, false, false},
    {Op::cast, "cast",                             1, true,  false, false, false, false},
    {Op::less, "less",                             2, true,  false, false, false, false},
    {Op::equal, "equal",                           2, true,  false, false, false, false},
    {Op::remainder, "remainder",                   2, true,  false, false, false, false},
    {Op::attend, "attend",                         3, true,  true,  false, false, false},
    {Op::cache_shift, "cache.shift",               1, true,  false, false, true, false},
    {Op::cache_conv, "cache.conv",                 2, true,  false, false, true,  false},
    {Op::cache_wkv7, "cache.wkv7",                 6, true,  true,  false, true, false},
    {Op::cache_attend, "cache.attend",             5, true,  true,  false, false, false},
    {Op::cache_memory, "cache.memory",             5, true,  true,  false, true,  false},
    {Op::cache_memory_first, "cache.memory.first", 0, false, true,  false, true,  false},
    {Op::cache_mix, "cache.mix",                   2, false, true,  false, true,  false},
    {Op::cache_recall, "cache.recall",             1, true,  true,  false, true,  false},
    {Op::cache_read, "cache.read",                 0, true,  false, false, true, false},
    {Op::cache_write, "cache.write",               1, false, false, false, true, false},
    {Op::cache_increment, "cache.increment",       0, false, false, false, true, false},
    {Op::cache_decrement, "cache.decrement",       0, false, false, false, true, false},
    {Op::cache_reset, "cache.reset",               0, false, false, false, true, false},
    {Op::loop, "loop",                             0, false, false, false, false, false},
    {Op::branch, "branch",                         0, false, false, false, false, false},
    {Op::return_, "return",                        0, false, false, false, false, false},
}};

// The reading of one node: each `need_…` records the first thing that is wrong.
class Checker {
 public:
  Checker(const Graph& graph, const Node& node) : graph_(graph), node_(node) {}

  const Declaration& in(size_t i) const { return graph_.declarations[node_.in[i].name]; }
  const std::vector<uint64_t>& shape(size_t i) const { return in(i).shape; }
  const Declaration& state() const { return graph_.declarations[node_.state->name]; }

  // Something a row has: volatile or dynamic.
  void need_row(size_t i) {
    const auto& d = in(i);
    if (d.kind == Kind::persistent) fail("input \"", d.name, "\" is persistent; only cache operations touch it, through \"state\"");
    else if (d.kind == Kind::constant) fail("input \"", d.name, "\" is constant, expected a value of the row");
    else if (!node_.in[i].at.empty()) fail("input \"", operand_text(graph_, node_.in[i]), "\" picks a member of a value, which has none");
  }
  void need_type(size_t i, Type type) {
    need_row(i);
    if (ok() && in(i).type != type) fail("input \"", in(i).name, "\" is ", name_of(in(i).type), ", expected ", name_of(type), ": cast it");
  }
  // An f32 vector of the row.
  void need_vector(size_t i) {
    need_type(i, Type::f32);
    if (ok() && shape(i).size() != 1) fail("input \"", in(i).name, "\" has shape ", shape_text(shape(i)), ", expected one dimension");
  }

  void need_constant(size_t i, Layout layout, const char* what) {
    const auto& d = in(i);
    if (d.kind != Kind::constant || d.layout != layout) return fail("input \"", d.name, "\" must be ", what);
    const bool family = d.over != no_name;
    if (node_.in[i].at.size() != (family ? 1u : 0u)) {
      fail("input \"", operand_text(graph_, node_.in[i]), family ? "\" must pick one member of the family" : "\" picks a member of a single tensor");
    } else if (family && node_.in[i].at[0].kind != Term::Kind::number && node_.in[i].at[0].kind != Term::Kind::index) {
      fail("input \"", operand_text(graph_, node_.in[i]), "\": a family's member is picked by a number or a loop's index");
    }
  }

  void need_shape(size_t i, const std::vector<uint64_t>& expected) {
    if (shape(i) != expected) fail("input \"", in(i).name, "\" has shape ", shape_text(shape(i)), ", expected ", shape_text(expected));
  }

  // A value or a constant vector broadcast over the rows.
  void need_operand(size_t i, const std::vector<uint64_t>& expected) {
    if (in(i).kind == Kind::constant) need_constant(i, Layout::vector, "a constant vector or a value of the row");
    else need_type(i, Type::f32);
    if (ok()) need_shape(i, expected);
  }

  void need_groups(uint64_t width) {
    if (ok() && (node_.groups == 0 || width % node_.groups != 0)) fail("cannot split ", width, " channels into ", node_.groups, " groups");
  }

  // What is left of a persistent's axes once `operand` has picked: those must be fixed.
  std::vector<uint64_t> picked(const Operand& operand) {
    const auto& d = graph_.declarations[operand.name];
    if (d.kind != Kind::persistent) {
      fail("state \"", d.name, "\" is ", name_of(d.kind), ", expected persistent");
      return {};
    }
    if (operand.at.size() > d.axes.size()) {
      fail("state \"", operand_text(graph_, operand), "\" picks along ", operand.at.size(), " axes, but there are ", d.axes.size());
      return {};
    }
    for (size_t i = 0; i < operand.at.size(); ++i) {
      const auto& term = operand.at[i];
      if (term.kind == Term::Kind::value) {
        const auto& value = graph_.declarations[term.id];
        if (value.type != Type::i32 || value.elements() != 1 || (value.kind != Kind::volatile_ && value.kind != Kind::dynamic)) {
          fail("state \"", operand_text(graph_, operand), "\": \"", value.name, "\" is no i32 value of the row to pick a member by");
        }
      } else if (term.kind == Term::Kind::counter && d.axes[i].counter != no_name && d.axes[i].counter != term.id) {
        fail("state \"", operand_text(graph_, operand), "\": that axis follows the counter \"", graph_.declarations[d.axes[i].counter].name, "\"");
      }
    }
    return {d.shape.begin() + static_cast<ptrdiff_t>(operand.at.size()), d.shape.end()};
  }

  void need_state(const std::vector<uint64_t>& expected, Type type) {
    const auto rest = picked(*node_.state);
    if (!ok()) return;
    if (rest != expected) fail("state \"", operand_text(graph_, *node_.state), "\" has shape ", shape_text(rest), ", expected ", shape_text(expected));
    else if (state().type != type) fail("state \"", state().name, "\" is ", name_of(state().type), ", expected ", name_of(type), ": cast it");
  }

  // A table of vectors along an axis that follows a counter: K(l) with axes [l, positions, channels].
  Name need_history(size_t i, uint64_t channels) {
    const auto rest = picked(node_.in[i]);
    if (!ok()) return no_name;
    const auto& d = in(i);
    const size_t axis = node_.in[i].at.size();
    if (rest.size() != 2 || d.axes[axis].counter == no_name) {
      fail("input \"", operand_text(graph_, node_.in[i]), "\" must leave two axes: one that grows or is a ring, and the channels");
    } else if (rest[1] != channels || d.type != Type::f32) {
      fail("input \"", operand_text(graph_, node_.in[i]), "\" holds ", rest[1], " channels of ", name_of(d.type), ", expected ", channels, " of f32");
    } else {
      return d.axes[axis].counter;
    }
    return no_name;
  }

  // As need_history, along a ring that follows the clock.
  void need_ring(size_t i, uint64_t channels, uint64_t segment) {
    const Name counter = need_history(i, channels);
    if (!ok()) return;
    const auto& axis = in(i).axes[node_.in[i].at.size()];
    if (axis.kind != Axis::Kind::ring || counter != graph_.clock) {
      fail("input \"", operand_text(graph_, node_.in[i]), "\" must be a ring that follows the clock");
    } else if (segment > axis.extent) {
      fail("input \"", operand_text(graph_, node_.in[i]), "\" has ", axis.extent, " places, expected at least the segment's ", segment);
    }
  }

  // As many places as another ring has.
  void need_places(size_t i, size_t other) {
    const uint64_t own = in(i).axes[node_.in[i].at.size()].extent, expected = in(other).axes[node_.in[other].at.size()].extent;
    if (own != expected) fail("input \"", operand_text(graph_, node_.in[i]), "\" has ", own, " places, expected ", expected, " like \"", operand_text(graph_, node_.in[other]), "\"");
  }

  void need_counter() {
    const auto& d = state();
    if (d.kind != Kind::persistent || !d.counter || !node_.state->at.empty()) fail("state \"", operand_text(graph_, *node_.state), "\" is no counter");
  }

  void need_clock() {
    need_counter();
    if (ok() && !state().clock) fail("state \"", state().name, "\" is no clock");
  }

  // A persistent in [levels, heads, n, n]; returns n.
  uint64_t need_memory(const Operand& operand, uint64_t levels, uint64_t heads) {
    const auto rest = picked(operand);
    if (!ok()) return 0;
    const auto& d = graph_.declarations[operand.name];
    if (rest.size() != 4 || rest[0] != levels || rest[1] != heads || rest[2] != rest[3] || rest[2] > 256 || d.type != Type::f32) {
      fail("\"", operand_text(graph_, operand), "\" has shape ", shape_text(rest), " of ", name_of(d.type), ", expected [", levels, ", ", heads, ", n, n] of f32 with n at most 256");
      return 0;
    }
    return rest[2];
  }

  template <class... Parts>
  void fail(const Parts&... parts) {
    if (problem_.empty()) problem_ = text(parts...);
  }

  bool ok() const { return problem_.empty(); }

  Result<RowShape> finish(RowShape out) const {
    if (ok()) return out;
    return invalid("graph node ", node_text(graph_, node_), ": ", problem_, ".");
  }

 private:
  const Graph& graph_;
  const Node& node_;
  std::string problem_;
};

constexpr uint64_t max_taps = 64;

// in: q, k, v of the row, keys and values of its positions; for a second row of keys hk, hv and their tables; for persistent tokens
// q as it was before it was rotated, and their keys and values.
void check_attend(Checker& check, const Node& node, RowShape& out) {
  const size_t n = node.in.size();
  const bool context = n == 9 || n == 12, persistent = n == 8 || n == 12;
  if (n != 5 && !context && !persistent) return check.fail("has ", n, " inputs, expected 5, and 4 more for context tokens, 3 more for persistent ones");
  check.need_vector(0);
  out.extents = check.shape(0);
  if (check.ok()) check.need_groups(out.extents[0]);
  if (check.ok() && (node.shared == 0 || node.groups % node.shared != 0)) check.fail("cannot share ", node.groups, " heads by ", node.shared);
  if (!check.ok()) return;
  const uint64_t channels = out.extents[0] / node.shared;
  const auto own = [&](size_t k, size_t table) {
    for (size_t i = 0; i < 2 && check.ok(); ++i) {
      check.need_vector(k + i);
      if (check.ok()) check.need_shape(k + i, {channels});
      if (check.ok()) check.need_ring(table + i, channels, node.segment);
    }
  };
  own(1, 3);
  if (context) own(5, 7);
  // A position has one place, the same in every ring.
  for (const size_t table : {4, 7, 8}) {
    if (check.ok() && (table == 4 || context)) check.need_places(table, 3);
  }
  if (!persistent || !check.ok()) return;
  check.need_vector(n - 3);
  if (check.ok()) check.need_shape(n - 3, out.extents);
  for (size_t i = n - 2; i < n; ++i) {
    check.need_constant(i, Layout::vector, "a constant vector");
    if (check.ok() && check.shape(i)[0] % channels != 0) check.fail("input \"", check.in(i).name, "\" has ", check.shape(i)[0], " elements, expected ", channels, " for each persistent token");
  }
  if (check.ok()) check.need_shape(n - 1, check.shape(n - 2));
}

// in: q, k, v, theta; eta (rule titans); alpha (l2, elastic, kl); the logits of the levels; S (titans); G (with a period above 1).
void check_memory(Checker& check, const Graph& graph, const Node& node, RowShape& out) {
  const auto& form = node.memory;
  const bool titans = form.rule == Rule::titans;
  const size_t gates = 1u + titans + form.retains(), expected = 3 + gates + 1 + titans + (slow_levels(node.periods) > 0);
  if (node.in.size() != expected) return check.fail("has ", node.in.size(), " inputs, expected ", expected, " for its rule, retention and periods");
  const uint64_t levels = node.periods.size();
  check.need_vector(0);
  out.extents = check.shape(0);
  for (size_t i = 1; i < 3 && check.ok(); ++i) {
    check.need_vector(i);
    if (check.ok()) check.need_shape(i, out.extents);
  }
  for (size_t i = 3; i < 3 + gates && check.ok(); ++i) {
    check.need_vector(i);
    if (check.ok()) check.need_shape(i, {levels * node.groups});
  }
  check.need_constant(3 + gates, Layout::vector, "a constant vector");
  if (check.ok()) check.need_shape(3 + gates, {levels * node.groups});
  if (check.ok()) check.need_groups(out.extents[0]);
  const uint64_t n = check.need_memory(*node.state, levels, node.groups);
  if (check.ok() && n * node.groups != out.extents[0]) check.fail("state \"", check.state().name, "\" has heads of ", n, " channels, expected ", out.extents[0] / node.groups);
  size_t next = 4 + gates;
  if (check.ok() && titans) (void)check.need_memory(node.in[next++], levels, node.groups);
  if (check.ok() && slow_levels(node.periods) > 0 && graph.clock == no_name) check.fail("has a period above 1, but the graph has no clock");
  if (check.ok() && slow_levels(node.periods) > 0) (void)check.need_memory(node.in[next], slow_levels(node.periods), node.groups);
}

}  // namespace

const OpRule* find_op(std::string_view name) {
  const auto found = std::find_if(rules.begin(), rules.end(), [&](const auto& rule) { return rule.name == name; });
  return found == rules.end() || found->op == Op::loop || found->op == Op::branch || found->op == Op::return_ ? nullptr : &*found;
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
      if (check.ok() && check.in(0).elements() != 1) check.fail("input \"", check.in(0).name, "\" must be one number a row");
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
      if (node.op == Op::lerp && check.ok() && check.in(1).kind == Kind::constant) check.fail("input \"", check.in(1).name, "\" must be a value of the row");
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
        check.fail("its ", node.low.size(), " lows and ", node.high.size(), " highs cannot be levels of ", out.extents[0], " channels");
      }
      break;
    case Op::rope:
      check.need_vector(0);
      out.extents = check.shape(0);
      check.need_clock();
      if (check.ok()) check.need_groups(out.extents[0]);
      if (check.ok() && out.extents[0] / node.groups != 2 * node.increments.size()) {
        check.fail("has ", node.increments.size(), " increments for heads of ", out.extents[0] / node.groups, " channels, expected one for each pair");
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
        check.fail("input \"", check.in(0).name, "\" has shape ", shape_text(check.shape(0)), ", which has no part ", node.from, " to ", node.to);
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
      if (check.ok() && (node.shared == 0 || node.groups % node.shared != 0)) check.fail("cannot share ", node.groups, " heads by ", node.shared);
      if (!check.ok()) break;
      const uint64_t channels = out.extents[0] / node.shared;
      const Name keys = check.need_history(1, channels);
      const Name values = check.need_history(2, channels);
      if (check.ok() && (keys != values || check.in(1).axes[node.in[1].at.size()].extent != check.in(2).axes[node.in[2].at.size()].extent)) {
        check.fail("keys \"", check.in(1).name, "\" and values \"", check.in(2).name, "\" do not follow the same counter with the same extent");
      }
      break;
    }
    case Op::cache_shift:
      check.need_vector(0);
      out.extents = check.shape(0);
      if (check.ok()) check.need_state(out.extents, Type::f32);
      break;
    case Op::cache_conv: {
      check.need_vector(0);
      out.extents = check.shape(0);
      check.need_constant(1, Layout::vector, "a constant vector");
      if (!check.ok()) break;
      const uint64_t taps = check.shape(1)[0] / out.extents[0];
      if (check.shape(1)[0] != taps * out.extents[0] || taps < 2 || taps > max_taps) {
        check.fail("input \"", check.in(1).name, "\" has ", check.shape(1)[0], " elements, expected from 2 to ", max_taps, " for each of ", out.extents[0], " channels");
      } else {
        check.need_state({taps - 1, out.extents[0]}, Type::f32);
      }
      break;
    }
    case Op::cache_attend: check_attend(check, node, out); break;
    case Op::cache_memory: check_memory(check, graph, node, out); break;
    case Op::cache_memory_first: {
      const uint64_t n = check.need_memory(*node.state, node.periods.size(), node.groups);
      if (node.in.size() > 1) check.fail("has ", node.in.size(), " inputs, expected at most one");
      if (!check.ok() || node.in.empty()) break;
      check.need_constant(0, Layout::vector, "a constant vector");
      if (check.ok()) check.need_shape(0, {node.periods.size() * node.groups * n * n});
      break;
    }
    case Op::cache_mix: {
      check.need_constant(0, Layout::vector, "a constant vector");
      if (!check.ok()) break;
      const uint64_t levels = check.shape(0)[0] / node.groups;
      const uint64_t n = check.need_memory(node.in[1], levels, node.groups);
      if (check.ok()) check.need_shape(0, {levels * node.groups});
      if (check.ok()) check.need_state({node.groups, n, n}, Type::f32);
      if (check.ok() && node.segment > 0 && graph.clock == no_name) check.fail("has a segment, but the graph has no clock");
      break;
    }
    case Op::cache_recall:
      check.need_vector(0);
      out.extents = check.shape(0);
      check.need_groups(check.ok() ? out.extents[0] : 0);
      if (check.ok()) check.need_state({node.groups, out.extents[0] / node.groups, out.extents[0] / node.groups}, Type::f32);
      break;
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
          check.fail("counter \"", check.state().name, "\" has no max below 2³¹, so that its value may not fit i32: give it one, or read it modulo a number");
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
      if (check.ok() && check.state().counter) check.fail("state \"", check.state().name, "\" is a counter: increment, decrement or reset it");
      if (check.ok()) check.need_state(check.shape(0), check.in(0).type);
      break;
    case Op::cache_increment:
    case Op::cache_decrement:
      check.need_counter();
      if (check.ok() && check.state().clock) check.fail("\"", check.state().name, "\" is the context's clock, which moves by itself");
      break;
    case Op::cache_reset:
      (void)check.picked(*node.state);
      if (check.ok() && check.state().clock) check.fail("\"", check.state().name, "\" is the context's clock, which moves by itself");
      break;
    case Op::loop:
    case Op::branch:
    case Op::return_: break;
  }
  if (rule_of(node.op).grouped && check.ok() && !out.extents.empty()) check.need_groups(out.extents[0]);
  return check.finish(std::move(out));
}

}  // namespace continuo
