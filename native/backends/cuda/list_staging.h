// ListStaging: the way of a list's rows from the host into the device's memory (Device::lay).
//
//   host's tables, payloads ──gather──▶ half of the arena ──copy──▶ buffer ──kernel: decode, widen, turn──▶ list
//                                       pinned memory               on the device
//
// Copy and kernel are in the stream of transfers, and lay() returns once they are put there. So the copy for one
// context goes on while the host gathers for the next one. The halves of the arena take turns: an event says when the
// copy has read a half, and only then it is written again. The buffer needs no event: in one stream the next copy comes
// after the kernel before.
//
// Arena and buffer stay from list to list and grow to the largest part that was needed. A list goes in parts of at most
// `most_part` bytes; a single source that is larger is a part of its own. Where the device's memory is short, the
// buffer is given up like an idle context is paged out, and taken again by the next list.
#pragma once

#include <array>
#include <mutex>
#include <vector>

#include "backends/cuda/kernels/cuda.h"
#include "runtime/model/device.h"
#include "runtime/model/list_rows.h"

namespace continuo::cuda {

class CudaDevice;

class ListStaging final : public Pageable {
 public:
  static constexpr size_t most_part = size_t{8} << 20;

  // The device outlives the staging.
  explicit ListStaging(CudaDevice& device) : device_(device) {}

  void lay(const ListRows& of, ThreadPool& pool);
  // Gives everything back, while the device is not lost.
  void free() noexcept;

  // What lies in the buffer between two lists is of no use.
  void page_out() override;
  void page_in() override {}
  size_t device_bytes() const override { return room_; }

 private:
  // Rows first … last − 1 of a list, as they lie in a half and in the buffer: increments, sources, rows.
  struct Part {
    size_t first, last;
    std::vector<size_t> sources;  // those that the rows lie in
    std::vector<size_t> at;       // [sources of the list]: where each of them begins
    size_t rows_at = 0, bytes = 0;
  };
  struct Half {
    std::byte* data = nullptr;
    size_t room = 0;
    cudaEvent_t read = nullptr;  // recorded behind the copy that reads it
  };

  static Part cut(const ListRows& of, size_t first);
  void send(const ListRows& of, const Part& part, ThreadPool& pool);
  void write(const ListRows& of, const Part& part, std::byte* to, ThreadPool& pool) const;
  Half& next_half(size_t bytes);
  void reserve(size_t bytes);

  CudaDevice& device_;
  std::mutex mutex_;  // one list at a time
  std::array<Half, 2> halves_;
  size_t turn_ = 0;
  // Changed while the staging is pinned, or by the device's page_out().
  std::byte* buffer_ = nullptr;  // [room_], on the device
  size_t room_ = 0;
};

}  // namespace continuo::cuda
