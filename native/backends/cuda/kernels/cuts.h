// Cuts: which product, outputs and rows each thread block of a launch has, and where the rows lie. A kernel asks its
// cut for the piece of its block. Row r of the piece lies in row from(r) of x, to(r) of y, and quantised_row(r) of the
// quantised rows.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/panels.h"

namespace continuo::cuda {

struct BlockWork {
  const Product& product;           // sizes, and where x and y lie
  const void* data;                 // the matrix
  const QuantisedBlock* quantised;  // quantised dtypes: the rows, [blocks][x_rows]
  uint32_t unit;                    // counts the outputs, in units of what the kernel takes
  uint32_t rows;                    // at most the height of a pass
};

// Rows [first, first + rows) of products side by side, in passes of `height` rows. The passes over the same outputs are
// neighbours, so that weights come from memory once.
struct InOrder {
  Products products;
  size_t first;
  uint32_t rows, height, passes;
  uint32_t x_rows;

  struct Piece : BlockWork {
    size_t row, first;

    CONTINUO_INLINE size_t from(uint32_t r) const { return first + row + r; }
    CONTINUO_INLINE size_t to(uint32_t r) const { return first + row + r; }
    CONTINUO_INLINE size_t quantised_row(uint32_t r) const { return row + r; }
  };

  CONTINUO_INLINE Piece piece(uint32_t block) const {
    const uint32_t at = product_at(products, block), own = block - products.begin[at], row = own % passes * height,
                   left = rows - row;
    return {
        {products.of[at], products.of[at].data, products.quantised[at], own / passes, left < height ? left : height},
        row,
        first};
  }
  // Whether the block has nothing to multiply.
  CONTINUO_INLINE bool idle(const Piece&, uint32_t, uint32_t) const { return false; }
};

// Rows that go to the same matrix of a stack: `rows` entries of the list of places, from `first` on. 0 rows: none.
struct Pass {
  uint32_t matrix, first, rows;
};

// Rows by the matrix of a stack that each of them picks, in the passes that group_routes (routes.h) has written.
struct ByRoute {
  Product product;  // data: of matrix 0
  QuantisedBlock* quantised;
  const Pass* passes;      // [bound]
  const uint32_t* places;  // grouped by matrix
  size_t matrix_bytes;
  uint32_t matrices, bound;
  uint32_t shared;  // neighbouring places that share a row of x
  uint32_t x_rows;

  struct Piece : BlockWork {
    const uint32_t* places;
    uint32_t shared, matrix;

    CONTINUO_INLINE size_t to(uint32_t r) const { return load_once(places + r); }
    CONTINUO_INLINE size_t from(uint32_t r) const { return load_once(places + r) / shared; }
    CONTINUO_INLINE size_t quantised_row(uint32_t r) const { return from(r); }
  };

  CONTINUO_INLINE Piece piece(uint32_t block) const {
    const Pass& pass = passes[block % bound];
    return {{product, static_cast<const char*>(product.data) + pass.matrix * matrix_bytes, quantised, block / bound,
             pass.rows},
            places + pass.first,
            shared,
            pass.matrix};
  }
  // Places whose number names no matrix get NaN in outputs [output, output + wide).
  CONTINUO_INLINE bool idle(const Piece& piece, uint32_t output, uint32_t wide) const {
    if (piece.rows == 0) return true;
    if (piece.matrix < matrices) return false;
    for (uint32_t i = threadIdx.x; i < piece.rows * wide; i += blockDim.x) {
      const uint32_t own = output + i % wide;
      if (own < product.outputs) product.y[piece.to(i / wide) * product.outputs + own] = __builtin_nanf("");
    }
    return true;
  }
};

}  // namespace continuo::cuda
