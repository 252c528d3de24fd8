// Pieces read by io_uring, by its system calls themselves (io_uring_setup(2)): two rings that the kernel and this
// process share. The process writes entries at the tail of the submission ring, the kernel writes ends at the tail of
// the completion ring, and each moves its own head or tail alone.
//
// The thread that waits sleeps in poll on one eventfd: the kernel counts it up with every end, and wake() does.
#include "experts/disk.h"

#if defined(__linux__) && __has_include(<linux/io_uring.h>)
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <linux/io_uring.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

namespace continuo::experts {

namespace {

// A mapping of the ring's descriptor; it is unmapped at the end.
class Mapping {
 public:
  Mapping() = default;
  ~Mapping() {
    if (data_) ::munmap(data_, bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  bool map(int fd, size_t bytes, uint64_t offset) {
    void* data =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, static_cast<off_t>(offset));
    if (data == MAP_FAILED) return false;
    data_ = static_cast<std::byte*>(data);
    bytes_ = bytes;
    return true;
  }
  template <class T> T* at(size_t offset) const { return reinterpret_cast<T*>(data_ + offset); }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

class RingDisk : public Disk {
 public:
  ~RingDisk() override {
    if (ring_ >= 0) ::close(ring_);
    if (event_ >= 0) ::close(event_);
  }

  // 0, or errno.
  int open(size_t depth) {
    io_uring_params params{};
    ring_ = static_cast<int>(::syscall(__NR_io_uring_setup, static_cast<unsigned>(depth), &params));
    if (ring_ < 0) return errno;
    // Since 5.5: both rings in one mapping, and no end is lost where their ring is full.
    constexpr unsigned needed = IORING_FEAT_SINGLE_MMAP | IORING_FEAT_NODROP;
    if ((params.features & needed) != needed) return ENOSYS;
    const size_t bytes = std::max(params.sq_off.array + params.sq_entries * sizeof(unsigned),
                                  params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe));
    if (!rings_.map(ring_, bytes, IORING_OFF_SQ_RING)) return errno;
    if (!entries_.map(ring_, params.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES)) return errno;
    sq_tail_ = rings_.at<unsigned>(params.sq_off.tail);
    sq_mask_ = *rings_.at<unsigned>(params.sq_off.ring_mask);
    sq_array_ = rings_.at<unsigned>(params.sq_off.array);
    cq_head_ = rings_.at<unsigned>(params.cq_off.head);
    cq_tail_ = rings_.at<unsigned>(params.cq_off.tail);
    cq_mask_ = *rings_.at<unsigned>(params.cq_off.ring_mask);
    ends_ = rings_.at<io_uring_cqe>(params.cq_off.cqes);
    event_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (event_ < 0) return errno;
    if (::syscall(__NR_io_uring_register, ring_, IORING_REGISTER_EVENTFD, &event_, 1) != 0) return errno;
    parts_.resize(params.sq_entries);
    free_.resize(params.sq_entries);
    for (unsigned i = 0; i < params.sq_entries; ++i) free_[i] = i;
    return 0;
  }

  // An entry keeps its place in the ring and its iovec until it has ended: the kernel may read both late.
  void start(uint64_t token, const Piece& piece) override {
    const unsigned place = free_.back();
    free_.pop_back();
    parts_[place] = {{piece.to.data(), piece.to.size()}, token};
    io_uring_sqe& entry = entries_.at<io_uring_sqe>(0)[place];
    entry = {};
    entry.opcode = IORING_OP_READV;
    entry.fd = piece.fd;
    entry.off = piece.offset;
    entry.addr = reinterpret_cast<uintptr_t>(&parts_[place].vector);
    entry.len = 1;
    entry.user_data = place;
    const unsigned tail = *sq_tail_;
    sq_array_[tail & sq_mask_] = place;
    __atomic_store_n(sq_tail_, tail + 1, __ATOMIC_RELEASE);
    ++unsubmitted_;
  }

  void wait(std::optional<Time> until, std::vector<PieceEnd>& ended) override {
    submit();
    if (collect(ended)) return;
    // Counts left by ends that were collected before only make the wait end once too early.
    ::pollfd watched{event_, POLLIN, 0};
    ::poll(&watched, 1, milliseconds_to(until));
    uint64_t count = 0;
    if (::read(event_, &count, sizeof count) < 0) count = 0;
    collect(ended);
  }

  void wake() override {
    const uint64_t one = 1;
    // It can only fail where the count is at its limit, and then the wait ends anyway.
    if (::write(event_, &one, sizeof one) < 0) return;
  }

 private:
  struct Part {
    iovec vector;
    uint64_t token;
  };

  // What the kernel does not take now (EAGAIN, EBUSY: it has no memory for more) it is given at the next wait, which
  // then does not sleep for long.
  void submit() {
    while (unsubmitted_ > 0) {
      const long n = ::syscall(__NR_io_uring_enter, ring_, unsubmitted_, 0, 0, nullptr, 0);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return;
      unsubmitted_ -= static_cast<unsigned>(n);
    }
  }

  int milliseconds_to(std::optional<Time> until) const {
    constexpr int soon = 1, a_minute = 60'000;
    int out = -1;
    if (until) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*until - std::chrono::steady_clock::now()).count();
      out = static_cast<int>(std::clamp<int64_t>(left, 0, a_minute));
    }
    return unsubmitted_ == 0 ? out : out < 0 ? soon : std::min(out, soon);
  }

  bool collect(std::vector<PieceEnd>& ended) {
    unsigned head = *cq_head_;
    const unsigned tail = __atomic_load_n(cq_tail_, __ATOMIC_ACQUIRE);
    if (head == tail) return false;
    for (; head != tail; ++head) {
      const io_uring_cqe& end = ends_[head & cq_mask_];
      const auto place = static_cast<unsigned>(end.user_data);
      ended.push_back({parts_[place].token, end.res});
      free_.push_back(place);
    }
    __atomic_store_n(cq_head_, head, __ATOMIC_RELEASE);
    return true;
  }

  int ring_ = -1, event_ = -1;
  Mapping rings_, entries_;
  unsigned *sq_tail_ = nullptr, *sq_array_ = nullptr, *cq_head_ = nullptr, *cq_tail_ = nullptr;
  unsigned sq_mask_ = 0, cq_mask_ = 0;
  io_uring_cqe* ends_ = nullptr;
  std::vector<Part> parts_;
  std::vector<unsigned> free_;
  unsigned unsubmitted_ = 0;
};

}  // namespace

std::unique_ptr<Disk> ring_disk(size_t depth, int& why) {
  auto out = std::make_unique<RingDisk>();
  why = out->open(depth);
  if (why != 0) return nullptr;
  return out;
}

}  // namespace continuo::experts
#else
#include <cerrno>

namespace continuo::experts {

std::unique_ptr<Disk> ring_disk(size_t, int& why) {
  why = ENOSYS;
  return nullptr;
}

}  // namespace continuo::experts
#endif
