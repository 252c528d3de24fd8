// Draws and surprisals: what becomes of the hidden vectors of a step by way of block "predict".
#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <optional>

#include "runtime/sampling/perspectives.h"
#include "runtime/scheduler/scheduler.h"

namespace continuo {

namespace {

// Copies of the tables of all tentative runs of a step, but for the first.
constexpr size_t most_tentative_bytes = size_t{256} << 20;
// What is kept for the next steps, beside what one item has.
constexpr size_t most_ahead_bytes = size_t{64} << 20;

struct Draw {
  enum class Outcome : uint8_t { drawn, not_finite, exhausted };
  Outcome outcome = Outcome::drawn;
  int32_t token = 0;
  float logprob = 0;
  std::vector<int32_t> top = {};  // as ItemResult has it
  std::vector<float> top_logprobs = {};
};

// Runs on a thread of the pool, where nothing would catch an exception: it must not throw.
// `before`: drafts that are drawn before it, where it is drawn at all.
Draw draw(const HostKernels& kernels, std::span<const float> logits, const Item& item, std::span<const int32_t> before,
          uint64_t pulse) {
  if (!kernels.finite(logits.data(), logits.size())) return {Draw::Outcome::not_finite};
  try {
    std::vector<float> changed;
    std::optional<Shaping> own;
    if (!before.empty() && item.shaping.penalises()) {
      own = item.shaping;
      for (const int32_t token : before) own->drawn(token);
    }
    const auto from = shaped(logits, own ? *own : item.shaping, item.allowed, changed);
    const int32_t token = sample(kernels, from, item.sampling, pulse);
    const LogSoftmax model(kernels, logits);
    Draw out{Draw::Outcome::drawn, token, -model.surprisal(token), largest(logits, item.top_logprobs)};
    for (const int32_t id : out.top) out.top_logprobs.push_back(-model.surprisal(id));
    return out;
  } catch (const std::bad_alloc&) {
    return {Draw::Outcome::exhausted};
  }
}

// A token that was drawn, and that is fed.
void take(Item& item, ItemResult& result, const Draw& draw) {
  if (item.stop.ends_with(draw.token)) result.ended = Ended::stop_string;
  result.generated.push_back(draw.token);
  item.shaping.drawn(draw.token);
  result.logprobs.push_back(draw.logprob);
  result.top.insert(result.top.end(), draw.top.begin(), draw.top.end());
  result.top_logprobs.insert(result.top_logprobs.end(), draw.top_logprobs.begin(), draw.top_logprobs.end());
}

}  // namespace

// Runs block "predict" over the hidden vectors of two kinds of rows: of each item in `which`, to draw its next token
// (its context keeps that vector), where its logits are not known already; and of each owed surprisal.
void Scheduler::predict_next(Executor& executor, std::vector<Work*> which) {
  std::vector<const float*> logits;
  for (;;) {
    std::vector<Work*> known;
    std::vector<std::vector<float>> rows;
    std::erase_if(which, [&](Work* work) {
      auto ahead = take_ahead(work->context());
      if (!ahead) return false;
      known.push_back(work);
      rows.push_back(std::move(ahead->logits));
      work->coming = std::move(ahead->coming);
      return true;
    });
    if (known.empty()) break;
    logits.clear();
    for (const auto& row : rows) logits.push_back(row.data());
    sample_next(executor, known, logits);
    which.insert(which.end(), followed_.begin(), followed_.end());
    followed_.clear();
  }

  std::vector<const std::byte*> hiddens;
  std::vector<int32_t> expected;
  for (Work* work : which) hiddens.push_back(work->context().data(executor.model().graph.language->last));
  for (const auto& owed : owed_) {
    hiddens.push_back(owed.hidden);
    expected.push_back(owed.expected);
  }
  const size_t most = executor.rows_of(executor.model().graph.language->predict);
  const size_t draws = which.size(), vocabulary = executor.model().graph.vocabulary();
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
    if (from >= draws) continue;
    const auto drawn = std::span(which).subspan(from, std::min(to, draws) - from);
    const float* first = predicted(executor, drawn.size());
    logits.clear();
    for (size_t row = 0; row < drawn.size(); ++row) logits.push_back(first + row * vocabulary);
    sample_next(executor, drawn, logits);
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

// Draws a token for each of these items from its row of logits, and puts it into the step.
void Scheduler::sample_next(Executor& executor, std::span<Work* const> which, std::span<const float* const> logits) {
  const auto& model = executor.model();
  const size_t vocabulary = model.graph.vocabulary();
  const size_t rows = which.size();
  std::vector<Draw> draws(rows);
  std::vector<float> own;
  std::vector<Drawn> drawn(rows);
  std::vector<const float*> from(logits.begin(), logits.end());
  if (const auto& form = model.graph.perspective; form && form->perspectives) {
    // The perspectives are predicted as these rows were, in the same memory.
    for (const float* row : logits) own.insert(own.end(), row, row + vocabulary);
    std::vector<DrawnRow> asked;
    for (size_t r = 0; r < rows; ++r) {
      from[r] = own.data() + r * vocabulary;
      asked.push_back({&which[r]->context(), which[r]->item.sampling.seed});
    }
    drawn = draw_perspectives(executor, asked, own.data());
  }
  executor.pool().parallel_for(rows, [&](size_t r) {
    const auto& mixed = drawn[r].logits;
    draws[r] = draw(model.host(), mixed.empty() ? std::span{from[r], vocabulary} : std::span<const float>(mixed),
                    which[r]->item, {}, which[r]->context().head.pulse);
  });
  for (size_t r = 0; r < rows; ++r) {
    Work& work = *which[r];
    if (draws[r].outcome == Draw::Outcome::exhausted) throw std::bad_alloc();
    if (draws[r].outcome == Draw::Outcome::not_finite) {
      fail_item(work, "logits", work.context().head.pulse);
      continue;
    }
    if (work.item.is_end(draws[r].token)) {
      work.result.ended = Ended::end_token;
      continue;
    }
    take(work.item, work.result, draws[r]);
    // A model without other perspectives looks at nothing.
    if (work.item.perspectives && !own.empty()) work.result.draws.push_back(drawn[r].note);
    if (!follow(executor, work, draws[r].token)) drawn_.emplace_back(&work, draws[r].token);
  }
}

// Puts the tokens that items drew into the step, each with drafts of those that the item will draw next.
void Scheduler::lay_drawn(Executor& executor) {
  const auto& graph = executor.model().graph;
  const size_t step = graph.language->step;
  std::vector<std::vector<int32_t>> drafts(drawn_.size());
  if (drafts_.on() && !drawn_.empty()) {
    std::vector<Drawing> drawn;
    for (const auto& [work, token] : drawn_) {
      const Item& item = work->item;
      drawn.push_back({&work->context(), token, draft_room(executor, *work, token), item.sampling, item.shaping,
                       item.allowed, item.end_tokens});
    }
    // Every item gets its row first.
    drafts = drafts_.propose(drawn, {executor.rows_of(step) - tokens_.size() - drawn_.size(),
                                     1 + most_tentative_bytes / std::max<size_t>(1, executor.tentative_bytes(step))});
  }
  for (size_t i = 0; i < drawn_.size(); ++i) {
    auto& [work, token] = drawn_[i];
    runs_.push_back({.context = &work->context(), .row = tokens_.size(), .rows = 1, .drawn = true});
    run_work_.push_back(work);
    tokens_.push_back(token);
    // Behind a special id the list of slots changes, so a step ends there.
    if (graph.memory) {
      const auto special = [&](int32_t id) { return graph.memory->special(id); };
      drafts[i].erase(std::find_if(drafts[i].begin(), drafts[i].end(), special), drafts[i].end());
    }
    if (drafts[i].empty()) continue;
    try {
      executor.reserve(work->context(), step, 1 + drafts[i].size());
    } catch (const std::exception&) {
      // Nothing depends on drafts.
      if (executor.model().device->lost()) throw;
      continue;
    }
    runs_.back().rows += drafts[i].size();
    runs_.back().tentative = true;
    runs_.back().noted = drafts[i].size() > work->item.count - work->result.generated.size();
    tokens_.insert(tokens_.end(), drafts[i].begin(), drafts[i].end());
  }
}

// Where a step computed the row of this token already, it happens now, and needs no row in this step.
bool Scheduler::follow(Executor& executor, Work& work, int32_t token) {
  if (work.coming.empty()) return false;
  auto coming = std::exchange(work.coming, {});
  const bool same = coming.front().token == token;
  drafts_.judged(work.context(), 1, same ? 1 : 0);
  if (!same) return false;
  auto& row = coming.front();
  executor.walk(work.context(), executor.model().graph.language->step, row.walk);
  pass(work, token, row.hidden);
  ++counts_.tokens;
  ++counts_.kept;
  drafts_.fed(work.context(), {&token, 1});
  Ahead ahead{0, {}, std::move(row.logits), {}};
  coming.erase(coming.begin());
  ahead.coming = std::move(coming);
  keep_ahead(work, std::move(ahead));
  std::string reason;
  if (!work.generating())
    check(work);
  else if (executor.room(work.context(), executor.model().graph.language->step, 1, reason) == 0)
    work.result.ended = Ended::positions;
  else
    followed_.push_back(&work);
  return true;
}

// How many drafts may stand behind the token.
size_t Scheduler::draft_room(Executor& executor, Work& work, int32_t token) const {
  const auto& graph = executor.model().graph;
  const size_t step = graph.language->step, rows = executor.tentative_rows(step);
  // Draws from perspectives look at more than logits. Timing and watching want the rows that are drawn, alone.
  if (rows < 2 || (graph.perspective && graph.perspective->perspectives) || executor.options().trace ||
      executor.options().watch || work.result.ended != Ended::not_early ||
      (graph.memory && graph.memory->special(token)))
    return 0;
  size_t room = std::min(rows, executor.rows_of(graph.language->predict));
  // Rows behind the last token of the item come with its next item. What else such a row gives would be lost.
  if (!work.item.more || graph.memory || work.item.perspectives)
    room = std::min(room, work.item.count - work.result.generated.size() + 1);
  std::string reason;
  room = executor.room(work.context(), step, room, reason);
  return executor.within_segment(work.context(), step, room) - 1;
}

// Draws from each row of the runs that generate what the session draws behind it. Where that is the draft of the next
// row, that row stays, and so on. The logits behind the last row that stays are kept for the next step, of runs without
// drafts too, so that a step has one pass over the weights of the output projection.
void Scheduler::judge(Executor& executor) {
  if (std::none_of(runs_.begin(), runs_.end(), [](const Run& run) { return run.tentative; })) return;
  judged_.resize(runs_.size());
  const size_t most = executor.rows_of(executor.model().graph.language->predict);
  std::vector<size_t> part;
  size_t rows = 0;
  for (size_t run = 0; run < runs_.size(); ++run) {
    const Work& work = *run_work_[run];
    const bool goes_on = work.generating() || (work.item.more && work.result.ended == Ended::not_early);
    if (work.unread() || work.result.error || !(runs_[run].tentative || goes_on)) continue;
    if (rows + runs_[run].rows > most) {
      judge_runs(executor, part, rows);
      part.clear();
      rows = 0;
    }
    part.push_back(run);
    rows += runs_[run].rows;
  }
  if (!part.empty()) judge_runs(executor, part, rows);
  auto walks = executor.keep(runs_);
  for (size_t run = 0; run < runs_.size(); ++run) {
    // Those of rows behind a wrong draft are of no use.
    auto& coming = judged_[run].coming;
    for (size_t i = 0; i < coming.size(); ++i) coming[i].walk = std::move(walks[run][i]);
  }
}

void Scheduler::judge_runs(Executor& executor, std::span<const size_t> runs, size_t rows) {
  const auto& model = executor.model();
  const auto& language = *model.graph.language;
  const size_t channels = model.graph.width(language.hidden), bytes = channels * sizeof(float);
  const size_t vocabulary = model.graph.vocabulary();
  const std::byte* hidden = executor.address(language.step, step_value(executor, language.hidden));
  std::vector<const std::byte*> hiddens;
  std::vector<std::pair<size_t, size_t>> of;  // [rows]: run, and row of it
  for (const size_t run : runs) {
    for (size_t r = 0; r < runs_[run].rows; ++r) {
      hiddens.push_back(hidden + (runs_[run].row + r) * bytes);
      of.emplace_back(run, r);
    }
  }
  predict(executor, hiddens);
  const float* logits = predicted(executor, rows);
  std::vector<Draw> draws(rows);
  executor.pool().parallel_for(rows, [&](size_t row) {
    const auto [run, r] = of[row];
    if (r + 1 == runs_[run].rows) return;
    const Work& work = *run_work_[run];
    draws[row] = draw(model.host(), {logits + row * vocabulary, vocabulary}, work.item,
                      std::span(tokens_).subspan(runs_[run].row + 1, r), work.context().head.pulse + r + 1);
  });
  size_t first = 0;
  for (const size_t run : runs) {
    Work& work = *run_work_[run];
    size_t stay = 1;
    for (; stay < runs_[run].rows && work.generating(); ++stay) {
      const Draw& drawn = draws[first + stay - 1];
      // Whatever ends the item is drawn once more, from the logits that are kept.
      if (drawn.outcome != Draw::Outcome::drawn || work.item.is_end(drawn.token) ||
          drawn.token != tokens_[runs_[run].row + stay])
        break;
      take(work.item, work.result, drawn);
    }
    const bool over = work.result.generated.size() == work.item.count;
    if (runs_[run].tentative) {
      counts_.drafted += runs_[run].rows - 1;
      counts_.kept += stay - 1;
      // Those that the next item draws, or does not, are judged then.
      if (const size_t own = over ? stay : runs_[run].rows; own > 1) drafts_.judged(work.context(), own - 1, stay - 1);
    }
    if (work.generating() || (work.item.more && work.result.ended == Ended::not_early)) {
      const auto row_of = [&](const auto* rows_at, size_t width, size_t row) {
        return std::vector<float>(rows_at + row * width, rows_at + (row + 1) * width);
      };
      judged_[run].logits = row_of(logits, vocabulary, first + stay - 1);
      for (size_t row = stay; over && row < runs_[run].rows; ++row)
        judged_[run].coming.push_back({tokens_[runs_[run].row + row],
                                       row_of(reinterpret_cast<const float*>(hiddens[first + row]), channels, 0),
                                       row_of(logits, vocabulary, first + row),
                                       {}});
    }
    first += runs_[run].rows;
    runs_[run].rows = stay;
  }
}

void Scheduler::keep_ahead(Work& work, Ahead ahead) {
  if (work.result.error || ahead.logits.empty()) return;
  const auto& context = work.context();
  if (ahead_bytes_ > most_ahead_bytes) {
    ahead_.clear();
    ahead_bytes_ = 0;
  }
  ahead.pulse = context.head.pulse;
  ahead.chain = context.head.chain;
  (void)take_ahead(context);
  ahead_bytes_ += ahead.bytes();
  ahead_[&context] = std::move(ahead);
}

std::optional<Scheduler::Ahead> Scheduler::take_ahead(const Context& context) {
  const auto found = ahead_.find(&context);
  if (found == ahead_.end()) return std::nullopt;
  auto ahead = std::move(found->second);
  ahead_.erase(found);
  ahead_bytes_ -= ahead.bytes();
  if (ahead.pulse != context.head.pulse || !(ahead.chain == context.head.chain)) return std::nullopt;
  return ahead;
}

size_t Scheduler::Ahead::bytes() const {
  size_t total = logits.size() * sizeof(float);
  for (const auto& row : coming)
    total += (row.hidden.size() + row.logits.size()) * sizeof(float) + row.walk.inputs.size();
  return total;
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
