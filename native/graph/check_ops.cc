// The checks of single ops that go beyond the op table (ops.cc); check_memory.cc has those of matrix memories, of the
// rings of cache.attend and of convolutions.
#include <algorithm>

#include "graph/checker.h"
#include "graph/narrow.h"

namespace continuo {

void check_embed(Checker& check, RowShape& out) { out.extents = {check.shape(1)[1]}; }

void check_matmul(Checker& check, RowShape& out) {
  check.need_shape(0, {check.shape(1)[1]});
  out.extents = {check.shape(1)[0]};
}

void check_range(Checker& check, RowShape& out) {
  const auto& node = check.node();
  if (node.low.size() == node.high.size() && out.extents[0] % node.low.size() == 0) return;
  check.fail("its ", node.low.size(), " lows and ", node.high.size(), " highs cannot be levels of ", out.extents[0],
             " channels");
}

void check_slice(Checker& check, RowShape& out) {
  const auto& node = check.node();
  const auto& shape = check.shape(0);
  if (shape.size() == 1) check.need_groups(shape[0]);
  out = {{node.groups * (node.to - node.from)}, check.in(0).type};
  if (!check.ok() || (shape.size() == 1 && node.to <= shape[0] / node.groups)) return;
  check.fail("input \"", check.in(0).name, "\" has shape ", shape_text(shape), ", which has no part ", node.from,
             " to ", node.to, node.groups > 1 ? text(" in each of ", node.groups, " groups") : "");
}

void check_repeat(Checker& check, RowShape& out) {
  check.need_groups(out.extents[0]);
  out.extents[0] *= check.node().times;
}

void check_cast(Checker& check, RowShape& out) { out = {check.shape(0), check.node().type}; }

void check_compare(Checker& check, RowShape& out) {
  const auto& node = check.node();
  const bool remainder = node.op == Op::remainder;
  out = {check.shape(0), remainder ? Type::i32 : Type::boolean};
  if (check.in(0).type != Type::f32 || remainder) check.need_type(0, Type::i32);
  if (node.in.size() > 1) {
    check.need_type(1, check.in(0).type);
    if (check.ok()) check.need_shape(1, out.extents);
  } else if (check.ok() && check.in(0).type != Type::i32) {
    check.fail("input \"", check.in(0).name, "\" is compared with a whole number, expected i32");
  } else if (remainder && node.number <= 0) {
    check.fail("its value is ", node.number, ", expected at least 1");
  }
}

void check_rope(Checker& check, RowShape& out) {
  const auto& node = check.node();
  check.need_counter();
  if (check.ok()) check.need_groups(out.extents[0]);
  if (check.ok() && out.extents[0] / node.groups < 2 * node.increments.size()) {
    check.fail("has ", node.increments.size(), " increments for heads of ", out.extents[0] / node.groups,
               " channels, expected at most one for each pair");
  }
}

void check_topk(Checker& check, RowShape& out) {
  const auto chosen = static_cast<uint64_t>(check.node().number), scores = out.extents[0];
  if (scores > max_scores)
    check.fail("chooses among ", scores, " numbers, expected at most ", max_scores);
  else if (chosen > max_chosen || chosen > scores)
    check.fail("chooses ", chosen, " of ", scores, " numbers, expected from 1 to ",
               std::min<uint64_t>(max_chosen, scores));
  out = {{chosen}, Type::i32};
}

void check_gather(Checker& check, RowShape& out) {
  check.need_type(1, Type::i32);
  if (check.ok() && check.shape(1).size() != 1)
    check.fail("input \"", check.in(1).name, "\" has shape ", shape_text(check.shape(1)), ", expected one dimension");
  if (check.ok()) out.extents = check.shape(1);
}

// Checks routed. in: one row [C], or a row for each matrix that it meets [K, C]; the matrices [K]; the stack [E, N, C].
void check_routed(Checker& check, RowShape& out) {
  check.need_type(0, Type::f32);
  check.need_type(1, Type::i32);
  check.need_constant(2, Layout::stack, "a constant stack of matrices");
  if (check.ok() && (check.shape(1).size() != 1 || check.shape(1)[0] > max_chosen))
    check.fail("input \"", check.in(1).name, "\" has shape ", shape_text(check.shape(1)),
               ", expected one dimension of at most ", max_chosen);
  if (!check.ok()) return;
  const uint64_t chosen = check.shape(1)[0], inputs = check.shape(2)[2];
  check.need_shape(0, check.shape(0).size() == 1 ? std::vector{inputs} : std::vector{chosen, inputs});
  out.extents = {chosen, check.shape(2)[1]};
}

// Checks combine. in: rows [K, N], and a weight for each of them [K].
void check_combine(Checker& check, RowShape& out) {
  if (out.extents.size() != 2)
    return check.fail("input \"", check.in(0).name, "\" has shape ", shape_text(out.extents),
                      ", expected two dimensions");
  check.need_vector(1);
  if (check.ok()) check.need_shape(1, {out.extents[0]});
  out.extents = {out.extents[1]};
}

void check_histories(Checker& check, RowShape& out) {
  const auto& node = check.node();
  check.need_heads(out.extents[0]);
  if (!check.ok()) return;
  const uint64_t channels = out.extents[0] / node.shared;
  const Name keys = check.need_history(1, channels, true);
  const Name values = check.need_history(2, channels, true);
  if (check.ok() && check.in(1).type != check.in(2).type)
    check.fail("keys \"", check.in(1).name, "\" are ", name_of(check.in(1).type), ", values \"", check.in(2).name,
               "\" ", name_of(check.in(2).type), ", expected one type");
  const uint64_t own = out.extents[0] / node.groups;
  if (check.ok() && check.in(1).type != Type::f32 && own > most_narrow_channels)
    check.fail("a head has ", own, " channels of ", name_of(check.in(1).type), ", expected at most ",
               most_narrow_channels, ", or f32");
  const auto extent = [&](size_t i) { return check.in(i).axes[node.in[i].at.size()].extent; };
  if (check.ok() && (keys != values || extent(1) != extent(2))) {
    check.fail("keys \"", check.in(1).name, "\" and values \"", check.in(2).name,
               "\" do not follow the same counter with the same extent");
  }
}

void check_weights(Checker& check, RowShape& out) {
  const auto& node = check.node();
  check.need_heads(out.extents[0]);
  if (!check.ok()) return;
  const Name counter = check.need_history(1, out.extents[0] / node.shared);
  check.need_counter();
  if (check.ok() && check.in(1).axes[node.in[1].at.size()].kind != Axis::Kind::grows)
    check.fail("keys \"", check.in(1).name, "\" are a ring, expected a table that grows");
  if (check.ok() && node.state->name == counter)
    check.fail("state \"", check.state().name,
               "\" counts the keys, expected a counter that says the first of the slots");
  out.extents[0] = node.groups * static_cast<uint64_t>(node.number);
}

void check_shift(Checker& check, RowShape& out) { check.need_state(out.extents, Type::f32); }

void check_wkv7(Checker& check, RowShape& out) {
  const auto& node = check.node();
  check.need_vector(3);
  check.need_groups(out.extents[0]);
  if (check.ok()) check.need_groups(check.shape(3)[0]);
  if (!check.ok()) return;
  const uint64_t keys = out.extents[0] / node.groups, channels = check.shape(3)[0] / node.groups;
  // Each of the two sums of the recurrence must fit in one block of 256 terms (docs/arithmetic.md).
  for (const uint64_t n : {keys, channels})
    if (n > 256) check.fail("a head has ", n, " channels, expected at most 256");
  check.need_state({node.groups, keys, channels}, Type::f32);
  out.extents = check.shape(3);
}

void check_ssm(Checker& check, RowShape& out) {
  const auto& node = check.node();
  check.need_groups(out.extents[0]);
  for (size_t i = 1; i < 5; ++i) {
    if (check.ok()) check.need_vector(i);
    if (check.ok() && i < 3) check.need_shape(i, {node.groups});
  }
  if (check.ok()) check.need_constant(5, Layout::vector, "a constant vector");
  if (check.ok()) check.need_shape(5, {node.groups});
  const auto rest = check.ok() ? check.picked(*node.state) : std::vector<uint64_t>{};
  if (!check.ok()) return;
  const uint64_t keys = rest.size() == 3 ? rest[1] : 0, width = check.shape(3)[0];
  // The sum of the recurrence must fit in one block of 256 terms (docs/arithmetic.md).
  if (keys == 0 || keys > 256) {
    check.fail("state \"", operand_text(check.graph(), *node.state), "\" has shape ", shape_text(rest),
               ", expected [heads, n, channels of a head] with n from 1 to 256");
  } else if (width % keys != 0 || node.groups % (width / keys) != 0) {
    check.fail("input \"", check.in(3).name, "\" has ", width, " channels, expected ", keys,
               " for each group of heads, and groups of equally many heads");
  } else {
    check.need_shape(4, check.shape(3));
    if (check.ok()) check.need_state({node.groups, keys, out.extents[0] / node.groups}, Type::f32);
  }
}

void check_read(Checker& check, RowShape& out) {
  const auto& node = check.node();
  if (check.state().counter) {
    check.need_counter();
    if (check.ok() && check.state().bound >= uint64_t{1} << 31 && node.number == 0) {
      check.fail("counter \"", check.state().name,
                 "\" has no max below 2³¹, so that its value may not fit i32: give it one, or read it modulo a number");
    }
    out.type = Type::i32;
    return;
  }
  out = {check.picked(*node.state), check.state().type};
  if (check.ok() && node.number != 0) check.fail("only a counter is read modulo a number");
  if (check.ok() && std::find(out.extents.begin(), out.extents.end(), 0u) != out.extents.end()) {
    check.fail("state \"", operand_text(check.graph(), *node.state), "\" still grows: pick a member along that axis");
  }
}

void check_write(Checker& check, RowShape&) {
  if (check.state().counter)
    check.fail("state \"", check.state().name, "\" is a counter: increment, decrement or reset it");
  if (check.ok()) check.need_state(check.shape(0), check.in(0).type);
}

namespace {

void refuse_clock(Checker& check) {
  if (check.ok() && check.state().clock)
    check.fail("\"", check.state().name, "\" is the context's clock, which moves by itself");
}

}  // namespace

void check_count(Checker& check, RowShape&) {
  check.need_counter();
  refuse_clock(check);
}

void check_reset(Checker& check, RowShape&) {
  (void)check.picked(*check.node().state);
  refuse_clock(check);
}

}  // namespace continuo
