// Reads a GGUF file (version 3, and 2, which has the same form; github.com/ggml-org/ggml, docs/gguf.md) and trusts
// nothing in it. Byte layout (all little-endian):
//   "GGUF", u32 version, u64 tensors, u64 entries
//   entries           u64 length and bytes of the key, u32 kind, value
//   tensors           u64 length and bytes of the name, u32 axes, u64 extents (row length first), u32 type (blocks.h),
//                     u64 offset into the data
//   padding           to a multiple of general.alignment (u32, default 32)
//   data              each tensor at a multiple of the alignment
// A string is a u64 length and UTF-8. An array is u32 kind, u64 count, values; arrays may nest.
// Refused: counts, lengths and offsets past the end, keys and names given twice, tensors that overlap, block formats
// that blocks.h does not have, version 1 and files of big-endian machines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weights/tensor.h"

namespace continuo {

enum class GgufKind : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

// A value of the metadata, still in its bytes: whoever wants the value walks them (visit_gguf).
struct GgufEntry {
  std::string key;
  GgufKind kind;
  std::span<const std::byte> value;  // points into the mapped file; checked to its end
};

struct GgufFile {
  std::vector<GgufEntry> entries;  // in order of the file
  std::vector<Tensor> tensors;     // in order of their data; shapes with rows before columns
};

// Arrays inside arrays; elements of all arrays of a file together.
constexpr int max_gguf_nesting = 4;
constexpr uint64_t max_gguf_elements = uint64_t{1} << 22;

// `bytes`, the content of the file, must outlive the result; `file` is its name, for messages.
Result<GgufFile> read_gguf(std::span<const std::byte> bytes, std::string_view file);

// A little-endian number at `at`, at any alignment.
template <class T> T gguf_number(const std::byte* at) {
  T out;
  std::memcpy(&out, at, sizeof out);
  return out;
}

// Calls `use` with a checked value: real(double), whole(int64_t), large(uint64_t) for u64, boolean(bool),
// string(string_view); begin(count) before the elements of an array and end() behind them. Returns the bytes that the
// value takes.
template <class Use> size_t visit_gguf(GgufKind kind, const std::byte* at, Use& use) {
  switch (kind) {
    case GgufKind::u8: return use.whole(gguf_number<uint8_t>(at)), 1;
    case GgufKind::i8: return use.whole(gguf_number<int8_t>(at)), 1;
    case GgufKind::u16: return use.whole(gguf_number<uint16_t>(at)), 2;
    case GgufKind::i16: return use.whole(gguf_number<int16_t>(at)), 2;
    case GgufKind::u32: return use.whole(gguf_number<uint32_t>(at)), 4;
    case GgufKind::i32: return use.whole(gguf_number<int32_t>(at)), 4;
    case GgufKind::f32: return use.real(static_cast<double>(gguf_number<float>(at))), 4;
    case GgufKind::boolean: return use.boolean(gguf_number<uint8_t>(at) != 0), 1;
    case GgufKind::u64: return use.large(gguf_number<uint64_t>(at)), 8;
    case GgufKind::i64: return use.whole(gguf_number<int64_t>(at)), 8;
    case GgufKind::f64: return use.real(gguf_number<double>(at)), 8;
    case GgufKind::string: {
      const auto length = static_cast<size_t>(gguf_number<uint64_t>(at));
      use.string(std::string_view(reinterpret_cast<const char*>(at) + 8, length));
      return 8 + length;
    }
    case GgufKind::array: {
      const auto inner = static_cast<GgufKind>(gguf_number<uint32_t>(at));
      const auto count = gguf_number<uint64_t>(at + 4);
      size_t size = 12;
      use.begin(count);
      for (uint64_t i = 0; i < count; ++i) size += visit_gguf(inner, at + size, use);
      use.end();
      return size;
    }
  }
  return 0;
}

}  // namespace continuo
