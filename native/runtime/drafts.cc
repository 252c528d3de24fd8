#include "runtime/drafts.h"

#include <algorithm>

namespace continuo {

namespace {

// Bytes of all pasts together.
constexpr size_t most_bytes = size_t{256} << 20;
// Places that a match looks at, and tokens that it compares at each.
constexpr size_t most_places = 48, most_alike = 64;
// A step's weight in the regression after the next step, and that of a draft in its rate: of its session, and
// of all.
constexpr double fading = 0.97, newest = 0.08, newest_usual = 0.02;
// Steps between two tries of drafts that seem not worth it.
constexpr uint32_t least_wait = 8, most_wait = 512;

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
      auto& newest_place = last[hash(std::span(tokens_).subspan(place - n, n)) % last.size()];
      before[place] = newest_place;
      newest_place = static_cast<int32_t>(place);
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

// Where the context is not where the past ends, the past begins anew: it was restored, or fed while there were no
// drafts. A wrong past would only give wrong guesses.
Drafts::Own& Drafts::of(const Context& context) {
  auto& own = own_.try_emplace(&context, fresh(0)).first->second;
  own.used = ++clock_;
  if (own.pulse != context.head.pulse) {
    bytes_ -= std::min(bytes_, own.past.bytes());
    own = fresh(context.head.pulse);
  }
  return own;
}

Drafts::Own Drafts::fresh(uint64_t pulse) const { return {pulse, {}, usual_, {}, clock_}; }

void Drafts::fed(const Context& context, std::span<const int32_t> tokens) {
  if (!on()) return;
  auto& own = own_.try_emplace(&context, fresh(0)).first->second;
  own.used = ++clock_;
  if (own.pulse + tokens.size() != context.head.pulse) own = fresh(0);
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

void Drafts::begin(size_t generating, size_t reading) { rows_ = tokens_ = static_cast<double>(generating + reading); }

size_t Drafts::class_of(size_t length) {
  size_t out = 0;
  for (const size_t least : {3, 4, 5, 6, 8, 12, 24, 48}) out += length >= least;
  return out;
}

// How many drafts in a row raise the expected tokens per second of the step.
size_t Drafts::worth(Rate& rate, size_t most) {
  size_t count = 0;
  double kept = rate.kept;
  // Without rows a step takes 1, each row share_.
  for (; count < most && kept * (1 + share_ * rows_) > tokens_ * share_; ++count) {
    tokens_ += kept;
    rows_ += 1;
    kept *= rate.kept;
  }
  if (count > 0 || most == 0) {
    rate.passed = 0;
    return count;
  }
  if (++rate.passed < rate.wait) return 0;
  rate.passed = 0;
  rows_ += 1;
  return 1;
}

std::vector<int32_t> Drafts::propose(const Context& context, int32_t token, size_t most) {
  auto& own = of(context);
  most = std::min<size_t>(most, options_.most);
  const size_t before = own.past.bytes();
  auto match = own.past.match(token, most);
  bytes_ += own.past.bytes() - before;
  if (!options_.adapt) return match.length > 0 ? match.tokens : own.past.any(token, most);
  if (match.length == 0) return {};
  own.asked = class_of(match.length);
  match.tokens.resize(worth(own.rates[*own.asked], most));
  return match.tokens;
}

void Drafts::judged(const Context& context, size_t drafted, size_t kept) {
  const auto found = own_.find(&context);
  if (found == own_.end() || !found->second.asked || drafted == 0) return;
  auto& rate = found->second.rates[*found->second.asked];
  auto& usual = usual_[*found->second.asked];
  for (size_t i = 0; i < std::min(drafted, kept + 1); ++i) {
    const double outcome = i < kept ? 1 : 0;
    rate.kept += newest * (outcome - rate.kept);
    usual.kept += newest_usual * (outcome - usual.kept);
  }
  rate.wait = kept > 0 ? least_wait : std::min(rate.wait * 2, most_wait);
}

void Drafts::stepped(size_t rows, double seconds) {
  const auto r = static_cast<double>(rows);
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
