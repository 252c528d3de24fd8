// Streams of the emulated runtime: copies, kernels, events, graphs.
//
// A stream runs its work at once, when a thread waits for it, or anywhere in between; this changes with every wait
// (Pace). So code that reads a result without waiting, changes pinned memory before it is copied, or relies on the
// order of two streams gets wrong bits now and then.
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "test/emulate/device.h"

using Work = std::function<cudaError_t()>;

struct CUgraph_st {
  std::vector<Work> work;
};
struct CUgraphExec_st {
  std::vector<Work> work;
};

namespace continuo::emulate {

namespace {

std::atomic<Pace> wanted_pace{Pace::varied};
// The random choices of `varied`.
std::atomic<uint64_t> choices{0};

uint64_t choose(uint64_t among) {
  uint64_t x = ++choices * 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93u;
  return (x >> 33) % among;
}

// One thread at a time runs work, of whatever stream: the work of one stream may wait for that of another, which then
// runs within it.
std::recursive_mutex running;

class Queue {
 public:
  void put(Work work) {
    bool runs = false;
    {
      const std::lock_guard lock(mutex_);
      if (work_.empty()) pace_ = next_pace();
      work_.push_back(std::move(work));
      runs = pace_ == Pace::at_once || (pace_ == Pace::varied && choose(2) == 0);
    }
    if (runs) run();
  }

  // Runs all work, or no more than is there before this flag is set. Returns the device's error if it has failed.
  cudaError_t finish(const std::atomic<bool>* until = nullptr) {
    run(until);
    return Device::one().standing();
  }

  void drop() {
    const std::lock_guard alone(running);
    const std::lock_guard lock(mutex_);
    work_.clear();
  }

 private:
  // The pace until the next wait.
  static Pace next_pace() {
    const Pace wanted = wanted_pace;
    return wanted != Pace::varied ? wanted : static_cast<Pace>(choose(3));
  }

  // What a work waits for lies before it, so no work runs within itself.
  void run(const std::atomic<bool>* until = nullptr) {
    const std::lock_guard alone(running);
    while (!(until && *until)) {
      Work work;
      {
        const std::lock_guard lock(mutex_);
        if (work_.empty()) return;
        if (Device::one().standing() != cudaSuccess) return work_.clear();
        work = std::move(work_.front());
        work_.pop_front();
      }
      // The call that added this work has returned, so its error becomes the error of the device.
      const cudaError_t error = work();
      if (error != cudaSuccess) Device::one().fail(error);
    }
  }

  std::mutex mutex_;  // of the members; not held while work runs
  std::deque<Work> work_;
  Pace pace_ = Pace::varied;
};

// The queues of all streams, and that of the default stream, which waits for none of the others.
struct Queues {
  // The number of streams that any thread captures.
  std::atomic<size_t> captured{0};
  std::mutex mutex;
  std::set<std::shared_ptr<Queue>> all;
  const std::shared_ptr<Queue> of_default = std::make_shared<Queue>();

  static Queues& one() {
    static Queues& queues = *new Queues;
    return queues;
  }
  std::set<std::shared_ptr<Queue>> now() {
    const std::lock_guard lock(mutex);
    auto out = all;
    out.insert(of_default);
    return out;
  }
};

}  // namespace

}  // namespace continuo::emulate

struct CUstream_st {
  const std::shared_ptr<continuo::emulate::Queue> queue = std::make_shared<continuo::emulate::Queue>();
  CUgraph_st* capture = nullptr;

  CUstream_st() {
    auto& queues = continuo::emulate::Queues::one();
    const std::lock_guard lock(queues.mutex);
    queues.all.insert(queue);
  }
  ~CUstream_st() {
    auto& queues = continuo::emulate::Queues::one();
    const std::lock_guard lock(queues.mutex);
    queues.all.erase(queue);
    if (capture) --queues.captured;
    delete capture;
  }
  CUstream_st(const CUstream_st&) = delete;
  CUstream_st& operator=(const CUstream_st&) = delete;
};

