// Context::restore: a state is checked whole, memory is taken, and then it is written.
#include <algorithm>
#include <cstring>

#include "runtime/state/context.h"
#include "runtime/state/damage.h"
#include "runtime/state/memory_state.h"

namespace continuo {

Result<std::vector<int64_t>> Context::checked(std::span<const std::byte> state, std::span<const size_t> behind) const {
  // A table's counter is declared before the table, so its value is read before.
  std::vector<int64_t> counters(model_->layout.size(), 0);
  std::vector<const std::byte*> tables(model_->layout.size(), nullptr);
  size_t at = 0;
  for (size_t i = 0; i < model_->layout.size(); ++i) {
    const auto& slice = model_->layout[i];
    const auto& d = model_->graph.declarations[slice.name];
    if (slice.derived) continue;
    size_t elements = slice.elements;
    if (slice.grows()) {
      const auto positions = static_cast<size_t>(counters[model_->slice_of[slice.counter]]);
      const size_t elsewhere = behind.empty() ? 0 : behind[i];
      if (positions < elsewhere)
        return invalid("the state's \"", d.name, "\" has ", elsewhere, " positions in blocks, expected at most ",
                       positions, ": the snapshot is damaged.");
      elements = slice.outer * slice.inner * (positions - elsewhere);
    }
    if (slice.several != no_name) {
      elements = 1;
      for (const size_t extent : extents(slice, counters)) elements *= extent;
    }
    const size_t size = elements * size_of(slice.type);
    if (state.size() - at < size)
      return invalid("the state has ", state.size(), " bytes, expected at least ", at + size,
                     " by this model's layout.");
    const std::byte* from = state.data() + at;
    tables[i] = from;
    at += size;
    if (d.counter) {
      std::memcpy(&counters[i], from, sizeof(int64_t));
      if (counters[i] < 0 || static_cast<uint64_t>(counters[i]) > d.bound) {
        return invalid("the state's counter \"", d.name, "\" is ", counters[i], ", expected 0 to ", d.bound,
                       ": the snapshot is damaged.");
      }
    } else if (const size_t bad = first_impossible(from, slice.type, elements); bad < elements) {
      return damaged(d.name, from, slice.type, bad, bad);
    }
  }
  if (at != state.size())
    return invalid("the state has ", state.size(), " bytes, expected ", at, " by this model's layout.");
  if (model_->graph.memory) {
    if (auto good = check_memory_state(*model_, counters, tables); !good) return good.error();
  }
  return counters;
}

Status Context::restore(std::span<const std::byte> state, const Head& new_head, const Behind& behind) {
  if (new_head.origin > new_head.pulse)
    return invalid("the state's origin ", new_head.origin, " lies after its pulse ", new_head.pulse, ".");
  // Positions are counted in int64: a larger clock would wrap, and the loops over positions would have no end.
  if (new_head.pulse > INT64_MAX)
    return invalid("the state's pulse ", new_head.pulse, " is too large for the clock, expected at most 2⁶³ − 1.");
  auto counters = checked(state, behind.positions);
  if (!counters) return counters.error();

  const bool in_parts = !behind.positions.empty();
  for (size_t i = 0; i < behind.kept.size(); ++i) {
    const auto& slice = model_->layout[i];
    const size_t own = slice.grows() ? std::min(entered(slice), behind.positions[i]) : 0;
    if (behind.kept[i] > own)
      return internal("slice ", i, " is to keep ", behind.kept[i], " positions, and has ", own, ".");
  }

  const Pinned pinned(device(), *this);
  // Memory is taken first, because taking it can fail. Afterwards only the loss of the device can fail.
  std::vector<BlockTable> tables(block_tables_.size());
  auto several = without_room();
  for (size_t i = 0; i < model_->layout.size(); ++i) {
    const auto& slice = model_->layout[i];
    tables[i] = empty_table(i);
    if (slice.grows()) {
      const size_t kept = behind.kept.empty() ? 0 : behind.kept[i];
      tables[i].share(block_tables_[i], kept / slice.block);
      if (in_parts) tables[i].expect((behind.positions[i] - kept) / slice.block);
      tables[i].reserve(static_cast<size_t>((*counters)[model_->slice_of[slice.counter]]),
                        model_->graph.declarations[slice.counter].bound);
    }
    if (slice.ring_in_blocks) {
      if (!slice.derived) tables[i].expect(slice.places / slice.block);
      tables[i].reserve(slice.places, slice.places);
    }
    for (auto& table : several) table.reserve(slice.name, static_cast<size_t>((*counters)[i]));
  }
  block_tables_ = std::move(tables);
  several_ = std::move(several);
  counters_ = std::move(*counters);
  broken = true;  // until every table is uploaded
  size_t at = 0;
  for (size_t i = 0; i < model_->layout.size(); ++i) {
    const auto& slice = model_->layout[i];
    const auto upload = [&](const std::byte* to, size_t bytes) {
      model_->device_of(slice).upload(const_cast<std::byte*>(to), state.data() + at, bytes);
      at += bytes;
    };
    if (slice.derived) continue;
    each_piece(i, upload, slice.grows() && in_parts ? behind.positions[i] : 0);
    if (model_->graph.declarations[slice.name].counter) at += sizeof(int64_t);
  }
  for (size_t i = 0; i < model_->layout.size(); ++i) {
    if (model_->layout[i].may_sleep) block_tables_[i].note_full(0, entered(model_->layout[i]));
  }
  head = new_head;
  broken = false;
  drop_loans();
  mark_checked();
  return Done{};
}

}  // namespace continuo
