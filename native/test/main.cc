#include "test/check.h"

#if defined(__SANITIZE_ADDRESS__)
// Running out of memory is a case that a test makes: it must reach the engine, not end the process.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1:max_allocation_size_mb=1024"; }
#endif

// With a word: only the tests whose claims have it.
int main(int count, char** words) {
  using namespace continuo::test;
  int failed = 0, ran = 0;
  for (const auto& test : cases()) {
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
