#include "weights/torch_zip.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_map>

#include "base/utf8.h"
#include "weights/pickle.h"

namespace continuo {

namespace {

constexpr const char* torch_zip_advice = " The file is damaged or no file of torch.save: fetch it again.";
constexpr uint32_t local_sign = 0x04034B50, central_sign = 0x02014B50, end_sign = 0x06054B50, end64_sign = 0x06064B50,
                   locator_sign = 0x07064B50;
constexpr size_t local_bytes = 30, central_bytes = 46, end_bytes = 22, end64_bytes = 56, locator_bytes = 20;
constexpr uint64_t max_sharing = 4;  // bytes of all tensors over those of the file

template <class T> T number_at(std::span<const std::byte> bytes, size_t at) {
  T out;
  std::memcpy(&out, bytes.data() + at, sizeof out);
  return out;
}

// The name of an entry in a message, which must be UTF-8. The archive's names may be anything.
std::string shown(const std::string& name) { return is_utf8(name) ? "\"" + name + "\"" : "whose name is not UTF-8"; }

struct Directory {
  uint64_t entries, at, size;
};

class Archive {
 public:
  Archive(std::span<const std::byte> bytes, std::string_view file) : bytes_(bytes), file_(file) {}

  Status open() {
    auto directory = find_directory();
    if (!directory) return directory.error();
    const auto [entries, at, size] = *directory;
    if (at > bytes_.size() || size > bytes_.size() - at || entries > size / central_bytes)
      return bad("has a directory of ", entries, " entries and ", size, " bytes at ", at, " of ", bytes_.size(), ".");
    directory_ = static_cast<size_t>(at);
    size_t place = directory_;
    const size_t end = directory_ + static_cast<size_t>(size);
    for (uint64_t i = 0; i < entries; ++i) {
      if (auto good = read_entry(place, end); !good) return good;
    }
    return Done{};
  }

  // The bytes of an entry. None where there is no such entry.
  Result<std::optional<std::span<const std::byte>>> find(const std::string& name) const {
    const auto found = entries_.find(name);
    if (found == entries_.end()) return std::optional<std::span<const std::byte>>();
    const auto& [at, size, method, flags] = found->second;
    const auto about = [&](const auto&... parts) { return bad("has an entry ", shown(name), " that ", parts...); };
    if (method != 0) return about("is compressed (method ", method, "), expected stored entries.");
    if ((flags & 1) != 0) return about("is encrypted.");
    if (at > directory_ || directory_ - at < local_bytes || number_at<uint32_t>(bytes_, at) != local_sign)
      return about("is not where the directory says.");
    // Name and extra field are those of the local header, whose lengths differ from the directory's.
    const size_t before = local_bytes + number_at<uint16_t>(bytes_, at + 26) + number_at<uint16_t>(bytes_, at + 28);
    if (directory_ - at < before || size > directory_ - at - before) return about("is cut off.");
    if (number_at<uint16_t>(bytes_, at + 26) != name.size() ||
        std::memcmp(bytes_.data() + at + local_bytes, name.data(), name.size()) != 0)
      return about("has another name at its place.");
    return std::optional(bytes_.subspan(at + before, static_cast<size_t>(size)));
  }

  // NAME of the one entry NAME/data.pkl. Empty where there is none, or are several.
  std::string name() const {
    constexpr std::string_view ending = "/data.pkl";
    std::string out;
    for (const auto& [name, entry] : entries_) {
      if (!name.ends_with(ending)) continue;
      if (!out.empty()) return {};
      out = name.substr(0, name.size() - ending.size());
    }
    return out;
  }

 private:
  struct Entry {
    uint64_t at, size;
    uint16_t method, flags;
  };

  template <class... Parts> Error bad(const Parts&... parts) const {
    return invalid(file_, " ", parts..., torch_zip_advice);
  }

  Result<Directory> find_directory() const {
    constexpr size_t max_comment = 0xFFFF;
    if (bytes_.size() < end_bytes) return bad("has ", bytes_.size(), " bytes, fewer than the smallest archive.");
    const size_t last = bytes_.size() - end_bytes, first = last - std::min(last, max_comment);
    size_t at = last;
    while (number_at<uint32_t>(bytes_, at) != end_sign ||
           bytes_.size() - at - end_bytes != number_at<uint16_t>(bytes_, at + 20)) {
      if (at == first) return bad("has no directory at its end: it is cut off.");
      --at;
    }
    Directory out{number_at<uint16_t>(bytes_, at + 10), number_at<uint32_t>(bytes_, at + 16),
                  number_at<uint32_t>(bytes_, at + 12)};
    if (out.entries != 0xFFFF && out.at != 0xFFFFFFFF && out.size != 0xFFFFFFFF) return out;
    if (at < locator_bytes || number_at<uint32_t>(bytes_, at - locator_bytes) != locator_sign) return out;
    const auto wide = number_at<uint64_t>(bytes_, at - locator_bytes + 8);
    if (wide > at || at - wide < end64_bytes || number_at<uint32_t>(bytes_, static_cast<size_t>(wide)) != end64_sign)
      return bad("has a directory (zip64) that is not where the file says.");
    const auto from = static_cast<size_t>(wide);
    return Directory{number_at<uint64_t>(bytes_, from + 32), number_at<uint64_t>(bytes_, from + 48),
                     number_at<uint64_t>(bytes_, from + 40)};
  }

