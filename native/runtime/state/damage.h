// Numbers that no state can have: what a damaged snapshot shows.
#pragma once

#include <algorithm>
#include <string_view>

#include "base/cast.h"
#include "base/result.h"

namespace continuo {

// Index of the first element that is not finite, or a bool that is neither 0 nor 1; n where there is none.
inline size_t first_impossible(const std::byte* from, Type type, size_t n) {
  if (type != Type::boolean) return first_not_finite(from, type, n);
  const auto* bad = std::find_if(from, from + n, [](std::byte value) { return std::to_integer<int>(value) > 1; });
  return static_cast<size_t>(bad - from);
}

// What to say of element `at` of `from`, which is element `index` of the table.
inline Error damaged(std::string_view table, const std::byte* from, Type type, size_t at, size_t index) {
  if (type == Type::boolean)
    return invalid("the state's \"", table, "\" holds ", std::to_integer<int>(from[at]), " for a bool at element ",
                   index, ": the snapshot is damaged.");
  return invalid("the state's \"", table, "\" holds a number that is not finite at element ", index,
                 ": the snapshot is damaged.");
}

}  // namespace continuo
