#include "runtime/drafts/draft_model.h"

#include <algorithm>
#include <cmath>

namespace continuo {

namespace {

// A context that is so far behind its session begins anew, with so many tokens.
constexpr size_t most_behind = 256, begin_with = 128;

}  // namespace

DraftModel::DraftModel(std::shared_ptr<const Model> model, ThreadPool& pool, size_t bytes,
                       std::shared_ptr<const TokenBytes> vocabulary)
    : model_(std::move(model)),
      executor_(model_->device->executor(model_, pool, {.vocabulary = std::move(vocabulary)})),
      most_bytes_(bytes) {}

Status DraftModel::fits(const Model& other) const {
  const auto refused = [](auto&&... what) {
    return Error{Code::invalid,
                 text("The draft model ", what..., " Name another package, or leave the draft model out.")};
  };
  const auto& graph = model_->graph;
  if (!graph.language || !other.graph.language)
    return refused(
        "and the model that it guesses for must both be language models; one of them has no block \"step\" or "
        "\"predict\".");
  if (graph.vocabulary() != other.graph.vocabulary())
    return refused("has ", graph.vocabulary(), " tokens, expected the ", other.graph.vocabulary(),
                   " of the model that it guesses for.");
  if (graph.memory) return refused("has an external memory (memory.json), expected a plain language model.");
  if (executor_->tentative_rows(graph.language->step) == 0)
    return refused(
        "cannot take back what it read, because its experts lie in a store, or by the way it writes its state.");
  return Done{};
}

// The draft model's context for the session; null where the bound of bytes leaves no room for one more in this round.
DraftModel::Session* DraftModel::session_of(Asked& asked) {
  const Context* key = asked.drawing->context;
  if (const auto found = sessions_.find(key); found != sessions_.end()) {
    found->second.used = round_;
    return &found->second;
  }
  auto context = std::make_unique<Context>(model_);
  const size_t bytes = context->bytes();
  bound(most_bytes_ - std::min(most_bytes_, bytes));
  if (bytes_ + bytes > most_bytes_) return nullptr;
  auto& session = sessions_[key];
  session.context = std::move(context);
  session.bytes = bytes;
  session.used = round_;
  bytes_ += bytes;
  return &session;
}

// Takes back guesses that the session did not draw. Gives the tokens that the context is to be fed, up to the one that
// the session drew.
std::vector<int32_t> DraftModel::sync(Session& session, const Asked& asked) {
  const auto* drawing = asked.drawing;
  const auto past = asked.past;
  const size_t step = model_->graph.language->step;
  const uint64_t now = drawing->context->head.pulse, oldest = now - std::min<uint64_t>(now, past.size());
  auto& context = *session.context;
  const bool fresh = context.head.pulse == context.head.origin;
  const auto known = [&](uint64_t pulse) { return pulse == now ? drawing->token : past[past.size() - (now - pulse)]; };
  size_t right = 0;
  if (session.pulse >= oldest) {
    while (right < session.ahead.size() && session.pulse + right <= now &&
           session.ahead[right] == known(session.pulse + right))
      ++right;
  }
  while (session.marks.size() > right) {
    executor_->back(context, step, session.marks.back());
    session.marks.pop_back();
    --context.head.pulse;
  }
  session.pulse += right;
  session.ahead.clear();
  session.marks.clear();

  std::string reason;
  uint64_t from = session.pulse;
  const size_t wanted = most_behind + drawing->most;
  if (fresh || from < oldest || from > now + 1 || now + 1 - from > most_behind ||
      executor_->room(context, step, wanted, reason) < now + 1 - from + drawing->most) {
    context.reset();
    context.head = Head{};
    // Of few positions, half at most for what was.
    const size_t room = executor_->room(context, step, wanted, reason);
    const size_t most = std::max(room - std::min(room, drawing->most), (room + 1) / 2);
    from = now + 1 - std::min<uint64_t>({now + 1 - oldest, begin_with, most});
  }
  std::vector<int32_t> tokens;
  for (uint64_t pulse = from; pulse <= now; ++pulse) tokens.push_back(known(pulse));
  session.pulse = now + 1;
  return tokens;
}

// Feeds each session its tokens, in as few steps as they fit into. What ends in a fault is over.
void DraftModel::feed(std::span<Feed> feeds) {
  const size_t step = model_->graph.language->step;
  for (;;) {
    std::vector<int32_t> tokens;
    std::vector<Run> runs;
    std::vector<Feed*> of;
    for (auto& each : feeds) {
      const size_t left = executor_->rows_of(step) - tokens.size(), wanted = each.tokens.size() - each.fed;
      if (left == 0 || wanted == 0 || each.asked->over) continue;
      auto& context = *each.session->context;
      const size_t rows = executor_->within_segment(context, step, std::min(left, wanted));
      runs.push_back({&context, tokens.size(), rows});
      of.push_back(&each);
      const auto first = each.tokens.begin() + static_cast<ptrdiff_t>(each.fed);
      tokens.insert(tokens.end(), first, first + static_cast<ptrdiff_t>(rows));
      each.fed += rows;
    }
    if (tokens.empty()) return;
    executor_->insert(step, 0, std::as_bytes(std::span(tokens)));
    executor_->step(step, tokens.size(), runs);
    for (const auto& run : runs) run.context->head.pulse += run.rows;
    for (const auto& fault : executor_->faults()) {
      for (const auto* each : of)
        if (each->session->context.get() == fault.context) each->asked->over = each->asked->failed = true;
    }
  }
}

// Draws the next guess of each of these from what its context read last.
void DraftModel::guess(std::span<Asked* const> asked) {
  const auto& language = *model_->graph.language;
  const size_t most = executor_->rows_of(language.predict), vocabulary = model_->graph.vocabulary();
  for (size_t from = 0; from < asked.size(); from += most) {
    const auto part = asked.subspan(from, std::min(most, asked.size() - from));
    std::vector<const std::byte*> hiddens;
    for (const auto* each : part) hiddens.push_back(sessions_.at(each->drawing->context).context->data(language.last));
    predict(*executor_, hiddens);
    const float* logits = predicted(*executor_, part.size());
    for (size_t i = 0; i < part.size(); ++i) {
      auto& each = *part[i];
      const Drawing& drawing = *each.drawing;
      const std::span own{logits + i * vocabulary, vocabulary};
      if (!model_->host().finite(own.data(), vocabulary)) {
        each.over = each.failed = true;
        continue;
      }
      const Shaping& shaping = each.shaping ? *each.shaping : drawing.shaping;
      std::vector<float> changed;
      const int32_t token = sample(model_->host(), shaped(own, shaping, drawing.allowed, changed), drawing.sampling,
                                   drawing.context->head.pulse + 1 + each.guesses.size());
      // A token that ends the item is never fed.
      each.over = std::ranges::find(drawing.end_tokens, token) != drawing.end_tokens.end();
      if (each.over) continue;
      each.guesses.push_back({token, std::exp(-surprisal(model_->host(), own, token))});
      if (shaping.penalises()) {
        if (!each.shaping) each.shaping = shaping;
        each.shaping->drawn(token);
      }
    }
  }
}

void DraftModel::begin(std::span<Asked* const> asked) {
  ++round_;
  std::vector<Feed> feeds;
  for (auto* each : asked) {
    auto* session = session_of(*each);
    if (session)
      feeds.push_back({each, session, sync(*session, *each)});
    else
      each->over = each->failed = true;
  }
  guess_behind(feeds);
}

void DraftModel::go_on(std::span<Asked* const> asked) {
  const size_t step = model_->graph.language->step;
  std::vector<Feed> feeds;
  for (auto* each : asked) {
    auto& session = sessions_.at(each->drawing->context);
    std::string reason;
    each->over = executor_->room(*session.context, step, 1, reason) == 0 ||
                 bytes_ + executor_->tentative_bytes(step) > most_bytes_;
    if (each->over) continue;
    const int32_t token = each->guesses.back().token;
    session.marks.push_back(executor_->mark(*session.context, step, 1));
    session.ahead.push_back(token);
    session.bytes += session.marks.back().before.size();
    bytes_ += session.marks.back().before.size();
    feeds.push_back({each, &session, {token}});
  }
  guess_behind(feeds);
}

// Feeds these sessions, and makes a guess for each. A context that can give none any more is forgotten.
void DraftModel::guess_behind(std::span<Feed> feeds) {
  feed(feeds);
  for (const auto& each : feeds) {
    auto& session = *each.session;
    size_t bytes = session.context->bytes();
    for (const auto& mark : session.marks) bytes += mark.before.size();
    bytes_ += bytes - session.bytes;
    session.bytes = bytes;
  }
  bound(most_bytes_);
  std::vector<Asked*> alive;
  for (const auto& each : feeds) {
    if (bytes_ > most_bytes_) each.asked->over = each.asked->failed = true;
    if (each.asked->failed)
      forget(each.asked->drawing->context);
    else
      alive.push_back(each.asked);
  }
  guess(alive);
  for (const auto* each : alive)
    if (each->failed) forget(each->drawing->context);
}

// Forgets the sessions that were not used for longest, but none of this round, until all have so many bytes at most.
void DraftModel::bound(size_t bytes) {
  while (bytes_ > bytes) {
    auto oldest = sessions_.end();
    for (auto at = sessions_.begin(); at != sessions_.end(); ++at)
      if (at->second.used < round_ && (oldest == sessions_.end() || at->second.used < oldest->second.used)) oldest = at;
    if (oldest == sessions_.end()) return;
    bytes_ -= oldest->second.bytes;
    sessions_.erase(oldest);
  }
}

void DraftModel::forget(const Context* session) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  bytes_ -= found->second.bytes;
  sessions_.erase(found);
}

}  // namespace continuo
