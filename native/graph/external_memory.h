// How a decoder keeps its context outside of its attention: a bounded list of slots is attended to, all else lies in
// blocks that left it. The graph's member "memory" says so; docs/infinite-context.md has the formulas.
//
// "memory": memory.json with every member there (blocks, numbers, ids), and beside them
//   "heads", "key_heads": of a layer, and "increments": how pairs of a head's channels turn (op rope)
//
// The state lies in persistents of fixed names (ExternalMemory::Names has them), which the graph declares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/type.h"
#include "graph/names.h"

namespace continuo {

struct Graph;

struct ExternalMemory {
  enum class Policy : uint8_t { recent, similar, graph };
  struct Qformer {
    size_t layers = 0, heads = 0, width = 0, queries = 0;  // heads, F, N
  };
  // The graph of blocks and what they are about.
  struct Topics {
    size_t most_virtual = 0;  // slots of virtual nodes
    float new_distance = 0, least_drift = 0, split_variance = 0, merge_distance = 0;
    size_t split_least = 0, split_iterations = 0, fan = 0, most_hops = 0, walker_width = 0;
  };

  size_t block = 0;                              // B, tokens
  size_t window = 0;                             // M, tokens, a multiple of B
  size_t sinks = 0;                              // S, tokens
  Type kept = Type::f32;                         // of keys and values in window, sinks and anchors
  Type cold = Type::f8;                          // of those in archived blocks
  size_t anchor_tokens = 0, anchor_entries = 0;  // K, A
  bool trimmed_anchors = false;                  // every block leaves its best tokens, not only one that begins a topic
  float gamma = 0, segment_rate = 0;             // of topics
  int64_t warmup = 0, least_blocks = 0;          // of topics, in blocks
  size_t tombstones = 0;                         // T
  std::optional<float> threshold;                // of a tombstone's attention; none: no trigger
  float monitor_rate = 0;
  int64_t cooldown = 0;           // tokens between a retrieval and one that a tombstone triggers
  std::vector<uint32_t> watched;  // layers whose attention to tombstones is measured
  size_t every = 0;               // R, tokens between retrievals; 0: none by itself
  size_t most = 1;                // n, blocks of a retrieval
  Policy policy = Policy::similar;
  bool cosine = false;
  std::vector<uint32_t> index_layers;  // layers whose keys make the index
  float query_rate = 0;
  bool inject_later = false;                   // chosen blocks come at the next beat
  size_t summarize_keep = 0;                   // blocks that a request to archive leaves in the window
  std::optional<int32_t> summarize, retrieve;  // token ids
  size_t trimmer = 0, projector = 0;           // widths of these modules; 0: there is none
  std::optional<Qformer> qformer;
  std::optional<Topics> topics;
  size_t layers = 0, heads = 0, key_heads = 0, channels = 0;  // L, H, G, d
  std::vector<uint32_t> increments;                           // [d / 2]

  // Persistents; no_name where the settings need none.
  struct Names {
    Name count, archived, slots, first_tombstone;
    Name list_k, list_v, window_k, window_v;     // [L, positions, C]
    Name asked, watched;                         // of the tokens of the unfinished block: [Li, ring, H·d], [.., H·T]
    Name sinks_k, sinks_v;                       // [L, S, C]
    Name entries, anchor_block, anchor_offsets;  // counter, [A], [A, K]
    Name anchors_k, anchors_v;                   // [A, L, K, C]
    Name tombs, span, attention;                 // counter, [T, 2], [T]
    Name tombs_k, tombs_v;                       // [T, L, C]
    Name cold;                                   // [archived, bytes of a payload]
    Name rows, index;                            // counter, [rows, Li, G, d]; with a Q-Former [rows, N, F]
    Name injected, injected_blocks;              // counter, [n]
    Name pending, pending_blocks;                // counter, [n]; 0: nothing is pending
    Name query;                                  // [Li, G, d]
    Name topic_sum, topic_mean, topic_spread;    // [D], [D], [2]: mean and variance of distances
    Name topic_blocks, topic_seen;               // counters
    Name last_retrieval, version;                // counters
    Name trim_scores, block_hidden;              // of the tokens of the unfinished block: [B], [B, D]
    Name center, center_count, center_spread;    // of virtual nodes: [V, width], [V], [V]
    Name member;                                 // [archived]: the virtual node of each block
  } names{};

  size_t kv() const { return key_heads * channels; }  // C, numbers of a key or value in one layer
  // Numbers of a row of the index, and of a node's vector.
  size_t row() const { return qformer ? qformer->queries * qformer->width : index_layers.size() * kv(); }
  size_t node() const { return qformer ? qformer->width : row(); }
  size_t anchors() const { return anchor_tokens * anchor_entries; }
  // The longest list.
  size_t most_slots() const { return sinks + anchors() + tombstones + most * block + window; }
  // How many tokens a context can read until there is no place for another block among `blocks` of them.
  uint64_t most_tokens(uint64_t blocks) const { return blocks * block + (block - 1); }
  // The id ends a step.
  bool special(int32_t id) const { return id == summarize || id == retrieve; }
};

// Reads the member "memory" of a graph whose declarations are read, and finds its persistents. The graph's builder has
// judged memory.json (src/models/families/memory-json.ts); here numbers that the engine's sums and sizes rely on are
// checked.
Result<ExternalMemory> read_external_memory(const json::Value& item, const Graph& graph);
// Bytes of one archived block.
size_t payload_bytes(const ExternalMemory& memory);

}  // namespace continuo
