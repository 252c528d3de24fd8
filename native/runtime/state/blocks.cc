#include "runtime/state/blocks.h"

#include <algorithm>
#include <bit>

namespace continuo {

namespace {

constexpr size_t least_room = 16;   // positions of a block
constexpr size_t least_listed = 8;  // blocks that a directory has room for

// The room of a block that must take `wanted` positions, of `left` that the table may still have.
size_t room_for(size_t wanted, size_t left, size_t block) {
  return std::min({std::max(std::bit_ceil(wanted), least_room), block, left});
}

}  // namespace

void TableBlock::come() {
  if (sleepy_) return;
  const std::lock_guard lock(mutex_);
  ++holders_;
  ++present_;
}

void TableBlock::go(bool present) noexcept {
  if (sleepy_) return;
  // The use of the device comes before the lock, as in every call of the device.
  const InUse in_use(device_);
  const std::lock_guard lock(mutex_);
  --holders_;
  if (!present || --present_ > 0 || holders_ == 0) return;
  try {
    memory_.page_out();
  } catch (const std::exception&) {
    // The block stays on the device until the next holder is paged in and out again.
  }
}

void TableBlock::page_out() {
  if (sleepy_) return;
  const std::lock_guard lock(mutex_);
  if (present_ == 1) memory_.page_out();
  --present_;
}

void TableBlock::page_in() {
  if (sleepy_) return;
  const std::lock_guard lock(mutex_);
  if (present_ == 0) memory_.page_in();
  ++present_;
}

void BlockHold::page_out() {
  if (!present_) return;
  block_->page_out();
  present_ = false;
}

void BlockHold::page_in() {
  if (present_) return;
  block_->page_in();
  present_ = true;
}

void BlockHold::drop() noexcept {
  if (!block_) return;
  if (counts) block_->counted = false;
  block_->go(present_);
  block_.reset();
}

std::shared_ptr<TableBlock> BlockTable::make(size_t room) {
  if (cache_) return std::make_shared<TableBlock>(std::make_shared<SleepyBytes>(cache_, bytes_of(room), false), room);
  return std::make_shared<TableBlock>(device_, DeviceMemory(device_, bytes_of(room)), room);
}

void BlockTable::share(BlockTable& other, size_t blocks) {
  blocks_.reserve(blocks);
  for (size_t i = 0; i < blocks; ++i) {
    auto& block = other.blocks_[i];
    // Read before it is written: other holders of a block that is frozen already may read it now.
    if (!block->frozen) block->frozen = true;
    blocks_.emplace_back(block.block(), false);
  }
  listed_ = false;
}

void BlockTable::expect(size_t blocks) {
  blocks_.reserve(blocks_.size() + blocks);
  for (size_t i = 0; i < blocks; ++i) {
    if (cache_) {
      auto bytes = std::make_shared<SleepyBytes>(cache_, bytes_of(slice_->block), true);
      blocks_.emplace_back(std::make_shared<TableBlock>(std::move(bytes), slice_->block), true);
      continue;
    }
    auto memory = DeviceMemory::unwritten(device_, bytes_of(slice_->block));
    blocks_.emplace_back(std::make_shared<TableBlock>(device_, std::move(memory), slice_->block), true);
  }
  listed_ = false;
}

void BlockTable::note_full(size_t first, size_t last) {
  for (size_t i = first / slice_->block; i < last / slice_->block; ++i) blocks_[i]->sleepy()->note_full();
}

std::vector<std::shared_ptr<TableBlock>> BlockTable::full_blocks(size_t positions) const {
  std::vector<std::shared_ptr<TableBlock>> out;
  for (size_t i = 0; i < positions / slice_->block; ++i) out.push_back(blocks_[i].block());
  return out;
}

void BlockTable::take(std::span<const std::shared_ptr<TableBlock>> blocks) {
  blocks_.clear();
  for (const auto& block : blocks) blocks_.emplace_back(block, false);
}

Loan::Blocks BlockTable::sleepy(size_t first, size_t last) const {
  Loan::Blocks out;
  for (size_t at = first; at < last; at = (at / slice_->block + 1) * slice_->block)
    out.push_back(blocks_[at / slice_->block]->sleepy());
  return out;
}

void BlockTable::reserve(size_t positions, size_t bound) {
  while (room() < positions) {
    const size_t base = blocks_.empty() ? 0 : (blocks_.size() - 1) * slice_->block;
    if (!blocks_.empty() && blocks_.back()->room < std::min(slice_->block, bound - base)) {
      widen(room_for(positions - base, bound - base, slice_->block));
      continue;
    }
    const size_t begin = blocks_.size() * slice_->block;
    auto block = make(room_for(positions - begin, bound - begin, slice_->block));
    // New memory is zero.
    if (std::bit_cast<uint64_t>(init_) != 0) fill(block->data(), slice_->outer * block->room);
    blocks_.emplace_back(std::move(block), true);
    listed_ = false;
  }
  make_directory();
}

// Takes the memory of the directory. No step does: it could not wait for other contexts to leave the device.
void BlockTable::make_directory() {
  const size_t wanted = std::bit_ceil(std::max(blocks_.size(), least_listed)) * sizeof(BlockAt);
  // Kernels do not read what may sleep.
  if (blocks_.empty() || cache_ || directory_.size() >= wanted) return;
  directory_ = DeviceMemory(device_, wanted);
  listed_ = false;
}

// Copies the last block into one with more room.
void BlockTable::widen(size_t room) {
  auto& last = blocks_.back();
  auto wider = make(room);
  const size_t each = position_bytes();
  for (size_t part = 0; part < slice_->outer; ++part) {
    std::byte* to = wider->data() + part * room * each;
    device_->copy(to, last->data() + part * last->room * each, last->room * each);
    if (std::bit_cast<uint64_t>(init_) != 0) fill(to + last->room * each, room - last->room);
  }
  last = BlockHold(std::move(wider), true);
  listed_ = false;
}

void BlockTable::prepare(size_t first, size_t last) {
  if (first == last) return;
  const size_t begin = first / slice_->block, end = (last - 1) / slice_->block + 1;
  for (size_t i = begin; i < std::min(end, begin + blocks_.size()); ++i) own(i % blocks_.size());
}

// Replaces a frozen block by a copy that this table alone holds.
void BlockTable::own(size_t i) {
  auto& hold = blocks_[i];
  if (!hold->frozen) return;
  auto copy = make(hold->room);
  device_->copy(copy->data(), hold->data(), bytes_of(hold->room));
  replaced_.push_back(std::move(hold));
  hold = BlockHold(std::move(copy), true);
  listed_ = false;
}

const std::byte* BlockTable::read(size_t part, size_t position) const {
  const auto& block = blocks_[position / slice_->block];
  return block->data() + (part * block->room + position % slice_->block) * position_bytes();
}

std::byte* BlockTable::write(size_t part, size_t position) {
  own(position / slice_->block);
  return const_cast<std::byte*>(read(part, position));
}

void BlockTable::clear(size_t part, size_t parts, size_t first, size_t last) {
  for (size_t at = first; at < last;) {
    const auto& block = blocks_[at / slice_->block];
    const size_t begin = at % slice_->block, end = std::min(block->room, begin + (last - at));
    own(at / slice_->block);
    if (begin == 0 && end == block->room) {
      fill(block->data() + part * block->room * position_bytes(), parts * block->room);
    } else {
      for (size_t i = part; i < part + parts; ++i)
        fill(block->data() + (i * block->room + begin) * position_bytes(), end - begin);
    }
    at += end - begin;
  }
}

void BlockTable::lower(size_t first, size_t last) {
  for (size_t i = (first + slice_->block - 1) / slice_->block; i < blocks_.size(); ++i) {
    if (!blocks_[i]->frozen) continue;
    blocks_.erase(blocks_.begin() + static_cast<ptrdiff_t>(i), blocks_.end());
    listed_ = false;
  }
  clear(0, slice_->outer, first, std::min(last, room()));
}

size_t BlockTable::index_of(const std::byte* element) const {
  const size_t each = slice_->inner;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const auto& block = blocks_[i];
    if (std::less<>{}(element, block->data()) || !std::less<>{}(element, block->data() + bytes_of(block->room)))
      continue;
    const size_t at = static_cast<size_t>(element - block->data()) / size_of(slice_->type), position = at / each;
    return ((i * slice_->block + position % block->room) * slice_->outer + position / block->room) * each + at % each;
  }
  return 0;
}

