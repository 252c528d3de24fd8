// continuo_fuzz KIND COUNT [SEED [CASE]]: damages good files and hands them to the readers of native/weights, COUNT
// times, in this process. KIND: gguf, torch (the archive), pickle (what is in it) or safetensors. A case follows from
// kind, seed and number; CASE runs that one alone and prints its bytes.
//
// Built with AddressSanitizer and UndefinedBehaviorSanitizer only. A case is a finding where a sanitizer stops the
// process, where a reader takes more memory than the file has bytes and 1 MiB, where it takes more than 5 s of the
// processor, where what it returns lies outside of the file, or where a refusal is no sentence in UTF-8. The first
// finding ends the process with its number and exit code 1.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sanitizer/asan_interface.h>
#include <string>
#include <sys/time.h>
#include <unistd.h>
#include <vector>

#include "base/utf8.h"
#include "test/check.h"
#include "test/fuzz/images.h"
#include "weights/pickle.h"
#include "weights/tensor_files.h"

// Of the sanitizers' allocator: GCC has the functions, but not the header that declares them
// (sanitizer/allocator_interface.h).
extern "C" size_t __sanitizer_get_allocated_size(const volatile void* block);
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void*, size_t),
                                                         void (*on_free)(const volatile void*));

using namespace continuo;
using test::Random;

namespace {

constexpr int64_t memory_bound = 1 << 20;  // bytes beside those of the file
constexpr int cpu_seconds = 5;

// What the case that runs is, for whoever ends the process.
const char* current_kind = "";
uint64_t current_seed = 0, current_case = 0;

void name_case() {
  char line[160];
  const int n =
      std::snprintf(line, sizeof line, "\nfinding: continuo_fuzz %s 1 %llu %llu\n", current_kind,
                    static_cast<unsigned long long>(current_seed), static_cast<unsigned long long>(current_case));
  if (write(STDERR_FILENO, line, static_cast<size_t>(n)) < 0) _exit(1);
}

[[noreturn]] void finding(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  name_case();
  _exit(1);
}

void too_long(int) {
  constexpr char what[] = "A reader takes more than 5 s of the processor.";
  if (write(STDERR_FILENO, what, sizeof what - 1) >= 0) name_case();
  _exit(1);
}

// Bytes that the process has from the allocator, and the most since the case began.
std::atomic<int64_t> live{0}, peak{0};

void on_malloc(const volatile void*, size_t size) {
  const int64_t now = live += static_cast<int64_t>(size);
  if (now > peak) peak = now;
}
void on_free(const volatile void* block) {
  if (block) live -= static_cast<int64_t>(__sanitizer_get_allocated_size(block));
}

void set_clock(int seconds) {
  const itimerval timer{{0, 0}, {seconds, 0}};
  setitimer(ITIMER_PROF, &timer, nullptr);
}

using Image = std::vector<std::byte>;

void overwrite(Image& image, size_t at, uint64_t value, size_t size) {
  std::memcpy(image.data() + at, &value, std::min(size, image.size() - at));
}

void insert(Image& image, size_t at, std::span<const std::byte> bytes) {
  image.insert(image.begin() + static_cast<std::ptrdiff_t>(at), bytes.begin(), bytes.end());
}

// One place of the file flipped, overwritten by a number that a reader may not expect, repeated, removed, or a word put
// there.
void damage(Image& image, const test::Subject& subject, Random& random) {
  if (image.empty()) return;
  const size_t at = random.below(image.size());
  const size_t some = std::min(image.size() - at, 1 + random.below(24));
  switch (random.below(9)) {
    case 0: image[at] ^= static_cast<std::byte>(1 << random.below(8)); break;
    case 1: image[at] = static_cast<std::byte>(random.below(256)); break;
    case 2: {
      const uint64_t size = image.size();
      const uint64_t odd[] = {0,
                              1,
                              2,
                              13,
                              255,
                              65535,
                              65536,
                              1u << 31,
                              0xFFFFFFFF,
                              uint64_t{1} << 32,
                              uint64_t{1} << 61,
                              uint64_t{1} << 63,
                              ~uint64_t{0},
                              ~uint64_t{0} - 7,
                              size,
                              size - 1,
                              size + 1,
                              size / 2,
                              at,
                              at + 8};
      overwrite(image, at, odd[random.below(std::size(odd))], size_t{1} << random.below(4));
      break;
    }
    case 3: overwrite(image, at, static_cast<uint64_t>(image[at]) + random.below(9) - 4, 1); break;
    case 4:
      insert(image, at,
             Image(image.begin() + static_cast<std::ptrdiff_t>(at),
                   image.begin() + static_cast<std::ptrdiff_t>(at + some)));
      break;
    case 5:
      image.erase(image.begin() + static_cast<std::ptrdiff_t>(at),
                  image.begin() + static_cast<std::ptrdiff_t>(at + some));
      break;
    case 6: {
      const auto& word = subject.words[random.below(subject.words.size())];
      const Image bytes = test::bytes_of(word);
      const size_t times = random.below(8) == 0 ? 1 + random.below(200) : 1;
      for (size_t i = 0; i < times; ++i) insert(image, at, bytes);
      break;
    }
    case 7: {
      const size_t from = random.below(image.size() - some + 1);
      std::copy_n(Image(image).begin() + static_cast<std::ptrdiff_t>(from), some,
                  image.begin() + static_cast<std::ptrdiff_t>(at));
      break;
    }
    default:
      if (random.below(4) == 0) image.resize(at);
      break;
  }
}

Image made(const test::Subject& subject, uint64_t seed, uint64_t number) {
  Random random(seed * 0x9E3779B97F4A7C15u ^ (number + 1) * 0xC2B2AE3D27D4EB4Fu);
  const auto damaged = [&](Image image) {
    const size_t times = 1 + random.below(5);
    for (size_t i = 0; i < times; ++i) damage(image, subject, random);
    return image;
  };
  return damaged(subject.good[random.below(subject.good.size())]);
}

void check_refusal(const Error& error) {
  if (error.code != Code::invalid || !is_utf8(error.message) ||
      std::count(error.message.begin(), error.message.end(), ' ') < 3 || error.message.back() != '.')
    finding("A refusal is no sentence: " + error.message);
}

// Walks metadata as the binding does; an element of a list takes memory there.
struct Walk {
  uint64_t elements = 0, letters = 0;
  void whole(int64_t) { ++elements; }
  void large(uint64_t) { ++elements; }
  void real(double) { ++elements; }
  void boolean(bool) { ++elements; }
  void string(std::string_view text) {
    if (!is_utf8(text)) finding("A text of the metadata is not UTF-8.");
    letters += text.size();
    ++elements;
  }
  void begin(uint64_t count) { elements += count; }
  void end() {}
};

// Reads every byte that a tensor says it has: outside of the file a sanitizer ends the process.
uint64_t check_file(const TensorFile& file, const Image& image) {
  uint64_t sum = 0;
  for (const auto& tensor : file.tensors) {
    if (tensor.offset > image.size() || tensor.data.size() > image.size() - tensor.offset ||
        (!tensor.data.empty() && tensor.data.data() != image.data() + tensor.offset))
      finding("A tensor lies outside of its file.");
    if (tensor.name.size() > max_tensor_name || tensor.shape.size() > max_tensor_axes || !is_utf8(tensor.name))
      finding("A tensor has a name or a shape past the bounds.");
    for (const std::byte byte : tensor.data) sum += static_cast<uint64_t>(byte);
  }
  for (const auto& entry : file.metadata) {
    Walk walk;
    if (visit_gguf(entry.kind, entry.value.data(), walk) != entry.value.size())
      finding("An entry of the metadata has other bytes than its value.");
    if (walk.elements > entry.value.size()) finding("A list of the metadata is longer than its bytes.");
    sum += walk.letters;
  }
  return sum;
}

// How the case ended: a format, or refused.
std::string read(const std::string& kind, const Image& image) {
  if (kind == "pickle") {
    const auto tensors = read_pickle(image, "x.pth");
    if (!tensors) return check_refusal(tensors.error()), "refused";
    return "read";
  }
  const auto file = read_tensor_file(image, "x");
  if (!file) return check_refusal(file.error()), "refused";
  check_file(*file, image);
  return "read";
}

[[noreturn]] void usage() {
  std::fprintf(stderr, "continuo_fuzz KIND COUNT [SEED [CASE]], where KIND is gguf, torch, pickle or safetensors.\n");
  std::exit(2);
}

}  // namespace

