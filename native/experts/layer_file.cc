#include "experts/layer_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>

namespace continuo::experts {

namespace {

Identity identity_of(const struct stat& found) {
#ifdef __APPLE__
  const auto& time = found.st_mtimespec;
#else
  const auto& time = found.st_mtim;
#endif
  return {static_cast<uint64_t>(found.st_ino), static_cast<uint64_t>(found.st_size), time.tv_sec, time.tv_nsec};
}

}  // namespace

bool LayerFile::changed() const {
  struct stat found{};
  // A path without a file is no file to open again: the open one is read as before.
  return ::stat(file->path.c_str(), &found) == 0 && identity_of(found) != identity;
}

std::string layer_name(uint32_t layer) {
  std::array<char, 40> name{};
  std::snprintf(name.data(), name.size(), "layer-%03u.experts", layer);
  return name.data();
}

Result<std::shared_ptr<const LayerFile>> open_layer(const std::string& path, uint32_t layer, bool direct) {
  auto out = std::make_shared<LayerFile>();
  // The index is read through the page cache: its parts do not begin at multiples of a page.
  out->file = std::make_shared<DirectFile>(path, false);
  if (!out->file->file)
    return Error{Code::refused, text(path, " could not be opened: ", std::strerror(out->file->file.why()),
                                     ". Pack the experts: continuo experts pack.")};
  const int fd = out->file->file.fd();
  struct stat found{};
  if (::fstat(fd, &found) != 0)
    return Error{Code::unavailable, text(path, " could not be read: ", std::strerror(errno), ".")};
  out->identity = identity_of(found);
  auto index = read_index(fd, path);
  if (!index) return index.error();
  if (index->layer != layer)
    return Error{Code::refused, text(path, " has the experts of layer ", index->layer, ", expected ", layer,
                                     ". Pack the experts again: continuo experts pack.")};
  out->index = std::move(*index);
  if (direct) out->file->go_direct();
  return std::shared_ptr<const LayerFile>(std::move(out));
}

std::shared_ptr<DirectFile> past_page_cache(const LayerFile& layer, uint64_t offset, uint64_t bytes) {
  if (layer.file->direct()) return layer.file;
#ifdef POSIX_FADV_DONTNEED
  ::posix_fadvise(layer.file->file.fd(), static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_DONTNEED);
#else
  (void)offset, (void)bytes;
#endif
  auto again = std::make_shared<DirectFile>(layer.file->path, true);
  struct stat found{};
  const bool same = again->file && ::fstat(again->file.fd(), &found) == 0 && identity_of(found) == layer.identity;
  return same ? again : layer.file;
}

std::string digest_of(std::span<const std::shared_ptr<const LayerFile>> layers) {
  Sha256 sum;
  for (const auto& layer : layers) sum.update(layer->index.digest);
  return sum.hex();
}

}  // namespace continuo::experts
