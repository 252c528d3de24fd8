// Scheduler: all items that an engine has at one time, carried through feeding and generating a step at a time.
//
//   admit ──▶ reading ──▶ generating ──▶ done
//                │             │
//                └──── or it breaks ────▶ done
//
// Items come and go between steps. A step has one row for each generating item; where there are more of them than rows,
// the items that came first have one. Items that read share the rows that are left, in turn (pace.h decides how many).
// A row whose context waits for a ticket, or for room on the device, stays out of the step, and the others go on. Each
// item is answered when it is done, whatever the others do.
#pragma once

#include <list>
#include <vector>

#include "runtime/executor.h"
#include "runtime/pace.h"
#include "runtime/work.h"

namespace continuo {

// Runs block "predict" over hidden vectors, wherever they lie on the device.
void predict(Executor& executor, std::span<const std::byte* const> hiddens);
// Logits [rows, vocabulary] of its last step, on the host.
const float* predicted(Executor& executor, size_t rows);

class Scheduler {
 public:
  using Answer = std::function<void(ItemResult)>;
  // `wake` is called, from any thread, when an item that waits for a ticket may go on.
  Scheduler(double step_target, std::function<void()> wake) : pace_(step_target), wake_(std::move(wake)) {}

  // Takes an item whose context is claimed; the claim ends when it is answered.
  void admit(Item item, Answer answer);
  bool empty() const { return reading_.empty() && generating_.empty(); }
  const Counts& counts() const { return counts_; }
  // Whether a step would have a row.
  bool runnable() const;
  // Until when a step should wait for items that are expected at once; nothing: it should not.
  std::optional<Pace::Time> wait_until();
  // One step, after which those that are done are answered.
  void step(Executor& executor);
  // Answers everybody with this error. Contexts of items that were in a step are unusable afterwards where `broken`.
  void fail_all(const Error& error, bool broken);
  // A step failed as a whole: answers those that it carried.
  void fail_step(const Error& error);

 private:
  struct Work {
    Item item;
    Answer answer;
    ItemResult result = {};
    size_t fed = 0;                     // tokens
    std::string first_non_finite = {};  // watching: the first node that gave a number that is not finite
    std::shared_ptr<Ticket> ticket = {};
    size_t passed_over = 0;  // steps that had no room for its context
    size_t owed = 0;         // surprisals that are not known yet
    bool checked = false;    // what it wrote was looked at for numbers that are not finite
    Context& context() const { return *item.context; }
    bool unread() const { return fed < item.tokens.size(); }
    bool reading() const { return !result.error && unread(); }
    bool generating() const {
      return !result.error && !unread() && result.ended == Ended::not_early && result.generated.size() < item.count;
    }
    bool ended() const { return owed == 0 && !reading() && !generating(); }
    bool parked() const { return ticket && !ticket->ready(); }
  };
  using Works = std::list<Work>;

  uint32_t step_value(Executor& executor, Name name) const;
  bool pin(Executor& executor, Work& work, size_t rows);
  void unpin();
  void plan(Executor& executor);
  void predict_next(Executor& executor, const std::vector<Work*>& which);
  void sample_next(Executor& executor, std::span<Work* const> which);
  void share(Executor& executor, size_t readers, size_t rows);
  bool read(Executor& executor, Work& work, size_t rows);
  void inspect(Executor& executor);
  void owe_surprisals(Executor& executor);
  void advance(Executor& executor);
  void retire();
  void check(Work& work);
  void answer(Works& works, Works::iterator work);
  static void deliver(Work over);
  void fail_state(Work& work, uint64_t pulse);
  void fail_item(Work& work, const char* what, uint64_t pulse);

  Counts counts_;
  Pace pace_;
  std::function<void()> wake_;
  Works reading_;     // whose turn it is first comes first
  Works generating_;  // in the order of arrival

  // The step in hand: per row its token, per run its item.
  std::vector<int32_t> tokens_;
  std::vector<Run> runs_;
  std::vector<Work*> run_work_;
  std::vector<Work*> held_;  // items whose contexts are held for it

  // A surprisal of the last step that was not computed yet: the next step's draws need the output projection too, and
  // they share passes over its weights.
  struct Owed {
    Work* work;
    size_t token;  // of the item
    int32_t expected;
    uint64_t pulse;
    const std::byte* hidden;  // of the token before; where the last step left it
  };
  std::vector<Owed> owed_;
};

}  // namespace continuo
