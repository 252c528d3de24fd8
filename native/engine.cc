#include "engine.h"

#include <algorithm>
#include <exception>

#include "batch.h"

namespace continuo {

namespace {

// Runs `body` and turns what the standard library throws (out of memory) into an error.
template <class T, class Body>
Result<T> guarded(const Body& body) {
  try {
    return body();
  } catch (const DeviceError& e) {
    return Error{Code::unavailable, e.what()};
  } catch (const std::exception& e) {
    return Error{Code::unavailable, text("the engine ran out of resources: ", e.what(), ". Free some, and reset or restore the contexts of the call.")};
  }
}

}  // namespace

Engine::Engine(size_t threads) : pool_(std::max<size_t>(1, threads)), thread_([this] { work(); }) {}

Engine::~Engine() { stop(); }

void Engine::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Engine::submit(Job job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
}

void Engine::work() {
  use_default_arithmetic();
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      // What is queued still runs after `stop`, and fails at once: every callback is called.
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

void Engine::load(std::string graph_json, std::string path, PackCache cache, ExecutorOptions options, Loaded done, OpenDevice open_device) {
  submit([this, graph_json = std::move(graph_json), path = std::move(path), cache = std::move(cache), options, done = std::move(done), open_device = std::move(open_device)]() mutable {
    options_ = options;
    source_ = [this, graph_json = std::move(graph_json), path = std::move(path), cache = std::move(cache), open_device = std::move(open_device)]() -> Result<std::shared_ptr<const Model>> {
      Result<std::shared_ptr<Device>> device = open_device ? open_device() : cpu_device();
      if (!device) return device.error();
      {
        // It is there, however long the model takes.
        const std::lock_guard lock(mutex_);
        away_.clear();
      }
      return Model::load(graph_json, path, pool_, cache.path.empty() ? nullptr : &cache, *device);
    };
    done(load_model());
  });
}

Result<std::shared_ptr<const Model>> Engine::load_model() {
  return guarded<std::shared_ptr<const Model>>([&]() -> Result<std::shared_ptr<const Model>> {
    auto model = source_();
    if (!model) return model.error();
    auto executor = (*model)->device->executor(*model, pool_, options_);
    executor_ = std::move(executor);
    const std::lock_guard lock(mutex_);
    model_ = *model;
    return model_;
  });
}

std::shared_ptr<const Model> Engine::model() const {
  const std::lock_guard lock(mutex_);
  return model_;
}

Status Engine::revive() {
  if (!model_ || !model_->device->lost()) return Done{};
  auto loaded = load_model();
  const std::lock_guard lock(mutex_);
  away_ = loaded ? std::string() : loaded.error().message;
  if (!loaded) return loaded.error();
  return Done{};
}

std::string Engine::away() const {
  const std::lock_guard lock(mutex_);
  return away_;
}

void Engine::mend() {
  submit([this] { (void)revive(); });
}

std::shared_ptr<Bridge> Engine::bridge(std::shared_ptr<Context> context, ExecutorOptions options) {
  auto model = this->model();
  auto executor = model->device->executor(model, pool_, options);
  return std::make_shared<Bridge>(Bridge{std::move(context), std::move(executor)});
}

Status Engine::step(std::shared_ptr<Bridge> bridge, Inserted inserted, Stepped done) {
  auto& context = bridge->context;
  auto& executor = *bridge->executor;
  const auto refused = [&](const Error& error) {
    context->release();
    return error;
  };
  if (!context->claim()) return Error{Code::misuse, "the context is busy; wait for the call that has it."};
  if (context->broken) return refused({Code::misuse, "an earlier call left the context's state unusable; reset or restore it first."});
  const size_t most = executor.rows_of(inserted.block);
  if (inserted.rows == 0 || inserted.rows > most) return refused(invalid("the step has ", inserted.rows, " rows, expected 1 to ", most, "."));
  std::string reason;
  if (executor.room(*context, inserted.block, inserted.rows, reason) < inserted.rows) return refused({Code::invalid, reason});
  if (const size_t most_now = executor.within_segment(*context, inserted.block, inserted.rows); most_now < inserted.rows) {
    return refused(invalid("a segment of the clock ends after ", most_now, " of ", inserted.rows, " rows; step those first."));
  }
  submit([this, bridge = std::move(bridge), inserted = std::make_shared<Inserted>(std::move(inserted)), done = std::move(done)] {
    auto& own = bridge->context;
    auto& runner = *bridge->executor;
    auto result = guarded<Done>([&]() -> Status {
      if (stopping_) return Error{Code::misuse, "the model was closed before the call began."};
      if (&own->model() != &runner.model()) return gone();
      const InUse in_use(model_->device);
      for (size_t i = 0; i < inserted->inputs.size(); ++i) {
        runner.insert(inserted->block, i, inserted->inputs[i]);
      }
      const Held held(*model_->device, *own);
      const Run run{own.get(), 0, inserted->rows};
      runner.step(inserted->block, inserted->rows, {&run, 1});
      runner.settle();
      if (runner.moves_clock(inserted->block)) own->head.pulse += inserted->rows;
      if (!runner.faults().empty()) return Error{Code::refused, text(runner.faults()[0].message, " Reset the context or restore it.")};
      if (const auto* culprit = runner.culprit(own.get())) return Error{Code::refused, text("The first node to give a number that is not finite was ", *culprit, ".")};
      return Done{};
    });
    if (!result && result.error().code == Code::unavailable) own->broken = true;
    own->release();
    (void)revive();
    done(std::move(result));
  });
  return Done{};
}

Status Engine::process(std::vector<Item> items, Processed done) {
  const auto model = this->model();
  if (!model || !model->graph.language) return Error{Code::misuse, "the graph is no language model: it needs a block \"step\" that returns hidden and previous, and a block \"predict\" that returns logits."};
  const auto refuse = [&](size_t claimed, const Error& error) {
    for (size_t i = 0; i < claimed; ++i) items[i].context->release();
    return error;
  };
  for (size_t i = 0; i < items.size(); ++i) {
    auto& item = items[i];
    if (!item.context->claim()) return refuse(i, {Code::misuse, text("item ", i, ": the context is busy; wait for the call that has it.")});
    const auto vocabulary = item.context->model().graph.vocabulary();
    for (size_t t = 0; t < item.tokens.size(); ++t) {
      const int32_t token = item.tokens[t];
      if (token < 0 || static_cast<uint64_t>(token) >= vocabulary) {
        return refuse(i + 1, invalid("item ", i, ": token ", t, " is ", token, ", expected 0 to ", vocabulary - 1, "."));
      }
    }
    if (item.eos && (*item.eos < 0 || static_cast<uint64_t>(*item.eos) >= vocabulary)) {
      return refuse(i + 1, invalid("item ", i, ": eos is ", *item.eos, ", expected 0 to ", vocabulary - 1, "."));
    }
    if (item.context->broken) return refuse(i + 1, {Code::misuse, text("item ", i, ": an earlier call left the context's state unusable; reset or restore it first.")});
    if (item.count > 0 && item.tokens.empty() && item.context->head.pulse == item.context->head.origin) {
      return refuse(i + 1, invalid("item ", i, ": cannot generate before the first token of a context; feed one first."));
    }
  }
  submit([this, items = std::make_shared<std::vector<Item>>(std::move(items)), done = std::move(done)] {
    auto result = guarded<std::vector<ItemResult>>([&] { return run(*items); });
    for (auto& item : *items) {
      // Out of memory in the middle: state and clock may disagree.
      if (!result && result.error().code == Code::unavailable) item.context->broken = true;
      item.context->release();
    }
    // Whoever hears of the loss finds a model that works, if there can be one.
    (void)revive();
    done(std::move(result));
  });
  return Done{};
}

Error Engine::gone() const { return {Code::unavailable, "the context was lost with its device: restore it from a snapshot, or reset it."}; }

Result<std::vector<ItemResult>> Engine::run(std::vector<Item>& items) {
  if (stopping_) return Error{Code::misuse, "the model was closed before the call began."};
  for (const auto& item : items) {
    if (&item.context->model() != model_.get() || model_->device->lost()) return gone();
  }
  const InUse in_use(model_->device);
  return Batch(*executor_, items).run(stopping_);
}

Status Engine::logits(std::shared_ptr<Context> context, Predicted done) {
  if (!context->model().graph.language) return Error{Code::misuse, "the graph is no language model and has no logits."};
  if (!context->claim()) return Error{Code::misuse, "the context is busy; wait for the call that has it."};
  if (context->broken) {
    context->release();
    return Error{Code::misuse, "an earlier call left the context's state unusable; reset or restore it first."};
  }
  if (context->head.pulse == context->head.origin) {
    context->release();
    return invalid("a context has no logits before its first token; feed one first.");
  }
  submit([this, context = std::move(context), done = std::move(done)] {
    auto result = guarded<std::vector<float>>([&] { return run_logits(*context); });
    context->release();
    (void)revive();
    done(std::move(result));
  });
  return Done{};
}

Result<std::vector<float>> Engine::run_logits(Context& context) {
  if (stopping_) return Error{Code::misuse, "the model was closed before the call began."};
  if (&context.model() != model_.get() || model_->device->lost()) return gone();
  const auto& graph = model_->graph;
  const auto& language = *graph.language;
  const InUse in_use(model_->device);
  const Held held(*model_->device, context);
  const std::byte* last = context.data(language.last);
  predict(*executor_, {&last, 1});
  const float* logits = predicted(*executor_, 1);
  if (!model_->kernels.finite(logits, graph.vocabulary())) return Error{Code::refused, text("The logits at pulse ", context.head.pulse, " are not finite.")};
  return std::vector<float>(logits, logits + graph.vocabulary());
}

}  // namespace continuo
