#include "runtime/adapt/adapt.h"

#include <algorithm>
#include <cmath>

#include "runtime/adapt/tangents.h"
#include "runtime/model/chance.h"
#include "runtime/state/adapters.h"

namespace continuo {

namespace {

// Whether the model has parameters that adapt; else there is the memory alone.
const Adaptation* adaptation_of(const Model& model) {
  const auto& form = model.graph.perspective;
  return form && form->adaptation ? &*form->adaptation : nullptr;
}

double squared_distance(const std::vector<float>& a, const std::vector<float>* from) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double apart = static_cast<double>(a[i]) - (from ? (*from)[i] : 0.0f);
    sum += apart * apart;
  }
  return sum;
}

}  // namespace

Adapting::Adapting(Context& context, const AdaptRequest& request)
    : model_(context.shared_model()), request_(request), clock_(context.head.pulse) {
  const auto& form = *model_->graph.perspective;
  first_ = std::max(context.head.origin, clock_ > form.recent ? clock_ - form.recent : 0);
  const auto n = static_cast<size_t>(clock_ - first_);
  report_.tokens = n;
  if (n < 2) return;
  const size_t channels = model_->graph.width(model_->graph.language->hidden);
  const auto ids = table_of<int32_t>(context, form.ids, form.recent);
  const auto hiddens = table_of<int8_t>(context, form.hiddens, form.recent * channels);
  for (uint64_t p = first_; p < clock_; ++p) {
    ids_.push_back(ids[static_cast<size_t>(p % form.recent)]);
    const auto at = hiddens.begin() + static_cast<ptrdiff_t>(p % form.recent * channels);
    hiddens_.emplace_back(at, at + static_cast<ptrdiff_t>(channels));
  }
  if (const auto* adaptation = adaptation_of(*model_)) {
    const Adapters adapters(*model_);
    theta_ = adapters.read(context);
    omega_ = table_of<float>(context, adaptation->offset, 2 * form.experts);
    Context fresh(model_);
    const Pinned pinned(*model_->device, fresh);
    begin_theta_ = adapters.read(fresh);
  }
  if (form.memory) {
    banks_ = table_of<int8_t>(context, form.banks, form.memory->banks * form.memory->bits);
    through_ = context.counter(form.through);
  }
}

// Evaluations of the window under some parameters, in a scratch context.
struct Adapting::Learner {
  Learner(const Adapting& of, ThreadPool& pool)
      : of_(of), model_(of.model_), scratch_(model_), pinned_(*model_->device, scratch_), pool_(pool) {
    if (adaptation_of(*model_)) adapters_.emplace(*model_);
  }

  struct Evaluated {
    std::vector<float> nats;  // of ids 1 … n − 1
    double loss = 0;
  };
  Evaluated evaluate(const std::vector<float>& theta, const std::vector<float>& omega) {
    if (!executor_) executor_ = model_->device->executor(model_, pool_, {});
    Evaluated out;
    pass(*executor_, theta, omega, nullptr, &out.nats);
    for (const float nat : out.nats) out.loss += nat;
    out.loss /= static_cast<double>(out.nats.size());
    return out;
  }

  Result<std::vector<float>> slopes(const std::vector<float>& theta, const std::vector<float>& omega,
                                    const std::vector<std::vector<float>>& directions) {
    // Values of its own for every node: the tangents read them behind the step.
    if (!keeping_) keeping_ = model_->device->executor(model_, pool_, {.reuse = false});
    if (!tangents_) tangents_.emplace(model_);
    Tangents::Values values;
    pass(*keeping_, theta, omega, &values, nullptr);
    return tangents_->slopes(values, std::span(of_.ids_).subspan(1), theta, directions);
  }

