// Engine: one thread that takes jobs for one model in order, with a pool to help it. The thread that submits a job never waits;
// the callback is called on the engine's thread when the job is done.
//
//   load ──▶ ready ──▶ (process | logits)* ──▶ stop
//
// `stop` (and the destructor) lets the current step finish, fails what is still queued and joins every thread.
//
// When the device is lost, the call that notices fails, the contexts are gone, and the model is loaded again, onto a device that takes
// the place of the lost one: so contexts made, reset or restored afterwards live there.
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

#include "context.h"
#include "executor.h"
#include "sampler.h"

namespace continuo {

// First `tokens` are fed, then `count` tokens are sampled and fed; fewer where `eos` is drawn, which is not fed, or where the
// context has no position left.
struct Item {
  std::shared_ptr<Context> context;
  std::vector<int32_t> tokens;
  bool nats = false;
  uint32_t count = 0;
  Sampling sampling;
  std::optional<int32_t> eos = std::nullopt;
};

// What ended a generation before its count.
enum class Ended : uint8_t { not_early, eos, positions };

struct ItemResult {
  std::vector<float> nats;  // per fed token, NaN for the first of a context; empty unless asked for
  std::vector<int32_t> generated;
  std::vector<float> logprobs;
  Ended ended = Ended::not_early;
  Head head;
  // The item's tokens do not fit into its context, and nothing was fed; or its state stopped being finite, and what it computed
  // before is still here.
  std::optional<Error> error;
};

// A host's own executor and the context it steps: any block of any graph, a step at a time.
struct Bridge {
  std::shared_ptr<Context> context;
  std::unique_ptr<Executor> executor;
};

struct Inserted {
  size_t block;
  size_t rows;
  std::vector<std::vector<std::byte>> inputs;  // per input of the block: rows × bytes of one row
};

class Engine {
 public:
  using Loaded = std::function<void(Result<std::shared_ptr<const Model>>)>;
  using Processed = std::function<void(Result<std::vector<ItemResult>>)>;
  using Predicted = std::function<void(Result<std::vector<float>>)>;
  using Stepped = std::function<void(Status)>;
  using OpenDevice = std::function<Result<std::shared_ptr<Device>>()>;

  explicit Engine(size_t threads);
  ~Engine();

  // The first job. `graph_json`, `path` and `cache` (none where its path is empty) as in Model::load, onto the device that `open_device` gives (none: the CPU); the options are those of the executor behind `process`.
  void load(std::string graph_json, std::string path, PackCache cache, ExecutorOptions options, Loaded done, OpenDevice open_device = nullptr);
  // Refuses at once, having claimed nothing, what is not valid; otherwise the contexts are claimed until `done` is called.
  Status process(std::vector<Item> items, Processed done);
  Status logits(std::shared_ptr<Context> context, Predicted done);

  // A host's executor, and a step of it; refused beyond the rows that a step of the block may have. Clock and chain of the context
  // are not touched: they belong to `process`.
  std::shared_ptr<Bridge> bridge(std::shared_ptr<Context> context, ExecutorOptions options);
  Status step(std::shared_ptr<Bridge> bridge, Inserted inserted, Stepped done);

  // The model that contexts are made of: null before it is loaded.
  std::shared_ptr<const Model> model() const;
  // Loads the model again where its device was lost; soon, and only then.
  void mend();
  // Why that failed the last time: a sentence. Empty where it did not.
  std::string away() const;

  void stop();

 private:
  using Job = std::function<void()>;
  void submit(Job job);
  void work();
  Result<std::vector<ItemResult>> run(std::vector<Item>& items);
  Result<std::vector<float>> run_logits(Context& context);

  ThreadPool pool_;
  Result<std::shared_ptr<const Model>> load_model();
  // After this the model's device is not lost; or there is an error.
  Status revive();
  Error gone() const;

  std::function<Result<std::shared_ptr<const Model>>()> source_;
  ExecutorOptions options_;
  std::shared_ptr<const Model> model_;  // written by the engine's thread, under mutex_
  std::unique_ptr<Executor> executor_;
  std::string away_;  // under mutex_

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> jobs_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace continuo
