#include "backends/cuda/schedule.h"

#include <algorithm>
#include <optional>
#include <span>

#include "backends/cuda/fusion.h"
#include "backends/cuda/translate.h"
#include "graph/ops.h"

namespace continuo::cuda {

namespace {

constexpr uint32_t warp = 32, attending_threads = 256, remembering_threads = 128;
// Where the commands of a launch have no heads: the least columns of a part, and the most parts. And the most blocks.
constexpr uint32_t least_columns = 1024, most_parts = 32, most_blocks = 65535;

// Channels of a recurrence without heads that a part has at least.
constexpr uint32_t recurrent_channels = 64;

bool grouped(Task task) { return task >= Task::norm && task != Task::surprisal && task != Task::conv; }
// Tasks of which one head keeps a block of threads busy: a block never takes several heads.
bool heavy(Task task) {
  return task == Task::attend || task == Task::attend_weights || task == Task::wkv7 || task == Task::ssm ||
         task == Task::attend_window || task == Task::memory || task == Task::pdr;
}

// The heads or groups into which a command can be cut; 1: it reads a whole row.
uint32_t parts_of(const Command& c) {
  if (c.task == Task::pdr) return std::max(1u, c.width / recurrent_channels);
  if (c.task == Task::ngram || c.task == Task::ngram_first) return 1;
  return c.task == Task::attend_window ? c.groups / c.shared : c.task == Task::gates ? c.levels : c.groups;
}

uint32_t rounded(uint32_t n) { return (n + warp - 1) / warp * warp; }

// The commands of one launch, in order.
class Group {
 public:
  bool add(const Command& c, const Instruction& instruction, bool decode) {
    const bool alone = c.task == Task::gates || (!decode && (walks(c.task) || c.task == Task::shift));
    if (count_ > 0 && (alone || alone_)) return false;
    const Family family = family_of(c.task);
    if (family != Family::rows && family_ != Family::rows && family != family_) return false;
    const auto touched = [&](Name table) { return std::find(tables_.begin(), tables_.end(), table) != tables_.end(); };
    for (const auto& place : instruction.places) {
      if (touched(place.table)) return false;
    }
    bool whole = grouped(c.task) && parts_of(c) == 1;
    for (size_t i = 0; i < instruction.in.size(); ++i) {
      const auto& argument = instruction.in[i];
      if (!argument.constant && writes(argument.id) && !aligned(c, i)) whole = true;
    }
    const uint32_t heads = grouped(c.task) && parts_of(c) > 1 ? parts_of(c) : 0;
    // A command with a block for each head cannot share a launch with a command that needs one block for the row.
    const bool many = heavy(c.task) && heads > 0;
    if ((whole_ || whole) && (heavy_ || many)) return false;
    if (heads > 0 && !whole_ && !whole && heads_ > 0 && heads != heads_) return false;

    if (family != Family::rows) family_ = family;
    whole_ = whole_ || whole;
    heavy_ = heavy_ || many;
    alone_ = alone_ || alone;
    if (heads > 0 && heads_ == 0) heads_ = heads;
    walks_ = walks_ || walks(c.task);
    widest_ = std::max({widest_, c.width, c.in_width * (c.task != Task::embed)});
    if (family == Family::attention) least_threads_ = attending_threads;
    if (c.task == Task::memory) least_threads_ = std::max(least_threads_, remembering_threads);
    if (instruction.out != no_name) written_.push_back(instruction.out);
    for (const auto& place : instruction.places) tables_.push_back(place.table);
    ++count_;
    return true;
  }

  Launch launch(uint32_t first) const {
    Launch out{Launch::Kind::commands, first, count_};
    // A grid has at most 65,535 blocks in this dimension; then some parts have more heads than others.
    out.parts = whole_       ? 1
                : heads_ > 0 ? std::min(heads_, most_blocks)
                             : std::clamp(widest_ / least_columns, 1u, most_parts);
    out.threads = std::clamp(rounded(std::max(widest_ / out.parts, least_threads_)), warp, most_threads(family_));
    out.walks = walks_;
    out.family = family_;
    return out;
  }
  uint32_t count() const { return count_; }

