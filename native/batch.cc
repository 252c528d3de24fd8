#include "batch.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>

namespace continuo {

namespace {

struct Draw {
  enum class Outcome : uint8_t { drawn, not_finite, exhausted };
  Outcome outcome = Outcome::drawn;
  int32_t token = 0;
  float logprob = 0;
};

// Runs on a thread of the pool, which nothing may throw out of.
Draw draw(const Kernels& kernels, std::span<const float> logits, const Sampling& sampling, uint64_t pulse) {
  if (!kernels.finite(logits.data(), logits.size())) return {Draw::Outcome::not_finite};
  try {
    const int32_t token = sample(kernels, logits, sampling, pulse);
    return {Draw::Outcome::drawn, token, -surprisal(kernels, logits, token)};
  } catch (const std::bad_alloc&) {
    return {Draw::Outcome::exhausted};
  }
}

}  // namespace

void predict(Executor& executor, std::span<const std::byte* const> hiddens) {
  const size_t block = executor.model().graph.language->predict;
  executor.gather(block, 0, hiddens);
  executor.step(block, hiddens.size(), {});
}

const float* predicted(Executor& executor, size_t rows) {
  const auto& language = *executor.model().graph.language;
  return reinterpret_cast<const float*>(executor.fetch(language.predict, executor.model().programs[language.predict].last_value[language.logits], rows));
}

Batch::Batch(Executor& executor, std::vector<Item>& items)
    : executor_(executor), language_(*executor.model().graph.language), items_(items), fed_(items.size()), results_(items.size()), culprits_(items.size()) {
  for (size_t i = 0; i < items.size(); ++i) {
    const auto& item = items[i];
    // All or nothing: what is half read cannot be told from what was sent.
    if (std::string reason; executor.room(*item.context, language_.step, item.tokens.size(), reason) < item.tokens.size()) {
      results_[i].error = Error{Code::invalid, std::move(reason)};
    } else if (item.nats) {
      results_[i].nats.reserve(item.tokens.size());
    }
  }
}

Result<std::vector<ItemResult>> Batch::run(const std::atomic<bool>& stopping) {
  while (unfinished()) {
    plan_step();
    if (stopping.load(std::memory_order_relaxed)) return Error{Code::misuse, "the model was closed while the call was running."};
    // Every item of this turn may have ended before its first row.
    if (tokens_.empty()) continue;
    executor_.insert(language_.step, 0, std::as_bytes(std::span(tokens_)));
    executor_.step(language_.step, tokens_.size(), runs_);
    inspect();
    surprisals();
    advance();
  }
  let_go();
  for (size_t i = 0; i < items_.size(); ++i) {
    auto& context = *items_[i].context;
    // A state can stop being finite a token before the hidden vector shows it.
    if (!context.finite()) broke(i, context.head.pulse);
    results_[i].head = context.head;
  }
  return std::move(results_);
}

// Fills the step: one row for each context that generates, the rest shared by those that still read. Contexts beyond the
// first max_rows wait for a later step, as do those that the device has no memory for beside the ones it holds already.
void Batch::plan_step() {
  let_go();
  tokens_.clear();
  runs_.clear();
  run_item_.clear();

  std::vector<size_t> generating_items;
  const size_t most = executor_.rows_of(language_.step);
  size_t readers = 0;
  for (size_t i = 0; i < items_.size(); ++i) {
    std::string reason;
    if (feeding(i)) ++readers;
    else if (!generating(i) || generating_items.size() == most) continue;
    else if (executor_.room(*items_[i].context, language_.step, 1, reason) == 0) results_[i].ended = Ended::positions;
    else if (hold(i, 1)) generating_items.push_back(i);
  }
  sample_next(generating_items);

  size_t room_left = most - tokens_.size();
  for (size_t i = 0; i < items_.size() && room_left > 0 && readers > 0; ++i) {
    const auto& item = items_[i];
    if (!feeding(i)) continue;
    const size_t share = std::max<size_t>(1, room_left / readers--);
    const size_t rows = executor_.within_segment(*item.context, language_.step, std::min(share, item.tokens.size() - fed_[i]));
    if (!hold(i, rows)) continue;
    const auto first = item.tokens.begin() + static_cast<ptrdiff_t>(fed_[i]);
    runs_.push_back({item.context.get(), tokens_.size(), rows});
    run_item_.push_back(i);
    tokens_.insert(tokens_.end(), first, first + static_cast<ptrdiff_t>(rows));
    room_left -= rows;
  }
}

// With room for what these rows will enter: a context that grows among others may have to wait for them to leave.
bool Batch::hold(size_t item, size_t rows) {
  auto& device = *executor_.model().device;
  auto& context = *items_[item].context;
  if (!device.hold(context)) return false;
  try {
    executor_.reserve(context, language_.step, rows);
  } catch (const DeviceError&) {
    device.let_go(context);
    if (held_.empty() || device.lost()) throw;
    return false;
  }
  held_.push_back(item);
  return true;
}

void Batch::let_go() {
  for (const size_t item : held_) executor_.model().device->let_go(*items_[item].context);
  held_.clear();
}

// Draws the next token of each of these items from the hidden vector its context keeps.
void Batch::sample_next(const std::vector<size_t>& which) {
  const auto& model = executor_.model();
  const size_t vocabulary = model.graph.vocabulary();
  const size_t most = executor_.rows_of(language_.predict);
  for (size_t from = 0; from < which.size(); from += most) {
    const size_t rows = std::min(most, which.size() - from);
    std::vector<const std::byte*> hiddens;
    for (size_t r = 0; r < rows; ++r) hiddens.push_back(items_[which[from + r]].context->data(language_.last));
    predict(executor_, hiddens);
    const float* logits = predicted(executor_, rows);
    std::vector<Draw> draws(rows);
    executor_.pool().parallel_for(rows, [&](size_t r) {
      const auto& item = items_[which[from + r]];
      draws[r] = draw(model.kernels, {logits + r * vocabulary, vocabulary}, item.sampling, item.context->head.pulse);
    });
    for (size_t r = 0; r < rows; ++r) {
      const size_t i = which[from + r];
      const auto& [outcome, token, logprob] = draws[r];
      if (outcome == Draw::Outcome::exhausted) throw std::bad_alloc();
      if (outcome == Draw::Outcome::not_finite) {
        fail(i, "logits", items_[i].context->head.pulse);
        continue;
      }
      if (token == items_[i].eos) {
        results_[i].ended = Ended::eos;
        continue;
      }
      results_[i].generated.push_back(token);
      results_[i].logprobs.push_back(logprob);
      runs_.push_back({items_[i].context.get(), tokens_.size(), 1});
      run_item_.push_back(i);
      tokens_.push_back(token);
    }
  }
}

// Nats of the fed rows whose item asked: the hidden vector of the token before predicts each token.
void Batch::surprisals() {
  const size_t bytes = executor_.model().graph.width(language_.hidden) * sizeof(float);
  struct Awaited {
    size_t item;
    size_t token;
    uint64_t pulse;
  };
  const std::byte* previous = executor_.address(language_.step, step_value(language_.previous));
  std::vector<Awaited> places;
  std::vector<int32_t> expected;
  std::vector<const std::byte*> hiddens;
  const auto flush = [&] {
    if (places.empty()) return;
    std::vector<float> nats(places.size());
    predict(executor_, hiddens);
    executor_.surprisals(expected, nats.data());
    for (size_t r = 0; r < places.size(); ++r) {
      const auto& [item, token, pulse] = places[r];
      results_[item].nats[token] = nats[r];
      if (!std::isfinite(nats[r])) fail(item, "logits", pulse);
    }
    expected.clear();
    hiddens.clear();
    places.clear();
  };
  for (size_t run = 0; run < runs_.size(); ++run) {
    const size_t i = run_item_[run];
    if (!items_[i].nats || !feeding(i)) continue;
    auto& nats = results_[i].nats;
    const auto& head = items_[i].context->head;
    for (size_t r = 0; r < runs_[run].rows; ++r) {
      nats.push_back(std::numeric_limits<float>::quiet_NaN());
      // Nothing predicts the first token of a context.
      if (head.pulse + r == head.origin) continue;
      const size_t row = runs_[run].row + r;
      hiddens.push_back(previous + row * bytes);
      expected.push_back(tokens_[row]);
      places.push_back({i, nats.size() - 1, head.pulse + r});
      if (places.size() == executor_.rows_of(language_.predict)) flush();
    }
  }
  flush();
}

// What the step says about its rows, before another one takes the executor.
void Batch::inspect() {
  for (const size_t i : run_item_) {
    const Context* context = items_[i].context.get();
    for (const auto& fault : executor_.faults()) {
      if (fault.context != context || results_[i].error) continue;
      results_[i].error = Error{Code::refused, text(fault.message, " This was at pulse ", context->head.pulse, ". Reset the context or restore it from its last snapshot.")};
    }
    if (const auto* culprit = executor_.culprit(context); culprit && culprits_[i].empty()) culprits_[i] = *culprit;
  }
}

// Moves clocks and chains past the step.
void Batch::advance() {
  const size_t width = executor_.model().graph.width(language_.hidden);
  const auto* hiddens = reinterpret_cast<const float*>(executor_.fetch(language_.step, step_value(language_.hidden), tokens_.size()));
  for (size_t run = 0; run < runs_.size(); ++run) {
    const size_t i = run_item_[run];
    auto& head = items_[i].context->head;
    const bool fed = feeding(i);
    for (size_t r = 0; r < runs_[run].rows; ++r) {
      const size_t row = runs_[run].row + r;
      const std::span<const float> hidden{hiddens + row * width, width};
      if (!executor_.model().kernels.finite(hidden.data(), width)) broke(i, head.pulse);
      head.chain.pulse(tokens_[row], hidden);
      ++head.pulse;
    }
    if (fed) fed_[i] += runs_[run].rows;
  }
}

void Batch::broke(size_t item, uint64_t pulse) {
  auto& context = *items_[item].context;
  if (context.broken) return;
  context.broken = true;
  // The cause says more than logits that followed from it.
  results_[item].error.reset();
  fail(item, "state", pulse);
  if (!culprits_[item].empty()) results_[item].error->message += text(" The first node to give such a number was ", culprits_[item], ".");
}

// The item ends here; the others of the call go on as if it were not there.
void Batch::fail(size_t item, const char* what, uint64_t pulse) {
  auto& error = results_[item].error;
  if (error) return;
  error = Error{Code::refused, text("The ", what, " stopped being finite at pulse ", pulse, ". Reset the context or restore it from its last snapshot.")};
}

}  // namespace continuo
