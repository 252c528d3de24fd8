// What a thread reads or writes at once: sixteen bytes, at an address that is a multiple of sixteen.
#pragma once

#include <cstdint>

namespace continuo::cuda {

struct alignas(16) Four { float at[4]; };
struct alignas(16) FourWords { uint32_t at[4]; };

}  // namespace continuo::cuda
