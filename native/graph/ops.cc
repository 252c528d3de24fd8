#include "graph/ops.h"

#include <algorithm>
#include <array>

#include "graph/checker.h"

namespace continuo {

namespace {

using namespace attribute;
using enum Need;

#define CONTINUO_UNARY_TRAITS(function, multiply_adds) \
  OpTraits{.op = Op::function,                         \
           .name = #function,                          \
           .in = {numbers},                            \
           .elementwise = true,                        \
           .epilogue = true,                           \
           .cost = multiply_adds},
#define CONTINUO_BINARY_TRAITS(function, multiply_adds) \
  OpTraits{.op = Op::function, .name = #function, .in = {numbers, operand}, .elementwise = true, .cost = multiply_adds},

// clang-format off
constexpr auto ops = std::to_array<OpTraits>({
    {.op = Op::embed, .name = "embed", .in = {id, table}, .check = check_embed},
    {.op = Op::matmul, .name = "matmul", .in = {vector, matrix}, .rows = Rows::together, .check = check_matmul},
    {.op = Op::norm, .name = "norm", .in = {vector, weights, weights}, .attributes = groups | eps, .cost = 4},
    {.op = Op::rmsnorm, .name = "rmsnorm", .in = {vector, weights}, .attributes = groups | eps},
    {.op = Op::unit, .name = "unit", .in = {vector}, .attributes = groups | eps},
    {.op = Op::l2norm, .name = "l2norm", .in = {vector}, .attributes = groups | eps},
    CONTINUO_BINARY_OPS(CONTINUO_BINARY_TRAITS)
    CONTINUO_UNARY_OPS(CONTINUO_UNARY_TRAITS)
    {.op = Op::lerp, .name = "lerp", .in = {numbers, numbers, operand}, .elementwise = true},
    {.op = Op::range, .name = "range", .in = {vector}, .attributes = levels, .elementwise = true, .cost = 12, .check = check_range},
    {.op = Op::clamp, .name = "clamp", .in = {vector}, .attributes = levels, .elementwise = true, .check = check_range},
    {.op = Op::bonus, .name = "bonus", .in = {vector, vector, vector, weights, vector}, .attributes = groups},
    {.op = Op::slice, .name = "slice", .in = {any}, .attributes = groups | part, .check = check_slice},
    {.op = Op::repeat, .name = "repeat", .in = {vector}, .attributes = groups | times, .check = check_repeat},
    {.op = Op::cast, .name = "cast", .in = {any}, .attributes = dtype, .check = check_cast},
    {.op = Op::less, .name = "less", .in = {any, any}, .attributes = value, .check = check_compare},
    {.op = Op::equal, .name = "equal", .in = {any, any}, .attributes = value, .check = check_compare},
    {.op = Op::remainder, .name = "remainder", .in = {any, any}, .attributes = value, .check = check_compare},
    {.op = Op::scale, .name = "scale", .in = {numbers}, .attributes = factor, .elementwise = true},
    {.op = Op::softmax, .name = "softmax", .in = {vector}, .cost = 16},
    {.op = Op::normalise, .name = "normalise", .in = {vector}, .cost = 4},
    {.op = Op::topk, .name = "topk", .in = {vector}, .attributes = attribute::count, .cost = 255, .check = check_topk},
    {.op = Op::gather, .name = "gather", .in = {vector, any}, .check = check_gather},
    {.op = Op::routed, .name = "routed", .in = {form, any, form}, .rows = Rows::together, .check = check_routed},
    {.op = Op::combine, .name = "combine", .in = {numbers, form}, .cost = 16, .check = check_combine},
    {.op = Op::torus, .name = "torus", .in = {vector, form}, .more = true, .rows = Rows::runs, .state = State::reads,
     .check = check_torus},
    {.op = Op::nearest, .name = "nearest", .in = {vector}, .more = true, .attributes = attribute::count, .cost = 255,
     .check = check_nearest},
    {.op = Op::experts, .name = "experts", .in = {vector, any, form}, .rows = Rows::together, .check = check_experts},
    {.op = Op::experts_ahead, .name = "experts.ahead", .in = {any, form}, .out = false, .attributes = attribute::count,
     .rows = Rows::together, .check = check_experts_ahead},
    {.op = Op::project, .name = "project", .in = {vector, form, form}, .attributes = sweeps, .cost = 255,
     .check = check_project},
    {.op = Op::whole, .name = "whole", .in = {vector}, .check = check_whole},
    {.op = Op::adapter, .name = "adapter", .in = {vector, form, form, form}, .rows = Rows::runs, .state = State::reads,
     .check = check_adapter},
    {.op = Op::rope, .name = "rope", .in = {vector}, .attributes = groups | increments, .named_state = true,
     .rows = Rows::runs, .state = State::reads, .check = check_rope},
    {.op = Op::attend, .name = "attend", .in = {vector, history, history}, .attributes = groups | attention,
     .rows = Rows::runs, .state = State::reads, .check = check_histories},
    {.op = Op::attend_weights, .name = "attend.weights", .in = {vector, history}, .attributes = groups | attention | attribute::count,
     .named_state = true, .rows = Rows::runs, .state = State::reads, .check = check_weights},

    // Cache operations.
    {.op = Op::cache_shift, .name = "cache.shift", .in = {vector}, .named_state = true, .rows = Rows::runs,
     .state = State::advances, .one_place = true, .check = check_shift},
    {.op = Op::cache_conv, .name = "cache.conv", .in = {vector, form}, .more = true, .attributes = activation,
     .named_state = true, .rows = Rows::runs, .state = State::advances, .one_place = true, .check = check_conv},
    {.op = Op::cache_wkv7, .name = "cache.wkv7", .in = {vector, vector, vector, form, vector, vector}, .attributes = groups,
     .named_state = true, .rows = Rows::runs, .state = State::advances, .one_place = true, .check = check_wkv7},
    {.op = Op::cache_ssm, .name = "cache.ssm", .in = {vector, form, form, form, form, form}, .attributes = groups,
     .named_state = true, .rows = Rows::runs, .state = State::advances, .one_place = true, .check = check_ssm},
    {.op = Op::cache_pdr, .name = "cache.pdr", .in = {vector, form, form, vector}, .attributes = write, .named_state = true,
     .rows = Rows::runs, .state = State::advances, .one_place = true, .check = check_pdr},
    {.op = Op::cache_ngram, .name = "cache.ngram", .in = {id, form, form}, .more = true, .attributes = learn,
     .named_state = true, .rows = Rows::runs, .state = State::advances, .one_place = true, .check = check_ngram},
    {.op = Op::cache_ngram_first, .name = "cache.ngram.first", .more = true, .out = false, .named_state = true,
     .rows = Rows::runs, .state = State::first, .check = check_ngram_first},
    {.op = Op::cache_attend, .name = "cache.attend", .in = {vector, form, form, form, form}, .more = true,
     .attributes = groups | attention | segment, .rows = Rows::runs, .state = State::advances, .one_place = true,
     .check = check_rings},
    {.op = Op::cache_memory, .name = "cache.memory", .in = {vector, form, form, form, form}, .more = true,
     .attributes = groups | attribute::form, .named_state = true, .rows = Rows::runs, .state = State::advances,
     .one_place = true, .check = check_memory},
    {.op = Op::cache_memory_first, .name = "cache.memory.first", .more = true, .out = false,
     .attributes = groups | attribute::form, .named_state = true, .rows = Rows::runs, .state = State::first,
     .check = check_memory_first},
    {.op = Op::cache_mix, .name = "cache.mix", .in = {form, form}, .out = false, .attributes = groups | segment,
     .named_state = true, .rows = Rows::runs, .state = State::mixes, .one_place = true, .check = check_mix},
    {.op = Op::cache_recall, .name = "cache.recall", .in = {vector}, .attributes = groups, .named_state = true,
     .rows = Rows::runs, .state = State::reads, .one_place = true, .check = check_recall},
    {.op = Op::cache_read, .name = "cache.read", .attributes = modulo, .named_state = true, .rows = Rows::runs,
     .state = State::reads, .check = check_read},
    {.op = Op::cache_write, .name = "cache.write", .in = {any}, .out = false, .named_state = true, .rows = Rows::runs,
     .state = State::writes, .check = check_write},
    {.op = Op::cache_increment, .name = "cache.increment", .out = false, .attributes = by, .named_state = true,
     .rows = Rows::runs, .state = State::counts, .check = check_count},
    {.op = Op::cache_decrement, .name = "cache.decrement", .out = false, .attributes = by, .named_state = true,
     .rows = Rows::runs, .state = State::counts, .check = check_count},
    {.op = Op::cache_reset, .name = "cache.reset", .out = false, .named_state = true, .rows = Rows::runs,
     .state = State::resets, .check = check_reset},

    {.op = Op::loop, .name = "loop", .out = false, .rows = Rows::control},
    {.op = Op::branch, .name = "branch", .out = false, .rows = Rows::control},
    {.op = Op::return_, .name = "return", .out = false, .rows = Rows::control},
});
// clang-format on

constexpr bool in_order() {
  for (size_t i = 0; i < ops.size(); ++i) {
    if (static_cast<size_t>(ops[i].op) != i) return false;
  }
  return ops.size() == static_cast<size_t>(Op::return_) + 1;
}
static_assert(in_order(), "every op has an entry, in the order of enum Op");

constexpr std::string_view names[] = {"groups",     "eps",
                                      "value",      "from to",
                                      "dtype",      "shared scale",
                                      "segment",    "increments",
                                      "low high",   "rule retention periods",
                                      "modulo",     "by",
                                      "factor",     "count",
                                      "activation", "times",
                                      "write",      "iterations inflation",
                                      "learn"};

// Checks input i against its need; `first`: the shape of the first input.
void check_need(Checker& check, Need need, size_t i, const std::vector<uint64_t>& first) {
  const auto of_first_shape = [&] {
    if (check.ok() && i > 0) check.need_shape(i, first);
  };
  switch (need) {
    case id:
      check.need_type(i, Type::i32);
      if (check.ok() && check.in(i).elements() != 1)
        check.fail("input \"", check.in(i).name, "\" must be one number a row");
      return;
    case table: return check.need_constant(i, Layout::rows, "a constant table (layout rows)");
    case matrix: return check.need_constant(i, Layout::packed, "a constant matrix (layout packed)");
    case vector: check.need_vector(i); return of_first_shape();
    case weights: check.need_constant(i, Layout::vector, "a constant vector"); return of_first_shape();
    case numbers: check.need_type(i, Type::f32); return of_first_shape();
    case operand: return check.need_operand(i, first);
    case any: return check.need_row(i);
    case none:
    case history:
    case Need::form: return;
  }
}

}  // namespace

size_t OpTraits::inputs() const {
  return static_cast<size_t>(std::find(in.begin(), in.end(), Need::none) - in.begin());
}

const char* name_of(Need need) {
  switch (need) {
    case none: return "none";
    case id: return "id";
    case table: return "table";
    case matrix: return "matrix";
    case vector: return "vector";
    case weights: return "weights";
    case numbers: return "numbers";
    case operand: return "operand";
    case any: return "any";
    case history: return "history";
    case Need::form: return "form";
  }
  return "unknown";
}

std::span<const OpTraits> op_table() { return ops; }
std::span<const std::string_view> attribute_names() { return names; }

const OpTraits* find_op(std::string_view name) {
  const auto found = std::find_if(ops.begin(), ops.end(), [&](const auto& traits) { return traits.name == name; });
  return found == ops.end() || found->rows == Rows::control ? nullptr : &*found;
}

const OpTraits& traits_of(Op op) { return ops[static_cast<size_t>(op)]; }

Result<RowShape> check_node(const Graph& graph, const Node& node) {
  Checker check(graph, node);
  const auto& traits = traits_of(node.op);
  RowShape out;
  if (traits.out && traits.in[0] != none) out.extents = check.shape(0);
  for (size_t i = 0; i < std::min(node.in.size(), traits.inputs()); ++i)
    check_need(check, traits.in[i], i, out.extents);
  if (traits.check != nullptr && check.ok()) traits.check(check, out);
  if (traits.has(attribute::groups) && check.ok() && !out.extents.empty()) check.need_groups(out.extents[0]);
  return check.finish(std::move(out));
}

}  // namespace continuo
