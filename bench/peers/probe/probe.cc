// Measures the present speed of this machine with N threads: bytes read from memory, float multiply-adds, and 8-bit integer
// multiply-adds where the CPU has instructions for them. Prints one line of JSON. A multiply-add counts as two operations.
//
//   probe THREADS
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#if defined(__AVX512VNNI__)
#include <immintrin.h>
#endif

namespace {

#if defined(__AVX512F__)
constexpr size_t vector_bytes = 64;
#elif defined(__AVX__)
constexpr size_t vector_bytes = 32;
#else
constexpr size_t vector_bytes = 16;
#endif
typedef float Floats __attribute__((vector_size(vector_bytes)));
typedef uint64_t Words __attribute__((vector_size(vector_bytes)));

// Enough independent sums to hide the latency of two multiply-adds a cycle, few enough to stay in registers.
constexpr size_t chains = 12;
constexpr size_t passes = 5;
constexpr size_t read_bytes = size_t{256} << 20;  // far larger than the last-level cache, like a model
constexpr size_t multiply_rounds = 4'000'000;

// Makes the compiler assume that `value` is used and changed here: it cannot drop the computation of `value`, and cannot merge sums that
// start from it.
template <class T>
void keep(T& value) {
  asm volatile("" : : "r"(&value) : "memory");
}

// Seconds of the median pass of `work(thread)` on all threads at once: from the start of the first thread to the end of the last one. The
// threads take the times themselves, since a thread that waits for them may wake late.
template <class Work>
double median_seconds(size_t threads, Work work) {
  using Clock = std::chrono::steady_clock;
  std::barrier line(static_cast<ptrdiff_t>(threads));
  std::vector<std::array<Clock::time_point, passes>> starts(threads), ends(threads);
  std::vector<std::thread> crew;
  for (size_t t = 0; t < threads; ++t) {
    crew.emplace_back([&, t] {
      for (size_t pass = 0; pass < passes; ++pass) {
        line.arrive_and_wait();
        starts[t][pass] = Clock::now();
        work(t);
        ends[t][pass] = Clock::now();
      }
    });
  }
  for (auto& thread : crew) thread.join();
  std::array<double, passes> seconds;
  for (size_t pass = 0; pass < passes; ++pass) {
    auto first = starts[0][pass], last = ends[0][pass];
    for (size_t t = 1; t < threads; ++t) {
      first = std::min(first, starts[t][pass]);
      last = std::max(last, ends[t][pass]);
    }
    seconds[pass] = std::chrono::duration<double>(last - first).count();
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[passes / 2];
}

void read_all(const Words* data, size_t vectors) {
  Words sums[8] = {};
  for (size_t i = 0; i + 8 <= vectors; i += 8) {
    for (size_t j = 0; j < 8; ++j) sums[j] += data[i + j];
  }
  keep(sums);
}

void multiply_floats() {
  Floats factor = Floats{} + 0.999f, term = Floats{} + 0.001f;
  keep(factor);
  keep(term);
  Floats sums[chains] = {};
  keep(sums);
  for (size_t round = 0; round < multiply_rounds; ++round) {
#pragma GCC unroll 16
    for (size_t c = 0; c < chains; ++c) sums[c] = sums[c] * factor + term;
  }
  keep(sums);
}

#if defined(__AVX512VNNI__)
void multiply_bytes() {
  __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
  keep(a);
  keep(b);
  __m512i sums[chains];
  for (auto& sum : sums) sum = _mm512_setzero_si512();
  keep(sums);
  for (size_t round = 0; round < multiply_rounds; ++round) {
#pragma GCC unroll 16
    for (size_t c = 0; c < chains; ++c) sums[c] = _mm512_dpbusd_epi32(sums[c], a, b);
  }
  keep(sums);
}
#endif

}  // namespace

int main(int argc, char** argv) {
  const long asked = argc == 2 ? std::strtol(argv[1], nullptr, 10) : 0;
  if (asked < 1 || asked > 256) {
    std::fprintf(stderr, "probe: expected the number of threads, 1 to 256.\n");
    return 2;
  }
  const auto threads = static_cast<size_t>(asked);
  void* memory = std::aligned_alloc(size_t{2} << 20, read_bytes);
  if (!memory) {
    std::fprintf(stderr, "probe: no memory for %zu bytes.\n", read_bytes);
    return 1;
  }
  madvise(memory, read_bytes, MADV_HUGEPAGE);
  std::fill_n(static_cast<uint64_t*>(memory), read_bytes / sizeof(uint64_t), uint64_t{1});

  const size_t share = read_bytes / threads / (8 * sizeof(Words)) * 8;
  const double reading = median_seconds(threads, [&](size_t t) { read_all(static_cast<const Words*>(memory) + t * share, share); });
  const double read = static_cast<double>(threads * share * sizeof(Words)) / reading;

  const double operations = 2.0 * static_cast<double>(threads * multiply_rounds * chains);
  const double floats = operations * (vector_bytes / sizeof(float)) / median_seconds(threads, [](size_t) { multiply_floats(); });
  std::printf("{\"read\": %.0f, \"fma\": %.0f, \"int8\": ", read, floats);
#if defined(__AVX512VNNI__)
  std::printf("%.0f}\n", operations * 64 / median_seconds(threads, [](size_t) { multiply_bytes(); }));
#else
  std::printf("null}\n");
#endif
  std::free(memory);
}
