// What a scheduler does for items that read: their order, and their rows of a step.
#include <algorithm>
#include <utility>

#include "runtime/scheduler/scheduler.h"

namespace continuo {

// Puts a reading item into the queue.
void Scheduler::enter(Item item, Answer answer) {
  auto& habit = item.context->habit;
  habit.place = turns_.enter(habit.place);
  const auto behind = std::find_if(reading_.begin(), reading_.end(),
                                   [&](const Work& work) { return work.context().habit.place > habit.place; });
  const bool message = item.tokens.size() <= ReadTurns::lead && (item.count > 0 || habit.reply_seconds > 0);
  reading_.insert(behind, {std::move(item), std::move(answer)})->message = message;
}

// A stable sort: those with one place stay in the order in which they came.
void Scheduler::order_readers() {
  reading_.sort([](const Work& a, const Work& b) { return a.context().habit.place < b.context().habit.place; });
}

// Tokens left of messages that can be read now.
size_t Scheduler::messages() {
  size_t items = 0, messages = 0, tokens = 0;
  for (const auto& work : reading_) {
    if (!work.reading() || work.parked()) continue;
    ++items;
    if (!work.message) continue;
    ++messages;
    tokens += work.item.tokens.size() - work.fed;
  }
  turns_.among(items, messages);
  return tokens;
}

// Gives up to `rows` rows to reading items, in their order; none to `served`, which has rows of this step already.
void Scheduler::share(Executor& executor, const Work* served, size_t rows) {
  const auto& model = executor.model();
  const size_t most = executor.rows_of(model.graph.language->step);
  const size_t turn = ReadTurns::rows_for(model.state_bytes, model.weight_bytes, most, executor.pool().threads());
  size_t left = reading_.size() - (served ? 1 : 0);
  for (auto& work : reading_) {
    if (rows == 0) break;
    if (&work == served) continue;
    const size_t before = tokens_.size();
    if (work.reading()) (void)read(executor, work, std::min(rows, std::max(turn, rows / left)));
    rows -= tokens_.size() - before;
    --left;
  }
  order_readers();
}

// Takes up to `rows` tokens of an item into the step. False where its context cannot be pinned now, or where its tokens
// do not fit into its context.
bool Scheduler::read(Executor& executor, Work& work, size_t rows) {
  const size_t step = executor.model().graph.language->step;
  auto& item = work.item;
  auto& result = work.result;
  const size_t fed = work.fed;
  if (fed == 0) {
    // All tokens or none: the sender of a half-read item could not tell how much was read.
    if (std::string reason; executor.room(*item.context, step, item.tokens.size(), reason) < item.tokens.size()) {
      result.error = Error{Code::invalid, std::move(reason)};
      return false;
    }
    if (item.nats) result.nats.reserve(item.tokens.size());
  }
  size_t taken = executor.within_segment(*item.context, step, std::min(rows, item.tokens.size() - fed));
  const auto first = item.tokens.begin() + static_cast<ptrdiff_t>(fed);
  // The list of slots changes behind a special id, so a step ends there.
  if (const auto& memory = executor.model().graph.memory) {
    const auto end = first + static_cast<ptrdiff_t>(taken);
    const auto special = std::find_if(first, end, [&](int32_t id) { return memory->special(id); });
    if (special != end) taken = static_cast<size_t>(special - first) + 1;
  }
  if (!pin(executor, work, taken)) return false;
  runs_.push_back({item.context.get(), tokens_.size(), taken});
  run_work_.push_back(&work);
  tokens_.insert(tokens_.end(), first, first + static_cast<ptrdiff_t>(taken));
  auto& place = item.context->habit.place;
  place = turns_.read(place, taken, work.message);
  return true;
}

}  // namespace continuo
