#include "backends/cpu/linear.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>

namespace continuo {

namespace {

// Work below this many multiply-adds of floats is done by the calling thread: waking another costs more. Bytes multiply
// faster.
constexpr size_t fork_floats = 3 << 16;
constexpr size_t bytes_for_a_float = 4;
// Activations that one task quantises.
constexpr size_t fork_quantise = 1 << 14;
// Up to so many rows the weights' way from memory is what takes time.
constexpr size_t few_rows = 6;
// More tasks than threads, so that a thread that comes late takes fewer of them.
constexpr size_t tasks_per_thread = 4;
// A task brings the rows' terms together once for all its tiles, and takes enough rows to make a tile's weights worth
// the way.
constexpr size_t least_tiles = 3;
constexpr size_t least_rows = 24;
// Threads that have a range of their own; further ones help them.
constexpr size_t max_ranges = 64;

bool quantised(const PackedMatrix& w) { return is_quantised(w.dtype); }

size_t blocks_of(const PackedMatrix& w) { return (w.inputs + block_terms - 1) / block_terms; }

size_t cost_of(const PackedMatrix& w) { return w.outputs * w.inputs / (quantised(w) ? bytes_for_a_float : 1); }

// Calls body(begin, end) for `parts` parts of [0, n) that differ by at most 1.
void part(size_t n, size_t parts, size_t index, const auto& body) { body(n * index / parts, n * (index + 1) / parts); }

// One call of multiply().
class Multiplication {
 public:
  Multiplication(ThreadPool& pool, const Kernels& kernels, std::span<const Product> products, size_t rows,
                 Memory& scratch)
      : pool_(pool), kernels_(kernels), products_(products), rows_(rows) {
    assert(products.size() <= max_products);
    auto* free = scratch.as<QuantisedBlock>();
    for (size_t i = 0; i < products.size(); ++i) {
      cost_ += rows * cost_of(products[i].w);
      if (quantised(products[i].w)) free = quantise(i, free);
    }
  }

  void run() {
    if (cost_ < fork_floats || pool_.threads() == 1) {
      for (size_t i = 0; i < products_.size(); ++i) run(i, 0, rows_, 0, products_[i].w.tiles());
    } else if (rows_ <= few_rows) {
      stream();
    } else {
      cut();
    }
  }

 private:
  // The rows of product i, quantised where `free` begins, or by an earlier product already; returns what is free after
  // it.
  QuantisedBlock* quantise(size_t i, QuantisedBlock* free) {
    const auto& [w, x, y] = products_[i];
    for (size_t before = 0; before < i; ++before) {
      const auto& other = products_[before];
      if (other.x == x && other.w.dtype == w.dtype && other.w.group == w.group && other.w.inputs == w.inputs) {
        blocks_[i] = blocks_[before];
        return free;
      }
    }
    blocks_[i] = free;
    const size_t tasks = std::clamp<size_t>(rows_ * w.inputs / fork_quantise, 1, rows_);
    pool_.parallel_for(tasks, [&](size_t task) {
      part(rows_, tasks, task, [&](size_t row, size_t end) {
        for (; row < end; ++row) kernels_.quantise(w, x + row * w.inputs, free + row, rows_);
      });
    });
    return free + blocks_of(w) * rows_;
  }

  void run(size_t i, size_t row, size_t row_end, size_t tile, size_t tile_end) const {
    const auto& [w, x, y] = products_[i];
    if (quantised(w))
      kernels_.matmul_quantised(w, blocks_[i], rows_, y, row, row_end - row, tile, tile_end);
    else
      kernels_.matmul(w, x, y, row, row_end - row, tile, tile_end);
  }

  // Few rows. The tiles of all products are one stream of weights, of which every thread has a range and takes its
  // tiles in order: so what a kernel fetches ahead is what its thread reads next. A thread that is done takes from the
  // others' ranges.
  void stream() const {
    struct alignas(64) Range {
      std::atomic<size_t> next;
      size_t end;
    };
    std::array<Range, max_ranges> ranges;
    const size_t count = std::min(pool_.threads(), max_ranges);
    size_t total = 0;
    for (const auto& product : products_) total += product.w.tiles() * product.w.tile_bytes();
    for (size_t s = 0; s < count; ++s) {
      ranges[s].next = tile_at(total * s / count);
      ranges[s].end = tile_at(total * (s + 1) / count);
    }
    pool_.parallel_for(pool_.threads(), [&](size_t own) {
      for (size_t s = 0; s < count; ++s) {
        auto& [next, end] = ranges[(own + s) % count];
        for (size_t tile = next.fetch_add(1, std::memory_order_relaxed); tile < end;
             tile = next.fetch_add(1, std::memory_order_relaxed))
          run_tile(tile);
      }
    });
  }

  // The tile of the stream in whose middle, or before it, a byte lies.
  size_t tile_at(size_t byte) const {
    size_t tile = 0;
    for (const auto& [w, x, y] : products_) {
      const size_t bytes = w.tile_bytes();
      if (byte < w.tiles() * bytes) return tile + (byte + bytes / 2) / bytes;
      byte -= w.tiles() * bytes;
      tile += w.tiles();
    }
    return tile;
  }

  void run_tile(size_t tile) const {
    size_t i = 0;
    for (; tile >= products_[i].w.tiles(); ++i) tile -= products_[i].w.tiles();
    run(i, 0, rows_, tile, tile + 1);
  }

  // Many rows: each product is cut into tasks by tiles, and by rows where its tiles are few.
  void cut() const {
    struct Cut {
      size_t tile_parts, row_parts;
    };
    std::array<Cut, max_products> cuts;
    size_t tasks = 0;
    for (size_t i = 0; i < products_.size(); ++i) {
      const auto& w = products_[i].w;
      const size_t all = pool_.threads() * tasks_per_thread;
      const size_t wanted = std::clamp<size_t>((all * rows_ * cost_of(w) + cost_ - 1) / cost_, 1, all);
      const size_t tile_parts = std::clamp<size_t>(w.tiles() / (rows_ < least_rows ? 1 : least_tiles), 1, wanted);
      const size_t row_parts = std::clamp<size_t>(wanted / tile_parts, 1, std::max<size_t>(1, rows_ / least_rows));
      cuts[i] = {tile_parts, row_parts};
      tasks += tile_parts * row_parts;
    }
    pool_.parallel_for(tasks, [&](size_t task) {
      size_t i = 0;
      for (; task >= cuts[i].tile_parts * cuts[i].row_parts; ++i) task -= cuts[i].tile_parts * cuts[i].row_parts;
      const auto [tile_parts, row_parts] = cuts[i];
      part(rows_, row_parts, task / tile_parts, [&](size_t row, size_t row_end) {
        part(products_[i].w.tiles(), tile_parts, task % tile_parts,
             [&](size_t tile, size_t tile_end) { run(i, row, row_end, tile, tile_end); });
      });
    });
  }

  ThreadPool& pool_;
  const Kernels& kernels_;
  std::span<const Product> products_;
  size_t rows_, cost_ = 0;
  std::array<QuantisedBlock*, max_products> blocks_{};
};

}  // namespace

size_t scratch_bytes(const PackedMatrix& w, size_t rows) {
  return quantised(w) ? blocks_of(w) * rows * sizeof(QuantisedBlock) : 0;
}

void multiply(ThreadPool& pool, const Kernels& kernels, std::span<const Product> products, size_t rows,
              Memory& scratch) {
  Multiplication(pool, kernels, products, rows, scratch).run();
}

}  // namespace continuo
