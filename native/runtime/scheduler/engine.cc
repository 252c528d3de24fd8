#include "runtime/scheduler/engine.h"

#include <algorithm>
#include <exception>

namespace continuo {

namespace {

// Runs `body` and turns exceptions of the device and of the standard library (out of memory) into an error.
template <class T, class Body> Result<T> guarded(const Body& body) {
  try {
    return body();
  } catch (const DeviceError& e) {
    return Error{Code::unavailable, e.what()};
  } catch (const std::exception& e) {
    return Error{Code::unavailable, text("the engine ran out of resources: ", e.what(),
                                         ". Free some, and reset or restore the context of the call.")};
  }
}

}  // namespace

Engine::Engine(size_t threads, double step_target)
    : pool_(std::max<size_t>(1, threads)),
      inbox_(std::make_shared<Inbox>()),
      scheduler_(
          step_target,
          [inbox = std::weak_ptr(inbox_)] {
            const auto to = inbox.lock();
            if (!to) return;
            {
              const std::lock_guard lock(to->mutex);
              to->woken = true;
            }
            to->wake.notify_one();
          },
          [this] { return rest(); }),
      thread_([this] { work(); }) {}

Engine::~Engine() { stop(); }

void Engine::stop() {
  {
    const std::lock_guard lock(inbox_->mutex);
    inbox_->stopping = true;
  }
  inbox_->wake.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Engine::Inbox::call(Job job) {
  {
    const std::lock_guard lock(mutex);
    jobs.push_back(std::move(job));
  }
  wake.notify_one();
}

void Engine::work() {
  use_default_arithmetic();
  std::optional<Job> job;
  std::vector<Arrival> arrivals;
  while (take(job, arrivals)) {
    const bool arrived = !arrivals.empty();
    // A call on another thread (making or restoring a context) may have lost the device.
    if (arrived) (void)revive(gone());
    admit(std::move(arrivals));
    arrivals.clear();
    // A step follows each job, so that many jobs do not delay the items. Jobs run after `stop` too: they answer with an
    // error, so that every callback is called.
    if (job) (*job)();
    if (inbox_->stopping) {
      if (executor_) executor_->abandon();
      scheduler_.fail_all({Code::misuse, "the model was closed while the call was running."}, false);
    } else if (arrived && !job && scheduler_.wait_until())
      continue;  // the next item of another session may still arrive in time for this step
    else if (scheduler_.runnable())
      step();
  }
}

bool Engine::rest() {
  auto& inbox = *inbox_;
  std::unique_lock lock(inbox.mutex);
  inbox.wake.wait(lock, [&] { return inbox.woken || inbox.busy(); });
  inbox.woken = false;
  return !inbox.busy();
}

bool Engine::take(std::optional<Job>& job, std::vector<Arrival>& arrivals) {
  auto& inbox = *inbox_;
  std::unique_lock lock(inbox.mutex);
  const auto has_work = [&] { return inbox.woken || inbox.busy(); };
  if (!scheduler_.runnable()) inbox.wake.wait(lock, has_work);
  // Waits briefly for the next item of a session that was just answered.
  else if (const auto until = scheduler_.wait_until())
    inbox.wake.wait_until(lock, *until, has_work);
  inbox.woken = false;
  std::swap(arrivals, inbox.arrivals);
  job.reset();
  if (!inbox.jobs.empty()) {
    job = std::move(inbox.jobs.front());
    inbox.jobs.pop_front();
  }
  return job || !arrivals.empty() || !scheduler_.empty() || !inbox.stopping;
}

void Engine::load(std::string graph_json, std::vector<std::string> paths, PackCache cache, ExecutorOptions options,
                  Loaded done, OpenDevice open_device, OpenExperts open_experts) {
  inbox_->call([this, graph_json = std::move(graph_json), paths = std::move(paths), cache = std::move(cache), options,
                done = std::move(done), open_device = std::move(open_device),
                open_experts = std::move(open_experts)]() mutable {
    options_ = options;
    source_ = [this, graph_json = std::move(graph_json), paths = std::move(paths), cache = std::move(cache),
               open_device = std::move(open_device),
               open_experts = std::move(open_experts)]() -> Result<std::shared_ptr<const Model>> {
      auto device = open_device();
      if (!device) return device.error();
      {
        // The device is back; loading the model may still take long.
        const std::lock_guard lock(inbox_->mutex);
        unavailable_.clear();
      }
      // Blocks of contexts that are spilled, and their owner, go on with the cache of the model that was lost.
      std::shared_ptr<experts::ExpertCache> experts = model_ ? model_->experts : nullptr;
      if (!experts && open_experts) {
        auto opened = open_experts();
        if (!opened) return opened.error();
        experts = std::move(*opened);
      }
      return Model::load(graph_json, paths, pool_, *device, cache.path.empty() ? nullptr : &cache,
                         model_ ? model_->sleepy_blocks : nullptr, std::move(experts));
    };
    done(load_model());
  });
}

Result<std::shared_ptr<const Model>> Engine::load_model() {
  return guarded<std::shared_ptr<const Model>>([&]() -> Result<std::shared_ptr<const Model>> {
    auto model = source_();
    if (!model) return model.error();
    if (auto known = knows_tokens((*model)->graph); !known) return known.error();
    auto executor = (*model)->device->executor(*model, pool_, options_);
    executor_ = std::move(executor);
    const std::lock_guard lock(inbox_->mutex);
    model_ = *model;
    return model_;
  });
}

Status Engine::knows_tokens(const Graph& graph) const {
  if (options_.vocabulary || !reads_subwords(graph)) return Done{};
  return invalid(
      "the graph has an ngram memory of tokens that stand for bytes, and nothing says for which: give the engine a "
      "vocabulary.");
}

std::shared_ptr<const Model> Engine::model() const {
  const std::lock_guard lock(inbox_->mutex);
  return model_;
}

Status Engine::revive(const Error& cause) {
  if (!model_ || !model_->device->lost()) return Done{};
  auto loaded = load_model();
  {
    const std::lock_guard lock(inbox_->mutex);
    unavailable_ = loaded ? std::string() : loaded.error().message;
  }
  // Items fail only now: a caller that answers the failure with a new context finds the new model.
  scheduler_.fail_all(cause, true);
  if (!loaded) return loaded.error();
  return Done{};
}

std::string Engine::unavailable_reason() const {
  const std::lock_guard lock(inbox_->mutex);
  return unavailable_;
}

void Engine::reload() {
  inbox_->call([this] { (void)revive(gone()); });
}

std::shared_ptr<HostExecutor> Engine::host_executor(std::shared_ptr<Context> context, ExecutorOptions options) {
  auto model = this->model();
  options.vocabulary = options_.vocabulary;
  auto executor = model->device->executor(model, pool_, options);
  return std::make_shared<HostExecutor>(HostExecutor{std::move(context), std::move(executor)});
}

Status Engine::step(std::shared_ptr<HostExecutor> host, StepInputs inputs, Stepped done) {
  auto& context = host->context;
  auto& executor = *host->executor;
  const auto refused = [&](const Error& error) {
    context->release();
    return error;
  };
  if (!context->claim()) return Error{Code::misuse, "the context is busy; wait for the call that has it."};
  if (context->broken)
    return refused({Code::misuse, "an earlier call left the context's state unusable; reset or restore it first."});
  const auto& graph = context->model().graph;
  if (graph.memory && inputs.block == graph.language->step)
    return refused({Code::misuse, "the memory controller works between the tokens of this block: use model.process."});
  const size_t most = executor.rows_of(inputs.block);
  if (inputs.rows == 0 || inputs.rows > most)
    return refused(invalid("the step has ", inputs.rows, " rows, expected 1 to ", most, "."));
  std::string reason;
  if (executor.room(*context, inputs.block, inputs.rows, reason) < inputs.rows) return refused({Code::invalid, reason});
  if (const size_t most_now = executor.within_segment(*context, inputs.block, inputs.rows); most_now < inputs.rows) {
    return refused(
        invalid("a segment of the clock ends after ", most_now, " of ", inputs.rows, " rows; step those first."));
  }
  inbox_->call(
      [this, host = std::move(host), inputs = std::make_shared<StepInputs>(std::move(inputs)), done = std::move(done)] {
        auto& own = host->context;
        auto& runner = *host->executor;
        auto result = guarded<Done>([&]() -> Status {
          if (inbox_->stopping) return Error{Code::misuse, "the model was closed before the call began."};
          if (&own->model() != &runner.model()) return gone();
          const InUse in_use(model_->device);
          for (size_t i = 0; i < inputs->inputs.size(); ++i) runner.insert(inputs->block, i, inputs->inputs[i]);
          const Pinned pinned(*model_->device, *own);
          const Run run{own.get(), 0, inputs->rows};
          runner.step(inputs->block, inputs->rows, {&run, 1});
          runner.settle();
          if (runner.moves_clock(inputs->block)) own->head.pulse += inputs->rows;
          if (!runner.faults().empty())
            return Error{Code::refused, text(runner.faults()[0].message, " Reset the context or restore it.")};
          if (const auto* first_non_finite = runner.first_non_finite(own.get()))
            return Error{Code::refused,
                         text("The first node to give a number that is not finite was ", *first_non_finite, ".")};
          return Done{};
        });
        if (!result && result.error().code == Code::unavailable) own->broken = true;
        own->release();
        (void)revive(gone());
        done(std::move(result));
      });
  return Done{};
}

Status Engine::submit(Item item, Answer answer) {
  const auto model = this->model();
  if (!model || !model->graph.language)
    return Error{Code::misuse,
                 "the graph is no language model: it needs a block \"step\" that returns hidden and previous, and a "
                 "block \"predict\" that returns logits."};
  if (!item.context->claim()) return Error{Code::misuse, "the context is busy; wait for the call that has it."};
  const auto refused = [&](const Error& error) {
    item.context->release();
    return error;
  };
  const auto vocabulary = item.context->model().graph.vocabulary();
  const auto unknown = [&](int32_t token) { return token < 0 || static_cast<uint64_t>(token) >= vocabulary; };
  if (const auto at = std::find_if(item.tokens.begin(), item.tokens.end(), unknown); at != item.tokens.end()) {
    return refused(invalid("token ", at - item.tokens.begin(), " is ", *at, ", expected 0 to ", vocabulary - 1, "."));
  }
  if (const auto at = std::find_if(item.end_tokens.begin(), item.end_tokens.end(), unknown);
      at != item.end_tokens.end()) {
    return refused(
        invalid("end token ", at - item.end_tokens.begin(), " is ", *at, ", expected 0 to ", vocabulary - 1, "."));
  }
  if (item.context->broken)
    return refused({Code::misuse, "an earlier call left the context's state unusable; reset or restore it first."});
  const auto& graph = item.context->model().graph;
  if (item.request && std::holds_alternative<MemoryRequest>(*item.request) && !graph.memory)
    return refused({Code::refused, "the model has no external memory, so nothing can be archived or retrieved."});
  if (const auto* adapt = item.request ? std::get_if<AdaptRequest>(&*item.request) : nullptr) {
    if (!graph.perspective || (!graph.perspective->adaptation && !graph.perspective->memory))
      return refused(
          {Code::refused, "the model has nothing that adapts: neither adapters nor a hyperdimensional memory."});
    if (adapt->evaluations < 1 || adapt->evaluations > most_evaluations)
      return refused(
          invalid("an adaptation has ", adapt->evaluations, " evaluations, expected 1 to ", most_evaluations, "."));
  }
  if (item.request && (item.count > 0 || !item.tokens.empty()))
    return refused(invalid("a request is an item of its own: it has neither tokens nor a generation."));
  if (item.count > 0 && item.tokens.empty() && item.context->head.pulse == item.context->head.origin) {
    return refused(invalid("cannot generate before the first token of a context; feed one first."));
  }
  {
    const std::lock_guard lock(inbox_->mutex);
    inbox_->arrivals.push_back({std::move(item), std::move(answer), Pace::Clock::now()});
  }
  inbox_->wake.notify_one();
  return Done{};
}

void Engine::speculate(DraftOptions options) {
  inbox_->call([this, options] { scheduler_.speculate(options); });
}

void Engine::load_draft(std::string graph_json, std::vector<std::string> paths, size_t bytes,
                        std::function<void(Status)> done, OpenDevice open_device) {
  inbox_->call([this, graph_json = std::move(graph_json), paths = std::move(paths), bytes, done = std::move(done),
                open_device = std::move(open_device)] {
    done(guarded<Done>([&]() -> Status {
      if (inbox_->stopping) return Error{Code::misuse, "the model was closed before the call began."};
      auto device = open_device();
      if (!device) return device.error();
      auto model = Model::load(graph_json, paths, pool_, *device);
      if (!model) return model.error();
      if (auto known = knows_tokens((*model)->graph); !known) return known;
      auto draft = std::make_unique<DraftModel>(std::move(*model), pool_, bytes, options_.vocabulary);
      if (auto fits = draft->fits(*model_); !fits) return fits;
      scheduler_.speculate(std::move(draft));
      return Done{};
    }));
  });
}

Error Engine::gone() const {
  return {Code::unavailable, "the context was lost with its device: restore it from a snapshot, or reset it."};
}

void Engine::admit(std::vector<Arrival> arrivals) {
  for (auto& [item, answer, since] : arrivals) {
    std::optional<Error> error;
    if (inbox_->stopping)
      error = Error{Code::misuse, "the model was closed before the call began."};
    else if (&item.context->model() != model_.get() || model_->device->lost())
      error = gone();
    if (!error) {
      scheduler_.admit(std::move(item), std::move(answer), since);
      continue;
    }
    // A context whose device was lost has no state any more.
    item.context->broken = item.context->broken || error->code == Code::unavailable;
    ItemResult result;
    result.head = item.context->head;
    result.error = std::move(error);
    item.context->release();
    answer(std::move(result));
  }
}

void Engine::step() {
  const auto stepped = guarded<Done>([&]() -> Status {
    const InUse in_use(model_->device);
    scheduler_.step(*executor_);
    return Done{};
  });
  if (stepped) return;
  // The step may have stopped half way, so that the state and the clock of its contexts disagree: they are broken.
  if (model_->device->lost()) {
    (void)revive(stepped.error());
    return;
  }
  executor_->abandon();
  scheduler_.fail_step(stepped.error());
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
  inbox_->call([this, context = std::move(context), done = std::move(done)] {
    auto result = guarded<std::vector<float>>([&] { return run_logits(*context); });
    context->release();
    (void)revive(gone());
    done(std::move(result));
  });
  return Done{};
}

Result<std::vector<float>> Engine::run_logits(Context& context) {
  if (inbox_->stopping) return Error{Code::misuse, "the model was closed before the call began."};
  if (&context.model() != model_.get() || model_->device->lost()) return gone();
  const auto& graph = model_->graph;
  const auto& language = *graph.language;
  const InUse in_use(model_->device);
  const Pinned pinned(*model_->device, context);
  const std::byte* last = context.data(language.last);
  predict(*executor_, {&last, 1});
  const float* logits = predicted(*executor_, 1);
  if (!model_->host().finite(logits, graph.vocabulary()))
    return Error{Code::refused, text("The logits at pulse ", context.head.pulse, " are not finite.")};
  return std::vector<float>(logits, logits + graph.vocabulary());
}

}  // namespace continuo
