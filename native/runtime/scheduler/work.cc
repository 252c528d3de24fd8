#include "runtime/scheduler/work.h"

#include <algorithm>

namespace continuo {

std::string_view TokenBytes::of(int32_t token) const {
  const auto at = static_cast<size_t>(token);
  if (at >= ends.size()) return {};
  const uint64_t first = at == 0 ? 0 : ends[at - 1];
  return std::string_view(bytes).substr(first, ends[at] - first);
}

bool StopStrings::ends_with(int32_t token) {
  if (strings.empty() || !bytes) return false;
  const std::string_view fresh = bytes->of(token);
  size_t longest = 0;
  bool found = false;
  const size_t before = tail.size();
  tail += fresh;
  for (const auto& string : strings) {
    longest = std::max(longest, string.size());
    // Only a match that ends in this token counts: an earlier one would have ended the generation at its own token.
    const size_t from = before - std::min(before, string.size() - 1);
    found = found || tail.find(string, from) != std::string::npos;
  }
  if (tail.size() > longest) tail.erase(0, tail.size() - longest);
  return found;
}

}  // namespace continuo
