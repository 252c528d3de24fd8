#include "runtime/scheduler/scheduler.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <new>
#include <utility>

namespace continuo {

namespace {

// An item that was left out of so many steps in a row goes before all others.
constexpr size_t starved_after_steps = 16;

}  // namespace

void Scheduler::admit(Item item, Answer answer, Pace::Time submitted) {
  pace_.returned(item.context->habit, item.count > 0, submitted);
  if (item.tokens.empty())
    generating_.push_back({std::move(item), std::move(answer)});
  else
    enter(std::move(item), std::move(answer));
}

bool Scheduler::runnable() const {
  if (!owed_.empty()) return true;
  for (const auto* works : {&generating_, &reading_}) {
    for (const auto& work : *works) {
      if (!work.parked()) return true;
    }
  }
  return false;
}

std::optional<Pace::Time> Scheduler::wait_until() { return pace_.wait_until(generating_.size(), Pace::Clock::now()); }

void Scheduler::step(Executor& executor) {
  const auto started = Pace::Clock::now();
  const bool owing = !owed_.empty();
  const auto seconds_so_far = [&] { return std::chrono::duration<double>(Pace::Clock::now() - started).count(); };
  const uint64_t before = counts_.tokens;
  serve(executor);
  plan(executor);
  run(executor);
  if (!tokens_.empty()) {
    inspect(executor);
    owe_surprisals(executor);
    judge(executor);
    size_t reading = 0, rows = 0;
    for (size_t run = 0; run < runs_.size(); ++run) {
      reading += run_work_[run]->unread() ? runs_[run].rows : 0;
      rows += runs_[run].rows;
    }
    advance(executor);
    ++counts_.steps;
    counts_.tokens += rows;
    // A step that also computed owed surprisals is no measurement of generating rows alone.
    const double seconds = seconds_so_far();
    if (reading > 0 || !owing) pace_.stepped(tokens_.size() - reading, reading, seconds);
    if (reading == 0 && !owing) drafts_.stepped(tokens_.size(), counts_.tokens - before, seconds);
    read_beside_ = reading;
  } else if (counts_.tokens > before && !owing) {
    drafts_.stepped(0, counts_.tokens - before, seconds_so_far());
  }
  unpin();
  retire();
  if (owed_.empty() || !generating_.empty() || pace_.expects_somebody()) return;
  predict_next(executor, {});
  retire();
}

// Runs the step. Afterwards its runs are those that came through to the end.
void Scheduler::run(Executor& executor) {
  const size_t step = executor.model().graph.language->step;
  const bool parks = executor.parks(step);
  if (tokens_.empty() && !(parks && executor.can_join())) return;
  if (!tokens_.empty()) executor.insert(step, 0, std::as_bytes(std::span(tokens_)));
  if (!parks) return executor.step(step, tokens_.size(), runs_);
  for (size_t run = 0; run < runs_.size(); ++run) {
    const auto first = tokens_.begin() + static_cast<ptrdiff_t>(runs_[run].row);
    run_work_[run]->stepping.assign(first, first + static_cast<ptrdiff_t>(runs_[run].rows));
  }
  std::map<const Context*, Work*> midway;
  for (auto* works : {&reading_, &generating_}) {
    for (auto& work : *works) {
      if (work.midway()) midway.emplace(&work.context(), &work);
    }
  }
  // Whose experts mostly are in memory should not wait for the others' experts.
  const auto others = [&] {
    const auto able = [](const Work& work) { return !work.midway() && !work.parked() && work.context().swift(); };
    return executor.can_join(true) || std::any_of(reading_.begin(), reading_.end(), able) ||
           std::any_of(generating_.begin(), generating_.end(), able);
  };
  runs_ = executor.pass(step, runs_, {wake_, [&] { return !others() && rest_() && !others(); }});
  tokens_.clear();
  run_work_.clear();
  for (const auto& run : runs_) {
    Work& work = *midway.at(run.context);
    work.ticket = nullptr;
    run_work_.push_back(&work);
    tokens_.insert(tokens_.end(), work.stepping.begin(), work.stepping.end());
    work.stepping.clear();
  }
  executor.each_parked([&](const Context* context, const std::shared_ptr<Ticket>& ticket) {
    Work& work = *midway.at(context);
    if (work.ticket != ticket) (void)park(work, ticket);
  });
}

// Carries out what items ask of the external memory.
void Scheduler::serve(Executor& executor) {
  for (auto& work : generating_) {
    // What is asked for changes the list, so it need not be laid before.
    if (!work.requested() || !pin(executor, work, 0, false)) continue;
    if (const auto* asked = std::get_if<AdaptRequest>(&*work.item.request)) {
      adapt(executor, work, *asked);
      continue;
    }
    work.served = true;
    MemoryController controller(work.context(), executor.pool(), work.result.events);
    const auto& request = std::get<MemoryRequest>(*work.item.request);
    if (request.archive) {
      controller.archive();
      continue;
    }
    auto good = request.plain ? controller.take_over(*request.plain) : controller.retrieve(request.blocks);
    if (!good) work.result.error = good.error();
  }
}

// Begins an adaptation, which runs beside the steps; and ends it, once its ticket has opened.
void Scheduler::adapt(Executor& executor, Work& work, const AdaptRequest& request) {
  if (!work.adapting) {
    executor.settle();
    work.adapting = std::make_shared<Adapting>(work.context(), request);
    (void)park(work, adapt_threads_.start(work.adapting));
    return;
  }
  work.served = true;
  if (!work.adapting->stopped()) work.result.adapted = work.adapting->finish(work.context());
}

// Fills the step: draws the next token of each generating item, then gives the remaining rows to reading items.
void Scheduler::plan(Executor& executor) {
  unpin();
  tokens_.clear();
  runs_.clear();
  run_work_.clear();

  const size_t step = executor.model().graph.language->step;
  const size_t most = executor.rows_of(step);
  // A reading item that was left out for long goes first.
  size_t urgent = 0;
  const auto starved = std::find_if(reading_.begin(), reading_.end(), [](const Work& work) {
    return work.passed_over >= starved_after_steps && work.reading() && !work.parked();
  });
  if (starved != reading_.end() && read(executor, *starved, std::min(ReadTurns::rows, most))) {
    urgent = tokens_.size();
  }
  judged_.clear();
  std::vector<Work*> generating;
  for (auto& work : generating_) {
    if (generating.size() + urgent >= most) break;
    std::string reason;
    if (!work.generating()) continue;
    if (executor.room(work.context(), step, 1, reason) == 0)
      work.result.ended = Ended::positions;
    else if (pin(executor, work, 1))
      generating.push_back(&work);
  }
  drawn_.clear();
  drafts_.begin(generating.size(), reading_.empty() ? 0 : read_beside_);
  const uint64_t kept = counts_.kept;
  predict_next(executor, generating);
  lay_drawn(executor);
  // Items whose tokens needed no row are answered before readers take a step of their own.
  if (reading_.empty() || (tokens_.empty() && counts_.kept > kept)) return;
  if (tokens_.size() < most)
    share(executor, urgent > 0 ? &*starved : nullptr,
          pace_.reading_rows(tokens_.size() - urgent, most - tokens_.size(), messages()));
  // Generating items may fill every step: then this count gives the first reader its turn in the end.
  else if (urgent == 0)
    ++reading_.front().passed_over;
}

// Pins the item's context, makes room for the positions of these rows, and, with `to_step`, lays its list of slots.
// False where the item must wait: for a ticket, or for other contexts to free memory of the device; and where it
// failed.
bool Scheduler::pin(Executor& executor, Work& work, size_t rows, bool to_step) {
  auto& device = *executor.model().device;
  auto& context = work.context();
  if (work.parked()) return false;
  if (const auto ticket = std::exchange(work.ticket, nullptr); ticket && ticket->error()) {
    end_wait(work);
    work.result.error = *ticket->error();
    context.broken = true;
    return false;
  }
  if (auto awaited = device.awaited(context); awaited && !awaited->ready()) return park(work, std::move(awaited));
  bool pinned = false;
  try {
    pinned = device.pin(context);
    if (pinned && to_step && executor.model().graph.memory) {
      if (auto awaited = MemoryController(context, executor.pool(), work.result.events).prepare()) {
        device.unpin(context);
        if (!work.waits_since) work.waits_since = Pace::Clock::now();
        return park(work, std::move(awaited));
      }
      end_wait(work);
    }
    if (pinned) executor.reserve(context, executor.model().graph.language->step, rows);
  } catch (const std::exception& error) {
    if (pinned) device.unpin(context);
    pinned = false;
    if (device.lost()) throw;
    if (pinned_.empty()) {
      // No other context is pinned, so waiting would not make room.
      const bool of_device = dynamic_cast<const DeviceError*>(&error) != nullptr;
      work.result.error = Error{Code::unavailable, of_device ? error.what()
                                                             : text("the engine ran out of memory: ", error.what(),
                                                                    ". Free some, and reset or restore the context.")};
      context.broken = true;
      return false;
    }
  }
  work.passed_over = pinned ? 0 : work.passed_over + 1;
  if (pinned) pinned_.push_back(&work);
  return pinned;
}

// Counts the time that the item waited for blocks, where it did.
void Scheduler::end_wait(Work& work) {
  const auto since = std::exchange(work.waits_since, std::nullopt);
  if (!since) return;
  ++counts_.block_waits;
  counts_.block_wait_ns += static_cast<uint64_t>(std::chrono::nanoseconds(Pace::Clock::now() - *since).count());
}

bool Scheduler::park(Work& work, std::shared_ptr<Ticket> ticket) {
  work.ticket = std::move(ticket);
  work.ticket->on_open(wake_);
  return false;
}

void Scheduler::unpin() {
  std::erase_if(pinned_, [](Work* work) {
    if (!work->midway()) work->context().model().device->unpin(work->context());
    return !work->midway();
  });
}

uint32_t Scheduler::step_value(Executor& executor, Name name) const {
  return executor.model().programs[executor.model().graph.language->step].last_value[name];
}

// Takes faults and non-finite nodes over into the items, before the next step of the executor clears them.
void Scheduler::inspect(Executor& executor) {
  for (Work* work : run_work_) {
    const Context* context = &work->context();
    for (const auto& fault : executor.faults()) {
      if (fault.context != context || work->result.error) continue;
      work->result.error = Error{Code::refused, text(fault.message, " This was at pulse ", context->head.pulse,
                                                     ". Reset the context or restore it from its last snapshot.")};
    }
    if (const auto* first_non_finite = executor.first_non_finite(context);
        first_non_finite && work->first_non_finite.empty())
      work->first_non_finite = *first_non_finite;
  }
}

// Moves clocks and chains past the rows of the step, and checks the state of the items that end with it.
void Scheduler::advance(Executor& executor) {
  const auto& language = *executor.model().graph.language;
  const size_t width = executor.model().graph.width(language.hidden);
  // Before the hidden vectors are fetched: what was fetched is there until the executor's next call.
  note_routes(executor);
  const bool remembers = executor.model().graph.memory.has_value();
  std::vector<float> inner;
  if (remembers && language.inner != language.hidden) inner = fetch_inner(executor);
  const auto* hiddens = reinterpret_cast<const float*>(
      executor.fetch(language.step, step_value(executor, language.hidden), tokens_.size()));
  std::vector<HostRows> asked;
  if (remembers) asked = bring_asked(runs_);
  for (size_t run = 0; run < runs_.size(); ++run) {
    Work& work = *run_work_[run];
    // unread(), not reading(): the tokens of an item that failed in this step are fed as well.
    const bool fed = work.unread();
    for (size_t r = 0; r < runs_[run].rows; ++r) {
      const size_t row = runs_[run].row + r;
      pass(work, tokens_[row], {hiddens + row * width, width});
    }
    if (remembers && !work.context().broken)
      remember(executor, work, runs_[run], inner.empty() ? hiddens : inner.data(), std::move(asked[run]));
    drafts_.fed(work.context(), std::span(tokens_).subspan(runs_[run].row, runs_[run].rows));
    if (run < judged_.size()) keep_ahead(work, std::move(judged_[run]));
    if (fed) work.fed += runs_[run].rows;
    if (!work.reading() && !work.generating()) check(work);
  }
}

// Moves the clock and the chain of the item's context past a token with this hidden vector.
void Scheduler::pass(Work& work, int32_t token, std::span<const float> hidden) {
  auto& head = work.context().head;
  if (!work.context().model().host().finite(hidden.data(), hidden.size())) fail_state(work, head.pulse);
  head.chain.pulse(token, hidden);
  ++head.pulse;
  if (work.item.hidden && work.unread()) {
    auto& sum = work.result.hidden_sum;
    sum.resize(hidden.size());
    for (size_t i = 0; i < hidden.size(); ++i) sum[i] += static_cast<double>(hidden[i]);
    work.result.hidden_last.assign(hidden.begin(), hidden.end());
  }
}

// Notes the experts of generated tokens for the items that asked.
void Scheduler::note_routes(Executor& executor) {
  const auto asks = [](const Work* work) { return work->item.perspectives && !work->unread(); };
  if (std::none_of(run_work_.begin(), run_work_.end(), asks)) return;
  const size_t step = executor.model().graph.language->step;
  const auto& program = executor.model().programs[step];
  for (size_t route = 0;; ++route) {
    const uint32_t id = program.result(text("route.", route));
    if (id == no_name) return;
    const size_t each = program.values[id].bytes / sizeof(int32_t);
    const auto* experts = reinterpret_cast<const int32_t*>(executor.fetch(step, id, tokens_.size()));
    for (size_t run = 0; run < runs_.size(); ++run) {
      if (!asks(run_work_[run])) continue;
      const auto* from = experts + runs_[run].row * each;
      auto& out = run_work_[run]->result.experts;
      out.insert(out.end(), from, from + runs_[run].rows * each);
    }
  }
}

// Of the rows of the step, what an external memory reads where that is not the hidden vector.
std::vector<float> Scheduler::fetch_inner(Executor& executor) {
  const auto& graph = executor.model().graph;
  const auto* rows = reinterpret_cast<const float*>(
      executor.fetch(graph.language->step, step_value(executor, graph.language->inner), tokens_.size()));
  return {rows, rows + tokens_.size() * graph.width(graph.language->inner)};
}

// What happens in the external memory after the tokens of a run. `inner`: the network's hidden vector of each row.
void Scheduler::remember(Executor& executor, Work& work, const Run& run, const float* inner, HostRows rows) {
  const size_t width = executor.model().graph.width(executor.model().graph.language->inner);
  MemoryController controller(work.context(), executor.pool(), work.result.events, std::move(rows));
  for (size_t r = 0; r < run.rows; ++r) controller.take(r, run.rows, {inner + (run.row + r) * width, width});
  controller.finish(tokens_[run.row + run.rows - 1]);
}

// Looks for non-finite numbers in the state where an item ends, so that the verdict does not depend on how its rows
// were spread over steps. A state can stop being finite a token before the hidden vector does.
void Scheduler::check(Work& work) {
  if (work.checked) return;
  work.checked = true;
  auto& context = work.context();
  if (context.broken) return;
  try {
    if (!context.finite()) fail_state(work, context.head.pulse);
  } catch (const std::exception& error) {
    if (!work.result.error) work.result.error = Error{Code::unavailable, error.what()};
    context.broken = true;
  }
}

void Scheduler::fail_state(Work& work, uint64_t pulse) {
  auto& context = work.context();
  if (context.broken) return;
  context.broken = true;
  // Replaces an error about logits: the broken state is their cause.
  work.result.error.reset();
  fail_item(work, "state", pulse);
  if (!work.first_non_finite.empty())
    work.result.error->message += text(" The first node to give such a number was ", work.first_non_finite, ".");
}

// Ends this item with an error. No other item is affected.
void Scheduler::fail_item(Work& work, const char* what, uint64_t pulse) {
  auto& error = work.result.error;
  if (error) return;
  error = Error{Code::refused, text("The ", what, " stopped being finite at pulse ", pulse,
                                    ". Reset the context or restore it from its last snapshot.")};
}

// Answers the items that are done, and moves those that have read all their tokens to the generating ones.
void Scheduler::retire() {
  for (auto* works : {&reading_, &generating_}) {
    for (auto work = works->begin(); work != works->end();) {
      const auto next = std::next(work);
      if (work->ended())
        answer(*works, work);
      else if (works == &reading_ && work->generating())
        generating_.splice(generating_.end(), reading_, work);
      work = next;
    }
  }
}

void Scheduler::answer(Works& works, Works::iterator work) {
  const auto& item = work->item;
  auto& result = work->result;
  check(*work);
  if (!result.error)
    pace_.answered(item.context->habit, item.more && item.count > 0 && result.ended == Ended::not_early,
                   Pace::Clock::now());
  ++counts_.items;
  Work over = std::move(*work);
  works.erase(work);
  deliver(std::move(over));
}

void Scheduler::deliver(Work over) {
  over.result.head = over.context().head;
  over.context().release();
  over.answer(std::move(over.result));
}

void Scheduler::fail_step(const Error& error) {
  if (pinned_.empty() && owed_.empty()) return fail_all(error, true);
  // The failed step may have overwritten the hidden vectors that owed surprisals need.
  for (const auto& owed : owed_) {
    owed.work->owed = 0;
    owed.work->result.error = error;
    owed.work->context().broken = true;
  }
  owed_.clear();
  for (Work* work : pinned_) {
    work->result.error = error;
    work->context().broken = true;
    work->stepping.clear();
  }
  unpin();
  retire();
}

void Scheduler::fail_all(const Error& error, bool broken) {
  for (Work* work : pinned_) {
    // Its state stands between two tokens.
    work->context().broken = work->context().broken || work->midway();
    work->stepping.clear();
  }
  unpin();
  owed_.clear();
  for (auto* works : {&reading_, &generating_}) {
    while (!works->empty()) {
      Work over = std::move(works->front());
      works->pop_front();
      over.result.error = error;
      over.context().broken = over.context().broken || broken;
      deliver(std::move(over));
    }
  }
}

}  // namespace continuo
