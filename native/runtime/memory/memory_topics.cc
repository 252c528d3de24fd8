// MemoryController: the graph of blocks (real nodes) and of what they are about (virtual nodes), §11. The gardener puts
// each archived block under a virtual node, and splits and merges those; the walker goes from node to node to the
// blocks that a retrieval brings back.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/memory/memory_controller.h"

namespace continuo {

struct MemoryController::Node {
  bool is_virtual;
  size_t at;  // slot of a virtual node, or number of a block
  std::vector<float> x;
};

// §11.1: from a row of the index, or from the query that has the form of one.
void MemoryController::node_of(const float* row, float* node) const {
  const size_t width = memory_.node();
  if (const auto& q = memory_.qformer) {
    for (size_t i = 0; i < width; ++i) {
      float sum = 0;
      for (size_t j = 0; j < q->queries; ++j) sum += row[j * width + i];
      node[i] = sum / static_cast<float>(q->queries);
    }
    kernels_.unit(node, node, 1, width, 1, unit_eps);
    return;
  }
  const size_t parts = width / memory_.channels;
  kernels_.unit(row, node, 1, width, parts, unit_eps);
  for (size_t i = 0; i < width; ++i) node[i] /= std::sqrt(static_cast<float>(parts));
}

const float* MemoryController::index_row(size_t block) const {
  return reinterpret_cast<const float*>(context_.blocks(names_.index).read(0, block));
}

std::vector<float> MemoryController::block_node(size_t block) const {
  std::vector<float> out(memory_.node());
  node_of(index_row(block), out.data());
  return out;
}

std::vector<float> MemoryController::asked_node() {
  if (memory_.qformer) return question();
  std::vector<float> out(memory_.node());
  node_of(table<float>(names_.query), out.data());
  return out;
}

float MemoryController::squared_distance(const float* a, const float* b, float* room) const {
  const size_t width = memory_.node();
  for (size_t i = 0; i < width; ++i) room[i] = a[i] - b[i];
  return kernels_.dot(room, room, width);
}

size_t MemoryController::member_of(size_t block) const {
  return static_cast<size_t>(*reinterpret_cast<const int32_t*>(context_.blocks(names_.member).read(0, block)));
}

void MemoryController::set_member(size_t block, size_t slot) {
  *reinterpret_cast<int32_t*>(context_.blocks(names_.member).write(0, block)) = static_cast<int32_t>(slot);
}

std::optional<size_t> MemoryController::free_slot() const {
  const auto* n = table<int32_t>(names_.center_count);
  for (size_t slot = 0; slot < memory_.topics->most_virtual; ++slot) {
    if (n[slot] == 0) return slot;
  }
  return std::nullopt;
}

// §11.2, for the block that was just archived.
void MemoryController::garden(size_t block) {
  const auto& topics = *memory_.topics;
  const size_t width = memory_.node();
  auto *centers = table<float>(names_.center), *spread = table<float>(names_.center_spread);
  auto* n = table<int32_t>(names_.center_count);
  const auto x = block_node(block);
  std::vector<float> room(width);
  std::optional<size_t> nearest;
  float least = 0;
  for (size_t slot = 0; slot < topics.most_virtual; ++slot) {
    if (n[slot] == 0) continue;
    const float distance = squared_distance(x.data(), centers + slot * width, room.data());
    if (!nearest || distance < least) nearest = slot, least = distance;
  }
  const auto free = free_slot();
  const bool fresh = !nearest || (least > topics.new_distance && free);
  const size_t slot = fresh ? *free : *nearest;
  float* center = centers + slot * width;
  if (fresh) {
    std::copy(x.begin(), x.end(), center);
    n[slot] = 1;
    spread[slot] = 0;
  } else {
    n[slot] += 1;
    const float rate = std::max(1.0f / static_cast<float>(n[slot]), topics.least_drift);
    for (size_t i = 0; i < width; ++i) center[i] += rate * (x[i] - center[i]);
    spread[slot] = (1.0f - rate) * (spread[slot] + rate * least);
  }
  set_member(block, slot);
  auto& event = note(MemoryEvent::Type::node);
  event.block = static_cast<int64_t>(block);
  event.slot = static_cast<int64_t>(slot);
  event.fresh = fresh;
  if (!fresh) split(slot);
  merge();
}

void MemoryController::split(size_t slot) {
  const auto& topics = *memory_.topics;
  const size_t width = memory_.node();
  auto *centers = table<float>(names_.center), *spread = table<float>(names_.center_spread);
  auto* n = table<int32_t>(names_.center_count);
  const auto other = free_slot();
  if (static_cast<size_t>(n[slot]) < topics.split_least || !(spread[slot] > topics.split_variance) || !other) return;
  std::vector<size_t> members;
  std::vector<std::vector<float>> nodes;
  for (size_t block = 0; block < counter(names_.archived); ++block) {
    if (member_of(block) != slot) continue;
    members.push_back(block);
    nodes.push_back(block_node(block));
  }
  std::vector<float> room(width);
  const auto farthest = [&](const float* from) {
    size_t best = 0;
    float most = -1;
    for (size_t i = 0; i < nodes.size(); ++i) {
      const float distance = squared_distance(nodes[i].data(), from, room.data());
      if (distance > most) best = i, most = distance;
    }
    return best;
  };
  const size_t a = farthest(centers + slot * width), z = farthest(nodes[a].data());
  std::vector<float> sides[2] = {nodes[a], nodes[z]};
  std::vector<uint8_t> side(members.size());
  size_t sizes[2] = {};
  for (size_t turn = 0; turn < topics.split_iterations; ++turn) {
    std::vector<float> sums[2] = {std::vector<float>(width, 0.0f), std::vector<float>(width, 0.0f)};
    sizes[0] = sizes[1] = 0;
    for (size_t i = 0; i < nodes.size(); ++i) {
      const float first = squared_distance(nodes[i].data(), sides[0].data(), room.data());
      const float second = squared_distance(nodes[i].data(), sides[1].data(), room.data());
      side[i] = first <= second ? 0 : 1;
      ++sizes[side[i]];
      for (size_t c = 0; c < width; ++c) sums[side[i]][c] += nodes[i][c];
    }
    for (uint8_t which = 0; which < 2; ++which) {
      for (size_t c = 0; c < width && sizes[which] > 0; ++c)
        sides[which][c] = sums[which][c] / static_cast<float>(sizes[which]);
    }
  }
  if (sizes[0] == 0 || sizes[1] == 0) return;
  const size_t slots[2] = {slot, *other};
  auto& event = note(MemoryEvent::Type::split);
  event.slot = static_cast<int64_t>(slot);
  event.other = static_cast<int64_t>(*other);
  for (uint8_t which = 0; which < 2; ++which) {
    std::copy(sides[which].begin(), sides[which].end(), centers + slots[which] * width);
    n[slots[which]] = static_cast<int32_t>(sizes[which]);
    float sum = 0;
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (side[i] != which) continue;
      sum += squared_distance(nodes[i].data(), sides[which].data(), room.data());
      set_member(members[i], slots[which]);
      if (which == 1) event.blocks.push_back(static_cast<int32_t>(members[i]));
    }
    spread[slots[which]] = sum / static_cast<float>(sizes[which]);
  }
}

