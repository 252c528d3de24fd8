// A small test harness: TEST("claim") { CHECK(…); }
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace continuo::test {

struct Case {
  std::string claim;
  std::function<void()> body;
};

inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

inline int& failures() {
  static int count = 0;
  return count;
}

struct Register {
  Register(const char* claim, std::function<void()> body) { cases().push_back({claim, std::move(body)}); }
};

inline void fail(const char* file, int line, const std::string& what) {
  std::printf("  %s:%d: %s\n", file, line, what.c_str());
  ++failures();
}

// splitmix64: random inputs that are the same everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
  }
  size_t below(size_t n) { return next() % n; }
  float uniform(float low, float high) { return low + (high - low) * static_cast<float>(next() >> 40) * 0x1p-24f; }
  std::vector<float> floats(size_t n, float low, float high) {
    std::vector<float> out(n);
    for (auto& x : out) x = uniform(low, high);
    return out;
  }

 private:
  uint64_t state_;
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

// Of so many random rounds or cases, those that are run: a quarter under a sanitizer, where each takes about ten times
// as long and what it looks for, an access outside or a race, does not need all of them.
inline constexpr size_t rounds(size_t all) { return sanitized ? (all + 3) / 4 : all; }

// Whether this case of a list of like ones is left out, by the same rule.
inline bool left_out(Random& random) { return sanitized && random.below(4) != 0; }

}  // namespace continuo::test

#define CONTINUO_JOIN2(a, b) a##b
#define CONTINUO_JOIN(a, b) CONTINUO_JOIN2(a, b)
#define TEST(claim)                                                                                            \
  static void CONTINUO_JOIN(body_, __LINE__)();                                                                \
  static const continuo::test::Register CONTINUO_JOIN(case_, __LINE__)(claim, CONTINUO_JOIN(body_, __LINE__)); \
  static void CONTINUO_JOIN(body_, __LINE__)()
#define CHECK(condition)                                                    \
  do {                                                                      \
    if (!(condition)) continuo::test::fail(__FILE__, __LINE__, #condition); \
  } while (false)
#define CHECK_SAYS(result, part)                                                                          \
  do {                                                                                                    \
    const auto& checked = (result);                                                                       \
    if (checked)                                                                                          \
      continuo::test::fail(__FILE__, __LINE__, "expected an error with: " part);                          \
    else if (checked.error().message.find(part) == std::string::npos)                                     \
      continuo::test::fail(__FILE__, __LINE__, "expected \"" part "\", got: " + checked.error().message); \
  } while (false)
