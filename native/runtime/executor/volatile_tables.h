// VolatileTables: the volatile tables of an executor (docs/graph.md). Every row finds them as the model's file has
// them, and sees what it has written itself.
//
// A member that no row writes is read where the model keeps it, like a constant. At the first write the member is
// copied. When the row ends, what it wrote in the copy becomes what the file has, so that a further row costs what it
// writes and not a whole copy. The copies stay until the executor goes: at most one of each member that a block writes.
// Rows that write go one by one (arrange.cc), so one copy serves all of them.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "runtime/model/model.h"

namespace continuo {

class VolatileTables {
 public:
  explicit VolatileTables(const Model& model) : model_(&model) {}

  // The address on the device of element `first` of a member, for reading: of the copy where the row has written the
  // member.
  const std::byte* read(uint32_t member, size_t first) const;
  // The same, for a row that is about to write the elements first … first + count − 1. Throws DeviceError or
  // std::bad_alloc.
  std::byte* write(uint32_t member, size_t first, size_t count);
  // Sets these elements to what the file has.
  void reset(uint32_t member, size_t first, size_t count);

  bool written() const { return !written_.empty(); }
  // Ends the row. What it wrote must have been computed.
  void end_row();

 private:
  struct Part {
    uint32_t member;
    size_t first, bytes;  // bytes from the member's beginning, and how many
  };
  void restore(const Part& part);

  const Model* model_;
  std::map<uint32_t, DeviceMemory> copies_;  // by the number of the member (ConstantIndex)
  std::vector<Part> written_;                // by this row
};

}  // namespace continuo
