#include <cstdio>
#include <fcntl.h>
#include <fstream>
#include <future>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/cpu/device.h"
#include "backends/cpu/kernels/kernels.h"
#include "base/file.h"
#include "runtime/scheduler/engine.h"
#include "test/image.h"
#include "weights/packed_file.h"
#include "weights/safetensors.h"

namespace continuo::test::packed_test {

namespace {

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/continuo-packed-XXXXXX";
    path = ::mkdtemp(name);
  }
  ~Folder() {
    ::chmod(path.c_str(), 0755);
    for (const char* name : {"/packed", "/packed.part"}) std::remove((path + name).c_str());
    ::rmdir(path.c_str());
  }
  std::string path;
};

// A matrix and a vector, large enough for a cache file.
struct Weights {
  std::vector<std::byte> image = test::image_of(weights());
  std::vector<ConstantSpec> specs = make_specs();

  static std::vector<test::Weight> weights() {
    test::Random random(31);
    return {{"W", {3000, 700}, random.floats(3000 * 700, -1, 1), Dtype::f32},
            {"b", {700}, random.floats(700, -1, 1), Dtype::f32}};
  }
  static std::vector<ConstantSpec> make_specs() {
    std::vector<ConstantSpec> out(3);  // the first is no constant
    out[1].name = out[1].tensor = "W";
    out[1].shape = {3000, 700};
    out[2].name = out[2].tensor = "b";
    out[2].layout = Layout::vector;
    out[2].shape = {700};
    return out;
  }
  Packed pack(const PackCache* cache) const {
    ThreadPool pool(2);
    auto tensors = read_safetensors(image);
    auto packed = pack_weights(specs, *tensors, pool, cache);
    CHECK(packed);
    return std::move(*packed);
  }
};

const Weights& shared() {
  static const Weights weights;
  return weights;
}

bool same(const Packed& a, const Packed& b) {
  for (size_t i = 0; i < a.constants.size(); ++i) {
    const auto x = a.constants[i].bytes, y = b.constants[i].bytes;
    if (x.size() != y.size() || (!x.empty() && std::memcmp(x.data(), y.data(), x.size()) != 0)) return false;
  }
  return a.constants.size() == b.constants.size();
}

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void put(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

const PackedName names{std::string(64, 'a'), std::string(64, 'b'), std::string(64, 'c'), std::string(64, 'd')};

PackCache cache_in(const Folder& folder) { return {folder.path + "/packed", names.key, names.seal}; }

}  // namespace

TEST("packed weights: written, and mapped at the next load, with the same bytes and the same names") {
  const Folder folder;
  const PackCache cache = cache_in(folder);
  const auto plain = shared().pack(nullptr);
  CHECK(!read_packed_name(cache.path));
  const auto bytes = write_packed(cache.path, names, plain.constants);
  CHECK(bytes && *bytes == content(cache.path).size());
  const auto name = read_packed_name(cache.path);
  CHECK(name && name->key == names.key && name->seal == names.seal && name->head == names.head &&
        name->fingerprint == names.fingerprint);
  const auto mapped = shared().pack(&cache);
  CHECK(mapped.note.empty() && mapped.file && mapped.file->intact() && same(mapped, plain));
  // Both constants lie in one mapping.
  CHECK(mapped.constants[1].owner == mapped.constants[2].owner && plain.constants[1].owner != plain.constants[2].owner);
}

TEST("packed weights: another name, a flipped bit anywhere, a missing end: packed from the model, with one sentence") {
  const Folder folder;
  const PackCache cache = cache_in(folder);
  const auto plain = shared().pack(nullptr);
  CHECK(write_packed(cache.path, names, plain.constants));
  const std::string good = content(cache.path);
  test::Random random(32);
  const auto spoiled = [&](const std::string& bytes, const char* says) {
    put(cache.path, bytes);
    const auto packed = shared().pack(&cache);
    CHECK(packed.note.find(says) != std::string::npos && !packed.file && same(packed, plain));
  };
  const auto flipped = [&](size_t at) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 1 << random.below(8));
    return bytes;
  };
  spoiled("", "damaged");
  spoiled(good.substr(0, 50), "damaged");
  spoiled(good.substr(0, good.size() - 1), "cut short");
  spoiled(good.substr(0, 300), "damaged");
  spoiled(flipped(2), "another version");
  // Every part of the head: the count, the four names, the table and its checksum.
  for (size_t at = 8; at < 272 + 3 * 56 + 8; at += 1 + random.below(sanitized ? 20 : 5)) {
    spoiled(flipped(at), "damaged");
    CHECK(!read_packed_name(cache.path));
  }
  for (int i = 0; i < 8; ++i) spoiled(flipped(512 + random.below(3000 * 700 * 4)), "damaged");
  put(cache.path, good);
  for (const PackCache& other : {PackCache{cache.path, std::string(64, 'x'), cache.seal},
                                 PackCache{cache.path, cache.key, std::string(64, 'x')}})
    CHECK(shared().pack(&other).note.find("another model or graph") != std::string::npos);
  CHECK(shared().pack(&cache).note.empty());
}

