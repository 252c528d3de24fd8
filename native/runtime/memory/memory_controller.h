// MemoryController: what happens between two tokens of a context with an external memory (graph/external_memory.h). It
// moves blocks of tokens out of the window, remembers what they were about, brings some of them back, and lays the list
// of slots that the next token attends to. docs/infinite-context.md has every formula; §n below are its sections.
//
//   Generating ──a full window, <SUMMARIZE>, archive──▶ Archiving ──▶ as before
//   Generating ──<RETRIEVE>, a tombstone, the period, retrieve──▶ Retrieving ──▶ Generating
//                                                     (with inject_after 1: at the next beat)
//
// All decisions follow from tokens, events and the state, so they are the same however tokens are cut into steps. The
// host computes them, on any device. A *beat* is the time after a token that completes a block.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/threads.h"
#include "runtime/executor/host_rows.h"
#include "runtime/memory/payload.h"
#include "runtime/state/context.h"

namespace continuo {

// What a plain decoder's context has: keys, which are turned by their positions, and values [layers, positions, C], and
// the hidden vector of the last token [D].
struct PlainCache {
  std::vector<float> keys, values, hidden;
};

// What a stream's event asks of the external memory: to archive what the window has, or to bring blocks back; without
// `blocks`, those that the memory's policy chooses.
struct MemoryRequest {
  bool archive = false;
  std::optional<std::vector<int32_t>> blocks = {};
  // No event: a context that has read nothing takes over what a plain one has.
  std::optional<PlainCache> plain = {};
};

// What the controller did, for people.
struct MemoryEvent {
  enum class Type : uint8_t { segment, release, archive, tombstone, summarize, retrieve, inject, node, split, merge };
  uint64_t pulse = 0;  // of the token after which it happened
  Type type{};
  int64_t block = -1;                // segment, release, archive
  std::string_view reason = {};      // archive: window, summarize; retrieve: token, tombstone, period, event
  std::vector<int32_t> blocks = {};  // retrieve, inject; split: those that moved
  std::vector<std::array<int32_t, 2>> spans = {};  // tombstone: all spans; retrieve by a tombstone: its span
  double distance = 0;                             // segment
  double k_norm = 0, v_norm = 0;                   // archive: Frobenius norms of the payload as it is decoded
  uint64_t slots = 0;                              // inject: the list's length then
  int64_t slot = -1, other = -1;  // node: virtual node; split: that, and the new one; merge: into, from
  bool fresh = false;             // node: its virtual node is new
};

class MemoryController {
 public:
  // The context is pinned and claimed while the controller lives.
  MemoryController(Context& context, ThreadPool& pool, std::vector<MemoryEvent>& events)
      : MemoryController(context, pool, events, HostRows(context)) {}
  // `rows`: of the context, with what was brought already.
  MemoryController(Context& context, ThreadPool& pool, std::vector<MemoryEvent>& events, HostRows rows);

  // After a step of `rows` tokens with these hidden vectors [rows, D], of which the last one was `token`. The head
  // counts them: called with row 0 … rows − 1 in order, each after its pulse.
  void take(size_t row, size_t rows, std::span<const float> hidden);
  void finish(int32_t token);
  // The stream's events. `blocks`: those to bring; none: as the policy chooses. INVALID changes nothing.
  void archive();
  Status retrieve(std::optional<std::vector<int32_t>> blocks);
  // Reads what a plain decoder's context has as if its tokens came one by one, but for what needs their hidden vectors:
  // no topic begins. INVALID changes nothing.
  Status take_over(const PlainCache& plain);
  // To be called before a step: lays the list, where it is not what the state says. A ticket: an archived block sleeps
  // that is to be in the list, and this is to be called again when it opens. Else null.
  std::shared_ptr<Ticket> prepare();

 private:
  using Blocks = std::vector<int32_t>;
  enum class Tier : uint8_t { sink, anchor, tombstone, block, window };
  struct Slot {
    Tier tier;
    size_t which;  // sink: token; anchor: entry; tombstone: its number; block: its number; window: position
    size_t token;  // anchor: which of its tokens; block: of the block
  };

  size_t counter(Name name) const { return static_cast<size_t>(context_.counter(name)); }
  void set(Name name, size_t to);
  template <class T> T* table(Name name) const { return reinterpret_cast<T*>(context_.data(name)); }
  Blocks list_of(Name blocks, Name number) const;
  void set_list(Name blocks, Name number, const Blocks& to);
  // The keys and values of a block's tokens in the window, as they lie there.
  void bring_window(size_t block);
  // What a beat reads of the window, with one download.
  void bring_beat(size_t count);
  bool window_full(size_t count) const {
    return count - counter(names_.archived) * memory_.block + memory_.block > memory_.window;
  }
  // The key (0) or value (1) of a token in the window that was brought, as f32, [C] in `room`.
  const float* window_row(size_t layer, size_t which, size_t position, float* room) const;

  // One key [C] of a plain decoder.
  void derotate_kv(const float* turned, size_t position, float* out) const;

  void close(size_t block);
  void index_block(size_t block);
  bool note_topic(size_t block);
  void add_anchor(size_t block, const std::vector<int32_t>& tokens);
  std::vector<int32_t> best_tokens(size_t block) const;
  void archive_block(std::string_view reason);
  void keep_tokens(size_t block);
  void add_tombstone(size_t block);
  std::optional<size_t> triggered() const;
  void retrieve_for(std::string_view reason, std::optional<size_t> tombstone, std::optional<Blocks> given);
  std::vector<float> scores();
  void inject(const Blocks& blocks);
  // What the last token asks, by the projector.
  std::vector<float> question();

  // memory_topics.cc
  struct Node;
  void node_of(const float* row, float* node) const;
  std::vector<float> block_node(size_t block) const;
  std::vector<float> asked_node();
  const float* index_row(size_t block) const;
  // `room` [numbers of a node].
  float squared_distance(const float* a, const float* b, float* room) const;
  size_t member_of(size_t block) const;
  void set_member(size_t block, size_t slot);
  std::optional<size_t> free_slot() const;
  void garden(size_t block);
  void split(size_t slot);
  void merge();
  Blocks walk();

  std::vector<size_t> shown_tombstones() const;
  std::vector<Slot> slots() const;
  void lay();
  ListRow list_row(const Slot& slot, std::vector<ListRows::Source>& sources) const;
  Loan::Blocks sleepy(const Blocks& blocks) const;
  MemoryEvent& note(MemoryEvent::Type type);

  Context& context_;
  const Model& model_;
  const ExternalMemory& memory_;
  const ExternalMemory::Names& names_;
  const HostKernels& kernels_;
  ThreadPool& pool_;
  const HostWork work_;
  std::vector<MemoryEvent>& events_;
  const Payload payload_;
  HostRows rows_;
};

}  // namespace continuo
