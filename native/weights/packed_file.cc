#include "weights/packed_file.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/file.h"
#include "weights/mapped_file.h"

namespace continuo {

namespace {

constexpr std::string_view magic = "CNTPACK1";
constexpr size_t key_bytes = 64, table_at = 80, line = 64;

struct Entry {
  uint64_t kind, outputs, inputs, group, offset, bytes, checksum;
};
static_assert(sizeof(Entry) == 56);

size_t aligned(size_t at) { return (at + line - 1) / line * line; }

Entry entry_of(const Constant& constant) {
  return {static_cast<uint64_t>(constant.layout) + 256 * static_cast<uint64_t>(constant.dtype),
          constant.outputs,
          constant.inputs,
          constant.group,
          0,
          constant.bytes.size(),
          0};
}

}  // namespace

Status read_packed(const PackCache& cache, std::span<Constant> constants, ThreadPool& pool) {
  if (::access(cache.path.c_str(), F_OK) != 0) return Error{Code::invalid, ""};
  const auto unusable = [&](const char* why) {
    return invalid("packed weights ", cache.path, " ", why, "; they are packed anew.");
  };
  auto opened = MappedFile::open(cache.path);
  if (!opened) return unusable("cannot be read");
  const auto file = std::make_shared<MappedFile>(std::move(*opened));
  const auto bytes = file->bytes();
  const size_t head = table_at + constants.size() * sizeof(Entry);
  if (bytes.size() < table_at || std::memcmp(bytes.data(), magic.data(), magic.size()) != 0)
    return unusable("are of another version or damaged");
  if (std::memcmp(bytes.data() + 16, cache.key.data(), key_bytes) != 0)
    return unusable("belong to another model or graph");
  uint64_t count = 0, sum = 0;
  std::memcpy(&count, bytes.data() + 8, 8);
  if (count != constants.size() || bytes.size() < head + 8) return unusable("are damaged");
  std::memcpy(&sum, bytes.data() + head, 8);
  if (sum != checksum(bytes.first(head))) return unusable("are damaged");
  std::vector<Entry> entries(constants.size());
  if (!entries.empty()) std::memcpy(entries.data(), bytes.data() + table_at, entries.size() * sizeof(Entry));
  for (size_t i = 0; i < entries.size(); ++i) {
    Entry wanted = entry_of(constants[i]);
    wanted.offset = entries[i].offset;
    wanted.checksum = entries[i].checksum;
    if (std::memcmp(&wanted, &entries[i], sizeof(Entry)) != 0) return unusable("are laid out for another version");
    if (entries[i].offset % line != 0 || entries[i].offset > bytes.size() ||
        bytes.size() - entries[i].offset < entries[i].bytes)
      return unusable("are cut short");
  }
  std::atomic<bool> good{true};
  pool.parallel_for(entries.size(), [&](size_t i) {
    if (checksum(bytes.subspan(entries[i].offset, entries[i].bytes)) != entries[i].checksum) good = false;
  });
  if (!good) return unusable("are damaged");
  for (size_t i = 0; i < entries.size(); ++i) {
    constants[i].bytes = bytes.subspan(entries[i].offset, entries[i].bytes);
    constants[i].owner = file;
  }
  return Done{};
}

void write_packed(const PackCache& cache, std::span<const Constant> constants) {
  std::vector<Entry> entries;
  size_t at = aligned(table_at + constants.size() * sizeof(Entry) + 8);
  for (const auto& constant : constants) {
    Entry entry = entry_of(constant);
    entry.offset = at;
    entry.checksum = checksum(constant.bytes);
    entries.push_back(entry);
    at = aligned(at + constant.bytes.size());
  }
  std::vector<std::byte> head(entries.empty() ? aligned(table_at + 8) : entries[0].offset);
  const uint64_t count = entries.size();
  std::memcpy(head.data(), magic.data(), magic.size());
  std::memcpy(head.data() + 8, &count, 8);
  std::memcpy(head.data() + 16, cache.key.data(), key_bytes);
  if (!entries.empty()) std::memcpy(head.data() + table_at, entries.data(), entries.size() * sizeof(Entry));
  const size_t end = table_at + entries.size() * sizeof(Entry);
  const uint64_t sum = checksum({head.data(), end});
  std::memcpy(head.data() + end, &sum, 8);

  // Two processes may pack at the same time. Each writes a temporary file of its own; the last rename wins, with the
  // same bytes.
  const std::string temporary =
      text(cache.path, ".", ::getpid(), ".", static_cast<const void*>(constants.data()), ".tmp");
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return;
  bool good = write_all(fd, head) == 0;
  size_t written = head.size();
  const std::array<std::byte, line> padding{};
  for (size_t i = 0; good && i < entries.size(); ++i) {
    good = write_all(fd, std::span(padding).first(entries[i].offset - written)) == 0 &&
           write_all(fd, constants[i].bytes.first(entries[i].bytes)) == 0;
    written = entries[i].offset + entries[i].bytes;
  }
  // No fsync: if the machine crashes, the checksums reveal an incomplete file.
  good = ::close(fd) == 0 && good;
  if (!good || std::rename(temporary.c_str(), cache.path.c_str()) != 0) ::unlink(temporary.c_str());
}

}  // namespace continuo
