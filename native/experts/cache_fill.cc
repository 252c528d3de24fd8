// How a record comes in:
//
//   delta ──right──▶ arrived
//     │ wrong, or not read
//     ▼
//   record ──right──▶ arrived
//     │ wrong, or not read
//     ├─ the file was changed: opened again, once ─▶ record       another digest ─▶ failed
//     ├─ not read ─▶ failed
//     └─ past the page cache, once ─▶ record                      still wrong ─▶ failed
#include <algorithm>
#include <cstring>

#include "base/checksum.h"
#include "base/threads.h"
#include "experts/cache_state.h"
#include "experts/delta.h"
#include "experts/form.h"

namespace continuo::experts {

// The deltas of each expert of the layer's file.
void ExpertCache::State::link(Layer& layer) {
  const auto& deltas = layer.file->index.deltas;
  layer.links.assign(layer.count, {});
  layer.faults.assign(deltas.size(), 0);
  for (uint32_t i = 0; i < deltas.size(); ++i) {
    const uint64_t bytes = padded(deltas[i].bytes);
    if (bytes >= layer.record) continue;
    layer.links[deltas[i].a].push_back({deltas[i].b, i, bytes});
    layer.links[deltas[i].b].push_back({deltas[i].a, i, bytes});
  }
  for (auto& links : layer.links)
    std::sort(links.begin(), links.end(), [](const Link& a, const Link& b) {
      return std::pair(a.bytes, a.neighbour) < std::pair(b.bytes, b.neighbour);
    });
}

void ExpertCache::State::read(Entry& entry, std::shared_ptr<DirectFile> file, uint64_t offset,
                              std::span<std::byte> to) {
  const size_t number = number_of(entry);
  const Priority priority = entry.due ? Priority::demand : priority_of(entry.reason);
  entry.fill->number = reader_->read({std::move(file), offset, to, priority, [this, number](ReadEnd end) {
                                        {
                                          const std::lock_guard lock(mutex_);
                                          ended_.emplace_back(number, end);
                                        }
                                        work_.notify_one();
                                      }});
}

// False: there is no memory for it.
bool ExpertCache::State::start_delta(Entry& entry, const Link& link) {
  Fill& fill = *entry.fill;
  try {
    fill.delta_bytes.reset(allocate_aligned(link.bytes, page));
  } catch (const std::bad_alloc&) {
    return false;
  }
  fill.delta = link.delta;
  statistics_.delta_bytes += link.bytes;
  read(entry, fill.layer->file, fill.layer->index.deltas[link.delta].offset, {fill.delta_bytes.get(), link.bytes});
  return true;
}

void ExpertCache::State::start_record(Entry& entry) {
  Fill& fill = *entry.fill;
  const size_t bytes = layers_[entry.layer].record;
  switch (entry.reason) {
    case Reason::demand: statistics_.demand_bytes += bytes; break;
    case Reason::warm: statistics_.warm_bytes += bytes; break;
    default: statistics_.ahead_bytes += bytes;
  }
  read(entry, fill.again ? fill.again : fill.layer->file, fill.layer->index.records[entry.expert].offset,
       {entry.bytes, bytes});
}

void ExpertCache::State::check_loop() {
  use_default_arithmetic();
  Lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return stopping_ || !ended_.empty(); });
    if (stopping_) return;
    const auto [number, end] = ended_.front();
    ended_.pop_front();
    lock.unlock();
    check(number, end);
    lock.lock();
  }
}

// What was read is here, or not. Without the lock.
void ExpertCache::State::check(size_t number, ReadEnd end) {
  Entry& entry = entries_[number];
  Fill& fill = *entry.fill;
  if (fill.base) return check_delta(entry, end);
  const Layer& layer = layers_[entry.layer];
  const RecordEntry& record = fill.layer->index.records[entry.expert];
  const uint64_t found = end.why == 0 ? checksum({entry.bytes, layer.payload}) : 0;
  const bool wrong = end.why == 0 && found != record.checksum;
  Lock lock(mutex_, std::defer_lock);
  if (end.why == 0 && !wrong) {
    const ExpertShape& shape = fill.layer->index.shape;
    // Of floats the record is the form.
    if (!is_float(shape.coding)) {
      payload_.assign(entry.bytes, entry.bytes + layer.payload);
      to_form(shape, payload_, entry.bytes);
    }
    lock.lock();
    return arrive(entry, lock);
  }
  std::optional<Error> error;
  bool again = false;
  if (!fill.reopened && fill.layer->changed()) {
    error = reopen(entry);
    again = !error;
  } else if (end.why != 0) {
    error =
        Error{Code::unavailable, text("Expert ", entry.expert, " of layer ", layer.number, " could not be read from ",
                                      fill.layer->file->path, " at ", end.offset, ": ",
                                      end.why == file_ended ? std::string("the file ends there")
                                                            : text(std::strerror(end.why), " (errno ", end.why, ")"),
                                      ".")};
  } else if (!fill.again) {
    fill.again = past_page_cache(*fill.layer, record.offset, layer.record);
    again = true;
  } else {
    error =
        Error{Code::refused, text("Expert ", entry.expert, " of layer ", layer.number, " in ", fill.layer->file->path,
                                  " is damaged: its checksum is ", found, ", expected ", record.checksum,
                                  ", also when read again. Pack the experts again: continuo experts pack.")};
  }
  lock.lock();
  statistics_.failed_checks += wrong;
  if (again) return start_record(entry);
  fail(entry, std::move(*error), lock);
}