const BlockAt* BlockTable::directory() {
  if (!listed_) {
    std::vector<BlockAt> list;
    for (const auto& block : blocks_) list.push_back({block->data(), block->room});
    if (!list.empty())
      device_->upload(directory_.data(), reinterpret_cast<const std::byte*>(list.data()),
                      list.size() * sizeof(BlockAt));
    listed_ = true;
  }
  return reinterpret_cast<const BlockAt*>(directory_.data());
}

BlockTable BlockTable::fork(size_t entered, size_t bound) {
  BlockTable out(device_, *slice_, init_, cache_);
  const size_t full = entered / slice_->block;
  out.share(*this, full);
  out.reserve(entered, bound);
  for (size_t part = 0; part < slice_->outer && entered % slice_->block > 0; ++part)
    device_->copy(out.write(part, full * slice_->block), read(part, full * slice_->block),
                  entered % slice_->block * position_bytes());
  return out;
}

size_t BlockTable::bytes() {
  size_t total = directory_.size();
  for (size_t i = first_accounted(); i < blocks_.size(); ++i) {
    auto& block = blocks_[i];
    if (!block.counts) block.counts = !block->counted.exchange(true);
    if (block.counts) total += block->bytes();
  }
  return total;
}

void BlockTable::discount() {
  for (size_t i = first_accounted(); i < blocks_.size(); ++i) {
    auto& block = blocks_[i];
    if (block.counts) block->counted = false;
    block.counts = false;
  }
}

size_t BlockTable::held() const {
  size_t total = 0;
  for (size_t i = first_accounted(); i < blocks_.size(); ++i) total += blocks_[i]->bytes();
  return total;
}

void BlockTable::page_out() {
  settle();
  for (auto& block : blocks_) block.page_out();
  directory_ = {};
  listed_ = false;
}

void BlockTable::page_in() {
  for (auto& block : blocks_) block.page_in();
  make_directory();
}

}  // namespace continuo
