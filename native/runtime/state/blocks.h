// A table that grows, or a ring, as a list of blocks of 256 positions. (A table that no kernel reads may have shorter
// ones: StateSlice::block.)
//
// All blocks but the last have room for 256 positions. The last one's room doubles from 16 to 256, so that short
// contexts stay small; once it has 256, growing adds a block, and nothing that stands is copied again. A ring has all
// of its places from the beginning, a multiple of 256: position p lies in block p / 256 mod the number of blocks.
//
// Several contexts may hold the same block: a fork shares the blocks that are full, and all of a ring. A shared block
// is frozen: nobody writes into it any more, also when one context alone is left that holds it. A table that must
// change a frozen block copies it first, and lets its other holders keep the old one.
//
// Paging. A block belongs to the device for as long as one of its holders is paged in. It moves to the host's memory
// when the last of them is paged out or goes away, and comes back with the first that is paged in. So whatever
// context the device pages out, blocks that others need stay where they are.
//
// Sleep. The blocks of some tables (StateSlice::may_sleep) lie in the host's memory, and their bytes may be elsewhere
// (block_cache.h). No paging concerns them, and they are no part of what a context takes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/model/block_cache.h"
#include "runtime/model/block_list.h"
#include "runtime/model/device.h"
#include "runtime/model/model.h"

namespace continuo {

// [outer, room, inner] elements of a slice.
class TableBlock {
 public:
  TableBlock(std::shared_ptr<Device> device, DeviceMemory memory, size_t positions)
      : room(positions), device_(std::move(device)), memory_(std::move(memory)) {}
  TableBlock(std::shared_ptr<SleepyBytes> bytes, size_t positions) : room(positions), sleepy_(std::move(bytes)) {}

  const size_t room;  // positions
  // Nobody writes into the block any more. The first context that holds it sets this before a second one does; it is
  // never unset.
  bool frozen = false;
  // Whether one of the holders counts the block's memory as its own (BlockTable::bytes).
  std::atomic<bool> counted{true};

  // Null while it sleeps.
  std::byte* data() { return sleepy_ ? sleepy_->data() : memory_.data(); }
  // Of memory that its contexts account for: not of full blocks that may sleep.
  size_t bytes() const { return sleepy_ ? sleepy_->filling_bytes() : memory_.size(); }
  // Null where it never sleeps.
  const std::shared_ptr<SleepyBytes>& sleepy() const { return sleepy_; }

  // A holder comes, which is paged in; or goes.
  void come();
  void go(bool present) noexcept;
  // A holder is paged out, or in. A DeviceError changes nothing.
  void page_out();
  void page_in();

 private:
  const std::shared_ptr<Device> device_;
  const std::shared_ptr<SleepyBytes> sleepy_;
  std::mutex mutex_;
  DeviceMemory memory_;
  size_t holders_ = 0, present_ = 0;  // all holders; those that are paged in
};

// What one context holds of one block.
class BlockHold {
 public:
  bool counts;  // the block's memory is counted here

  BlockHold(std::shared_ptr<TableBlock> block, bool own) : counts(own), block_(std::move(block)) { block_->come(); }
  BlockHold(BlockHold&&) noexcept = default;
  BlockHold& operator=(BlockHold&& other) noexcept {
    drop();
    block_ = std::move(other.block_);
    present_ = other.present_;
    counts = other.counts;
    return *this;
  }
  ~BlockHold() { drop(); }

  TableBlock* operator->() const { return block_.get(); }
  const std::shared_ptr<TableBlock>& block() const { return block_; }
  void page_out();
  void page_in();

 private:
  void drop() noexcept;

  std::shared_ptr<TableBlock> block_;
  bool present_ = true;
};

// The table of one context. Positions of a ring are its places, but for prepare(). The context must be pinned for all
// calls but bytes(), held() and paging.
class BlockTable {
 public:
  // Of a slice that does not lie in blocks: always empty.
  BlockTable() = default;
  // `slice` must outlive the table; `init`: the first value of every element; `cache`: where the slice may sleep.
  BlockTable(std::shared_ptr<Device> device, const StateSlice& slice, double init,
             std::shared_ptr<BlockCache> cache = nullptr)
      : device_(std::move(device)), slice_(&slice), init_(init), cache_(slice.may_sleep ? std::move(cache) : nullptr) {}