  Status read_entry(size_t& place, size_t end) {
    if (end - place < central_bytes || number_at<uint32_t>(bytes_, place) != central_sign)
      return bad("has a damaged directory at byte ", place, ".");
    Entry entry{number_at<uint32_t>(bytes_, place + 42), number_at<uint32_t>(bytes_, place + 24),
                number_at<uint16_t>(bytes_, place + 10), number_at<uint16_t>(bytes_, place + 8)};
    uint64_t compressed = number_at<uint32_t>(bytes_, place + 20);
    const size_t name_bytes = number_at<uint16_t>(bytes_, place + 28), extra = number_at<uint16_t>(bytes_, place + 30),
                 comment = number_at<uint16_t>(bytes_, place + 32);
    if (end - place - central_bytes < name_bytes + extra + comment)
      return bad("has a damaged directory at byte ", place, ".");
    const std::string name(reinterpret_cast<const char*>(bytes_.data()) + place + central_bytes, name_bytes);
    place += central_bytes + name_bytes;
    for (size_t left = extra, at = place; left >= 4;) {
      const size_t size = number_at<uint16_t>(bytes_, at + 2);
      if (size > left - 4) break;
      if (number_at<uint16_t>(bytes_, at) == 1) {  // zip64: the numbers that did not fit, in this order
        size_t from = at + 4, room = size;
        for (uint64_t* number : {&entry.size, &compressed, &entry.at}) {
          if (*number != 0xFFFFFFFF || room < 8) continue;
          *number = number_at<uint64_t>(bytes_, from);
          from += 8;
          room -= 8;
        }
      }
      at += 4 + size;
      left -= 4 + size;
    }
    place += extra + comment;
    if (entry.method == 0 && compressed != entry.size)
      return bad("has an entry ", shown(name), " of ", compressed, " and ", entry.size, " bytes at once.");
    if (!entries_.emplace(name, entry).second) return bad("has the entry ", shown(name), " twice.");
    return Done{};
  }

  std::span<const std::byte> bytes_;
  std::string_view file_;
  size_t directory_ = 0;
  std::unordered_map<std::string, Entry> entries_;
};

}  // namespace

Result<std::vector<Tensor>> read_torch_zip(std::span<const std::byte> bytes, std::string_view file) {
  const auto bad = [&](const auto&... parts) { return invalid(file, " ", parts..., torch_zip_advice); };
  Archive archive(bytes, file);
  if (auto good = archive.open(); !good) return good.error();
  const std::string name = archive.name();
  if (name.empty()) return bad("has no entry, or more than one, that ends in /data.pkl.");
  auto order = archive.find(name + "/byteorder");
  if (!order) return order.error();
  constexpr std::string_view little = "little";
  if (*order && ((*order)->size() != little.size() || std::memcmp((*order)->data(), little.data(), little.size()) != 0))
    return invalid(file,
                   " was written by a big-endian machine, expected little-endian numbers. Save it again on another.");
  auto pickle = archive.find(name + "/data.pkl");
  if (!pickle) return pickle.error();
  auto found = read_pickle(**pickle, file);
  if (!found) return found.error();
  std::vector<Tensor> out;
  uint64_t total = 0;
  for (auto& tensor : *found) {
    auto storage = archive.find(name + "/data/" + tensor.storage);
    if (!storage) return storage.error();
    if (!*storage)
      return bad("has no entry ", shown(name + "/data/" + tensor.storage), " for tensor \"", tensor.name, "\".");
    const auto data = **storage;
    if (tensor.storage_elements > data.size() / tensor.number_bytes)
      return bad("has the tensor \"", tensor.name, "\" in a storage of ", tensor.storage_elements, " numbers, but \"",
                 tensor.storage, "\" has ", data.size(), " bytes.");
    // Both lie inside the storage, so the products do not overflow.
    const size_t begin = static_cast<size_t>(tensor.offset) * tensor.number_bytes;
    const size_t size = static_cast<size_t>(*elements_of(tensor.shape)) * tensor.number_bytes;
    total += size;
    if (total > max_sharing * bytes.size())
      return bad("has tensors that share so much that together they have more than ", max_sharing, " times its ",
                 bytes.size(), " bytes.");
    out.push_back({std::move(tensor.name), tensor.dtype, std::move(tensor.shape),
                   static_cast<uint64_t>(data.data() - bytes.data()) + begin, data.subspan(begin, size)});
  }
  std::stable_sort(out.begin(), out.end(), [](const Tensor& a, const Tensor& b) { return a.offset < b.offset; });
  return out;
}

bool is_old_torch(std::span<const std::byte> bytes) {
  // A pickle (protocol 2) of the number 0x1950a86a20f9469cfc6c.
  constexpr unsigned char begins[] = {0x80, 0x02, 0x8A, 0x0A, 0x6C, 0xFC, 0x9C,
                                      0x46, 0xF9, 0x20, 0x6A, 0xA8, 0x50, 0x19};
  return bytes.size() >= sizeof begins && std::memcmp(bytes.data(), begins, sizeof begins) == 0;
}

}  // namespace continuo
