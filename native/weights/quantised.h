// Checks quantised matrices in their file format (storage.h) and packs them for the kernels (packed_matrix.h).
#pragma once

#include <optional>

#include "weights/weights.h"

namespace continuo {

// The dtype of the packed matrix, for a storage other than plain.
Dtype packed_dtype(Storage storage);

// Refuses tensors whose dtypes or shapes do not fit the spec.
std::optional<Error> check_quantised(const ConstantSpec& spec, const Tensor& codes, const Tensor& scales);

// Packs into `out`, where m.data points. Refuses invalid codes and scales that are not finite.
std::optional<Error> pack_quantised(const ConstantSpec& spec, const Tensor& codes, const Tensor& scales,
                                    const PackedMatrix& m, std::byte* out);

}  // namespace continuo
