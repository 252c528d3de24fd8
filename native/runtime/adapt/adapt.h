// Adaptation between messages (the event "adapt", docs/perspective.md): a session's adapters and the offsets of its
// experts learn the tokens that it read last; what they could not learn goes into the hyperdimensional memory. The
// budget is a number of evaluations. All works on copies, on a thread of its own, and is put into the context at once
// at the end.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/executor/executor.h"
#include "runtime/model/ticket.h"
#include "runtime/state/context.h"

namespace continuo {

constexpr uint32_t most_evaluations = 65536;

struct AdaptRequest {
  uint32_t evaluations = 1;
  uint64_t seed = 0;
  // Set from any thread: the adaptation ends between two evaluations, and leaves the context as it was. May be null.
  std::shared_ptr<const std::atomic<bool>> stop = {};
  bool stopped() const { return stop && stop->load(); }
};

struct AdaptStage {
  bool router = false;      // else adapters
  double was = 0, now = 0;  // loss with the stage's anchor, of the parameters before and of those tried
  bool accepted = false;
  std::vector<double> probes;  // slopes along the directions; of the router the fitness of each pair
};

struct AdaptReport {
  size_t tokens = 0;         // of the window; below 2 nothing happens
  uint32_t evaluations = 0;  // used
  std::vector<AdaptStage> stages;
  double before = 0, after = 0;  // loss: mean surprisal of the window's tokens but the first, nats
  size_t bound = 0;              // tokens that went into the hyperdimensional memory
};

// One adaptation. `begin` and `finish` are called by the owner of the pinned context, `run` from any thread.
class Adapting {
 public:
  Adapting(Context& context, const AdaptRequest& request);
  // An error of the experts' store ends it. `stop`: it ends as soon as it can, with whatever error. Where the request's
  // own stop is set before it is done it ends without one.
  Status run(ThreadPool& pool, const std::atomic<bool>& stop);
  // Whether it ended before it was done. To be asked after `run`.
  bool stopped() const { return stopped_; }
  // Puts what was learnt into the context, and notes it in the chain. Not to be called of one that was stopped.
  AdaptReport finish(Context& context);

 private:
  struct Learner;
  std::shared_ptr<const Model> model_;
  AdaptRequest request_;
  uint64_t clock_, first_;
  std::vector<int32_t> ids_;                  // of the window
  std::vector<std::vector<int8_t>> hiddens_;  // of the tokens before each of ids_[1 …]
  std::vector<float> theta_, begin_theta_, omega_;
  std::vector<int8_t> banks_;
  int64_t through_ = 0;
  AdaptReport report_;
  bool stopped_ = false;
};

// The threads that adaptations run on: some at a time, so that a long one does not hold up the others. They begin in
// order of arrival.
class AdaptThreads {
 public:
  // As many adaptations have values and contexts of their own at a time.
  static constexpr size_t most = 4;

  ~AdaptThreads();
  // Runs it later; the ticket opens when it has ended, with its error where it failed.
  std::shared_ptr<Ticket> start(std::shared_ptr<Adapting> adapting);

 private:
  void work();
  struct Job {
    std::shared_ptr<Adapting> adapting;
    std::shared_ptr<Ticket> ticket;
  };
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> jobs_;
  size_t idle_ = 0;
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace continuo
