#include "runtime/state/context.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/cast.h"

namespace continuo {

Context::Context(std::shared_ptr<const Model> model, Unset)
    : model_(std::move(model)),
      memory_(model_->device, model_->state_bytes),
      host_memory_(model_->host_device, model_->host_bytes),
      counters_(model_->layout.size(), 0),
      block_tables_(model_->layout.size()),
      several_(without_room()),
      checked_(model_->layout.size(), 0) {
  device().enlist(*this);
}

Context::Context(std::shared_ptr<const Model> model) : Context(std::move(model), Unset{}) {
  const Pinned pinned(device(), *this);
  for (size_t i = 0; i < model_->layout.size(); ++i) {
    block_tables_[i] = empty_table(i);
    if (model_->layout[i].ring_in_blocks) block_tables_[i].reserve(model_->layout[i].places, model_->layout[i].places);
  }
  reset();
  head = Head{};
}

Context::~Context() { device().dismiss(*this); }

std::vector<GrownTable> Context::without_room() const {
  std::vector<GrownTable> out;
  for (const uint32_t i : model_->several) out.emplace_back(*model_, model_->layout[i]);
  return out;
}

GrownTable::Extents Context::extents(const StateSlice& slice, std::span<const int64_t> counters) const {
  GrownTable::Extents out;
  for (const auto& axis : model_->graph.declarations[slice.name].axes)
    out.push_back(static_cast<size_t>(axis.counter == no_name ? static_cast<int64_t>(axis.extent)
                                                              : counters[model_->slice_of[axis.counter]]));
  return out;
}

void Context::page_out() {
  memory_.page_out();
  for (size_t i = 0; i < block_tables_.size(); ++i)
    if (!model_->layout[i].on_host) block_tables_[i].page_out();
  for (auto& table : several_) table.page_out();
}

void Context::page_in() {
  memory_.page_in();
  for (size_t i = 0; i < block_tables_.size(); ++i)
    if (!model_->layout[i].on_host) block_tables_[i].page_in();
  for (auto& table : several_) table.page_in();
}

std::shared_ptr<Context> Context::fork() {
  const Pinned pinned(device(), *this);
  const std::shared_ptr<Context> child(new Context(model_, Unset{}));
  const Pinned child_pinned(device(), *child);
  device().copy(child->memory_.data(), memory_.data(), memory_.size());
  model_->host_device->copy(child->host_memory_.data(), host_memory_.data(), host_memory_.size());
  child->counters_ = counters_;
  child->checked_ = checked_;
  for (size_t i = 0; i < model_->layout.size(); ++i) {
    const auto& slice = model_->layout[i];
    if (slice.grows())
      child->block_tables_[i] = block_tables_[i].fork(entered(slice), model_->graph.declarations[slice.counter].bound);
    else if (slice.ring_in_blocks)
      child->block_tables_[i] = block_tables_[i].fork(slice.places, slice.places);
  }
  for (size_t i = 0; i < several_.size(); ++i) child->several_[i] = several_[i].copy();
  child->head = head;
  child->broken = broken;
  child->list_laid = list_laid;
  return child;
}

BlockTable Context::empty_table(size_t i) const {
  const auto& slice = model_->layout[i];
  if (!slice.in_blocks()) return {};
  return {slice.on_host ? model_->host_device : model_->device, slice, model_->graph.declarations[slice.name].init,
          model_->sleepy_blocks};
}

void Context::reset() {
  const Pinned pinned(device(), *this);
  const auto& first = model_->first;
  broken = true;  // until every table is as it begins: a ring takes memory where others hold its blocks
  for (size_t i = 0; i < model_->layout.size(); ++i) {
    const auto& slice = model_->layout[i];
    const auto& d = model_->graph.declarations[slice.name];
    counters_[i] = first ? first->counters[i] : 0;
    checked_[i] = 0;
    if (slice.grows())
      block_tables_[i] = empty_table(i);
    else if (slice.ring_in_blocks)
      block_tables_[i].clear(0, slice.outer, 0, slice.places);
    else if (!first && !d.counter)
      model_->device_of(slice).fill(span_of(slice).data() + slice.offset, slice.type, slice.elements, d.init);
  }
  several_ = without_room();
  if (first) {
    device().copy(memory_.data(), first->memory.data(), memory_.size());
    model_->host_device->copy(host_memory_.data(), first->on_host.data(), host_memory_.size());
  }
  head.origin = head.pulse;
  head.chain.reset();
  broken = false;
  drop_loans();
}

// What was to be read is not what the context has now.
void Context::drop_loans() {
  list_laid = false;
  for (Loan* loan : {&to_lay, &to_inject, &to_copy_}) *loan = Loan();
}

FirstState Context::image() const {
  FirstState out{DeviceMemory(model_->device, memory_.size()), DeviceMemory(model_->host_device, host_memory_.size()),
                 counters_};
  device().copy(out.memory.data(), memory_.data(), memory_.size());
  model_->host_device->copy(out.on_host.data(), host_memory_.data(), host_memory_.size());
  return out;
}

std::byte* Context::data(Name name) {
  const auto& slice = model_->layout[model_->slice_of[name]];
  return slice.several == no_name ? span_of(slice).data() + slice.offset : several_[slice.several].data();
}

const std::byte* Context::ring_row(Name ring, size_t outer, size_t position) {
  const auto& slice = model_->layout[model_->slice_of[ring]];
  const size_t place = position % slice.places;
  if (slice.ring_in_blocks) return blocks(ring).read(outer, place);
  return data(ring) + (outer * slice.places + place) * slice.inner * size_of(slice.type);
}

size_t Context::index_of(Name name, const std::byte* element) {
  const auto& slice = model_->layout[model_->slice_of[name]];
  if (slice.in_blocks()) return blocks(name).index_of(element);
  return static_cast<size_t>(element - data(name)) / size_of(slice.type);
}

int64_t Context::counter(Name name) const {
  if (model_->graph.declarations[name].clock) return static_cast<int64_t>(head.pulse);
  return counters_[model_->slice_of[name]];
}

// The clock is the head's pulse, which the caller moves together with the chain.
void Context::set_counter(Name name, int64_t to) {
  if (!model_->graph.declarations[name].clock) counters_[model_->slice_of[name]] = to;
}

bool Context::reserve(Name counter, int64_t to) {
  const auto bound = model_->graph.declarations[counter].bound;
  if (to < 0 || static_cast<uint64_t>(to) > bound) return false;
  const auto now = static_cast<size_t>(this->counter(counter)), wanted = static_cast<size_t>(to);
  for (uint32_t i = 0; i < model_->layout.size(); ++i) {
    const auto& slice = model_->layout[i];
    if (slice.counter == counter) block_tables_[i].reserve(wanted, bound);
    if (slice.ring == counter && slice.ring_in_blocks) block_tables_[i].prepare(now, std::max(now, wanted));
  }
  for (auto& table : several_) table.reserve(counter, wanted);
  return true;
}

void Context::settle() {
  for (auto& table : block_tables_) table.settle();
}

bool Context::raise(Name counter, int64_t to) {
  if (!reserve(counter, to)) return false;
  set_counter(counter, to);
  return true;
}

void Context::lower(Name counter, int64_t to) {
  const auto first = static_cast<size_t>(to), last = static_cast<size_t>(this->counter(counter));
  for (uint32_t i = 0; i < model_->layout.size(); ++i) {
    const auto& slice = model_->layout[i];
    if (slice.follows() != counter) continue;
    checked_[i] = std::min(checked_[i], first);
    if (slice.grows())
      block_tables_[i].lower(first, last);
    else
      clear_ring(i, first, last);
  }
  for (auto& table : several_) table.forget(counter, first, last);
  set_counter(counter, to);
}

// Sets positions first … last − 1 of a ring to their first value.
void Context::clear_ring(size_t i, size_t first, size_t last) {
  const size_t places = model_->layout[i].places;
  // Where there are more positions than places, the last ones overwrote the others: clearing those is enough.
  const size_t from = std::max(first, last - std::min(last, places));
  if (from >= last) return;
  const size_t begin = from % places, end = begin + (last - from);
  clear_places(i, {begin, std::min(end, places)});
  if (end > places) clear_places(i, {0, end - places});
}

void Context::clear_places(size_t i, Positions places) {
  const auto& slice = model_->layout[i];
  if (slice.ring_in_blocks) return block_tables_[i].clear(0, slice.outer, places.from, places.to);
  each_piece(
      i,
      [&](const std::byte* data, size_t bytes) {
        model_->device_of(slice).fill(const_cast<std::byte*>(data), slice.type, bytes / size_of(slice.type),
                                      model_->graph.declarations[slice.name].init);
      },
      places);
}

void Context::discount() {
  for (auto& table : block_tables_) table.discount();
}

size_t Context::bytes() {
  size_t total = memory_.size() + host_memory_.size();
  for (auto& table : block_tables_) total += table.bytes();
  for (const auto& table : several_) total += table.bytes();
  return total;
}

size_t Context::device_bytes() const {
  size_t total = memory_.size();
  for (size_t i = 0; i < block_tables_.size(); ++i)
    if (!model_->layout[i].on_host) total += block_tables_[i].held();
  for (const auto& table : several_) total += table.bytes();
  return total;
}

std::vector<Positions> Context::whole() const {
  std::vector<Positions> out(model_->layout.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const auto& slice = model_->layout[i];
    if (slice.follows() != no_name) out[i].to = slice.grows() ? entered(slice) : slice.places;
  }
  return out;
}

size_t Context::serialized_bytes() const { return part_bytes(whole(), true); }

size_t Context::part_bytes(std::span<const Positions> rows, bool rest) const {
  size_t total = 0;
  for (size_t i = 0; i < model_->layout.size(); ++i) {
    const auto& slice = model_->layout[i];
    if (slice.derived) continue;
    size_t fixed = slice.elements;
    if (slice.several != no_name) {
      fixed = 1;
      for (const size_t extent : extents(slice, counters_)) fixed *= extent;
    }
    if (!rest) fixed = 0;
    const bool follows = slice.follows() != no_name;
    total += (follows ? slice.outer * (rows[i].to - rows[i].from) * slice.inner : fixed) * size_of(slice.type);
  }
  return total;
}

void Context::each_unchecked_piece(size_t i, const auto& visit) const {
  const auto& slice = model_->layout[i];
  if (slice.several != no_name) {
    const auto& table = several_[slice.several];
    return table.each_piece(table.unchecked(), extents(slice, counters_), visit);
  }
  const size_t from = checked_[i] - std::min(checked_[i], slice.write_reach);
  if (slice.ring == no_name) return each_piece(i, visit, from);
  const auto last = static_cast<size_t>(counter(slice.ring));
  if (last - std::min(last, from) >= slice.places) return each_piece(i, visit);
  // Fewer positions than places: a piece of the ring, or two where they wrap around its end.
  const size_t first = from % slice.places, end = first + (last - from);
  each_piece(i, visit, Positions{first, std::min(end, slice.places)});
  if (end > slice.places) each_piece(i, visit, Positions{0, end - slice.places});
}

Context::Sleepy Context::sleepy() const {
  Sleepy out(model_->layout.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const auto& slice = model_->layout[i];
    if (slice.may_sleep) out[i] = block_tables_[i].full_blocks(entered(slice));
  }
  return out;
}

void Context::adopt(const Sleepy& blocks) {
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto& slice = model_->layout[i];
    if (!slice.may_sleep) continue;
    block_tables_[i].take(blocks[i]);
    set_counter(slice.counter, static_cast<int64_t>(blocks[i].size() * slice.block));
  }
}

