#include "runtime/host_rows.h"

#include <algorithm>

namespace continuo {

void HostRows::each_piece(Name ring, size_t first, size_t last, const auto& visit) const {
  const auto& model = context_.model();
  const auto& slice = model.layout[model.slice_of[ring]];
  // They end with the ring, or with a block of it.
  const size_t side = slice.ring_in_blocks ? slice.block : slice.places;
  for (size_t outer = 0; outer < slice.outer; ++outer) {
    for (size_t at = first; at < last;) {
      const size_t end = std::min(last, at + side - at % slice.places % side);
      visit(outer, at, end);
      at = end;
    }
  }
}

void HostRows::bring(Name ring, size_t first, size_t last) {
  const auto& model = context_.model();
  const auto& slice = model.layout[model.slice_of[ring]];
  if (model.device_of(slice).in_host_memory()) return;
  auto& [from, to, rows] = copies_[ring];
  if (from == first && to == last) return;
  const size_t each = slice.inner * size_of(slice.type);
  std::vector<Piece> pieces;
  each_piece(ring, first, last, [&](size_t outer, size_t at, size_t end) {
    pieces.push_back({context_.ring_row(ring, outer, at), (end - at) * each});
  });
  rows.resize(slice.outer * (last - first) * each);
  model.device_of(slice).download(rows.data(), pieces);
  from = first, to = last;
}

void HostRows::put(Name ring, size_t first, size_t last, std::span<const std::byte> rows) {
  const auto& model = context_.model();
  const auto& slice = model.layout[model.slice_of[ring]];
  const size_t each = slice.inner * size_of(slice.type);
  each_piece(ring, first, last, [&](size_t outer, size_t at, size_t end) {
    auto* to = const_cast<std::byte*>(context_.ring_row(ring, outer, at));
    model.device_of(slice).upload(to, rows.data() + (outer * (last - first) + at - first) * each, (end - at) * each);
  });
  copies_.erase(ring);
}

const std::byte* HostRows::at(Name ring, size_t outer, size_t position) const {
  const auto copy = copies_.find(ring);
  if (copy == copies_.end()) return context_.ring_row(ring, outer, position);
  const auto& model = context_.model();
  const auto& slice = model.layout[model.slice_of[ring]];
  const auto& [first, last, rows] = copy->second;
  return rows.data() + (outer * (last - first) + position - first) * slice.inner * size_of(slice.type);
}

const std::byte* HostRows::table(Name name) {
  const auto& model = context_.model();
  const auto& slice = model.layout[model.slice_of[name]];
  if (model.device_of(slice).in_host_memory()) return context_.data(name);
  auto& rows = copies_[name].rows;
  rows.resize(slice.elements * size_of(slice.type));
  const Piece all{context_.data(name), rows.size()};
  model.device_of(slice).download(rows.data(), {&all, 1});
  return rows.data();
}

}  // namespace continuo
