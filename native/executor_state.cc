// The executor's dealings with persistent memory: recurrences, tables, counters.
#include <algorithm>

#include "executor.h"
#include "ops.h"

namespace continuo {

namespace {

constexpr size_t wkv7_lanes = 64;

}  // namespace

void Executor::fault(const Instruction& instruction, Context& context, const std::string& what) {
  context.broken = true;
  faults_.push_back({&context, text(instruction_text(model_->graph, instruction), ": ", what)});
}

int64_t Executor::count_at(const Space& space, Name counter, int64_t seen, const Run& run, size_t i) const {
  return run.context->counter(counter) + space.growth[counter] * static_cast<int64_t>(run.number + i) + seen;
}

std::optional<size_t> Executor::locate(Space& space, const Instruction& instruction, const Place& place, const Run& run, size_t i) {
  const auto& d = model_->graph.declarations[place.table];
  size_t offset = 0;
  for (size_t axis = 0; axis < d.axes.size(); ++axis) {
    const auto& a = d.axes[axis];
    const size_t extent = a.kind == Axis::Kind::grows ? run.context->room(place.table) : static_cast<size_t>(a.extent);
    offset *= extent;
    if (axis >= place.picks.size()) continue;
    const auto& pick = place.picks[axis];
    int64_t at = pick.offset;
    if (pick.kind == Term::Kind::counter) at += count_at(space, pick.id, pick.seen, run, i);
    if (pick.kind == Term::Kind::value) at += reinterpret_cast<const int32_t*>(value(space, pick.id))[run.row + i];
    // Along an axis that follows a counter: positions that were entered, and of a ring those that are not overwritten.
    int64_t least = 0, end = static_cast<int64_t>(a.extent);
    if (a.counter != no_name) {
      end = count_at(space, a.counter, place.seen, run, i);
      const bool clock = model_->graph.declarations[a.counter].clock;
      if (a.kind == Axis::Kind::ring) least = std::max<int64_t>(clock ? static_cast<int64_t>(run.context->head.origin) : 0, end - static_cast<int64_t>(a.extent));
    }
    if (at < least || at >= end) {
      fault(instruction, *run.context, text("position ", at, " of \"", d.name, "\" is not there, expected ", least, " to ", end - 1, "."));
      return std::nullopt;
    }
    offset += a.kind == Axis::Kind::ring ? static_cast<size_t>(at) % extent : static_cast<size_t>(at);
  }
  return offset;
}

size_t Executor::elements_left(const Place& place, Context& context) const {
  const auto& d = model_->graph.declarations[place.table];
  size_t n = 1;
  for (size_t axis = place.picks.size(); axis < d.axes.size(); ++axis) {
    n *= d.axes[axis].kind == Axis::Kind::grows ? context.room(place.table) : static_cast<size_t>(d.axes[axis].extent);
  }
  return n;
}

void Executor::shift(Space& space, const Instruction& instruction, std::span<const Run> runs) {
  const size_t width = this->width(space, instruction.out);
  const float* in = floats(space, instruction.in[0].id);
  float* out = floats(space, instruction.out);
  const size_t bytes = width * sizeof(float);
  for (const auto& run : runs) {
    const auto at = locate(space, instruction, instruction.places[0], run, 0);
    if (!at) continue;
    float* kept = reinterpret_cast<float*>(run.context->data(instruction.places[0].table)) + *at;
    std::memcpy(out + run.row * width, kept, bytes);
    std::memcpy(out + (run.row + 1) * width, in + run.row * width, (run.rows - 1) * bytes);
    std::memcpy(kept, in + (run.row + run.rows - 1) * width, bytes);
  }
}

void Executor::wkv7(Space& space, const Instruction& instruction, std::span<const Run> runs) {
  const auto& node = *instruction.node;
  const size_t width = this->width(space, instruction.out);
  const size_t n = width / node.groups;
  const size_t stripes = (n + wkv7_lanes - 1) / wkv7_lanes;
  const size_t per_run = node.groups * stripes;
  size_t rows = 0;
  std::vector<float*> states;
  for (const auto& run : runs) {
    rows += run.rows;
    const auto at = locate(space, instruction, instruction.places[0], run, 0);
    states.push_back(at ? reinterpret_cast<float*>(run.context->data(instruction.places[0].table)) + *at : nullptr);
  }
  const auto work = [&](size_t task) {
    const Run& run = runs[task / per_run];
    if (!states[task / per_run]) return;
    const size_t head = task % per_run / stripes;
    const size_t lane = task % stripes * wkv7_lanes;
    const size_t at = run.row * width + head * n;
    const auto in = [&](size_t i) { return static_cast<const float*>(floats(space, instruction.in[i].id)) + at; };
    const Wkv7Run job{states[task / per_run] + head * n * n, in(0), in(1), in(2), in(3), in(4), in(5), floats(space, instruction.out) + at, n, width, run.rows};
    model_->kernels.wkv7(job, lane, std::min(n, lane + wkv7_lanes));
  };
  fork(runs.size() * per_run, rows * width * n * 4, work);
}

void Executor::attend(Space& space, const Instruction& instruction, std::span<const Run> runs) {
  const auto& node = *instruction.node;
  const auto& places = instruction.places;
  const auto& axis = model_->graph.declarations[places[0].table].axes[places[0].picks.size()];
  const size_t width = this->width(space, instruction.out);
  const size_t channels = width / node.groups;
  const size_t stride = width / node.shared;
  // Per row: where its keys and values begin and which positions it sees.
  std::vector<AttendRun> rows;
  size_t positions = 0;
  for (const auto& run : runs) {
    for (size_t i = 0; i < run.rows; ++i) {
      const size_t at = (run.row + i) * width;
      AttendRun job{{}, 1, floats(space, instruction.out) + at, channels, node.scale};
      auto& part = job.parts[0];
      part.q = floats(space, instruction.in[0].id) + at;
      part.stride = stride;
      const auto last = count_at(space, axis.counter, places[0].seen, run, i);
      part.last = static_cast<size_t>(last);
      part.slots = axis.kind == Axis::Kind::ring ? static_cast<size_t>(axis.extent) : std::max<size_t>(1, run.context->room(places[0].table));
      part.first = axis.kind == Axis::Kind::ring && part.last > part.slots ? part.last - part.slots : 0;
      const auto keys = locate(space, instruction, places[0], run, i), values = locate(space, instruction, places[1], run, i);
      if (last == 0) fault(instruction, *run.context, text("there is no position to attend to: counter \"", model_->graph.declarations[axis.counter].name, "\" is 0."));
      if (last > 0 && keys && values) {
        part.keys = reinterpret_cast<const float*>(run.context->data(places[0].table)) + *keys;
        part.values = reinterpret_cast<const float*>(run.context->data(places[1].table)) + *values;
        positions += part.last - part.first;
      } else {
        std::fill_n(job.y, width, 0.0f);
      }
      rows.push_back(job);
    }
  }
  const auto work = [&](size_t task) {
    AttendRun job = rows[task / node.groups];
    auto& part = job.parts[0];
    if (!part.keys) return;
    const size_t head = task % node.groups, shared = head / node.shared;
    job.y += head * channels;
    part.q += head * channels;
    part.keys += shared * channels;
    part.values += shared * channels;
    model_->kernels.attend(job);
  };
  fork(rows.size() * node.groups, positions * width * 2, work);
}

void Executor::read(Space& space, const Instruction& instruction, std::span<const Run> runs) {
  const auto& place = instruction.places[0];
  const auto& d = model_->graph.declarations[place.table];
  const size_t bytes = space.program->values[instruction.out].bytes;
  std::byte* out = value(space, instruction.out);
  for (const auto& run : runs) {
    for (size_t i = 0; i < run.rows; ++i) {
      std::byte* to = out + (run.row + i) * bytes;
      if (d.counter) {
        const int64_t exact = count_at(space, place.table, place.seen, run, i), modulo = instruction.node->number;
        const auto count = static_cast<int32_t>(modulo > 0 ? exact % modulo : exact);
        std::memcpy(to, &count, sizeof count);
        continue;
      }
      const auto at = locate(space, instruction, place, run, i);
      if (at) std::memcpy(to, run.context->data(place.table) + *at * size_of(d.type), bytes);
      else std::memset(to, 0, bytes);
    }
  }
}

void Executor::write(Space& space, const Instruction& instruction, std::span<const Run> runs) {
  const auto& place = instruction.places[0];
  const Type type = model_->graph.declarations[place.table].type;
  const uint32_t from = instruction.in[0].id;
  const size_t bytes = space.program->values[from].bytes;
  for (const auto& run : runs) {
    for (size_t i = 0; i < run.rows; ++i) {
      const auto at = locate(space, instruction, place, run, i);
      if (at) std::memcpy(run.context->data(place.table) + *at * size_of(type), value(space, from) + (run.row + i) * bytes, bytes);
    }
  }
}

void Executor::move_counter(Space& space, const Instruction& instruction, std::span<const Run> runs) {
  const Name counter = instruction.places[0].table;
  // Raised alike by every row: the step does that for all of them.
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
      const auto at = locate(space, instruction, place, run, i);
      if (at) fill(run.context->data(place.table) + *at * size_of(d.type), d.type, elements_left(place, *run.context), d.init);
    }
  }
}

}  // namespace continuo
