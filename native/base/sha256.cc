#include "base/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace continuo {

namespace {

// FIPS 180-4, 4.2.2: the first 32 bits of the fractions of the cube roots of the first 64 primes.
alignas(64) constexpr uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

constexpr size_t block_bytes = 64;

// 6.2.2
void compress(uint32_t* state, const std::byte* blocks, size_t count) {
  for (; count > 0; --count, blocks += block_bytes) {
    uint32_t w[64];
    for (size_t t = 0; t < 16; ++t) {
      const auto byte = [&](size_t i) { return std::to_integer<uint32_t>(blocks[4 * t + i]); };
      w[t] = byte(0) << 24 | byte(1) << 16 | byte(2) << 8 | byte(3);
    }
    for (size_t t = 16; t < 64; ++t) {
      const uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ w[t - 15] >> 3;
      const uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ w[t - 2] >> 10;
      w[t] = s1 + w[t - 7] + s0 + w[t - 16];
    }
    auto [a, b, c, d, e, f, g, h] =
        std::to_array({state[0], state[1], state[2], state[3], state[4], state[5], state[6], state[7]});
    for (size_t t = 0; t < 64; ++t) {
      const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + constants[t] + w[t];
      const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    const uint32_t out[8] = {a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < 8; ++i) state[i] += out[i];
  }
}

#if defined(__x86_64__)

// The instructions take the state as two vectors, {f, e, b, a} and {h, g, d, c} from the lowest lane on, and compute
// two rounds each (Intel Architecture Instruction Set Extensions, "SHA extensions").
// `count` blocks of each lane; the lanes are independent, and their rounds take turns.
template <size_t lanes>
__attribute__((target("sha,sse4.1"))) inline void compress_lanes(const std::array<uint32_t*, lanes>& states,
                                                                 std::array<const std::byte*, lanes> blocks,
                                                                 size_t count) {
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const auto load = [](const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); };
  __m128i feba[lanes], hgdc[lanes];
  for (size_t i = 0; i < lanes; ++i) {
    const __m128i badc = _mm_shuffle_epi32(load(states[i]), 0xB1), efgh = _mm_shuffle_epi32(load(states[i] + 4), 0x1B);
    feba[i] = _mm_alignr_epi8(badc, efgh, 8), hgdc[i] = _mm_blend_epi16(efgh, badc, 0xF0);
  }
  for (; count > 0; --count) {
    __m128i feba_before[lanes], hgdc_before[lanes];
    __m128i w[lanes][4];  // the last sixteen words of the schedule, four in each
    for (size_t i = 0; i < lanes; ++i) feba_before[i] = feba[i], hgdc_before[i] = hgdc[i];
#pragma GCC unroll 16
    for (size_t t = 0; t < 16; ++t) {
      const __m128i constant = load(constants + 4 * t);
#pragma GCC unroll 4
      for (size_t i = 0; i < lanes; ++i) {
        __m128i& now = w[i][t % 4];
        if (t < 4) {
          now = _mm_shuffle_epi8(load(blocks[i] + 16 * t), big_endian);
        } else {
          const __m128i last = w[i][(t + 3) % 4], before = w[i][(t + 2) % 4];
          now = _mm_sha256msg1_epu32(now, w[i][(t + 1) % 4]);
          now = _mm_sha256msg2_epu32(_mm_add_epi32(now, _mm_alignr_epi8(last, before, 4)), last);
        }
        const __m128i sum = _mm_add_epi32(now, constant);
        hgdc[i] = _mm_sha256rnds2_epu32(hgdc[i], feba[i], sum);
        feba[i] = _mm_sha256rnds2_epu32(feba[i], hgdc[i], _mm_shuffle_epi32(sum, 0x0E));
      }
    }
    for (size_t i = 0; i < lanes; ++i) {
      feba[i] = _mm_add_epi32(feba[i], feba_before[i]);
      hgdc[i] = _mm_add_epi32(hgdc[i], hgdc_before[i]);
      blocks[i] += block_bytes;
    }
  }
  for (size_t i = 0; i < lanes; ++i) {
    const __m128i abef = _mm_shuffle_epi32(feba[i], 0x1B), dchg = _mm_shuffle_epi32(hgdc[i], 0xB1);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(states[i]), _mm_blend_epi16(abef, dchg, 0xF0));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(states[i] + 4), _mm_alignr_epi8(dchg, abef, 8));
  }
}

