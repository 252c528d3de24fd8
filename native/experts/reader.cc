#include "experts/reader.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>

#include "base/seconds.h"
#include "base/threads.h"
#include "experts/store.h"

namespace continuo::experts {

namespace {

using std::chrono::steady_clock;

constexpr std::array<std::chrono::milliseconds, 2> again_after{std::chrono::milliseconds(10),
                                                               std::chrono::milliseconds(100)};

}  // namespace

DirectFile::DirectFile(const std::string& name, bool direct) : path(name), file(name, O_RDONLY) {
  if (direct && file) go_direct();
}

void DirectFile::go_direct() {
#ifdef O_DIRECT
  // Of the open descriptor: so what was checked through it is what is read.
  direct_ = ::fcntl(file.fd(), F_SETFL, O_DIRECT) == 0;
#endif
}

void DirectFile::give_up_direct() {
  if (direct_.exchange(false)) ::fcntl(file.fd(), F_SETFL, 0);
}

Reader::Reader(std::unique_ptr<Disk> disk, size_t depth, std::function<void(const std::string&)> refused)
    : disk_(std::move(disk)), refused_(std::move(refused)), parts_(depth) {
  for (size_t i = 0; i < depth; ++i) free_.push_back(i);
  thread_ = std::thread([this] { run(); });
}

Reader::~Reader() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  disk_->wake();
  thread_.join();
}

uint64_t Reader::read(Range range) {
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = ++last_;
    ++counts_.ranges;
    waiting_[static_cast<size_t>(range.priority)].push_back(number);
    works_[number].range = std::move(range);
  }
  disk_->wake();
  return number;
}

void Reader::raise(uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = works_.find(number);
  if (found == works_.end() || found->second.range.priority == Priority::demand) return;
  auto& queue = waiting_[static_cast<size_t>(found->second.range.priority)];
  found->second.range.priority = Priority::demand;
  const auto at = std::find(queue.begin(), queue.end(), number);
  if (at == queue.end()) return;  // all of it is on its way
  queue.erase(at);
  waiting_[static_cast<size_t>(Priority::demand)].push_back(number);
}

ReaderCounts Reader::counts() const {
  const std::lock_guard lock(mutex_);
  ReaderCounts out = counts_;
  if (free_.size() < parts_.size()) out.busy_seconds += seconds(steady_clock::now() - busy_since_);
  return out;
}

void Reader::run() {
  use_default_arithmetic();
  std::vector<PieceEnd> ended;
  for (;;) {
    std::optional<Time> until;
    {
      const std::lock_guard lock(mutex_);
      start_all(steady_clock::now());
      if (stopping_ && free_.size() == parts_.size()) return;
      for (const auto& each : later_) until = until ? std::min(*until, each.when) : each.when;
    }
    ended.clear();
    disk_->wait(until, ended);
    decltype(over_) over;
    std::optional<std::string> refused;
    {
      const std::lock_guard lock(mutex_);
      const auto now = steady_clock::now();
      for (const auto& end : ended) end_piece(end, now);
      // Before `done` is called: the disk must not idle meanwhile.
      start_all(now);
      over.swap(over_);
      refused = std::exchange(refused_path_, std::nullopt);
    }
    if (refused) refused_(*refused);
    for (const auto& [done, end] : over) done(end);
  }
}

// What is to be read next: first what is read again, then new pieces by priority. False: nothing.
bool Reader::next(Part& part, Time now) {
  for (auto& each : later_) {
    if (each.when > now) continue;
    part = each.part;
    each = later_.back();
    later_.pop_back();
    return true;
  }
  for (auto& queue : waiting_) {
    if (queue.empty()) continue;
    const uint64_t number = queue.front();
    Work& work = works_[number];
    const size_t bytes = std::min(piece_bytes, work.range.to.size() - work.cut);
    part = {number, work.range.offset + work.cut, work.range.to.subspan(work.cut, bytes)};
    work.cut += bytes;
    ++work.pieces;
    if (work.cut == work.range.to.size()) queue.pop_front();
    return true;
  }
  return false;
}

void Reader::start_all(Time now) {
  Part part;
  while (!stopping_ && !free_.empty() && next(part, now)) {
    if (free_.size() == parts_.size()) busy_since_ = now;
    const uint64_t token = free_.back();
    free_.pop_back();
    const auto& file = *works_[part.number].range.file;
    part.direct = file.direct();
    parts_[token] = part;
    disk_->start(token, {file.file.fd(), part.offset, part.to});
  }
}

void Reader::again(const Part& part, Time when) { later_.push_back({when, part}); }

void Reader::piece_over(uint64_t number) {
  const auto found = works_.find(number);
  Work& work = found->second;
  --work.pieces;
  // A range that has failed is cut no further.
  if (work.end.why != 0 && work.cut < work.range.to.size()) {
    auto& queue = waiting_[static_cast<size_t>(work.range.priority)];
    queue.erase(std::find(queue.begin(), queue.end(), number));
    work.cut = work.range.to.size();
  }
  // Buffers go back to their owner once no piece writes into them.
  if (work.pieces > 0 || work.cut < work.range.to.size()) return;
  over_.emplace_back(std::move(work.range.done), work.end);
  works_.erase(found);
}

void Reader::end_piece(const PieceEnd& end, Time now) {
  Part part = parts_[end.token];
  free_.push_back(end.token);
  if (free_.size() == parts_.size()) counts_.busy_seconds += seconds(now - busy_since_);
  Work& work = works_[part.number];
  if (stopping_) return;
  if (work.end.why != 0) return piece_over(part.number);
  if (end.result == -EINVAL && part.direct) {
    work.range.file->give_up_direct();
    if (!std::exchange(told_refused_, true)) refused_path_ = work.range.file->path;
    return again(part, now);
  }
  if (end.result >= static_cast<int64_t>(part.to.size())) return piece_over(part.number);
  // Past the page cache a read begins at a multiple of a page.
  const size_t got = end.result <= 0 ? 0
                     : part.direct   ? static_cast<size_t>(end.result) / page * page
                                     : static_cast<size_t>(end.result);
  if (got > 0) {
    part.offset += got;
    part.to = part.to.subspan(got);
    return again(part, now);
  }
  if (end.result == -EINTR) return again(part, now);
  if (part.failures < again_after.size()) {
    ++counts_.retries;
    const auto wait = again_after[part.failures++];
    return again(part, now + wait);
  }
  work.end = {end.result < 0 ? static_cast<int>(-end.result) : file_ended, part.offset};
  piece_over(part.number);
}

}  // namespace continuo::experts
