// Makes GGUF files and archives of torch.save in memory, well formed unless a test asks for something else.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace continuo::test {

// Bytes of a file that are appended to, little-endian.
class ImageBytes {
 public:
  template <class T> ImageBytes& number(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) {
      char byte;
      std::memcpy(&byte, reinterpret_cast<const char*>(&value) + i, 1);
      text_ += byte;
    }
    return *this;
  }
  ImageBytes& raw(std::string_view bytes) { return text_ += bytes, *this; }
  // With its length in front, as GGUF has it.
  ImageBytes& text(std::string_view value) { return number<uint64_t>(value.size()).raw(value); }

  const std::string& string() const { return text_; }
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> out(text_.size());
    if (!out.empty()) std::memcpy(out.data(), text_.data(), out.size());
    return out;
  }

 private:
  std::string text_;
};

struct GgufTensor {
  std::string name;
  std::vector<uint64_t> extents;  // row length first
  uint32_t type;
  std::string data;
  int64_t offset = -1;  // −1: behind the one before
};

// `entries`: each whole, key and kind and value.
inline std::vector<std::byte> gguf_image(const std::vector<std::string>& entries,
                                         const std::vector<GgufTensor>& tensors, uint32_t version = 3,
                                         size_t alignment = 32) {
  ImageBytes out;
  out.raw("GGUF").number(version).number<uint64_t>(tensors.size()).number<uint64_t>(entries.size());
  for (const auto& entry : entries) out.raw(entry);
  std::string data;
  for (const auto& tensor : tensors) {
    data.resize((data.size() + alignment - 1) / alignment * alignment);
    out.text(tensor.name).number(static_cast<uint32_t>(tensor.extents.size()));
    for (const uint64_t extent : tensor.extents) out.number(extent);
    out.number(tensor.type)
        .number(tensor.offset < 0 ? static_cast<uint64_t>(data.size()) : static_cast<uint64_t>(tensor.offset));
    data += tensor.data;
  }
  const size_t padding = (alignment - out.string().size() % alignment) % alignment;
  return out.raw(std::string(padding, '\0')).raw(data).bytes();
}

// An entry of the archive. `local_extra`: bytes of the local header's extra field, which the directory does not have.
struct ZipEntry {
  std::string name, data;
  size_t local_extra = 0;
  uint16_t method = 0, flags = 0;
};

// With `wide` sizes and places stand in zip64 fields only.
inline std::vector<std::byte> zip_image(const std::vector<ZipEntry>& entries, bool wide = false) {
  ImageBytes out, directory;
  for (const auto& entry : entries) {
    const uint64_t at = out.string().size();
    const auto narrow = [&](uint64_t n) { return wide ? 0xFFFFFFFFu : static_cast<uint32_t>(n); };
    const auto size = static_cast<uint32_t>(entry.data.size());
    const auto name = static_cast<uint16_t>(entry.name.size());
    out.number<uint32_t>(0x04034B50).number<uint16_t>(0).number(entry.flags).number(entry.method).number<uint32_t>(0);
    out.number<uint32_t>(0).number(size).number(size).number(name).number(static_cast<uint16_t>(entry.local_extra));
    out.raw(entry.name).raw(std::string(entry.local_extra, 'Z')).raw(entry.data);
    directory.number<uint32_t>(0x02014B50).number<uint32_t>(0).number(entry.flags).number(entry.method);
    directory.number<uint32_t>(0).number<uint32_t>(0).number(narrow(size)).number(narrow(size)).number(name);
    directory.number<uint16_t>(wide ? 28 : 0).number<uint16_t>(0).number<uint16_t>(0).number<uint16_t>(0);
    directory.number<uint32_t>(0).number(narrow(at)).raw(entry.name);
    if (wide) {
      directory.number<uint16_t>(1).number<uint16_t>(24).number<uint64_t>(size).number<uint64_t>(size).number(at);
    }
  }
  const uint64_t place = out.string().size(), bytes = directory.string().size(), count = entries.size();
  out.raw(directory.string());
  if (wide) {
    const uint64_t at = out.string().size();
    out.number<uint32_t>(0x06064B50).number<uint64_t>(44).number<uint32_t>(0).number<uint32_t>(0).number<uint32_t>(0);
    out.number(count).number(count).number(bytes).number(place);
    out.number<uint32_t>(0x07064B50).number<uint32_t>(0).number(at).number<uint32_t>(1);
  }
  const auto narrow_count = static_cast<uint16_t>(wide ? 0xFFFF : count);
  out.number<uint32_t>(0x06054B50).number<uint32_t>(0).number(narrow_count).number(narrow_count);
  out.number(wide ? 0xFFFFFFFFu : static_cast<uint32_t>(bytes))
      .number(wide ? 0xFFFFFFFFu : static_cast<uint32_t>(place));
  return out.number<uint16_t>(0).bytes();
}

// The instructions of a pickle.
inline std::string pickle_text(std::string_view value) {
  return "X" + ImageBytes().number(static_cast<uint32_t>(value.size())).raw(value).string();
}
inline std::string pickle_whole(int32_t value) { return "J" + ImageBytes().number(value).string(); }
inline std::string pickle_extents(const std::vector<int32_t>& extents) {
  std::string out = "(";
  for (const int32_t extent : extents) out += pickle_whole(extent);
  return out + "t";
}

struct PickleTensor {
  std::string name, storage_type, key;
  int32_t elements, offset;
  std::vector<int32_t> shape, strides;
};

inline std::string pickle_tensor(const PickleTensor& tensor) {
  return "ctorch._utils\n_rebuild_tensor_v2\n((" + pickle_text("storage") + "ctorch\n" + tensor.storage_type + "\n" +
         pickle_text(tensor.key) + pickle_text("cuda:0") + pickle_whole(tensor.elements) + "tQ" +
         pickle_whole(tensor.offset) + pickle_extents(tensor.shape) + pickle_extents(tensor.strides) +
         "\x89"
         "ccollections\nOrderedDict\n)RtR";
}

inline std::string pickle_of(const std::vector<PickleTensor>& tensors) {
  std::string out = "\x80\x02}(";
  for (const auto& tensor : tensors) out += pickle_text(tensor.name) + pickle_tensor(tensor);
  return out + "u.";
}

}  // namespace continuo::test
