// Matrix memories on the CPU, and what feeds them: rotary positions, convolutions, windows of keys.
#include <algorithm>
#include <vector>

#include "backends/cpu/executor.h"

namespace continuo {

namespace {

constexpr size_t conv_channels = 64;  // of a task

// Where a position's keys, or values, are written.
std::byte* place_of(const void* span, const BlockList& blocks, const AttendPart& part, size_t position) {
  const std::byte* to = part.slots > 0
                            ? static_cast<const std::byte*>(span) + position % part.slots * part.stride * sizeof(float)
                            : blocks.at(position, part.stride, sizeof(float));
  return const_cast<std::byte*>(to);
}

}  // namespace

void CpuExecutor::rope(Space& space, const Instruction& instruction, std::span<const Run> runs) {
  const auto& node = *instruction.node;
  const size_t width = this->width(space, instruction.out), pairs = node.increments.size();
  for (const auto& run : runs) {
    for (size_t i = 0; i < run.rows; ++i) {
      const size_t at = (run.row + i) * width;
      kernels_.rope(floats(space, instruction.in[0].id) + at, floats(space, instruction.out) + at, node.groups,
                    width / node.groups, pairs, node.increments.data(), position(space, instruction, run, i));
    }
  }
}

// A task convolves some channels of a run and then moves their tail, towards older rows.
void CpuExecutor::conv(Space& space, const Instruction& instruction, std::span<const Run> runs) {
  const size_t width = this->width(space, instruction.out), stripes = (width + conv_channels - 1) / conv_channels;
  const auto& weights = model_->constants[instruction.in[1].id];
  const float* bias = instruction.in.size() > 2 ? model_->constants[instruction.in[2].id].vector() : nullptr;
  const size_t taps = weights.outputs / width, kept = taps - 1;
  size_t rows = 0;
  std::vector<float*> tails;
  for (const auto& run : runs) {
    rows += run.rows;
    tails.push_back(tables(space, instruction, run)[0]);
  }
  fork(runs.size() * stripes, rows * width * (taps + 12), [&](size_t task) {
    const Run& run = runs[task / stripes];
    float* const tail = tails[task / stripes];
    if (!tail) return;
    const size_t channel = task % stripes * conv_channels, end = std::min(width, channel + conv_channels);
    const float* x = floats(space, instruction.in[0].id) + run.row * width;
    float* y = floats(space, instruction.out) + run.row * width;
    kernels_.conv({x, tail, weights.vector(), bias, y, run.rows, width, taps, instruction.node->silu}, channel, end);
    for (size_t at = 0; at < kept; ++at) {
      const size_t from = at + run.rows;  // of the tail's rows followed by the run's
      const float* row = from < kept ? tail + from * width : x + (from - kept) * width;
      std::copy(row + channel, row + end, tail + at * width + channel);
    }
  });
}

// A head of keys writes its rows and answers its queries by itself, row after row: what a ring overwrites was read
// before.
void CpuExecutor::attend_window(Space& space, const Instruction& instruction, std::span<const Run> runs) {
  const auto& node = *instruction.node;
  const size_t inputs = instruction.in.size();
  const bool context = instruction.places.size() == 4;
  const bool persistent = inputs > (context ? 5u : 3u);
  const size_t width = this->width(space, instruction.out), heads = node.groups / node.shared;
  const size_t channels = width / node.groups, stride = width / node.shared;
  const auto& axis = model_->graph.declarations[instruction.places[0].table].axes[instruction.places[0].picks.size()];
  const auto slots = static_cast<size_t>(axis.extent);
  const auto value_of = [&](size_t i) { return floats(space, instruction.in[i].id); };
  std::vector<Rings> of_run;
  size_t positions = 0;
  for (const auto& run : runs) {
    of_run.push_back(rings(space, instruction, run));
    positions += run.rows * slots * (context ? 2 : 1);
  }
  const size_t learned = persistent ? model_->constants[instruction.in[inputs - 1].id].outputs / stride : 0;
  const auto work = [&](size_t task) {
    const Run& run = runs[task / heads];
    const auto& [keys, values, context_keys, context_values] = of_run[task / heads];
    const size_t head = task % heads, channel = head * channels;
    if (!keys.there()) return;
    const uint64_t origin = run.context->head.origin;
    for (size_t i = 0; i < run.rows; ++i) {
      const uint64_t clock = run.context->head.pulse + run.number + i;
      const uint64_t reach =
          node.segment > 0 ? clock - clock % node.segment : clock - std::min<uint64_t>(clock, slots - 1);
      const size_t first = std::max(reach, origin), row = run.row + i;
      AttendRun job{{}, 0, nullptr, channels, node.scale};
      const auto own = [&](const Ring& K, const Ring& V, size_t k) {
        auto& part = job.parts[job.count++];
        part = {nullptr, nullptr, nullptr, stride, first, clock + 1, 0, K.blocks, V.blocks};
        if (K.data) part.keys = K.data + channel, part.values = V.data + channel, part.slots = slots;
        part.key_blocks.channel = part.value_blocks.channel = channel;
        std::memcpy(place_of(part.keys, part.key_blocks, part, clock), value_of(k) + row * stride + channel,
                    channels * sizeof(float));
        std::memcpy(place_of(part.values, part.value_blocks, part, clock), value_of(k + 1) + row * stride + channel,
                    channels * sizeof(float));
      };
      if (learned > 0) {
        const auto of = [&](size_t constant) {
          return model_->constants[instruction.in[constant].id].vector() + channel * learned;
        };
        job.parts[job.count++] = {nullptr, of(inputs - 2), of(inputs - 1), channels, 0, learned, learned};
      }
      if (context) own(context_keys, context_values, 3);
      own(keys, values, 1);
      for (size_t query = head * node.shared; query < (head + 1) * node.shared; ++query) {
        const size_t at = row * width + query * channels;
        for (size_t part = 0; part < job.count; ++part)
          job.parts[part].q = value_of(learned > 0 && part == 0 ? inputs - 3 : 0) + at;
        job.y = floats(space, instruction.out) + at;
        kernels_.attend(job);
      }
    }
  };
  fork(runs.size() * heads, positions * width, work);
}

void CpuExecutor::memory(Space& space, const Instruction& instruction, std::span<const Run> runs) {
  const auto& node = *instruction.node;
  const auto& form = node.memory;
  const size_t width = this->width(space, instruction.out), heads = node.groups, n = width / heads;
  const size_t levels = node.periods.size(), gates = levels * heads;
  const bool titans = form.rule == Rule::titans, slow = slow_levels(node.periods) > 0;
  // in: q, k, v, θ, [η], [α], logits; places: [S], [G], M.
  const auto value_of = [&](size_t i) { return static_cast<const float*>(floats(space, instruction.in[i].id)); };
  const float* logits = model_->constants[instruction.in.back().id].vector();
  const size_t alpha = titans ? 5 : 4, last = instruction.places.size() - 1;
  std::vector<Tables> memories;
  size_t rows = 0;
  for (const auto& run : runs) {
    rows += run.rows;
    memories.push_back(tables(space, instruction, run));
  }
  const auto shares = level_shares(kernels_, logits, heads, levels);
  const auto work = [&](size_t task) {
    const Run& run = runs[task / heads];
    const Tables& own = memories[task / heads];
    float *const M = own[last], *const S = titans ? own[0] : nullptr, *const G = slow ? own[last - 1] : nullptr;
    const size_t head = task % heads, each = n * n;
    if (!M) return;
    const size_t at = run.row * width + head * n;
    size_t buffered = 0;
    for (size_t level = 0; level < levels; ++level) {
      const size_t gate = run.row * gates + level * heads + head, matrix = (level * heads + head) * each;
      MemoryRun job{};
      job.M = M + matrix;
      if (titans) job.S = S + matrix;
      if (node.periods[level] > 1) job.G = G + (buffered++ * heads + head) * each;
      job.q = value_of(0) + at;
      job.k = value_of(1) + at;
      job.v = value_of(2) + at;
      job.theta = value_of(3) + gate;
      if (titans) job.eta = value_of(4) + gate;
      if (form.retains()) job.alpha = value_of(alpha) + gate;
      job.y = floats(space, instruction.out) + at;
      job.channels = n;
      job.stride = width;
      job.gates = gates;
      job.tokens = run.rows;
      job.clock = run.context->head.pulse + run.number;
      job.period = node.periods[level];
      job.mix = shares[head * levels + level];
      job.begin = level == 0;
      kernels_.memory(form, job);
    }
  };
  fork(runs.size() * heads, rows * levels * width * n * 4, work);
  for (size_t i = 0; i < runs.size(); ++i) {
    if (const float* M = memories[i][last])
      note_gates(space, instruction, runs[i],
                 runs[i].context->index_of(instruction.places.back().table, reinterpret_cast<const std::byte*>(M)));
  }
}

// `at`: where the layer's memories begin in their table.
void CpuExecutor::note_gates(Space& space, const Instruction& instruction, const Run& run, size_t at) {
  const auto& node = *instruction.node;
  const size_t heads = node.groups, levels = node.periods.size(), n = this->width(space, instruction.out) / heads;
  const bool titans = node.memory.rule == Rule::titans;
  for (size_t level = 0; level < levels; ++level) {
    auto& sums = run.context->gates[{instruction.places.back().table, at + level * heads * n * n}];
    const auto add = [&](size_t input, double& sum) {
      for (size_t row = run.row; row < run.row + run.rows; ++row) {
        const float* gates = floats(space, instruction.in[input].id) + (row * levels + level) * heads;
        for (size_t head = 0; head < heads; ++head) sum += gates[head];
      }
    };
    add(3, sums.theta);
    if (titans) add(4, sums.eta);
    if (node.memory.retains()) add(titans ? 5 : 4, sums.alpha);
    sums.count += run.rows * heads;
  }
}

void CpuExecutor::memory_first(Space& space, const Instruction& instruction, std::span<const Run> runs) {
  const auto& node = *instruction.node;
  const auto& place = instruction.places[0];
  const auto& d = model_->graph.declarations[place.table];
  const auto n = static_cast<size_t>(d.axes.back().extent), matrices = node.periods.size() * node.groups;
  const float* init = instruction.in.empty() ? nullptr : model_->constants[instruction.in[0].id].vector();
  for (const auto& run : runs) {
    float* M = tables(space, instruction, run)[0];
    for (size_t i = 0; M && i < matrices; ++i)
      kernels_.memory_first(node.memory, init ? init + i * n * n : nullptr, M + i * n * n, n);
  }
}

// With a segment: only where a run's first row begins one.
void CpuExecutor::mix(Space& space, const Instruction& instruction, std::span<const Run> runs) {
  const auto& node = *instruction.node;
  const auto& logits = model_->constants[instruction.in[0].id];
  const size_t heads = node.groups, levels = logits.outputs / heads;
  const auto n = static_cast<size_t>(model_->graph.declarations[instruction.places[1].table].axes.back().extent),
             each = n * n;
  const auto shares = level_shares(kernels_, logits.vector(), heads, levels);
  for (const auto& run : runs) {
    if (node.segment > 0 && (run.context->head.pulse + run.number) % node.segment != 0) continue;
    const Tables own = tables(space, instruction, run);  // M, mixed
    if (!own[0]) continue;
    fork(heads, levels * heads * each, [&](size_t head) {
      kernels_.mix(own[0] + head * each, heads * each, shares.data() + head * levels, levels, own[1] + head * each,
                   each);
    });
  }
}

void CpuExecutor::recall(Space& space, const Instruction& instruction, std::span<const Run> runs) {
  const size_t heads = instruction.node->groups, width = this->width(space, instruction.in[0].id), n = width / heads;
  const size_t read = this->width(space, instruction.out), channels = read / heads;
  size_t rows = 0;
  std::vector<const float*> memories;
  for (const auto& run : runs) {
    rows += run.rows;
    memories.push_back(tables(space, instruction, run)[0]);
  }
  fork(runs.size() * heads, rows * width * channels, [&](size_t task) {
    const Run& run = runs[task / heads];
    const float* M = memories[task / heads];
    const size_t head = task % heads, at = run.row * width + head * n;
    if (M && channels != n) {
      for (size_t row = run.row; row < run.row + run.rows; ++row)
        kernels_.recall_keys(M + head * n * channels, floats(space, instruction.in[0].id) + row * width + head * n,
                             floats(space, instruction.out) + row * read + head * channels, n, channels);
      return;
    }
    if (M)
      kernels_.recall(M + head * n * n, floats(space, instruction.in[0].id) + at, floats(space, instruction.out) + at,
                      run.rows, width, n);
  });
}

}  // namespace continuo
