#pragma once

#include <chrono>

namespace continuo {

inline double seconds(std::chrono::steady_clock::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace continuo
