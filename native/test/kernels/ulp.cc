// continuo_ulp [function…]: measures elementary functions over all 2³² inputs, on two threads. Takes minutes.
#include "test/kernels/ulp.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <numeric>
#include <thread>

using namespace continuo::test;

namespace {

constexpr size_t chunk = 1 << 16;
// Without vector instructions fma is a call: the generic table is compared at one input in 61, counted from the start
// of each chunk.
constexpr size_t generic_stride = 61;

Measure sweep(const Elementary& f) {
  Measure all(f);
  std::mutex joining;
  std::atomic<uint64_t> next{0};
  const auto work = [&] {
    Measure mine(f);
    std::vector<uint32_t> in(chunk);
    for (uint64_t first = next.fetch_add(chunk); first < uint64_t{1} << 32; first = next.fetch_add(chunk)) {
      std::iota(in.begin(), in.end(), static_cast<uint32_t>(first));
      mine.take(f, in, generic_stride);
    }
    const std::lock_guard lock(joining);
    all.join(mine);
  };
  std::thread other(work);
  work();
  other.join();
  return all;
}

void print(const Elementary& f, const char* domain, const char* results, const Worst& worst, double bound) {
  if (worst.error == 0) return;
  char input[64];
  if (f.phase)
    std::snprintf(input, sizeof input, "%u", worst.input);
  else
    std::snprintf(input, sizeof input, "%.9g (%a)", f.input(worst.input), f.input(worst.input));
  std::printf("  %-12s %-9s %8.5f ulp at %-34s bound %g%s\n", domain, results, worst.error, input, bound,
              worst.error > bound ? "  EXCEEDED" : "");
}

}  // namespace

int main(int count, char** names) {
  const std::vector<std::string> wanted(names + 1, names + count);
  const auto functions = elementary_functions();
  for (const auto& name : wanted) {
    if (std::any_of(functions.begin(), functions.end(), [&](const auto& f) { return f.name == name; })) continue;
    std::string known;
    for (const auto& f : functions) known += (known.empty() ? "" : ", ") + f.name;
    std::fprintf(stderr, "There is no function \"%s\"; expected some of: %s. Name none to measure all.\n", name.c_str(),
                 known.c_str());
    return 2;
  }
  bool good = true;
  for (const auto& f : functions) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), f.name) == wanted.end()) continue;
    const auto start = std::chrono::steady_clock::now();
    const Measure m = sweep(f);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf(
        "%s: %llu inputs, %.2f %% not the nearest f32; %llu comparisons between %zu tables, %llu different (%.0f s)\n",
        f.name.c_str(), static_cast<unsigned long long>(m.inputs),
        100.0 * static_cast<double>(m.not_nearest) / static_cast<double>(m.inputs),
        static_cast<unsigned long long>(m.compared), f.kernels.size(), static_cast<unsigned long long>(m.different),
        seconds);
    good = good && m.different == 0;
    for (size_t i = 0; i < f.domains.size(); ++i) {
      const auto& cell = m.cells[i];
      print(f, f.domains[i].name, "", cell.normal, f.bound);
      print(f, f.domains[i].name, "subnormal", cell.subnormal, f.subnormal_bound);
      good = good && cell.normal.error <= f.bound && cell.subnormal.error <= f.subnormal_bound;
    }
    std::fflush(stdout);
  }
  return good ? 0 : 1;
}
