#include "experts/pack.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <new>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/file.h"
#include "base/sha256.h"
#include "experts/delta.h"

namespace continuo::experts {

namespace {

// Writes a file from its beginning.
class Writer {
 public:
  Writer(const std::string& path, int fd, uint64_t bytes) : path_(path), fd_(fd), bytes_(bytes) {}

  Status write(std::span<const std::byte> bytes) {
    if (const int why = write_all(fd_, bytes); why != 0) return failed(why);
    written_ += bytes.size();
    return Done{};
  }
  // Zeros up to the next multiple of `page`.
  Status pad() {
    static constexpr std::array<std::byte, page> zeros{};
    return write(std::span(zeros).first(static_cast<size_t>(padded(written_) - written_)));
  }
  Status sync() { return ::fsync(fd_) == 0 ? Status(Done{}) : failed(errno); }

 private:
  Error failed(int why) const {
    struct statvfs disk{};
    if ((why == ENOSPC || why == EDQUOT) && ::fstatvfs(fd_, &disk) == 0)
      return {Code::unavailable,
              text(path_, " needs ", bytes_, " bytes, and the disk has ", uint64_t{disk.f_bavail} * disk.f_frsize,
                   " free. The store is as it was; free some space and pack again.")};
    return {Code::unavailable, text(path_, " could not be written: ", std::strerror(why), ".")};
  }

  const std::string& path_;
  int fd_;
  uint64_t bytes_, written_ = 0;
};

// Trits that differ in the bytes x and y.
size_t differing(unsigned x, unsigned y) {
  size_t count = 0;
  for (size_t i = 0; i < 5; ++i, x /= 3, y /= 3) count += x % 3 != y % 3;
  return count;
}

// The share of their weights that two experts have different. Past the last input and the last output both have zeros,
// unless the source had anything there, which counts then.
double differing_share(const ExpertShape& shape, std::span<const std::byte> a, std::span<const std::byte> b) {
  size_t count = 0, weights = 0, at = 0;
  for (size_t which = 0; which < matrices; ++which) {
    const MatrixForm form = form_of(shape, which);
    for (size_t i = at; i < at + form.codes(); ++i)
      if (a[i] != b[i]) count += differing(std::to_integer<unsigned>(a[i]), std::to_integer<unsigned>(b[i]));
    weights += form.outputs * form.inputs;
    at += form.codes() + form.scales();
  }
  return static_cast<double>(count) / static_cast<double>(weights);
}

// The first error of tasks that run on several threads: that of the lowest task.
class FirstError {
 public:
  // Runs a task, which takes memory; on a thread of the pool nothing would catch what it throws.
  template <class Task> void watch(size_t task, const Task& run) {
    try {
      if (Status done = run(); !done) report(task, done.error());
    } catch (const std::bad_alloc&) {
      exhausted_ = true;
    }
  }
  // Of all tasks, once they have ended. Throws std::bad_alloc where one had no memory.
  const std::optional<Error>& error() const {
    if (exhausted_) throw std::bad_alloc();
    return error_;
  }

 private:
  void report(size_t task, Error error) {
    const std::lock_guard lock(mutex_);
    if (!error_ || task < task_) error_ = std::move(error), task_ = task;
  }

  std::atomic<bool> exhausted_{false};
  std::mutex mutex_;
  std::optional<Error> error_;
  size_t task_ = 0;
};

LayerReport report_of(const StoreIndex& index) {
  LayerReport out;
  out.layer = index.layer;
  out.shape = index.shape;
  out.file_bytes = index.file_bytes();
  out.record_bytes = index.record_bytes();
  out.payload_bytes = payload_bytes(index.shape);
  out.experts = index.records.size();
  out.deltas = index.deltas.size();
  for (const auto& delta : index.deltas) out.bytes_of_deltas += delta.bytes;
  out.digest = hex_of(index.digest);
  return out;
}

// All records of a layer, one behind the other, without padding.
struct Records {
  Records(size_t count, size_t bytes_each) : bytes(count * bytes_each), each(bytes_each) {}
  std::span<std::byte> operator[](size_t expert) { return std::span(bytes).subspan(expert * each, each); }
  std::vector<std::byte> bytes;
  size_t each;
};

Shares shares_of(std::span<const double> found) {
  if (found.empty()) return {};
  Shares out{0, found[0], found[0]};
  for (const double each : found) {
    out.mean += each / static_cast<double>(found.size());
    out.least = std::min(out.least, each);
    out.most = std::max(out.most, each);
  }
  return out;
}

}  // namespace

Result<LayerReport> pack_layer(const std::string& path, uint32_t layer, const ExpertShape& shape,
                               std::pair<uint32_t, uint32_t> torus, std::span<const ExpertSource> experts,
                               ThreadPool& pool) {
  if (auto fits = check_shape(shape); !fits) return fits.error();
  StoreIndex index;
  index.shape = shape;
  index.layer = layer;
  index.records.resize(experts.size());
  Records records(experts.size(), payload_bytes(shape));
  FirstError first;
  pool.parallel_for(experts.size(), [&](size_t e) {
    first.watch(e, [&]() -> Status {
      auto packed = pack_record(shape, experts[e], records[e]);
      if (!packed)
        return Error{packed.error().code, text("Layer ", layer, ", expert ", e, ": ", packed.error().message)};
      index.records[e].checksum = checksum(records[e]);
      return Done{};
    });
  });
  if (first.error()) return *first.error();

  Sha256 source;
  for (const auto& expert : experts)
    for (const auto& [codes, scales] : expert) source.update(codes), source.update(scales);
  index.digest = source.digest();

  const auto pairs = neighbours(torus.first, torus.second);
  std::vector<size_t> sizes(pairs.size());
  std::vector<double> shares(shape.coding == Coding::ternary3 ? pairs.size() : 0);
  pool.parallel_for(pairs.size(), [&](size_t i) {
    const auto a = records[pairs[i].first], b = records[pairs[i].second];
    sizes[i] = delta_bytes(a, b);
    if (!shares.empty()) shares[i] = differing_share(shape, a, b);
  });
  // Deltas are made here for their checksums, and again when they are written: all at once they could take as much
  // memory as the records.
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (2 * padded(sizes[i]) > index.record_bytes()) continue;
    const auto [a, b] = pairs[i];
    index.deltas.push_back({a, b, 0, sizes[i], checksum(make_delta(records[a], records[b]))});
  }

