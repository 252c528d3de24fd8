// What a graph's declarations are called by in native code.
#pragma once

#include <cstdint>

namespace continuo {

using Name = uint32_t;  // index into Graph::declarations
constexpr uint32_t no_name = static_cast<uint32_t>(-1);

}  // namespace continuo
