#include <string_view>

#include "test/check.h"

#if defined(__SANITIZE_ADDRESS__)
// One test makes memory run out: under a sanitizer the allocator must then return null, not end the process.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1:max_allocation_size_mb=1024"; }
#endif

// continuo_tests [--part K/N] [WORD]: runs the tests whose claims have the word. `--part`: only every N-th test, from
// the K-th on, so that N processes together run all of them.
int main(int count, char** words) {
  using namespace continuo::test;
  size_t part = 1, parts = 1;
  if (count > 2 && std::string_view(words[1]) == "--part") {
    if (std::sscanf(words[2], "%zu/%zu", &part, &parts) != 2 || part < 1 || part > parts) {
      std::fprintf(stderr, "--part is \"%s\", expected K/N with K from 1 to N.\n", words[2]);
      return 2;
    }
    count -= 2;
    words += 2;
  }
  int failed = 0, ran = 0;
  for (size_t at = 0; at < cases().size(); ++at) {
    const auto& test = cases()[at];
    if (at % parts != part - 1) continue;
    if (count > 1 && test.claim.find(words[1]) == std::string::npos) continue;
    const int before = failures();
    test.body();
    ++ran;
    const bool ok = failures() == before;
    std::printf("%s %s\n", ok ? "ok  " : "FAIL", test.claim.c_str());
    if (!ok) ++failed;
  }
  std::printf("%d native tests, %d failed\n", ran, failed);
  return failed == 0 ? 0 : 1;
}
