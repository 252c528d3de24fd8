// The entries of products, recurrences, attention and memories.
#include <algorithm>
#include <optional>

#include "backends/cuda/kernels/attend.h"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/kernels/memory.h"
#include "backends/cuda/kernels/multiply.h"
#include "backends/cuda/kernels/ngram.h"
#include "backends/cuda/kernels/pdr.h"
#include "backends/cuda/kernels/ssm.h"
#include "backends/cuda/kernels/wkv7.h"
#include "test/cuda/staged.h"
#include "test/cuda/table.h"

namespace continuo::test::staged {

namespace {

// One block of threads runs the job, as a block of the interpreter does.
__global__ void __launch_bounds__(1024) run_wkv7(Wkv7Run run, size_t lane, size_t lane_end) {
  cuda::wkv7(run, lane, lane_end);
}
__global__ void __launch_bounds__(1024) run_ssm(SsmRun run, size_t lane, size_t lane_end) {
  cuda::ssm(run, lane, lane_end);
}
__global__ void __launch_bounds__(1024) run_pdr(PdrRun run, size_t lane, size_t lane_end) {
  cuda::pdr(run, lane, lane_end);
}
__global__ void __launch_bounds__(1024) run_ngram(NgramRun run, ngram::TokenTexts texts) {
  if (run.texts) run.texts = &texts;
  cuda::ngram_read(run);
}
__global__ void __launch_bounds__(1024) run_ngram_first(float* mixture, const float* learned, ngram::Kind kind) {
  cuda::ngram_first(mixture, learned, kind);
}
__global__ void __launch_bounds__(1024)
    run_recall_keys(const float* S, const float* q, float* y, size_t keys, size_t channels) {
  cuda::recall_keys(S, q, y, keys, channels);
}
__global__ void __launch_bounds__(1024) run_attend(AttendRun run) { cuda::attend(run); }
__global__ void __launch_bounds__(1024) run_memory(MemoryForm form, MemoryRun run) { cuda::memory(form, run); }
__global__ void __launch_bounds__(1024)
    run_memory_first(MemoryForm form, const float* init, float* M, size_t channels) {
  cuda::memory_first(form, init, M, channels);
}
__global__ void __launch_bounds__(1024)
    run_mix(const float* M, size_t stride, const float* shares, size_t levels, float* out, size_t numbers) {
  cuda::mix(M, stride, shares, levels, out, numbers);
}
__global__ void __launch_bounds__(1024)
    run_recall(const float* M, const float* c, float* y, size_t rows, size_t stride, size_t channels) {
  cuda::recall(M, c, y, rows, stride, channels);
}
__global__ void __launch_bounds__(1024) run_softmax(const float* x, size_t stride, float* out, size_t n) {
  cuda::softmax(x, stride, out, n);
}

// The number of floats in `rows` rows of `width` at a stride, where the last row ends with its numbers.
size_t span_of(size_t rows, size_t stride, size_t width) { return rows == 0 ? 0 : (rows - 1) * stride + width; }

// Copies the blocks, each up to the end of the member that the list names, and the list of the copies.
BlockList staged_blocks(Staged& staged, const BlockList& list, const AttendPart& part) {
  if (!list.blocks) return list;
  std::vector<BlockAt> copies(list.count);
  for (size_t i = 0; i < copies.size(); ++i) {
    const BlockAt& block = list.blocks[i];
    const size_t numbers = (list.member + 1) * block.room * part.stride;
    copies[i] = {staged.in(block.data, numbers * size_of(part.dtype)), block.room};
  }
  auto* on_device = staged.scratch<BlockAt>(copies.size());
  must(cudaMemcpy(on_device, copies.data(), copies.size() * sizeof(BlockAt), cudaMemcpyHostToDevice),
       "cannot copy to the device");
  return {on_device, list.count, list.member, list.channel};
}

// Multiplies tiles [tile, tile_end) of a matrix as a product of its own. Its rows of y are contiguous; the caller
// copies them to their places.
class Tiles {
 public:
  Tiles(const PackedMatrix& w, float* y, size_t rows, size_t tile, size_t tile_end)
      : y_(y),
        rows_(rows),
        outputs_(w.outputs),
        from_(tile * tile_lanes),
        wide_(std::min(w.outputs, tile_end * tile_lanes) - from_),
        sums_(rows * wide_) {
    auto& product = products_.of[0];
    product.dtype = w.dtype;
    product.outputs = static_cast<uint32_t>(wide_);
    product.inputs = static_cast<uint32_t>(w.inputs);
    product.group = static_cast<uint32_t>(w.group);
    product.data = staged().in_line(static_cast<const std::byte*>(w.data) + tile * w.tile_bytes(),
                                    (tile_end - tile) * w.tile_bytes());
    product.y = staged().out(sums_.data(), sums_.size());
    products_.count = 1;
  }
  cuda::Products& products() { return products_; }
  Staged& staged() { return *staged_; }
  void give() {
    staged_.reset();
    for (size_t row = 0; row < rows_; ++row)
      std::copy_n(sums_.data() + row * wide_, wide_, y_ + row * outputs_ + from_);
  }

