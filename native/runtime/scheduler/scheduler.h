// Scheduler: feeds and generates all items that an engine has at one time, step by step.
//
//   admit ──▶ reading ──▶ generating ──▶ done
//                │             │
//                └─ state or item fails ─▶ done
//
// Items enter and leave between steps. A step has one row for each generating item; where there are more such items
// than rows, the oldest items get one. Reading items take turns at the remaining rows (pace.h decides how many rows,
// read_turns.h whose turn it is).
// An item whose context waits for a ticket, or for room on the device, stays out of the step; the other items run. So
// does one whose run left a step in its middle, for want of experts (Executor::pass).
// A generating item may have further rows, with guesses of the tokens that it will draw next (drafts.h). Behind the
// step, what it draws from each row decides whether the next row stays (judge): so results are those without guesses.
// Each item is answered when it is done, independently of the others.
#pragma once

#include <cstdint>
#include <list>
#include <unordered_map>
#include <vector>

#include "runtime/drafts/drafts.h"
#include "runtime/executor/executor.h"
#include "runtime/model/ticket.h"
#include "runtime/scheduler/pace.h"
#include "runtime/scheduler/read_turns.h"
#include "runtime/scheduler/work.h"

namespace continuo {

class Scheduler {
 public:
  using Answer = std::function<void(ItemResult)>;
  // `wake` is called, from any thread, when the ticket of a waiting item opens. `rest` returns after it was called;
  // false where the caller has something else to do than steps.
  Scheduler(double step_target, std::function<void()> wake, std::function<bool()> rest)
      : pace_(step_target), wake_(std::move(wake)), rest_(std::move(rest)) {}

  // Takes an item whose context is claimed, and that was submitted then. The claim ends when the item is answered.
  void admit(Item item, Answer answer, Pace::Time submitted = Pace::Clock::now());
  bool empty() const { return reading_.empty() && generating_.empty(); }
  const Counts& counts() const { return counts_; }
  // From the next step on.
  void speculate(const DraftOptions& options) { drafts_.set(options); }
  void speculate(std::unique_ptr<DraftModel> model) { drafts_.set(std::move(model)); }
  // Whether a step would have anything to compute.
  bool runnable() const;
  // The time until which the next step should wait for items that are expected at once; none: it should not wait.
  std::optional<Pace::Time> wait_until();
  // Runs one step, then answers the items that are done.
  void step(Executor& executor);
  // Answers every item with this error. Where `broken`, their contexts are unusable until reset or restored.
  void fail_all(const Error& error, bool broken);
  // After a step that failed as a whole: answers the items of that step with this error; their contexts are unusable.
  void fail_step(const Error& error);

 private:
  // A row that a step computed ahead of what the session had asked for by then. It happens if the session draws its
  // token: then without a pass over the weights.
  struct Coming {
    int32_t token;
    std::vector<float> hidden;  // [channels]
    std::vector<float> logits;  // [vocabulary], behind it
    Executor::Walk walk;
  };
  // An item on its way.
  struct Work {
    Item item;
    Answer answer;
    ItemResult result = {};
    size_t fed = 0;                     // of item.tokens: how many are fed
    std::string first_non_finite = {};  // with ExecutorOptions::watch: the first node that gave a non-finite number
    std::shared_ptr<Ticket> ticket = {};
    std::shared_ptr<Adapting> adapting = {};     // on its way
    std::vector<Coming> coming = {};             // rows behind the token that is drawn next
    std::optional<Pace::Time> waits_since = {};  // for archived blocks of its context
    std::vector<int32_t> stepping = {};  // tokens of its run in the middle of a step, or of its parked run; else none
    size_t passed_over = 0;              // steps in a row that left it out, for want of rows or of room for its context
    size_t owed = 0;                     // surprisals still to be computed (see Owed)
    bool message = false;                // short, to a context that usually generates as soon as it has read
    bool served = false;                 // its request was carried out
    bool checked = false;                // its state was checked for non-finite numbers after its last token
    Context& context() const { return *item.context; }
    bool midway() const { return !stepping.empty(); }
    bool unread() const { return fed < item.tokens.size(); }
    bool reading() const { return !result.error && !midway() && unread(); }
    bool generating() const {
      return !result.error && !midway() && !unread() && result.ended == Ended::not_early &&
             result.generated.size() < item.count;
    }
    bool requested() const { return !result.error && item.request && !served; }
    bool ended() const { return !midway() && owed == 0 && !reading() && !generating() && !requested(); }
    bool parked() const { return ticket && !ticket->ready(); }
  };
  using Works = std::list<Work>;

