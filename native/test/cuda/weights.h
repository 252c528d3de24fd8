// Shared by the tests of CUDA's products: packed matrices of ordinary numbers, and what lies on the device.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "backends/cuda/kernels/cuda.h"
#include "test/check.h"
#include "weights/packed_matrix.h"

namespace continuo::test {

// Device memory with a copy of host data, aligned like that of executors.
template <class T> class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& values) : n_(values.size()) {
    CHECK(cudaMalloc(&data_, std::max<size_t>(1, n_) * sizeof(T)) == cudaSuccess);
    CHECK(cudaMemcpy(data_, values.data(), n_ * sizeof(T), cudaMemcpyDefault) == cudaSuccess);
  }
  OnDevice(OnDevice&& from) noexcept : n_(from.n_), data_(std::exchange(from.data_, nullptr)) {}
  ~OnDevice() { cudaFree(data_); }
  T* data() const { return data_; }
  std::vector<T> values() const {
    std::vector<T> out(n_);
    CHECK(cudaMemcpy(out.data(), data_, n_ * sizeof(T), cudaMemcpyDefault) == cudaSuccess);
    return out;
  }

 private:
  size_t n_;
  T* data_ = nullptr;
};

inline size_t packed_bytes(const PackedMatrix& m) { return m.tiles() * m.tile_bytes(); }

// f16 and bf16 between 2⁻⁷ and 2, or their negatives.
inline uint16_t some_half(Random& random, Dtype dtype) {
  const size_t exponent = dtype == Dtype::f16 ? (8 + random.below(8)) << 10 | random.below(1024)
                                              : (120 + random.below(8)) << 7 | random.below(128);
  return static_cast<uint16_t>(exponent | random.below(2) << 15);
}

inline std::vector<uint8_t> some_weights(Random& random, const PackedMatrix& m) {
  std::vector<uint8_t> out(packed_bytes(m));
  if (m.dtype >= Dtype::q4) {
    // Every byte may be anything but those of the scales.
    for (auto& byte : out) byte = static_cast<uint8_t>(random.next());
    const auto put_scales = [&](size_t from, size_t count) {
      for (size_t i = from; i < from + 2 * count; i += 2) {
        const uint16_t scale = some_half(random, Dtype::f16);
        std::memcpy(&out[i], &scale, 2);
      }
    };
    const size_t each = m.dtype == Dtype::q4     ? m.group_bytes()
                        : m.dtype == Dtype::q4_k ? PackedMatrix::q4_k_bytes
                                                 : PackedMatrix::q6_k_bytes;
    for (size_t at = 0; at < out.size(); at += each) {
      if (m.dtype == Dtype::q4)
        put_scales(at + each - PackedMatrix::scales_bytes, tile_lanes);
      else
        put_scales(at, m.dtype == Dtype::q4_k ? 2 * tile_lanes : tile_lanes);
    }
    return out;
  }
  if (m.dtype == Dtype::q8 || m.dtype == Dtype::ternary) {
    for (size_t group = 0; group < out.size(); group += m.group_bytes()) {
      const size_t codes = m.group_bytes() - PackedMatrix::scales_bytes;
      for (size_t i = 0; i < codes; ++i) {
        unsigned byte = 0;
        for (int shift = 0; shift < 8; shift += 2) byte |= static_cast<unsigned>(random.below(3)) << shift;
        out[group + i] =
            m.dtype == Dtype::q8 ? static_cast<uint8_t>(1 + random.below(255)) : static_cast<uint8_t>(byte);
      }
      for (size_t i = codes; i < m.group_bytes(); i += 2) {
        const uint16_t scale = some_half(random, Dtype::f16);
        std::memcpy(&out[group + i], &scale, 2);
      }
    }
    return out;
  }
  for (size_t i = 0; i < out.size(); i += size_of(m.dtype)) {
    const float number = random.uniform(-1, 1);
    const uint16_t half = some_half(random, m.dtype);
    if (m.dtype == Dtype::f32)
      std::memcpy(&out[i], &number, 4);
    else
      std::memcpy(&out[i], &half, 2);
  }
  return out;
}

}  // namespace continuo::test
