#include "experts/cache.h"

#include <algorithm>

#include "base/seconds.h"
#include "experts/cache_state.h"
#include "experts/form.h"

namespace continuo::experts {

namespace {

using std::chrono::steady_clock;

constexpr size_t least_depth = 8, most_depth = 32;
constexpr size_t most_waiting = 1024;  // requests of look-ahead, and as many of warm-up
constexpr size_t most_notes = 64;

std::vector<size_t> counts_of(std::span<const std::shared_ptr<const LayerFile>> files) {
  std::vector<size_t> out;
  for (const auto& file : files) out.push_back(file->index.records.size());
  return out;
}

// Of the predictions of absent experts, those that are right at least for look-ahead to read.
constexpr double least_trust = 0.5;

// What an expert takes in memory, which is never less than what is read of it.
size_t memory_of(const StoreIndex& index) {
  return std::max<size_t>(index.record_bytes(), padded(form_bytes(index.shape)));
}

uint64_t largest_of(std::span<const std::shared_ptr<const LayerFile>> files) {
  uint64_t largest = 0;
  for (const auto& file : files) largest = std::max<uint64_t>(largest, memory_of(file->index));
  return largest;
}

}  // namespace

ExpertCache::State::State(std::string folder, CacheOptions options, std::vector<std::shared_ptr<const LayerFile>> files,
                          Backend backend, std::unique_ptr<Disk> disk)
    : folder_(std::move(folder)),
      options_(std::move(options)),
      backend_(backend),
      digest_(digest_of(files)),
      frequencies_(counts_of(files)),
      buffers_(largest_of(files), options_.bytes, options_.memory),
      bound_(options_.bytes),
      largest_(largest_of(files)) {
  size_t first = 0;
  for (const auto& file : files) {
    Layer layer;
    layer.number = file->index.layer;
    layer.first = first;
    layer.count = file->index.records.size();
    layer.record = file->index.record_bytes();
    layer.form = form_bytes(file->index.shape);
    layer.memory = memory_of(file->index);
    layer.payload = payload_bytes(file->index.shape);
    layer.opened = layer.file = file;
    link(layer);
    layers_.push_back(std::move(layer));
    first += file->index.records.size();
  }
  entries_.resize(first);
  for (uint32_t place = 0; place < layers_.size(); ++place) {
    for (uint32_t expert = 0; expert < layers_[place].count; ++expert) {
      Entry& entry = entries_[layers_[place].first + expert];
      entry.layer = place;
      entry.expert = expert;
    }
  }
  const auto refused = std::find_if(files.begin(), files.end(), [](const auto& file) { return !file->file->direct(); });
  const auto say = [this](const std::string& path) {
    note(text(path,
              " cannot be read past the page cache: its file system does not allow it. Records are read through "
              "the page cache."));
  };
  if (options_.io == Io::direct && refused != files.end()) say((*refused)->file->path);
  if (options_.frequencies) load_frequencies();
  reader_ = std::make_unique<Reader>(std::move(disk), options_.depth, [this, say](const std::string& path) {
    const std::lock_guard lock(mutex_);
    say(path);
  });
  checker_ = std::thread([this] { check_loop(); });
}

ExpertCache::State::~State() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  checker_.join();
  // Now nothing begins a read; and once the reader is gone, nothing writes into a buffer.
  reader_.reset();
}

