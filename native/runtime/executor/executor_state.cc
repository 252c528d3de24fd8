// The part of every executor that deals with persistent memory: which member of a table an instruction picks, and
// counters.
#include <algorithm>
#include <cstring>

#include "graph/ops.h"
#include "runtime/executor/executor.h"

namespace continuo {

void Executor::fault(const Instruction& instruction, Context& context, const std::string& what) {
  context.broken = true;
  faults_.push_back({&context, text(instruction_text(model_->graph, instruction), ": ", what)});
}

int64_t Executor::count_at(const Space& space, Name counter, int64_t seen, const Run& run, size_t i) const {
  return run.context->counter(counter) + space.growth[counter] * static_cast<int64_t>(run.number + i) + seen;
}

bool Executor::in_blocks(Name table) const {
  const uint32_t slice = model_->slice_of[table];
  return slice != no_name && model_->layout[slice].in_blocks();
}

std::optional<Executor::Member> Executor::locate(Space& space, const Instruction& instruction, const Place& place,
                                                 const Run& run, size_t i) {
  const auto& d = model_->graph.declarations[place.table];
  const bool in_blocks = this->in_blocks(place.table);
  Member out;
  size_t* index = &out.before;
  for (size_t axis = 0; axis < d.axes.size(); ++axis) {
    const auto& a = d.axes[axis];
    const bool blocked = in_blocks && a.counter != no_name;                    // positions lie in blocks
    const bool several = a.kind == Axis::Kind::grows && !place.along.empty();  // the table grows along several counters
    if (!blocked) *index *= several ? run.context->room(place.table, axis) : static_cast<size_t>(a.extent);
    if (axis < place.picks.size()) {
      const auto& pick = place.picks[axis];
      int64_t at = pick.offset;
      if (pick.kind == Term::Kind::counter) at += count_at(space, pick.id, pick.seen, run, i);
      if (pick.kind == Term::Kind::value) at += number(space, pick.id, run.row + i);
      // Valid along an axis that follows a counter: positions below the counter; of a ring only those that no later
      // position has overwritten.
      int64_t least = 0, end = static_cast<int64_t>(a.extent);
      if (a.counter != no_name) {
        end = count_at(space, a.counter, several ? place.along[axis] : place.seen, run, i);
        const bool clock = model_->graph.declarations[a.counter].clock;
        if (a.kind == Axis::Kind::ring)
          least = std::max<int64_t>(clock ? static_cast<int64_t>(run.context->head.origin) : 0,
                                    end - static_cast<int64_t>(a.extent));
      }
      if (at < least || at >= end) {
        fault(instruction, *run.context,
              text("position ", at, " of \"", d.name, "\" is not there, expected ", least, " to ", end - 1, "."));
        return std::nullopt;
      }
      const auto position = static_cast<size_t>(at);
      (blocked ? out.position : *index) +=
          a.kind == Axis::Kind::ring ? position % static_cast<size_t>(a.extent) : position;
    }
    if (blocked) index = &out.behind;
  }
  return out;
}

size_t Executor::elements_left(const Place& place, const Context& context) const {
  const auto& d = model_->graph.declarations[place.table];
  size_t n = 1;
  for (size_t axis = place.picks.size(); axis < d.axes.size(); ++axis)
    n *= place.along.empty() ? static_cast<size_t>(d.axes[axis].extent) : context.room(place.table, axis);
  return n;
}

std::byte* Executor::find(Space& space, const Instruction& instruction, const Place& place, const Run& run, size_t i,
                          bool writes) {
  const auto at = locate(space, instruction, place, run, i);
  if (!at) return nullptr;
  const auto& d = model_->graph.declarations[place.table];
  if (d.volatile_table()) {
    const size_t first = at->before % static_cast<size_t>(d.elements());
    if (writes) return volatile_tables_.write(member_of(place), first, elements_left(place, *run.context));
    return const_cast<std::byte*>(volatile_tables_.read(member_of(place), first));
  }
  const size_t each = size_of(d.type);
  if (!in_blocks(place.table)) return run.context->data(place.table) + at->before * each;
  auto& table = run.context->blocks(place.table);
  std::byte* position =
      writes ? table.write(at->before, at->position) : const_cast<std::byte*>(table.read(at->before, at->position));
  return position + at->behind * each;
}

// The first pick of a family is a number once its block is unrolled.
uint32_t Executor::member_of(const Place& place) const {
  const auto& d = model_->graph.declarations[place.table];
  return model_->constant_index.of(place.table,
                                   d.over == no_name ? 0 : static_cast<uint64_t>(place.picks[0].offset) - d.from);
}

Executor::Tables Executor::tables(Space& space, const Instruction& instruction, const Run& run) {
  const bool writes = traits_of(instruction.node->op).state != State::reads;
  Tables out{};
  for (size_t i = 0; i < instruction.places.size(); ++i) {
    out[i] = reinterpret_cast<float*>(find(space, instruction, instruction.places[i], run, 0, writes));
    if (!out[i]) return {};
  }
  return out;
}

Executor::Rings Executor::rings(Space& space, const Instruction& instruction, const Run& run) {
  Rings out{};
  const auto first = run.context->head.pulse + run.number;
  for (size_t i = 0; i < instruction.places.size(); ++i) {
    const auto& place = instruction.places[i];
    const auto at = locate(space, instruction, place, run, 0);
    if (!at) return {};
    if (in_blocks(place.table)) {
      auto& table = run.context->blocks(place.table);
      table.prepare(first, first + run.rows);
      out[i].blocks = {table.directory(), table.count(), at->before, 0};
    } else {
      out[i].data = reinterpret_cast<float*>(run.context->data(place.table)) + at->before;
    }
  }
  return out;
}

// An empty window is a fault: a softmax over no position has no value.
std::optional<Executor::History> Executor::history(Space& space, const Instruction& instruction, const Run& run,
                                                   size_t i) {
  const auto& place = instruction.places[0];
  const auto& axis = model_->graph.declarations[place.table].axes[place.picks.size()];
  History out{};
  out.last = static_cast<size_t>(count_at(space, axis.counter, place.seen, run, i));
  if (out.last == 0) {
    fault(instruction, *run.context,
          text("there is no position to attend to: counter \"", model_->graph.declarations[axis.counter].name,
               "\" is 0."));
    return std::nullopt;
  }
  if (axis.kind == Axis::Kind::ring) {
    const auto places = static_cast<size_t>(axis.extent);
    out.first = out.last > places ? out.last - places : 0;
    if (model_->graph.declarations[axis.counter].clock)
      out.first = std::max(out.first, static_cast<size_t>(run.context->head.origin));
    if (!in_blocks(place.table)) out.slots = places;
  }
  if (out.slots > 0) {
    out.keys = find(space, instruction, place, run, i, false);
    out.values = find(space, instruction, instruction.places[1], run, i, false);
    return out.keys && out.values ? std::optional(out) : std::nullopt;
  }
  const size_t tables = instruction.node->op == Op::attend ? 2 : 1;
  for (size_t which = 0; which < tables; ++which) {
    const auto& own = instruction.places[which];
    const auto at = locate(space, instruction, own, run, i);
    if (!at) return std::nullopt;
    auto& table = run.context->blocks(own.table);
    (which == 0 ? out.key_blocks : out.value_blocks) = BlockList{table.directory(), table.count(), at->before, 0};
  }
  return out;
}

uint32_t Executor::position(const Space& space, const Instruction& instruction, const Run& run, size_t i) const {
  const auto& place = instruction.places[0];
  return static_cast<uint32_t>(count_at(space, place.table, place.seen, run, i) - 1);
}

int32_t Executor::count_read(const Space& space, const Instruction& instruction, const Run& run, size_t i) const {
  const auto& place = instruction.places[0];
  const int64_t exact = count_at(space, place.table, place.seen, run, i), modulo = instruction.node->number;
  return static_cast<int32_t>(modulo > 0 ? exact % modulo : exact);
}

std::vector<float> level_shares(const HostKernels& kernels, const float* logits, size_t heads, size_t levels) {
  std::vector<float> shares(heads * levels);
  for (size_t head = 0; head < heads; ++head)
    kernels.softmax(logits + head, heads, shares.data() + head * levels, levels);
  return shares;
}

void Executor::move_counter(Space& space, const Instruction& instruction, std::span<const Run> runs) {
  const Name counter = instruction.places[0].table;
  // A counter that every row raises alike: end() raises it once for all rows.
  if (space.growth[counter] > 0) return;
  const auto& d = model_->graph.declarations[counter];
  const bool up = instruction.node->op == Op::cache_increment;
  for (const auto& run : runs) {
    for (size_t i = 0; i < run.rows; ++i) {
      const int64_t now = run.context->counter(counter);
      const int64_t to = up ? now + instruction.node->number : now - instruction.node->number;
      if (to < 0 || static_cast<uint64_t>(to) > d.bound) {
        fault(instruction, *run.context, text("the counter would become ", to, ", expected 0 to ", d.bound, "."));
      } else if (up) {
        run.context->raise(counter, to);
      } else {
        run.context->lower(counter, to);
      }
    }
  }
}

void Executor::reset(Space& space, const Instruction& instruction, std::span<const Run> runs) {
  const auto& place = instruction.places[0];
  const auto& d = model_->graph.declarations[place.table];
  for (const auto& run : runs) {
    for (size_t i = 0; i < run.rows; ++i) {
      if (d.counter) {
        run.context->lower(place.table, 0);
        continue;
      }
      clear(space, instruction, run, i);
    }
  }
}

// Sets the member that the instruction's place picks for row i of the run to its first value.
void Executor::clear(Space& space, const Instruction& instruction, const Run& run, size_t i) {
  const auto& place = instruction.places[0];
  const auto& d = model_->graph.declarations[place.table];
  const auto at = locate(space, instruction, place, run, i);
  if (!at) return;
  if (d.volatile_table()) {
    const size_t first = at->before % static_cast<size_t>(d.elements());
    return volatile_tables_.reset(member_of(place), first, elements_left(place, *run.context));
  }
  if (!place.along.empty()) {
    std::byte* to = run.context->data(place.table);
    const size_t left = elements_left(place, *run.context);
    if (left > 0) model_->device->fill(to + at->before * size_of(d.type), d.type, left, d.init);
    return;
  }
  size_t before = 1, behind = 1;  // elements of the member around the axis whose positions lie in blocks
  bool blocked = false, whole = true;
  for (size_t axis = 0; axis < d.axes.size(); ++axis) {
    const bool picked = axis < place.picks.size();
    if (in_blocks(place.table) && d.axes[axis].counter != no_name)
      blocked = true, whole = !picked;
    else if (!picked)
      (blocked ? behind : before) *= static_cast<size_t>(d.axes[axis].extent);
  }
  if (!blocked) {
    std::byte* to = run.context->data(place.table) + at->before * size_of(d.type);
    model_->device->fill(to, d.type, before, d.init);
  } else if (whole) {
    auto& table = run.context->blocks(place.table);
    table.clear(at->before, before, 0, table.room());
  } else {
    model_->device->fill(find(space, instruction, place, run, i, true), d.type, behind, d.init);
  }
}

}  // namespace continuo
