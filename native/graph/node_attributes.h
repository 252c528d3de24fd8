// Reads the attributes of a node from its JSON: heads, eps, periods … (docs/graph.md).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "graph/graph.h"
#include "graph/ops.h"

namespace continuo {

// The largest extent of an axis: more than any model needs, and small enough that no size in bytes overflows 64 bits.
constexpr uint64_t max_extent = uint64_t{1} << 31;

// `user`: the name of the node, with which every message begins. `literal`: its right-hand side is a number.
Status read_attributes(const json::Value& item, const OpTraits& op, const std::string& user, bool literal, Node& node);

// The value that a word stands for in a graph's text; false, leaving `out`, for a word that stands for none.
template <class T>
bool read_word(std::string_view word, std::initializer_list<std::pair<std::string_view, T>> words, T& out) {
  for (const auto& [known, value] : words) {
    if (word != known) continue;
    out = value;
    return true;
  }
  return false;
}

// A whole number: digits with an optional minus sign, of a magnitude up to max_extent.
std::optional<int64_t> whole_number(std::string_view digits);

// The value of a JSON member that must be a whole number from `least` to `most`; `otherwise` where it is missing. The
// message of an error begins with a space.
Result<uint64_t> read_number(const json::Value& object, const char* member, uint64_t least, uint64_t most,
                             std::optional<uint64_t> otherwise = std::nullopt);

}  // namespace continuo
