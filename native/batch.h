// One `process` call: carries many contexts through feeding and generating, a step at a time.
#pragma once

#include <atomic>
#include <vector>

#include "engine.h"

namespace continuo {

// Runs block "predict" over hidden vectors, wherever they lie on the device.
void predict(Executor& executor, std::span<const std::byte* const> hiddens);
// Logits [rows, vocabulary] of its last step, on the host.
const float* predicted(Executor& executor, size_t rows);

class Batch {
 public:
  Batch(Executor& executor, std::vector<Item>& items);
  ~Batch() { let_go(); }

  // Until nothing is left, or `stopping` becomes true.
  Result<std::vector<ItemResult>> run(const std::atomic<bool>& stopping);

 private:
  // An item feeds, then generates, then is done; or it breaks.
  bool unread(size_t i) const { return fed_[i] < items_[i].tokens.size(); }
  bool feeding(size_t i) const { return !results_[i].error && unread(i); }
  bool generating(size_t i) const {
    return !results_[i].error && !unread(i) && results_[i].ended == Ended::not_early && results_[i].generated.size() < items_[i].count;
  }
  bool unfinished() const {
    for (size_t i = 0; i < items_.size(); ++i) {
      if (feeding(i) || generating(i)) return true;
    }
    return false;
  }
  uint32_t step_value(Name name) const { return executor_.model().programs[language_.step].last_value[name]; }
  bool hold(size_t item, size_t rows);
  void let_go();
  void plan_step();
  void sample_next(const std::vector<size_t>& which);
  void inspect();
  void surprisals();
  void advance();
  void broke(size_t item, uint64_t pulse);
  void fail(size_t item, const char* what, uint64_t pulse);

  Executor& executor_;
  const LanguageModel& language_;
  std::vector<Item>& items_;
  std::vector<size_t> fed_;  // tokens of each item
  std::vector<ItemResult> results_;
  std::vector<std::string> culprits_;  // watching: the first node that gave each item a number that is not finite

  // The step in hand: per row its token, per run its item.
  std::vector<int32_t> tokens_;
  std::vector<Run> runs_;
  std::vector<size_t> run_item_;
  std::vector<size_t> held_;  // items whose contexts are held for it
};

}  // namespace continuo
