// MemoryController: retrieval (§9), and the list of slots (§5).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/cast.h"
#include "runtime/memory/memory_controller.h"

namespace continuo {

// §9.2: the tombstone that asks for its blocks.
std::optional<size_t> MemoryController::triggered() const {
  if (!memory_.threshold || memory_.tombstones == 0 || counter(names_.tombs) == 0) return std::nullopt;
  const auto* attention = table<float>(names_.attention);
  const auto most = static_cast<size_t>(std::max_element(attention, attention + counter(names_.tombs)) - attention);
  const auto since = context_.counter(names_.count) - context_.counter(names_.last_retrieval);
  if (since < memory_.cooldown || !(attention[most] > *memory_.threshold)) return std::nullopt;
  return most;
}

// §9.3: of each archived block.
std::vector<float> MemoryController::scores() {
  std::vector<float> out(counter(names_.archived));
  const size_t n = memory_.row(), d = memory_.channels, parts = n / d;
  if (memory_.policy == ExternalMemory::Policy::recent) {
    std::iota(out.begin(), out.end(), 0.0f);
    return out;
  }
  // Threads take some blocks each; every score is a sum of its own.
  const auto each_block = [&](const auto& score) {
    constexpr size_t numbers_at_once = 1 << 16;
    const size_t each = std::max<size_t>(1, numbers_at_once / n);
    pool_.parallel_for((out.size() + each - 1) / each, [&](size_t task) {
      for (size_t block = task * each; block < std::min(out.size(), (task + 1) * each); ++block)
        out[block] = score(index_row(block));
    });
  };
  if (memory_.policy == ExternalMemory::Policy::graph) {
    const auto e = asked_node();
    std::vector<float> node(e.size());
    for (size_t block = 0; block < out.size(); ++block) {
      node_of(index_row(block), node.data());
      out[block] = kernels_.dot(e.data(), node.data(), e.size());
    }
    return out;
  }
  if (const auto& q = memory_.qformer) {
    const auto e = question();
    each_block([&](const float* row) {
      float best = kernels_.dot(e.data(), row, q->width);
      for (size_t i = 1; i < q->queries; ++i)
        best = std::max(best, kernels_.dot(e.data(), row + i * q->width, q->width));
      return best;
    });
    return out;
  }
  const auto* query = table<float>(names_.query);
  if (!memory_.cosine) {
    const float scale = static_cast<float>(parts) * std::sqrt(static_cast<float>(d));
    each_block([&](const float* row) { return kernels_.dot(query, row, n) / scale; });
    return out;
  }
  constexpr float least = 1e-12f;
  const auto length = [&](const float* x) { return std::sqrt(kernels_.dot(x, x, d) + least); };
  std::vector<float> asked(parts);
  for (size_t i = 0; i < parts; ++i) asked[i] = length(query + i * d);
  each_block([&](const float* row) {
    float sum = 0;
    for (size_t i = 0; i < parts; ++i)
      sum += kernels_.dot(query + i * d, row + i * d, d) / (asked[i] * length(row + i * d));
    return sum / static_cast<float>(parts);
  });
  return out;
}

// §10.4: by the hidden vector of the token that was fed last.
std::vector<float> MemoryController::question() {
  return model_.modules->question(work_,
                                  reinterpret_cast<const float*>(rows_.table(model_.graph.language->inner_last)));
}

void MemoryController::retrieve_for(std::string_view reason, std::optional<size_t> tombstone,
                                    std::optional<Blocks> given) {
  const size_t archived = counter(names_.archived);
  if (archived == 0) return;
  auto& event = note(MemoryEvent::Type::retrieve);
  event.reason = reason;
  Blocks chosen;
  if (given) {
    chosen = std::move(*given);
  } else if (memory_.policy == ExternalMemory::Policy::graph && !tombstone) {
    chosen = walk();
  } else {
    const auto score = scores();
    // Which blocks come first: those of the span, and by falling score, the later one of equals.
    const auto* span = tombstone ? table<int32_t>(names_.span) + 2 * *tombstone : nullptr;
    if (span) event.spans.push_back({span[0], span[1]});
    const auto inside = [&](int32_t block) { return span && block >= span[0] && block < span[1]; };
    Blocks all(archived);
    std::iota(all.begin(), all.end(), 0);
    const auto most = all.begin() + static_cast<ptrdiff_t>(std::min(memory_.most, archived));
    std::partial_sort(all.begin(), most, all.end(), [&](int32_t a, int32_t b) {
      if (inside(a) != inside(b)) return inside(a);
      const float x = score[static_cast<size_t>(a)], y = score[static_cast<size_t>(b)];
      return x != y ? x > y : a > b;
    });
    chosen.assign(all.begin(), most);
    std::sort(chosen.begin(), chosen.end());
  }
  event.blocks = chosen;
  set(names_.last_retrieval, counter(names_.count));
  if (memory_.tombstones > 0) std::fill_n(table<float>(names_.attention), memory_.tombstones, 0.0f);
  const bool later = memory_.inject_later && reason != "event";
  set_list(names_.pending_blocks, names_.pending, later ? chosen : Blocks{});
  // Those that sleep are brought from now on: while the block's other tokens run, or before the next token.
  context_.to_inject = Loan(later ? sleepy(chosen) : Loan::Blocks{});
  if (!later) inject(chosen);
}

// §9.4
void MemoryController::inject(const Blocks& blocks) {
  if (blocks != list_of(names_.injected_blocks, names_.injected)) context_.list_laid = false;
  set_list(names_.injected_blocks, names_.injected, blocks);
  if (!context_.list_laid) context_.to_lay = Loan(sleepy(blocks));
  context_.head.chain.injected(blocks);
  const size_t length = slots().size();
  auto& event = note(MemoryEvent::Type::inject);
  event.blocks = blocks;
  event.slots = length;
}

// §5: what stands in each slot.
std::vector<MemoryController::Slot> MemoryController::slots() const {
  std::vector<Slot> out;
  const size_t B = memory_.block, archived = counter(names_.archived), count = counter(names_.count);
  const auto injected = list_of(names_.injected_blocks, names_.injected);
  for (size_t token = 0; archived > 0 && token < memory_.sinks; ++token) out.push_back({Tier::sink, token, 0});
  if (memory_.anchors() > 0) {
    const auto* blocks = table<int32_t>(names_.anchor_block);
    for (size_t entry = 0; entry < counter(names_.entries); ++entry) {
      const int32_t block = blocks[entry];
      if (static_cast<size_t>(block) >= archived) continue;
      if (std::find(injected.begin(), injected.end(), block) != injected.end()) continue;
      for (size_t k = 0; k < memory_.anchor_tokens; ++k) out.push_back({Tier::anchor, entry, k});
    }
  }
  for (const size_t i : shown_tombstones()) out.push_back({Tier::tombstone, i, 0});
  for (const int32_t block : injected) {
    for (size_t token = 0; token < B; ++token) {
      if (static_cast<size_t>(block) * B + token >= memory_.sinks)
        out.push_back({Tier::block, static_cast<size_t>(block), token});
    }
  }
  for (size_t position = archived * B; position < count; ++position) out.push_back({Tier::window, position, 0});
  return out;
}

ListRow MemoryController::list_row(const Slot& slot, std::vector<ListRows::Source>& sources) const {
  const size_t L = memory_.layers, C = memory_.kv(), K = memory_.anchor_tokens;
  const auto& [tier, at, token] = slot;
  ListRow row;
  row.type = tier == Tier::tombstone ? Type::f32 : memory_.kept;
  const size_t each = C * size_of(row.type);
  row.from_head = memory_.channels * size_of(row.type);
  // The host has these; rows that follow each other lie in one source for keys and one for values, or in one for both.
  const auto within = [&](size_t which, const std::byte* data, size_t bytes, size_t offset) {
    const auto last = sources.end() - static_cast<ptrdiff_t>(std::min(sources.size(), keys_and_values));
    const auto known = std::find_if(last, sources.end(), [&](const auto& s) { return s.data == data; });
    row.source[which] = static_cast<int32_t>(known - sources.begin());
    if (known == sources.end()) sources.push_back({data, bytes});
    row.from[which] = data + offset;
  };
  // Row `first` of an entry [L, rows of a layer, C] of these tables.
  const auto in_entry = [&](Name keys, Name values, size_t entry, size_t of_layer, size_t first) {
    const size_t bytes = L * of_layer * each;
    for (size_t which = 0; which < keys_and_values; ++which)
      within(which, context_.data(which == 0 ? keys : values) + entry * bytes, bytes, first * each);
    row.from_layer = of_layer * each;
  };
  switch (tier) {
    case Tier::sink: in_entry(names_.sinks_k, names_.sinks_v, 0, memory_.sinks, at); break;
    case Tier::anchor: in_entry(names_.anchors_k, names_.anchors_v, at, K, token); break;
    case Tier::tombstone: in_entry(names_.tombs_k, names_.tombs_v, at, 1, 0); break;
    case Tier::block: {
      const std::byte* payload = context_.blocks(names_.cold).read(0, at);
      row = payload_.row(payload, token);
      for (size_t which = 0; which < keys_and_values; ++which)
        within(which, payload, payload_.bytes(), static_cast<size_t>(row.from[which] - payload));
      break;
    }
    case Tier::window:
      row.from[0] = context_.ring_row(names_.window_k, 0, at);
      row.from[1] = context_.ring_row(names_.window_v, 0, at);
      if (L > 1) row.from_layer = static_cast<size_t>(context_.ring_row(names_.window_k, 1, at) - row.from[0]);
  }
  return row;
}

void MemoryController::lay() {
  const auto all = slots();
  set(names_.slots, all.size());
  if (names_.first_tombstone != no_name) {
    const auto first =
        std::find_if(all.begin(), all.end(), [](const Slot& slot) { return slot.tier == Tier::tombstone; });
    set(names_.first_tombstone, static_cast<size_t>(first - all.begin()));
  }
  BlockTable* const lists[] = {&context_.blocks(names_.list_k), &context_.blocks(names_.list_v)};
  std::vector<ListRow> rows;
  std::vector<ListRows::Source> sources;
  for (size_t s = 0; s < all.size(); ++s) {
    auto& row = rows.emplace_back(list_row(all[s], sources));
    // Blocks that forks share are copied by the first write.
    for (size_t which = 0; which < keys_and_values; ++which) row.to[which] = lists[which]->write(0, s);
    if (memory_.layers > 1) row.to_layer = static_cast<size_t>(lists[0]->write(1, s) - row.to[0]);
  }
  model_.device->lay({rows, sources, memory_.layers, memory_.key_heads, memory_.channels, memory_.increments}, pool_);
}

}  // namespace continuo
