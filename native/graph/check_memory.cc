#include "graph/checker.h"

namespace continuo {

// Checks cache.attend. in: q, k, v of the row, and the tables of keys and values of its positions; with context tokens
// also hk, hv and their two tables; with persistent tokens also q before its rotation, and their keys and values.
void check_rings(Checker& check, RowShape& out) {
  const auto& node = check.node();
  const size_t n = node.in.size();
  const bool context = n == 9 || n == 12, persistent = n == 8 || n == 12;
  if (n != 5 && !context && !persistent)
    return check.fail("has ", n, " inputs, expected 5, and 4 more for context tokens, 3 more for persistent ones");
  check.need_heads(out.extents[0]);
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
  // A position lies in the same place of every ring, so the rings have equally many places.
  for (const size_t table : {4, 7, 8}) {
    if (check.ok() && (table == 4 || context)) check.need_places(table, 3);
  }
  if (!persistent || !check.ok()) return;
  check.need_vector(n - 3);
  if (check.ok()) check.need_shape(n - 3, out.extents);
  for (size_t i = n - 2; i < n; ++i) {
    check.need_constant(i, Layout::vector, "a constant vector");
    if (check.ok() && check.shape(i)[0] % channels != 0)
      check.fail("input \"", check.in(i).name, "\" has ", check.shape(i)[0], " elements, expected ", channels,
                 " for each persistent token");
  }
  if (check.ok()) check.need_shape(n - 1, check.shape(n - 2));
}

// Checks cache.memory. in: q, k, v, theta; eta (rule titans); alpha (l2, elastic, kl); the logits of the levels; S
// (titans); G (with a period above 1).
void check_memory(Checker& check, RowShape& out) {
  const auto& graph = check.graph();
  const auto& node = check.node();
  const auto& form = node.memory;
  const bool titans = form.rule == Rule::titans;
  const size_t gates = 1u + titans + form.retains(),
               expected = 3 + gates + 1 + titans + (slow_levels(node.periods) > 0);
  if (node.in.size() != expected)
    return check.fail("has ", node.in.size(), " inputs, expected ", expected, " for its rule, retention and periods");
  const uint64_t levels = node.periods.size();
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
  if (check.ok() && n * node.groups != out.extents[0])
    check.fail("state \"", check.state().name, "\" has heads of ", n, " channels, expected ",
               out.extents[0] / node.groups);
  size_t next = 4 + gates;
  if (check.ok() && titans) (void)check.need_memory(node.in[next++], levels, node.groups);
  if (check.ok() && slow_levels(node.periods) > 0 && graph.clock == no_name)
    check.fail("has a period above 1, but the graph has no clock");
  if (check.ok() && slow_levels(node.periods) > 0)
    (void)check.need_memory(node.in[next], slow_levels(node.periods), node.groups);
}

void check_conv(Checker& check, RowShape& out) {
  if (check.node().in.size() > 3)
    return check.fail("has ", check.node().in.size(), " inputs, expected 2, and a third one for a bias");
  check.need_constant(1, Layout::vector, "a constant vector");
  if (check.ok() && check.node().in.size() > 2) {
    check.need_constant(2, Layout::vector, "a constant vector");
    if (check.ok()) check.need_shape(2, out.extents);
  }
  if (!check.ok()) return;
  const uint64_t taps = check.shape(1)[0] / out.extents[0];
  if (check.shape(1)[0] != taps * out.extents[0] || taps < 2 || taps > max_taps) {
    check.fail("input \"", check.in(1).name, "\" has ", check.shape(1)[0], " elements, expected from 2 to ", max_taps,
               " for each of ", out.extents[0], " channels");
  } else {
    check.need_state({taps - 1, out.extents[0]}, Type::f32);
  }
}

void check_memory_first(Checker& check, RowShape&) {
  const auto& node = check.node();
  const uint64_t n = check.need_memory(*node.state, node.periods.size(), node.groups);
  if (node.in.size() > 1) check.fail("has ", node.in.size(), " inputs, expected at most one");
  if (!check.ok() || node.in.empty()) return;
  check.need_constant(0, Layout::vector, "a constant vector");
  if (check.ok()) check.need_shape(0, {node.periods.size() * node.groups * n * n});
}

void check_mix(Checker& check, RowShape&) {
  const auto& node = check.node();
  check.need_constant(0, Layout::vector, "a constant vector");
  if (!check.ok()) return;
  const uint64_t levels = check.shape(0)[0] / node.groups;
  const uint64_t n = check.need_memory(node.in[1], levels, node.groups);
  if (check.ok()) check.need_shape(0, {levels * node.groups});
  if (check.ok()) check.need_state({node.groups, n, n}, Type::f32);
  if (check.ok() && node.segment > 0 && check.graph().clock == no_name)
    check.fail("has a segment, but the graph has no clock");
}

void check_recall(Checker& check, RowShape& out) {
  const auto& node = check.node();
  check.need_groups(out.extents[0]);
  const auto rest = check.ok() ? check.picked(*node.state) : std::vector<uint64_t>{};
  if (!check.ok()) return;
  const uint64_t keys = out.extents[0] / node.groups;
  // One head needs no axis for heads.
  const bool one = rest.size() == 2 && node.groups == 1;
  const uint64_t channels = rest.size() == 3 || one ? rest.back() : keys;
  check.need_state(one ? std::vector{keys, channels} : std::vector<uint64_t>{node.groups, keys, channels}, Type::f32);
  if (channels != keys && keys > most_recalled_keys)
    check.fail("has ", keys, " keys, expected at most ", most_recalled_keys);
  out.extents = {node.groups * channels};
}

}  // namespace continuo
