#include "backends/cpu/linear.h"

#include <algorithm>

namespace continuo {

namespace {

// Work below this many multiply-adds is done by the calling thread: waking another costs more. Bytes multiply faster
// than floats.
constexpr size_t fork_floats = 1 << 18;
constexpr size_t fork_bytes = 1 << 20;
// Activations that one task quantises.
constexpr size_t fork_quantise = 1 << 14;
// More tasks than threads, so that a thread that comes late takes fewer of them.
constexpr size_t tasks_per_thread = 4;
// A task brings the rows' terms together once for all its tiles, and takes enough rows to make a tile's weights worth
// the way.
constexpr size_t least_tiles = 3;
constexpr size_t least_rows = 24;

bool quantised(const PackedMatrix& w) { return w.dtype == Dtype::q8 || w.dtype == Dtype::ternary; }

size_t blocks_of(const PackedMatrix& w) { return (w.inputs + block_terms - 1) / block_terms; }

// Calls body(begin, end) for `parts` parts of [0, n) that differ by at most 1.
void part(size_t n, size_t parts, size_t index, const auto& body) { body(n * index / parts, n * (index + 1) / parts); }

}  // namespace

size_t scratch_bytes(const PackedMatrix& w, size_t rows) {
  return quantised(w) ? blocks_of(w) * rows * sizeof(QuantisedBlock) : 0;
}

void multiply(ThreadPool& pool, const Kernels& kernels, const PackedMatrix& w, const float* x, float* y, size_t rows,
              Memory& scratch) {
  auto* blocks = scratch.as<QuantisedBlock>();
  if (quantised(w)) {
    const auto quantise = [&](size_t row, size_t end) {
      for (; row < end; ++row) kernels.quantise(w, x + row * w.inputs, blocks + row, rows);
    };
    const size_t tasks = std::clamp<size_t>(rows * w.inputs / fork_quantise, 1, rows);
    pool.parallel_for(tasks, [&](size_t task) { part(rows, tasks, task, quantise); });
  }
  const auto run = [&](size_t row, size_t row_end, size_t tile, size_t tile_end) {
    if (quantised(w))
      kernels.matmul_quantised(w, blocks, rows, y, row, row_end - row, tile, tile_end);
    else
      kernels.matmul(w, x, y, row, row_end - row, tile, tile_end);
  };
  if (rows * w.outputs * w.inputs < (quantised(w) ? fork_bytes : fork_floats) || pool.threads() == 1)
    return run(0, rows, 0, w.tiles());

  const size_t wanted = pool.threads() * tasks_per_thread;
  const size_t tile_parts = std::clamp<size_t>(w.tiles() / (rows < least_rows ? 1 : least_tiles), 1, wanted);
  const size_t row_parts = std::clamp<size_t>(wanted / tile_parts, 1, std::max<size_t>(1, rows / least_rows));
  pool.parallel_for(tile_parts * row_parts, [&](size_t task) {
    part(rows, row_parts, task / tile_parts, [&](size_t row, size_t row_end) {
      part(w.tiles(), tile_parts, task % tile_parts,
           [&](size_t tile, size_t tile_end) { run(row, row_end, tile, tile_end); });
    });
  });
}

}  // namespace continuo
