// Quantised matrices as files hold them (weights.h), checked and packed for the kernels (packed_matrix.h).
#pragma once

#include <optional>

#include "weights/weights.h"

namespace continuo {

// The kernels' dtype for a storage other than plain.
Dtype packed_dtype(Storage storage);

// Whether the tensors have the dtypes and shapes that the spec promises.
std::optional<Error> check_quantised(const ConstantSpec& spec, const Tensor& codes, const Tensor& scales);

// Packs into m.data, `out`; refuses codes that mean nothing and scales that are not finite.
std::optional<Error> pack_quantised(const ConstantSpec& spec, const Tensor& codes, const Tensor& scales,
                                    const PackedMatrix& m, std::byte* out);

}  // namespace continuo
