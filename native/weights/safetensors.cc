#include "weights/safetensors.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/json.h"

namespace continuo {

namespace {

// Room for about 200,000 tensors, which take some 120 bytes of header each. A parsed header takes some dozens of times
// its size in memory, so the limit bounds that as well.
constexpr uint64_t max_header = 25'000'000;
constexpr const char* safetensors_advice = " The file is damaged or not safetensors: fetch it again.";

struct KnownDtype {
  std::string_view name;
  uint64_t bytes;
};
constexpr std::array<KnownDtype, 15> known_dtypes{{{"F64", 8},
                                                   {"F32", 4},
                                                   {"F16", 2},
                                                   {"BF16", 2},
                                                   {"I64", 8},
                                                   {"I32", 4},
                                                   {"I16", 2},
                                                   {"I8", 1},
                                                   {"U64", 8},
                                                   {"U32", 4},
                                                   {"U16", 2},
                                                   {"U8", 1},
                                                   {"BOOL", 1},
                                                   {"F8_E4M3", 1},
                                                   {"F8_E5M2", 1}}};

bool multiply(uint64_t a, uint64_t b, uint64_t& out) { return !__builtin_mul_overflow(a, b, &out); }

Result<Tensor> read_entry(std::string_view file, const std::string& name, const json::Value& entry, uint64_t data_start,
                          std::span<const std::byte> data) {
  const auto bad = [&](const auto&... parts) {
    return invalid(file, ": tensor \"", name, "\" ", parts..., safetensors_advice);
  };
  if (!entry.is_object())
    return bad("is described by ", json::name_of(entry.kind),
               ", expected an object with dtype, shape and data_offsets.");
  const auto* dtype = entry.find("dtype");
  const auto* shape = entry.find("shape");
  const auto* offsets = entry.find("data_offsets");
  if (!dtype || !dtype->is_string()) return bad("has no dtype.");
  if (!shape || !shape->is_array()) return bad("has no shape.");
  if (!offsets || !offsets->is_array() || offsets->items.size() != 2) return bad("has no data_offsets [begin, end].");
  const auto known =
      std::find_if(known_dtypes.begin(), known_dtypes.end(), [&](const auto& k) { return k.name == dtype->text; });
  if (known == known_dtypes.end()) return bad("has the unknown dtype \"", dtype->text.substr(0, 40), "\".");

  Tensor tensor{name, dtype->text, {}, 0, {}};
  if (shape->items.size() > max_tensor_axes)
    return bad("has ", shape->items.size(), " dimensions, expected at most ", max_tensor_axes, ".");
  uint64_t bytes = known->bytes;
  for (const auto& item : shape->items) {
    const auto extent = item.as_u64();
    if (!extent) return bad("has a shape that is not a list of whole numbers.");
    if (!multiply(bytes, *extent, bytes)) return bad("has a shape too large for 64 bits.");
    tensor.shape.push_back(*extent);
  }
  const auto begin = offsets->items[0].as_u64();
  const auto end = offsets->items[1].as_u64();
  if (!begin || !end || *begin > *end || *end > data.size()) {
    return bad("claims bytes ", offsets->items[0].text.substr(0, 24), "…", offsets->items[1].text.substr(0, 24), " of ",
               data.size(), ".");
  }
  if (*end - *begin != bytes) {
    return bad("has ", *end - *begin, " bytes, expected ", bytes, " for ", tensor.dtype, " ", shape_text(tensor.shape),
               ".");
  }
  tensor.offset = data_start + *begin;
  tensor.data = data.subspan(*begin, bytes);
  return tensor;
}

}  // namespace

Result<std::vector<Tensor>> read_safetensors(std::span<const std::byte> bytes, std::string_view file) {
  if (bytes.size() < 8) return invalid(file, " has ", bytes.size(), " bytes, expected at least 8.", safetensors_advice);
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | std::to_integer<uint64_t>(bytes[static_cast<size_t>(i)]);
  if (length > max_header || length > bytes.size() - 8) {
    return invalid(file, " announces a header of ", length, " bytes but ", bytes.size() - 8, " follow (limit ",
                   max_header, ").", safetensors_advice);
  }
  const auto data = bytes.subspan(8 + length);
  auto header = json::parse({reinterpret_cast<const char*>(bytes.data()) + 8, length});
  if (!header) return invalid(file, " has a broken header: ", header.error().message, safetensors_advice);
  if (!header->is_object())
    return invalid(file, " has ", json::name_of(header->kind), " for a header, expected an object.",
                   safetensors_advice);

  std::vector<Tensor> tensors;
  for (const auto& [name, entry] : header->members) {
    if (name == "__metadata__") continue;
    if (name.empty() || name.size() > max_tensor_name)
      return invalid(file, " has a tensor name of ", name.size(), " bytes, expected 1 to ", max_tensor_name, ".",
                     safetensors_advice);
    auto tensor = read_entry(file, name, entry, 8 + length, data);
    if (!tensor) return tensor.error();
    tensors.push_back(std::move(*tensor));
  }
  // An empty tensor may have the offset of its neighbour, so the size breaks ties.
  std::sort(tensors.begin(), tensors.end(), [](const Tensor& a, const Tensor& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.data.size() < b.data.size();
  });
  uint64_t expected = 8 + length;
  for (const auto& tensor : tensors) {
    if (tensor.offset != expected) {
      return invalid(file, ": the data of tensor \"", tensor.name, "\" begins at byte ", tensor.offset, ", expected ",
                     expected, ": tensors overlap or leave a gap.", safetensors_advice);
    }
    expected += tensor.data.size();
  }
  if (expected != bytes.size())
    return invalid(file, " is ", bytes.size(), " bytes long, expected ", expected, " by its header.",
                   safetensors_advice);
  return tensors;
}

}  // namespace continuo
