// The threads of a block as fibers. A fiber has a stack; the host thread keeps its fibers from launch to launch.
//
//   unstarted ─▶ running ─▶ done
//                 │   ▲
//     a barrier,  ▼   │  all threads of the block, or of the mask, have arrived
//     a meeting  waiting
//
// A meeting is a shuffle or a vote of the lanes of a mask. After a thread that ended without waiting, the next thread
// runs on the same fiber, so kernels without barriers never switch stacks.

#if !defined(__x86_64__)
// glibc's checked longjmp takes a jump to another stack for an attack.
#undef _FORTIFY_SOURCE
#include <setjmp.h>
#include <ucontext.h>
#endif
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "test/emulate/cuda.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#if defined(__x86_64__)
// Switches stacks: saves the position of the calling stack in *from, and resumes another stack. The ABI makes a
// function preserve six registers, so those are saved. Rounding mode and exception flags stay those of the host thread.
extern "C" void continuo_emulate_switch(void** from, void* to);
asm(R"(
.pushsection .text
.type continuo_emulate_switch, @function
continuo_emulate_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size continuo_emulate_switch, . - continuo_emulate_switch
.popsection
)");
#endif

constinit thread_local uint3 threadIdx{}, blockIdx{};
constinit thread_local dim3 blockDim{}, gridDim{};

namespace continuo::emulate {

namespace {

constexpr uint32_t most_threads = 1024, warp_lanes = 32;

[[noreturn]] __attribute__((format(printf, 1, 2))) void die(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::fputs("The emulated GPU stops: ", stderr);
  std::vfprintf(stderr, format, arguments);
  std::fputs("\n", stderr);
  va_end(arguments);
  std::abort();
}

bool same_place(const std::source_location& a, const std::source_location& b) {
  return a.line() == b.line() && (a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0);
}

class Fiber {
 public:
  Fiber() = default;  // the host thread's own
  // `number`: which of its machine's. Stacks begin at different places of their pages, or the lines that all of them
  // use would lie in the same few sets of the first cache.
  Fiber(void (*body)(), size_t number) {
    const size_t room = bytes - number % 60 * 64;
    memory_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory_ == MAP_FAILED) die("there is no memory for the stack of a thread.");
    // Running past the end of a stack ends the process instead of writing into the next one.
    ::mprotect(memory_, static_cast<size_t>(::sysconf(_SC_PAGESIZE)), PROT_NONE);
#if defined(__x86_64__)
    // A stack as it is after a switch away from the beginning of `body`: six saved registers, and no caller.
    auto* top = reinterpret_cast<uint64_t*>(static_cast<std::byte*>(memory_) + room);
    *--top = 0;
    *--top = reinterpret_cast<uint64_t>(body);
    for (int i = 0; i < 6; ++i) *--top = 0;
    stack_ = top;
#else
    ::getcontext(&context_);
    context_.uc_stack.ss_sp = memory_;
    context_.uc_stack.ss_size = room;
    context_.uc_link = nullptr;
    ::makecontext(&context_, body, 0);
#endif
  }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber() {
    if (!memory_) return;
#if defined(__SANITIZE_ADDRESS__)
    // The fiber never returned from its frames: AddressSanitizer must forget them before the memory is mapped again.
    __asan_unpoison_memory_region(memory_, bytes);
#endif
    ::munmap(memory_, bytes);
  }

  static void change(Fiber& from, Fiber& to) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&from.shadow_, to.memory_ ? to.memory_ : host_stack_,
                                   to.memory_ ? bytes : host_bytes_);
#endif
#if defined(__x86_64__)
    continuo_emulate_switch(&from.stack_, to.stack_);
#else
    jump(from, to);
#endif
    from.arrived();
  }

  // The first thing that a fiber does once it runs again: AddressSanitizer is told of every switch.
  void arrived() {
#if defined(__SANITIZE_ADDRESS__)
    const void* stack = nullptr;
    size_t size = 0;
    __sanitizer_finish_switch_fiber(shadow_, &stack, &size);
    // The first switch of a host thread comes from its own stack.
    if (!host_stack_) host_stack_ = stack, host_bytes_ = size;
#endif
  }

 private:
