// What a node of a graph says beside its operands: heads, eps, periods … (docs/graph.md), out of its JSON.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "graph/graph.h"
#include "graph/ops.h"

namespace continuo {

// Generous for any model; small enough that sizes in bytes never overflow 64 bits.
constexpr uint64_t max_extent = uint64_t{1} << 31;

// `user` begins every message: what the node is called. `literal`: its right-hand side is a number.
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

// Digits with an optional minus sign, of at most max_extent.
std::optional<int64_t> whole_number(std::string_view digits);

// The whole number from `least` to `most` that a member is; `otherwise` where it is missing. The message begins with a
// space.
Result<uint64_t> read_number(const json::Value& object, const char* member, uint64_t least, uint64_t most,
                             std::optional<uint64_t> otherwise = std::nullopt);

}  // namespace continuo