  // Positions that the blocks have room for.
  size_t room() const { return blocks_.empty() ? 0 : (blocks_.size() - 1) * slice_->block + blocks_.back()->room; }
  size_t count() const { return blocks_.size(); }
  // Makes room for `positions` of at most `bound`. New positions have their first value.
  void reserve(size_t positions, size_t bound);
  // Of a ring: copies frozen blocks that a write of positions first … last − 1, counted through the laps, would copy.
  void prepare(size_t first, size_t last);
  // Begins an empty table with the first blocks of another one, which are full.
  void share(BlockTable& other, size_t blocks);
  // Adds so many whole blocks to a table whose blocks are full. The caller writes them before anything reads
  // them, but for those that are to sleep.
  void expect(size_t blocks);
  // Of a block that was expected, and that does not sleep, [outer, positions, inner].
  std::span<std::byte> expected(size_t block) { return {blocks_[block]->data(), blocks_[block]->bytes()}; }
  // The same of a block that sleeps.
  void place(size_t block, std::span<const std::byte> bytes) { cache_->place(*blocks_[block]->sleepy(), bytes); }
  // Where the table may sleep: the blocks whose last position is one of first … last − 1 are full and may sleep from
  // now on. To be called once all of their positions were written.
  void note_full(size_t first, size_t last);
  // The blocks that are full, of so many positions; all but the last part of a block.
  std::vector<std::shared_ptr<TableBlock>> full_blocks(size_t positions) const;
  // Begins an empty table with these.
  void take(std::span<const std::shared_ptr<TableBlock>> blocks);
  // Of the blocks that hold positions first … last − 1.
  Loan::Blocks sleepy(size_t first, size_t last) const;
  // Address of [part, position, 0]. `write` copies a frozen block first.
  const std::byte* read(size_t part, size_t position) const;
  std::byte* write(size_t part, size_t position);
  // Sets positions first … last − 1 of parts part … part + parts − 1 to their first value.
  void clear(size_t part, size_t parts, size_t first, size_t last);
  // The same of all parts, where `last` is the number of positions. Frozen blocks that keep no position are let go
  // with their room.
  void lower(size_t first, size_t last);
  // Visits the bytes of positions from … to − 1, part by part, as a dense [outer, to − from, inner] has them.
  void each_piece(size_t from, size_t to, const auto& visit) const {
    for (size_t part = 0; part < slice_->outer && from < to; ++part) {
      for (size_t at = from; at < to;) {
        const size_t end = std::min(to, (at / slice_->block + 1) * slice_->block);
        visit(read(part, at), (end - at) * position_bytes());
        at = end;
      }
    }
  }
  // The index of an element's address, as if the table were [positions, outer, inner]: it stays when the table grows.
  size_t index_of(const std::byte* element) const;
  // The blocks on the device, for kernels; valid until the table changes or is paged out.
  const BlockAt* directory();
  // Blocks that were replaced since the last call may be freed: nothing computes with them any more.
  void settle() { replaced_.clear(); }

  // A table of a fork, with the first `entered` positions: it shares the blocks that are full of them, and copies the
  // positions behind.
  BlockTable fork(size_t entered, size_t bound);

  // Bytes of the blocks, of those that are shared only where no other holder counts them.
  size_t bytes();
  // Leaves the memory of shared blocks to be counted by the other contexts that hold them. To be called before the
  // table is freed.
  void discount();
  // Bytes of all blocks that it holds.
  size_t held() const;
  void page_out();
  void page_in();

 private:
  size_t position_bytes() const { return slice_->inner * size_of(slice_->type); }
  size_t bytes_of(size_t positions) const { return slice_->outer * positions * position_bytes(); }
  std::shared_ptr<TableBlock> make(size_t room);
  void widen(size_t room);
  void make_directory();
  void own(size_t block);
  void fill(std::byte* to, size_t positions) { device_->fill(to, slice_->type, positions * slice_->inner, init_); }

  std::shared_ptr<Device> device_;
  const StateSlice* slice_ = nullptr;
  double init_ = 0;
  std::shared_ptr<BlockCache> cache_;
  // The first block that may take memory which is accounted for: where the table may sleep, its last one.
  size_t first_accounted() const { return cache_ && !blocks_.empty() ? blocks_.size() - 1 : 0; }

  std::vector<BlockHold> blocks_;
  std::vector<BlockHold> replaced_;  // kept, because a step that is under way may read them
  DeviceMemory directory_;           // BlockAt [at least blocks_.size()]
  bool listed_ = false;              // the directory is that of blocks_ as they are
};

}  // namespace continuo