#if defined(__SANITIZE_ADDRESS__)
  static constexpr size_t bytes = size_t{1} << 19;
  void* shadow_ = nullptr;
  static thread_local const void* host_stack_;
  static thread_local size_t host_bytes_;
#else
  static constexpr size_t bytes = size_t{1} << 17;
#endif
  void* memory_ = nullptr;
#if defined(__x86_64__)
  void* stack_ = nullptr;
#else
  // swapcontext makes a system call at each switch; here only the first switch to a fiber needs it.
  __attribute__((noinline)) static void jump(Fiber& from, Fiber& to) {
    if (_setjmp(from.registers_) != 0) return;
    if (to.memory_ && !to.begun_) {
      to.begun_ = true;
      ::setcontext(&to.context_);
    }
    _longjmp(to.registers_, 1);
  }
  ucontext_t context_{};
  jmp_buf registers_;
  bool begun_ = false;
#endif
};

#if defined(__SANITIZE_ADDRESS__)
thread_local const void* Fiber::host_stack_ = nullptr;
thread_local size_t Fiber::host_bytes_ = 0;
#endif

// Numbers 0 … n − 1 in some order: the step is prime to n and, as the first number, below it (of 1, at most 1).
struct Walk {
  uint64_t n = 1, here = 0, step = 1;
  uint64_t next() {
    const uint64_t number = here;
    here += step;
    if (here >= n) here -= n;
    return number;
  }
  static Walk make(Order order, uint64_t n, uint64_t seed) {
    switch (order) {
      case Order::backward: return {n, n - 1, n - 1};
      case Order::shuffled: {
        constexpr uint64_t primes[] = {2147483647, 2147483629, 2147483587, 2147483579};
        const uint64_t prime = primes[seed / 7 % 4] % n;
        return {n, seed % n, prime == 0 ? 1 : prime};
      }
      default: return {n, 0, 1};
    }
  }
};

struct Thread {
  uint32_t number = 0;
  uint3 index{};
  Fiber* fiber = nullptr;
  // The meeting at which the thread waits.
  Meeting meeting{};
  uint32_t mask = 0, from = 0;
  uint64_t value = 0, result = 0;
  std::source_location where;
};

class Machine {
 public:
  static Machine& own() {
    static constinit thread_local Machine* near = nullptr;
    if (!near) {
      static thread_local Machine machine;
      near = &machine;
    }
    return *near;
  }

  void use(Order order) { order_ = order; }

  void run(dim3 grid, dim3 block, const std::function<void()>& thread) {
    if (running_) die("a kernel launches a kernel.");
    const uint64_t wanted = uint64_t{block.x} * block.y * block.z;
    if (wanted > most_threads) {
      die("a block of %llu threads was launched; at most %u are possible.", static_cast<unsigned long long>(wanted),
          most_threads);
    }
    threads_ = static_cast<uint32_t>(wanted);
    body_ = &thread;
    running_ = true;
    blockDim = block, gridDim = grid;
    for (uint32_t i = 0; i < threads_; ++i)
      table_[i].number = i, table_[i].index = {i % block.x, i / block.x % block.y, i / block.x / block.y};
    Walk blocks = walk(uint64_t{grid.x} * grid.y * grid.z);
    for (uint64_t i = 0; i < blocks.n; ++i) {
      const uint64_t at = blocks.next();
      blockIdx = {static_cast<unsigned int>(at % grid.x), static_cast<unsigned int>(at / grid.x % grid.y),
                  static_cast<unsigned int>(at / grid.x / grid.y)};
      run_block();
    }
    running_ = false;
  }