 private:
  void pass(Executor& executor, const std::vector<float>& theta, const std::vector<float>& omega,
            Tangents::Values* values, std::vector<float>* nats) {
    scratch_.reset();
    scratch_.head = {};
    if (adapters_) {
      adapters_->write(scratch_, theta);
      write_table(scratch_, adaptation_of(*model_)->offset, omega);
    }
    const auto& language = *model_->graph.language;
    const auto& program = model_->programs[language.step];
    const uint32_t hidden = program.last_value[language.hidden];
    const size_t most = std::min(executor.rows_of(language.step), executor.rows_of(language.predict));
    const size_t n = of_.ids_.size() - 1;
    for (size_t from = 0; from < n; from += most) {
      const size_t rows = std::min(most, n - from);
      executor.insert(language.step, 0, std::as_bytes(std::span(of_.ids_).subspan(from, rows)));
      executor.reserve(scratch_, language.step, rows);
      const Run run{&scratch_, 0, rows};
      executor.step(language.step, rows, {&run, 1});
      executor.settle();
      std::vector<const std::byte*> hiddens;
      for (size_t row = 0; row < rows; ++row)
        hiddens.push_back(executor.address(language.step, hidden) + row * program.values[hidden].bytes);
      predict(executor, hiddens);
      if (nats) {
        nats->resize(from + rows);
        executor.surprisals(std::span(of_.ids_).subspan(from + 1, rows), 0, nats->data() + from);
      }
      if (values) {
        const float* logits = predicted(executor, rows);
        values->logits.insert(values->logits.end(), logits, logits + rows * model_->graph.vocabulary());
        tangents_->collect(executor, rows, *values);
      }
      scratch_.head.pulse += rows;
    }
  }

  const Adapting& of_;
  const std::shared_ptr<const Model> model_;
  Context scratch_;
  const Pinned pinned_;
  ThreadPool& pool_;
  std::optional<Adapters> adapters_;
  std::unique_ptr<Executor> executor_, keeping_;
  std::optional<Tangents> tangents_;
};

Status Adapting::run(ThreadPool& pool, const std::atomic<bool>& stop) {
  if (ids_.size() < 2) return Done{};
  // What the executors below fetch lies in memory of the device.
  const InUse in_use(model_->device);
  // A state may come from anywhere; what was read is always a token.
  for (const int32_t id : ids_) {
    if (id < 0 || static_cast<size_t>(id) >= model_->graph.vocabulary())
      return Error{Code::refused,
                   text("its recent tokens hold ", id, ", expected token ids from 0 to ",
                        model_->graph.vocabulary() - 1, ". Restore a state of this model, or reset it.")};
  }
  // Between two evaluations.
  const auto ends = [&] { return stopped_ = stopped_ || stop.load() || request_.stopped(); };
  const auto end = [&] {
    return stop.load() ? Status(Error{Code::misuse, "the engine was stopped."}) : Status(Done{});
  };
  if (ends()) return end();
  Learner learner(*this, pool);
  auto now = learner.evaluate(theta_, omega_);
  report_.before = now.loss;
  uint32_t left = request_.evaluations - 1;
  const auto* adaptation = adaptation_of(*model_);
  for (uint32_t round = 0; adaptation; ++round) {
    const auto K = static_cast<uint32_t>(adaptation->directions);
    if (left < 2 * K + 1) break;
    if (ends()) return end();
    std::vector<std::vector<float>> directions(K, std::vector<float>(theta_.size()));
    for (uint32_t kappa = 0; kappa < K; ++kappa) {
      Words words{};
      for (size_t i = 0; i < theta_.size(); ++i) {
        if (i % 128 == 0)
          words = chance(Purpose::direction, 64 * round + kappa, clock_, request_.seed, static_cast<uint32_t>(i / 128));
        directions[kappa][i] = bit_of(words, i % 128) ? 1.0f : -1.0f;
      }
    }
    auto slopes = learner.slopes(theta_, omega_, directions);
    if (!slopes) return slopes.error();
    if (ends()) return end();
    std::vector<float> tried(theta_.size());
    for (size_t i = 0; i < theta_.size(); ++i) {
      double gradient = 0;
      for (uint32_t kappa = 0; kappa < K; ++kappa)
        gradient += static_cast<double>((*slopes)[kappa]) * directions[kappa][i];
      gradient /= K;
      const double pull = 2 * adaptation->anchor * (static_cast<double>(theta_[i]) - begin_theta_[i]);
      tried[i] = static_cast<float>(theta_[i] - adaptation->learning_rate * (gradient + pull));
    }
    auto then = learner.evaluate(tried, omega_);
    left -= 2 * K + 1;
    AdaptStage stage;
    stage.probes.assign(slopes->begin(), slopes->end());
    stage.was = now.loss + adaptation->anchor * squared_distance(theta_, &begin_theta_);
    stage.now = then.loss + adaptation->anchor * squared_distance(tried, &begin_theta_);
    stage.accepted = stage.now < stage.was;
    if (stage.accepted) {
      theta_ = std::move(tried);
      now = std::move(then);
    }
    report_.stages.push_back(std::move(stage));

    const auto population = static_cast<uint32_t>(adaptation->population);
    if (left < population + 1) break;
    std::vector<double> gradient(omega_.size(), 0);
    AdaptStage router;
    router.router = true;
    for (uint32_t kappa = 0; kappa < population / 2; ++kappa) {
      if (ends()) return end();
      std::vector<float> noise(omega_.size()), up(omega_.size()), down(omega_.size());
      for (size_t i = 0; i < omega_.size(); ++i) {
        noise[i] =
            normal_of(chance(Purpose::nes, 1024 * round + kappa, clock_, request_.seed, static_cast<uint32_t>(i))) *
            static_cast<float>(adaptation->sigma);
        up[i] = omega_[i] + noise[i];
        down[i] = omega_[i] - noise[i];
      }
      const double better = -learner.evaluate(theta_, up).loss, worse = -learner.evaluate(theta_, down).loss;
      router.probes.push_back(better);
      router.probes.push_back(worse);
      for (size_t i = 0; i < omega_.size(); ++i) gradient[i] += (better - worse) * static_cast<double>(noise[i]);
    }
    std::vector<float> moved(omega_.size());
    const double scale = static_cast<double>(population) * adaptation->sigma * adaptation->sigma;
    for (size_t i = 0; i < omega_.size(); ++i)
      moved[i] = static_cast<float>(omega_[i] + adaptation->router_rate *
                                                    (gradient[i] / scale - 2 * adaptation->router_anchor * omega_[i]));
    then = learner.evaluate(theta_, moved);
    left -= population + 1;
    router.was = now.loss + adaptation->router_anchor * squared_distance(omega_, nullptr);
    router.now = then.loss + adaptation->router_anchor * squared_distance(moved, nullptr);
    router.accepted = router.now < router.was;
    if (router.accepted) {
      omega_ = std::move(moved);
      now = std::move(then);
    }
    report_.stages.push_back(std::move(router));
  }
  report_.evaluations = request_.evaluations - left;
  report_.after = now.loss;
  if (const auto& memory = model_->graph.perspective->memory) {
    const auto& space = *model_->hyper_space;
    for (uint64_t p = std::max(first_ + 1, static_cast<uint64_t>(through_)); p < clock_; ++p) {
      const auto i = static_cast<size_t>(p - first_);
      if (!(now.nats[i - 1] > memory->write_nats)) continue;
      space.bind(banks_, space.key(hiddens_[i - 1]), ids_[i]);
      ++report_.bound;
    }
    through_ = static_cast<int64_t>(clock_);
  }
  return Done{};
}

