// Tentative runs: rows of a step that may be taken back (Executor::keep).
//
// A row changes persistent tables in one of three ways, and each is taken back without a second pass over the weights:
//
//   a table that grows   its row writes its own positions: the counter is lowered
//   a ring               its row takes the places of older positions: those get their former bytes
//   any other table      it gets its bytes from before the step, one copy for all rows; then the rows that stay go
//                        through the ops that write it once more, with the inputs that were noted in the step
//
// Rows that all stay cost the copy and the notes alone.
//
// Of a run that is noted all ops that change tables are. So rows that were taken back, because their session has not
// asked for them yet, can happen later without a pass over the weights (walk).
#include <algorithm>
#include <cstring>

#include "compile/arrange.h"
#include "graph/ops.h"
#include "runtime/executor/executor.h"

namespace continuo {

namespace {

bool writes_state(const Instruction& instruction) {
  const State state = traits_of(instruction.node->op).state;
  return state != State::none && state != State::reads;
}

}  // namespace

// Whether the row writes its own position of the table's axis that follows a counter, or later ones.
bool Executor::writes_own_position(const Instruction& instruction, const Place& place) const {
  if (instruction.node->op == Op::cache_attend) return true;
  const auto& axes = model_->graph.declarations[place.table].axes;
  for (size_t axis = 0; axis < std::min(axes.size(), place.picks.size()); ++axis) {
    const auto& pick = place.picks[axis];
    if (axes[axis].counter != no_name)
      return instruction.node->op == Op::cache_write && pick.kind == Term::Kind::counter &&
             pick.id == axes[axis].counter && pick.offset + pick.seen >= 0;
  }
  return false;
}

Executor::Undoing Executor::undoing_of(const Space& space) const {
  Undoing out;
  out.rows = space.parks ? 0 : max_rows;
  const auto note = [](std::vector<uint32_t>& slices, uint32_t slice) {
    if (std::find(slices.begin(), slices.end(), slice) == slices.end()) slices.push_back(slice);
  };
  for (const auto& line : space.program->code) {
    each_instruction(line, [&](const Instruction& instruction, bool) {
      if (!writes_state(instruction)) return;
      for (const auto& place : instruction.places) {
        const auto& d = model_->graph.declarations[place.table];
        if (d.volatile_table()) continue;
        if (d.counter) {
          // Rows that raise it alike are what raise() counts.
          if (space.growth[place.table] == 0) out.rows = 0;
          continue;
        }
        const uint32_t at = model_->slice_of[place.table];
        const auto& slice = model_->layout[at];
        // Which rows write what would have to be followed pick by pick.
        const bool by_value = std::any_of(place.picks.begin(), place.picks.end(),
                                          [](const Pick& pick) { return pick.kind == Term::Kind::value; });
        if (slice.several != no_name || by_value) {
          out.rows = 0;
        } else if (slice.follows() == no_name) {
          note(out.images, at);
        } else if (!writes_own_position(instruction, place)) {
          out.rows = 0;
        } else if (!slice.grows()) {
          note(out.rings, at);
          const auto each = static_cast<size_t>(space.growth[slice.ring]);
          out.rows = each == 0 ? 0 : std::min(out.rows, slice.places / each);
        }
      }
    });
  }
  for (const uint32_t at : out.images) out.bytes += model_->layout[at].elements * size_of(model_->layout[at].type);
  return out;
}

// Visits the numbers of a ring at these positions, in all outer parts: visit(address, bytes).
void Executor::each_ring_row(Context& context, const StateSlice& slice, Positions positions, const auto& visit) {
  const size_t bytes = slice.inner * size_of(slice.type);
  for (size_t outer = 0; outer < slice.outer; ++outer) {
    for (size_t p = positions.from; p < positions.to; ++p)
      visit(const_cast<std::byte*>(context.ring_row(slice.name, outer, p)), bytes);
  }
}

// Copies what so many rows of the context are about to overwrite.
void Executor::note_before(const Space& space, Context& context, size_t rows, Mark& mark) {
  mark.rows = rows;
  mark.gates = context.gates;
  mark.before.clear();
  mark.rings.clear();
  const auto take = [&](const std::byte* from, size_t bytes) {
    mark.before.insert(mark.before.end(), from, from + bytes);
  };
  for (const uint32_t at : space.undoing.images) {
    const auto& slice = model_->layout[at];
    take(context.data(slice.name), slice.elements * size_of(slice.type));
  }
  for (const uint32_t at : space.undoing.rings) {
    const auto& slice = model_->layout[at];
    const auto now = static_cast<size_t>(context.counter(slice.ring));
    const auto each = static_cast<size_t>(space.growth[slice.ring]);
    mark.rings.push_back({now, now + rows * each});
    each_ring_row(context, slice, mark.rings.back(), take);
  }
}

// Gives tables their bytes from before the step. Counters may stand as when it began, or behind its rows.
void Executor::give_images(const Space& space, Context& context, const Mark& mark) {
  const std::byte* from = mark.before.data();
  for (const uint32_t at : space.undoing.images) {
    const auto& slice = model_->layout[at];
    const size_t bytes = slice.elements * size_of(slice.type);
    std::memcpy(context.data(slice.name), from, bytes);
    from += bytes;
  }
  context.gates = mark.gates;
}

Executor::Mark Executor::mark(Context& context, size_t block, size_t rows) {
  Mark out;
  note_before(spaces_[block], context, rows, out);
  return out;
}

void Executor::back(Context& context, size_t block, const Mark& mark) {
  give_images(spaces_[block], context, mark);
  take_back(spaces_[block], context, mark, 0);
}

// Before a step: copies the parts of tables that the rows of tentative runs will overwrite.
void Executor::begin_tentative(Space& space, std::span<const Run> runs) {
  noted_.clear();
  note_bytes_.clear();
  tentatives_ = 0;
  for (const auto& run : runs) {
    if (!run.tentative) continue;
    if (tentative_.size() == tentatives_) tentative_.emplace_back();
    auto& own = tentative_[tentatives_++];
    own.space = &space;
    own.run = run;
    note_before(space, *run.context, run.rows, own.mark);
  }
}

// Visits the inputs of an op that are no constants: visit(value, bytes of its row).
void Executor::each_input(const Space& space, const Instruction& instruction, const auto& visit) const {
  for (const auto& argument : instruction.in)
    if (!argument.constant) visit(argument.id, space.program->values[argument.id].bytes);
}

// Runs `work` with other memory in the place of the block's values: those of the last step are still needed.
void Executor::beside_values(Space& space, const auto& work) {
  if (again_.size() < space.memory.size()) again_ = DeviceMemory(model_->device, space.memory.size());
  std::swap(space.memory, again_);
  try {
    work();
  } catch (...) {
    std::swap(space.memory, again_);
    throw;
  }
  std::swap(space.memory, again_);
}

// Notes the inputs of an op that writes tables of which there is a copy.
void Executor::note_inputs(const Space& space, const Instruction& instruction, std::span<const Run> runs) {
  if (tentatives_ == 0 || !writes_state(instruction)) return;
  bool copied = false, changes = false;
  for (const auto& place : instruction.places) {
    const uint32_t slice = model_->slice_of[place.table];
    if (slice == no_name || model_->graph.declarations[place.table].counter) continue;
    changes = true;
    copied = copied || model_->layout[slice].follows() == no_name;
  }
  if (!changes) return;
  Noted noted{&instruction, {}, note_bytes_.size(), copied};
  for (const auto& run : runs) {
    if (!run.tentative || !(copied || run.noted)) continue;
    noted.runs.push_back(run);
    each_input(space, instruction, [&](uint32_t id, size_t bytes) {
      const std::byte* from = value(space, id) + run.row * bytes;
      note_bytes_.insert(note_bytes_.end(), from, from + run.rows * bytes);
    });
  }
  if (!noted.runs.empty()) noted_.push_back(std::move(noted));
}

std::vector<std::vector<Executor::Walk>> Executor::keep(std::span<const Run> kept) {
  std::vector<std::vector<Walk>> out(kept.size());
  const std::span own(tentative_.data(), std::exchange(tentatives_, 0));
  if (own.empty()) return out;
  bool all = true;
  for (auto& each : own) {
    const auto found =
        std::find_if(kept.begin(), kept.end(), [&](const Run& run) { return run.context == each.run.context; });
    each.stay = found == kept.end() ? each.run.rows : found->rows;
    all = all && each.whole();
    if (each.run.noted && !each.whole()) out[static_cast<size_t>(found - kept.begin())] = walks_of(each);
  }
  if (!all) walk_again(own);
  for (const auto& each : own) {
    raise(*each.space, each.run);
    if (!each.whole()) take_back(*each.space, *each.run.context, each.mark, each.stay);
  }
  return out;
}

// The rows that do not stay.
std::vector<Executor::Walk> Executor::walks_of(const Tentative& own) const {
  std::vector<Walk> out(own.run.rows - own.stay);
  for (const auto& [instruction, runs, bytes_at, copied] : noted_) {
    const std::byte* from = note_bytes_.data() + bytes_at;
    for (const auto& run : runs) {
      const bool of_it = run.context == own.run.context;
      const size_t before = run.row - own.run.row;
      const auto row = [&](size_t i) -> Walk* {
        return of_it && before + i >= own.stay ? &out[before + i - own.stay] : nullptr;
      };
      for (size_t i = 0; i < run.rows; ++i)
        if (auto* to = row(i)) to->ops.push_back(instruction);
      each_input(*own.space, *instruction, [&](uint32_t, size_t bytes) {
        for (size_t i = 0; i < run.rows; ++i, from += bytes)
          if (auto* to = row(i)) to->inputs.insert(to->inputs.end(), from, from + bytes);
      });
    }
  }
  return out;
}

void Executor::walk(Context& context, size_t block, const Walk& row) {
  auto& space = spaces_[block];
  context.settle();
  reserve(context, block, 1);
  // Guesses stand behind a token that was drawn.
  const Run run{.context = &context, .row = 0, .rows = 1, .drawn = true};
  beside_values(space, [&] {
    const std::byte* from = row.inputs.data();
    for (const auto* instruction : row.ops) {
      each_input(space, *instruction, [&](uint32_t id, size_t bytes) {
        std::memcpy(value(space, id), from, bytes);
        from += bytes;
      });
      dispatch(space, *instruction, 0, 1, {&run, 1});
    }
  });
  raise(space, run);
}

// Gives tables their bytes from before the step, and takes the rows that stay through what wrote them. Counters stand
// as when the step began.
void Executor::walk_again(std::span<const Tentative> own) {
  auto& space = *own.front().space;
  for (const auto& each : own) {
    if (!each.whole()) give_images(space, *each.run.context, each.mark);
  }
  if (std::none_of(noted_.begin(), noted_.end(), [](const Noted& noted) { return noted.copied; })) return;
  beside_values(space, [&] {
    for (const auto& [instruction, runs, bytes_at, copied] : noted_) {
      if (!copied) continue;
      std::vector<Run> again;
      const std::byte* from = note_bytes_.data() + bytes_at;
      for (const auto& run : runs) {
        const auto& of =
            *std::find_if(own.begin(), own.end(), [&](const Tentative& t) { return t.run.context == run.context; });
        const size_t before = run.row - of.run.row;  // rows of the context
        const size_t rows = of.whole() ? 0 : std::min(run.rows, of.stay - std::min(of.stay, before));
        each_input(space, *instruction, [&](uint32_t id, size_t bytes) {
          std::memcpy(value(space, id) + run.row * bytes, from, rows * bytes);
          from += run.rows * bytes;
        });
        if (rows > 0)
          again.push_back(
              {.context = run.context, .row = run.row, .rows = rows, .number = run.number, .drawn = run.drawn});
      }
      if (!again.empty()) dispatch(space, *instruction, again.front().row, again.back().row + again.back().rows, again);
    }
  });
}

// Lowers the counters to the rows that stay, and gives rings back what the other rows overwrote.
void Executor::take_back(const Space& space, Context& context, const Mark& mark, size_t stay) {
  for (const auto& [counter, by] : space.program->growth) {
    if (!model_->graph.declarations[counter].clock)
      context.lower(counter, context.counter(counter) - by * static_cast<int64_t>(mark.rows - stay));
  }
  const std::byte* from = mark.before.data() + space.undoing.bytes;
  for (size_t i = 0; i < mark.rings.size(); ++i) {
    const auto& slice = model_->layout[space.undoing.rings[i]];
    const auto [first, last] = mark.rings[i];
    const size_t stays = (last - first) / mark.rows * stay, bytes = slice.inner * size_of(slice.type);
    size_t at = 0;
    each_ring_row(context, slice, mark.rings[i], [&](std::byte* to, size_t) {
      if (at++ % (last - first) >= stays) std::memcpy(to, from, bytes);
      from += bytes;
    });
  }
}

}  // namespace continuo
