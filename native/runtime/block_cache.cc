#include "runtime/block_cache.h"

#include <atomic>
#include <cstring>
#include <utility>

namespace continuo {

namespace {

std::atomic<uint64_t> last_number{0};

}  // namespace

SleepyBytes::SleepyBytes(std::shared_ptr<BlockCache> cache, size_t bytes, bool asleep)
    : number(++last_number), cache_(std::move(cache)), size_(bytes), full_(asleep) {
  if (!asleep) bytes_ = std::make_unique<std::byte[]>(bytes);
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

void SleepyBytes::full() {
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
  if (!tell_)
    news_ = {};
  else if (!news_.empty())
    std::exchange(tell_, nullptr)(std::exchange(news_, {}));
}

std::shared_ptr<Ticket> BlockCache::wanted(SleepyBytes& block) {
  if (!block.ticket_) {
    block.ticket_ = std::make_shared<Ticket>();
    note(&News::wanted, block.number);
  }
  return block.ticket_;
}

std::vector<std::shared_ptr<Ticket>> BlockCache::want(std::span<SleepyBytes* const> blocks, bool keep) {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Ticket>> out;
  for (auto* block : blocks) {
    block->awaited_ = block->awaited_ || keep;
    if (!block->bytes_) out.push_back(wanted(*block));
  }
  return out;
}

Result<std::shared_ptr<Ticket>> BlockCache::borrow(std::span<SleepyBytes* const> blocks) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Ticket> missing;
  for (auto* block : blocks) {
    if (block->fault_) return *std::exchange(block->fault_, std::nullopt);
    if (block->bytes_) continue;
    const auto ticket = wanted(*block);
    if (!missing) missing = ticket;
  }
  for (auto* block : blocks) {
    block->awaited_ = missing != nullptr;
    if (missing) continue;
    ++block->lent_;
    if (block->full_) note(&News::used, block->number);
  }
  return missing;
}

void BlockCache::give_back(std::span<SleepyBytes* const> blocks) {
  const std::lock_guard lock(mutex_);
  for (auto* block : blocks) --block->lent_;
}

SleepyBytes* BlockCache::find(uint64_t number) {
  const auto found = blocks_.find(number);
  return found == blocks_.end() ? nullptr : found->second;
}

bool BlockCache::sleep(uint64_t number) {
  const std::lock_guard lock(mutex_);
  auto* block = find(number);
  if (!block || !block->full_ || block->awaited_ || block->lent_ > 0) return false;
  block->bytes_.reset();
  return true;
}

void BlockCache::opened(SleepyBytes& block) {
  if (const auto ticket = std::exchange(block.ticket_, nullptr)) ticket->open();
}

bool BlockCache::wake(uint64_t number, std::span<const std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  auto* block = find(number);
  if (!block || block->bytes_) return true;
  if (block->size_ != bytes.size()) return false;
  block->bytes_ = std::make_unique_for_overwrite<std::byte[]>(bytes.size());
  std::memcpy(block->bytes_.get(), bytes.data(), bytes.size());
  block->fault_.reset();
  opened(*block);
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
  if (!block || block->bytes_) return;
  block->fault_ = std::move(error);
  opened(*block);
}

std::optional<std::vector<std::byte>> BlockCache::copy(uint64_t number) {
  const std::lock_guard lock(mutex_);
  auto* block = find(number);
  if (!block || !block->full_ || !block->bytes_) return std::nullopt;
  return std::vector<std::byte>(block->bytes_.get(), block->bytes_.get() + block->size_);
}

}  // namespace continuo