AdaptReport Adapting::finish(Context& context) {
  if (ids_.size() < 2) return report_;
  const auto& form = *model_->graph.perspective;
  if (const auto* adaptation = adaptation_of(*model_)) {
    Adapters(*model_).write(context, theta_);
    write_table(context, adaptation->offset, omega_);
  }
  if (form.memory) {
    write_table(context, form.banks, banks_);
    if (through_ > context.counter(form.through)) context.raise(form.through, through_);
  }
  context.head.chain.adapted(report_.evaluations, report_.after);
  return report_;
}

AdaptThreads::~AdaptThreads() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (auto& thread : threads_) thread.join();
}

std::shared_ptr<Ticket> AdaptThreads::start(std::shared_ptr<Adapting> adapting) {
  auto ticket = std::make_shared<Ticket>();
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back({std::move(adapting), ticket});
    if (idle_ < jobs_.size() && threads_.size() < most) threads_.emplace_back([this] { work(); });
  }
  wake_.notify_one();
  return ticket;
}

void AdaptThreads::work() {
  use_default_arithmetic();
  ThreadPool pool(1);
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      ++idle_;
      wake_.wait(lock, [&] { return stop_.load() || !jobs_.empty(); });
      --idle_;
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    Status done = Done{};
    try {
      done = stop_ ? Status(Error{Code::misuse, "the engine was stopped."}) : job.adapting->run(pool, stop_);
    } catch (const std::exception& error) {
      done = Error{Code::unavailable, error.what()};
    }
    job.adapting.reset();
    job.ticket->open(done ? std::nullopt : std::optional(done.error()));
  }
}

}  // namespace continuo