int main(int count, char** words) {
  if (count < 3) usage();
  const std::vector<test::Subject> subjects{test::gguf_subject(), test::torch_subject(), test::pickle_subject(),
                                            test::safetensors_subject()};
  const auto subject =
      std::find_if(subjects.begin(), subjects.end(), [&](const auto& s) { return s.name == words[1]; });
  if (subject == subjects.end()) usage();
  const uint64_t cases = std::strtoull(words[2], nullptr, 10);
  current_kind = words[1];
  current_seed = count > 3 ? std::strtoull(words[3], nullptr, 10) : 1;
  const bool alone = count > 4;
  const uint64_t first = alone ? std::strtoull(words[4], nullptr, 10) : 0;
  __asan_set_death_callback(name_case);
  std::signal(SIGPROF, too_long);
  for (const auto& image : subject->good) {
    if (read(subject->name, image) != "read") finding("A good file was refused.");
  }
  if (__sanitizer_install_malloc_and_free_hooks(on_malloc, on_free) == 0) finding("The allocator cannot be watched.");
  std::map<std::string, uint64_t> ends;
  int64_t most = 0;
  for (current_case = first; current_case < first + (alone ? 1 : cases); ++current_case) {
    const Image image = made(*subject, current_seed, current_case);
    if (alone) fwrite(image.data(), 1, image.size(), stdout);
    if (current_case % 1024 == 0 || alone) set_clock(cpu_seconds);
    const int64_t before = live;
    peak = before;
    ++ends[read(subject->name, image)];
    const int64_t taken = peak - before;
    most = std::max(most, taken);
    if (taken > static_cast<int64_t>(image.size()) + memory_bound)
      finding(text("A reader took ", taken, " bytes for a file of ", image.size(), "."));
  }
  std::fprintf(stderr, "%s, seed %llu:", current_kind, static_cast<unsigned long long>(current_seed));
  for (const auto& [end, times] : ends)
    std::fprintf(stderr, " %llu %s", static_cast<unsigned long long>(times), end.c_str());
  std::fprintf(stderr, "; at most %lld bytes beside the file's\n", static_cast<long long>(most));
  return 0;
}
