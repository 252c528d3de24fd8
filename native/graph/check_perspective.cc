// The checks of the ops of the perspective family (docs/perspective.md): recurrences with a decay of each channel,
// routes on a torus, experts of a store, projections on half-spaces, and adapters.
#include <algorithm>

#include "graph/checker.h"

namespace continuo {

namespace {

void need_ids(Checker& check, size_t i) {
  check.need_type(i, Type::i32);
  if (check.ok() && (check.shape(i).size() != 1 || check.shape(i)[0] > max_chosen))
    check.fail("input \"", check.in(i).name, "\" has shape ", shape_text(check.shape(i)),
               ", expected one dimension of at most ", max_chosen);
}

}  // namespace

// in: γ [E], k [r], q [r], v [E]; state [r, E].
void check_pdr(Checker& check, RowShape& out) {
  check.need_vector(1);
  if (check.ok()) check.need_vector(2);
  if (check.ok()) check.need_shape(2, check.shape(1));
  if (!check.ok()) return;
  const uint64_t keys = check.shape(1)[0];
  if (keys > most_recalled_keys) return check.fail("has ", keys, " keys, expected at most ", most_recalled_keys);
  check.need_state({keys, out.extents[0]}, Type::f32);
}

// in: a point [2]; positions (constant vector [2 · experts]); a table of offsets [experts, 2] or none.
void check_torus(Checker& check, RowShape& out) {
  if (check.node().in.size() > 3)
    return check.fail("has ", check.node().in.size(), " inputs, expected 2, and a third one for offsets");
  check.need_shape(0, {2});
  if (check.ok()) check.need_constant(1, Layout::vector, "a constant vector");
  if (!check.ok()) return;
  const uint64_t numbers = check.shape(1)[0];
  if (numbers % 2 != 0 || numbers / 2 > max_torus)
    return check.fail("input \"", check.in(1).name, "\" has ", numbers, " numbers, expected two for each of at most ",
                      max_torus, " experts");
  if (check.node().in.size() == 3) check.need_table(2, {numbers / 2, 2}, Type::f32);
  out.extents = {numbers / 2};
}

// in: distances [experts]; the rank to begin with, i32 [], or none: 0.
void check_nearest(Checker& check, RowShape& out) {
  const auto chosen = static_cast<uint64_t>(check.node().number), experts = out.extents[0];
  if (check.node().in.size() > 2)
    return check.fail("has ", check.node().in.size(), " inputs, expected 1, and a second one for the first rank");
  if (experts > max_torus || chosen > std::min<uint64_t>(max_chosen, experts))
    check.fail("takes ", chosen, " of ", experts, " numbers, expected at most ",
               std::min<uint64_t>(max_chosen, experts), " of at most ", max_torus);
  if (check.node().in.size() == 2) {
    check.need_type(1, Type::i32);
    if (check.ok() && check.in(1).elements() != 1) check.fail("its first rank must be one number a row");
  }
  out = {{chosen}, Type::i32};
}

// in: one row [D]; the experts [K]; the store's layer, a constant [experts, I, D].
void check_experts(Checker& check, RowShape& out) {
  need_ids(check, 1);
  if (check.ok()) check.need_constant(2, Layout::experts, "a constant of the layout experts");
  if (!check.ok()) return;
  check.need_shape(0, {check.shape(2)[2]});
  out.extents = {check.shape(1)[0], check.shape(2)[2]};
}

void check_experts_ahead(Checker& check, RowShape&) {
  if (check.node().number > 3) return check.fail("has the count ", check.node().number, ", expected 1 to 3");
  need_ids(check, 0);
  if (check.ok()) check.need_constant(1, Layout::experts, "a constant of the layout experts");
}

// in: y [D]; normals (constant vector [h · D]); offsets (constant vector [h]).
void check_project(Checker& check, RowShape& out) {
  check.need_constant(1, Layout::vector, "a constant vector");
  if (check.ok()) check.need_constant(2, Layout::vector, "a constant vector");
  if (!check.ok()) return;
  const uint64_t spaces = check.shape(2)[0];
  if (spaces > max_half_spaces) return check.fail("has ", spaces, " half-spaces, expected at most ", max_half_spaces);
  check.need_shape(1, {spaces * out.extents[0]});
}

void check_whole(Checker&, RowShape& out) { out.type = Type::i8; }

// in: y [outputs], x [inputs], A [rank, inputs], B [outputs, rank].
void check_adapter(Checker& check, RowShape& out) {
  check.need_vector(1);
  const auto rest = check.ok() ? check.picked(check.node().in[2]) : std::vector<uint64_t>{};
  if (!check.ok()) return;
  const uint64_t rank = rest.empty() ? 0 : rest[0];
  if (rank > max_adapter_rank) return check.fail("has rank ", rank, ", expected at most ", max_adapter_rank);
  check.need_table(2, {rank, check.shape(1)[0]}, Type::f32);
  if (check.ok()) check.need_table(3, {out.extents[0], rank}, Type::f32);
}

}  // namespace continuo
