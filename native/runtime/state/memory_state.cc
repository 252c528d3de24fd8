#include "runtime/state/memory_state.h"

#include <cstring>

namespace continuo {

namespace {

class MemoryState {
 public:
  MemoryState(const Model& model, std::span<const int64_t> counters, std::span<const std::byte* const> tables)
      : model_(model), memory_(*model.graph.memory), names_(memory_.names), counters_(counters), tables_(tables) {}

  Status check() {
    check_counters();
    if (!error_) {
      ascending(names_.injected_blocks, counter(names_.injected), counter(names_.archived));
      ascending(names_.pending_blocks, counter(names_.pending), counter(names_.archived));
    }
    if (!error_ && memory_.anchors() > 0) check_anchors();
    if (!error_ && memory_.tombstones > 0) check_tombstones();
    if (!error_ && memory_.topics) check_topics();
    if (error_) return *error_;
    return Done{};
  }

 private:
  int64_t counter(Name name) const { return counters_[model_.slice_of[name]]; }

  template <class... Parts> void refuse(Name name, const Parts&... parts) {
    if (!error_)
      error_ = invalid("the state's \"", model_.graph.declarations[name].name, "\" ", parts...,
                       ": the snapshot is damaged.");
  }

  std::vector<int32_t> numbers(Name name, size_t count) const {
    std::vector<int32_t> out(count);
    if (count > 0) std::memcpy(out.data(), tables_[model_.slice_of[name]], count * sizeof(int32_t));
    return out;
  }

  void check_counters() {
    const int64_t B = static_cast<int64_t>(memory_.block), count = counter(names_.count);
    const int64_t closed = counter(names_.rows), archived = counter(names_.archived);
    if (closed != count / B)
      return refuse(names_.rows, "is ", closed, ", expected ", count / B, ": the whole blocks of its ", count,
                    " tokens");
    if (archived > closed)
      return refuse(names_.archived, "is ", archived, ", expected at most the ", closed, " whole blocks");
    if (count - archived * B > static_cast<int64_t>(memory_.window))
      return refuse(names_.archived, "is ", archived, ", which leaves ", count - archived * B,
                    " tokens in a window of ", memory_.window);
    if (counter(names_.version) != closed + archived)
      return refuse(names_.version, "is ", counter(names_.version), ", expected ", closed + archived);
    if (counter(names_.last_retrieval) > count)
      return refuse(names_.last_retrieval, "is ", counter(names_.last_retrieval), ", expected at most the ", count,
                    " tokens");
  }

  // Numbers that ascend from `least` on, below `bound`.
  void ascending(Name name, int64_t length, int64_t bound) {
    int64_t least = 0;
    for (const int32_t number : numbers(name, static_cast<size_t>(length))) {
      if (number < least || number >= bound)
        return refuse(name, "names ", number, ", expected ascending numbers from ", least, " to ", bound - 1);
      least = int64_t{number} + 1;
    }
  }

  void check_anchors() {
    const auto entries = static_cast<size_t>(counter(names_.entries));
    ascending(names_.anchor_block, counter(names_.entries), counter(names_.rows));
    const size_t K = memory_.anchor_tokens;
    const auto offsets = numbers(names_.anchor_offsets, entries * K);
    for (size_t i = 0; i < offsets.size() && !error_; ++i) {
      const int32_t least = i % K == 0 ? 0 : offsets[i - 1] + 1;
      if (offsets[i] < least || static_cast<size_t>(offsets[i]) >= memory_.block)
        refuse(names_.anchor_offsets, "has the offset ", offsets[i], ", expected ascending ones from ", least, " to ",
               memory_.block - 1);
    }
  }

  void check_tombstones() {
    const int64_t archived = counter(names_.archived), tombs = counter(names_.tombs);
    if (tombs != std::min(archived, static_cast<int64_t>(memory_.tombstones)))
      return refuse(names_.tombs, "is ", tombs, ", expected ",
                    std::min(archived, static_cast<int64_t>(memory_.tombstones)));
    int64_t at = 0;
    const auto spans = numbers(names_.span, 2 * static_cast<size_t>(tombs));
    for (size_t i = 0; i < spans.size(); i += 2) {
      if (spans[i] != at || spans[i + 1] <= at)
        return refuse(names_.span, "has the blocks ", spans[i], " to ", spans[i + 1] - 1, ", expected some from ", at,
                      " on");
      at = spans[i + 1];
    }
    if (at != archived) refuse(names_.span, "ends before block ", at, ", expected ", archived);
  }

  void check_topics() {
    const size_t V = memory_.topics->most_virtual;
    std::vector<int64_t> members(V, 0);
    for (const int32_t topic : numbers(names_.member, static_cast<size_t>(counter(names_.archived)))) {
      if (topic < 0 || static_cast<size_t>(topic) >= V)
        return refuse(names_.member, "names the topic ", topic, ", expected 0 to ", V - 1);
      ++members[static_cast<size_t>(topic)];
    }
    const auto sizes = numbers(names_.center_count, V);
    for (size_t topic = 0; topic < V; ++topic) {
      if (sizes[topic] != members[topic])
        return refuse(names_.center_count, "says that topic ", topic, " has ", sizes[topic], " blocks, expected ",
                      members[topic]);
    }
  }

  const Model& model_;
  const ExternalMemory& memory_;
  const ExternalMemory::Names& names_;
  const std::span<const int64_t> counters_;
  const std::span<const std::byte* const> tables_;
  std::optional<Error> error_;
};

}  // namespace

Status check_memory_state(const Model& model, std::span<const int64_t> counters,
                          std::span<const std::byte* const> tables) {
  return MemoryState(model, counters, tables).check();
}

}  // namespace continuo
