#include "context.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "cast.h"

namespace continuo {

void fill(std::byte* out, Type type, size_t n, double value) {
  if (value == 0) return void(std::memset(out, 0, n * size_of(type)));
  for (size_t i = 0; i < n; ++i) write_number(out, type, i, value);
}

Context::Context(std::shared_ptr<const Model> model) : model_(std::move(model)), memory_(model_->state_bytes), grown_(model_->layout.size()) {
  reset();
  head = Head{};
}

void Context::reset() {
  const auto& first = model_->first;
  for (size_t i = 0; i < model_->layout.size(); ++i) {
    const auto& slice = model_->layout[i];
    if (slice.grows()) grown_[i] = Grown{};
    else if (first.size() == 0) fill(memory_.data() + slice.offset, slice.type, slice.elements, model_->graph.declarations[slice.name].init);
  }
  if (first.size() > 0) std::memcpy(memory_.data(), first.data(), first.size());
  head.origin = head.pulse;
  head.chain.reset();
  broken = false;
}

Memory Context::image() const {
  Memory out(memory_.size());
  std::memcpy(out.data(), memory_.data(), memory_.size());
  return out;
}

std::byte* Context::data(Name name) {
  const uint32_t i = model_->slice_of[name];
  return model_->layout[i].grows() ? grown_[i].memory.data() : memory_.data() + model_->layout[i].offset;
}

int64_t Context::counter(Name name) const {
  if (model_->graph.declarations[name].clock) return static_cast<int64_t>(head.pulse);
  int64_t value;
  std::memcpy(&value, memory_.data() + model_->layout[model_->slice_of[name]].offset, sizeof value);
  return value;
}

// The clock is the caller's, as is the chain.
void Context::set_counter(Name name, int64_t to) {
  if (model_->graph.declarations[name].clock) return;
  std::memcpy(memory_.data() + model_->layout[model_->slice_of[name]].offset, &to, sizeof to);
}

// The first `from` positions of each outer part move to where they lie in a table of `positions`.
void Context::grow(uint32_t i, size_t positions) {
  const auto& slice = model_->layout[i];
  auto& grown = grown_[i];
  const size_t each = slice.inner * size_of(slice.type);
  Grown wider{Memory(slice.outer * positions * each), positions};
  for (size_t part = 0; part < slice.outer; ++part) {
    std::byte* to = wider.memory.data() + part * positions * each;
    if (grown.positions > 0) std::memcpy(to, grown.memory.data() + part * grown.positions * each, grown.positions * each);
    fill(to + grown.positions * each, slice.type, (positions - grown.positions) * slice.inner, model_->graph.declarations[slice.name].init);
  }
  grown = std::move(wider);
}

// Doubling: each position is moved less than twice on average.
size_t Context::room_for(Name counter, size_t wanted) const {
  return std::min<size_t>(model_->graph.declarations[counter].bound, std::max<size_t>(std::bit_ceil(wanted), 16));
}

bool Context::reserve(Name counter, int64_t to) {
  const auto bound = model_->graph.declarations[counter].bound;
  if (to < 0 || static_cast<uint64_t>(to) > bound) return false;
  const auto wanted = static_cast<size_t>(to);
  for (uint32_t i = 0; i < model_->layout.size(); ++i) {
    if (model_->layout[i].counter != counter || grown_[i].positions >= wanted) continue;
    grow(i, room_for(counter, wanted));
  }
  return true;
}

bool Context::raise(Name counter, int64_t to) {
  if (!reserve(counter, to)) return false;
  set_counter(counter, to);
  return true;
}

void Context::lower(Name counter, int64_t to) {
  const auto first = static_cast<size_t>(to), last = static_cast<size_t>(this->counter(counter));
  for (const auto& slice : model_->layout) clear_ring(slice, counter, first, last);
  for (uint32_t i = 0; i < model_->layout.size(); ++i) {
    const auto& slice = model_->layout[i];
    if (slice.counter != counter) continue;
    const size_t each = slice.inner * size_of(slice.type);
    for (size_t part = 0; part < slice.outer; ++part) {
      std::byte* from = grown_[i].memory.data() + (part * grown_[i].positions + first) * each;
      if (last > first) fill(from, slice.type, (last - first) * slice.inner, model_->graph.declarations[slice.name].init);
    }
  }
  set_counter(counter, to);
}

// Positions first … last − 1 of a table with a ring that follows the counter.
void Context::clear_ring(const StateSlice& slice, Name counter, size_t first, size_t last) {
  const auto& d = model_->graph.declarations[slice.name];
  size_t outer = 1, places = 0, inner = 1;
  for (const auto& axis : d.axes) {
    if (axis.kind == Axis::Kind::ring && axis.counter == counter) places = static_cast<size_t>(axis.extent);
    else (places == 0 ? outer : inner) *= static_cast<size_t>(axis.extent);
  }
  if (places == 0) return;
  // Of more positions than places, the last ones left nothing of the others.
  for (size_t at = std::max(first, last - std::min(last, places)); at < last; ++at) {
    for (size_t part = 0; part < outer; ++part) {
      fill(memory_.data() + slice.offset + (part * places + at % places) * inner * size_of(slice.type), slice.type, inner, d.init);
    }
  }
}

size_t Context::bytes() const {
  size_t total = memory_.size();
  for (const auto& grown : grown_) total += grown.memory.size();
  return total;
}

size_t Context::serialized_bytes() const {
  size_t total = 0;
  for (const auto& slice : model_->layout) {
    total += (slice.grows() ? slice.outer * entered(slice) * slice.inner : slice.elements) * size_of(slice.type);
  }
  return total;
}

// What was entered of a slice, in one piece or one for each outer part.
void Context::each_piece(size_t i, const auto& visit) const {
  const auto& slice = model_->layout[i];
  if (!slice.grows()) return visit(memory_.data() + slice.offset, slice.elements);
  const size_t stride = grown_[i].positions * slice.inner * size_of(slice.type);
  for (size_t part = 0; part < slice.outer && entered(slice) > 0; ++part) visit(grown_[i].memory.data() + part * stride, entered(slice) * slice.inner);
}

void Context::serialize(std::span<std::byte> out) const {
  std::byte* to = out.data();
  for (size_t i = 0; i < model_->layout.size(); ++i) {
    const size_t each = size_of(model_->layout[i].type);
    each_piece(i, [&](const std::byte* from, size_t n) {
      std::memcpy(to, from, n * each);
      to += n * each;
    });
  }
}

Status Context::restore(std::span<const std::byte> state, const Head& new_head) {
  if (new_head.origin > new_head.pulse) return invalid("the state's origin ", new_head.origin, " lies after its pulse ", new_head.pulse, ".");
  // A clock that wrapped would have no end to what attention walks.
  if (new_head.pulse > INT64_MAX) return invalid("the state's pulse ", new_head.pulse, " is no clock that can go on, expected at most 2⁶³ − 1.");
  // First everything is checked. A table's counter is declared before the table, so its value is known by then.
  std::vector<int64_t> counters(model_->layout.size(), 0);
  size_t at = 0;
  for (size_t i = 0; i < model_->layout.size(); ++i) {
    const auto& slice = model_->layout[i];
    const auto& d = model_->graph.declarations[slice.name];
    size_t elements = slice.elements;
    if (slice.grows()) elements = slice.outer * slice.inner * static_cast<size_t>(counters[model_->slice_of[slice.counter]]);
    const size_t size = elements * size_of(slice.type);
    if (state.size() - at < size) return invalid("the state has ", state.size(), " bytes, expected at least ", at + size, " by this model's layout.");
    const std::byte* from = state.data() + at;
    at += size;
    if (d.counter) {
      std::memcpy(&counters[i], from, sizeof(int64_t));
      if (counters[i] < 0 || static_cast<uint64_t>(counters[i]) > d.bound) {
        return invalid("the state's counter \"", d.name, "\" is ", counters[i], ", expected 0 to ", d.bound, ": the snapshot is damaged.");
      }
    } else if (slice.type == Type::boolean) {
      for (size_t k = 0; k < elements; ++k) {
        if (std::to_integer<int>(from[k]) > 1) return invalid("the state's \"", d.name, "\" holds ", std::to_integer<int>(from[k]), " for a bool at element ", k, ": the snapshot is damaged.");
      }
    } else if (is_float(slice.type)) {
      for (size_t k = 0; k < elements; ++k) {
        if (std::isfinite(slice.type == Type::f32 ? read_element(from, Dtype::f32, k) : read_number(from, slice.type, k))) continue;
        return invalid("the state's \"", d.name, "\" holds a number that is not finite at element ", k, ": the snapshot is damaged.");
      }
    }
  }
  if (at != state.size()) return invalid("the state has ", state.size(), " bytes, expected ", at, " by this model's layout.");

  std::vector<Grown> grown(grown_.size());
  std::swap(grown, grown_);
  at = 0;
  try {
    for (uint32_t i = 0; i < model_->layout.size(); ++i) {
      const auto& slice = model_->layout[i];
      const size_t wanted = slice.grows() ? static_cast<size_t>(counters[model_->slice_of[slice.counter]]) : 0;
      if (wanted > 0) grow(i, room_for(slice.counter, wanted));
    }
  } catch (...) {
    std::swap(grown, grown_);
    throw;
  }
  // Counters come before the tables that follow them, so a piece is as long as the new state says.
  for (size_t i = 0; i < model_->layout.size(); ++i) {
    const size_t each = size_of(model_->layout[i].type);
    each_piece(i, [&](const std::byte* to, size_t n) {
      std::memcpy(const_cast<std::byte*>(to), state.data() + at, n * each);
      at += n * each;
    });
  }
  head = new_head;
  broken = false;
  return Done{};
}

bool Context::finite() const {
  bool all = true;
  for (size_t i = 0; i < model_->layout.size() && all; ++i) {
    const Type type = model_->layout[i].type;
    if (!is_float(type)) continue;
    each_piece(i, [&](const std::byte* from, size_t n) {
      if (type == Type::f32) all = all && model_->kernels.finite(reinterpret_cast<const float*>(from), n);
      for (size_t k = 0; type != Type::f32 && k < n; ++k) all = all && std::isfinite(read_number(from, type, k));
    });
  }
  return all;
}

}  // namespace continuo
