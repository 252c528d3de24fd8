#include "backends/cuda/list_staging.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "backends/cuda/check.h"
#include "backends/cuda/device.h"
#include "backends/cuda/kernels/kernels.h"
#include "base/threads.h"

namespace continuo::cuda {

namespace {

constexpr size_t absent = static_cast<size_t>(-1);
constexpr size_t cache_line = 64;
constexpr size_t lines(size_t bytes) { return (bytes + cache_line - 1) / cache_line * cache_line; }

// Grows by doubling up to the size of a usual part, so that lists that become a little longer take no memory.
size_t room_for(size_t bytes) { return std::max(bytes, std::min(std::bit_ceil(bytes), ListStaging::most_part)); }

}  // namespace

void ListStaging::lay(const ListRows& of, ThreadPool& pool) {
  const std::lock_guard lock(mutex_);
  // A thread that needs memory takes the buffer away only after the work that reads it is in the stream.
  const Pinned pinned(device_, *this);
  for (size_t first = 0; first < of.rows.size();) {
    const Part part = cut(of, first);
    send(of, part, pool);
    first = part.last;
  }
}

// As many rows as fit with their sources; at least one.
ListStaging::Part ListStaging::cut(const ListRows& of, size_t first) {
  Part part{first, first, {}, std::vector<size_t>(of.sources.size(), absent)};
  size_t end = lines(of.increments.size_bytes());
  for (; part.last < of.rows.size(); ++part.last) {
    const auto& in = of.rows[part.last].source;
    const auto fresh = [&](size_t which) {
      return in[which] != ListRow::none && part.at[static_cast<size_t>(in[which])] == absent &&
             (which == 0 || in[which] != in[0]);
    };
    size_t more = lines((part.last + 1 - first) * sizeof(ListRow));
    for (size_t which = 0; which < keys_and_values; ++which)
      if (fresh(which)) more += lines(of.sources[static_cast<size_t>(in[which])].bytes);
    if (part.last > first && end + more > most_part) break;
    for (const int32_t number : in) {
      const auto source = static_cast<size_t>(number);
      if (number == ListRow::none || part.at[source] != absent) continue;
      part.sources.push_back(source);
      part.at[source] = std::exchange(end, end + lines(of.sources[source].bytes));
    }
  }
  part.rows_at = end;
  part.bytes = end + (part.last - first) * sizeof(ListRow);
  return part;
}

void ListStaging::send(const ListRows& of, const Part& part, ThreadPool& pool) {
  reserve(part.bytes);
  Half& half = next_half(part.bytes);
  write(of, part, half.data, pool);
  device_.transfer_later([&](cudaStream_t stream) {
    check(cudaMemcpyAsync(buffer_, half.data, part.bytes, cudaMemcpyHostToDevice, stream), "copy to the device");
    check(cudaEventRecord(half.read, stream), "record an event");
    cuda::lay({reinterpret_cast<const ListRow*>(buffer_ + part.rows_at), static_cast<uint32_t>(part.last - part.first),
               static_cast<uint32_t>(of.layers), static_cast<uint32_t>(of.heads), static_cast<uint32_t>(of.channels),
               static_cast<uint32_t>(of.increments.size()), reinterpret_cast<const uint32_t*>(buffer_),
               static_cast<uint32_t>(part.first)},
              stream);
    check(cudaGetLastError(), "lay a list");
  });
}

// Writes a part, with addresses of the buffer in place of the host's.
void ListStaging::write(const ListRows& of, const Part& part, std::byte* to, ThreadPool& pool) const {
  std::memcpy(to, of.increments.data(), of.increments.size_bytes());
  pool.parallel_for(part.sources.size(), [&](size_t i) {
    const auto& source = of.sources[part.sources[i]];
    std::memcpy(to + part.at[part.sources[i]], source.data, source.bytes);
  });
  for (size_t i = part.first; i < part.last; ++i) {
    ListRow row = of.rows[i];
    for (size_t which = 0; which < keys_and_values; ++which) {
      if (row.source[which] == ListRow::none) continue;
      const auto source = static_cast<size_t>(row.source[which]);
      const auto there = [&](const std::byte* here) {
        return buffer_ + part.at[source] + (here - of.sources[source].data);
      };
      row.from[which] = there(row.from[which]);
      if (which == 0 && row.exponents) row.exponents = there(row.exponents);
    }
    std::memcpy(to + part.rows_at + (i - part.first) * sizeof row, &row, sizeof row);
  }
}

// The half whose copy is older, once that copy has read it.
ListStaging::Half& ListStaging::next_half(size_t bytes) {
  Half& half = halves_[turn_];
  turn_ = (turn_ + 1) % halves_.size();
  if (!half.read) check(cudaEventCreateWithFlags(&half.read, cudaEventDisableTiming), "make an event");
  check(cudaEventSynchronize(half.read), "copy to the device");
  if (bytes > half.room) {
    if (half.data) device_.release_host(std::exchange(half.data, nullptr));
    half.room = 0;
    half.data = device_.allocate_host(room_for(bytes));
    half.room = room_for(bytes);
  }
  return half;
}

void ListStaging::reserve(size_t bytes) {
  if (bytes <= room_) return;
  page_out();
  buffer_ = device_.allocate_unwritten(room_for(bytes));
  room_ = room_for(bytes);
}

void ListStaging::page_out() {
  if (buffer_) device_.release(std::exchange(buffer_, nullptr), room_);
  room_ = 0;
}

void ListStaging::free() noexcept {
  page_out();
  for (auto& half : halves_) {
    if (half.data) device_.release_host(half.data);
    if (half.read) (void)cudaEventDestroy(half.read);
    half = {};
  }
}

}  // namespace continuo::cuda