 private:
  bool writes(uint32_t id) const { return std::find(written_.begin(), written_.end(), id) != written_.end(); }
  // Whether each part of the command reads only those columns of input i that the same part has written.
  bool aligned(const Command& c, size_t i) const {
    switch (c.task) {
      case Task::slice: return c.from == 0 && c.width == c.in_width;
      case Task::embed:
      case Task::repeat:
      case Task::gather_numbers:
      case Task::combine: return false;
      case Task::torus: return false;
      case Task::memory: return i < 3;
      case Task::pdr: return i == 0 || i == 3;
      case Task::ssm: return i < 3 || c.shared == 1;
      default: return true;
    }
  }

  uint32_t count_ = 0, heads_ = 0, widest_ = 0, least_threads_ = warp;
  Family family_ = Family::rows;
  bool whole_ = false, heavy_ = false, alone_ = false, walks_ = false;
  std::vector<uint32_t> written_;  // values
  std::vector<Name> tables_;
};

class Scheduler {
 public:
  Scheduler(const Model& model, const Program& program, Addresses& addresses)
      : model_(model), program_(program), groups_(fusion_groups(program)), addresses_(addresses) {}

  Schedule make() {
    for (const auto& stage : program_.stages) together_ = together_ && stage.order != Stage::Order::row_serial;
    line_of_.assign(program_.code.size(), none);
    size_t group = 0;
    for (size_t line = 0; line < program_.code.size();) {
      const bool joined = group < groups_.size() && groups_[group].first == line;
      const size_t last = joined ? groups_[group++].last : line;
      translate(line, last);
      line = last + 1;
    }
    out_.straight = together_ && !with_store_;
    if (!together_) return std::move(out_);
    for (const auto& [kind, first, last] : groups_) {
      if (kind != FusionGroup::Kind::store && !open_) open_ = begin_segment(first);
      switch (kind) {
        case FusionGroup::Kind::products: launch_products(first, last); break;
        case FusionGroup::Kind::routed: launch_routed(first); break;
        case FusionGroup::Kind::store: end_segment(); break;
        case FusionGroup::Kind::commands:
          launch_commands(first, last, true, out_.decode);
          launch_commands(first, last, false, out_.general);
      }
      for (size_t line = first; line <= last; ++line) {
        if (routed_by_ == program_.code[line].out) routed_by_ = no_name;
      }
      if (open_) add_lines(*open_, first, last);
    }
    end_segment();
    return std::move(out_);
  }

 private:
  static constexpr size_t none = static_cast<size_t>(-1);

  Segment begin_segment(size_t line) const {
    const size_t decode = out_.decode.size(), general = out_.general.size();
    return {line, line, none, 0, decode, decode, general, general};
  }
  void add_lines(Segment& segment, size_t first, size_t last) const {
    segment.last_line = last;
    for (size_t line = first; line <= last; ++line) {
      if (line_of_[line] == none) continue;
      segment.lines = std::min(segment.lines, line_of_[line]);
      segment.lines_end = std::max(segment.lines_end, line_of_[line] + 1);
    }
  }
  // The rows of the next segment may be others, so they have routes of their own.
  void end_segment() {
    routed_by_ = no_name;
    if (!open_) return;
    open_->lines = std::min(open_->lines, open_->lines_end);
    open_->decode_end = out_.decode.size(), open_->general_end = out_.general.size();
    out_.segments.push_back(*open_);
    open_.reset();
  }

  // Products come first, so that the products of a group have neighbouring indices.
  void translate(size_t first, size_t last) {
    for (const bool products : {true, false}) {
      for (size_t line = first; line <= last; ++line) {
        if ((program_.code[line].node->op == Op::matmul) != products) continue;
        const size_t at = out_.lines.size();
        each(program_.code[line]);
        // The arms of a branch come before it, which is no line itself.
        if (out_.lines.size() > at) line_of_[line] = out_.lines.size() - 1;
      }
    }
  }

