// Draws and surprisals: what becomes of the hidden vectors of a step by way of block "predict".
#include <algorithm>
#include <cmath>
#include <limits>
#include <new>

#include "runtime/perspectives.h"
#include "runtime/scheduler.h"

namespace continuo {

namespace {

struct Draw {
  enum class Outcome : uint8_t { drawn, not_finite, exhausted };
  Outcome outcome = Outcome::drawn;
  int32_t token = 0;
  float logprob = 0;
  std::vector<int32_t> top = {};  // as ItemResult has it
  std::vector<float> top_logprobs = {};
};

// Runs on a thread of the pool, where nothing would catch an exception: it must not throw.
Draw draw(const HostKernels& kernels, std::span<const float> logits, const Item& item, uint64_t pulse) {
  if (!kernels.finite(logits.data(), logits.size())) return {Draw::Outcome::not_finite};
  try {
    std::vector<float> changed;
    const int32_t token = sample(kernels, shaped(logits, item.shaping, item.allowed, changed), item.sampling, pulse);
    const LogSoftmax model(kernels, logits);
    Draw out{Draw::Outcome::drawn, token, -model.surprisal(token), largest(logits, item.top_logprobs)};
    for (const int32_t id : out.top) out.top_logprobs.push_back(-model.surprisal(id));
    return out;
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
  return reinterpret_cast<const float*>(
      executor.fetch(language.predict, executor.model().programs[language.predict].last_value[language.logits], rows));
}

// Runs block "predict" over the hidden vectors of two kinds of rows: of each item in `which`, to draw its next token
// (its context keeps that vector), and of each owed surprisal.
void Scheduler::predict_next(Executor& executor, const std::vector<Work*>& which) {
  std::vector<const std::byte*> hiddens;
  std::vector<int32_t> expected;
  for (Work* work : which) hiddens.push_back(work->context().data(executor.model().graph.language->last));
  for (const auto& owed : owed_) {
    hiddens.push_back(owed.hidden);
    expected.push_back(owed.expected);
  }
  const size_t most = executor.rows_of(executor.model().graph.language->predict);
  const size_t draws = which.size();
  std::vector<float> nats(owed_.size());
  for (size_t from = 0; from < hiddens.size(); from += most) {
    const size_t to = std::min(hiddens.size(), from + most);
    predict(executor, std::span(hiddens).subspan(from, to - from));
    // Rows 0 … draws − 1 are those of `which`; the owed ones follow.
    if (to > draws) {
      const size_t first = std::max(from, draws);
      executor.surprisals(std::span(expected).subspan(first - draws, to - first), first - from,
                          nats.data() + (first - draws));
    }
    if (from < draws) sample_next(executor, std::span(which).subspan(from, std::min(to, draws) - from));
  }
  for (size_t i = 0; i < owed_.size(); ++i) {
    const auto& [work, token, id, pulse, hidden] = owed_[i];
    work->result.nats[token] = nats[i];
    --work->owed;
    if (std::isfinite(nats[i])) continue;
    // How many tokens were fed after this one depends on how rows were spread over steps. So that no result depends on
    // it, the context is broken.
    fail_item(*work, "logits", pulse);
    work->context().broken = true;
  }
  owed_.clear();
}

// Draws a token for each of these items from the first rows of logits, and puts it into the step.
void Scheduler::sample_next(Executor& executor, std::span<Work* const> which) {
  const auto& model = executor.model();
  const size_t vocabulary = model.graph.vocabulary();
  const size_t rows = which.size();
  const float* logits = predicted(executor, rows);
  std::vector<Draw> draws(rows);
  std::vector<float> own;
  std::vector<Drawn> drawn(rows);
  if (const auto& form = model.graph.perspective; form && form->perspectives) {
    // The perspectives are predicted as these rows were, in the same memory.
    own.assign(logits, logits + rows * vocabulary);
    logits = own.data();
    std::vector<DrawnRow> asked;
    for (Work* work : which) asked.push_back({&work->context(), work->item.sampling.seed});
    drawn = draw_perspectives(executor, asked, logits);
  }
  executor.pool().parallel_for(rows, [&](size_t r) {
    const auto& from = drawn[r].logits;
    draws[r] =
        draw(model.host(), from.empty() ? std::span{logits + r * vocabulary, vocabulary} : std::span<const float>(from),
             which[r]->item, which[r]->context().head.pulse);
  });
  for (size_t r = 0; r < rows; ++r) {
    Work& work = *which[r];
    const auto& [outcome, token, logprob, top, top_logprobs] = draws[r];
    if (outcome == Draw::Outcome::exhausted) throw std::bad_alloc();
    if (outcome == Draw::Outcome::not_finite) {
      fail_item(work, "logits", work.context().head.pulse);
      continue;
    }
    const auto& ends = work.item.end_tokens;
    if (std::find(ends.begin(), ends.end(), token) != ends.end()) {
      work.result.ended = Ended::end_token;
      continue;
    }
    if (work.item.stop.ends_with(token)) work.result.ended = Ended::stop_string;
    work.result.generated.push_back(token);
    work.item.shaping.drawn(token);
    work.result.logprobs.push_back(logprob);
    work.result.top.insert(work.result.top.end(), top.begin(), top.end());
    work.result.top_logprobs.insert(work.result.top_logprobs.end(), top_logprobs.begin(), top_logprobs.end());
    // A model without other perspectives looks at nothing.
    if (work.item.perspectives && !own.empty()) work.result.draws.push_back(drawn[r].note);
    runs_.push_back({&work.context(), tokens_.size(), 1});
    run_work_.push_back(&work);
    tokens_.push_back(token);
  }
}

// Notes a surprisal to be computed for each fed row whose item asked for nats. The hidden vector of the token before
// predicts each token.
void Scheduler::owe_surprisals(Executor& executor) {
  const auto& language = *executor.model().graph.language;
  const size_t bytes = executor.model().graph.width(language.hidden) * sizeof(float);
  const std::byte* previous = executor.address(language.step, step_value(executor, language.previous));
  for (size_t run = 0; run < runs_.size(); ++run) {
    Work& work = *run_work_[run];
    if (!work.item.nats || !work.reading()) continue;
    auto& nats = work.result.nats;
    const auto& head = work.context().head;
    for (size_t r = 0; r < runs_[run].rows; ++r) {
      nats.push_back(std::numeric_limits<float>::quiet_NaN());
      // Nothing predicts the first token of a context.
      if (head.pulse + r == head.origin) continue;
      const size_t row = runs_[run].row + r;
      owed_.push_back({&work, nats.size() - 1, tokens_[row], head.pulse + r, previous + row * bytes});
      ++work.owed;
    }
  }
}

}  // namespace continuo
