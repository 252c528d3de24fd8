// Recurrences and tables on the CPU.
#include <algorithm>

#include "backends/cpu/executor.h"

namespace continuo {

namespace {

// Channels of one head that a task takes through a recurrence.
constexpr size_t recurrent_lanes = 64;
}  // namespace

void CpuExecutor::shift(Space& space, const Instruction& instruction, std::span<const Run> runs) {
  const size_t width = this->width(space, instruction.out);
  const float* in = floats(space, instruction.in[0].id);
  float* out = floats(space, instruction.out);
  const size_t bytes = width * sizeof(float);
  for (const auto& run : runs) {
    float* kept = tables(space, instruction, run)[0];
    if (!kept) continue;
    std::memcpy(out + run.row * width, kept, bytes);
    std::memcpy(out + (run.row + 1) * width, in + run.row * width, (run.rows - 1) * bytes);
    std::memcpy(kept, in + (run.row + run.rows - 1) * width, bytes);
  }
}

// Calls work(state, run, head, lanes) for pieces of the heads of each run, whose state is the member that the
// instruction's place picks; not for a run after a fault. `cost`: multiply-adds of a row.
void CpuExecutor::recur(Space& space, const Instruction& instruction, std::span<const Run> runs, size_t cost,
                        const auto& work) {
  const size_t heads = instruction.node->groups, n = width(space, instruction.out) / heads;
  const size_t pieces = (n + recurrent_lanes - 1) / recurrent_lanes, per_run = heads * pieces;
  size_t rows = 0;
  std::vector<float*> states;
  for (const auto& run : runs) {
    rows += run.rows;
    states.push_back(tables(space, instruction, run)[0]);
  }
  fork(runs.size() * per_run, rows * cost, [&](size_t task) {
    float* const state = states[task / per_run];
    const size_t lane = task % pieces * recurrent_lanes;
    if (state)
      work(state, runs[task / per_run], task % per_run / pieces, Lanes{lane, std::min(n, lane + recurrent_lanes)});
  });
}

void CpuExecutor::wkv7(Space& space, const Instruction& instruction, std::span<const Run> runs) {
  const size_t width = this->width(space, instruction.out), heads = instruction.node->groups, n = width / heads;
  const size_t key_width = this->width(space, instruction.in[0].id), keys = key_width / heads;
  const auto value_of = [&](size_t i) { return static_cast<const float*>(floats(space, instruction.in[i].id)); };
  recur(space, instruction, runs, width * keys * 4, [&](float* state, const Run& run, size_t head, Lanes lanes) {
    const size_t at = run.row * width + head * n, key = run.row * key_width + head * keys;
    const Wkv7Run job{state + head * keys * n,
                      value_of(0) + key,
                      value_of(1) + key,
                      value_of(2) + key,
                      value_of(3) + at,
                      value_of(4) + key,
                      value_of(5) + key,
                      floats(space, instruction.out) + at,
                      n,
                      keys,
                      width,
                      key_width,
                      run.rows};
    kernels_.wkv7(job, lanes.begin, lanes.end);
  });
}

void CpuExecutor::ssm(Space& space, const Instruction& instruction, std::span<const Run> runs) {
  const auto& node = *instruction.node;
  const auto& place = instruction.places[0];
  const auto& axes = model_->graph.declarations[place.table].axes;
  const size_t width = this->width(space, instruction.out), heads = node.groups, n = width / heads;
  const auto keys = static_cast<size_t>(axes[axes.size() - 2].extent);
  const size_t key_stride = this->width(space, instruction.in[3].id), shared = heads / (key_stride / keys);
  const float* skip = model_->constants[instruction.in[5].id].vector();
  const auto value_of = [&](size_t i) { return static_cast<const float*>(floats(space, instruction.in[i].id)); };
  recur(space, instruction, runs, width * keys * 2, [&](float* state, const Run& run, size_t head, Lanes lanes) {
    const size_t at = run.row * width + head * n, key = run.row * key_stride + head / shared * keys;
    const SsmRun job{state + head * keys * n,
                     value_of(0) + at,
                     value_of(1) + run.row * heads + head,
                     value_of(2) + run.row * heads + head,
                     value_of(3) + key,
                     value_of(4) + key,
                     skip[head],
                     floats(space, instruction.out) + at,
                     n,
                     keys,
                     width,
                     heads,
                     key_stride,
                     run.rows};
    kernels_.ssm(job, lanes.begin, lanes.end);
  });
}

void CpuExecutor::pdr(Space& space, const Instruction& instruction, std::span<const Run> runs) {
  const size_t width = this->width(space, instruction.out), keys = this->width(space, instruction.in[1].id);
  const auto value_of = [&](size_t i) { return static_cast<const float*>(floats(space, instruction.in[i].id)); };
  recur(space, instruction, runs, width * keys * 2, [&](float* state, const Run& run, size_t, Lanes lanes) {
    const size_t at = run.row * width, key = run.row * keys;
    const PdrRun job{state,
                     value_of(0) + at,
                     value_of(3) + at,
                     value_of(1) + key,
                     value_of(2) + key,
                     floats(space, instruction.out) + at,
                     width,
                     keys,
                     run.rows,
                     instruction.node->convex};
    kernels_.pdr(job, lanes.begin, lanes.end);
  });
}

void CpuExecutor::read(Space& space, const Instruction& instruction, std::span<const Run> runs) {
  const auto& place = instruction.places[0];
  const auto& d = model_->graph.declarations[place.table];
  const size_t bytes = space.program->values[instruction.out].bytes;
  std::byte* out = value(space, instruction.out);
  for (const auto& run : runs) {
    for (size_t i = 0; i < run.rows; ++i) {
      std::byte* to = out + (run.row + i) * bytes;
      if (d.counter) {
        const int32_t count = count_read(space, instruction, run, i);
        std::memcpy(to, &count, sizeof count);
        continue;
      }
      const std::byte* from = find(space, instruction, place, run, i, false);
      if (from)
        std::memcpy(to, from, bytes);
      else
        std::memset(to, 0, bytes);
    }
  }
}

void CpuExecutor::write(Space& space, const Instruction& instruction, std::span<const Run> runs) {
  const auto& place = instruction.places[0];
  const uint32_t from = instruction.in[0].id;
  const size_t bytes = space.program->values[from].bytes;
  for (const auto& run : runs) {
    for (size_t i = 0; i < run.rows; ++i) {
      std::byte* to = find(space, instruction, place, run, i, true);
      if (to) std::memcpy(to, value(space, from) + (run.row + i) * bytes, bytes);
    }
  }
}

}  // namespace continuo