// A place in the work of a stream. It is another one after each record.
struct CUevent_st {
  struct Mark {
    std::shared_ptr<continuo::emulate::Queue> queue;
    std::atomic<bool> reached{false};
    // Runs the work of the stream up to here.
    cudaError_t reach() { return reached ? continuo::emulate::Device::one().standing() : queue->finish(&reached); }
  };
  std::mutex mutex;
  std::shared_ptr<Mark> mark;  // null: it was not recorded yet

  std::shared_ptr<Mark> now() {
    const std::lock_guard lock(mutex);
    return mark;
  }
};

namespace continuo::emulate {

void use_pace(Pace pace) { wanted_pace = pace; }

void finish_all() {
  for (const auto& queue : Queues::one().now()) (void)queue->finish();
}

void drop_all() {
  for (const auto& queue : Queues::one().now()) queue->drop();
}

namespace {

Queue& queue_of(cudaStream_t stream) { return stream ? *stream->queue : *Queues::one().of_default; }
bool capturing(cudaStream_t stream) { return stream && stream->capture; }

// Adds work to the stream, or to its capture.
cudaError_t put(cudaStream_t stream, Work work) {
  if (capturing(stream))
    stream->capture->work.push_back(std::move(work));
  else
    queue_of(stream).put(std::move(work));
  return cudaSuccess;
}

cudaError_t finish(cudaStream_t stream) {
  return capturing(stream) ? cudaErrorStreamCaptureUnsupported : queue_of(stream).finish();
}

using Side = Device::Side;

bool fits(cudaMemcpyKind kind, Side from, Side to) {
  const bool from_device = from == Side::device, to_device = to == Side::device;
  switch (kind) {
    case cudaMemcpyHostToHost: return !from_device && !to_device;
    case cudaMemcpyHostToDevice: return !from_device && to_device;
    case cudaMemcpyDeviceToHost: return from_device && !to_device;
    case cudaMemcpyDeviceToDevice: return from_device && to_device;
    default: return true;
  }
}

// From memory that is not pinned CUDA copies the bytes during the call. To such memory it copies before the call
// returns.
cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  const Side source = Device::one().side(from, bytes), target = Device::one().side(to, bytes);
  if (source == Side::astride || target == Side::astride || !fits(kind, source, target)) return cudaErrorInvalidValue;
  if (capturing(stream) && (source == Side::pageable || target == Side::pageable))
    return cudaErrorStreamCaptureUnsupported;
  std::shared_ptr<std::vector<std::byte>> staged;
  if (source == Side::pageable) {
    const auto* data = static_cast<const std::byte*>(from);
    staged = std::make_shared<std::vector<std::byte>>(data, data + bytes);
  }
  const cudaError_t error = put(stream, [=] {
    // The memory was freed meanwhile.
    if ((!staged && Device::one().side(from, bytes) != source) || Device::one().side(to, bytes) != target)
      return cudaErrorIllegalAddress;
    std::memmove(to, staged ? staged->data() : from, bytes);
    return cudaSuccess;
  });
  return error == cudaSuccess && target == Side::pageable ? finish(stream) : error;
}

cudaError_t set(void* to, int value, size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  if (Device::one().side(to, bytes) != Side::device) return cudaErrorInvalidValue;
  return put(stream, [=] {
    if (Device::one().side(to, bytes) != Side::device) return cudaErrorIllegalAddress;
    std::memset(to, value, bytes);
    return cudaSuccess;
  });
}

}  // namespace

void enqueue(cudaStream_t stream, dim3 grid, dim3 block, std::function<void()> thread) {
  call([&]() -> cudaError_t {
    const bool none = grid.x == 0 || grid.y == 0 || grid.z == 0 || block.x == 0 || block.y == 0 || block.z == 0;
    if (none || grid.x > 0x7FFFFFFF || grid.y > 65535 || grid.z > 65535) return cudaErrorInvalidConfiguration;
    if (Device::one().old()) return cudaErrorNoKernelImageForDevice;
    return put(stream, [grid, block, thread = std::move(thread)] {
      const cudaError_t error = Device::one().admit();
      if (error == cudaSuccess) run_grid(grid, block, thread);
      return error;
    });
  });
}

}  // namespace continuo::emulate