  void barrier(const std::source_location& where) {
    Thread& thread = current("__syncthreads");
    if (waiting_ == 0) {
      barrier_ = where;
    } else if (!same_place(where, barrier_)) {
      die("the threads of a block part: one waits at the barrier in %s:%u, another at the one in %s:%u.",
          barrier_.file_name(), barrier_.line(), where.file_name(), where.line());
    }
    if (++waiting_ == threads_) {
      waiting_ = 0;
      Walk order = begin();
      for (uint32_t i = 0; i < threads_; ++i) make_ready(table_[order.next()]);
    }
    leave(thread);
  }

  uint64_t meet(Meeting meeting, uint32_t mask, uint64_t value, uint32_t from, const std::source_location& where) {
    Thread& thread = current("what a warp does together");
    const uint32_t warp = thread.number / warp_lanes, own = thread.number % warp_lanes,
                   left = threads_ - warp * warp_lanes;
    if (left < warp_lanes) mask &= (1u << left) - 1;
    if ((mask >> own & 1) == 0)
      die("lane %u is not in the mask %08x with which it calls %s:%u.", own, mask, where.file_name(), where.line());
    if (meeting == Meeting::shuffle && (mask >> from & 1) == 0)
      die("lane %u shuffles from lane %u, which is not in the mask %08x, in %s:%u.", own, from, mask, where.file_name(),
          where.line());
    thread.meeting = meeting, thread.mask = mask, thread.from = from, thread.value = value, thread.where = where;
    uint32_t& there = there_[warp];
    there |= 1u << own;
    if ((there & mask) == mask) {
      there &= ~mask;
      conclude(&table_[warp * warp_lanes], thread);
    }
    leave(thread);
    return thread.result;
  }

  uint32_t lane() { return current("what a warp does together").number % warp_lanes; }

 private:
  Thread& current(const char* what) {
    if (!running_) die("%s is called outside of a kernel.", what);
    return *current_;
  }

  Walk walk(uint64_t n) {
    ++walks_;
    constexpr Order orders[] = {Order::forward, Order::backward, Order::shuffled};
    return Walk::make(order_ == Order::varied ? orders[walks_ % 3] : order_, n, walks_ * 0x9E3779B97F4A7C15u >> 20);
  }

  // The order of a block's threads up to their next barrier. At times a warp whose lanes have met runs ahead of all
  // others, at times it goes to the end of the queue.
  Walk begin() {
    const Walk order = walk(threads_);
    ahead_ = order_ == Order::backward || (order_ != Order::forward && (walks_ * 0x9E3779B97F4A7C15u >> 63) != 0);
    return order;
  }

  // All lanes of the mask have arrived: the meeting takes place.
  void conclude(Thread* warp, const Thread& last) {
    uint64_t votes = 0;
    for (uint32_t lane = 0; lane < warp_lanes; ++lane) {
      if ((last.mask >> lane & 1) == 0) continue;
      const Thread& other = warp[lane];
      if (other.meeting != last.meeting || other.mask != last.mask || !same_place(other.where, last.where)) {
        die("the lanes of a warp part: lane %u is at %s:%u with mask %08x, lane %u at %s:%u with mask %08x.", lane,
            other.where.file_name(), other.where.line(), other.mask, last.number % warp_lanes, last.where.file_name(),
            last.where.line(), last.mask);
      }
      votes |= other.value << lane;
    }
    Walk order = walk(warp_lanes);
    for (uint32_t i = 0; i < warp_lanes; ++i) {
      const uint64_t number = order.next();
      if ((last.mask >> number & 1) == 0) continue;
      Thread& lane = warp[number];
      lane.result = last.meeting == Meeting::ballot    ? votes
                    : last.meeting == Meeting::shuffle ? warp[lane.from].value
                                                       : 0;
      make_ready(lane, ahead_);
    }
  }

