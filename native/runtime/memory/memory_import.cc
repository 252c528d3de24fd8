// MemoryController: a plain decoder's context becomes one with an external memory.
#include <algorithm>
#include <cmath>

#include "base/cast.h"
#include "runtime/memory/memory_controller.h"

namespace continuo {

// Turns a key back by as much as it was turned at its position, with one rounding.
void MemoryController::derotate_kv(const float* turned, size_t position, float* out) const {
  kernels_.rope(turned, out, memory_.key_heads, memory_.channels, memory_.increments.size(), memory_.increments.data(),
                0u - static_cast<uint32_t>(position));
}

Status MemoryController::take_over(const PlainCache& plain) {
  const size_t B = memory_.block, L = memory_.layers, C = memory_.kv(), D = model_.graph.width(names_.topic_sum);
  const size_t n = plain.keys.size() / (L * C);
  if (counter(names_.count) > 0)
    return invalid("the context has read ", counter(names_.count),
                   " tokens; only one that has read none takes a plain context over.");
  if (n == 0 || plain.keys.size() != n * L * C || plain.values.size() != plain.keys.size() || plain.hidden.size() != D)
    return invalid("a plain context has ", plain.keys.size(), " numbers of keys, ", plain.values.size(),
                   " of values and ", plain.hidden.size(),
                   " of its last hidden vector, expected as many of the first as of "
                   "the second, a multiple of ",
                   L * C, ", and ", D, ".");
  const auto& language = *model_.graph.language;
  if (language.inner != language.hidden)
    return invalid(
        "a plain context has none of the tables of the memory that stands behind this model: feed the session's text "
        "again.");
  if (memory_.qformer || memory_.trimmer > 0)
    return invalid(
        "a plain context has no hidden vectors of its tokens, which the Q-Former and the trimmer of this memory "
        "read: feed the session's text again.");
  for (const auto* numbers : {&plain.keys, &plain.values, &plain.hidden})
    if (!kernels_.finite(numbers->data(), numbers->size()))
      return invalid("a plain context has a number that is not finite.");
  const auto& kept = model_.layout[model_.slice_of[names_.window_k]];
  const size_t each = C * size_of(kept.type);
  std::vector<std::byte> rows(L * B * each);
  std::vector<float> key(C);
  for (size_t from = 0; from < n; from += B) {
    const size_t to = std::min(n, from + B), here = to - from;
    set(names_.count, to);
    for (size_t which = 0; which < keys_and_values; ++which) {
      for (size_t layer = 0; layer < L; ++layer) {
        for (size_t p = from; p < to; ++p) {
          const float* row = (which == 0 ? plain.keys : plain.values).data() + (layer * n + p) * C;
          if (which == 0) {
            derotate_kv(row, p, key.data());
            row = key.data();
          }
          cast(reinterpret_cast<const std::byte*>(row), Type::f32, rows.data() + (layer * here + p - from) * each,
               kept.type, C);
        }
      }
      if (first_not_finite(rows.data(), kept.type, L * here * C) < L * here * C) {
        context_.reset();
        return invalid("a plain context has a key or value near token ", from, " that ", name_of(kept.type),
                       " cannot hold, the kv_dtype of this memory.");
      }
      rows_.put(which == 0 ? names_.window_k : names_.window_v, from, to, rows);
    }
    if (here < B) break;
    index_block(from / B);
    while (to - counter(names_.archived) * B + B > memory_.window) archive_block("window");
  }
  const Name last = language.last;
  const auto& slice = model_.layout[model_.slice_of[last]];
  model_.device_of(slice).upload(context_.data(last), reinterpret_cast<const std::byte*>(plain.hidden.data()),
                                 plain.hidden.size() * sizeof(float));
  context_.list_laid = false;
  return Done{};
}

}  // namespace continuo
