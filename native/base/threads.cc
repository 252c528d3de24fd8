#include "base/threads.h"

#include <cfenv>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace continuo {

namespace {

constexpr uint64_t open_bit = uint64_t{1} << 31;
constexpr uint64_t one_job = uint64_t{1} << 32;
constexpr uint64_t inside_mask = open_bit - 1;

// During a step, jobs follow each other within microseconds, and waking a sleeping thread costs tens of microseconds.
// So a worker polls for a while (well under a millisecond) before it sleeps, and yields to other threads in between.
constexpr int looks = 3200;
constexpr int pauses = 4;  // a few hundred cycles: a longer wait would be noticed, at a hundred jobs a token
constexpr int looks_between_yields = 64;

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

uint64_t job_of(uint64_t door) { return door / one_job; }

}  // namespace

ThreadPool::ThreadPool(size_t threads) {
  try {
    for (size_t i = 1; i < threads; ++i) workers_.emplace_back([this] { worker(); });
  } catch (...) {
    // The system refuses another thread. The threads that run already must be joined before the exception leaves.
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  stopping_.store(true);
  alarm_.fetch_add(1);
  alarm_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::take_tasks() {
  for (;;) {
    const size_t i = next_.fetch_add(1, std::memory_order_relaxed);
    if (i >= tasks_) return;
    call_(context_, i);
  }
}

void ThreadPool::run(size_t tasks, Call call, const void* context) {
  call_ = call;
  context_ = context;
  tasks_ = tasks;
  next_.store(0, std::memory_order_relaxed);
  const uint64_t job = (job_of(door_.load(std::memory_order_relaxed)) + 1) % one_job;
  // This store and the load of sleepers_ are sequentially consistent: either the caller sees the sleeper, or the worker
  // sees the open door before it sleeps.
  door_.store(job * one_job | open_bit);
  if (sleepers_.load() > 0) {
    alarm_.fetch_add(1);
    alarm_.notify_all();
  }
  take_tasks();
  door_.fetch_and(~open_bit, std::memory_order_acq_rel);
  for (int look = 0; (door_.load(std::memory_order_acquire) & inside_mask) != 0; ++look) {
    // A worker that is still inside is finishing its last task.
    for (int i = 0; i < pauses; ++i) pause();
    if (look > looks) std::this_thread::yield();
  }
}

// Waits until the door is open for another job than `seen`. False when the pool stops.
bool ThreadPool::wait_for_door(uint64_t seen) {
  const auto open = [&] {
    const uint64_t door = door_.load();
    return (door & open_bit) != 0 && job_of(door) != seen;
  };
  for (;;) {
    for (int look = 0; look < looks; ++look) {
      if (stopping_.load(std::memory_order_relaxed)) return false;
      if (open()) return true;
      for (int i = 0; i < pauses; ++i) pause();
      if (look % looks_between_yields == looks_between_yields - 1) std::this_thread::yield();
    }
    const uint32_t heard = alarm_.load();
    sleepers_.fetch_add(1);
    if (!open() && !stopping_.load()) alarm_.wait(heard);
    sleepers_.fetch_sub(1);
  }
}

void use_default_arithmetic() { std::fesetenv(FE_DFL_ENV); }

void ThreadPool::worker() {
  use_default_arithmetic();
  uint64_t seen = 0;
  while (wait_for_door(seen)) {
    uint64_t door = door_.load(std::memory_order_acquire);
    if ((door & open_bit) == 0) continue;
    if (!door_.compare_exchange_strong(door, door + 1, std::memory_order_acquire)) continue;
    seen = job_of(door);
    take_tasks();
    door_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace continuo
