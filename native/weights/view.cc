#include "weights/view.h"

#include <algorithm>

namespace continuo {

namespace {

// a·b + c
std::optional<uint64_t> multiply_add(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t product = 0, sum = 0;
  if (__builtin_mul_overflow(a, b, &product) || __builtin_add_overflow(product, c, &sum)) return std::nullopt;
  return sum;
}

}  // namespace

std::optional<uint64_t> View::count() const {
  uint64_t rows = 0;
  for (const auto& part : parts) {
    if (__builtin_add_overflow(rows, part.count, &rows)) return std::nullopt;
  }
  return multiply_add(repeat, rows, 0);
}

std::optional<uint64_t> View::end() const {
  uint64_t furthest = 0;
  for (const auto& part : parts) {
    if (part.count == 0) continue;
    const auto last = multiply_add(part.count - 1, part.stride, part.from);
    if (!last) return std::nullopt;
    furthest = std::max(furthest, *last);
  }
  const auto last = multiply_add(repeat - 1, step, furthest);
  return last ? multiply_add(1, offset, *last + 1) : std::nullopt;
}

std::vector<size_t> View::order() const {
  std::vector<size_t> rows;
  rows.reserve(static_cast<size_t>(count().value_or(0)));
  for (uint64_t r = 0; r < repeat; ++r) {
    for (const auto& part : parts) {
      for (uint64_t i = 0; i < part.count; ++i)
        rows.push_back(static_cast<size_t>(offset + r * step + part.from + i * part.stride));
    }
  }
  return rows;
}

View View::of(uint64_t i) const {
  View view = *this;
  view.offset += view.each * i;
  view.each = 0;
  return view;
}

}  // namespace continuo
