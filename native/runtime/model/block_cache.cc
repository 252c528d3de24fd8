#include "runtime/model/block_cache.h"

#include <atomic>
#include <cstring>
#include <utility>

namespace continuo {

namespace {

std::atomic<uint64_t> last_number{0};

Error without_owner() {
  return {Code::unavailable,
          "An archived block is not in memory, and the sessions or the worker that kept it elsewhere were closed. "
          "Restore the context from a snapshot."};
}

}  // namespace

SleepyBytes::SleepyBytes(std::shared_ptr<BlockCache> cache, size_t bytes, bool asleep)
    : number(++last_number), cache_(std::move(cache)), size_(bytes), full_(asleep) {
  if (!asleep) bytes_ = std::make_shared<std::byte[]>(bytes);
  const std::lock_guard lock(cache_->mutex_);
  cache_->blocks_.emplace(number, this);
}

SleepyBytes::~SleepyBytes() {
  const std::lock_guard lock(cache_->mutex_);
  cache_->blocks_.erase(number);
  if (full_) cache_->note(&BlockCache::News::gone, number);
}

std::byte* SleepyBytes::data() const {
  const std::lock_guard lock(cache_->mutex_);
  return bytes_.get();
}

size_t SleepyBytes::filling_bytes() const {
  const std::lock_guard lock(cache_->mutex_);
  return full_ ? 0 : size_;
}

void SleepyBytes::note_full() {
  const std::lock_guard lock(cache_->mutex_);
  if (!std::exchange(full_, true)) cache_->note(&BlockCache::News::full, number);
}

void BlockCache::note(std::vector<uint64_t> News::* kind, uint64_t number) {
  if (!has_owner_) return;
  (news_.*kind).push_back(number);
  if (auto tell = std::exchange(tell_, nullptr)) tell(std::exchange(news_, {}));
}

void BlockCache::listen(std::function<void(News)> tell) {
  const std::lock_guard lock(mutex_);
  if (auto other = std::exchange(tell_, nullptr)) other({});
  if (!has_owner_ && tell) {
    // What was there before anybody listened.
    for (const auto& [number, block] : blocks_)
      if (block->full_ && block->bytes_) news_.full.push_back(number);
  }
  has_owner_ = tell != nullptr;
  tell_ = std::move(tell);
  if (!has_owner_) {
    news_ = {};
    for (const auto& [number, block] : blocks_) open_ticket(*block, without_owner());
  } else if (!news_.empty()) {
    std::exchange(tell_, nullptr)(std::exchange(news_, {}));
  }
}

SleepyBytes* BlockCache::find(uint64_t number) {
  const auto found = blocks_.find(number);
  return found == blocks_.end() ? nullptr : found->second;
}

bool BlockCache::sleep(uint64_t number) {
  const std::lock_guard lock(mutex_);
  auto* block = find(number);
  if (!block || !block->full_ || block->lent_ > 0) return false;
  block->bytes_.reset();
  return true;
}

void BlockCache::open_ticket(SleepyBytes& block, std::optional<Error> error) {
  if (const auto ticket = std::exchange(block.ticket_, nullptr)) ticket->open(std::move(error));
}

bool BlockCache::wake(uint64_t number, std::span<const std::byte> bytes) {
  // Outside of the mutex: a block may have many megabytes.
  auto copy = std::make_shared_for_overwrite<std::byte[]>(bytes.size());
  std::memcpy(copy.get(), bytes.data(), bytes.size());
  const std::lock_guard lock(mutex_);
  auto* block = find(number);
  if (!block || block->bytes_) return true;
  if (block->size_ != bytes.size()) return false;
  block->bytes_ = std::move(copy);
  open_ticket(*block);
  return true;
}

bool BlockCache::place(SleepyBytes& block, std::span<const std::byte> bytes) {
  if (!wake(block.number, bytes)) return false;
  const std::lock_guard lock(mutex_);
  note(&News::full, block.number);
  return true;
}

void BlockCache::refuse(uint64_t number, Error error) {
  const std::lock_guard lock(mutex_);
  auto* block = find(number);
  if (block && !block->bytes_) open_ticket(*block, std::move(error));
}

std::optional<std::vector<std::byte>> BlockCache::copy(uint64_t number) {
  std::shared_ptr<std::byte[]> bytes;
  size_t size = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto* block = find(number);
    if (!block || !block->full_ || !block->bytes_) return std::nullopt;
    bytes = block->bytes_;
    size = block->size_;
  }
  return std::vector<std::byte>(bytes.get(), bytes.get() + size);
}

Loan::Loan(Blocks blocks) : blocks_(std::move(blocks)) {
  if (blocks_.empty()) return;
  {
    const std::lock_guard lock(blocks_[0]->cache_->mutex_);
    for (const auto& block : blocks_) ++block->lent_;
  }
  (void)missing();
}

Loan::~Loan() {
  if (blocks_.empty()) return;
  auto& cache = *blocks_[0]->cache_;
  // A block may be freed with `blocks_`, which takes the mutex again.
  const std::lock_guard lock(cache.mutex_);
  for (const auto& block : blocks_) {
    if (--block->lent_ == 0 && block->full_ && block->bytes_) cache.note(&BlockCache::News::used, block->number);
  }
}

std::vector<std::shared_ptr<Ticket>> Loan::missing() {
  std::vector<std::shared_ptr<Ticket>> out;
  if (blocks_.empty()) return out;
  auto& cache = *blocks_[0]->cache_;
  const std::lock_guard lock(cache.mutex_);
  for (const auto& block : blocks_) {
    if (block->bytes_) continue;
    if (!block->ticket_) {
      block->ticket_ = std::make_shared<Ticket>();
      cache.note(&BlockCache::News::wanted, block->number);
    }
    out.push_back(block->ticket_);
    if (!cache.has_owner_) cache.open_ticket(*block, without_owner());
  }
  return out;
}

}  // namespace continuo
