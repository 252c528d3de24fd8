#include "experts/store.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/stat.h>

#include "base/checksum.h"
#include "base/file.h"

namespace continuo::experts {

namespace {

constexpr std::string_view store_magic = "CNTNEXP1";
constexpr uint32_t store_version = 1;
constexpr uint32_t most_experts = 1u << 20;

struct Header {
  std::array<char, 8> magic;
  uint32_t version, index_bytes, layer, experts, channels, inner, group, coding;
  uint64_t record_bytes, payload_bytes, deltas, file_bytes, zero;
  Digest digest;
  uint64_t also_zero, checksum;
};
static_assert(sizeof(Header) == 128);

constexpr size_t checksum_at = offsetof(Header, checksum);

Header header_of(const StoreIndex& index) {
  Header header{};
  std::copy(store_magic.begin(), store_magic.end(), header.magic.begin());
  header.version = store_version;
  header.index_bytes = static_cast<uint32_t>(index.index_bytes());
  header.layer = index.layer;
  header.experts = static_cast<uint32_t>(index.records.size());
  header.channels = index.shape.channels;
  header.inner = index.shape.inner;
  header.group = index.shape.group;
  header.coding = static_cast<uint32_t>(index.shape.coding);
  header.record_bytes = index.record_bytes();
  header.payload_bytes = payload_bytes(index.shape);
  header.deltas = index.deltas.size();
  header.file_bytes = index.file_bytes();
  header.digest = index.digest;
  return header;
}

}  // namespace

size_t StoreIndex::index_bytes() const {
  return padded(sizeof(Header) + records.size() * sizeof(RecordEntry) + deltas.size() * sizeof(DeltaEntry));
}

size_t StoreIndex::record_bytes() const { return padded(payload_bytes(shape)); }

uint64_t StoreIndex::file_bytes() const {
  uint64_t bytes = index_bytes() + records.size() * record_bytes();
  for (const auto& delta : deltas) bytes += padded(delta.bytes);
  return bytes;
}

std::vector<std::pair<uint32_t, uint32_t>> neighbours(uint32_t columns, uint32_t rows) {
  std::vector<std::pair<uint32_t, uint32_t>> out;
  const auto add = [&](uint32_t a, uint32_t b) {
    if (a != b) out.emplace_back(std::min(a, b), std::max(a, b));
  };
  for (uint32_t column = 0; column < columns; ++column) {
    for (uint32_t row = 0; row < rows; ++row) {
      add(column * rows + row, (column + 1) % columns * rows + row);
      add(column * rows + row, column * rows + (row + 1) % rows);
    }
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::vector<std::byte> encode_index(StoreIndex& index) {
  uint64_t at = index.index_bytes();
  for (auto& record : index.records) {
    record.offset = at;
    record.bytes = payload_bytes(index.shape);
    record.zero = 0;
    at += index.record_bytes();
  }
  for (auto& delta : index.deltas) {
    delta.offset = at;
    at += padded(delta.bytes);
  }
  std::vector<std::byte> out(index.index_bytes());
  const Header header = header_of(index);
  std::memcpy(out.data(), &header, sizeof header);
  std::byte* to = out.data() + sizeof header;
  const size_t records = index.records.size() * sizeof(RecordEntry);
  std::memcpy(to, index.records.data(), records);
  if (!index.deltas.empty()) std::memcpy(to + records, index.deltas.data(), index.deltas.size() * sizeof(DeltaEntry));
  const uint64_t sum = checksum(out);
  std::memcpy(out.data() + checksum_at, &sum, sizeof sum);
  return out;
}

Status read_exactly(int fd, const std::string& path, uint64_t offset, std::span<std::byte> out) {
  const int why = read_at(fd, out, offset);
  if (why == 0) return Done{};
  return Error{Code::unavailable, text(path, " could not be read at ", offset, ": ",
                                       why == file_ended ? "it ends there" : std::strerror(why), ".")};
}

Result<StoreIndex> read_index(int fd, const std::string& path) {
  const auto refuse = [&](const auto&... why) {
    return Error{Code::refused, text(path, " ", why..., ". Pack the experts again: continuo experts pack.")};
  };
  struct stat status{};
  if (::fstat(fd, &status) != 0)
    return Error{Code::unavailable, text(path, " could not be read: ", std::strerror(errno), ".")};
  const auto bytes = static_cast<uint64_t>(status.st_size);
  Header header{};
  if (bytes < sizeof header) return refuse("has ", bytes, " bytes; a file of experts has a header of ", sizeof header);
  if (auto read = read_exactly(fd, path, 0, std::as_writable_bytes(std::span(&header, 1))); !read) return read.error();
  if (std::string_view(header.magic.data(), header.magic.size()) != store_magic) return refuse("is no file of experts");
  if (header.version != store_version) return refuse("is of version ", header.version, ", expected ", store_version);
  if (header.experts == 0 || header.experts > most_experts || header.deltas > 2 * uint64_t{header.experts})
    return refuse("has ", header.experts, " experts and ", header.deltas, " deltas");
  if (header.index_bytes > bytes) return refuse("has ", bytes, " bytes and an index of ", header.index_bytes);
  StoreIndex index;
  index.records.resize(header.experts);
  index.deltas.resize(static_cast<size_t>(header.deltas));
  if (header.index_bytes != index.index_bytes())
    return refuse("has an index of ", header.index_bytes, " bytes, expected ", index.index_bytes());
  std::vector<std::byte> head(index.index_bytes());
  if (auto read = read_exactly(fd, path, 0, head); !read) return read.error();
  std::memcpy(&header, head.data(), sizeof header);
  const uint64_t told = header.checksum;
  std::memset(head.data() + checksum_at, 0, sizeof told);
  if (const uint64_t found = checksum(head); found != told)
    return refuse("has a damaged header or index (checksum ", found, ", expected ", told, ")");
  const auto coding = coding_of(header.coding);
  if (!coding) return refuse("has experts in coding ", header.coding, ", which is none");
  index.shape = {*coding, header.channels, header.inner, header.group};
  if (auto fits = check_shape(index.shape); !fits) return refuse("has ", fits.error().message);
  index.layer = header.layer;
  index.digest = header.digest;
  const std::byte* from = head.data() + sizeof header;
  std::memcpy(index.records.data(), from, index.records.size() * sizeof(RecordEntry));
  from += index.records.size() * sizeof(RecordEntry);
  if (!index.deltas.empty()) std::memcpy(index.deltas.data(), from, index.deltas.size() * sizeof(DeltaEntry));
  // All else follows from what was read so far: the same index again must be the same bytes.
  for (size_t i = 0; i < index.deltas.size(); ++i) {
    const auto& [a, b, offset, size, sum] = index.deltas[i];
    const bool ordered = i == 0 || std::pair(index.deltas[i - 1].a, index.deltas[i - 1].b) < std::pair(a, b);
    if (a >= b || b >= header.experts || !ordered || size > index.record_bytes())
      return refuse("has a delta of ", size, " bytes between experts ", a, " and ", b);
  }
  if (index.file_bytes() != bytes) return refuse("has ", bytes, " bytes, expected ", index.file_bytes());
  StoreIndex again = index;
  const auto encoded = encode_index(again);
  std::memcpy(head.data() + checksum_at, &told, sizeof told);
  if (encoded != head) return refuse("has lengths or offsets that do not follow from its sizes");
  return index;
}

}  // namespace continuo::experts
