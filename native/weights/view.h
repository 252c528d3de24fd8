// View: rows of a tensor, picked and put into another order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace continuo {

// For r = 0 … repeat − 1, for each part, for i = 0 … count − 1: row offset + each·member + r·step + from + i·stride. So
// a view takes a product out of a fused tensor, undoes a permutation within heads, or tiles heads another way.
struct View {
  struct Part {
    uint64_t from = 0, count = 0, stride = 1;
  };
  uint64_t offset = 0, repeat = 0, step = 0;  // repeat 0: no view; all rows in their order
  uint64_t each = 0;  // rows from one member of a family (of a stack: of its matrices) to the next
  std::vector<Part> parts;

  explicit operator bool() const { return repeat > 0; }
  // The rows that it gives, and one more than the last row that it reads. None where 64 bits cannot hold the number.
  std::optional<uint64_t> count() const;
  std::optional<uint64_t> end() const;
  // The rows [count()] of the tensor, in order.
  std::vector<size_t> order() const;
  // The view of member i.
  View of(uint64_t i) const;
};

}  // namespace continuo
