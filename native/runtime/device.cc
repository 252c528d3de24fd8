#include "runtime/device.h"

namespace continuo {

Pinned::Pinned(Device& device, Pageable& pageable) : device_(device), pageable_(pageable) {
  if (!device_.pin(pageable_)) {
    throw DeviceError(
        "The device's memory is held by the contexts of a call under way; wait for it, or give the device fewer "
        "sessions at once.");
  }
}

}  // namespace continuo
