#include "job/rank/process_place.hpp"

#include "job/base/text.hpp"

#include <algorithm>
#include <optional>

namespace lockstep {
namespace {

constexpr PlaceNames kLocalWorldSizeNames{"LOCKSTEP_LOCAL_WORLD_SIZE",
                                          {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", ""}};
// torchrun sets GROUP_RANK alone; NODE_RANK, which its caller may have set, goes before it.
constexpr PlaceNames kNodeRankNames{"LOCKSTEP_NODE_RANK", {"NODE_RANK", "GROUP_RANK", ""}};

class PlaceReader {
  public:
    explicit PlaceReader(const Environment& environment) : environment_(environment) {
        const auto given = environment("LOCKSTEP_RANK");
        const auto rank = environment("RANK");
        const auto world = number("WORLD_SIZE", 1);
        const auto own_world = number("LOCKSTEP_WORLD_SIZE", 1);
        const auto place = number("RANK", 0);
        // A launcher within this rank may give the same number to one of its own.
        const bool same_world =
            !world || !own_world || world == own_world || (place && *world <= *place);  // nobody's
        ours_ = given && (!rank || rank == given) && same_world;
    }

    std::optional<std::int32_t> number(const char* name, std::int32_t least) const {
        const auto text = environment_(name);
        const auto number = text ? to_int(*text) : std::nullopt;
        return number && *number >= least && *number <= INT32_MAX
                   ? std::optional{static_cast<std::int32_t>(*number)}
                   : std::nullopt;
    }
    std::optional<std::int32_t> number(const PlaceNames& names, std::int32_t least) const {
        const auto own = number(names.own, least);
        if (ours_ && own) {
            return own;
        }
        for (const char* name : names.launchers) {
            if (const auto theirs = number(name, least)) {
                return theirs;
            }
        }
        return own;
    }

  private:
    const Environment& environment_;
    // What Lockstep says goes first: of ranks that share a GPU LOCAL_RANK is the GPU's number. It
    // does not in what a launcher has started, in a rank's place or within one: the launcher's RANK
    // and LOCAL_RANK belong together.
    bool ours_ = false;
};

void read_numbers(const Environment& environment, ProcessPlace& out) {
    const PlaceReader in{environment};
    RankContext& context = out.context;
    context.rank = in.number(kRankNames, 0).value_or(out.managed ? -1 : 0);
    context.local_rank = in.number(kLocalRankNames, 0).value_or(std::min(context.rank, 0));
    context.world_size = in.number(kWorldSizeNames, 1).value_or(1);
    context.local_world_size = in.number(kLocalWorldSizeNames, 1).value_or(1);
    context.node_rank = in.number(kNodeRankNames, 0).value_or(0);
    context.attempt = in.number("LOCKSTEP_ATTEMPT", 1).value_or(1);
    const std::int32_t restarts =
        context.managed() ? 0 : in.number("TORCHELASTIC_RESTART_COUNT", 0).value_or(0);
    context.generation =
        in.number("LOCKSTEP_GENERATION", 1).value_or(std::min(restarts, INT32_MAX - 1) + 1);
    out.nodes = in.number("LOCKSTEP_NODES", 1).value_or(1);
}

}  // namespace

ProcessPlace read_process_place(const Environment& environment) {
    ProcessPlace out;
    const auto text = [&](const char* name) { return environment(name).value_or(""); };
    RankContext& context = out.context;
    context.job_id = text("LOCKSTEP_JOB_ID");
    context.socket = text("LOCKSTEP_SOCKET");
    context.role = text("LOCKSTEP_ROLE");
    context.address = text("LOCKSTEP_ADDRESS");
    context.checkpoint_directory = text("LOCKSTEP_CHECKPOINT_DIR");
    out.managed = !context.job_id.empty();
    if (out.managed || context.managed() || is_launched(environment)) {
        read_numbers(environment, out);
    }
    return out;
}

}  // namespace lockstep
