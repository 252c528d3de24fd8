// Stores of experts with random bytes, and a disk that fails, delays and reorders as a test says.
#pragma once

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <unistd.h>

#include "base/checksum.h"
#include "experts/cache.h"
#include "experts/delta.h"
#include "experts/form.h"
#include "experts/layer_file.h"
#include "test/check.h"

namespace continuo::test {

using Bytes = std::vector<std::byte>;

struct TemporaryFolder {
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "continuo-tiers-XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string path;
};

// A layer on a torus of 2 by n/2 (n: a multiple of 4 from 8 on). Its payloads are random bytes, and four neighbours in
// a column each have all but a few lines in common, so deltas exist between these.
struct LayerMade {
  experts::StoreIndex index;
  std::vector<Bytes> payloads;
};

// The tensors of one expert: trits, with zeros behind the last input, and scales.
struct Tensors {
  std::array<Bytes, experts::matrices> codes, scales;

  Tensors(const experts::ExpertShape& shape, Random& random) {
    for (size_t which = 0; which < experts::matrices; ++which) {
      const auto form = experts::form_of(shape, which);
      codes[which].resize(form.source_codes());
      scales[which].resize(form.source_scales());
      for (size_t i = 0; i < codes[which].size(); ++i) codes[which][i] = code(form, i, random);
      for (size_t i = 0; i < scales[which].size(); i += 2) {
        scales[which][i] = static_cast<std::byte>(random.next());
        scales[which][i + 1] = static_cast<std::byte>(0x20 + random.below(16));
      }
    }
  }
  static std::byte code(const experts::MatrixForm& form, size_t i, Random& random) {
    const size_t left = form.inputs - i % form.units * 5;
    return left >= 5 ? static_cast<std::byte>(random.below(243))
                     : static_cast<std::byte>(121 -
                                              (left == 1   ? 1
                                               : left == 2 ? 4
                                               : left == 3 ? 13
                                                           : 40) +
                                              random.below(2));
  }
  // Other codes in a few places.
  void change(const experts::ExpertShape& shape, Random& random) {
    for (size_t i = 0; i < 20; ++i) {
      const size_t which = random.below(experts::matrices), at = random.below(codes[which].size());
      codes[which][at] = code(experts::form_of(shape, which), at, random);
    }
  }
  Bytes payload(const experts::ExpertShape& shape) const {
    Bytes out(experts::payload_bytes(shape));
    experts::ExpertSource source;
    for (size_t which = 0; which < experts::matrices; ++which) source[which] = {codes[which], scales[which]};
    if (auto packed = experts::pack_record(shape, source, out); !packed)
      fail(__FILE__, __LINE__, packed.error().message);
    return out;
  }
};

inline LayerMade made_layer(uint32_t number, size_t count, experts::ExpertShape shape, Random& random) {
  LayerMade out;
  out.index.shape = shape;
  out.index.layer = number;
  for (auto& byte : out.index.digest) byte = static_cast<std::byte>(random.next());
  Tensors tensors(shape, random);
  for (size_t e = 0; e < count; ++e) {
    if (e % 4 == 0)
      tensors = Tensors(shape, random);
    else
      tensors.change(shape, random);
    out.payloads.push_back(tensors.payload(shape));
    out.index.records.push_back({0, 0, checksum(out.payloads.back()), 0});
  }
  for (const auto& [a, b] : experts::neighbours(2, static_cast<uint32_t>(count / 2))) {
    const auto delta = experts::make_delta(out.payloads[a], out.payloads[b]);
    if (2 * experts::padded(delta.size()) <= out.index.record_bytes())
      out.index.deltas.push_back({a, b, 0, delta.size(), checksum(delta)});
  }
  return out;
}

inline std::string layer_path(const std::string& folder, uint32_t number) {
  return folder + "/" + experts::layer_name(number);
}

// Writes the file of a layer; its index has offsets then.
inline void write_layer(const std::string& folder, LayerMade& layer) {
  Bytes bytes = experts::encode_index(layer.index);
  const auto add = [&](const Bytes& more) {
    bytes.insert(bytes.end(), more.begin(), more.end());
    bytes.resize(experts::padded(bytes.size()));
  };
  for (const auto& payload : layer.payloads) add(payload);
  for (const auto& delta : layer.index.deltas)
    add(experts::make_delta(layer.payloads[delta.a], layer.payloads[delta.b]));
  std::ofstream out(layer_path(folder, layer.index.layer), std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

inline void flip_bit(const std::string& path, uint64_t at) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(at));
  const char byte = static_cast<char>(file.get() ^ 4);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(byte);
}

inline bool same(std::span<const std::byte> payload, const Bytes& expected) {
  return std::equal(payload.begin(), payload.end(), expected.begin(), expected.end());
}

// A store in a folder of its own: layers 1, 4, 5, … with `count` experts each.
struct Store {
  explicit Store(size_t layer_count = 2, size_t count = 16, uint64_t seed = 1,
                 experts::ExpertShape shape = {experts::Coding::ternary3, 320, 192, 32}) {
    Random random(seed);
    for (size_t i = 0; i < layer_count; ++i) {
      layers.push_back(made_layer(static_cast<uint32_t>(i == 0 ? 1 : i + 3), count, shape, random));
      numbers.push_back(layers.back().index.layer);
      write_layer(folder.path, layers.back());
      record = layers.back().index.record_bytes();
      memory = std::max<size_t>(record, experts::padded(experts::form_bytes(layers.back().index.shape)));
    }
  }
  std::string path(size_t layer) const { return layer_path(folder.path, numbers[layer]); }
  const Bytes& payload(size_t layer, size_t expert) const { return layers[layer].payloads[expert]; }
  // Whether what is lent is this expert.
  bool is(const experts::Loan& loan, size_t layer, size_t expert) const {
    const auto& shape = layers[layer].index.shape;
    Bytes found(experts::payload_bytes(shape));
    if (loan.bytes().size() != experts::form_bytes(shape)) return false;
    experts::from_form(shape, loan.bytes().data(), found);
    return same(found, payload(layer, expert));
  }
  uint64_t offset(size_t layer, size_t expert) const { return layers[layer].index.records[expert].offset; }