TEST("packed weights: bytes that change while they are mapped are found when they are looked at again") {
  const Folder folder;
  const PackCache cache = cache_in(folder);
  CHECK(write_packed(cache.path, names, shared().pack(nullptr).constants));
  const auto mapped = shared().pack(&cache);
  std::fstream file(cache.path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(512 + 4321);
  file.put('x');
  file.close();
  CHECK(mapped.file && !mapped.file->intact());
}

TEST("packed weights: one process writes at a time, and what a killed one left is written over") {
  const Folder folder;
  const PackCache cache = cache_in(folder);
  const auto plain = shared().pack(nullptr);
  put(cache.path + ".part", "what a killed process left, longer or not");
  {
    const File other(cache.path + ".part", O_WRONLY);
    CHECK(::flock(other.fd(), LOCK_EX) == 0);
    const auto left = write_packed(cache.path, names, plain.constants);
    CHECK(left && *left == 0 && ::access(cache.path.c_str(), F_OK) != 0);
  }
  const auto bytes = write_packed(cache.path, names, plain.constants);
  CHECK(bytes && *bytes > 0 && same(shared().pack(&cache), plain));
  CHECK(::access((cache.path + ".part").c_str(), F_OK) != 0);
}

TEST("packed weights: where they cannot be written, the error says so") {
  const auto failed = write_packed("/proc/continuo/packed", names, shared().pack(nullptr).constants);
  CHECK_SAYS(failed, "cannot write /proc/continuo/packed");
}

TEST("weights: running out of memory while loading is an error") {
  // A matrix of 2 GiB of zeros in a file that takes no space.
  const std::string header = R"({"W":{"dtype":"F32","shape":[65536,8192],"data_offsets":[0,2147483648]}})";
  const std::string graph =
      R"({"format":"continuo-graph/2","declarations":[{"kind":"constant","name":"W","layout":"packed","shape":[65536,8192],"ref":"W"},)"
      R"({"kind":"dynamic","name":"x","dtype":"f32","shape":[8192]},{"kind":"volatile","name":"y","dtype":"f32","shape":[65536]}],)"
      R"("blocks":[{"name":"run","inputs":["x"],"nodes":[{"op":"matmul","in":["x","W"],"out":"y"},{"return":{"y":"y"}}]}]})";
  const Folder folder;
  const std::string path = folder.path + "/packed";
  const auto head = test::image_of(header);
  put(path, std::string(reinterpret_cast<const char*>(head.data()), head.size()));
  CHECK(::truncate(path.c_str(), static_cast<off_t>(head.size() + 2147483648)) == 0);
  // Room for the mapping, which nothing writes, and not for a packed copy of it.
  rlimit before{};
  ::getrlimit(RLIMIT_DATA, &before);
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  for (int field = 0; field < 6; ++field) statm >> pages;
  rlimit limit = before;
  limit.rlim_cur = pages * 4096 + (rlim_t{1} << 30);
  ::setrlimit(RLIMIT_DATA, &limit);
  {
    Engine engine(1);
    std::promise<Result<std::shared_ptr<const Model>>> done;
    engine.load(graph, {path}, {}, {}, [&](auto result) { done.set_value(std::move(result)); }, open_cpu);
    const auto loaded = done.get_future().get();
    CHECK(!loaded && loaded.error().code == Code::unavailable);
    CHECK_SAYS(loaded, "ran out of resources");
  }
  ::setrlimit(RLIMIT_DATA, &before);
}

TEST("weights: packed weights are read-only, whether in memory or mapped from a file") {
  const Weights weights;
  const Folder folder;
  const PackCache cache = cache_in(folder);
  const auto tensors = read_safetensors(weights.image);
  ThreadPool pool(1);
  for (const bool mapped : {false, true}) {
    auto packed = pack_weights(weights.specs, *tensors, pool, mapped ? &cache : nullptr);
    CHECK(packed && packed->note.empty() && (packed->file != nullptr) == mapped);
    if (!mapped) CHECK(write_packed(cache.path, names, packed->constants));
    for (const auto& constant : packed->constants) {
      std::fflush(nullptr);
      const pid_t child = ::fork();
      if (child == 0) {
        // The process is meant to end here; its message would only disturb the output.
        ::close(STDERR_FILENO);
        *const_cast<std::byte*>(constant.bytes.data()) = std::byte{1};
        ::_exit(0);
      }
      int status = 0;
      CHECK(child > 0 && ::waitpid(child, &status, 0) == child);
      CHECK(!WIFEXITED(status) || WEXITSTATUS(status) != 0);
    }
  }
}

}  // namespace continuo::test::packed_test
