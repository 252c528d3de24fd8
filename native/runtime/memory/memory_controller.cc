#include "runtime/memory/memory_controller.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "base/cast.h"

namespace continuo {

MemoryController::MemoryController(Context& context, ThreadPool& pool, std::vector<MemoryEvent>& events, HostRows rows)
    : context_(context),
      model_(context.model()),
      memory_(*model_.graph.memory),
      names_(memory_.names),
      kernels_(model_.host()),
      pool_(pool),
      work_{kernels_, pool_},
      events_(events),
      payload_(memory_),
      rows_(std::move(rows)) {}

void MemoryController::set(Name name, size_t to) {
  const auto now = counter(name);
  // No item is let in whose tokens would take a counter beyond its bound: Executor::room.
  if (to > now && !context_.raise(name, static_cast<int64_t>(to)))
    throw std::length_error(text("the counter \"", model_.graph.declarations[name].name, "\" cannot be ", to));
  if (to < now) context_.lower(name, static_cast<int64_t>(to));
}

MemoryController::Blocks MemoryController::list_of(Name blocks, Name number) const {
  const auto* all = table<int32_t>(blocks);
  return {all, all + counter(number)};
}

// Places behind the list are 0, so that equal lists are equal bytes.
void MemoryController::set_list(Name blocks, Name number, const Blocks& to) {
  auto* all = table<int32_t>(blocks);
  std::fill_n(all, memory_.most, 0);
  std::copy(to.begin(), to.end(), all);
  set(number, to.size());
}

void MemoryController::bring_window(size_t block) {
  const size_t first = block * memory_.block, last = first + memory_.block;
  const HostRows::Wanted both[] = {{&rows_, names_.window_k, first, last}, {&rows_, names_.window_v, first, last}};
  HostRows::bring(both);
}

// The keys of the block that is closed, for its row of the index, and the block that is archived.
void MemoryController::bring_beat(size_t count) {
  const size_t B = memory_.block, first = counter(names_.archived) * B;
  std::vector<HostRows::Wanted> wanted;
  if (!memory_.qformer) wanted.push_back({&rows_, names_.window_k, count - B, count});
  if (window_full(count))
    for (const Name ring : {names_.window_k, names_.window_v}) wanted.push_back({&rows_, ring, first, first + B});
  HostRows::bring(wanted);
}

const float* MemoryController::window_row(size_t layer, size_t which, size_t position, float* room) const {
  const auto* row = rows_.at(which == 0 ? names_.window_k : names_.window_v, layer, position);
  if (memory_.kept == Type::f32) return reinterpret_cast<const float*>(row);
  cast(row, memory_.kept, reinterpret_cast<std::byte*>(room), Type::f32, memory_.kv());
  return room;
}

MemoryEvent& MemoryController::note(MemoryEvent::Type type) {
  auto& event = events_.emplace_back();
  event.pulse = context_.head.pulse - 1;
  event.type = type;
  return event;
}

// §9.1, §9.2, §7.2: what each token adds.
void MemoryController::take(size_t row, size_t rows, std::span<const float> hidden) {
  const size_t position = counter(names_.count) - rows + row, length = counter(names_.slots) - rows + row + 1;
  const size_t G = memory_.key_heads, d = memory_.channels, shared = memory_.heads / G;
  if (row == 0) {
    for (const Name ring : {names_.asked, names_.watched})
      if (ring != no_name) rows_.bring(ring, position, position + rows);
  }
  auto* query = table<float>(names_.query);
  for (size_t i = 0; i < memory_.index_layers.size(); ++i) {
    const auto* asked = reinterpret_cast<const float*>(rows_.at(names_.asked, i, position));
    for (size_t g = 0; g < G; ++g) {
      for (size_t c = 0; c < d; ++c, ++query) {
        float sum = 0;
        for (size_t h = 0; h < shared; ++h) sum += asked[(g * shared + h) * d + c];
        const float question = sum / static_cast<float>(shared);
        *query = position == 0 ? question : std::fma(question - *query, memory_.query_rate, *query);
      }
    }
  }
  if (names_.watched != no_name) {
    const auto shown = shown_tombstones();
    auto* attention = table<float>(names_.attention);
    for (size_t j = 0; j < shown.size(); ++j) {
      float sum = 0;
      for (size_t l = 0; l < memory_.watched.size(); ++l) {
        const auto* weights = reinterpret_cast<const float*>(rows_.at(names_.watched, l, position));
        float own = 0;
        for (size_t h = 0; h < memory_.heads; ++h) own += weights[h * memory_.tombstones + j];
        sum += own / static_cast<float>(memory_.heads);
      }
      const float share = static_cast<float>(length) * (sum / static_cast<float>(memory_.watched.size()));
      float& e = attention[shown[j]];
      e = std::fma(share - e, memory_.monitor_rate, e);
    }
  }
  auto* topic = table<float>(names_.topic_sum);
  for (size_t i = 0; i < hidden.size(); ++i) topic[i] += hidden[i];
  const size_t place = position % memory_.block;
  if (memory_.trimmer > 0) table<float>(names_.trim_scores)[place] = model_.modules->trim_score(work_, hidden.data());
  if (memory_.qformer)
    std::copy(hidden.begin(), hidden.end(), table<float>(names_.block_hidden) + place * hidden.size());
}

// §6, steps 2 to 7.
void MemoryController::finish(int32_t token) {
  const size_t count = counter(names_.count), B = memory_.block;
  const bool beat = count % B == 0;
  if (beat) {
    bring_beat(count);
    close(count / B - 1);
    while (window_full(count)) archive_block("window");
  }
  if (token == memory_.summarize) {
    note(MemoryEvent::Type::summarize);
    while (count / B - counter(names_.archived) > memory_.summarize_keep) archive_block("summarize");
  }
  if (beat && counter(names_.pending) > 0) {
    const auto blocks = list_of(names_.pending_blocks, names_.pending);
    set_list(names_.pending_blocks, names_.pending, {});
    inject(blocks);
    context_.to_inject = Loan();
  }
  if (token == memory_.retrieve) {
    retrieve_for("token", std::nullopt, std::nullopt);
  } else if (beat) {
    if (const auto tombstone = triggered())
      retrieve_for("tombstone", tombstone, std::nullopt);
    else if (memory_.every > 0 && count % memory_.every == 0)
      retrieve_for("period", std::nullopt, std::nullopt);
  }
}

void MemoryController::archive() {
  const size_t count = counter(names_.count);
  while (count / memory_.block - counter(names_.archived) > memory_.summarize_keep) archive_block("summarize");
}

Status MemoryController::retrieve(std::optional<Blocks> blocks) {
  if (blocks) {
    const size_t archived = counter(names_.archived);
    std::sort(blocks->begin(), blocks->end());
    if (blocks->empty() || blocks->size() > memory_.most)
      return invalid("retrieve names ", blocks->size(), " blocks, expected 1 to ", memory_.most, ".");
    if (std::adjacent_find(blocks->begin(), blocks->end()) != blocks->end())
      return invalid("retrieve names a block twice.");
    for (const int32_t block : {blocks->front(), blocks->back()}) {
      if (block < 0 || static_cast<size_t>(block) >= archived)
        return invalid("retrieve names block ", block, ", expected one of the ", archived,
                       " archived blocks from 0 on.");
    }
  }
  retrieve_for("event", std::nullopt, std::move(blocks));
  return Done{};
}

// Of the state's blocks in which these archived ones lie; several may lie in one.
Loan::Blocks MemoryController::sleepy(const Blocks& blocks) const {
  Loan::Blocks out;
  for (const int32_t block : blocks) {
    const auto at = static_cast<size_t>(block);
    auto bytes = context_.blocks(names_.cold).sleepy(at, at + 1).front();
    if (std::find(out.begin(), out.end(), bytes) == out.end()) out.push_back(std::move(bytes));
  }
  return out;
}

std::shared_ptr<Ticket> MemoryController::prepare() {
  if (context_.list_laid) return nullptr;
  auto wanted = sleepy(list_of(names_.injected_blocks, names_.injected));
  if (context_.to_lay.blocks() != wanted) context_.to_lay = Loan(std::move(wanted));
  if (const auto missing = context_.to_lay.missing(); !missing.empty()) return missing.front();
  lay();
  context_.list_laid = true;
  context_.to_lay = Loan();
  return nullptr;
}

// §7.1
void MemoryController::index_block(size_t block) {
  const size_t B = memory_.block, C = memory_.kv(), number = counter(names_.rows);
  set(names_.rows, number + 1);
  auto* row = reinterpret_cast<float*>(context_.blocks(names_.index).write(0, number));
  set(names_.version, counter(names_.version) + 1);
  if (memory_.qformer) return model_.modules->sum_up(work_, table<float>(names_.block_hidden), row);
  std::vector<float> room(C);
  rows_.bring(names_.window_k, block * B, block * B + B);
  for (const uint32_t layer : memory_.index_layers) {
    for (size_t token = 0; token < B; ++token) {
      const float* key = window_row(layer, 0, block * B + token, room.data());
      for (size_t c = 0; c < C; ++c) row[c] = token == 0 ? 0.0f + key[c] : row[c] + key[c];
    }
    for (size_t c = 0; c < C; ++c) row[c] /= static_cast<float>(B);
    row += C;
  }
}

// §7
void MemoryController::close(size_t block) {
  const size_t B = memory_.block;
  index_block(block);
  const bool fresh = note_topic(block);
  if (memory_.anchors() > 0 && (memory_.trimmed_anchors || fresh)) add_anchor(block, best_tokens(block));
  // What they hold begins anew, so that equal states are equal bytes.
  if (memory_.trimmer > 0) std::fill_n(table<float>(names_.trim_scores), B, 0.0f);
  if (memory_.qformer) std::fill_n(table<float>(names_.block_hidden), B * model_.graph.width(names_.topic_sum), 0.0f);
}

// Offsets in the block of the tokens of its anchor: the first, or those with the largest scores, the earlier of equals.
std::vector<int32_t> MemoryController::best_tokens(size_t block) const {
  const size_t K = memory_.anchor_tokens;
  std::vector<int32_t> out(memory_.block);
  std::iota(out.begin(), out.end(), 0);
  if (memory_.trimmed_anchors) {
    if (block == 0) out.erase(out.begin(), out.begin() + static_cast<ptrdiff_t>(memory_.sinks));
    const auto* scores = table<float>(names_.trim_scores);
    std::stable_sort(out.begin(), out.end(), [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
  }
  out.resize(K);
  std::sort(out.begin(), out.end());
  return out;
}

// §7.2. Whether a topic begins with the block.
bool MemoryController::note_topic(size_t block) {
  const size_t D = model_.graph.width(names_.topic_sum);
  auto *sum = table<float>(names_.topic_sum), *mean = table<float>(names_.topic_mean),
       *spread = table<float>(names_.topic_spread);
  std::vector<float> own(D);
  for (size_t i = 0; i < D; ++i) own[i] = sum[i] / static_cast<float>(memory_.block);
  std::fill_n(sum, D, 0.0f);
  // The first block; of a context that was taken over, the first whose hidden vectors are known.
  if (counter(names_.topic_blocks) == 0) {
    std::copy(own.begin(), own.end(), mean);
    set(names_.topic_blocks, 1);
    return false;
  }
  constexpr float least = 1e-12f;
  const auto length = [&](const float* x) { return std::sqrt(kernels_.dot(x, x, D) + least); };
  const float distance = 1.0f - kernels_.dot(own.data(), mean, D) / (length(own.data()) * length(mean));
  float &mu = spread[0], &variance = spread[1];
  const auto seen = context_.counter(names_.topic_seen), blocks = context_.counter(names_.topic_blocks);
  const bool fresh =
      seen >= memory_.warmup && blocks >= memory_.least_blocks && distance > mu + memory_.gamma * std::sqrt(variance);
  if (seen == 0) {
    mu = distance;
    variance = 0;
  } else {
    const float delta = distance - mu, rate = memory_.segment_rate;
    mu += rate * delta;
    variance = (1.0f - rate) * (variance + rate * (delta * delta));
  }
  set(names_.topic_seen, static_cast<size_t>(seen) + 1);
  if (fresh) {
    std::copy(own.begin(), own.end(), mean);
    auto& event = note(MemoryEvent::Type::segment);
    event.block = static_cast<int64_t>(block);
    event.distance = distance;
  } else {
    for (size_t i = 0; i < D; ++i) mean[i] += (own[i] - mean[i]) / static_cast<float>(blocks + 1);
  }
  set(names_.topic_blocks, fresh ? 1 : static_cast<size_t>(blocks) + 1);
  return fresh;
}

// §7.3
void MemoryController::add_anchor(size_t block, const std::vector<int32_t>& tokens) {
  const size_t K = memory_.anchor_tokens, A = memory_.anchor_entries, each = memory_.layers * K * memory_.kv();
  const size_t bytes = each * size_of(memory_.kept);
  auto *blocks = table<int32_t>(names_.anchor_block), *offsets = table<int32_t>(names_.anchor_offsets);
  std::byte* const kept[] = {context_.data(names_.anchors_k), context_.data(names_.anchors_v)};
  size_t entries = counter(names_.entries);
  if (entries == A) {
    note(MemoryEvent::Type::release).block = blocks[0];
    if (static_cast<size_t>(blocks[0]) < counter(names_.archived)) context_.list_laid = false;
    std::copy(blocks + 1, blocks + A, blocks);
    std::copy(offsets + K, offsets + A * K, offsets);
    for (std::byte* rows : kept) std::memmove(rows, rows + bytes, (A - 1) * bytes);
    --entries;
  }
  blocks[entries] = static_cast<int32_t>(block);
  std::copy(tokens.begin(), tokens.end(), offsets + entries * K);
  // Its keys and values come when the block is archived.
  for (std::byte* rows : kept) std::memset(rows + entries * bytes, 0, bytes);
  set(names_.entries, entries + 1);
}

// §8
void MemoryController::archive_block(std::string_view reason) {
  const size_t block = counter(names_.archived), B = memory_.block;
  set(names_.archived, block + 1);
  bring_window(block);
  std::byte* payload = context_.blocks(names_.cold).write(0, block);
  const auto squares = payload_.encode(static_cast<uint32_t>(block),
                                       [&](size_t layer, size_t which, size_t token, float* room) {
                                         return window_row(layer, which, block * B + token, room);
                                       },
                                       pool_, {payload, payload_.bytes()});
  keep_tokens(block);
  context_.head.chain.archived(block);
  auto& event = note(MemoryEvent::Type::archive);
  event.block = static_cast<int64_t>(block);
  event.reason = reason;
  event.k_norm = std::sqrt(squares.keys);
  event.v_norm = std::sqrt(squares.values);
  if (memory_.tombstones > 0) add_tombstone(block);
  set(names_.version, counter(names_.version) + 1);
  if (memory_.topics) garden(block);
  context_.blocks(names_.cold).note_full(block, block + 1);
  context_.list_laid = false;
}

// The sinks, from the first block, and the tokens of the block's anchor.
void MemoryController::keep_tokens(size_t block) {
  const size_t B = memory_.block, L = memory_.layers, K = memory_.anchor_tokens;
  const size_t bytes = memory_.kv() * size_of(memory_.kept);
  const auto copy = [&](Name to, size_t which, size_t place, size_t layer, size_t token) {
    std::memcpy(context_.data(to) + place * bytes,
                rows_.at(which == 0 ? names_.window_k : names_.window_v, layer, block * B + token), bytes);
  };
  const auto each = [&](const auto& visit) {
    for (size_t which = 0; which < keys_and_values; ++which)
      for (size_t layer = 0; layer < L; ++layer) visit(which, layer);
  };
  if (block == 0) {
    each([&](size_t which, size_t layer) {
      for (size_t token = 0; token < memory_.sinks; ++token)
        copy(which == 0 ? names_.sinks_k : names_.sinks_v, which, layer * memory_.sinks + token, layer, token);
    });
  }
  if (memory_.anchors() == 0) return;
  const auto *blocks = table<int32_t>(names_.anchor_block), *offsets = table<int32_t>(names_.anchor_offsets);
  for (size_t entry = 0; entry < counter(names_.entries); ++entry) {
    if (static_cast<size_t>(blocks[entry]) != block) continue;
    each([&](size_t which, size_t layer) {
      for (size_t k = 0; k < K; ++k)
        copy(which == 0 ? names_.anchors_k : names_.anchors_v, which, (entry * L + layer) * K + k, layer,
             static_cast<size_t>(offsets[entry * K + k]));
    });
  }
}

// §8.2
void MemoryController::add_tombstone(size_t block) {
  const size_t B = memory_.block, L = memory_.layers, C = memory_.kv(), T = memory_.tombstones, each = L * C;
  // The new tombstone: means of the block's keys and values.
  std::vector<float> means[keys_and_values], room(C);
  for (size_t which = 0; which < keys_and_values; ++which) {
    means[which].assign(each, 0.0f);
    for (size_t layer = 0; layer < L; ++layer) {
      float* mean = means[which].data() + layer * C;
      for (size_t token = 0; token < B; ++token) {
        const float* row = window_row(layer, which, block * B + token, room.data());
        for (size_t c = 0; c < C; ++c) mean[c] += row[c];
      }
      for (size_t c = 0; c < C; ++c) mean[c] /= static_cast<float>(B);
    }
  }
  if (model_.modules && model_.modules->has_tombstone_heads())
    model_.modules->add_to_tombstone(work_, index_row(block), means[0].data(), means[1].data());
  size_t tombs = counter(names_.tombs);
  auto* span = table<int32_t>(names_.span);
  auto* attention = table<float>(names_.attention);
  float* const kept[] = {table<float>(names_.tombs_k), table<float>(names_.tombs_v)};
  std::array<int32_t, 2> own{static_cast<int32_t>(block), static_cast<int32_t>(block) + 1};
  float e = 0;
  const bool full = tombs == T;
  if (full) {
    // Of neighbours, the new one behind the last, the pair with the fewest blocks together becomes one.
    const auto end = [&](size_t i) { return i < T ? span[2 * i + 1] : own[1]; };
    const auto begin = [&](size_t i) { return i < T ? span[2 * i] : own[0]; };
    size_t pair = 0;
    for (size_t i = 1; i < T; ++i)
      if (end(i + 1) - begin(i) < end(pair + 1) - begin(pair)) pair = i;
    const auto of = [&](size_t i, size_t which) { return i < T ? kept[which] + i * each : means[which].data(); };
    const auto n = static_cast<float>(end(pair) - begin(pair)), m = static_cast<float>(end(pair + 1) - begin(pair + 1));
    for (size_t which = 0; which < keys_and_values; ++which) {
      float *a = of(pair, which), *b = of(pair + 1, which);
      for (size_t i = 0; i < each; ++i) a[i] = (n * a[i] + m * b[i]) / (n + m);
    }
    attention[pair] = std::max(attention[pair], pair + 1 < T ? attention[pair + 1] : e);
    span[2 * pair + 1] = end(pair + 1);
    if (pair + 1 == T) {
      own = {span[2 * pair], span[2 * pair + 1]};
      e = attention[pair];
      for (size_t which = 0; which < keys_and_values; ++which)
        std::copy_n(kept[which] + pair * each, each, means[which].data());
    } else {
      std::copy(span + 2 * (pair + 2), span + 2 * T, span + 2 * (pair + 1));
      std::copy(attention + pair + 2, attention + T, attention + pair + 1);
      for (float* rows : kept) std::copy(rows + (pair + 2) * each, rows + T * each, rows + (pair + 1) * each);
    }
    --tombs;
  }
  std::copy(own.begin(), own.end(), span + 2 * tombs);
  attention[tombs] = e;
  for (size_t which = 0; which < keys_and_values; ++which)
    std::copy(means[which].begin(), means[which].end(), kept[which] + tombs * each);
  set(names_.tombs, tombs + 1);
  if (!full) return;
  auto& event = note(MemoryEvent::Type::tombstone);
  for (size_t i = 0; i <= tombs; ++i) event.spans.push_back({span[2 * i], span[2 * i + 1]});
}

// Those all of whose blocks are injected are not in the list.
std::vector<size_t> MemoryController::shown_tombstones() const {
  std::vector<size_t> out;
  if (memory_.tombstones == 0) return out;
  const auto injected = list_of(names_.injected_blocks, names_.injected);
  const auto* span = table<int32_t>(names_.span);
  for (size_t i = 0; i < counter(names_.tombs); ++i) {
    const auto here = std::count_if(injected.begin(), injected.end(),
                                    [&](int32_t block) { return block >= span[2 * i] && block < span[2 * i + 1]; });
    if (here < span[2 * i + 1] - span[2 * i]) out.push_back(i);
  }
  return out;
}

}  // namespace continuo