 private:
  float* y_;
  size_t rows_, outputs_, from_, wide_;
  std::vector<float> sums_;
  cuda::Products products_{};
  std::optional<Staged> staged_{std::in_place};
};

}  // namespace

void matmul(const PackedMatrix& w, const float* x, float* y, size_t row, size_t rows, size_t tile, size_t tile_end) {
  if (rows == 0 || tile == tile_end) return;
  Tiles tiles(w, y + row * w.outputs, rows, tile, tile_end);
  auto& product = tiles.products().of[0];
  product.x = tiles.staged().in(x + row * w.inputs, rows * w.inputs);
  cuda::multiply(&product, 1, 0, static_cast<uint32_t>(rows), nullptr, nullptr);
  tiles.give();
}

void quantise(const PackedMatrix& w, const float* x, QuantisedBlock* out, size_t stride) {
  const size_t blocks = (w.inputs + block_terms - 1) / block_terms;
  std::vector<QuantisedBlock> row(blocks);
  for (size_t i = 0; i < blocks; ++i) row[i] = out[i * stride];
  {
    Staged staged;
    cuda::Products products{};
    products.count = 1;
    auto& product = products.of[0];
    product.dtype = w.dtype;
    product.inputs = static_cast<uint32_t>(w.inputs);
    product.group = static_cast<uint32_t>(w.group);
    product.x = staged.in(x, w.inputs);
    products.quantised[0] = staged.both(row.data(), blocks);
    cuda::quantise(products, 0, 1, nullptr);
  }
  for (size_t i = 0; i < blocks; ++i) out[i * stride] = row[i];
}

void matmul_quantised(const PackedMatrix& w, const QuantisedBlock* x, size_t x_rows, float* y, size_t row, size_t rows,
                      size_t tile, size_t tile_end) {
  if (rows == 0 || tile == tile_end) return;
  const size_t blocks = (w.inputs + block_terms - 1) / block_terms;
  Tiles tiles(w, y + row * w.outputs, rows, tile, tile_end);
  // Kernels load sixteen bytes at once, so blocks begin on whole lines on the device, whatever their alignment here.
  auto* on_device = tiles.staged().scratch<QuantisedBlock>(blocks * x_rows);
  must(cudaMemcpy(on_device, x, blocks * x_rows * sizeof *x, cudaMemcpyHostToDevice), "cannot copy to the device");
  tiles.products().quantised[0] = on_device + row;
  cuda::matmul_quantised(tiles.products(), static_cast<uint32_t>(x_rows), 0, static_cast<uint32_t>(rows), nullptr);
  tiles.give();
}

void wkv7(const Wkv7Run& run, size_t lane, size_t lane_end) {
  Staged staged;
  Wkv7Run job = run;
  job.state = staged.both(run.state, run.keys * run.channels);
  for (const auto member : {&Wkv7Run::r, &Wkv7Run::w, &Wkv7Run::k, &Wkv7Run::kk, &Wkv7Run::a})
    job.*member = staged.in(run.*member, span_of(run.tokens, run.key_stride, run.keys));
  job.v = staged.in(run.v, span_of(run.tokens, run.stride, run.channels));
  job.y = staged.both(run.y, span_of(run.tokens, run.stride, run.channels));
  cuda::launch(run_wkv7, 1, next_threads(), nullptr, job, lane, lane_end);
}

void ssm(const SsmRun& run, size_t lane, size_t lane_end) {
  Staged staged;
  SsmRun job = run;
  job.state = staged.both(run.state, run.keys * run.channels);
  job.x = staged.in(run.x, span_of(run.tokens, run.stride, run.channels));
  for (const auto member : {&SsmRun::dt, &SsmRun::w})
    job.*member = staged.in(run.*member, span_of(run.tokens, run.heads, 1));
  for (const auto member : {&SsmRun::b, &SsmRun::c})
    job.*member = staged.in(run.*member, span_of(run.tokens, run.key_stride, run.keys));
  job.y = staged.both(run.y, span_of(run.tokens, run.stride, run.channels));
  cuda::launch(run_ssm, 1, next_threads(), nullptr, job, lane, lane_end);
}

void pdr(const PdrRun& run, size_t lane, size_t lane_end) {
  Staged staged;
  PdrRun job = run;
  job.state = staged.both(run.state, run.keys * run.channels);
  for (const auto member : {&PdrRun::gamma, &PdrRun::v})
    job.*member = staged.in(run.*member, run.tokens * run.channels);
  for (const auto member : {&PdrRun::k, &PdrRun::q}) job.*member = staged.in(run.*member, run.tokens * run.keys);
  job.y = staged.both(run.y, run.tokens * run.channels);
  cuda::launch(run_pdr, 1, next_threads(), nullptr, job, lane, lane_end);
}

void ngram(const NgramRun& run) {
  Staged staged;
  NgramRun job = run;
  const bool subwords = run.texts != nullptr;
  const size_t tokens = subwords ? run.texts->count : ngram::tokens;
  job.table = staged.both(run.table, run.slots * (subwords ? 4 : 2));
  job.text = staged.both(run.text, ngram::words_of(run.kind, run.slots));
  job.mixture = staged.both(run.mixture, ngram::mixture_numbers(run.kind));
  job.tokens = staged.in(run.tokens, run.rows);
  job.base = staged.in(run.base, run.base ? run.rows * tokens : 0);
  job.y = staged.out(run.y, run.rows * tokens);
  ngram::TokenTexts texts{};
  if (subwords) {
    texts = *run.texts;
    texts.bytes = staged.in(run.texts->bytes, run.texts->ends[tokens - 1]);
    texts.ends = staged.in(run.texts->ends, tokens);
    texts.classes = staged.in(run.texts->classes, tokens);
    job.kept = staged.both(run.kept, tokens);
  }
  cuda::launch(run_ngram, 1, next_threads(), nullptr, job, texts);
}

void ngram_first(float* mixture, const float* learned, ngram::Kind kind) {
  Staged staged;
  const size_t numbers = ngram::mixture_numbers(kind);
  cuda::launch(run_ngram_first, 1, next_threads(), nullptr, staged.out(mixture, numbers),
               staged.in(learned, learned ? ngram::learned_numbers(kind) : 0), kind);
}

void recall_keys(const float* S, const float* q, float* y, size_t keys, size_t channels) {
  Staged staged;
  cuda::launch(run_recall_keys, 1, next_threads(), nullptr, staged.in(S, keys * channels), staged.in(q, keys),
               staged.out(y, channels), keys, channels);
}

void attend(const AttendRun& run) {
  Staged staged;
  AttendRun job = run;
  for (size_t i = 0; i < run.count; ++i) {
    auto& part = job.parts[i];
    const size_t span = span_of(part.slots, part.stride, run.channels);
    part.q = staged.in(part.q, run.channels);
    part.keys = staged.in(static_cast<const std::byte*>(part.keys), span * size_of(part.dtype));
    part.values = staged.in(static_cast<const std::byte*>(part.values), span * size_of(part.dtype));
    part.key_blocks = staged_blocks(staged, part.key_blocks, part);
    part.value_blocks = staged_blocks(staged, part.value_blocks, part);
  }
  job.y = staged.out(run.y, run.channels);
  cuda::launch(run_attend, 1, next_threads(), nullptr, job);
}

// A device takes queries one by one.
void attend_rows(const AttendRows& run) {
  for (size_t row = 0; row < run.rows; ++row) {
    for (size_t head = 0; head < run.key_heads * run.heads; ++head) {
      const size_t at = row * run.stride + head * run.channels, channel = head / run.heads * run.channels;
      AttendPart part = run.part;
      part.q += at;
      part.last += row;
      const auto channel_of = [&](const void* data) {
        return data ? static_cast<const std::byte*>(data) + channel * size_of(part.dtype) : nullptr;
      };
      part.keys = channel_of(part.keys);
      part.values = channel_of(part.values);
      part.key_blocks.channel += channel;
      part.value_blocks.channel += channel;
      attend({{part}, 1, run.y + at, run.channels, run.scale});
    }
  }
}

void memory(const MemoryForm& form, const MemoryRun& run) {
  Staged staged;
  MemoryRun job = run;
  const size_t n = run.channels;
  for (const auto member : {&MemoryRun::M, &MemoryRun::S, &MemoryRun::G}) job.*member = staged.both(run.*member, n * n);
  for (const auto member : {&MemoryRun::q, &MemoryRun::k, &MemoryRun::v})
    job.*member = staged.in(run.*member, span_of(run.tokens, run.stride, n));
  for (const auto member : {&MemoryRun::theta, &MemoryRun::eta, &MemoryRun::alpha})
    job.*member = staged.in(run.*member, span_of(run.tokens, run.gates, 1));
  job.y = staged.both(run.y, span_of(run.tokens, run.stride, n));
  cuda::launch(run_memory, 1, next_threads(), nullptr, form, job);
}

void mix(const float* M, size_t stride, const float* shares, size_t levels, float* out, size_t numbers) {
  Staged staged;
  cuda::launch(run_mix, 1, next_threads(), nullptr, staged.in(M, span_of(levels, stride, numbers)), stride,
               staged.in(shares, levels), levels, staged.out(out, numbers), numbers);
}

void recall(const float* M, const float* c, float* y, size_t rows, size_t stride, size_t channels) {
  Staged staged;
  const size_t span = span_of(rows, stride, channels);
  cuda::launch(run_recall, 1, next_threads(), nullptr, staged.in(M, channels * channels), staged.in(c, span),
               staged.both(y, span), rows, stride, channels);
}

void memory_first(const MemoryForm& form, const float* init, float* M, size_t channels) {
  Staged staged;
  cuda::launch(run_memory_first, 1, next_threads(), nullptr, form, staged.in(init, channels * channels),
               staged.out(M, channels * channels), channels);
}

void softmax(const float* x, size_t stride, float* out, size_t n) {
  Staged staged;
  cuda::launch(run_softmax, 1, next_threads(), nullptr, staged.in(x, span_of(n, stride, 1)), stride, staged.out(out, n),
               n);
}

}  // namespace continuo::test::staged