  uint32_t step_value(Executor& executor, Name name) const;
  bool pin(Executor& executor, Work& work, size_t rows, bool to_step = true);
  // Leaves the item out of steps until the ticket opens. False.
  bool park(Work& work, std::shared_ptr<Ticket> ticket);
  void end_wait(Work& work);
  void unpin();
  void serve(Executor& executor);
  void adapt(Executor& executor, Work& work, const AdaptRequest& request);
  std::vector<float> fetch_inner(Executor& executor);
  void remember(Executor& executor, Work& work, const Run& run, const float* inner, HostRows rows);
  void plan(Executor& executor);
  void run(Executor& executor);
  void predict_next(Executor& executor, std::vector<Work*> which);
  void sample_next(Executor& executor, std::span<Work* const> which, std::span<const float* const> logits);
  void lay_drawn(Executor& executor);
  size_t draft_room(Executor& executor, Work& work, int32_t token) const;
  void judge(Executor& executor);
  void judge_runs(Executor& executor, std::span<const size_t> runs, size_t rows);
  void enter(Item item, Answer answer);
  void share(Executor& executor, const Work* served, size_t rows);
  void order_readers();
  size_t messages();
  bool read(Executor& executor, Work& work, size_t rows);
  void inspect(Executor& executor);
  void owe_surprisals(Executor& executor);
  void advance(Executor& executor);
  void note_routes(Executor& executor);
  void retire();
  void check(Work& work);
  void answer(Works& works, Works::iterator work);
  static void deliver(Work over);
  void fail_state(Work& work, uint64_t pulse);
  void fail_item(Work& work, const char* what, uint64_t pulse);

  Counts counts_;
  Pace pace_;
  std::function<void()> wake_;
  std::function<bool()> rest_;
  AdaptThreads adapt_threads_;
  Works reading_;  // by their contexts' places: the item at the front has the next turn (read_turns.h)
  ReadTurns turns_;
  Works generating_;  // in order of arrival

  // The current step.
  std::vector<int32_t> tokens_;                   // [rows]
  std::vector<Run> runs_;                         // [runs]; together they cover the rows that were not taken back
  std::vector<Work*> run_work_;                   // [runs]: the item of each run
  std::vector<Work*> pinned_;                     // items whose contexts are pinned for this step
  size_t read_beside_ = 0;                        // rows of reading items in the step before
  std::vector<Work*> followed_;                   // items that draw once more: their token needed no row
  std::vector<std::pair<Work*, int32_t>> drawn_;  // what generating items drew, each to be fed

  Drafts drafts_;
  // What a step computed behind the last token of a context, while it judged drafts.
  struct Ahead {
    uint64_t pulse = 0;
    Chain chain = {};
    std::vector<float> logits = {};  // [vocabulary], of the token that follows; empty: nothing
    std::vector<Coming> coming = {};
    size_t bytes() const;
  };
  std::unordered_map<const Context*, Ahead> ahead_;
  size_t ahead_bytes_ = 0;
  std::vector<Ahead> judged_;  // [runs] of the step
  void keep_ahead(Work& work, Ahead ahead);
  // Of the context as it stands.
  std::optional<Ahead> take_ahead(const Context& context);
  bool follow(Executor& executor, Work& work, int32_t token);
  void pass(Work& work, int32_t token, std::span<const float> hidden);

  // A surprisal of the last step that is still to be computed. It waits for the next step, whose draws need the output
  // projection as well: both share one pass over the projection's weights.
  struct Owed {
    Work* work;
    size_t token;      // index into the item's tokens
    int32_t expected;  // id of that token
    uint64_t pulse;
    const std::byte* hidden;  // [channels] f32: hidden vector of the token before, among the values of the last step
  };
  std::vector<Owed> owed_;
};

}  // namespace continuo