Result<std::shared_ptr<ExpertCache>> ExpertCache::open(const std::string& folder, std::span<const uint32_t> layers,
                                                       const CacheOptions& options) {
  if (layers.empty()) return invalid("A cache of experts needs at least one layer.");
  if (options.depth < least_depth || options.depth > most_depth)
    return invalid("The depth of reads is ", options.depth, ", expected ", least_depth, " to ", most_depth, ".");
  std::vector<std::shared_ptr<const LayerFile>> files;
  for (const uint32_t layer : layers) {
    if (!files.empty() && layer <= files.back()->index.layer)
      return internal("layer ", layer, " of a cache follows layer ", files.back()->index.layer, ".");
    auto file = open_layer(folder + "/" + layer_name(layer), layer, options.io == Io::direct);
    if (!file) return file.error();
    files.push_back(std::move(*file));
  }
  if (const std::string found = digest_of(files); !options.digest.empty() && found != options.digest)
    return Error{Code::refused, text(folder, " has experts with the digest ", found, ", expected ", options.digest,
                                     ". Pack the experts of this model again: continuo experts pack.")};
  const uint64_t largest = largest_of(files);
  for (const auto& file : files) {
    const uint64_t needed = 2 * uint64_t{memory_of(file->index)};
    if (needed == 2 * largest && options.bytes < needed)
      return Error{Code::refused, text("--expert-bytes is ", options.bytes, ", and two experts of layer ",
                                       file->index.layer, " need ", needed, " bytes. Give at least as many.")};
  }
  Backend backend = options.backend;
  std::unique_ptr<Disk> disk;
  if (options.disk) {
    disk = options.disk(options.depth);
  } else {
    auto opened = open_disk(backend, options.depth);
    if (!opened) return opened.error();
    disk = std::move(*opened);
  }
  auto state = std::make_unique<State>(folder, options, std::move(files), backend, std::move(disk));
  if (!state->buffers_.reserved())
    return Error{Code::unavailable,
                 text("There is no memory for two experts of ", state->largest_, " bytes. Free some, and try again.")};
  return std::shared_ptr<ExpertCache>(new ExpertCache(std::move(state)));
}

ExpertCache::ExpertCache(std::unique_ptr<State> state) : state_(std::move(state)) {}
ExpertCache::~ExpertCache() = default;

ExpertCache::State::Layer* ExpertCache::State::layer_of(uint32_t number) {
  const auto at = std::lower_bound(layers_.begin(), layers_.end(), number,
                                   [](const Layer& each, uint32_t found) { return each.number < found; });
  return at != layers_.end() && at->number == number ? &*at : nullptr;
}

ExpertCache::State::Entry* ExpertCache::State::entry_of(uint32_t layer, uint32_t expert) {
  const Layer* found = layer_of(layer);
  return found && expert < found->count ? &entries_[found->first + expert] : nullptr;
}

void ExpertCache::State::note(std::string sentence) {
  if (notes_.size() == most_notes) notes_.pop_front();
  notes_.push_back(std::move(sentence));
}

const StoreIndex* ExpertCache::index(uint32_t layer) const {
  const auto* found = state_->layer_of(layer);
  return found ? &found->opened->index : nullptr;
}

Backend ExpertCache::backend() const { return state_->backend_; }
const std::string& ExpertCache::digest() const { return state_->digest_; }
std::optional<uint64_t> ExpertCache::device_bytes() const { return state_->options_.device_bytes; }

std::vector<uint32_t> ExpertCache::layers() const {
  std::vector<uint32_t> out;
  for (const auto& layer : state_->layers_) out.push_back(layer.number);
  return out;
}

size_t ExpertCache::fits(uint32_t layer) const {
  const std::lock_guard lock(state_->mutex_);
  const auto* found = state_->layer_of(layer);
  return found ? state_->bound_ / found->memory : 0;
}

// Queues a request, or makes a demand of one that is under way.
void ExpertCache::State::ask(Entry& entry, Reason reason) {
  const bool demand = reason == Reason::demand;
  if (demand) {
    entry.due = true;
    failed_.erase(number_of(entry));
  }
  if (entry.stage == Stage::resident) return;
  if (entry.stage == Stage::filling) {
    if (demand) reader_->raise(entry.fill->number);
    return;
  }
  const bool queued = entry.stage == Stage::queued;
  if (queued && priority_of(reason) >= priority_of(entry.reason)) return;
  if (!demand && queues_[static_cast<size_t>(priority_of(reason))].size() >= most_waiting) {
    if (!queued) ++statistics_.dropped;
    return;
  }
  if (queued) leave_queue(entry);
  entry.reason = reason;
  entry.stage = Stage::queued;
  queue_of(entry).push_back(number_of(entry));
}

// Nobody will take what was demanded.
void ExpertCache::State::withdraw(Entry& entry, Wakes& wakes) {
  entry.due = false;
  failed_.erase(number_of(entry));
  if (entry.stage == Stage::queued && entry.reason == Reason::demand && entry.awaited == 0) drop(entry, wakes);
}

