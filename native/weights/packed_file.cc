#include "weights/packed_file.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/file.h"

namespace continuo {

namespace {

constexpr std::string_view magic = "CNTPACK2";
constexpr size_t name_at = 16, digest_digits = 64, table_at = name_at + 4 * digest_digits, line = 64;

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

std::string* digests_of(PackedName& name, size_t i) {
  return std::array{&name.key, &name.seal, &name.head, &name.fingerprint}[i];
}

struct Head {
  PackedName name;
  std::vector<Entry> entries;
};

// The head of a file; the message says what is wrong with it.
Result<Head> read_head(std::span<const std::byte> bytes) {
  if (bytes.size() < table_at || std::memcmp(bytes.data(), magic.data(), magic.size()) != 0)
    return invalid("are of another version or damaged");
  uint64_t count = 0, sum = 0;
  std::memcpy(&count, bytes.data() + 8, 8);
  if (count > (bytes.size() - table_at) / sizeof(Entry)) return invalid("are damaged");
  const size_t end = table_at + static_cast<size_t>(count) * sizeof(Entry);
  if (bytes.size() < end + 8) return invalid("are damaged");
  std::memcpy(&sum, bytes.data() + end, 8);
  if (sum != checksum(bytes.first(end))) return invalid("are damaged");
  Head head;
  for (size_t i = 0; i < 4; ++i)
    digests_of(head.name, i)
        ->assign(reinterpret_cast<const char*>(bytes.data()) + name_at + i * digest_digits, digest_digits);
  head.entries.resize(static_cast<size_t>(count));
  if (count > 0) std::memcpy(head.entries.data(), bytes.data() + table_at, end - table_at);
  return head;
}

// The file under `path`, where it is the one that `fd` is open on.
bool is_at(const std::string& path, int fd) {
  struct stat ours{}, there{};
  return ::fstat(fd, &ours) == 0 && ::stat(path.c_str(), &there) == 0 && ours.st_ino == there.st_ino &&
         ours.st_dev == there.st_dev;
}

}  // namespace

std::optional<PackedName> read_packed_name(const std::string& path) {
  const auto file = MappedFile::open(path);
  if (!file) return std::nullopt;
  auto head = read_head(file->bytes());
  if (!head) return std::nullopt;
  return std::move(head->name);
}

Result<std::shared_ptr<const PackedFile>> PackedFile::open(const PackCache& cache, std::span<Constant> constants,
                                                           ThreadPool& pool) {
  const auto unusable = [&](std::string_view why) { return invalid("packed weights ", cache.path, " ", why); };
  auto file = MappedFile::open(cache.path);
  if (!file) return unusable("cannot be read");
  const auto bytes = file->bytes();
  const auto head = read_head(bytes);
  if (!head) return unusable(head.error().message);
  if (head->name.key != cache.key || head->name.seal != cache.seal) return unusable("belong to another model or graph");
  if (head->entries.size() != constants.size()) return unusable("are laid out for another version");
  std::vector<Part> parts;
  for (size_t i = 0; i < constants.size(); ++i) {
    const Entry& entry = head->entries[i];
    Entry wanted = entry_of(constants[i]);
    wanted.offset = entry.offset;
    wanted.checksum = entry.checksum;
    if (std::memcmp(&wanted, &entry, sizeof(Entry)) != 0) return unusable("are laid out for another version");
    if (entry.offset % line != 0 || entry.offset > bytes.size() || bytes.size() - entry.offset < entry.bytes)
      return unusable("are cut short");
    parts.push_back({bytes.subspan(entry.offset, entry.bytes), entry.checksum});
  }
  std::atomic<bool> good{true};
  pool.parallel_for(parts.size(), [&](size_t i) {
    if (checksum(parts[i].bytes) != parts[i].checksum) good = false;
  });
  if (!good) return unusable("are damaged");
  const std::shared_ptr<const PackedFile> packed(new PackedFile(std::move(*file), std::move(parts)));
  for (size_t i = 0; i < constants.size(); ++i) {
    constants[i].bytes = packed->parts_[i].bytes;
    constants[i].owner = packed;
  }
  return packed;
}

bool PackedFile::intact() const {
  for (const auto& part : parts_) {
    if (checksum(part.bytes) != part.checksum) return false;
  }
  return true;
}

Result<uint64_t> write_packed(const std::string& path, const PackedName& name, std::span<const Constant> constants) {
  // One temporary file for all writers, which the one that holds its lock may write. What a writer that was killed left
  // is written over, and the lock went with it.
  const std::string temporary = path + ".part";
  const File file(temporary, O_WRONLY | O_CREAT);
  const auto failed = [&](int why) { return invalid("cannot write ", path, ": ", std::strerror(why), "."); };
  if (!file) return failed(file.why());
  if (::flock(file.fd(), LOCK_EX | LOCK_NB) != 0) return errno == EWOULDBLOCK ? Result<uint64_t>(0) : failed(errno);
  // Its name was taken away before the lock was ours: the file is whole, under the other name.
  if (!is_at(temporary, file.fd())) return 0;

  std::vector<Entry> entries;
  size_t at = aligned(table_at + constants.size() * sizeof(Entry) + 8);
  for (const auto& constant : constants) {
    Entry entry = entry_of(constant);
    entry.offset = at;
    entry.checksum = checksum(constant.bytes);
    entries.push_back(entry);
    at = aligned(at + constant.bytes.size());
  }
  std::vector<std::byte> head(aligned(table_at + entries.size() * sizeof(Entry) + 8));
  const uint64_t count = entries.size();
  std::memcpy(head.data(), magic.data(), magic.size());
  std::memcpy(head.data() + 8, &count, 8);
  PackedName copy = name;
  for (size_t i = 0; i < 4; ++i)
    std::memcpy(head.data() + name_at + i * digest_digits, digests_of(copy, i)->data(), digest_digits);
  if (!entries.empty()) std::memcpy(head.data() + table_at, entries.data(), entries.size() * sizeof(Entry));
  const size_t end = table_at + entries.size() * sizeof(Entry);
  const uint64_t sum = checksum({head.data(), end});
  std::memcpy(head.data() + end, &sum, 8);

  int why = ::ftruncate(file.fd(), 0) == 0 ? 0 : errno;
  if (why == 0) why = write_all(file.fd(), head);
  size_t written = head.size();
  const std::array<std::byte, line> padding{};
  for (size_t i = 0; why == 0 && i < entries.size(); ++i) {
    why = write_all(file.fd(), std::span(padding).first(entries[i].offset - written));
    if (why == 0) why = write_all(file.fd(), constants[i].bytes.first(entries[i].bytes));
    written = entries[i].offset + entries[i].bytes;
  }
  // No fsync: if the machine crashes, the checksums reveal an incomplete file.
  if (why == 0 && std::rename(temporary.c_str(), path.c_str()) != 0) why = errno;
  if (why == 0) return written;
  ::unlink(temporary.c_str());
  return failed(why);
}

}  // namespace continuo
