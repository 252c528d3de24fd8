#include "backends/cuda/expert_buffers.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backends/cuda/check.h"
#include "backends/cuda/device.h"
#include "experts/form.h"

namespace continuo::cuda {

namespace {

cudaEvent_t event() {
  cudaEvent_t out = nullptr;
  check(cudaEventCreateWithFlags(&out, cudaEventDisableTiming), "make an event");
  return out;
}

}  // namespace

ExpertBuffers::ExpertBuffers(std::shared_ptr<CudaDevice> device, std::shared_ptr<experts::ExpertCache> store)
    : device_(std::move(device)), store_(std::move(store)), forgotten_(store_->forgotten()) {
  const auto in_use = device_->use();
  size_t experts = 0;
  for (const uint32_t layer : store_->layers()) {
    const auto& index = *store_->index(layer);
    bytes_ = std::max(bytes_, experts::form_bytes(index.shape));
    experts += index.records.size();
  }
  size_t bound = 0;
  if (const auto asked = store_->device_bytes()) {
    bound = static_cast<size_t>(*asked);
  } else {
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "say what memory is free");
    bound = free / 2;
  }
  most_ = std::clamp(bound / bytes_, least_buffers, std::max(least_buffers, experts));
  try {
    check(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking), "make a stream");
    for (auto& staging : staging_) {
      staging.data = device_->allocate_host(bytes_);
      staging.read = event();
    }
    while (buffers_.size() < least_buffers) add(device_->allocate_unwritten(bytes_));
  } catch (const DeviceError&) {
    free_all();
    throw;
  }
  device_->enlist(*this);
}

ExpertBuffers::~ExpertBuffers() {
  device_->dismiss(*this);
  free_all();
}

// The reset of a lost device has freed everything.
void ExpertBuffers::free_all() noexcept {
  const Use in_use;
  if (!device_->lost()) {
    if (copies_) (void)cudaStreamSynchronize(copies_);
    for (auto& staging : staging_) {
      if (staging.data) device_->release_host(staging.data);
      if (staging.read) (void)cudaEventDestroy(staging.read);
    }
    if (copies_) (void)cudaStreamDestroy(copies_);
  }
  for (auto& buffer : buffers_) free(buffer);
}

void ExpertBuffers::free(Buffer& buffer) noexcept {
  const Use in_use;
  if (device_->lost()) return;
  (void)cudaEventSynchronize(buffer.filled);
  (void)cudaEventSynchronize(buffer.multiplied);
  device_->release(buffer.data, bytes_);
  (void)cudaEventDestroy(buffer.filled);
  (void)cudaEventDestroy(buffer.multiplied);
}

Device& ExpertBuffers::device() const { return *device_; }

void ExpertBuffers::add(std::byte* data) {
  Buffer buffer;
  buffer.data = data;
  try {
    buffer.filled = event();
    buffer.multiplied = event();
    buffers_.push_back(buffer);
  } catch (...) {
    if (buffer.filled) (void)cudaEventDestroy(buffer.filled);
    if (buffer.multiplied) (void)cudaEventDestroy(buffer.multiplied);
    device_->release(data, bytes_);
    throw;
  }
}

// After ExpertCache::forget what lies here counts as absent too.
void ExpertBuffers::forget_if_told() {
  const uint64_t now = store_->forgotten();
  if (std::exchange(forgotten_, now) == now) return;
  places_.clear();
  for (auto& buffer : buffers_) buffer.key = nobody;
}

bool ExpertBuffers::holds(uint32_t layer, uint32_t expert) {
  const std::lock_guard lock(mutex_);
  forget_if_told();
  return places_.contains(key_of(layer, expert));
}

size_t ExpertBuffers::count() {
  const std::lock_guard lock(mutex_);
  forget_if_told();
  return places_.size();
}

// The buffer that was unused for longest, or a new one as long as there may be more and memory is free.
size_t ExpertBuffers::oldest() {
  const auto empty =
      std::find_if(buffers_.begin(), buffers_.end(), [](const Buffer& buffer) { return buffer.key == nobody; });
  if (empty != buffers_.end()) return static_cast<size_t>(empty - buffers_.begin());
  if (buffers_.size() < most_) {
    if (std::byte* data = device_->allocate_spare(bytes_)) {
      add(data);
      return buffers_.size() - 1;
    }
  }
  const auto oldest = std::min_element(buffers_.begin(), buffers_.end(),
                                       [](const Buffer& a, const Buffer& b) { return a.touched < b.touched; });
  return static_cast<size_t>(oldest - buffers_.begin());
}

ExpertBuffers::Buffer* ExpertBuffers::ready(uint32_t layer, uint32_t expert, std::span<const std::byte> form,
                                            cudaStream_t stream) {
  forget_if_told();
  const uint64_t key = key_of(layer, expert);
  if (const auto found = places_.find(key); found != places_.end()) {
    Buffer& buffer = buffers_[found->second];
    check(cudaStreamWaitEvent(stream, buffer.filled, 0), "wait for an event");
    return &buffer;
  }
  if (form.empty()) return nullptr;
  const size_t place = oldest();
  Buffer& buffer = buffers_[place];
  places_.erase(std::exchange(buffer.key, nobody));
  Staging& staging = staging_[turn_];
  turn_ = (turn_ + 1) % staging_.size();
  check(cudaEventSynchronize(staging.read), "copy to the device");
  std::memcpy(staging.data, form.data(), form.size());
  check(cudaStreamWaitEvent(copies_, buffer.multiplied, 0), "wait for an event");
  check(cudaMemcpyAsync(buffer.data, staging.data, form.size(), cudaMemcpyHostToDevice, copies_), "copy to the device");
  check(cudaEventRecord(staging.read, copies_), "record an event");
  check(cudaEventRecord(buffer.filled, copies_), "record an event");
  check(cudaStreamWaitEvent(stream, buffer.filled, 0), "wait for an event");
  buffer.key = key;
  places_[key] = place;
  return &buffer;
}

// The event is recorded behind the products of every executor: this stream waits for the one that recorded it last.
void ExpertBuffers::used(Buffer& buffer, cudaStream_t stream) {
  check(cudaStreamWaitEvent(stream, buffer.multiplied, 0), "wait for an event");
  check(cudaEventRecord(buffer.multiplied, stream), "record an event");
  buffer.touched = ++clock_;
}

void ExpertBuffers::page_out() {
  const std::lock_guard lock(mutex_);
  while (buffers_.size() > least_buffers) {
    places_.erase(buffers_.back().key);
    free(buffers_.back());
    buffers_.pop_back();
  }
}

// Two buffers stay.
size_t ExpertBuffers::device_bytes() const {
  const std::lock_guard lock(mutex_);
  return (buffers_.size() - least_buffers) * bytes_;
}

}  // namespace continuo::cuda
