// Filling: a new context that is made of a state's parts. The state without its blocks comes first; then blocks, in any
// order and from any threads, are written to where they will stay; at the end the context is given out. Whatever is
// refused, nobody has the context, and its memory goes with the filling.
//
// A block of a growth holds so many positions as its tables' blocks have, one table after the other, [outer, positions,
// inner] each: what one TableBlock of each table holds.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/state/context.h"

namespace continuo {

// Tables that grow along one counter, in blocks of as many positions.
struct Growth {
  std::vector<uint32_t> slices;  // in the model's layout; each of them grows
  size_t blocks = 0;
  size_t kept = 0;  // the first of them, which a context has already
};

struct BlockName {
  size_t growth = 0, block = 0;
};

struct BlockBytes {
  BlockName name;
  std::span<const std::byte> bytes;
};

// A file whose content is to be a block.
struct BlockFile {
  BlockName name;
  std::string path;
  std::string sha256;  // 64 hexadecimal digits
};

class Filling {
 public:
  // `hot`: the state without the blocks. `from`: the context whose blocks are kept, which no other call has; null where
  // none is. Refuses what Context::restore refuses. Throws as Context's constructor does.
  // `sleepy`: where tables that may sleep are kept, their blocks, in place of those of `from`.
  static Result<std::shared_ptr<Filling>> begin(std::shared_ptr<const Model> model, std::span<const std::byte> hot,
                                                std::vector<Growth> growths, const Head& head, Context* from = nullptr,
                                                const Context::Sleepy* sleepy = nullptr);

  // Writes blocks. The sha256 of the bytes of each, which the caller compares with its name. A wrong length and numbers
  // that no state can have are held against the filling: see finish().
  Result<std::vector<std::string>> place(std::span<const BlockBytes> blocks);
  // Writes blocks of one growth from their files. True for each file that could be read and has length and hash. The
  // others may be placed again.
  Result<std::vector<bool>> read(std::span<const BlockFile> files);
  // Leaves blocks asleep; their tables may sleep.
  Status rest(std::span<const BlockName> blocks);
  // The context, once every block has been written. To be called once.
  Result<std::shared_ptr<Context>> finish();

 private:
  enum class Stage : uint8_t { awaited, busy, written };
  // The part of a block that belongs to one table.
  struct Part {
    uint32_t slice;
    size_t bytes;
  };
  class Reading;

  Filling(std::shared_ptr<Context> context, std::vector<Growth> growths);
  // Reserves blocks for one thread, all or none; and says how it went with one.
  Status take(const auto& wanted);
  void leave(BlockName name, Stage stage, std::optional<Error> fault = std::nullopt);
  Device& device() const { return *context_->model().device; }
  const StateSlice& slice(const Part& part) const { return context_->model().layout[part.slice]; }
  std::string_view table(const Part& part) const { return context_->model().graph.declarations[slice(part).name].name; }
  std::byte* place_of(const Part& part, size_t block) {
    return context_->blocks(slice(part).name).expected(block).data();
  }
  // Writes all of a part.
  void write(const Part& part, size_t block, std::span<const std::byte> bytes);
  std::optional<Error> put(const BlockBytes& block);
  // What is wrong with bytes that begin at `from` of a part of a block.
  std::optional<Error> fault_in(const Part& part, size_t block, size_t from, std::span<const std::byte> bytes) const;

  std::shared_ptr<Context> context_;
  std::vector<Growth> growths_;
  std::vector<std::vector<Part>> parts_;  // [growths]
  std::vector<size_t> sizes_;             // [growths]: bytes of a block
  std::mutex mutex_;
  std::vector<std::vector<Stage>> stages_;  // [growths][blocks]; under the mutex
  std::optional<Error> fault_;              // the first one; under the mutex
};

}  // namespace continuo