void MemoryController::merge() {
  const size_t width = memory_.node(), V = memory_.topics->most_virtual;
  auto *centers = table<float>(names_.center), *spread = table<float>(names_.center_spread);
  auto* n = table<int32_t>(names_.center_count);
  std::vector<size_t> active;
  for (size_t slot = 0; slot < V; ++slot) {
    if (n[slot] > 0) active.push_back(slot);
  }
  if (active.size() < 2) return;
  // Of each active node the nearest one behind it, the first of equals; then the nearest of these pairs, likewise.
  struct Pair {
    size_t to = 0;
    float distance = 0;
  };
  std::vector<Pair> pairs(active.size() - 1);
  std::vector<float> rooms(pairs.size() * width);
  pool_.parallel_for(pairs.size(), [&](size_t a) {
    for (size_t b = a + 1; b < active.size(); ++b) {
      const float distance =
          squared_distance(centers + active[a] * width, centers + active[b] * width, rooms.data() + a * width);
      if (b == a + 1 || distance < pairs[a].distance) pairs[a] = {active[b], distance};
    }
  });
  const auto nearest = std::min_element(pairs.begin(), pairs.end(),
                                        [](const Pair& a, const Pair& b) { return a.distance < b.distance; });
  const float least = nearest->distance;
  if (!(least < memory_.topics->merge_distance)) return;
  const size_t i = active[static_cast<size_t>(nearest - pairs.begin())], j = nearest->to;
  const auto a = static_cast<float>(n[i]), b = static_cast<float>(n[j]), all = a + b;
  for (size_t c = 0; c < width; ++c) {
    float& center = centers[i * width + c];
    center = (a * center + b * centers[j * width + c]) / all;
    centers[j * width + c] = 0;
  }
  spread[i] = (a * spread[i] + b * spread[j]) / all + a * b / (all * all) * least;
  n[i] += n[j];
  n[j] = 0;
  spread[j] = 0;
  for (size_t block = 0; block < counter(names_.archived); ++block) {
    if (member_of(block) == j) set_member(block, i);
  }
  auto& event = note(MemoryEvent::Type::merge);
  event.slot = static_cast<int64_t>(i);
  event.other = static_cast<int64_t>(j);
}

