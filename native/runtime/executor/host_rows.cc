#include "runtime/executor/host_rows.h"

#include <algorithm>

#include "runtime/executor/executor.h"

namespace continuo {

void HostRows::each_piece(Name ring, size_t first, size_t last, const auto& visit) const {
  const auto& model = context_->model();
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

bool HostRows::has(Name ring, size_t first, size_t last) const {
  return std::any_of(copies_.begin(), copies_.end(),
                     [&](const Copy& copy) { return copy.ring == ring && copy.first <= first && copy.last >= last; });
}

void HostRows::drop(Name ring) {
  std::erase_if(copies_, [&](const Copy& copy) { return copy.ring == ring; });
}

void HostRows::bring(std::span<const Wanted> wanted) {
  std::vector<Wanted> missing;
  Device* device = nullptr;
  for (const auto& one : wanted) {
    const auto& model = one.rows->context_->model();
    auto& own = model.device_of(model.layout[model.slice_of[one.ring]]);
    if (own.in_host_memory() || one.rows->has(one.ring, one.first, one.last)) continue;
    device = &own;
    missing.push_back(one);
  }
  if (missing.empty()) return;
  for (const auto& one : missing) one.rows->drop(one.ring);
  std::vector<Piece> pieces;
  std::vector<size_t> offsets;
  size_t bytes = 0;
  for (const auto& [rows, ring, first, last] : missing) {
    auto& context = *rows->context_;
    const auto& slice = context.model().layout[context.model().slice_of[ring]];
    const size_t each = slice.inner * size_of(slice.type);
    rows->each_piece(ring, first, last, [&](size_t outer, size_t at, size_t end) {
      pieces.push_back({context.ring_row(ring, outer, at), (end - at) * each});
    });
    offsets.push_back(bytes);
    bytes += slice.outer * (last - first) * each;
  }
  const std::shared_ptr<std::byte[]> to(new std::byte[bytes]);
  device->download(to.get(), pieces);
  for (size_t i = 0; i < missing.size(); ++i) {
    const auto& [rows, ring, first, last] = missing[i];
    rows->copies_.push_back({ring, first, last, to, offsets[i]});
  }
}

void HostRows::bring(Name ring, size_t first, size_t last) {
  const Wanted wanted{this, ring, first, last};
  bring({&wanted, 1});
}

void HostRows::put(Name ring, size_t first, size_t last, std::span<const std::byte> rows) {
  const auto& model = context_->model();
  const auto& slice = model.layout[model.slice_of[ring]];
  const size_t each = slice.inner * size_of(slice.type);
  each_piece(ring, first, last, [&](size_t outer, size_t at, size_t end) {
    auto* to = const_cast<std::byte*>(context_->ring_row(ring, outer, at));
    model.device_of(slice).upload(to, rows.data() + (outer * (last - first) + at - first) * each, (end - at) * each);
  });
  drop(ring);
}

const std::byte* HostRows::at(Name ring, size_t outer, size_t position) const {
  const auto copy = std::find_if(copies_.begin(), copies_.end(), [&](const Copy& one) {
    return one.ring == ring && position >= one.first && position < one.last;
  });
  if (copy == copies_.end()) return context_->ring_row(ring, outer, position);
  const auto& model = context_->model();
  const auto& slice = model.layout[model.slice_of[ring]];
  const size_t row = outer * (copy->last - copy->first) + position - copy->first;
  return copy->bytes.get() + copy->offset + row * slice.inner * size_of(slice.type);
}

const std::byte* HostRows::table(Name name) {
  const auto& model = context_->model();
  const auto& slice = model.layout[model.slice_of[name]];
  if (model.device_of(slice).in_host_memory()) return context_->data(name);
  auto& rows = tables_[name];
  rows.resize(slice.elements * size_of(slice.type));
  const Piece all{context_->data(name), rows.size()};
  model.device_of(slice).download(rows.data(), {&all, 1});
  return rows.data();
}

std::vector<HostRows> bring_asked(std::span<const Run> runs) {
  std::vector<HostRows> out;
  for (const auto& run : runs) out.emplace_back(*run.context);
  std::vector<HostRows::Wanted> wanted;
  for (size_t i = 0; i < runs.size(); ++i) {
    auto& context = *runs[i].context;
    // The counters of a context whose step failed may not have moved.
    if (context.broken) continue;
    const auto& names = context.model().graph.memory->names;
    const auto count = static_cast<size_t>(context.counter(names.count));
    for (const Name ring : {names.asked, names.watched})
      if (ring != no_name) wanted.push_back({&out[i], ring, count - runs[i].rows, count});
  }
  HostRows::bring(wanted);
  return out;
}

}  // namespace continuo
