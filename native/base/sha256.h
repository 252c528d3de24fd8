// SHA-256 (FIPS 180-4): the checksum of states, files and blocks. A CPU with the SHA extensions of x86 hashes about
// five times as fast with them; the result is the same.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace continuo {

using Digest = std::array<std::byte, 32>;
// Two lower-case hex digits for each byte.
std::string hex_of(const Digest& digest);

class Sha256 {
 public:
  Sha256() : Sha256(true) {}
  // `extensions`: use the CPU's, where it has them.
  explicit Sha256(bool extensions);

  void update(std::span<const std::byte> bytes);
  // Each hash takes its own piece; all pieces have one length. The extensions wait for their own results most of the
  // time, so one core hashes four runs of bytes in little more than half the time that it takes for one after the
  // other.
  static constexpr size_t lanes = 4;
  static void update(std::span<Sha256, lanes> hashes, const std::array<std::span<const std::byte>, lanes>& pieces);
  // To be called once, as the last call.
  Digest digest();
  // The same as 64 lower-case hex digits.
  std::string hex() { return hex_of(digest()); }

 private:
  static constexpr size_t block_bytes = 64;
  using Compress = void (*)(uint32_t* state, const std::byte* blocks, size_t count);

  Compress compress_;
  std::array<uint32_t, 8> state_;
  std::array<std::byte, block_bytes> rest_{};  // bytes of a block that is not full yet
  uint64_t length_ = 0;                        // bytes so far
};

}  // namespace continuo