  Result<std::shared_ptr<experts::ExpertCache>> open(experts::CacheOptions options) const {
    return experts::ExpertCache::open(folder.path, numbers, options);
  }
  // A cache with room for so many records.
  std::shared_ptr<experts::ExpertCache> cache(size_t records, experts::CacheOptions options = {}) const {
    options.bytes = records * memory;
    auto opened = open(options);
    if (!opened) fail(__FILE__, __LINE__, opened.error().message);
    return *opened;
  }

  TemporaryFolder folder;
  std::vector<LayerMade> layers;
  std::vector<uint32_t> numbers;
  size_t record = 0, memory = 0;  // bytes of an expert on disk, and in memory
};

// What a ScriptedDisk does, shared with the test.
struct Script {
  // After a piece was read: what is told of it, and, in `piece`, what was read. Called by the reader's thread.
  std::function<int64_t(const experts::Piece& piece, int64_t result)> fault;
  bool shuffled = false;  // pieces end in random order, some at a time

  // Pieces are read only as they are released.
  void hold() {
    const std::lock_guard lock(mutex);
    held = true;
    released = 0;
  }
  void release(size_t count) {
    {
      const std::lock_guard lock(mutex);
      released += count;
    }
    news.notify_all();
  }
  void release_all() {
    {
      const std::lock_guard lock(mutex);
      held = false;
    }
    news.notify_all();
  }
  // The offsets of the first `count` pieces that were begun.
  std::vector<uint64_t> wait_for(size_t count) {
    std::unique_lock lock(mutex);
    news.wait(lock, [&] { return started.size() >= count; });
    return started;
  }

  std::mutex mutex;
  std::condition_variable news;
  bool held = false, woken = false;
  size_t released = 0;
  std::vector<uint64_t> started;
  std::vector<std::pair<uint64_t, experts::Piece>> waiting;
  Random random{7};
};

class ScriptedDisk : public experts::Disk {
 public:
  explicit ScriptedDisk(std::shared_ptr<Script> script) : script_(std::move(script)) {}

  void start(uint64_t token, const experts::Piece& piece) override {
    {
      const std::lock_guard lock(script_->mutex);
      script_->waiting.emplace_back(token, piece);
      script_->started.push_back(piece.offset);
    }
    script_->news.notify_all();
  }
  void wait(std::optional<Time> until, std::vector<experts::PieceEnd>& ended) override {
    Script& s = *script_;
    std::unique_lock lock(s.mutex);
    const auto over = [&] { return s.woken || (!s.waiting.empty() && (!s.held || s.released > 0)); };
    if (until)
      s.news.wait_until(lock, *until, over);
    else
      s.news.wait(lock, over);
    s.woken = false;
    size_t count = s.shuffled && !s.waiting.empty() ? 1 + s.random.below(s.waiting.size()) : s.waiting.size();
    for (; count > 0 && (!s.held || s.released > 0); --count) {
      if (s.held) --s.released;
      const auto at = s.waiting.begin() + static_cast<long>(s.shuffled ? s.random.below(s.waiting.size()) : 0);
      const auto [token, piece] = *at;
      s.waiting.erase(at);
      // Of a file that is read past the page cache too: buffers and offsets are as it needs them.
      const ssize_t n = ::pread(piece.fd, piece.to.data(), piece.to.size(), static_cast<off_t>(piece.offset));
      int64_t result = n < 0 ? -int64_t{errno} : int64_t{n};
      if (s.fault) result = s.fault(piece, result);
      ended.push_back({token, result});
    }
  }
  void wake() override {
    {
      const std::lock_guard lock(script_->mutex);
      script_->woken = true;
    }
    script_->news.notify_all();
  }

 private:
  const std::shared_ptr<Script> script_;
};

inline experts::CacheOptions scripted(const std::shared_ptr<Script>& script) {
  experts::CacheOptions out;
  out.frequencies = false;
  out.disk = [script](size_t) { return std::make_unique<ScriptedDisk>(script); };
  return out;
}

using Experts = std::vector<uint32_t>;

inline Experts some_experts(Random& random, size_t count, size_t of) {
  Experts out;
  while (out.size() < count) {
    const auto each = static_cast<uint32_t>(random.below(of));
    if (std::find(out.begin(), out.end(), each) == out.end()) out.push_back(each);
  }
  return out;
}

// Takes each of them once, and compares it.
inline void take_all(const Store& store, const std::shared_ptr<experts::ExpertCache>& cache, size_t layer,
                     Experts pending) {
  while (!pending.empty()) {
    auto loan = cache->take(store.numbers[layer], pending);
    CHECK(loan);
    if (!loan) return fail(__FILE__, __LINE__, loan.error().message);
    CHECK(store.is(*loan, layer, pending[loan->index]));
    CHECK(reinterpret_cast<uintptr_t>(loan->bytes().data()) % experts::page == 0);
    pending.erase(pending.begin() + static_cast<long>(loan->index));
  }
}

// One row for each expert.
inline void route(const std::shared_ptr<experts::ExpertCache>& cache, uint32_t layer, const Experts& chosen) {
  Experts rows(chosen.size());
  for (uint32_t i = 0; i < rows.size(); ++i) rows[i] = i;
  cache->routed(layer, chosen, rows);
}

}  // namespace continuo::test
