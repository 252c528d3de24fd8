// Where the positions of a table in blocks lie, as kernels read it (blocks.h). Plain data.
#pragma once

#include <cstddef>

namespace continuo {

constexpr size_t block_positions = 256;  // of a block

// One block, [outer, room, inner] elements.
struct BlockAt {
  const std::byte* data;
  size_t room;  // positions
};

// A member of the table, [positions, inner]: position p lies in block p / block_positions mod count. Of a table that
// grows there is a block for every position; in a ring the next lap lies where the one before did.
struct BlockList {
  const BlockAt* blocks;  // null: the positions do not lie in blocks
  size_t count;           // of blocks, at least 1
  size_t member;          // index among the outer parts
  size_t channel;         // the first one

  // Address of the first channel at a position, whose numbers have `each` bytes; `stride`: numbers of a position.
  constexpr const std::byte* at(size_t position, size_t stride, size_t each) const {
    const BlockAt& block = blocks[position / block_positions % count];
    return block.data + ((member * block.room + position % block_positions) * stride + channel) * each;
  }
};

}  // namespace continuo
