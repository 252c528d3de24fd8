// The table of faults of docs/experts.md, item by item.
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <thread>

#include "test/experts/expert_stores.h"

namespace continuo::test::expert_faults_test {

using namespace continuo::experts;

namespace {

namespace fs = std::filesystem;

bool one_says(const std::vector<std::string>& notes, const std::string& part) {
  return std::count_if(notes.begin(), notes.end(),
                       [&](const auto& each) { return each.find(part) != std::string::npos; }) == 1;
}

// Options with a disk whose first `times` reads at `offset` of a file return `result`, a count of bytes or a negative
// errno, in place of the true one.
CacheOptions failing(uint64_t offset, int times, int64_t result) {
  const auto script = std::make_shared<Script>();
  script->fault = [=](const experts::Piece& piece, int64_t read) mutable {
    return piece.offset == offset && times-- > 0 ? result : read;
  };
  return scripted(script);
}

// Puts another file in the place of a layer's; who has the old one open keeps it.
void replace(const Store& store, LayerMade layer) {
  TemporaryFolder other;
  write_layer(other.path, layer);
  const std::string beside = store.path(0) + ".new";
  fs::copy_file(layer_path(other.path, layer.index.layer), beside);
  fs::rename(beside, store.path(0));
}

}  // namespace

TEST("expert cache: a read that fails twice, or ends early twice, is read again; the third time it has failed") {
  const Store store(1);
  for (const int64_t result : {-int64_t{EIO}, int64_t{0}}) {
    const auto good = store.cache(4, failing(store.offset(0, 3), 2, result));
    take_all(store, good, 0, {3});
    CHECK(good->statistics().retries == 2 && good->statistics().failed_reads == 0);

    const auto bad = store.cache(4, failing(store.offset(0, 3), 3, result));
    const auto failed = bad->take(1, Experts{3});
    CHECK_SAYS(failed, "Expert 3 of layer 1 could not be read from ");
    CHECK(failed.error().code == Code::unavailable);
    const auto where = text(store.path(0), " at ", store.offset(0, 3), ": ",
                            result == 0 ? "the file ends there." : "Input/output error (errno 5).");
    CHECK(failed.error().message.find(where) != std::string::npos);
    CHECK(bad->statistics().failed_reads == 1 && bad->statistics().resident == 0);
    // It is asked for again: the disk is well by now.
    take_all(store, bad, 0, {3, 4});
  }
}

TEST("expert cache: a demand that failed before anybody came is told once; asked for again it is read anew") {
  const Store store(1);
  const auto cache = store.cache(4, failing(store.offset(0, 3), 6, -EIO));
  const Experts wanted{3};
  for (const bool anew : {false, true}) {
    std::atomic<bool> ended{false};
    cache->want(1, wanted, Reason::demand);
    cache->on_arrival(1, 3, [&] { ended = true, ended.notify_all(); });
    ended.wait(false);
    CHECK(!cache->ready(1, 3));
    if (!anew) CHECK_SAYS(cache->take(1, wanted), "errno 5");
  }
  cache->want(1, wanted, Reason::demand);
  take_all(store, cache, 0, wanted);
  CHECK(cache->statistics().failed_reads == 2 && cache->take_notes().empty());
}

TEST("expert cache: all callers that wait for a read that fails are told; look-ahead that fails is told to the log") {
  const Store store(1);
  const auto cache = store.cache(4, failing(store.offset(0, 3), 6, -EIO));
  std::vector<std::thread> callers;
  std::atomic<int> told{0};
  for (int i = 0; i < 3; ++i) callers.emplace_back([&] { told += !cache->take(1, Experts{3}); });
  for (auto& caller : callers) caller.join();
  // A caller that came once the first had been told began the second read.
  CHECK(told == 3 && cache->statistics().failed_reads <= 2);

  const auto ahead = store.cache(4, failing(store.offset(0, 3), 3, -EIO));
  std::atomic<bool> ended{false};
  ahead->want(1, Experts{3}, Reason::ahead2);
  ahead->on_arrival(1, 3, [&] { ended = true, ended.notify_all(); });
  ended.wait(false);
  CHECK(one_says(ahead->take_notes(), "errno 5"));
  take_all(store, ahead, 0, {3});
}

TEST("expert cache: short reads are continued, past the page cache at a page") {
  const Store store(1, 8, 3, {Coding::ternary3, 2048, 1536, 32});
  for (const Io io : {Io::direct, Io::buffered}) {
    const auto script = std::make_shared<Script>();
    script->shuffled = true;
    Random random(3);
    script->fault = [&](const experts::Piece& piece, int64_t result) {
      if (result < int64_t{2 * page}) return result;
      const bool direct = (::fcntl(piece.fd, F_GETFL) & O_DIRECT) != 0;
      const auto kept = static_cast<int64_t>(random.below(static_cast<size_t>(result)));
      const int64_t told = direct ? std::max<int64_t>(kept, page) : std::max<int64_t>(kept, 1);
      // What is behind was not read.
      std::fill(piece.to.begin() + told, piece.to.end(), std::byte{0xEE});
      return told;
    };
    auto options = scripted(script);
    options.io = io;
    const auto cache = store.cache(4, options);
    for (uint32_t e = 0; e < 8; ++e) take_all(store, cache, 0, {e});
    CHECK(cache->statistics().failed_checks == 0 && cache->statistics().retries == 0);
  }
}

TEST("expert cache: a file system that refuses O_DIRECT at the first read is read through the page cache, said once") {
  const Store store(1);
  const auto script = std::make_shared<Script>();
  script->fault = [](const experts::Piece& piece, int64_t result) {
    return (::fcntl(piece.fd, F_GETFL) & O_DIRECT) != 0 ? -int64_t{EINVAL} : result;
  };
  const auto cache = store.cache(8, scripted(script));
  const Experts all{0, 4, 8, 12};
  cache->want(1, all, Reason::demand);
  take_all(store, cache, 0, all);
  CHECK(one_says(cache->take_notes(), "cannot be read past the page cache"));
  CHECK(cache->statistics().retries == 0);
}

TEST("expert cache: a record with a wrong checksum is read once more; where it is wrong again both sums are said") {
  const Store store(1);
  for (const Io io : {Io::direct, Io::buffered}) {
    const auto script = std::make_shared<Script>();
    int times = 1;
    script->fault = [&](const experts::Piece& piece, int64_t result) {
      if (piece.offset == store.offset(0, 5) && times-- > 0) piece.to[77] ^= std::byte{1};
      return result;
    };
    auto options = scripted(script);
    options.io = io;
    const auto cache = store.cache(4, options);
    take_all(store, cache, 0, {5});
    CHECK(cache->statistics().failed_checks == 1 && cache->statistics().reads == 2);
  }
  const Store damaged(1);
  flip_bit(damaged.path(0), damaged.offset(0, 5) + 900);
  auto wrong = damaged.payload(0, 5);
  wrong[900] ^= std::byte{4};
  const auto sums = text("expert 5 of layer 1 in ", damaged.path(0), " is damaged: its checksum is ", checksum(wrong),
                         ", expected ", checksum(damaged.payload(0, 5)))
                        .substr(1);
  for (const Io io : {Io::direct, Io::buffered}) {
    CacheOptions options;
    options.io = io;
    const auto cache = damaged.cache(4, options);
    for (int i = 0; i < 2; ++i) {
      const auto failed = cache->take(1, Experts{5});
      CHECK(!failed && failed.error().message.find(sums) != std::string::npos && failed.error().code == Code::refused);
    }
    take_all(damaged, cache, 0, {4, 6});
    CHECK(cache->statistics().failed_checks == 4 && cache->statistics().failed_reads == 2);
  }
}

TEST("expert cache: a delta that is wrong is replaced by the record, and after the second time no longer used") {
  const Store store(1);
  const auto& deltas = store.layers[0].index.deltas;
  const auto delta = std::find_if(deltas.begin(), deltas.end(), [](const auto& each) { return each.a == 0; });
  CHECK(delta->b == 1);
  flip_bit(store.path(0), delta->offset + delta->bytes - 1);
  const auto cache = store.cache(2);
  const auto base = cache->take(1, Experts{0});
  CHECK(base);
  for (const uint64_t refused : {1, 2, 2}) {
    take_all(store, cache, 0, {1});
    take_all(store, cache, 0, {8});
    const auto told = cache->statistics();
    CHECK(told.deltas_refused == refused && told.delta_bytes == refused * padded(delta->bytes));
    CHECK(told.failed_reads == 0 && told.deltas_used == 0);
  }
  const auto notes = cache->take_notes();
  CHECK(one_says(notes, "does not give expert 1: its record is read instead.") &&
        one_says(notes, "does not give expert 1: it is no longer used."));
}

TEST("expert cache: a delta that cannot be read is replaced by the record") {
  const Store store(1);
  const auto& delta = store.layers[0].index.deltas[0];
  const auto cache = store.cache(2, failing(delta.offset, 3, -EIO));
  take_all(store, cache, 0, {delta.a});
  take_all(store, cache, 0, {delta.b});
  CHECK(cache->statistics().deltas_refused == 1 && cache->statistics().failed_reads == 0);
}

TEST("expert cache: a store that is damaged, cut, incomplete or another's is refused by name when it is opened") {
  CacheOptions options;
  options.bytes = size_t{1} << 30;
  for (const uint64_t at : {3, 44, 100, 130, 700}) {
    const Store store;
    flip_bit(store.path(1), at);
    CHECK_SAYS(store.open(options), "layer-004.experts ");
  }
  const Store store;
  options.digest = std::string(64, '0');
  const auto other = store.open(options);
  CHECK_SAYS(other, ", expected 0000");
  CHECK(other.error().message.find(store.cache(2)->digest()) != std::string::npos);
  options.digest = store.cache(2)->digest();
  CHECK(store.open(options));
  const auto bytes = fs::file_size(store.path(1));
  fs::resize_file(store.path(1), bytes - page);
  const auto cut = store.open(options);
  CHECK_SAYS(cut, "layer-004.experts has ");
  CHECK(cut.error().message.find(text(bytes - page, " bytes, expected ", bytes)) != std::string::npos);
  fs::rename(store.path(0), store.path(1));
  CHECK_SAYS(store.open(options), "layer-001.experts could not be opened: No such file");
  fs::copy_file(store.path(1), store.path(0));
  CHECK_SAYS(store.open(options), "layer-004.experts has the experts of layer 1, expected 4");
}

TEST("expert cache: a file that was replaced by the same experts is opened again; one with others is refused") {
  const Store store(1);
  const auto cache = store.cache(4);
  flip_bit(store.path(0), store.offset(0, 3) + 5);
  LayerMade without = store.layers[0];
  without.index.deltas.clear();
  replace(store, without);
  take_all(store, cache, 0, {3, 2, 1, 0});
  CHECK(one_says(cache->take_notes(), "was changed while it was in use, and opened again: it has the same experts."));
  CHECK(cache->statistics().failed_checks == 1 && cache->index(1)->records.size() == 16);

  Random random(9);
  LayerMade other = made_layer(1, 16, store.layers[0].index.shape, random);
  flip_bit(store.path(0), without.index.index_bytes() + 9 * store.record);
  replace(store, other);
  const auto refused = cache->take(1, Experts{9});
  CHECK_SAYS(refused, "was changed while it was in use: it has 16 experts with the digest ");
  CHECK(refused.error().code == Code::refused &&
        refused.error().message.find(hex_of(store.layers[0].index.digest)) != std::string::npos);
  replace(store, store.layers[0]);
  take_all(store, cache, 0, {9, 10});
}

TEST("expert cache: a file that was cut while it was in use is refused with its length") {
  const Store store(1);
  const auto cache = store.cache(4);
  take_all(store, cache, 0, {0});
  fs::resize_file(store.path(0), store.offset(0, 4));
  CHECK_SAYS(cache->take(1, Experts{12}), "A file of experts was changed while it was in use. ");
  take_all(store, cache, 0, {2, 0});
}

TEST("expert cache: where memory cannot be had the bound is lowered, but holds two records") {
  const Store store(1);
  for (const int more : {0, 3}) {
    // After the reserve only this many, one by one.
    int left = more;
    CacheOptions options;
    options.memory = [&](size_t bytes) { return bytes == 2 * store.memory || (bytes == store.memory && left-- > 0); };
    const auto cache = store.cache(10, options);
    for (uint32_t e = 0; e < 16; ++e) take_all(store, cache, 0, {e});
    const auto told = cache->statistics();
    const size_t records = 2 + static_cast<size_t>(more);
    CHECK(told.bound == records * store.memory && told.resident == records);
    CHECK(one_says(cache->take_notes(), text("may take ", records * store.memory, " bytes from now on instead of ")));
  }
  CacheOptions options;
  options.bytes = 10 * store.memory;
  options.memory = [](size_t) { return false; };
  CHECK_SAYS(store.open(options), "There is no memory for two experts of ");
}

}  // namespace continuo::test::expert_faults_test
