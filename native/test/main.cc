#include "check.h"

#if defined(__SANITIZE_ADDRESS__)
// Running out of memory is a case that a test makes: it must reach the engine, not end the process.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1:max_allocation_size_mb=1024"; }
#endif

int main() {
  using namespace continuo::test;
  int failed = 0;
  for (const auto& test : cases()) {
    const int before = failures();
    test.body();
    const bool ok = failures() == before;
    std::printf("%s %s\n", ok ? "ok  " : "FAIL", test.claim.c_str());
    if (!ok) ++failed;
  }
  std::printf("%zu native tests, %d failed\n", cases().size(), failed);
  return failed == 0 ? 0 : 1;
}
