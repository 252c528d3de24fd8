// Where the positions of a table that grows lie, as kernels read it (blocks.h). Plain data.
#pragma once

#include <cstddef>

namespace continuo {

constexpr size_t block_positions = 256;  // of a block

// One block, [outer, room, inner] elements.
struct BlockAt {
  const std::byte* data;
  size_t room;  // positions
};

// A member of the table, [positions, inner]: position p lies in block p / block_positions.
struct BlockList {
  const BlockAt* blocks;  // null: the positions do not lie in blocks
  size_t member;          // index among the outer parts
  size_t channel;         // the first one
};

}  // namespace continuo
