#include "batch.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace continuo {

Batch::Batch(Executor& executor, std::vector<Item>& items) : executor_(executor), items_(items), fed_(items.size()), results_(items.size()) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].nats) results_[i].nats.reserve(items[i].tokens.size());
  }
}

Result<std::vector<ItemResult>> Batch::run(const std::atomic<bool>& stopping) {
  while (unfinished()) {
    plan_step();
    if (stopping.load(std::memory_order_relaxed)) return Error{Code::misuse, "the model was closed while the call was running."};
    executor_.step(tokens_, runs_);
    surprisals();
    advance();
  }
  for (size_t i = 0; i < items_.size(); ++i) {
    auto& context = *items_[i].context;
    // A state can stop being finite a token before the hidden vector shows it.
    if (!context.finite()) broke(i, context.head.pulse);
    results_[i].head = context.head;
  }
  return std::move(results_);
}

// Fills the step: one row for each context that generates, the rest shared by those that still read. Contexts beyond the
// first max_rows wait for a later step.
void Batch::plan_step() {
  tokens_.clear();
  runs_.clear();
  run_item_.clear();

  std::vector<size_t> generating_items;
  size_t readers = 0;
  for (size_t i = 0; i < items_.size(); ++i) {
    if (feeding(i)) ++readers;
    else if (generating(i) && generating_items.size() < Executor::max_rows) generating_items.push_back(i);
  }
  sample_next(generating_items);

  size_t room = Executor::max_rows - tokens_.size();
  for (size_t i = 0; i < items_.size() && room > 0 && readers > 0; ++i) {
    const auto& item = items_[i];
    if (!feeding(i)) continue;
    const size_t share = std::max<size_t>(1, room / readers--);
    const size_t rows = std::min(share, item.tokens.size() - fed_[i]);
    const auto first = item.tokens.begin() + static_cast<ptrdiff_t>(fed_[i]);
    runs_.push_back({item.context.get(), tokens_.size(), rows});
    run_item_.push_back(i);
    tokens_.insert(tokens_.end(), first, first + static_cast<ptrdiff_t>(rows));
    room -= rows;
  }
}

// Draws the next token of each of these items from the hidden vector its context keeps.
void Batch::sample_next(const std::vector<size_t>& which) {
  const auto& model = executor_.model();
  const size_t width = executor_.hidden_width();
  const size_t vocabulary = model.graph.vocabulary();
  const size_t last = model.state_offset[model.graph.last];
  for (size_t from = 0; from < which.size(); from += executor_.predict_rows()) {
    const size_t rows = std::min(executor_.predict_rows(), which.size() - from);
    for (size_t r = 0; r < rows; ++r) {
      std::memcpy(executor_.predict_input() + r * width, items_[which[from + r]].context->state() + last, width * sizeof(float));
    }
    const float* logits = executor_.predict(rows);
    for (size_t r = 0; r < rows; ++r) {
      const size_t i = which[from + r];
      const std::span<const float> row{logits + r * vocabulary, vocabulary};
      const uint64_t pulse = items_[i].context->head.pulse;
      if (!model.kernels.finite(row.data(), vocabulary)) {
        fail(i, "logits", pulse);
        continue;
      }
      const int32_t token = sample(model.kernels, row, items_[i].sampling, pulse);
      results_[i].generated.push_back(token);
      results_[i].logprobs.push_back(-surprisal(model.kernels, row, token));
      runs_.push_back({items_[i].context.get(), tokens_.size(), 1});
      run_item_.push_back(i);
      tokens_.push_back(token);
    }
  }
}

// Nats of the fed rows whose item asked: the hidden vector of the token before predicts each token.
void Batch::surprisals() {
  const auto& model = executor_.model();
  const size_t width = executor_.hidden_width();
  const size_t vocabulary = model.graph.vocabulary();
  struct Place {
    size_t item;
    size_t token;
    int32_t expected;
    uint64_t pulse;
  };
  std::vector<Place> places;
  const auto flush = [&] {
    if (places.empty()) return;
    const float* logits = executor_.predict(places.size());
    for (size_t r = 0; r < places.size(); ++r) {
      const auto& [item, token, expected, pulse] = places[r];
      const float nats = surprisal(model.kernels, {logits + r * vocabulary, vocabulary}, expected);
      results_[item].nats[token] = nats;
      if (!std::isfinite(nats)) fail(item, "logits", pulse);
    }
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
      std::memcpy(executor_.predict_input() + places.size() * width, executor_.previous() + row * width, width * sizeof(float));
      places.push_back({i, nats.size() - 1, tokens_[row], head.pulse + r});
      if (places.size() == executor_.predict_rows()) flush();
    }
  }
  flush();
}

// Moves clocks and chains past the step.
void Batch::advance() {
  const size_t width = executor_.hidden_width();
  for (size_t run = 0; run < runs_.size(); ++run) {
    const size_t i = run_item_[run];
    auto& head = items_[i].context->head;
    const bool fed = feeding(i);
    for (size_t r = 0; r < runs_[run].rows; ++r) {
      const size_t row = runs_[run].row + r;
      const std::span<const float> hidden{executor_.hidden() + row * width, width};
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
}

// The item ends here; the others of the call go on as if it were not there.
void Batch::fail(size_t item, const char* what, uint64_t pulse) {
  auto& error = results_[item].error;
  if (error) return;
  error = Error{Code::refused, text("The ", what, " stopped being finite at pulse ", pulse, ". Reset the context or restore it from its last snapshot.")};
}

}  // namespace continuo