Loan::Blocks Context::sleepy_in(std::span<const Positions> rows) const {
  Loan::Blocks out;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!model_->layout[i].may_sleep) continue;
    const auto own = block_tables_[i].sleepy(rows[i].from, rows[i].to);
    out.insert(out.end(), own.begin(), own.end());
  }
  return out;
}

std::vector<std::shared_ptr<Ticket>> Context::want(std::span<const Positions> rows) {
  to_copy_ = Loan(sleepy_in(rows));
  return to_copy_.missing();
}

Status Context::serialize(std::span<std::byte> out) { return serialize_part(whole(), true, out); }

Status Context::serialize_part(std::span<const Positions> rows, bool rest, std::span<std::byte> out) {
  // Those of want() are among them; with this copy that loan ends, too.
  Loan loan(sleepy_in(rows));
  to_copy_ = Loan();
  if (!loan.missing().empty()) return internal("a block sleeps that is to be copied.");
  const Pinned pinned(device(), *this);
  // Neighbouring tables of one device are downloaded together; a counter ends such a run, because it lies on the host.
  std::vector<Piece> pieces;
  std::byte* to = out.data();
  size_t waiting = 0;
  Device* from_device = &device();
  const auto flush = [&] {
    if (!pieces.empty()) from_device->download(to, pieces);
    to += waiting;
    waiting = 0;
    pieces.clear();
  };
  for (size_t i = 0; i < model_->layout.size(); ++i) {
    if (model_->layout[i].derived || (!rest && model_->layout[i].follows() == no_name)) continue;
    const auto note = [&](const std::byte* from, size_t bytes) {
      pieces.push_back({from, bytes});
      waiting += bytes;
    };
    if (auto* own = &model_->device_of(model_->layout[i]); own != from_device) {
      flush();
      from_device = own;
    }
    each_piece(i, note, rows[i]);
    if (!model_->graph.declarations[model_->layout[i].name].counter) continue;
    flush();
    std::memcpy(to, &counters_[i], sizeof counters_[i]);
    to += sizeof counters_[i];
  }
  flush();
  return Done{};
}

