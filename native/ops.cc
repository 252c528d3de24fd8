#include "ops.h"

#include <algorithm>
#include <array>

#include "safetensors.h"

namespace continuo {

namespace {

constexpr std::array<OpRule, 14> rules{{
    {Op::embed, "embed", 2, false, false, false},
    {Op::norm, "norm", 3, true, true, false},
    {Op::matmul, "matmul", 2, false, false, false},
    {Op::add, "add", 2, false, false, false},
    {Op::mul, "mul", 2, false, false, false},
    {Op::lerp, "lerp", 3, false, false, false},
    {Op::tanh, "tanh", 1, false, false, false},
    {Op::sigmoid, "sigmoid", 1, false, false, false},
    {Op::relu2, "relu2", 1, false, false, false},
    {Op::decay, "decay", 1, false, false, false},
    {Op::l2norm, "l2norm", 1, true, true, false},
    {Op::bonus, "bonus", 5, true, false, false},
    {Op::cache_shift, "cache.shift", 1, false, false, true},
    {Op::cache_wkv7, "cache.wkv7", 6, true, false, true},
}};

// The reading of one node: each `need_…` records the first thing that is wrong.
class Checker {
 public:
  Checker(const Graph& graph, const Node& node) : graph_(graph), node_(node) {}

  const Declaration& in(size_t i) const { return graph_.declarations[node_.in[i]]; }
  const std::vector<uint64_t>& shape(size_t i) const { return in(i).shape; }

  // A value of this row: volatile, or a dynamic vector.
  void need_value(size_t i) {
    const auto& d = in(i);
    const bool value = d.kind == Kind::volatile_ || (d.kind == Kind::dynamic && !d.integer);
    if (!value) fail("input \"", d.name, "\" is ", name_of(d.kind), d.integer ? " i32" : "", ", expected a volatile or dynamic f32 vector");
    else if (d.shape.size() != 1) fail("input \"", d.name, "\" has shape ", shape_text(d.shape), ", expected one dimension");
  }

  void need_constant(size_t i, Layout layout, const char* what) {
    const auto& d = in(i);
    if (d.kind != Kind::constant || d.layout != layout) fail("input \"", d.name, "\" must be ", what);
  }

  void need_shape(size_t i, const std::vector<uint64_t>& expected) {
    if (shape(i) != expected) fail("input \"", in(i).name, "\" has shape ", shape_text(shape(i)), ", expected ", shape_text(expected));
  }

  // A value or a constant vector broadcast over the rows.
  void need_operand(size_t i, const std::vector<uint64_t>& expected) {
    if (in(i).kind == Kind::constant) need_constant(i, Layout::vector, "a constant vector or a value of the row");
    else need_value(i);
    need_shape(i, expected);
  }

  void need_groups(uint64_t width) {
    if (node_.groups == 0 || width % node_.groups != 0) fail("cannot split ", width, " channels into ", node_.groups, " groups");
  }

  void need_state(const std::vector<uint64_t>& expected) {
    const auto& state = graph_.declarations[node_.state];
    if (state.kind != Kind::persistent) fail("state \"", state.name, "\" is ", name_of(state.kind), ", expected persistent");
    else if (state.shape != expected) fail("state \"", state.name, "\" has shape ", shape_text(state.shape), ", expected ", shape_text(expected));
  }

  template <class... Parts>
  void fail(const Parts&... parts) {
    if (problem_.empty()) problem_ = text(parts...);
  }

  bool ok() const { return problem_.empty(); }

  Result<std::vector<uint64_t>> finish(std::vector<uint64_t> out) const {
    if (ok()) return out;
    return invalid("graph node \"", node_.name, "\" (", rule_of(node_.op).name, "): ", problem_, ".");
  }

 private:
  const Graph& graph_;
  const Node& node_;
  std::string problem_;
};

}  // namespace

const OpRule* find_op(std::string_view name) {
  const auto found = std::find_if(rules.begin(), rules.end(), [&](const auto& rule) { return rule.name == name; });
  return found == rules.end() ? nullptr : &*found;
}

const OpRule& rule_of(Op op) {
  return *std::find_if(rules.begin(), rules.end(), [&](const auto& rule) { return rule.op == op; });
}

Result<std::vector<uint64_t>> check_node(const Graph& graph, const Node& node) {
  Checker check(graph, node);
  std::vector<uint64_t> out;
  switch (node.op) {
    case Op::embed:
      if (check.in(0).kind != Kind::dynamic || !check.in(0).integer) check.fail("input \"", check.in(0).name, "\" must be the dynamic i32 token id");
      check.need_constant(1, Layout::rows, "a constant table (layout rows)");
      if (check.ok()) out = {check.shape(1)[1]};
      break;
    case Op::matmul:
      check.need_value(0);
      check.need_constant(1, Layout::packed, "a constant matrix (layout packed)");
      if (check.ok()) {
        check.need_shape(0, {check.shape(1)[1]});
        out = {check.shape(1)[0]};
      }
      break;
    case Op::norm:
      check.need_value(0);
      out = check.shape(0);
      for (size_t i = 1; i < 3; ++i) {
        check.need_constant(i, Layout::vector, "a constant vector");
        check.need_shape(i, out);
      }
      break;
    case Op::add:
    case Op::mul:
    case Op::lerp:
      check.need_value(0);
      out = check.shape(0);
      for (size_t i = 1; i < node.in.size(); ++i) check.need_operand(i, out);
      if (node.op == Op::lerp && check.ok() && check.in(1).kind == Kind::constant) check.fail("input \"", check.in(1).name, "\" must be a value of the row");
      break;
    case Op::tanh:
    case Op::sigmoid:
    case Op::relu2:
    case Op::decay:
    case Op::l2norm:
      check.need_value(0);
      out = check.shape(0);
      break;
    case Op::bonus:
      check.need_value(0);
      out = check.shape(0);
      for (const size_t i : {1, 2, 4}) {
        check.need_value(i);
        check.need_shape(i, out);
      }
      check.need_constant(3, Layout::vector, "a constant vector");
      check.need_shape(3, out);
      break;
    case Op::cache_shift:
      check.need_value(0);
      out = check.shape(0);
      check.need_state(out);
      break;
    case Op::cache_wkv7:
      check.need_value(0);
      out = check.shape(0);
      for (size_t i = 1; i < 6; ++i) {
        check.need_value(i);
        check.need_shape(i, out);
      }
      check.need_groups(check.ok() ? out[0] : 0);
      if (check.ok()) {
        const uint64_t n = out[0] / node.groups;
        // Both sums of the recurrence are single blocks of the one arithmetic.
        if (n > 256) check.fail("a head has ", n, " channels, expected at most 256");
        check.need_state({node.groups, n, n});
      }
      break;
  }
  if (rule_of(node.op).grouped && check.ok()) check.need_groups(out[0]);
  return check.finish(std::move(out));
}

}  // namespace continuo
