// The emulator itself: errors that it must detect, and the rules of the runtime. Not built for a GPU.
#if defined(CONTINUO_EMULATE)

#include <numeric>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "backends/cuda/kernels/launch.h"
#include "test/check.h"

namespace continuo::test::cuda_emulator_test {

using cuda::launch;

namespace {

// The end of a process that runs only `body`: whether it aborted, and its output on stderr.
struct End {
  bool aborted;
  std::string said;
};
template <class F> End alone(const F& body) {
  int ends[2];
  if (::pipe(ends) != 0) return {false, "no pipe"};
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], 2);
    ::close(ends[0]);
    body();
    ::_exit(0);
  }
  ::close(ends[1]);
  End end{};
  char buffer[512];
  for (ssize_t n; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;) end.said.append(buffer, static_cast<size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  end.aborted = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
  return end;
}

// Launches into the default stream, and waits.
template <class... Parameters, class... Arguments>
cudaError_t launch_and_wait(void (*kernel)(Parameters...), dim3 grid, dim3 block, const Arguments&... arguments) {
  launch(kernel, grid, block, nullptr, arguments...);
  return cudaDeviceSynchronize();
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// Each thread passes its neighbour's number on, twice around the block.
__global__ void pass_on(int* out, bool barrier) {
  __shared__ int numbers[256];
  const unsigned int i = threadIdx.x, next = (i + 1) % blockDim.x;
  numbers[i] = static_cast<int>(i + 1000 * blockIdx.x);
  __syncthreads();
  const int mine = numbers[next];
  if (barrier) __syncthreads();
  numbers[i] = mine + 1;
  __syncthreads();
  out[blockIdx.x * blockDim.x + i] = numbers[next];
}

std::vector<int> passed_on(emulate::Order order, bool barrier, cudaStream_t stream = nullptr) {
  std::vector<int> out(3 * 256);
  emulate::use_order(order);
  launch(pass_on, 3, 256, stream, out.data(), barrier);
  (void)cudaStreamSynchronize(stream);
  emulate::use_order(emulate::Order::varied);
  return out;
}

constexpr unsigned int all = 0xFFFFFFFFu;

// Every warp writes its sum where all warps read it, twice.
__global__ void sums_of_warps(int* out, bool barrier) {
  __shared__ int sums[4];
  int total = 0;
  for (int pass = 0; pass < 2; ++pass) {
    int sum = static_cast<int>(threadIdx.x) * (pass + 1);
    for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(all, sum, by);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    for (const int each : sums) total += each;
    if (barrier) __syncthreads();
  }
  out[threadIdx.x] = total;
}

std::vector<int> summed(emulate::Order order, bool barrier) {
  std::vector<int> out(128);
  emulate::use_order(order);
  launch_and_wait(sums_of_warps, 1, 128, out.data(), barrier);
  emulate::use_order(emulate::Order::varied);
  return out;
}

__global__ void warp_sums(int* sums, unsigned int* votes, int* firsts) {
  const unsigned int i = threadIdx.x;
  int sum = static_cast<int>(i);
  for (int by = 8; by > 0; by /= 2) sum += __shfl_down_sync(all, sum, static_cast<unsigned int>(by), 16);
  int around = static_cast<int>(i);
  for (int by = 16; by > 0; by /= 2) around += __shfl_xor_sync(all, around, by);
  sums[2 * i] = sum, sums[2 * i + 1] = around;
  votes[3 * i] = __ballot_sync(all, i % 3 == 0);
  votes[3 * i + 1] = static_cast<unsigned int>(__any_sync(all, i == 40));
  votes[3 * i + 2] = static_cast<unsigned int>(__all_sync(all, i < 40));
  // Each half of a warp separately.
  const unsigned int half = i % 32 < 16 ? 0x0000FFFFu : 0xFFFF0000u;
  firsts[i] = __shfl_sync(half, static_cast<int>(i), 3, 16);
  if (i % 32 < 16) firsts[i] += __shfl_sync(0x0000FFFFu, 100, 0, 16);
  __syncwarp();
}

__global__ void half_waits(int* out) {
  if (threadIdx.x < 32) __syncthreads();
  out[threadIdx.x] = 1;
}

__global__ void part_at_barriers(int* out) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = 1;
}

