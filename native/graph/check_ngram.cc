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

void need_numbers(Checker& check, size_t i, const std::vector<uint64_t>& expected, Type type) {
  (void)check.picked(check.node().in[i]);
  if (check.ok()) need_whole(check, check.node().in[i]);
  if (check.ok()) check.need_table(i, expected, type);
}

// The mixture of the node; what it is of, told by its size.
ngram::Kind need_mixture(Checker& check, bool subwords) {
  const auto state = check.picked(*check.node().state);
  const auto found = ngram::kind_of(state.empty() ? 0 : state.back());
  const bool fits = (found == ngram::Kind::subwords) == subwords;
  const auto kind = fits ? found : subwords ? ngram::Kind::subwords : ngram::Kind::bytes;
  if (check.ok()) check.need_state({ngram::mixture_numbers(kind)}, Type::f32);
  if (check.ok()) need_whole(check, *check.node().state);
  return kind;
}

}  // namespace

// in: a token; slots [n, 2]; the text [words]; the logits of a base [256] or none. State: the mixture [numbers].
// Of subwords: slots [n, 4], the logits of a base [tokens], and a table of it [tokens].
void check_ngram(Checker& check, RowShape& out) {
  const auto& node = check.node();
  if (node.in.size() > 5)
    return check.fail("has ", node.in.size(),
                      " inputs, expected 3, a fourth one for a base, and a fifth one for its table where tokens are "
                      "subwords");
  const bool subwords = reads_subwords(node);
  const uint64_t words = subwords ? 4 : 2;
  const auto slots = check.picked(node.in[1]);
  if (check.ok()) need_whole(check, node.in[1]);
  if (!check.ok()) return;
  if (slots.size() != 2 || slots[0] % 2 != 0 || slots[0] < ngram::least_slots || slots[0] > ngram::most_slots)
    return check.fail("input \"", operand_text(check.graph(), node.in[1]), "\" has shape ", shape_text(slots),
                      ", expected [slots, ", words, "] with an even number of slots from ", ngram::least_slots, " to ",
                      ngram::most_slots);
  need_numbers(check, 1, {slots[0], words}, Type::i32);
  if (!check.ok()) return;
  const auto kind = need_mixture(check, subwords);
  if (check.ok()) need_numbers(check, 2, {ngram::words_of(kind, slots[0])}, Type::i32);
  if (!check.ok()) return;
  out = {{ngram::tokens}, Type::f32};
  if (node.in.size() < 4) return;
  check.need_vector(3);
  if (!check.ok()) return;
  if (!subwords) return check.need_shape(3, out.extents);
  out.extents = check.shape(3);
  if (out.extents[0] < 1 || out.extents[0] > ngram::most_tokens)
    return check.fail("input \"", check.in(3).name, "\" has ", out.extents[0], " logits, expected 1 to ",
                      ngram::most_tokens);
  need_numbers(check, 4, out.extents, Type::f32);
}

// in: learned numbers, or nothing. State: the mixture.
void check_ngram_first(Checker& check, RowShape&) {
  const auto& node = check.node();
  const auto state = check.picked(*node.state);
  if (!check.ok()) return;
  const bool subwords = state == std::vector<uint64_t>{ngram::mixture_numbers(ngram::Kind::subwords)};
  const auto kind = need_mixture(check, subwords);
  if (check.ok() && node.in.size() > 1) check.fail("has ", node.in.size(), " inputs, expected at most one");
  if (!check.ok() || node.in.empty()) return;
  check.need_constant(0, Layout::vector, "a constant vector");
  if (check.ok()) check.need_shape(0, {ngram::learned_numbers(kind)});
}

}  // namespace continuo
