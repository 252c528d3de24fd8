#include "runtime/model/device.h"

namespace continuo {

Pinned::Pinned(Device& device, Pageable& pageable) : device_(device), pageable_(pageable) {
  if (!device_.pin(pageable_)) {
    throw DeviceError(
        "The device has no room for this context beside the contexts of a call in progress; wait for that call to end, "
        "or give the device fewer sessions at once.");
  }
}

}  // namespace continuo