  void each(const Instruction& instruction) {
    for (const auto& inner : instruction.then) each(inner);
    for (const auto& inner : instruction.otherwise) each(inner);
    const Op op = instruction.node->op;
    for (const auto& place : instruction.places) {
      for (const auto& pick : place.picks) together_ = together_ && pick.kind != Term::Kind::value;
    }
    if (on_host(op)) return;
    if (of_store(op)) {
      with_store_ = true;
      return;
    }
    if (op == Op::matmul) {
      out_.products.push_back(product_of(model_, instruction, addresses_));
      out_.lines.push_back(
          {&instruction, {Launch::Kind::products, static_cast<uint32_t>(out_.products.size() - 1), 1}});
      return;
    }
    if (op == Op::routed) {
      out_.routed.push_back(routed_of(model_, program_, instruction, addresses_));
      out_.lines.push_back({&instruction, {Launch::Kind::routed, static_cast<uint32_t>(out_.routed.size() - 1), 1}});
      return;
    }
    out_.commands.push_back(command_of(model_, program_, instruction, addresses_, out_));
    Group group;
    group.add(out_.commands.back(), instruction, false);
    Line line{&instruction, group.launch(static_cast<uint32_t>(out_.commands.size() - 1))};
    if (op == Op::cache_memory) {
      line.gates = static_cast<int64_t>(out_.commands.size());
      out_.commands.push_back(gates_of(out_.commands.back(), out_));
    }
    out_.lines.push_back(line);
  }

  void launch_products(size_t first, size_t last) {
    std::vector<uint32_t> members;
    for (size_t line = first; line <= last; ++line) {
      const auto& instruction = program_.code[line];
      if (instruction.node->op == Op::matmul) {
        members.push_back(out_.lines[line_of_[line]].launch.first);
        continue;
      }
      // The line is an epilogue: it goes with the product whose output it reads.
      for (const uint32_t member : members) {
        Product& product = out_.products[member];
        if (product.y != addresses_.value(instruction.in[0].id)) continue;
        product.epilogue = true;
        product.epilogue_task = epilogue_task_of(instruction.node->op);
        product.epilogue_out = static_cast<float*>(addresses_.value(instruction.out));
      }
    }
    for (size_t i = 0; i < members.size(); i += most_products) {
      const Launch launch{Launch::Kind::products, members[i],
                          static_cast<uint32_t>(std::min<size_t>(most_products, members.size() - i))};
      out_.decode.push_back(launch);
      out_.general.push_back(launch);
    }
  }

  // Products by the same ids share their routes.
  void launch_routed(size_t line) {
    const auto& instruction = program_.code[line];
    const uint32_t at = out_.lines[line_of_[line]].launch.first, matrices = out_.routed[at].matrices,
                   ids = instruction.in[1].id;
    for (auto* launches : {&out_.decode, &out_.general}) {
      if (ids != routed_by_ || matrices != routed_among_) launches->push_back({Launch::Kind::routes, at, 1});
      launches->push_back({Launch::Kind::routed, at, 1});
    }
    routed_by_ = ids, routed_among_ = matrices;
  }

  void launch_commands(size_t first, size_t last, bool decode, std::vector<Launch>& launches) {
    Group group;
    uint32_t begin = 0;
    const auto close = [&] {
      if (group.count() > 0) launches.push_back(group.launch(begin));
      group = Group();
    };
    for (size_t i = first; i <= last; ++i) {
      if (on_host(program_.code[i].node->op)) continue;
      const Line& line = out_.lines[line_of_[i]];
      const Command& command = out_.commands[line.launch.first];
      if (!group.add(command, *line.instruction, decode)) {
        close();
        group.add(command, *line.instruction, decode);
      }
      if (group.count() == 1) begin = line.launch.first;
      if (line.gates < 0) continue;
      close();
      launches.push_back(gates_launch(out_.commands, line.gates));
    }
    close();
  }

  const Model& model_;
  const Program& program_;
  const std::vector<FusionGroup> groups_;
  Addresses& addresses_;
  Schedule out_;
  // No row must wait for another one, and no launch for a number on the host; but for those about experts.
  bool together_ = true, with_store_ = false;
  std::optional<Segment> open_;
  std::vector<size_t> line_of_;  // [lines of the program]: index into Schedule::lines; none: not on the device
  // The ids of the last routes, a value, and the matrices among which these choose.
  uint32_t routed_by_ = no_name, routed_among_ = 0;
};

}  // namespace

Launch gates_launch(const std::vector<Command>& commands, int64_t command) {
  return {Launch::Kind::commands,
          static_cast<uint32_t>(command),
          1,
          commands[static_cast<size_t>(command)].levels,
          warp,
          true,
          Family::rows};
}

Schedule make_schedule(const Model& model, const Program& program, Addresses& addresses) {
  return Scheduler(model, program, addresses).make();
}

}  // namespace continuo::cuda