  const auto head = encode_index(index);
  const File file(path, O_WRONLY | O_CREAT | O_EXCL);
  if (!file) return Error{Code::unavailable, text(path, " could not be made: ", std::strerror(file.why()), ".")};
  Writer writer(path, file.fd(), index.file_bytes());
  Status written = writer.write(head);
  const auto put = [&](std::span<const std::byte> bytes) {
    if (written) written = writer.write(bytes);
    if (written) written = writer.pad();
  };
  for (size_t e = 0; e < experts.size(); ++e) put(records[e]);
  for (const auto& delta : index.deltas) put(make_delta(records[delta.a], records[delta.b]));
  if (written) written = writer.sync();
  if (!written) return written.error();

  LayerReport report = report_of(index);
  report.pairs = pairs.size();
  report.trits = shares_of(shares);
  return report;
}

Result<LayerReport> check_layer(const std::string& path, ThreadPool& pool) {
  const File file(path, O_RDONLY);
  if (!file) return Error{Code::unavailable, text(path, " could not be opened: ", std::strerror(file.why()), ".")};
  auto read = read_index(file.fd(), path);
  if (!read) return read.error();
  const StoreIndex& index = *read;
  const auto refuse = [&](const auto&... why) {
    return Error{Code::refused, text(path, ": ", why..., ". Pack the experts again: continuo experts pack.")};
  };
  Records records(index.records.size(), payload_bytes(index.shape));
  FirstError first;
  // What is behind a record or a delta must be zeros: a checksum does not see it.
  const auto padding_of = [&](uint64_t offset, uint64_t bytes) -> Status {
    std::array<std::byte, page> rest{};
    const std::span<std::byte> found = std::span(rest).first(static_cast<size_t>(padded(bytes) - bytes));
    if (auto got = read_exactly(file.fd(), path, offset + bytes, found); !got) return got.error();
    if (std::any_of(found.begin(), found.end(), [](std::byte byte) { return byte != std::byte{0}; }))
      return refuse("bytes behind ", offset + bytes, " are not zero");
    return Done{};
  };
  pool.parallel_for(index.records.size(), [&](size_t e) {
    first.watch(e, [&]() -> Status {
      const RecordEntry& record = index.records[e];
      if (auto got = read_exactly(file.fd(), path, record.offset, records[e]); !got) return got;
      if (const uint64_t found = checksum(records[e]); found != record.checksum)
        return refuse("the record of expert ", e, " has the checksum ", found, ", expected ", record.checksum);
      return padding_of(record.offset, record.bytes);
    });
  });
  if (first.error()) return *first.error();

  Sha256 source;
  std::vector<std::byte> codes, scales;
  for (size_t e = 0; e < index.records.size(); ++e) {
    for (size_t which = 0; which < matrices; ++which) {
      const MatrixForm form = form_of(index.shape, which);
      codes.resize(form.source_codes());
      scales.resize(form.source_scales());
      unpack_matrix(index.shape, which, records[e], codes, scales);
      source.update(codes);
      source.update(scales);
    }
  }
  if (const Digest found = source.digest(); found != index.digest)
    return refuse("the experts unpack to the digest ", hex_of(found), ", expected ", hex_of(index.digest));

  pool.parallel_for(index.deltas.size(), [&](size_t i) {
    first.watch(i, [&]() -> Status {
      const DeltaEntry& entry = index.deltas[i];
      std::vector<std::byte> delta(static_cast<size_t>(entry.bytes));
      if (auto got = read_exactly(file.fd(), path, entry.offset, delta); !got) return got;
      const auto which = text("the delta of experts ", entry.a, " and ", entry.b);
      if (const uint64_t found = checksum(delta); found != entry.checksum)
        return refuse(which, " has the checksum ", found, ", expected ", entry.checksum);
      for (const auto& [from, to] : {std::pair(entry.a, entry.b), std::pair(entry.b, entry.a)}) {
        std::vector<std::byte> payload(records[from].begin(), records[from].end());
        if (auto applied = apply_delta(delta, payload); !applied)
          return refuse(which, " cannot be applied: ", applied.error().message);
        if (checksum(payload) != index.records[to].checksum)
          return refuse(which, " does not turn expert ", from, " into expert ", to);
      }
      return padding_of(entry.offset, entry.bytes);
    });
  });
  if (first.error()) return *first.error();
  return report_of(index);
}

}  // namespace continuo::experts
