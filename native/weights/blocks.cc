#include "weights/blocks.h"

#include <array>
#include <cmath>
#include <cstring>

#include "base/dtype.h"

namespace continuo {

namespace {

int byte_at(const std::byte* bytes, size_t i) { return std::to_integer<int>(bytes[i]); }
int signed_at(const std::byte* bytes, size_t i) { return static_cast<int8_t>(byte_at(bytes, i)); }
int nibble(int byte, bool high) { return high ? byte >> 4 : byte & 15; }
float product(float scale, int code) { return scale * static_cast<float>(code); }

float half_of(const std::byte* bytes) {
  uint16_t bits;
  std::memcpy(&bits, bytes, 2);
  return widen_f16(bits);
}

// Element i of 16 bytes that hold 32 nibbles: the low ones first.
int split_nibble(const std::byte* bytes, size_t i) { return nibble(byte_at(bytes, i % 16), i >= 16); }
int fifth_bit(const std::byte* bits, size_t i) { return (byte_at(bits, i / 8) >> (i % 8) & 1) << 4; }

// d times the codes of a block.
template <size_t Values, void (*Codes)(const std::byte*, int8_t*), size_t ScaleAt>
void widen_codes(const std::byte* block, float* out) {
  int8_t codes[Values];
  Codes(block, codes);
  const float d = half_of(block + ScaleAt);
  for (size_t i = 0; i < Values; ++i) out[i] = product(d, codes[i]);
}

void codes_q4_0(const std::byte* block, int8_t* out) {
  for (size_t i = 0; i < 32; ++i) out[i] = static_cast<int8_t>(split_nibble(block + 2, i) - 8);
}

void widen_q4_1(const std::byte* block, float* out) {
  const float d = half_of(block), m = half_of(block + 2);
  for (size_t i = 0; i < 32; ++i) out[i] = product(d, split_nibble(block + 4, i)) + m;
}

void codes_q5_0(const std::byte* block, int8_t* out) {
  for (size_t i = 0; i < 32; ++i)
    out[i] = static_cast<int8_t>(split_nibble(block + 6, i) + fifth_bit(block + 2, i) - 16);
}

void widen_q5_1(const std::byte* block, float* out) {
  const float d = half_of(block), m = half_of(block + 2);
  for (size_t i = 0; i < 32; ++i) out[i] = product(d, split_nibble(block + 8, i) + fifth_bit(block + 4, i)) + m;
}

void codes_q8_0(const std::byte* block, int8_t* out) {
  for (size_t i = 0; i < 32; ++i) out[i] = static_cast<int8_t>(signed_at(block + 2, i));
}

void codes_q4_k(const std::byte* block, int8_t* out) {
  for (size_t i = 0; i < 256; ++i)
    out[i] = static_cast<int8_t>(nibble(byte_at(block, 16 + 32 * (i / 64) + i % 32), i / 32 % 2 == 1));
}

void codes_q5_k(const std::byte* block, int8_t* out) {
  for (size_t i = 0; i < 256; ++i) {
    const int low = nibble(byte_at(block, 48 + 32 * (i / 64) + i % 32), i / 32 % 2 == 1);
    out[i] = static_cast<int8_t>(low + ((byte_at(block, 16 + i % 32) >> i / 32 & 1) << 4));
  }
}

template <void (*Codes)(const std::byte*, int8_t*)> void widen_k(const std::byte* block, float* out) {
  int8_t codes[256];
  Codes(block, codes);
  const float d = half_of(block), dmin = half_of(block + 2);
  for (size_t j = 0; j < 8; ++j) {
    const auto [sc, mn] = scale_min(block + 4, j);
    const float scale = product(d, sc), minimum = product(dmin, mn);
    for (size_t i = 32 * j; i < 32 * (j + 1); ++i) out[i] = product(scale, codes[i]) - minimum;
  }
}

void codes_q6_k(const std::byte* block, int8_t* out) {
  for (size_t i = 0; i < 256; ++i) {
    const size_t h = i / 128, r = i % 128 / 32, c = i % 32;
    const int low = nibble(byte_at(block, 64 * h + 32 * (r % 2) + c), r >= 2);
    out[i] = static_cast<int8_t>(low + ((byte_at(block, 128 + 32 * h + c) >> 2 * r & 3) << 4) - 32);
  }
}

void widen_q6_k(const std::byte* block, float* out) {
  int8_t codes[256];
  codes_q6_k(block, codes);
  const float d = half_of(block + 208);
  for (size_t i = 0; i < 256; ++i) out[i] = product(product(d, signed_at(block, 192 + i / 16)), codes[i]);
}

// Digit n of a byte that holds a fraction in base three, scaled to 256.
int trit(int byte, size_t n) {
  constexpr int powers[5] = {1, 3, 9, 27, 81};
  return (byte * powers[n] & 255) * 3 >> 8;
}

void codes_tq1_0(const std::byte* block, int8_t* out) {
  // Three stretches: first element, first byte, bytes.
  constexpr size_t stretches[3][3] = {{0, 0, 32}, {160, 32, 16}, {240, 48, 4}};
  for (size_t i = 0; i < 256; ++i) {
    const auto& [first, byte, width] = stretches[i < 160 ? 0 : i < 240 ? 1 : 2];
    out[i] = static_cast<int8_t>(trit(byte_at(block, byte + (i - first) % width), (i - first) / width) - 1);
  }
}

void codes_tq2_0(const std::byte* block, int8_t* out) {
  for (size_t i = 0; i < 256; ++i)
    out[i] = static_cast<int8_t>((byte_at(block, i / 128 * 32 + i % 32) >> i % 128 / 32 * 2 & 3) - 1);
}

void widen_mxfp4(const std::byte* block, float* out) {
  constexpr float values[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const int exponent = byte_at(block, 0) - 127;
  for (size_t i = 0; i < 32; ++i) {
    const int code = split_nibble(block + 1, i);
    const float magnitude = std::ldexp(values[code & 7], exponent);
    out[i] = code >= 8 ? -magnitude : magnitude;
  }
}

constexpr std::array<BlockFormat, 15> formats{{{"F32", 0, 1, 4, nullptr, nullptr},
                                               {"F16", 1, 1, 2, nullptr, nullptr},
                                               {"BF16", 30, 1, 2, nullptr, nullptr},
                                               {"F64", 28, 1, 8, nullptr, nullptr},
                                               {"Q4_0", 2, 32, 18, widen_codes<32, codes_q4_0, 0>, codes_q4_0},
                                               {"Q4_1", 3, 32, 20, widen_q4_1, nullptr},
                                               {"Q5_0", 6, 32, 22, widen_codes<32, codes_q5_0, 0>, codes_q5_0},
                                               {"Q5_1", 7, 32, 24, widen_q5_1, nullptr},
                                               {"Q8_0", 8, 32, 34, widen_codes<32, codes_q8_0, 0>, codes_q8_0},
                                               {"Q4_K", 12, 256, 144, widen_k<codes_q4_k>, codes_q4_k},
                                               {"Q5_K", 13, 256, 176, widen_k<codes_q5_k>, codes_q5_k},
                                               {"Q6_K", 14, 256, 210, widen_q6_k, codes_q6_k},
                                               {"TQ1_0", 34, 256, 54, widen_codes<256, codes_tq1_0, 52>, codes_tq1_0},
                                               {"TQ2_0", 35, 256, 66, widen_codes<256, codes_tq2_0, 64>, codes_tq2_0},
                                               {"MXFP4", 39, 32, 17, widen_mxfp4, nullptr}}};

struct Named {
  uint32_t number;
  std::string_view name;
};
constexpr std::array<Named, 20> others{
    {{4, "Q4_2"},    {5, "Q4_3"},     {9, "Q8_1"},   {10, "Q2_K"},   {11, "Q3_K"},  {15, "Q8_K"},  {16, "IQ2_XXS"},
     {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"}, {23, "IQ4_XS"},
     {24, "I8"},     {25, "I16"},     {26, "I32"},   {27, "I64"},    {29, "IQ1_M"}, {40, "NVFP4"}}};

}  // namespace

ScaleMin scale_min(const std::byte* s, size_t j) {
  if (j < 4) return {byte_at(s, j) & 63, byte_at(s, 4 + j) & 63};
  const int low = byte_at(s, 4 + j);
  return {(low & 15) | byte_at(s, j - 4) >> 6 << 4, low >> 4 | byte_at(s, j) >> 6 << 4};
}

const BlockFormat* block_format(std::string_view name) {
  for (const auto& format : formats) {
    if (format.name == name) return &format;
  }
  return nullptr;
}

const BlockFormat* block_format(uint32_t number) {
  for (const auto& format : formats) {
    if (format.number == number) return &format;
  }
  return nullptr;
}

std::string_view ggml_type_name(uint32_t number) {
  if (const auto* format = block_format(number)) return format->name;
  for (const auto& other : others) {
    if (other.number == number) return other.name;
  }
  return {};
}

}  // namespace continuo
