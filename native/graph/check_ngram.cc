// The checks of the ops of an ngram memory (ngram.h, docs/ngram.md).
#include "graph/checker.h"
#include "graph/ngram.h"

namespace continuo {

namespace {

// Places of a table that follows a counter lie in blocks, and the kernel walks a table as one array.
void need_whole(Checker& check, const Operand& operand) {
  const auto& d = check.graph().declarations[operand.name];
  for (size_t i = operand.at.size(); check.ok() && i < d.axes.size(); ++i) {
    if (d.axes[i].counter != no_name)
      check.fail("table \"", operand_text(check.graph(), operand),
                 "\" grows or is a ring, expected one of a fixed size");
  }
}

void need_numbers(Checker& check, size_t i, const std::vector<uint64_t>& expected) {
  (void)check.picked(check.node().in[i]);
  if (check.ok()) need_whole(check, check.node().in[i]);
  if (check.ok()) check.need_table(i, expected, Type::i32);
}

void need_mixture(Checker& check) {
  check.need_state({ngram::mixture::numbers}, Type::f32);
  if (check.ok()) need_whole(check, *check.node().state);
}

}  // namespace

// in: a token; slots [n, 2]; the text [words]; the logits of a base [256] or none. State: the mixture [numbers].
void check_ngram(Checker& check, RowShape& out) {
  const auto& node = check.node();
  if (node.in.size() > 4) return check.fail("has ", node.in.size(), " inputs, expected 3, and a fourth one for a base");
  const auto slots = check.picked(node.in[1]);
  if (check.ok()) need_whole(check, node.in[1]);
  if (!check.ok()) return;
  if (slots.size() != 2 || slots[0] % 2 != 0 || slots[0] < ngram::least_slots || slots[0] > ngram::most_slots)
    return check.fail("input \"", operand_text(check.graph(), node.in[1]), "\" has shape ", shape_text(slots),
                      ", expected [slots, 2] with an even number of slots from ", ngram::least_slots, " to ",
                      ngram::most_slots);
  need_numbers(check, 1, {slots[0], 2});
  if (check.ok()) need_numbers(check, 2, {ngram::words_of(slots[0])});
  if (check.ok()) need_mixture(check);
  if (!check.ok()) return;
  out = {{ngram::tokens}, Type::f32};
  if (node.in.size() < 4) return;
  check.need_vector(3);
  if (check.ok()) check.need_shape(3, out.extents);
}

// in: learned numbers, or nothing. State: the mixture.
void check_ngram_first(Checker& check, RowShape&) {
  const auto& node = check.node();
  need_mixture(check);
  if (check.ok() && node.in.size() > 1) check.fail("has ", node.in.size(), " inputs, expected at most one");
  if (!check.ok() || node.in.empty()) return;
  check.need_constant(0, Layout::vector, "a constant vector");
  if (check.ok()) check.need_shape(0, {ngram::learned});
}

}  // namespace continuo
