#include "weights/gguf.h"

#include <algorithm>
#include <unordered_set>

#include "base/utf8.h"
#include "weights/blocks.h"

namespace continuo {

namespace {

constexpr const char* gguf_advice = " The file is damaged or not GGUF: fetch it again.";
constexpr uint32_t default_alignment = 32, max_alignment = 1 << 20;
constexpr uint64_t max_key = 65535;
constexpr uint32_t kinds = 13;
// The least that a tensor and an entry take: a name or key of one byte.
constexpr size_t least_tensor = 8 + 1 + 4 + 8 + 4 + 8, least_entry = 8 + 1 + 4 + 1;

constexpr const char* kind_names[kinds] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                           "bool", "string", "array", "u64", "i64", "f64"};
// Bytes of a number; for a string and an array the least that they take.
constexpr size_t kind_bytes[kinds] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, std::string_view file) : bytes_(bytes), file_(file) {}

  Result<GgufFile> read() {
    if (left() < 24) return bad("has ", bytes_.size(), " bytes, expected at least 24.");
    const auto version = gguf_number<uint32_t>(bytes_.data() + 4);
    if (version != 3 && version != 2) return refuse(version);
    at_ = 8;
    const auto tensors = number<uint64_t>(), entries = number<uint64_t>();
    if (entries > left() / least_entry || tensors > left() / least_tensor) {
      return bad("announces ", tensors, " tensors and ", entries, " entries, but only ", left(), " bytes follow.");
    }
    for (uint64_t i = 0; i < entries; ++i) {
      if (auto good = read_entry(); !good) return good.error();
    }
    for (uint64_t i = 0; i < tensors; ++i) {
      if (auto good = read_tensor(); !good) return good.error();
    }
    if (auto good = place_tensors(); !good) return good.error();
    return std::move(out_);
  }

 private:
  template <class... Parts> Error bad(const Parts&... parts) const {
    return invalid(file_, " ", parts..., gguf_advice);
  }

  Error refuse(uint32_t version) const {
    if (version == 1) {
      return invalid(file_, " is GGUF version 1, expected 3 or 2. Convert the model again with a converter of today.");
    }
    if (version != 0 && (version & 0xFFFF) == 0) {
      return invalid(file_,
                     " is a GGUF file of a big-endian machine (byte-swapped), expected little-endian numbers. Convert "
                     "the model again without that option.");
    }
    return invalid(file_, " is GGUF version ", version,
                   ", expected 3 or 2. This version of Continuo is older than it.");
  }

  size_t left() const { return bytes_.size() - at_; }

  template <class T> T number() {
    const T out = gguf_number<T>(bytes_.data() + at_);
    at_ += sizeof(T);
    return out;
  }

  // A string of 1 … `most` bytes that names something.
  Result<std::string> read_name(const char* what, uint64_t most) {
    if (left() < 8) return bad("ends inside ", what, ".");
    const auto length = number<uint64_t>();
    if (length == 0 || length > most || length > left())
      return bad("has ", what, " of ", length, " bytes, expected 1 to ", most, " and no more than the file has.");
    std::string name(reinterpret_cast<const char*>(bytes_.data()) + at_, static_cast<size_t>(length));
    if (!is_utf8(name)) return bad("has ", what, " that is not UTF-8.");
    at_ += static_cast<size_t>(length);
    return name;
  }

  Status read_entry() {
    auto key = read_name("a key", max_key);
    if (!key) return key.error();
    if (!keys_.insert(*key).second) return bad("has the key \"", *key, "\" twice.");
    if (left() < 4) return bad("ends inside the entry \"", *key, "\".");
    const auto kind = number<uint32_t>();
    const size_t begin = at_;
    if (auto good = skip_value(*key, kind, 0); !good) return good;
    const GgufEntry entry{*key, static_cast<GgufKind>(kind), bytes_.subspan(begin, at_ - begin)};
    if (entry.key == "general.alignment") {
      if (entry.kind != GgufKind::u32) return bad("has a general.alignment that is no u32.");
      alignment_ = gguf_number<uint32_t>(entry.value.data());
      if (alignment_ == 0 || alignment_ > max_alignment || (alignment_ & (alignment_ - 1)) != 0)
        return bad("has the alignment ", alignment_, ", expected a power of two up to ", max_alignment, ".");
    }
    out_.entries.push_back(entry);
    return Done{};
  }

  // Checks a value to its end.
  Status skip_value(const std::string& key, uint32_t kind, int depth) {
    if (kind >= kinds) return bad("has a value of the unknown kind ", kind, " under \"", key, "\".");
    if (left() < kind_bytes[kind]) return bad("ends inside the value of \"", key, "\".");
    if (kind == static_cast<uint32_t>(GgufKind::string)) {
      const auto length = number<uint64_t>();
      if (length > left())
        return bad("has a string of ", length, " bytes under \"", key, "\", but only ", left(), " follow.");
      if (!is_utf8({reinterpret_cast<const char*>(bytes_.data()) + at_, static_cast<size_t>(length)}))
        return bad("has a string that is not UTF-8 under \"", key, "\".");
      at_ += static_cast<size_t>(length);
      return Done{};
    }
    if (kind != static_cast<uint32_t>(GgufKind::array)) {
      at_ += kind_bytes[kind];
      return Done{};
    }
    if (depth == max_gguf_nesting) return bad("nests arrays deeper than ", max_gguf_nesting, " under \"", key, "\".");
    const auto inner = number<uint32_t>();
    const auto count = number<uint64_t>();
    if (inner >= kinds) return bad("has an array of the unknown kind ", inner, " under \"", key, "\".");
    if (count > left() / kind_bytes[inner])
      return bad("has an array of ", count, " ", kind_names[inner], " under \"", key, "\", but only ", left(),
                 " bytes follow.");
    elements_ += count;
    if (elements_ > max_gguf_elements)
      return bad("has more than ", max_gguf_elements, " elements in the arrays of its metadata.");
    if (inner != static_cast<uint32_t>(GgufKind::string) && inner != static_cast<uint32_t>(GgufKind::array)) {
      at_ += static_cast<size_t>(count) * kind_bytes[inner];
      return Done{};
    }
    for (uint64_t i = 0; i < count; ++i) {
      if (auto good = skip_value(key, inner, depth + 1); !good) return good;
    }
    return Done{};
  }

  Status read_tensor() {
    auto name = read_name("a tensor name", max_tensor_name);
    if (!name) return name.error();
    if (!names_.insert(*name).second) return bad("has the tensor \"", *name, "\" twice.");
    const auto about = [&](const auto&... parts) { return bad("has the tensor \"", *name, "\", which ", parts...); };
    if (left() < 4) return about("is cut off.");
    const auto axes = number<uint32_t>();
    if (axes > max_tensor_axes) return about("has ", axes, " axes, expected at most ", max_tensor_axes, ".");
    if (left() < axes * 8 + 12) return about("is cut off.");
    Tensor tensor{*name, {}, {}, 0, {}};
    for (uint32_t i = 0; i < axes; ++i) tensor.shape.push_back(number<uint64_t>());
    const uint64_t row = tensor.shape.empty() ? 1 : tensor.shape.front();
    std::reverse(tensor.shape.begin(), tensor.shape.end());
    const auto type = number<uint32_t>();
    tensor.offset = number<uint64_t>();
    const auto* format = block_format(type);
    if (!format) {
      const auto known = ggml_type_name(type);
      return invalid(file_, ": tensor \"", *name, "\" is stored as ", known.empty() ? "the type " : "", known,
                     known.empty() ? std::to_string(type) : "",
                     ", expected F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K, TQ1_0, TQ2_0 or "
                     "MXFP4. Take the file of this model in one of these.");
    }
    tensor.dtype = format->name;
    const auto elements = elements_of(tensor.shape);
    if (!elements || *elements > SIZE_MAX / format->bytes) return about("has a shape too large for 64 bits.");
    if (row % format->values != 0)
      return about("has rows of ", row, " numbers, expected a multiple of ", format->values, " for ", format->name,
                   ".");
    sizes_.push_back(static_cast<size_t>(*elements) / format->values * format->bytes);
    out_.tensors.push_back(std::move(tensor));
    return Done{};
  }

  // Checks where the data lie, and puts the tensors in order of them.
  Status place_tensors() {
    const size_t start = (at_ + alignment_ - 1) / alignment_ * alignment_;
    const size_t room = bytes_.size() < start ? 0 : bytes_.size() - start;
    for (size_t i = 0; i < out_.tensors.size(); ++i) {
      auto& tensor = out_.tensors[i];
      if (tensor.offset % alignment_ != 0)
        return bad("has the tensor \"", tensor.name, "\" at ", tensor.offset, " of its data, expected a multiple of ",
                   alignment_, ".");
      if (tensor.offset > room || sizes_[i] > room - tensor.offset)
        return bad("has the tensor \"", tensor.name, "\" of ", sizes_[i], " bytes at ", tensor.offset, " of its ", room,
                   " bytes of data.");
      // An empty tensor at the end may stand where the file has no padding.
      tensor.data = sizes_[i] == 0 ? std::span<const std::byte>{} : bytes_.subspan(start + tensor.offset, sizes_[i]);
      tensor.offset += start;
    }
    std::sort(out_.tensors.begin(), out_.tensors.end(), [](const Tensor& a, const Tensor& b) {
      return a.offset != b.offset ? a.offset < b.offset : a.data.size() < b.data.size();
    });
    uint64_t end = 0;
    for (const auto& tensor : out_.tensors) {
      if (tensor.offset < end) return bad("has the tensor \"", tensor.name, "\" where another one lies.");
      end = std::max(end, tensor.offset + tensor.data.size());
    }
    return Done{};
  }

  std::span<const std::byte> bytes_;
  std::string_view file_;
  size_t at_ = 0;
  uint64_t elements_ = 0;
  uint32_t alignment_ = default_alignment;
  std::unordered_set<std::string> keys_, names_;
  std::vector<size_t> sizes_;  // [tensors], bytes
  GgufFile out_;
};

}  // namespace

Result<GgufFile> read_gguf(std::span<const std::byte> bytes, std::string_view file) {
  return Reader(bytes, file).read();
}

}  // namespace continuo