__global__ void half_shuffles(int* out) {
  int x = 1;
  if (threadIdx.x < 16) x = __shfl_xor_sync(all, x, 1);
  out[threadIdx.x] = x;
}

__global__ void reads_outside(int* out) { out[threadIdx.x] = __shfl_sync(0x0000FFFFu << (threadIdx.x & 16u), 1, 20); }

__global__ void count_up(int* numbers, int by) { numbers[blockIdx.x * blockDim.x + threadIdx.x] += by; }

__global__ void block_indices(unsigned int* out) {
  const unsigned int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x,
                     size = blockDim.x * blockDim.y * blockDim.z;
  out[block * size + (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x] += block + 1;
}

class Setting {
 public:
  Setting(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
  ~Setting() { ::unsetenv(name_); }

 private:
  const char* name_;
};

}  // namespace

TEST("emulator: every thread of every block runs once, in each order; barriers hold whatever the order") {
  for (const auto order :
       {emulate::Order::forward, emulate::Order::backward, emulate::Order::shuffled, emulate::Order::varied}) {
    emulate::use_order(order);
    std::vector<unsigned int> out(5 * 3 * 2 * 4 * 3 * 2);
    launch_and_wait(block_indices, dim3(5, 3, 2), dim3(4, 3, 2), out.data());
    bool once = true;
    for (size_t i = 0; i < out.size(); ++i) once = once && out[i] == i / 24 + 1;
    CHECK(once);
    emulate::use_order(emulate::Order::varied);
    const auto numbers = passed_on(order, true);
    bool right = true;
    for (size_t i = 0; i < numbers.size(); ++i)
      right = right && numbers[i] == static_cast<int>((i % 256 + 2) % 256 + 1000 * (i / 256)) + 1;
    CHECK(right);
  }
}

TEST("emulator: a missing barrier shows, as its results depend on the order of the threads") {
  CHECK(passed_on(emulate::Order::forward, false) != passed_on(emulate::Order::backward, false));
  CHECK(passed_on(emulate::Order::forward, true) == passed_on(emulate::Order::backward, true));
  // A warp that runs ahead overwrites numbers that the other warps have not read yet.
  CHECK(summed(emulate::Order::backward, false) != std::vector<int>(128, 3 * 127 * 64));
  CHECK(summed(emulate::Order::backward, true) == std::vector<int>(128, 3 * 127 * 64));
}

TEST("emulator: shuffles and votes are those of CUDA, over warps and parts of them") {
  for (int round = 0; round < 5; ++round) {
    std::vector<int> sums(2 * 64), firsts(64);
    std::vector<unsigned int> votes(3 * 64);
    launch_and_wait(warp_sums, 1, 64, sums.data(), votes.data(), firsts.data());
    for (int i = 0; i < 64; ++i) {
      const int warp = i / 32 * 32;
      if (i % 16 == 0) CHECK(sums[static_cast<size_t>(2 * i)] == 16 * i + 120);
      CHECK(sums[static_cast<size_t>(2 * i + 1)] == 32 * warp + 496);
      unsigned int thirds = 0;
      for (int lane = 0; lane < 32; ++lane) thirds |= ((warp + lane) % 3 == 0 ? 1u : 0u) << lane;
      const size_t vote = 3 * static_cast<size_t>(i);
      CHECK(votes[vote] == thirds && votes[vote + 1] == (i < 32 ? 0u : 1u) && votes[vote + 2] == (i < 32 ? 1u : 0u));
      CHECK(firsts[static_cast<size_t>(i)] == i / 16 * 16 + 3 + (i % 32 < 16 ? 100 : 0));
    }
  }
  CHECK(__dp4a(static_cast<int>(0x80FF7F01u), static_cast<int>(0x80027F03u), -5) == 128 * 128 - 2 + 127 * 127 + 3 - 5);
}

TEST("emulator: a barrier that some threads never reach, and lanes that do not meet, end the process with a sentence") {
  std::vector<int> out(64);
  const auto run = [&](auto kernel) { return alone([&] { launch_and_wait(kernel, 1, 64, out.data()); }); };
  for (int round = 0; round < 3; ++round) {
    const End half = run(half_waits), parted = run(part_at_barriers), lanes = run(half_shuffles),
              outside = run(reads_outside);
    CHECK(half.aborted && contains(half.said, "32 of the 64 threads") && contains(half.said, "cuda_emulator_test.cc"));
    CHECK(parted.aborted && contains(parted.said, "the threads of a block part"));
    CHECK(lanes.aborted && contains(lanes.said, "that never come"));
    CHECK(outside.aborted && contains(outside.said, "which is not in the mask"));
  }
  const End large = alone([&] { launch_and_wait(count_up, 1, 1056, out.data(), 1); });
  CHECK(large.aborted && contains(large.said, "1056 threads") && contains(large.said, "at most 1024"));
  const End stray = alone([] { __syncthreads(); });
  CHECK(stray.aborted && contains(stray.said, "outside of a kernel"));
}

TEST("emulator: host threads launch at the same time, each with threads and shared memory of its own") {
  std::vector<std::vector<int>> outs(4);
  std::vector<std::thread> threads;
  for (auto& out : outs) {
    threads.emplace_back([&out] {
      // Kernels of one stream run one after the other.
      cudaStream_t own = nullptr;
      (void)cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
      for (int round = 0; own && round < 50; ++round) out = passed_on(emulate::Order::varied, true, own);
      (void)cudaStreamDestroy(own);
    });
  }
  for (auto& thread : threads) thread.join();
  const auto want = passed_on(emulate::Order::forward, true);
  for (const auto& out : outs) CHECK(out == want);
}

TEST("emulator: device memory begins as NaN, is bounded, and copies keep within it") {
  CHECK(cudaDeviceReset() == cudaSuccess);
  float* numbers = nullptr;
  float host[64];
  CHECK(cudaMalloc(&numbers, sizeof host) == cudaSuccess);
  CHECK(cudaMemcpy(host, numbers, sizeof host, cudaMemcpyDeviceToHost) == cudaSuccess);
  for (const float x : host) CHECK(x != x);
  CHECK(cudaMemcpy(numbers, host, sizeof host + 4, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue && cudaGetLastError() == cudaSuccess);
  CHECK(cudaMemcpy(host, numbers, sizeof host, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy(host, numbers + 60, 32, cudaMemcpyDefault) == cudaErrorInvalidValue);
  CHECK(cudaMemset(numbers, 0, sizeof host) == cudaSuccess);
  CHECK(cudaMemcpy(host, numbers, sizeof host, cudaMemcpyDefault) == cudaSuccess && host[63] == 0);
  CHECK(cudaFree(numbers) == cudaSuccess && cudaFree(numbers) == cudaErrorInvalidValue &&
        cudaFree(nullptr) == cudaSuccess);
  const Setting memory("CONTINUO_EMULATED_MEMORY", "4096");
  CHECK(cudaDeviceReset() == cudaSuccess);
  size_t free = 0, total = 0;
  void *first = nullptr, *second = nullptr;
  CHECK(cudaMalloc(&first, 3000) == cudaSuccess && cudaMemGetInfo(&free, &total) == cudaSuccess && total == 4096 &&
        free == 1024);
  CHECK(cudaMalloc(&second, 1025) == cudaErrorMemoryAllocation && cudaGetLastError() == cudaErrorMemoryAllocation);
  CHECK(cudaMalloc(&second, 1024) == cudaSuccess);
  CHECK(cudaFree(first) == cudaSuccess && cudaMemGetInfo(&free, &total) == cudaSuccess && free == 3072);
  ::unsetenv("CONTINUO_EMULATED_MEMORY");
  CHECK(cudaDeviceReset() == cudaSuccess && cudaMemGetInfo(&free, &total) == cudaSuccess && free == total);
}

TEST(
    "emulator: what a captured stream is told is done when the graph is launched, as often as that is, with the "
    "arguments of then") {
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  int *numbers = nullptr, *copied = nullptr;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  CHECK(cudaMalloc(&numbers, 64 * 4) == cudaSuccess && cudaMallocHost(&copied, 64 * 4) == cudaSuccess);
  CHECK(cudaMemsetAsync(numbers, 0, 64 * 4, stream) == cudaSuccess);
  std::fill_n(copied, 64, -1);
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  int by = 3;
  launch(count_up, 2, 32, stream, numbers, by);
  by = 4;
  launch(count_up, 2, 32, stream, numbers, by);
  CHECK(cudaMemcpyAsync(copied, numbers, 64 * 4, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
  void* more = nullptr;
  CHECK(cudaMalloc(&more, 4) == cudaErrorStreamCaptureUnsupported &&
        cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);
  (void)cudaGetLastError();
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess && cudaGraphInstantiate(&exec, graph) == cudaSuccess &&
        cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(copied[0] == -1);
  for (int round = 1; round <= 3; ++round) {
    CHECK(cudaGraphLaunch(exec, stream) == cudaSuccess && cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(copied[0] == 7 * round && copied[63] == 7 * round);
  }
  CHECK(cudaGraphExecDestroy(exec) == cudaSuccess && cudaStreamDestroy(stream) == cudaSuccess &&
        cudaFree(numbers) == cudaSuccess && cudaFreeHost(copied) == cudaSuccess);
}

TEST(
    "emulator: a stream does what it is told late or at once: copies of pinned memory take what lies there then, "
    "others what lay there") {
  cudaStream_t one = nullptr, other = nullptr;
  int *numbers = nullptr, *pinned = nullptr, pageable[4];
  CHECK(cudaStreamCreateWithFlags(&one, 0) == cudaErrorInvalidValue && cudaGetLastError() == cudaErrorInvalidValue);
  CHECK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking) == cudaSuccess &&
        cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking) == cudaSuccess);
  CHECK(cudaMalloc(&numbers, sizeof pageable) == cudaSuccess &&
        cudaMallocHost(&pinned, sizeof pageable) == cudaSuccess);
  const auto both = [&](emulate::Pace pace, const auto& body) {
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    emulate::use_pace(pace);
    body(pace == emulate::Pace::late);
    emulate::use_pace(emulate::Pace::varied);
  };
  const auto upload = [&](const int* from) {
    CHECK(cudaMemcpyAsync(numbers, from, sizeof pageable, cudaMemcpyHostToDevice, one) == cudaSuccess);
  };
  for (const auto pace : {emulate::Pace::late, emulate::Pace::at_once}) {
    both(pace, [&](bool late) {
      std::fill_n(pinned, 4, 1);
      upload(pinned);
      std::fill_n(pinned, 4, 2);
      CHECK(cudaStreamSynchronize(one) == cudaSuccess && numbers[0] == (late ? 2 : 1));
    });
    both(pace, [&](bool) {
      std::fill_n(pageable, 4, 3);
      upload(pageable);
      std::fill_n(pageable, 4, 4);
      CHECK(cudaStreamSynchronize(one) == cudaSuccess && numbers[0] == 3);
    });
    // A wait for another stream does not run the work of this one.
    both(pace, [&](bool late) {
      launch(count_up, 1, 4, one, numbers, 10);
      CHECK(cudaMemcpyAsync(pinned, numbers, sizeof pageable, cudaMemcpyDeviceToHost, other) == cudaSuccess);
      CHECK(cudaStreamSynchronize(other) == cudaSuccess && pinned[0] == (late ? 3 : 13));
      CHECK(cudaMemcpyAsync(pageable, numbers, sizeof pageable, cudaMemcpyDeviceToHost, one) == cudaSuccess &&
            pageable[0] == 13);
    });
  }
  // With a varied pace, both results occur.
  size_t changed = 0;
  for (int round = 0; round < 64; ++round) {
    std::fill_n(pinned, 4, 1);
    upload(pinned);
    std::fill_n(pinned, 4, 2);
    CHECK(cudaStreamSynchronize(one) == cudaSuccess);
    changed += numbers[0] == 2;
  }
  CHECK(changed > 8 && changed < 56);
  CHECK(cudaStreamDestroy(one) == cudaSuccess && cudaStreamDestroy(other) == cudaSuccess &&
        cudaFree(numbers) == cudaSuccess);
  // Freeing memory before a copy of it is done makes the device fail.
  CHECK(cudaMalloc(&numbers, sizeof pageable) == cudaSuccess);
  emulate::use_pace(emulate::Pace::late);
  CHECK(cudaMemcpyAsync(numbers, pinned, sizeof pageable, cudaMemcpyHostToDevice) == cudaSuccess &&
        cudaFreeHost(pinned) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress && cudaMalloc(&numbers, 4) == cudaErrorIllegalAddress);
  emulate::use_pace(emulate::Pace::varied);
  CHECK(cudaDeviceReset() == cudaSuccess);
}

TEST(
    "emulator: a fault sticks to every call until the device is reset, and comes once; missing and old devices say "
    "what they are") {
  {
    const Setting fault("CONTINUO_EMULATED_FAULT", std::to_string(emulate::launches() + 2));
    CHECK(cudaDeviceReset() == cudaSuccess);
    int* numbers = nullptr;
    CHECK(cudaMalloc(&numbers, 64 * 4) == cudaSuccess);
    CHECK(launch_and_wait(count_up, 2, 32, numbers, 1) == cudaSuccess && cudaGetLastError() == cudaSuccess);
    CHECK(launch_and_wait(count_up, 2, 32, numbers, 1) == cudaErrorIllegalAddress);
    CHECK(cudaGetLastError() == cudaErrorIllegalAddress && cudaGetLastError() == cudaErrorIllegalAddress);
    CHECK(cudaMemset(numbers, 0, 4) == cudaErrorIllegalAddress && cudaDeviceSynchronize() == cudaErrorIllegalAddress &&
          cudaFree(numbers) == cudaErrorIllegalAddress);
    CHECK(cudaDeviceReset() == cudaSuccess && cudaGetLastError() == cudaSuccess);
    CHECK(cudaMalloc(&numbers, 64 * 4) == cudaSuccess);
    CHECK(launch_and_wait(count_up, 2, 32, numbers, 1) == cudaSuccess && cudaFree(numbers) == cudaSuccess);
  }
  int count = -1, version = -1;
  {
    const Setting device("CONTINUO_EMULATED_DEVICE", "none");
    CHECK(cudaDeviceReset() == cudaErrorNoDevice && cudaGetDeviceCount(&count) == cudaErrorNoDevice && count == 0);
    void* memory = nullptr;
    CHECK(cudaMalloc(&memory, 4) == cudaErrorNoDevice &&
          std::string(cudaGetErrorName(cudaErrorNoDevice)) == "cudaErrorNoDevice");
  }
  {
    const Setting device("CONTINUO_EMULATED_DEVICE", "driver");
    CHECK(cudaDeviceReset() == cudaErrorInsufficientDriver &&
          cudaGetDeviceCount(&count) == cudaErrorInsufficientDriver);
    CHECK(cudaDriverGetVersion(&version) == cudaSuccess && version == 11000);
  }
  {
    const Setting device("CONTINUO_EMULATED_DEVICE", "old");
    cudaDeviceProp properties;
    CHECK(cudaDeviceReset() == cudaSuccess && cudaGetDeviceProperties(&properties, 0) == cudaSuccess &&
          properties.major == 7 && properties.minor == 5);
    int number = 0;
    launch(count_up, 1, 1, nullptr, &number, 1);
    CHECK(cudaGetLastError() == cudaErrorNoKernelImageForDevice && number == 0);
  }
  CHECK(cudaDeviceReset() == cudaSuccess && cudaGetDeviceCount(&count) == cudaSuccess && count == 1);
}

}  // namespace continuo::test::cuda_emulator_test

#endif