void ExpertCache::want(uint32_t layer, std::span<const uint32_t> experts, Reason reason) {
  State::Wakes wakes;
  State::Lock lock(state_->mutex_);
  // A wrong record costs what a right one saves. Where more than half are wrong look-ahead goes on to predict, so that
  // it begins to read again where it is right, and reads nothing.
  const bool paused = (reason == Reason::ahead1 && state_->trust_[0] < least_trust) ||
                      (reason == Reason::ahead2 && state_->trust_[1] < least_trust);
  for (const uint32_t expert : experts) {
    auto* entry = state_->entry_of(layer, expert);
    if (!entry) continue;
    if (!paused || entry->stage == State::Stage::queued)
      state_->ask(*entry, reason);
    else
      ++state_->statistics_.dropped;
  }
  state_->pump(wakes);
  state_->leave(lock, wakes);
}

void ExpertCache::unwant(uint32_t layer, std::span<const uint32_t> experts) {
  State::Wakes wakes;
  State::Lock lock(state_->mutex_);
  for (const uint32_t expert : experts) {
    auto* entry = state_->entry_of(layer, expert);
    if (entry) state_->withdraw(*entry, wakes);
  }
  state_->pump(wakes);
  state_->leave(lock, wakes);
}

void ExpertCache::unwant_all() {
  State::Wakes wakes;
  State::Lock lock(state_->mutex_);
  for (auto& entry : state_->entries_) {
    if (entry.awaited == 0) state_->withdraw(entry, wakes);
  }
  state_->pump(wakes);
  state_->leave(lock, wakes);
}

Await ExpertCache::await(uint32_t layer, std::span<const uint32_t> pending, const std::function<void()>& wake) {
  Await out;
  State::Wakes wakes;
  State::Lock lock(state_->mutex_);
  for (const uint32_t expert : pending) {
    auto* entry = state_->entry_of(layer, expert);
    if (!entry) continue;
    out.entries_.emplace_back(expert, state_->number_of(*entry));
    ++entry->awaited;
    if (entry->stage == State::Stage::resident) {
      wakes.push_back(wake);
      continue;
    }
    state_->ask(*entry, Reason::demand);
    state_->wakes_.emplace(state_->number_of(*entry), wake);
  }
  out.cache_ = shared_from_this();
  state_->pump(wakes);
  state_->leave(lock, wakes);
  return out;
}

Await::~Await() {
  if (!cache_) return;
  ExpertCache::State::Wakes wakes;
  ExpertCache::State::Lock lock(cache_->state_->mutex_);
  for (const auto& [expert, number] : entries_) --cache_->state_->entries_[number].awaited;
  cache_->state_->pump(wakes);
  cache_->state_->leave(lock, wakes);
}

void Await::taken(uint32_t expert) {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const auto& each) { return each.first == expert; });
  if (found == entries_.end()) return;
  const std::lock_guard lock(cache_->state_->mutex_);
  --cache_->state_->entries_[found->second].awaited;
  entries_.erase(found);
}

void Await::count(std::chrono::duration<double> time) {
  const std::lock_guard lock(cache_->state_->mutex_);
  cache_->state_->statistics_.wait_seconds += time.count();
}

bool ExpertCache::ready(uint32_t layer, uint32_t expert) const {
  const std::lock_guard lock(state_->mutex_);
  const auto* entry = state_->entry_of(layer, expert);
  return entry && entry->stage == State::Stage::resident;
}

void ExpertCache::on_arrival(uint32_t layer, uint32_t expert, std::function<void()> wake) {
  {
    const std::lock_guard lock(state_->mutex_);
    const auto* entry = state_->entry_of(layer, expert);
    if (entry && (entry->stage == State::Stage::queued || entry->stage == State::Stage::filling)) {
      state_->wakes_.emplace(state_->number_of(*entry), std::move(wake));
      return;
    }
  }
  wake();
}

Result<Loan> ExpertCache::take(uint32_t layer, std::span<const uint32_t> pending) { return take(layer, pending, true); }

Result<Loan> ExpertCache::take_ready(uint32_t layer, std::span<const uint32_t> pending) {
  return take(layer, pending, false);
}

