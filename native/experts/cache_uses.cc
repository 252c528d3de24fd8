// What the cache learns from the routes of rows: frequencies of use, and whether look-ahead was right.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>

#include "experts/cache_state.h"

namespace continuo::experts {

namespace {

// How much one prediction changes what is thought of look-ahead.
constexpr double trust_step = 1.0 / 64;
constexpr size_t most_frequency_bytes = size_t{1} << 30;

}  // namespace

void ExpertCache::routed(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> rows,
                         std::span<const uint32_t> held) {
  State& s = *state_;
  State::Wakes wakes;
  State::Lock lock(s.mutex_);
  auto* routing = s.layer_of(layer);
  if (!routing) return;
  const auto place = static_cast<size_t>(routing - s.layers_.data());
  const uint64_t before = s.frequencies_.tokens(place);
  ++s.round_;
  uint64_t tokens = 0;
  for (size_t i = 0; i < std::min(experts.size(), rows.size()); ++i) {
    if (experts[i] >= routing->count) continue;
    auto& entry = s.entries_[routing->first + experts[i]];
    tokens = std::max<uint64_t>(tokens, rows[i] + uint64_t{1});
    s.frequencies_.use(place, experts[i], before + rows[i] + 1);
    ++entry.uses;
    entry.touched = ++s.clock_;
    if (std::exchange(entry.round, s.round_) == s.round_) continue;
    ++s.statistics_.uses;
    const bool resident = entry.stage == State::Stage::resident;
    if (!resident && !std::binary_search(held.begin(), held.end(), experts[i])) continue;
    ++s.statistics_.hits;
    if (resident && std::exchange(entry.unused, false)) ++s.statistics_.prefetched;
  }
  s.frequencies_.route(place, tokens);
  for (size_t k = 0; k < 2; ++k) s.judge(*routing, k);
  const auto ahead = s.queues_[static_cast<size_t>(Priority::ahead)];
  for (const size_t number : ahead) {
    auto& entry = s.entries_[number];
    if (entry.layer == place && entry.round != s.round_) s.drop(entry, wakes);
  }
  s.leave(lock, wakes);
}

void ExpertCache::State::judge(Layer& layer, size_t k) {
  LookAhead& told = statistics_.ahead[k];
  const auto bit = static_cast<uint8_t>(1u << k);
  for (const uint32_t expert : layer.predicted[k]) {
    Entry& entry = entries_[layer.first + expert];
    const bool right = entry.round == round_, was_resident = (entry.was_resident & bit) != 0;
    const bool resident = entry.stage == Stage::resident, coming = entry.stage == Stage::filling;
    told.right += right;
    if (!was_resident) trust_[k] += (static_cast<double>(right) - trust_[k]) * trust_step;
    told.in_time += right && !was_resident && resident;
    told.useless += !right && !was_resident && (resident || coming);
    entry.expected = static_cast<uint8_t>(entry.expected & ~bit);
    entry.was_resident = static_cast<uint8_t>(entry.was_resident & ~bit);
  }
  layer.predicted[k].clear();
}

void ExpertCache::predicted(uint32_t layer, unsigned k, std::span<const uint32_t> experts) {
  const std::lock_guard lock(state_->mutex_);
  auto* expecting = state_->layer_of(layer);
  if (!expecting || k < 1 || k > 2) return;
  LookAhead& told = state_->statistics_.ahead[k - 1];
  const auto bit = static_cast<uint8_t>(1u << (k - 1));
  for (const uint32_t expert : experts) {
    if (expert >= expecting->count) continue;
    auto& entry = state_->entries_[expecting->first + expert];
    if ((entry.expected & bit) != 0) continue;
    entry.expected = static_cast<uint8_t>(entry.expected | bit);
    ++told.predictions;
    if (entry.stage == State::Stage::resident) {
      ++told.already_resident;
      entry.was_resident = static_cast<uint8_t>(entry.was_resident | bit);
    }
    expecting->predicted[k - 1].push_back(expert);
  }
}

void ExpertCache::warm() {
  State& s = *state_;
  State::Wakes wakes;
  State::Lock lock(s.mutex_);
  std::vector<std::pair<double, size_t>> found;
  for (const auto& entry : s.entries_) {
    const double f = s.frequencies_.frequency(entry.layer, entry.expert);
    if (f > 0 && entry.stage == State::Stage::absent) found.emplace_back(-f, s.number_of(entry));
  }
  std::sort(found.rbegin(), found.rend());
  s.warm_.clear();
  for (const auto& [f, number] : found) s.warm_.push_back(number);
  s.pump(wakes);
  s.leave(lock, wakes);
}

void ExpertCache::State::load_frequencies() {
  const std::string path = folder_ + "/frequencies.bin";
  const auto anew = [&](const auto&... why) { note(text(path, " ", why..., ": the table is begun anew.")); };
  const File file(path, O_RDONLY);
  if (file.why() == ENOENT) return;  // The first start of a store.
  if (!file) return anew("could not be opened (", std::strerror(file.why()), ")");
  struct stat found{};
  if (::fstat(file.fd(), &found) != 0 || !S_ISREG(found.st_mode)) return anew("is no file");
  const auto bytes = static_cast<uint64_t>(found.st_size);
  if (bytes > most_frequency_bytes) return anew("has ", bytes, " bytes");
  std::vector<std::byte> content(bytes);
  if (const int why = read_at(file.fd(), content, 0); why != 0)
    return anew("could not be read (", why == file_ended ? "it became shorter" : std::strerror(why), ")");
  if (auto read = frequencies_.decode(content, digest_); !read) anew(read.error().message);
}

Status ExpertCache::save_frequencies() {
  State& s = *state_;
  if (!s.options_.frequencies) return Done{};
  // A folder that nobody may write is left as it is, also where the process could.
  struct stat folder{};
  if (::stat(s.folder_.c_str(), &folder) == 0 && (folder.st_mode & 0222) == 0) return Done{};
  State::Lock lock(s.mutex_);
  const auto bytes = s.frequencies_.encode(s.digest_);
  lock.unlock();
  const std::string path = s.folder_ + "/frequencies.bin";
  if (const int why = replace_file(path, bytes); why != 0)
    return Error{Code::unavailable, text(path, " could not be written: ", std::strerror(why), ".")};
  return Done{};
}

}  // namespace continuo::experts
