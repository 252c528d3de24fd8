#include "check.h"

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