Result<Loan> ExpertCache::take(uint32_t layer, std::span<const uint32_t> pending, bool wait) {
  State& s = *state_;
  State::Wakes wakes;
  State::Lock lock(s.mutex_);
  std::vector<size_t> entries;
  for (const uint32_t expert : pending) {
    const auto* entry = s.entry_of(layer, expert);
    if (!entry) return internal("layer ", layer, " of ", s.folder_, " has no expert ", expert, ".");
    entries.push_back(s.number_of(*entry));
  }
  if (entries.empty()) return internal("no expert of layer ", layer, " was asked for.");
  const auto first_resident = [&]() -> std::optional<size_t> {
    std::optional<size_t> out;
    for (size_t i = 0; i < entries.size(); ++i) {
      const auto& entry = s.entries_[entries[i]];
      if (entry.stage != State::Stage::resident) continue;
      if (!out || entry.arrival < s.entries_[entries[*out]].arrival) out = i;
    }
    return out;
  };
  auto found = first_resident();
  if (!found) {
    State::Taker taker{entries, std::nullopt};
    for (const size_t number : entries) {
      const auto failed = s.failed_.find(number);
      if (failed == s.failed_.end()) continue;
      Error error = std::move(failed->second);
      s.failed_.erase(failed);
      return error;
    }
    if (!wait) return Loan{};
    const auto began = steady_clock::now();
    s.takers_.push_back(&taker);
    for (const size_t number : entries) ++s.entries_[number].awaited;
    for (const size_t number : entries)
      if (s.entries_[number].stage != State::Stage::resident) s.ask(s.entries_[number], Reason::demand);
    s.pump(wakes);
    // Those who are to be woken must not wait for this caller.
    if (!wakes.empty()) {
      s.leave(lock, wakes);
      lock.lock();
    }
    s.arrived_.wait(lock, [&] { return (found = first_resident()) || taker.error; });
    for (const size_t number : entries) --s.entries_[number].awaited;
    std::erase(s.takers_, &taker);
    s.statistics_.wait_seconds += seconds(steady_clock::now() - began);
    if (!found) return std::move(*taker.error);
  }
  auto& entry = s.entries_[entries[*found]];
  entry.due = false;
  ++entry.loans;
  Loan out;
  out.index = *found;
  out.cache_ = shared_from_this();
  out.entry_ = entries[*found];
  out.bytes_ = {entry.bytes, s.layers_[entry.layer].form};
  return out;
}

Loan::Loan(Loan&& other) noexcept
    : index(other.index),
      cache_(std::move(other.cache_)),
      entry_(other.entry_),
      bytes_(std::exchange(other.bytes_, {})) {}

Loan& Loan::operator=(Loan&& other) noexcept {
  std::swap(index, other.index);
  std::swap(cache_, other.cache_);
  std::swap(entry_, other.entry_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Loan::~Loan() {
  if (!cache_) return;
  auto& state = *cache_->state_;
  ExpertCache::State::Wakes wakes;
  ExpertCache::State::Lock lock(state.mutex_);
  if (--state.entries_[entry_].loans == 0) state.pump(wakes);
  state.leave(lock, wakes);
}

CacheStatistics ExpertCache::statistics() const {
  const State& s = *state_;
  const ReaderCounts counts = s.reader_->counts();
  const std::lock_guard lock(s.mutex_);
  CacheStatistics out = s.statistics_;
  out.reads = counts.ranges;
  out.retries = counts.retries;
  out.read_seconds = counts.busy_seconds;
  for (const size_t number : s.residents_) out.resident_bytes += s.layers_[s.entries_[number].layer].memory;
  out.resident = s.residents_.size();
  out.bound = s.bound_;
  return out;
}

void ExpertCache::forget() {
  auto& state = *state_;
  const std::lock_guard lock(state.mutex_);
  ++state.forgotten_;
  for (const size_t number : std::vector(state.residents_)) {
    auto& entry = state.entries_[number];
    if (State::may_go(entry) && !entry.due) state.evict(entry);
  }
}

uint64_t ExpertCache::forgotten() const {
  const std::lock_guard lock(state_->mutex_);
  return state_->forgotten_;
}

std::vector<std::string> ExpertCache::take_notes() {
  const std::lock_guard lock(state_->mutex_);
  std::vector<std::string> out(state_->notes_.begin(), state_->notes_.end());
  state_->notes_.clear();
  return out;
}

}  // namespace continuo::experts