__attribute__((target("sha,sse4.1"))) void compress_extended(uint32_t* state, const std::byte* blocks, size_t count) {
  compress_lanes<1>({state}, {blocks}, count);
}

__attribute__((target("sha,sse4.1"))) void compress_together(const std::array<uint32_t*, Sha256::lanes>& states,
                                                             const std::array<const std::byte*, Sha256::lanes>& blocks,
                                                             size_t count) {
  compress_lanes<Sha256::lanes>(states, blocks, count);
}

bool has_extensions() {
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    const bool sse41 = __get_cpuid(1, &a, &b, &c, &d) && c >> 19 & 1;
    return sse41 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && b >> 29 & 1;
  }();
  return has;
}

#endif

}  // namespace

// 5.3.3
Sha256::Sha256([[maybe_unused]] bool extensions)
    : compress_(compress),
      state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {
#if defined(__x86_64__)
  if (extensions && has_extensions()) compress_ = compress_extended;
#endif
}

void Sha256::update(std::span<const std::byte> bytes) {
  const size_t waiting = length_ % block_bytes;
  length_ += bytes.size();
  if (waiting > 0) {
    const size_t taken = std::min(block_bytes - waiting, bytes.size());
    std::copy_n(bytes.begin(), taken, rest_.begin() + static_cast<ptrdiff_t>(waiting));
    bytes = bytes.subspan(taken);
    if (waiting + taken < block_bytes) return;
    compress_(state_.data(), rest_.data(), 1);
  }
  const size_t blocks = bytes.size() / block_bytes;
  compress_(state_.data(), bytes.data(), blocks);
  const auto behind = bytes.subspan(blocks * block_bytes);
  std::copy(behind.begin(), behind.end(), rest_.begin());
}

void Sha256::update(std::span<Sha256, lanes> hashes, const std::array<std::span<const std::byte>, lanes>& pieces) {
  size_t together = 0;
#if defined(__x86_64__)
  const auto stands = [](const Sha256& hash) {
    return hash.compress_ == compress_extended && hash.length_ % block_bytes == 0;
  };
  if (std::all_of(hashes.begin(), hashes.end(), stands)) {
    std::array<uint32_t*, lanes> states{};
    std::array<const std::byte*, lanes> blocks{};
    together = pieces[0].size() / block_bytes * block_bytes;
    for (size_t i = 0; i < lanes; ++i) {
      states[i] = hashes[i].state_.data(), blocks[i] = pieces[i].data();
      hashes[i].length_ += together;
    }
    compress_together(states, blocks, together / block_bytes);
  }
#endif
  for (size_t i = 0; i < lanes; ++i) hashes[i].update(pieces[i].subspan(together));
}

// 5.1.1: a bit 1, zeros, and the length in bits as 64 bits.
Digest Sha256::digest() {
  const uint64_t bits = 8 * length_;
  std::array<std::byte, 2 * block_bytes> tail{};
  tail[0] = std::byte{0x80};
  const size_t waiting = length_ % block_bytes;
  const size_t zeros_end = (waiting < 56 ? 56 : 56 + block_bytes) - waiting;
  for (size_t i = 0; i < 8; ++i) tail[zeros_end + i] = static_cast<std::byte>(bits >> (56 - 8 * i));
  update({tail.data(), zeros_end + 8});
  Digest out;
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(state_[i / 4] >> (24 - 8 * (i % 4)));
  return out;
}

std::string hex_of(const Digest& digest) {
  std::string out;
  for (const std::byte byte : digest)
    for (const int shift : {4, 0}) out += "0123456789abcdef"[std::to_integer<unsigned>(byte) >> shift & 15];
  return out;
}

}  // namespace continuo
