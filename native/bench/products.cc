// How fast the products of each format are, table by table, on one thread: one row with a matrix from memory, beside a
// plain reading of the same bytes, and one and sixteen rows with a tile from the caches. Processor time, so that other
// processes take no part in it but for the memory that they read. Medians of nine rounds.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <vector>

#include "backends/cpu/kernels/kernels.h"
#include "base/dtype.h"

namespace {

using namespace continuo;

constexpr size_t outputs = 65536, inputs = 1024, rows = 16, rounds = 9;

double processor_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// How much of something a second, in billions.
double rate(size_t amount, const auto& work) {
  const double began = processor_seconds();
  work();
  return static_cast<double>(amount) / (processor_seconds() - began) / 1e9;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

uint64_t sum_of(const std::vector<uint64_t>& words) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i + 8 <= words.size(); i += 8) {
    for (size_t j = 0; j < 8; ++j) sums[j] += words[i + j];
  }
  uint64_t sum = 0;
  for (const uint64_t each : sums) sum += each;
  return sum;
}

void measure(const Kernels& table, Dtype dtype, size_t group) {
  PackedMatrix whole{dtype, outputs, inputs, group, nullptr};
  std::vector<uint64_t> weights(whole.tiles() * whole.tile_bytes() / sizeof(uint64_t));
  // Codes below 64 are codes of every format, and so no scale is infinite.
  uint64_t next = 1;
  for (auto& word : weights) word = (next = next * 6364136223846793005u + 1442695040888963407u) & 0x3F3F3F3F3F3F3F3F;
  whole.data = weights.data();
  PackedMatrix tile = whole;
  tile.outputs = tile_lanes;
  std::vector<float> x(rows * inputs), y(rows * outputs);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 37 % 200) * 0.01f - 1;
  std::vector<QuantisedBlock> one(whole.blocks()), many(rows * whole.blocks());
  table.quantise(whole, x.data(), one.data(), 1);
  for (size_t r = 0; r < rows; ++r) table.quantise(whole, x.data() + r * inputs, many.data() + r, rows);

  volatile uint64_t kept = 0;
  std::vector<double> read, plain, ratio, single, together;
  for (size_t round = 0; round < rounds; ++round) {
    const size_t bytes = weights.size() * sizeof(uint64_t);
    plain.push_back(rate(bytes, [&] { kept = sum_of(weights); }));
    read.push_back(
        rate(bytes, [&] { table.matmul_quantised(whole, one.data(), 1, y.data(), 0, 1, 0, whole.tiles()); }));
    ratio.push_back(read.back() / plain.back());
    constexpr size_t times = 100;
    const auto repeat = [&](const std::vector<QuantisedBlock>& of, size_t count) {
      return rate(times * count * tile_lanes * inputs, [&] {
        for (size_t i = 0; i < times; ++i) table.matmul_quantised(tile, of.data(), count, y.data(), 0, count, 0, 1);
      });
    };
    single.push_back(repeat(one, 1));
    together.push_back(repeat(many, rows));
  }
  std::printf("| %s, %zu | %.1f | %.1f | %.2f | %.0f | %.0f |\n", name_of(dtype), group, median(read), median(plain),
              median(ratio), median(single), median(together));
}

}  // namespace

int main() {
  for (const auto* table : runnable_kernels()) {
    std::printf("\n%s\n\n| format, group | from memory, GB/s | plain, GB/s | ratio | one row, 10⁹/s | %zu rows |\n",
                table->name, rows);
    std::printf("| --- | --- | --- | --- | --- | --- |\n");
    for (const size_t group : {32, 64}) {
      for (const Dtype dtype : {Dtype::q8, Dtype::ternary, Dtype::q4}) measure(*table, dtype, group);
    }
    for (const Dtype dtype : {Dtype::q4_k, Dtype::q6_k}) measure(*table, dtype, 32);
  }
}
