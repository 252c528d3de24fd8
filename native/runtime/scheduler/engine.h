// Engine: one thread that runs one model, and a pool of threads that its kernels use. A call from another thread only
// queues its work and returns; its callback runs on the engine's thread.
//
//   load ──▶ ready ──▶ (submit | logits | step)* ──▶ stop
//
// Each submitted item is answered by itself. Between two steps the engine admits the items that have arrived
// (scheduler.h) and runs one queued job (load, logits, step, reload); jobs run in the order of their calls.
//
// `stop` (and the destructor) lets the current step finish, answers all remaining items and jobs with an error, and
// joins every thread.
//
// When the device is lost, every item fails and every context is lost with it. The engine then opens a new device and
// loads the model onto it. Contexts that are made, reset or restored afterwards live on the new device. Where loading
// failed, `reload` tries again.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/executor/executor.h"
#include "runtime/scheduler/scheduler.h"
#include "runtime/scheduler/work.h"

namespace continuo {

// An executor that the program drives itself, one step at a time, over one context: any block of any graph.
struct HostExecutor {
  std::shared_ptr<Context> context;
  std::unique_ptr<Executor> executor;
};

struct StepInputs {
  size_t block;                                // index into Graph::blocks
  size_t rows;                                 // of the step
  std::vector<std::vector<std::byte>> inputs;  // per input of the block: [rows, bytes of one row]
};

class Engine {
 public:
  using Loaded = std::function<void(Result<std::shared_ptr<const Model>>)>;
  using Answer = Scheduler::Answer;
  using Predicted = std::function<void(Result<std::vector<float>>)>;
  using Stepped = std::function<void(Status)>;
  // The experts that the model reads from a store, once.
  using OpenExperts = std::function<Result<std::shared_ptr<experts::ExpertCache>>()>;
  using OpenDevice = std::function<Result<std::shared_ptr<Device>>()>;

  // While any session generates, a step takes at most about `step_target` times what it takes without reading rows
  // (pace.h).
  static constexpr double default_step_target = 2;
  explicit Engine(size_t threads, double step_target = default_step_target);
  ~Engine();

  // Must be the first call. `graph_json`, `paths` and `cache` (unused where its path is empty) are those of
  // Model::load; `open_device` gives the device, now and after a loss; `options` are those of the engine's own
  // executor.
  void load(std::string graph_json, std::vector<std::string> paths, PackCache cache, ExecutorOptions options,
            Loaded done, OpenDevice open_device, OpenExperts open_experts = nullptr);
  // Refuses an invalid item at once and leaves its context unclaimed. Otherwise the context stays claimed until
  // `answer` is called.
  Status submit(Item item, Answer answer);
  const Counts& counts() const { return scheduler_.counts(); }
  // How many tokens sessions may guess (drafts.h), from one of the next steps on. No result depends on it.
  void speculate(DraftOptions options);
  // Loads a model that guesses them too, as load() does; `bytes`: see DraftModel. INVALID where it cannot guess for the
  // loaded model.
  void load_draft(std::string graph_json, std::vector<std::string> paths, size_t bytes,
                  std::function<void(Status)> done, OpenDevice open_device);
  // Logits [vocabulary] of the token that would follow.
  Status logits(std::shared_ptr<Context> context, Predicted done);

  // Makes a host executor.
  std::shared_ptr<HostExecutor> host_executor(std::shared_ptr<Context> context, ExecutorOptions options);
  // A step of a host executor. Refused at once where it has more rows than a step of the block may have, or more than
  // the context has room for. A step of a block that uses the clock moves the pulse; no step touches the chain.
  Status step(std::shared_ptr<HostExecutor> host, StepInputs inputs, Stepped done);

  // Of the engine's own executor, once the model is loaded.
  const ExecutorOptions& options() const { return options_; }
  // The loaded model; null before it is loaded.
  std::shared_ptr<const Model> model() const;
  // Queues another try to load the model, for the case that its device was lost. Does nothing in any other case.
  void reload();
  // Why the last try to load the model again failed: a sentence. Empty where it succeeded.
  std::string unavailable_reason() const;

  void stop();

 private:
  using Job = std::function<void()>;
  struct Arrival {
    Item item;
    Answer answer;
    Pace::Time since;  // when it was submitted; it is admitted behind the step that runs then
  };
  // Jobs and items from other threads. Shared, because a ticket that opens wakes the engine through it and may outlive
  // the engine.
  struct Inbox {
    mutable std::mutex mutex;
    std::condition_variable wake;
    std::deque<Job> jobs;
    std::vector<Arrival> arrivals;
    bool woken = false;  // a ticket was opened
    std::atomic<bool> stopping{false};
    void call(Job job);
    // Whether there is more than a wake. The caller holds the mutex.
    bool busy() const { return stopping || !jobs.empty() || !arrivals.empty(); }
  };

  void work();
  // Waits until there is work, and takes one job and all arrivals. False when the engine is stopped and no work is
  // left.
  bool take(std::optional<Job>& job, std::vector<Arrival>& arrivals);
  // Waits until somebody was woken; false where a job or an item waits, or the engine is to stop.
  bool rest();
  void admit(std::vector<Arrival> arrivals);
  void step();
  Result<std::vector<float>> run_logits(Context& context);

  Result<std::shared_ptr<const Model>> load_model();
  // Whether the engine knows what tokens stand for where the graph asks.
  Status knows_tokens(const Graph& graph) const;
  // Where the model's device was lost: loads the model onto a new device, and fails every item with `cause`. Returns
  // the error of loading, if any.
  Status revive(const Error& cause);
  // The error of a context whose device was lost.
  Error gone() const;

  ThreadPool pool_;
  std::shared_ptr<Inbox> inbox_;
  // From here on: used by the engine's thread only, but for the two that say otherwise.
  Scheduler scheduler_;
  std::function<Result<std::shared_ptr<const Model>>()> source_;  // opens a device and loads the model onto it
  ExecutorOptions options_;
  std::unique_ptr<Executor> executor_;
  std::shared_ptr<const Model> model_;  // written by the engine's thread, under the mutex of the inbox
  std::string unavailable_;             // see unavailable_reason(); guarded likewise
  std::thread thread_;
};

}  // namespace continuo