void ExpertCache::State::check_delta(Entry& entry, ReadEnd end) {
  Fill& fill = *entry.fill;
  const Layer& layer = layers_[entry.layer];
  const DeltaEntry& delta = fill.layer->index.deltas[fill.delta];
  Entry& base = entries_[*fill.base];
  bool right = end.why == 0;
  if (right) {
    const ExpertShape& shape = fill.layer->index.shape;
    payload_.resize(layer.payload);
    from_form(shape, base.bytes, payload_);
    right = apply_delta({fill.delta_bytes.get(), delta.bytes}, payload_).operator bool() &&
            checksum(payload_) == fill.layer->index.records[entry.expert].checksum;
    if (right) to_form(shape, payload_, entry.bytes);
  }
  Lock lock(mutex_);
  --base.bases;
  fill.base.reset();
  fill.delta_bytes.reset();
  if (right) {
    ++statistics_.deltas_used;
    return arrive(entry, lock);
  }
  ++statistics_.deltas_refused;
  // Of a file that was opened again meanwhile nothing is known yet.
  if (layer.file == fill.layer) {
    const uint8_t faults = ++layers_[entry.layer].faults[fill.delta];
    note(text("The delta of experts ", delta.a, " and ", delta.b, " of layer ", layer.number, " in ",
              fill.layer->file->path, end.why == 0 ? " does not give expert " : " could not be read for expert ",
              entry.expert, faults == 1 ? ": its record is read instead." : ": it is no longer used."));
  }
  start_record(entry);
  // The neighbour may be evicted now.
  Wakes wakes;
  pump(wakes);
  leave(lock, wakes);
}

// Opens the layer's file again. An error: it has not the experts that it had.
std::optional<Error> ExpertCache::State::reopen(Entry& entry) {
  Fill& fill = *entry.fill;
  const std::string& path = fill.layer->file->path;
  auto fresh = open_layer(path, fill.layer->index.layer, options_.io == Io::direct);
  if (!fresh)
    return Error{fresh.error().code,
                 text("A file of experts was changed while it was in use. ", fresh.error().message)};
  const StoreIndex &now = (*fresh)->index, &was = fill.layer->index;
  if (now.digest != was.digest || now.shape != was.shape || now.records.size() != was.records.size())
    return Error{Code::refused, text(path, " was changed while it was in use: it has ", now.records.size(),
                                     " experts with the digest ", hex_of(now.digest), ", expected ", was.records.size(),
                                     " with ", hex_of(was.digest), ".")};
  const std::lock_guard lock(mutex_);
  note(text(path, " was changed while it was in use, and opened again: it has the same experts."));
  Layer& layer = layers_[entry.layer];
  layer.file = *fresh;
  link(layer);
  fill.layer = *fresh;
  fill.reopened = true;
  fill.again.reset();
  return std::nullopt;
}

// The entry's read is over, whatever came of it.
void ExpertCache::State::end_fill(Entry& entry, Wakes& wakes) {
  entry.fill.reset();
  --fills_;
  if (entry.reason != Reason::demand) {
    --ahead_fills_;
    ahead_bytes_ -= layers_[entry.layer].memory;
  }
  const auto [from, to] = wakes_.equal_range(number_of(entry));
  for (auto at = from; at != to; ++at) wakes.push_back(std::move(at->second));
  wakes_.erase(from, to);
}

void ExpertCache::State::arrive(Entry& entry, Lock& lock) {
  Wakes wakes;
  end_fill(entry, wakes);
  entry.stage = Stage::resident;
  entry.arrival = entry.touched = ++clock_;
  entry.unused = entry.reason != Reason::demand;
  entry.place = residents_.size();
  residents_.push_back(number_of(entry));
  arrived_.notify_all();
  pump(wakes);
  leave(lock, wakes);
}

void ExpertCache::State::fail(Entry& entry, Error error, Lock& lock) {
  Wakes wakes;
  end_fill(entry, wakes);
  entry.stage = Stage::absent;
  buffers_.put(std::exchange(entry.bytes, nullptr), layers_[entry.layer].memory);
  used_ -= layers_[entry.layer].memory;
  ++statistics_.failed_reads;
  tell_failure(entry, error);
  pump(wakes);
  leave(lock, wakes);
}

// Who waits for the entry is told, or who comes for it first; where nobody will, the log.
void ExpertCache::State::tell_failure(Entry& entry, const Error& error) {
  const size_t number = number_of(entry);
  bool told = false;
  for (Taker* taker : takers_) {
    if (std::find(taker->entries.begin(), taker->entries.end(), number) == taker->entries.end()) continue;
    if (!taker->error) taker->error = error;
    told = true;
  }
  const bool due = std::exchange(entry.due, false);
  if (told)
    arrived_.notify_all();
  else if (due)
    failed_.insert_or_assign(number, error);
  else
    note(error.message);
}

// Wakes are called without the lock: they may call the cache.
void ExpertCache::State::leave(Lock& lock, const Wakes& wakes) {
  lock.unlock();
  for (const auto& wake : wakes) wake();
}

}  // namespace continuo::experts