// §11.3
MemoryController::Blocks MemoryController::walk() {
  const auto& topics = *memory_.topics;
  const size_t width = memory_.node(), archived = counter(names_.archived);
  const auto* n = table<int32_t>(names_.center_count);
  const auto question = asked_node();
  const auto dot = [&](const std::vector<float>& a, const std::vector<float>& b) {
    return kernels_.dot(a.data(), b.data(), width);
  };
  const auto topic = [&](size_t slot) {
    Node node{true, slot, std::vector<float>(width)};
    kernels_.unit(table<float>(names_.center) + slot * width, node.x.data(), 1, width, 1, unit_eps);
    return node;
  };
  std::optional<Node> here;
  float best = 0;
  for (size_t slot = 0; slot < topics.most_virtual; ++slot) {
    if (n[slot] == 0) continue;
    auto node = topic(slot);
    const float score = dot(question, node.x);
    if (!here || score > best) here = std::move(node), best = score;
  }
  Blocks collected;
  const auto taken = [&](size_t block) {
    return std::find(collected.begin(), collected.end(), static_cast<int32_t>(block)) != collected.end();
  };
  std::vector<float> node(width);
  for (size_t hop = 0; here && hop < topics.most_hops && collected.size() < memory_.most; ++hop) {
    std::vector<Node> next;
    if (here->is_virtual) {
      std::vector<std::pair<float, size_t>> members;
      for (size_t block = 0; block < archived; ++block) {
        if (member_of(block) != here->at || taken(block)) continue;
        node_of(index_row(block), node.data());
        members.emplace_back(dot(question, node), block);
      }
      std::sort(members.begin(), members.end(), [](const auto& a, const auto& b) {
        return a.first != b.first ? a.first > b.first : a.second > b.second;
      });
      members.resize(std::min(members.size(), topics.fan));
      for (const auto& [score, block] : members) next.push_back({false, block, block_node(block)});
    } else {
      for (const int step : {-1, 1}) {
        const auto block = static_cast<int64_t>(here->at) + step;
        if (block < 0 || static_cast<size_t>(block) >= archived || taken(static_cast<size_t>(block))) continue;
        next.push_back({false, static_cast<size_t>(block), block_node(static_cast<size_t>(block))});
      }
      next.push_back(topic(member_of(here->at)));
    }
    const bool may_stop = !collected.empty();
    if (may_stop) next.insert(next.begin(), *here);
    if (next.empty()) break;
    size_t chosen = 0;
    for (size_t i = 0; i < next.size(); ++i) {
      const auto& to = next[i];
      const bool stop = may_stop && i == 0;
      const bool along = !stop && !here->is_virtual && !to.is_virtual;
      const float features[MemoryModules::walker_inputs] = {
          dot(question, here->x),
          dot(question, to.x),
          dot(here->x, to.x),
          here->is_virtual ? 1.0f : 0.0f,
          to.is_virtual ? 1.0f : 0.0f,
          along ? (to.at > here->at ? 1.0f : -1.0f) : 0.0f,
          static_cast<float>(hop) / static_cast<float>(topics.most_hops),
          static_cast<float>(collected.size()) / static_cast<float>(memory_.most),
          stop ? 1.0f : 0.0f,
      };
      const float score = model_.modules->walk_score(work_, features);
      if (i == 0 || score > best) chosen = i, best = score;
    }
    if (may_stop && chosen == 0) break;
    here = std::move(next[chosen]);
    if (!here->is_virtual) collected.push_back(static_cast<int32_t>(here->at));
  }
  std::sort(collected.begin(), collected.end());
  return collected;
}

}  // namespace continuo
