// Who gets memory, and who loses it for that.
//
// Demands come first, in order. Look-ahead and warm-up get memory only while no demand waits, only for a few records at
// once, and for at most half of the bound: all that is on its way has to come in before its memory can serve a demand.
#include <algorithm>
#include <limits>

#include "experts/cache_state.h"

namespace continuo::experts {

namespace {

// Twice what the disk reads at once: enough that it never idles.
size_t most_ahead_fills(size_t depth, size_t record) {
  const size_t pieces = (record + piece_bytes - 1) / piece_bytes;
  return std::max<size_t>(2, 2 * depth / pieces);
}

}  // namespace

Priority ExpertCache::State::priority_of(Reason reason) {
  switch (reason) {
    case Reason::demand: return Priority::demand;
    case Reason::warm: return Priority::warm;
    default: return Priority::ahead;
  }
}

std::deque<size_t>& ExpertCache::State::queue_of(const Entry& entry) {
  return queues_[static_cast<size_t>(priority_of(entry.reason))];
}

void ExpertCache::State::leave_queue(Entry& entry) {
  auto& queue = queue_of(entry);
  const auto at = std::find(queue.begin(), queue.end(), number_of(entry));
  if (at != queue.end()) queue.erase(at);
}

// A request that waits is given up.
void ExpertCache::State::drop(Entry& entry, Wakes& wakes) {
  leave_queue(entry);
  entry.stage = Stage::absent;
  if (entry.reason != Reason::demand) ++statistics_.dropped;
  const auto [from, to] = wakes_.equal_range(number_of(entry));
  for (auto at = from; at != to; ++at) wakes.push_back(std::move(at->second));
  wakes_.erase(from, to);
}

// The smallest delta that turns a resident neighbour into this expert. Null: there is none.
const ExpertCache::State::Link* ExpertCache::State::nearest(const Entry& entry) const {
  if (!options_.deltas) return nullptr;
  constexpr uint8_t most_faults = 2;
  const Layer& layer = layers_[entry.layer];
  for (const Link& each : layer.links[entry.expert]) {
    if (layer.faults[each.delta] >= most_faults) continue;
    if (entries_[layer.first + each.neighbour].stage == Stage::resident) return &each;
  }
  return nullptr;
}

double ExpertCache::State::delta_cost(const Entry& entry) const {
  const Link* found = nearest(entry);
  return found ? static_cast<double>(found->bytes) / static_cast<double>(layers_[entry.layer].record) : 1;
}

// What was predicted, and not judged yet, counts as used now.
double ExpertCache::State::score(const Entry& entry) const {
  const bool expected = entry.expected != 0;
  switch (options_.policy) {
    case Policy::lfu: return static_cast<double>(entry.uses + expected);
    case Policy::lru: return static_cast<double>(expected ? clock_ + 1 : entry.touched);
    default: break;
  }
  const double worth =
      expected ? frequencies_.worth_if_used(entry.layer, entry.expert) : frequencies_.worth(entry.layer, entry.expert);
  return worth * delta_cost(entry);
}

// Null: no entry may go.
ExpertCache::State::Entry* ExpertCache::State::victim(Price price) const {
  size_t lowest = 0;
  double least = std::numeric_limits<double>::infinity();
  bool any = false, any_due = false;
  for (const size_t number : residents_) {
    const Entry& entry = entries_[number];
    if (!may_go(entry)) continue;
    if (entry.due && price != Price::also_due) continue;
    // What is due goes last.
    if (any && entry.due && !any_due) continue;
    const double each = score(entry);
    const bool lower = each < least || (each == least && number < lowest);
    if (any && !lower && entry.due == any_due) continue;
    lowest = number;
    least = each;
    any = true;
    any_due = entry.due;
  }
  return any ? const_cast<Entry*>(&entries_[lowest]) : nullptr;
}

void ExpertCache::State::evict(Entry& entry) {
  entries_[residents_.back()].place = entry.place;
  residents_[entry.place] = residents_.back();
  residents_.pop_back();
  buffers_.put(std::exchange(entry.bytes, nullptr), layers_[entry.layer].memory);
  used_ -= layers_[entry.layer].memory;
  entry.stage = Stage::absent;
  entry.due = entry.unused = false;
  ++statistics_.evictions;
}

ExpertCache::State::Room ExpertCache::State::make_room(const Entry& entry, Price price) {
  const size_t needed = layers_[entry.layer].memory;
  while (used_ + needed > bound_) {
    Entry* lowest = victim(price);
    if (!lowest) return Room::none_now;
    if (price == Price::lower && !(score(*lowest) < score(entry))) return Room::costs_better;
    evict(*lowest);
  }
  return Room::made;
}

// Null: the system has no memory, and nobody may lose his. Then the bound is what is used now.
std::byte* ExpertCache::State::memory_for(const Entry& entry, Price price) {
  const size_t needed = layers_[entry.layer].memory;
  for (;;) {
    if (std::byte* bytes = buffers_.get(needed)) return bytes;
    const uint64_t lower = std::max(used_, 2 * largest_);
    if (lower < bound_) {
      note(text("There is no memory for an expert of ", needed, " bytes: experts may take ", lower,
                " bytes from now on instead of ", bound_, "."));
      bound_ = lower;
    }
    Entry* lowest = price == Price::lower ? nullptr : victim(price);
    if (!lowest) return nullptr;
    evict(*lowest);
  }
}

// Gives an entry memory and begins to read it.
ExpertCache::State::Room ExpertCache::State::admit(Entry& entry, Price price) {
  Layer& layer = layers_[entry.layer];
  const Link* link = nearest(entry);
  Entry* base = link ? &entries_[layer.first + link->neighbour] : nullptr;
  if (base) ++base->bases;
  Room room = make_room(entry, price);
  if (base && room != Room::made) {
    // The neighbour may be the only one that can go.
    --std::exchange(base, nullptr)->bases;
    room = make_room(entry, price);
  }
  std::byte* bytes = room == Room::made ? memory_for(entry, price) : nullptr;
  if (!bytes) {
    if (base) --base->bases;
    return room == Room::made ? Room::none_now : room;
  }
  entry.bytes = bytes;
  entry.stage = Stage::filling;
  entry.fill = std::make_unique<Fill>();
  entry.fill->layer = layer.file;
  used_ += layer.memory;
  ++fills_;
  if (entry.reason != Reason::demand) {
    ++ahead_fills_;
    ahead_bytes_ += layer.memory;
  }
  if (base) {
    entry.fill->base = number_of(*base);
    if (start_delta(entry, *link)) return Room::made;
    entry.fill->base.reset();
    --base->bases;
  }
  start_record(entry);
  return Room::made;
}

void ExpertCache::State::pump(Wakes& wakes) {
  auto& demands = queues_[0];
  while (!demands.empty()) {
    Entry& entry = entries_[demands.front()];
    if (admit(entry, Price::any) != Room::made) break;
    demands.pop_front();
  }
  if (demands.empty()) return pump_ahead(wakes);
  if (fills_ > 0) return;
  // Nothing is on its way that could be lent, given back and evicted. Where a caller waits for a demand, it may evict
  // what others have demanded and not come for.
  for (const size_t number : demands) {
    Entry& entry = entries_[number];
    if (entry.awaited == 0 || admit(entry, Price::also_due) != Room::made) continue;
    demands.erase(std::find(demands.begin(), demands.end(), number));
    return;
  }
}

void ExpertCache::State::pump_ahead(Wakes& wakes) {
  const auto fits = [&](const Entry& entry) {
    const size_t record = layers_[entry.layer].memory;
    return ahead_fills_ < most_ahead_fills(options_.depth, record) && ahead_bytes_ + record <= bound_ / 2;
  };
  for (const Priority priority : {Priority::ahead, Priority::warm}) {
    auto& queue = queues_[static_cast<size_t>(priority)];
    while (!queue.empty()) {
      Entry& entry = entries_[queue.front()];
      if (!fits(entry)) return;
      const Room room = admit(entry, Price::lower);
      if (room == Room::none_now) return;
      if (room == Room::costs_better)
        drop(entry, wakes);
      else
        queue.pop_front();
    }
  }
  while (!warm_.empty()) {
    Entry& entry = entries_[warm_.back()];
    if (entry.stage == Stage::absent) {
      if (used_ + layers_[entry.layer].memory > bound_) return warm_.clear();
      if (!fits(entry)) return;
      entry.reason = Reason::warm;
      if (admit(entry, Price::lower) != Room::made) return;
    }
    warm_.pop_back();
  }
}

}  // namespace continuo::experts