void Context::mark_checked() {
  for (size_t i = 0; i < checked_.size(); ++i) {
    const Name follows = model_->layout[i].follows();
    if (follows != no_name) checked_[i] = static_cast<size_t>(counter(follows));
  }
  for (const uint32_t i : model_->several)
    several_[model_->layout[i].several].mark_checked(extents(model_->layout[i], counters_));
}

bool Context::finite(bool whole) {
  const Pinned pinned(device(), *this);
  // f32, on the device and on the host: the devices check them. Narrower types are checked here, where a device has
  // memory of its own in a copy.
  std::vector<Piece> wide[2], narrow;
  bool all = true;
  for (size_t i = 0; i < model_->layout.size() && all; ++i) {
    const auto& slice = model_->layout[i];
    const Type type = slice.type;
    if (!is_float(type) || (slice.copies && !whole)) continue;
    const auto note = [&](const std::byte* from, size_t bytes) {
      (type == Type::f32 ? wide[slice.on_host] : narrow).push_back({from, bytes});
    };
    if (whole)
      each_piece(i, note);
    else
      each_unchecked_piece(i, note);
    const auto check = [&](const std::byte* from, size_t bytes) {
      const size_t n = bytes / size_of(type);
      all = all && first_not_finite(from, type, n) == n;
    };
    if (auto& holder = model_->device_of(slice); holder.in_host_memory()) {
      for (const auto& [from, bytes] : narrow) check(from, bytes);
    } else if (!narrow.empty()) {
      size_t bytes = 0;
      for (const auto& piece : narrow) bytes += piece.bytes;
      std::vector<std::byte> numbers(bytes);
      holder.download(numbers.data(), narrow);
      check(numbers.data(), bytes);
    }
    narrow.clear();
  }
  all = all && device().finite(wide[0]) && model_->host_device->finite(wide[1]);
  if (all) mark_checked();
  return all;
}

}  // namespace continuo