using namespace continuo::emulate;

// Refused while any thread captures a stream: it would wait for that stream.
cudaError_t cudaDeviceSynchronize() {
  return call([] {
    Device::one().note_wait();
    if (Queues::one().captured > 0) return cudaErrorStreamCaptureUnsupported;
    finish_all();
    return Device::one().standing();
  });
}

// A copy from or to the host is complete on return, also of pinned memory; a copy within the device is not.
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return uncaptured([&] {
    const bool pinned =
        Device::one().side(from, bytes) == Side::pinned || Device::one().side(to, bytes) == Side::pinned;
    const cudaError_t error = copy(to, from, bytes, kind, nullptr);
    return error == cudaSuccess && pinned ? finish(nullptr) : error;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return call([&] { return copy(to, from, bytes, kind, stream); });
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return uncaptured([&] { return set(to, value, bytes, nullptr); });
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return call([&] { return set(to, value, bytes, stream); });
}

// Only non-blocking streams: this runtime has no streams that synchronise with the default stream.
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return call([&] {
    if (flags != cudaStreamNonBlocking) return cudaErrorInvalidValue;
    *stream = Device::one().keep(new CUstream_st);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (!stream) return failed(cudaErrorInvalidResourceHandle);
  if (stream->capture)
    --captures;
  else
    (void)stream->queue->finish();
  Device::one().destroy(stream);
  return call([] { return cudaSuccess; });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return call([&] {
    Device::one().note_wait();
    return finish(stream);
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return call([&] {
    if (flags != cudaEventDisableTiming) return cudaErrorInvalidValue;
    *event = Device::one().keep(new CUevent_st);
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (!event) return failed(cudaErrorInvalidResourceHandle);
  Device::one().destroy(event);
  return call([] { return cudaSuccess; });
}

// No event is part of a capture here.
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call([&] {
    if (!event || !stream) return cudaErrorInvalidResourceHandle;
    if (capturing(stream)) return cudaErrorStreamCaptureUnsupported;
    const auto mark = std::make_shared<CUevent_st::Mark>();
    mark->queue = stream->queue;
    {
      const std::lock_guard lock(event->mutex);
      event->mark = mark;
    }
    return put(stream, [mark] {
      mark->reached = true;
      return cudaSuccess;
    });
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return uncaptured([&] {
    const auto mark = event->now();
    return mark ? mark->reach() : cudaSuccess;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  return call([&] {
    if (!event || !stream) return cudaErrorInvalidResourceHandle;
    if (capturing(stream)) return cudaErrorStreamCaptureUnsupported;
    const auto mark = event->now();
    return put(stream, [mark] { return mark ? mark->reach() : cudaSuccess; });
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  return call([&] {
    if (!stream || stream->capture) return cudaErrorStreamCaptureUnsupported;
    stream->capture = new CUgraph_st;
    ++captures;
    ++Queues::one().captured;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (!capturing(stream)) return failed(cudaErrorInvalidValue);
  // The capture ends even where the device has failed meanwhile.
  *graph = std::exchange(stream->capture, nullptr);
  --captures;
  --Queues::one().captured;
  const cudaError_t error = call([] { return cudaSuccess; });
  if (error != cudaSuccess)
    delete *graph, *graph = nullptr;
  else
    Device::one().keep(*graph);
  return error;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  return call([&] {
    if (!graph) return cudaErrorInvalidValue;
    *exec = Device::one().keep(new CUgraphExec_st{graph->work});
    return cudaSuccess;
  });
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t) {
  return call([&] { return exec ? cudaSuccess : cudaErrorInvalidValue; });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return call([&] {
    if (!exec) return cudaErrorInvalidValue;
    for (const auto& work : exec->work) (void)put(stream, work);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  if (!exec) return failed(cudaErrorInvalidValue);
  Device::one().destroy(exec);
  return call([] { return cudaSuccess; });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  if (!graph) return failed(cudaErrorInvalidValue);
  Device::one().destroy(graph);
  return call([] { return cudaSuccess; });
}
