// Events of the emulated runtime. Not built for a GPU.
#if defined(CONTINUO_EMULATE)

#include "test/check.h"
#include "test/cuda/emulated.h"

namespace continuo::test::cuda_events_test {

TEST("emulator: an event is reached with the work before it and no further, by the host or by a stream that waits") {
  CHECK(cudaDeviceReset() == cudaSuccess);
  const Late pace;
  cudaStream_t one = nullptr, other = nullptr;
  cudaEvent_t event = nullptr;
  int *numbers = nullptr, *pinned = nullptr;
  CHECK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking) == cudaSuccess &&
        cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking) == cudaSuccess);
  CHECK(cudaEventCreateWithFlags(&event, 0) == cudaErrorInvalidValue && cudaGetLastError() == cudaErrorInvalidValue);
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
  CHECK(cudaMalloc(&numbers, 4 * 4) == cudaSuccess && cudaMallocHost(&pinned, 4 * 4) == cudaSuccess);
  for (int i = 0; i < 4; ++i) pinned[i] = i;
  const auto upload = [&](int at) {
    CHECK(cudaMemcpyAsync(numbers + at, pinned + at, 4, cudaMemcpyHostToDevice, one) == cudaSuccess);
  };
  // Device memory is host memory here.
  const auto there = [&](int at) { return numbers[at] == at; };
  const auto waits = emulate::calls().waits;
  CHECK(cudaEventSynchronize(event) == cudaSuccess);  // not recorded yet
  upload(0);
  CHECK(cudaEventRecord(event, one) == cudaSuccess);
  upload(1);
  CHECK(!there(0));
  CHECK(cudaEventSynchronize(event) == cudaSuccess && there(0) && !there(1));
  // Each record is another place; who waits for the one before has that.
  CHECK(cudaEventRecord(event, one) == cudaSuccess && cudaStreamWaitEvent(other, event) == cudaSuccess);
  upload(2);
  CHECK(cudaEventRecord(event, one) == cudaSuccess);
  upload(3);
  CHECK(emulate::calls().waits == waits && !there(1));
  CHECK(cudaStreamSynchronize(other) == cudaSuccess && there(1) && !there(2));
  CHECK(cudaEventSynchronize(event) == cudaSuccess && there(2) && !there(3));
  CHECK(cudaStreamSynchronize(one) == cudaSuccess && there(3) && emulate::calls().waits == waits + 2);
  // A stream that waits for itself does not wait; a capture takes no events.
  CHECK(cudaEventRecord(event, one) == cudaSuccess && cudaStreamWaitEvent(one, event) == cudaSuccess &&
        cudaStreamSynchronize(one) == cudaSuccess);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(one, event) == cudaErrorStreamCaptureUnsupported &&
        cudaEventRecord(event, one) == cudaErrorStreamCaptureUnsupported &&
        cudaEventSynchronize(event) == cudaErrorStreamCaptureUnsupported);
  (void)cudaGetLastError();
  CHECK(cudaStreamEndCapture(one, &graph) == cudaSuccess && cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(cudaEventDestroy(event) == cudaSuccess && cudaEventDestroy(nullptr) == cudaErrorInvalidResourceHandle);
  (void)cudaGetLastError();
  CHECK(cudaStreamDestroy(one) == cudaSuccess && cudaStreamDestroy(other) == cudaSuccess &&
        cudaFree(numbers) == cudaSuccess && cudaFreeHost(pinned) == cudaSuccess);
}

}  // namespace continuo::test::cuda_events_test

#endif
