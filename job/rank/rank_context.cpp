#include "job/rank/rank_context.hpp"

#include "job/base/limits.hpp"
#include "job/base/text.hpp"

#include <cstdlib>

namespace lockstep {
namespace {

Status read_number(const Environment& environment, const std::string& name, std::int64_t min,
                   std::int64_t max, std::int32_t& target) {
    const std::optional<std::string> text = environment(name);
    if (!text) {
        return {};
    }
    const std::optional<std::int64_t> number = to_int(*text);
    if (!number || *number < min || *number > max) {
        return fail(Errc::invalid, name + ": must be a number in " + std::to_string(min) + ".." +
                                       std::to_string(max));
    }
    target = static_cast<std::int32_t>(*number);
    return {};
}

}  // namespace

bool is_launched(const Environment& environment) {
    return environment("RANK") && environment("WORLD_SIZE") && environment("MASTER_ADDR") &&
           environment("MASTER_PORT");
}

std::optional<std::string> process_environment(const std::string& name) {
    const char* value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe): see header
    if (value == nullptr) {
        return std::nullopt;
    }
    return std::string{value};
}

Result<RankContext> read_rank_context(const Environment& environment) {
    RankContext context;
    context.socket = environment("LOCKSTEP_SOCKET").value_or("");
    context.train_config = environment("LOCKSTEP_TRAIN_CONFIG").value_or("");
    context.checkpoint_directory = environment("LOCKSTEP_CHECKPOINT_DIR").value_or("");
    context.address = environment("LOCKSTEP_ADDRESS").value_or("");
    context.job_id = environment("LOCKSTEP_JOB_ID").value_or("");
    context.role = environment("LOCKSTEP_ROLE").value_or("");
    if (!context.managed() && !is_launched(environment)) {
        return context;
    }
    context.master_address = environment("MASTER_ADDR").value_or("");
    context.store_elsewhere = environment("TORCHELASTIC_USE_AGENT_STORE") == "True";
    struct Number {
        const char* name;
        std::int64_t min;
        std::int64_t max;
        std::int32_t* target;
    };
    std::int32_t restarts = 0;
    const Number numbers[] = {
        {"WORLD_SIZE", 1, limits::kRanks, &context.world_size},
        {"RANK", 0, limits::kRanks - 1, &context.rank},
        {"LOCAL_WORLD_SIZE", 1, limits::kRanksPerNode, &context.local_world_size},
        {"LOCAL_RANK", 0, limits::kRanksPerNode - 1, &context.local_rank},
        // torchrun sets the first alone; the second, which its caller may have set, wins.
        {"GROUP_RANK", 0, limits::kNodes - 1, &context.node_rank},
        {"NODE_RANK", 0, limits::kNodes - 1, &context.node_rank},
        {"LOCKSTEP_ATTEMPT", 1, INT32_MAX, &context.attempt},
        {"TORCHELASTIC_RESTART_COUNT", 0, INT32_MAX, &restarts},
        {"LOCKSTEP_GENERATION", 1, INT32_MAX, &context.generation},
        {"MASTER_PORT", 1, 65'535, &context.master_port},
    };
    for (const Number& number : numbers) {
        const Status read =
            read_number(environment, number.name, number.min, number.max, *number.target);
        LOCKSTEP_TRY(read);
    }
    if (!context.managed()) {
        context.generation = restarts + 1;
    }
    if (context.rank >= context.world_size) {
        return fail(Errc::invalid, "RANK " + std::to_string(context.rank) +
                                       " is outside WORLD_SIZE " +
                                       std::to_string(context.world_size));
    }
    return context;
}

}  // namespace lockstep
