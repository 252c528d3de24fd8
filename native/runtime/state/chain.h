// The chain: a 128-bit running fingerprint of a session's computation. Every pulse is folded into it.
//
//   start      a = 0x243F6A8885A308D3, b = 0x13198A2E03707344           (π's fraction)
//   fold(w)    a = rotl((a xor w) · 0x9E3779B97F4A7C15, 29)
//              b = rotl((b + a) · 0xC2B2AE3D27D4EB4F, 31) xor w          (all modulo 2⁶⁴)
//   pulse      fold(1), fold(token id), then the hidden vector's f32 bits two by two, the first in the low half,
//              an odd last one alone
//   reset      fold(2)
//   archive    fold(3), fold(block); inject: fold(4), fold(number of blocks), fold(each). After the pulse of the token
//              behind which it happened (memory_controller.h)
//   adapt      fold(5), fold(evaluations used), fold(bits of the loss at the end, an f64)
//   text       a then b, sixteen lower-case hex digits each
//
// Both multipliers are odd, so each fold is a bijection of (a, b) for a given w: no later fold can cancel a difference.
// The chains of two sessions agree only if every token and every bit of every hidden vector agreed (but for a chance of
// 2⁻¹²⁸). The chain guards against mistakes, not against an adversary.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace continuo {

class Chain {
 public:
  void pulse(int32_t token, std::span<const float> hidden) {
    fold(1);
    fold(static_cast<uint32_t>(token));
    size_t i = 0;
    for (; i + 2 <= hidden.size(); i += 2) fold(bits(hidden[i]) | bits(hidden[i + 1]) << 32);
    if (i < hidden.size()) fold(bits(hidden[i]));
  }

  void reset() { fold(2); }
  void archived(uint64_t block) {
    fold(3);
    fold(block);
  }
  void injected(std::span<const int32_t> blocks) {
    fold(4);
    fold(blocks.size());
    for (const int32_t block : blocks) fold(static_cast<uint32_t>(block));
  }

  void adapted(uint64_t evaluations, double loss) {
    fold(5);
    fold(evaluations);
    fold(std::bit_cast<uint64_t>(loss));
  }

  std::string hex() const {
    std::string out(32, '0');
    for (size_t i = 0; i < 32; ++i) {
      const uint64_t word = i < 16 ? a_ : b_;
      out[i] = "0123456789abcdef"[word >> (60 - 4 * (i % 16)) & 15];
    }
    return out;
  }

  static std::optional<Chain> from_hex(std::string_view text) {
    if (text.size() != 32) return std::nullopt;
    uint64_t words[2] = {0, 0};
    for (size_t i = 0; i < 32; ++i) {
      const char c = text[i];
      const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
      if (digit < 0) return std::nullopt;
      words[i / 16] = words[i / 16] << 4 | static_cast<uint64_t>(digit);
    }
    Chain chain;
    chain.a_ = words[0];
    chain.b_ = words[1];
    return chain;
  }

  bool operator==(const Chain&) const = default;

 private:
  static uint64_t bits(float x) { return std::bit_cast<uint32_t>(x); }

  void fold(uint64_t word) {
    a_ = std::rotl((a_ ^ word) * 0x9E3779B97F4A7C15u, 29);
    b_ = std::rotl((b_ + a_) * 0xC2B2AE3D27D4EB4Fu, 31) ^ word;
  }

  uint64_t a_ = 0x243F6A8885A308D3u;
  uint64_t b_ = 0x13198A2E03707344u;
};

}  // namespace continuo
