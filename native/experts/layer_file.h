// The open file of one layer of a store, and the files of a whole store.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "experts/reader.h"
#include "experts/store.h"

namespace continuo::experts {

// Two reads of a path with equal identities read the same file, unchanged. Another file of that name, or a change of
// its content, gives another identity.
struct Identity {
  uint64_t inode = 0, bytes = 0;
  int64_t seconds = 0, nanoseconds = 0;  // of the last change
  bool operator==(const Identity&) const = default;
};

struct LayerFile {
  std::shared_ptr<DirectFile> file;
  StoreIndex index;
  Identity identity;

  // Whether another file stands at its path now, or the file was changed since it was opened.
  bool changed() const;
};

// layer-LLL.experts
std::string layer_name(uint32_t layer);

// Opens a file and checks its header and index. REFUSED or UNAVAILABLE, naming the file.
Result<std::shared_ptr<const LayerFile>> open_layer(const std::string& path, uint32_t layer, bool direct);

// The same file past the page cache: its pages there are dropped, and it is opened anew where it was not read past
// them.
std::shared_ptr<DirectFile> past_page_cache(const LayerFile& layer, uint64_t offset, uint64_t bytes);

// The digest of a store: over the digests of its layers, in order.
std::string digest_of(std::span<const std::shared_ptr<const LayerFile>> layers);

}  // namespace continuo::experts