  void make_ready(Thread& thread, bool ahead = false) {
    if (ahead) ready_from_ = (ready_from_ + most_threads - 1) % most_threads;
    ready_[(ready_from_ + (ahead ? 0 : ready_count_)) % most_threads] = &thread;
    ++ready_count_;
  }

  void run_block() {
    started_ = done_ = waiting_ = ready_count_ = 0;
    std::fill_n(there_, most_threads / warp_lanes, 0u);
    starts_ = begin();
    Fiber::change(host_, idle());
  }

  // The body of a fiber: runs unstarted threads, one after the other, until none is left; then those of the next block.
  static void live() {
    Machine& machine = own();
    Fiber* self = machine.entering_;
    self->arrived();
    for (;;) {
      while (machine.started_ < machine.threads_) {
        Thread& thread = machine.table_[machine.starts_.next()];
        ++machine.started_;
        thread.fiber = self;
        machine.current_ = &thread;
        threadIdx = thread.index;
        (*machine.body_)();
        ++machine.done_;
      }
      machine.idle_.push_back(self);
      Fiber& next = machine.next();
      if (&next != self) Fiber::change(*self, next);
    }
  }

  Fiber& idle() {
    if (idle_.empty()) {
      fibers_.push_back(std::make_unique<Fiber>(live, fibers_.size()));
      return *(entering_ = fibers_.back().get());
    }
    Fiber& fiber = *idle_.back();
    idle_.pop_back();
    return fiber;
  }

  // Picks the next thread to run: one whose wait is over, an unstarted one, or, when all are done, the host.
  Fiber& next() {
    if (ready_count_ > 0) {
      current_ = ready_[ready_from_];
      ready_from_ = (ready_from_ + 1) % most_threads;
      --ready_count_;
      return *current_->fiber;
    }
    if (started_ < threads_) return idle();
    if (done_ == threads_) return host_;
    if (waiting_ > 0) {
      die("%u of the %u threads of a block wait at the barrier in %s:%u, which the others never reach.", waiting_,
          threads_, barrier_.file_name(), barrier_.line());
    }
    for (uint32_t i = 0; i < threads_; ++i) {
      if ((there_[i / warp_lanes] >> i % warp_lanes & 1) == 0) continue;
      die("thread %u waits in %s:%u for lanes of the mask %08x that never come.", i, table_[i].where.file_name(),
          table_[i].where.line(), table_[i].mask);
    }
    die("no thread of a block can go on.");
  }

  // Switches away from the calling thread, which waits or lets another thread run first.
  void leave(Thread& thread) {
    Fiber& to = next();
    if (&to != thread.fiber) Fiber::change(*thread.fiber, to);
    threadIdx = thread.index;
  }

  Order order_ = Order::varied;
  uint64_t walks_ = 0;
  bool running_ = false, ahead_ = false;
  uint32_t threads_ = 0;
  const std::function<void()>* body_ = nullptr;
  Thread table_[most_threads];
  uint32_t started_ = 0, done_ = 0, waiting_ = 0;
  Walk starts_;
  std::source_location barrier_;
  uint32_t there_[most_threads / warp_lanes] = {};
  Thread* current_ = nullptr;
  Thread* ready_[most_threads] = {};
  uint32_t ready_from_ = 0, ready_count_ = 0;
  Fiber host_;
  Fiber* entering_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
};

}  // namespace

void use_order(Order order) { Machine::own().use(order); }
void barrier(const std::source_location& where) { Machine::own().barrier(where); }
uint64_t meet(Meeting meeting, unsigned int mask, uint64_t value, unsigned int from,
              const std::source_location& where) {
  return Machine::own().meet(meeting, mask, value, from, where);
}
unsigned int lane() { return Machine::own().lane(); }
void run_grid(dim3 grid, dim3 block, const std::function<void()>& thread) { Machine::own().run(grid, block, thread); }

}  // namespace continuo::emulate
