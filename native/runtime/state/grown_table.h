// GrownTable: a table that grows along several counters, M(r, c): one span of the device's memory, row-major over the
// room along each axis.
//
// An axis has room for a power of two of positions, at most its counter's bound. Where positions are entered beyond the
// room, the table is copied into a larger span; the room at least doubles, so each element is copied less than twice on
// average for each axis that grows. Elements that are not entered yet hold the table's first value.
#pragma once

#include <functional>
#include <vector>

#include "runtime/model/model.h"

namespace continuo {

class GrownTable {
 public:
  using Extents = std::vector<size_t>;  // [axes of the table]
  using Visit = std::function<void(const std::byte*, size_t)>;

  // Without room along the axes that grow. `slice` is of the model's layout and outlives the table.
  GrownTable(const Model& model, const StateSlice& slice);

  // [rooms] elements; null where there is no room along an axis.
  std::byte* data() { return memory_.data(); }
  size_t bytes() const { return memory_.size(); }
  size_t room(size_t axis) const { return rooms_[axis]; }
  GrownTable copy() const;
  void page_out() { memory_.page_out(); }
  void page_in() { memory_.page_in(); }

  // Makes room for so many positions along each axis that follows the counter. Throws DeviceError or std::bad_alloc;
  // then nothing has changed.
  void reserve(Name counter, size_t positions);
  // Sets what lies at positions first … last − 1 of the counter to the table's first value.
  void forget(Name counter, size_t first, size_t last);

  // Visits the elements of a box, from[axis] … to[axis] − 1, in row-major order: contiguous bytes at a time.
  void each_piece(const Extents& from, const Extents& to, const Visit& visit) const;

  // Where the box begins that may hold numbers written since mark_checked(): see StateSlice::reaches.
  Extents unchecked() const;
  void mark_checked(const Extents& entered) { checked_ = entered; }

 private:
  Extents extents(size_t growing) const;

  const Model* model_;
  const StateSlice* slice_;
  const Declaration* declaration_;
  Extents rooms_, checked_;
  DeviceMemory memory_;
};

}  // namespace continuo
