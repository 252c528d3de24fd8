#include "runtime/drafts/drafts.h"

#include <algorithm>
#include <chrono>

namespace continuo {

namespace {

// Bytes of all pasts together.
constexpr size_t most_bytes = size_t{256} << 20;
// Places that a match looks at, and tokens that it compares at each.
constexpr size_t most_places = 48, most_alike = 64;
// A step's weight in the regression after the next step, and that of a draft in its rate: of its session, and
// of all.
constexpr double fading = 0.97, newest_draft = 0.08, newest_usual = 0.02;
// Steps between two tries of drafts that seem not worth it.
constexpr uint32_t least_wait = 8, most_wait = 512, most_model_wait = 1024;
// Guesses of the draft model in a try, and the weight of each in its rates.
constexpr size_t tried_guesses = 4;
constexpr double newest_tried = 0.25;
// What a guess costs, as a share of a step without rows, before it was measured.
constexpr double assumed_cost = 0.2;

size_t hash(std::span<const int32_t> gram) {
  uint64_t h = 0;
  for (const int32_t token : gram) h = (h ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15u;
  return h >> 24;
}

}  // namespace

void Past::append(std::span<const int32_t> tokens) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  if (tokens_.size() <= 2 * most_past) return;
  tokens_.erase(tokens_.begin(), tokens_.end() - static_cast<ptrdiff_t>(most_past));
  indexed_ = 0;
}

// Enters the places behind the n-grams that are not indexed yet.
void Past::index() {
  for (auto& [n, last, before] : places_) {
    size_t from = indexed_;
    if (last.size() < tokens_.size() || from == 0) {
      size_t room = 256;
      while (room < tokens_.size()) room *= 2;
      last.assign(room, 0);
      from = 0;
    }
    before.resize(tokens_.size() + 1);
    for (size_t place = std::max(from + 1, n); place <= tokens_.size(); ++place) {
      auto& newest = last[hash(std::span(tokens_).subspan(place - n, n)) % last.size()];
      before[place] = newest;
      newest = static_cast<int32_t>(place);
    }
  }
  indexed_ = tokens_.size();
}

// How many tokens before the place are those at the end.
size_t Past::alike(size_t place) const {
  const size_t most = std::min(place, most_alike);
  size_t n = 0;
  while (n < most && tokens_[place - 1 - n] == tokens_[tokens_.size() - 1 - n]) ++n;
  return n;
}

// A place near the end is followed by what follows it, and so on.
std::vector<int32_t> Past::followed(size_t place, size_t most) const {
  std::vector<int32_t> out;
  for (size_t i = 0; i < most; ++i) {
    const size_t at = place + i;
    out.push_back(at < tokens_.size() ? tokens_[at] : out[at - tokens_.size()]);
  }
  return out;
}

Past::Match Past::match(int32_t token, size_t most) {
  index();
  tokens_.push_back(token);
  Match out;
  size_t best = 0;
  for (const auto& [n, last, before] : places_) {
    if (tokens_.size() < n || last.empty()) continue;
    auto place = static_cast<size_t>(last[hash(std::span(tokens_).last(n)) % last.size()]);
    for (size_t seen = 0; place > 0 && seen < most_places && out.length < most_alike; ++seen) {
      const size_t length = alike(place);
      if (length >= n && length > out.length) out.length = length, best = place;
      place = static_cast<size_t>(before[place]);
    }
    if (out.length > 0) break;
  }
  if (out.length > 0) out.tokens = followed(best, most);
  tokens_.pop_back();
  return out;
}

std::vector<int32_t> Past::any(int32_t token, size_t most) const {
  const auto from = std::find(tokens_.rbegin(), tokens_.rend(), token);
  if (from == tokens_.rend() || from == tokens_.rbegin()) return std::vector<int32_t>(most, token);
  const auto place = static_cast<size_t>(tokens_.rend() - from);
  auto out = std::vector<int32_t>(tokens_.begin() + static_cast<ptrdiff_t>(place), tokens_.end());
  out.resize(std::min(out.size(), most));
  return out;
}

size_t Past::bytes() const {
  size_t numbers = tokens_.capacity();
  for (const auto& places : places_) numbers += places.last.capacity() + places.before.capacity();
  return numbers * sizeof(int32_t);
}

// What is known of a context that stood at this pulse. Where its past ends elsewhere the past begins anew: the context
// was restored, or fed while there were no drafts. A wrong past would only give wrong guesses.
Drafts::Own& Drafts::at(const Context& context, uint64_t pulse) {
  auto& own = own_.try_emplace(&context, Own{.pulse = pulse, .rates = usual_}).first->second;
  if (own.pulse != pulse) {
    bytes_ -= own.past.bytes();
    own = {.pulse = pulse, .rates = usual_};
  }
  own.used = ++clock_;
  return own;
}

void Drafts::fed(const Context& context, std::span<const int32_t> tokens) {
  if (!on()) return;
  auto& own = at(context, context.head.pulse - tokens.size());
  const size_t before = own.past.bytes();
  own.past.append(tokens);
  own.pulse = context.head.pulse;
  bytes_ += own.past.bytes() - before;
  if (bytes_ > most_bytes) bound();
}

// Forgets the pasts that were not used for longest.
void Drafts::bound() {
  std::vector<std::pair<uint64_t, const Context*>> order;
  bytes_ = 0;
  for (const auto& [context, own] : own_) {
    order.emplace_back(own.used, context);
    bytes_ += own.past.bytes();
  }
  std::sort(order.begin(), order.end());
  for (const auto& [used, context] : order) {
    if (bytes_ <= most_bytes / 2) break;
    bytes_ -= own_[context].past.bytes();
    own_.erase(context);
  }
}

void Drafts::begin(size_t generating, size_t reading) {
  tokens_ = static_cast<double>(generating + reading);
  time_ = 1 + share_ * tokens_;
  guessing_ = 0;
  generating_ = generating;
  trial_ = options_.adapt && reading == 0 ? &trials_[std::min(generating, trials_.size() - 1)] : nullptr;
}

size_t Drafts::class_of(size_t length) {
  size_t out = 0;
  for (const size_t least : {3, 4, 5, 6, 8, 12, 24, 48}) out += length >= least;
  return out;
}

size_t Drafts::ModelRates::class_of(float p) {
  size_t out = 0;
  for (const double least : least_p) out += p >= least;
  return out;
}

Drafts::Prospect Drafts::prospect(double kept, double cost, size_t most) const {
  Prospect out{0, tokens_, time_};
  for (double chance = kept; out.count < most && chance * out.time > out.tokens * cost; ++out.count) {
    out.tokens += chance;
    out.time += cost;
    chance *= kept;
  }
  return out;
}

// Of a guess of the draft model, as a share of a step without rows.
double Drafts::guess_cost() const {
  if (guess_seconds_ == 0 || weight_ == 0) return assumed_cost;
  return guess_seconds_ * (1 + share_ * r_ / weight_) * weight_ / t_;
}

bool Drafts::tries(uint32_t& passed, uint32_t wait) {
  if (++passed < wait) return false;
  passed = 0;
  return true;
}

// What became of the draft model's last guesses.
void Drafts::look_back(Own& own, int32_t token) {
  const auto past = own.past.tokens();
  auto& rates = own.model;
  for (size_t i = 0; i < own.guesses.size() && own.guessed_at + i <= own.pulse; ++i) {
    const uint64_t ago = own.pulse - (own.guessed_at + i);
    if (ago > past.size()) break;
    const double right = own.guesses[i].token == (ago == 0 ? token : past[past.size() - ago]) ? 1 : 0;
    double& kept = rates.kept[ModelRates::class_of(own.guesses[i].p)];
    kept += newest_draft * (right - kept);
    rates.all += (own.tried ? newest_tried : newest_draft) * (right - rates.all);
    if (right == 0) break;
  }
  own.guesses.clear();
}

struct Drafts::Part {
  DraftModel::Asked asked;
  Own& own;
  std::vector<int32_t>& drafts;
  size_t most;
  double chance = 1;   // that all its guesses are kept
  bool joined = true;  // all its guesses are drafts
};

std::vector<std::vector<int32_t>> Drafts::propose(std::span<const Drawing> drawn, Room room) {
  std::vector<std::vector<int32_t>> out(drawn.size());
  std::vector<Part> parts;
  if (trial_ && !trial_->drafting()) room.rows = 0;
  for (size_t i = 0; i < drawn.size(); ++i) {
    auto& own = at(*drawn[i].context, drawn[i].context->head.pulse);
    const int32_t token = drawn[i].token;
    own.asked.reset();
    look_back(own, token);
    const size_t most = std::min({drawn[i].most, size_t{options_.most}, room.rows});
    if (most == 0 || room.sessions == 0) continue;
    const size_t before = own.past.bytes();
    auto match = own.past.match(token, most);
    bytes_ += own.past.bytes() - before;
    const auto ask = [&] { parts.push_back({{&drawn[i], own.past.tokens()}, own, out[i], most}); };
    if (!options_.adapt) {
      if (model_)
        ask();
      else
        out[i] = match.length > 0 ? std::move(match.tokens) : own.past.any(token, most);
    } else {
      auto& rate = own.rates[class_of(match.length)];
      auto& rates = own.model;
      const auto by_match = prospect(rate.kept, share_, match.tokens.size());
      const auto by_model = prospect(rates.all, share_ + guess_cost(), model_ ? most : 0);
      own.tried = false;
      if (by_model.count > 0) rates.passed = 0, rates.wait = least_wait;
      if (by_match.count > 0) rate.passed = 0;
      if (by_model.speed() > by_match.speed()) {
        ask();
      } else if (by_match.count > 0 || (match.length > 0 && tries(rate.passed, rate.wait))) {
        match.tokens.resize(std::max<size_t>(by_match.count, 1));
        out[i] = std::move(match.tokens);
        own.asked = class_of(match.length);
        tokens_ = by_match.tokens;
        time_ = by_match.count > 0 ? by_match.time : time_ + share_;
      } else if (model_ && tries(rates.passed, rates.wait)) {
        rates.wait = std::min(rates.wait * 2, most_model_wait);
        own.tried = true;
        ask();
      }
    }
    room.rows -= out[i].size();
    room.sessions -= !out[i].empty();
  }
  if (!parts.empty()) guess(parts, room);
  return out;
}

// Takes a guess among the drafts where that is worth a row. Whether it is worth another guess.
bool Drafts::consider(Part& part, Room& room) {
  const auto& guesses = part.asked.guesses;
  part.chance *= part.own.model.kept[ModelRates::class_of(guesses.back().p)];
  const bool first = part.drafts.empty();
  part.joined = part.joined && room.rows > 0 && !(first && room.sessions == 0) &&
                (!options_.adapt || part.chance * time_ > tokens_ * share_);
  if (part.joined) {
    part.drafts.push_back(guesses.back().token);
    tokens_ += part.chance;
    time_ += share_;
    --room.rows;
    room.sessions -= first;
  }
  if (part.asked.over || guesses.size() >= part.most) return false;
  if (part.own.tried) return guesses.size() < tried_guesses;
  return part.joined &&
         (!options_.adapt || part.chance * part.own.model.all * time_ > tokens_ * (share_ + guess_cost()));
}

// Asks the draft model, for all these sessions together, one guess after the other.
void Drafts::guess(std::span<Part> parts, Room room) {
  const auto started = std::chrono::steady_clock::now();
  std::vector<DraftModel::Asked*> asked;
  for (auto& part : parts) asked.push_back(&part.asked);
  size_t guesses = 0;
  try {
    model_->begin(asked);
    for (size_t made = 1; !asked.empty(); ++made) {
      asked.clear();
      for (auto& part : parts) {
        if (part.asked.guesses.size() != made) continue;
        ++guesses;
        if (consider(part, room)) asked.push_back(&part.asked);
      }
      if (!asked.empty()) model_->go_on(asked);
    }
  } catch (const std::exception&) {
    // Nothing depends on guesses; those that are there may serve.
    for (auto& part : parts) model_->forget(part.asked.drawing->context), part.asked.failed = true;
  }
  for (auto& [each, own, drafts, most, chance, joined] : parts) {
    own.guesses = std::move(each.guesses);
    own.guessed_at = each.drawing->context->head.pulse + 1;
    if (each.failed) own.model.all = 0, own.model.passed = 0, own.model.wait = most_model_wait;
  }
  guessing_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  if (guesses == 0) return;
  const double each = guessing_ / static_cast<double>(guesses);
  // Something else may have held it up.
  guess_seconds_ =
      guess_seconds_ == 0 ? each : guess_seconds_ + 0.05 * (std::min(each, 3 * guess_seconds_) - guess_seconds_);
}

void Drafts::judged(const Context& context, size_t drafted, size_t kept) {
  const auto found = own_.find(&context);
  if (found == own_.end() || !found->second.asked || drafted == 0) return;
  auto& rate = found->second.rates[*found->second.asked];
  auto& usual = usual_[*found->second.asked];
  for (size_t i = 0; i < std::min(drafted, kept + 1); ++i) {
    const double outcome = i < kept ? 1 : 0;
    rate.kept += newest_draft * (outcome - rate.kept);
    usual.kept += newest_usual * (outcome - usual.kept);
  }
  rate.wait = kept > 0 ? least_wait : std::min(rate.wait * 2, most_wait);
}

void Drafts::stepped(size_t rows, size_t tokens, double seconds) {
  const auto r = static_cast<double>(rows);
  if (trial_) {
    const double plain = (seconds - guessing_) * (1 + share_ * static_cast<double>(generating_)) / (1 + share_ * r);
    trial_->stepped({generating_, tokens, seconds, plain, rows > generating_ || guessing_ > 0, rows > 0});
  }
  if (rows == 0) return;
  seconds = std::max(0.0, seconds - guessing_);
  // A step that something else held up says nothing.
  if (weight_ > 4) seconds = std::min(seconds, 3 * t_ / weight_ * std::max(1.0, r * weight_ / r_));
  for (double* sum : {&weight_, &r_, &t_, &rr_, &rt_}) *sum *= fading;
  weight_ += 1, r_ += r, t_ += seconds, rr_ += r * r, rt_ += r * seconds;
  const double spread = weight_ * rr_ - r_ * r_;
  if (weight_ < 8 || spread < 0.1 * weight_ * weight_) return;
  const double slope = std::max(0.0, (weight_ * rt_ - r_ * t_) / spread), base = (t_ - slope * r_) / weight_;
  const double share = base > 0 ? std::clamp(slope / base, 0.005, 4.0) : 4.0;
  share_ += 0.05 * (share - share_);
}

}  // namespace continuo
