// Engine: one thread that works for one model, with a pool to help it. The thread that submits never waits; callbacks
// are called on the engine's thread.
//
//   load ──▶ ready ──▶ (submit | logits | step)* ──▶ stop
//
// Items are taken one by one and answered one by one: between two steps the engine admits what has arrived
// (scheduler.h). Other jobs run between two steps, in order.
//
// `stop` (and the destructor) lets the current step finish, fails what is still there and joins every thread.
//
// When the device is lost, every item that is there fails, the contexts are gone, and the model is loaded again, onto a
// device that takes the place of the lost one: contexts made, reset or restored afterwards live there. `reload` asks
// for that again where it failed.
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

#include "runtime/executor.h"
#include "runtime/scheduler.h"
#include "runtime/work.h"

namespace continuo {

// A host's own executor and the context it steps: any block of any graph, a step at a time.
struct HostExecutor {
  std::shared_ptr<Context> context;
  std::unique_ptr<Executor> executor;
};

struct StepInputs {
  size_t block;
  size_t rows;
  std::vector<std::vector<std::byte>> inputs;  // per input of the block: rows × bytes of one row
};

class Engine {
 public:
  using Loaded = std::function<void(Result<std::shared_ptr<const Model>>)>;
  using Answer = Scheduler::Answer;
  using Predicted = std::function<void(Result<std::vector<float>>)>;
  using Stepped = std::function<void(Status)>;
  using OpenDevice = std::function<Result<std::shared_ptr<Device>>()>;

  // While somebody generates, a step takes at most about `step_target` times what it takes without rows that read
  // (pace.h).
  static constexpr double default_step_target = 2;
  explicit Engine(size_t threads, double step_target = default_step_target);
  ~Engine();

  // The first job. `graph_json`, `path` and `cache` (none where its path is empty) as in Model::load, onto the device
  // that `open_device` gives; the options are those of the engine's own executor.
  void load(std::string graph_json, std::string path, PackCache cache, ExecutorOptions options, Loaded done,
            OpenDevice open_device);
  // Refuses at once, having claimed nothing, what is not valid; otherwise the context is claimed until `answer` is
  // called.
  Status submit(Item item, Answer answer);
  const Counts& counts() const { return scheduler_.counts(); }
  Status logits(std::shared_ptr<Context> context, Predicted done);

  // A host's executor, and a step of it; refused beyond the rows that a step of the block may have. Clock and chain of
  // the context are not touched: they belong to the scheduler.
  std::shared_ptr<HostExecutor> bridge(std::shared_ptr<Context> context, ExecutorOptions options);
  Status step(std::shared_ptr<HostExecutor> bridge, StepInputs inserted, Stepped done);

  // The model that contexts are made of: null before it is loaded.
  std::shared_ptr<const Model> model() const;
  // Loads the model again where its device was lost; soon, and only then.
  void reload();
  // Why that failed the last time: a sentence. Empty where it did not.
  std::string unavailable_reason() const;

  void stop();

 private:
  using Job = std::function<void()>;
  struct Arrival {
    Item item;
    Answer answer;
  };
  // What other threads hand over. Tickets may outlive the engine, and wake it through this.
  struct Inbox {
    mutable std::mutex mutex;
    std::condition_variable wake;
    std::deque<Job> jobs;
    std::vector<Arrival> arrivals;
    bool woken = false;  // a ticket was opened
    std::atomic<bool> stopping{false};
    void call(Job job);
  };

  void work();
  // Waits until there is something to do, and takes it; false when the engine is stopped and nothing is left.
  bool take(std::optional<Job>& job, std::vector<Arrival>& arrivals);
  void admit(std::vector<Arrival> arrivals);
  void step();
  Result<std::vector<float>> run_logits(Context& context);

  Result<std::shared_ptr<const Model>> load_model();
  // After this the model's device is not lost; or there is an error. Where it was lost, every item fails with `cause`.
  Status revive(const Error& cause);
  Error gone() const;

  ThreadPool pool_;
  std::shared_ptr<Inbox> inbox_;
  Scheduler scheduler_;  // the engine's thread only, as is what follows
  std::function<Result<std::shared_ptr<const Model>>()> source_;
  ExecutorOptions options_;
  std::unique_ptr<Executor> executor_;
  std::shared_ptr<const Model> model_;  // written by the engine's thread, under the inbox' mutex
  std::string unavailable_;             // the same
  std::thread thread_;
};

}  // namespace continuo
