#include "runtime/state/grown_table.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace continuo {

GrownTable::GrownTable(const Model& model, const StateSlice& slice)
    : model_(&model),
      slice_(&slice),
      declaration_(&model.graph.declarations[slice.name]),
      rooms_(extents(0)),
      checked_(rooms_) {}

// The table's extents, with `growing` for each axis that grows.
GrownTable::Extents GrownTable::extents(size_t growing) const {
  Extents out;
  for (const auto& axis : declaration_->axes)
    out.push_back(axis.kind == Axis::Kind::grows ? growing : static_cast<size_t>(axis.extent));
  return out;
}

void GrownTable::reserve(Name counter, size_t positions) {
  Extents rooms = rooms_;
  size_t elements = 1;
  for (size_t axis = 0; axis < rooms.size(); ++axis) {
    const auto& a = declaration_->axes[axis];
    if (a.counter == counter && rooms[axis] < positions)
      rooms[axis] = std::min<size_t>(static_cast<size_t>(a.extent), std::bit_ceil(positions));
    elements *= rooms[axis];
  }
  if (rooms == rooms_) return;
  DeviceMemory wider(model_->device, elements * size_of(slice_->type));
  if (elements > 0) model_->device->fill(wider.data(), slice_->type, elements, declaration_->init);
  const Extents old = std::exchange(rooms_, rooms);
  std::swap(memory_, wider);
  if (wider.size() == 0) return;
  // The old span, from its first byte to its last, is the same box of the new one.
  const std::byte* from = wider.data();
  each_piece(Extents(old.size(), 0), old, [&](const std::byte* to, size_t bytes) {
    model_->device->copy(const_cast<std::byte*>(to), from, bytes);
    from += bytes;
  });
}

GrownTable GrownTable::copy() const {
  GrownTable out(*model_, *slice_);
  out.memory_ = DeviceMemory(model_->device, memory_.size());
  if (memory_.size() > 0) model_->device->copy(out.memory_.data(), memory_.data(), memory_.size());
  out.rooms_ = rooms_;
  out.checked_ = checked_;
  return out;
}

void GrownTable::forget(Name counter, size_t first, size_t last) {
  for (size_t axis = 0; axis < rooms_.size(); ++axis) {
    if (declaration_->axes[axis].counter != counter) continue;
    checked_[axis] = std::min(checked_[axis], first);
    Extents from(rooms_.size(), 0), to = rooms_;
    from[axis] = first;
    to[axis] = std::min(last, rooms_[axis]);
    each_piece(from, to, [&](const std::byte* at, size_t bytes) {
      model_->device->fill(const_cast<std::byte*>(at), slice_->type, bytes / size_of(slice_->type), declaration_->init);
    });
  }
}

void GrownTable::each_piece(const Extents& from, const Extents& to, const Visit& visit) const {
  const size_t axes = rooms_.size();
  for (size_t axis = 0; axis < axes; ++axis) {
    if (from[axis] >= to[axis]) return;
  }
  // Behind `split` every axis is covered whole, so a piece takes all that the box has along `split`.
  size_t split = axes - 1, inner = size_of(slice_->type);
  while (split > 0 && from[split] == 0 && to[split] == rooms_[split]) inner *= rooms_[split--];
  Extents at = from;
  for (;;) {
    size_t offset = 0;
    for (size_t axis = 0; axis <= split; ++axis) offset = offset * rooms_[axis] + at[axis];
    visit(memory_.data() + offset * inner, (to[split] - from[split]) * inner);
    size_t axis = split;
    while (axis > 0 && ++at[axis - 1] == to[axis - 1]) {
      at[axis - 1] = from[axis - 1];
      --axis;
    }
    if (axis == 0) return;
  }
}

GrownTable::Extents GrownTable::unchecked() const {
  Extents from(rooms_.size(), 0);
  for (size_t axis = 0; axis < from.size(); ++axis) {
    if (declaration_->axes[axis].kind == Axis::Kind::grows)
      from[axis] = checked_[axis] - std::min(checked_[axis], slice_->reaches[axis]);
  }
  return from;
}

}  // namespace continuo
