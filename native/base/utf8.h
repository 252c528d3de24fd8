// UTF-8 (RFC 3629) from outside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace continuo {

// Bytes of the sequence that begins at `at`; 0 for an overlong form, a surrogate, a code point past U+10FFFF, or any
// other byte that begins no sequence.
constexpr size_t utf8_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return at + i < text.size() ? static_cast<uint8_t>(text[at + i]) : uint8_t{0}; };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return at < text.size() ? 1 : 0;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const uint8_t second = byte(1);
  const bool bad = (lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
                   (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F);
  return bad ? 0 : length;
}

constexpr bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text, at);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

}  // namespace continuo
