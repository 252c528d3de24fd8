#include "base/result.h"

namespace continuo {

const char* name_of(Code code) {
  switch (code) {
    case Code::invalid: return "INVALID";
    case Code::misuse: return "MISUSE";
    case Code::refused: return "REFUSED";
    case Code::unavailable: return "UNAVAILABLE";
    case Code::internal: return "INTERNAL";
  }
  return "INTERNAL";
}

}  // namespace continuo
