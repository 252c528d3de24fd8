// Attention on the CPU: how queries are cut into jobs.
#include <algorithm>

#include "backends/cpu/executor.h"

namespace continuo {

namespace {

// Queries that a task of attention takes at most, which all read a head's keys and values once; and tasks that there
// are for each thread, if rows can be parted.
constexpr size_t task_queries = 128, thread_tasks = 2;
// Positions from which on threads share a history: behind a thousand, shares of heads and of blocks take the same time.
// And scores that are held at a time, so that a split stays in the caches.
constexpr size_t split_positions = 4096, split_scores = size_t{1} << 20;

constexpr size_t parts_of(size_t all, size_t part) { return (all + part - 1) / part; }

bool same(const BlockList& a, const BlockList& b) { return a.blocks == b.blocks && a.member == b.member; }

// Whether a row looks along the same keys and values as the rows of the block, one position further.
bool follows(const AttendPart& part, const AttendRows& rows) {
  const auto& first = rows.part;
  return first.keys == part.keys && first.values == part.values && same(first.key_blocks, part.key_blocks) &&
         same(first.value_blocks, part.value_blocks) && first.first == part.first &&
         first.last + rows.rows == part.last && (part.slots == 0 || part.last - part.first <= part.slots);
}

}  // namespace

void CpuExecutor::attend(Space& space, const Instruction& instruction, std::span<const Run> runs) {
  const auto& node = *instruction.node;
  const size_t width = this->width(space, instruction.out);
  const size_t channels = width / node.groups;
  const size_t stride = width / node.shared;
  const Dtype dtype = stored_as(model_->graph.declarations[instruction.places[0].table].type);
  const size_t heads = node.groups / node.shared;
  const size_t least_blocks = parts_of(pool_.threads() * thread_tasks, heads * std::max<size_t>(runs.size(), 1));
  // Consecutive rows that look along the same keys and values, each one position further than the row before it.
  std::vector<AttendRows> blocks;
  size_t positions = 0;
  for (const auto& run : runs) {
    bool open = false;
    const size_t block_rows =
        parts_of(run.rows, std::max(parts_of(run.rows * node.shared, task_queries), least_blocks));
    for (size_t i = 0; i < run.rows; ++i) {
      const size_t at = (run.row + i) * width;
      float* y = floats(space, instruction.out) + at;
      const auto seen = history(space, instruction, run, i);
      if (!seen) {
        std::fill_n(y, width, 0.0f);
        open = false;
        continue;
      }
      const AttendPart part{floats(space, instruction.in[0].id) + at,
                            seen->keys,
                            seen->values,
                            stride,
                            seen->first,
                            seen->last,
                            seen->slots,
                            seen->key_blocks,
                            seen->value_blocks,
                            dtype};
      positions += part.last - part.first;
      if (open && blocks.back().rows < block_rows && follows(part, blocks.back())) {
        ++blocks.back().rows;
        continue;
      }
      blocks.push_back({part, y, 1, heads, node.shared, width, channels, node.scale});
      open = true;
    }
  }
  // Few queries of a thread read all heads' keys and values in the order of memory, many those of one head again and
  // again. Where there are more threads than that makes use of, they share a long history.
  std::vector<AttendRows> jobs;
  for (const auto& block : blocks) {
    const bool few = block.rows * node.shared <= few_queries;
    if (few && blocks.size() * 2 <= pool_.threads() && block.rows * node.groups <= split_queries &&
        block.part.last - block.part.first >= split_positions) {
      attend_split(block);
      continue;
    }
    const size_t parts = few ? std::min(heads, parts_of(pool_.threads(), blocks.size())) : heads;
    for (size_t part = 0; part < parts; ++part) {
      AttendRows& job = jobs.emplace_back(block);
      const size_t head = heads * part / parts, channel = head * channels;
      job.key_heads = heads * (part + 1) / parts - head;
      job.y += channel * node.shared;
      job.part.q += channel * node.shared;
      const auto channel_of = [&](const void* data) {
        return static_cast<const std::byte*>(data) + channel * size_of(dtype);
      };
      if (job.part.slots > 0) job.part.keys = channel_of(job.part.keys), job.part.values = channel_of(job.part.values);
      job.part.key_blocks.channel = job.part.value_blocks.channel = channel;
    }
  }
  fork(jobs.size(), positions * width * 2, [&](size_t task) { kernels_.attend_rows(jobs[task]); });
}

void CpuExecutor::attend_split(const AttendRows& run) {
  AttendSplit split{run, run.part.first};
  const size_t most =
      std::min(std::max<size_t>(split_scores / (split.queries() * block_positions), 1), split.blocks_left());
  grow(split_, split.floats(most) * sizeof(float));
  split.lay(split_.as<float>(), most);
  for (; split.first < split.end(); split.first = (split.first / block_positions + split.blocks) * block_positions) {
    split.blocks = std::min(most, split.blocks_left());
    const size_t tasks = std::min(split.blocks, pool_.threads() * thread_tasks);
    const auto each = [&](auto* part) {
      pool_.parallel_for(
          tasks, [&](size_t task) { part(split, split.blocks * task / tasks, split.blocks * (task + 1) / tasks); });
    };
    each(kernels_.split_scores);
    each(kernels_.split_values);
    pool_.parallel_for(run.key_heads, [&](size_t head) { kernels_.split_join(split, head, head + 1); });
  }
}

void CpuExecutor::attend_weights(Space& space, const Instruction& instruction, std::span<const Run> runs) {
  const auto& node = *instruction.node;
  const size_t width = this->width(space, instruction.in[0].id), channels = width / node.groups;
  const size_t stride = width / node.shared, count = static_cast<size_t>(node.number);
  const Dtype dtype = stored_as(model_->graph.declarations[instruction.places[0].table].type);
  const auto& slot = instruction.places[1];
  struct Job {
    AttendPart part;
    size_t first;
    float* out;
  };
  std::vector<Job> jobs;
  size_t positions = 0;
  for (const auto& run : runs) {
    for (size_t i = 0; i < run.rows; ++i) {
      float* out = floats(space, instruction.out) + (run.row + i) * node.groups * count;
      const auto seen = history(space, instruction, run, i);
      if (!seen) {
        std::fill_n(out, node.groups * count, 0.0f);
        continue;
      }
      const auto first = static_cast<size_t>(count_at(space, slot.table, slot.seen, run, i));
      jobs.push_back({{floats(space, instruction.in[0].id) + (run.row + i) * width,
                       nullptr,
                       nullptr,
                       stride,
                       0,
                       seen->last,
                       0,
                       seen->key_blocks,
                       {},
                       dtype},
                      first,
                      out});
      positions += seen->last;
    }
  }
  fork(jobs.size() * node.groups, positions * width, [&](size_t task) {
    Job job = jobs[task / node.groups];
    const size_t head = task % node.groups;
    job.part.q += head * channels;
    job.part.key_blocks.channel = head / node.shared * channels;
    kernels_.attend_shares({{job.part}, 1, nullptr, channels, node.scale}, job.first, count, job.out + head * count);
  });
}

}  // namespace continuo
