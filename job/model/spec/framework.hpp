// What Lockstep knows of a framework: how its ranks are started, which roles they have, what they
// read to meet, which GPUs they see, by what it is recognized. One value per framework, in a file
// of its own: job/model/launch/frameworks/NAME.cpp. A member that is left out says what is true of
// most. Constants and pure functions; any thread.
#pragma once

#include "job/base/result.hpp"
#include "job/model/spec/framework_list.hpp"

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

enum class Launch : std::uint8_t;
struct JobSpec;
struct RankPlace;
struct RankRole;
struct RoleSpec;

// What a rank sees of its node's GPUs, where that is no number.
inline constexpr std::int32_t kAllGpus = -1;
inline constexpr std::int32_t kEqualShareOfGpus = -2;  // with the others of the node that need some

// How a package that it comes in is called in pip's lists, and by which name versions of nodes are
// compared. Of several of one name the first counts that a folder has.
struct FrameworkPackage {
    std::string_view name;
    std::string_view key;
};

// A script that imports it is one of this framework, unless it imports what comes before.
struct FrameworkImport {
    std::string_view module;
    std::int32_t place = 0;  // among those of all frameworks; the lowest counts
};

struct FrameworkTraits {
    // Who can start its ranks, the default first; why nobody else can.
    std::span<const Launch> launches;
    std::string_view no_other_launch{};

    // In messages, after its name and "on"; "" = nothing.
    std::string_view (*variant)(const JobSpec& spec) = nullptr;
    // Its roles; empty: any. Left out: worker alone.
    std::span<const std::string_view> (*roles)(const JobSpec& spec) = nullptr;
    // What is wrong with the roles, which are of known names.
    void (*check_roles)(const JobSpec& spec, std::vector<FieldError>& errors) = nullptr;
    // Whether the job is over once the ranks of such a role have ended, unless it says so itself.
    // Left out: all but servers and an evaluator.
    bool (*ends_job)(const JobSpec& spec, const RoleSpec& role) = nullptr;
    // What else is wrong with the specification.
    void (*check)(const JobSpec& spec, std::vector<FieldError>& errors) = nullptr;

    // With launch rank: whether each rank has an address, which all are told. Left out: none has.
    bool (*needs_endpoints)(const JobSpec& spec) = nullptr;
    // Adds what a rank reads beside torchrun's variables; launch rank and task.
    void (*add_rank)(std::map<std::string, std::string>& out, const JobSpec& spec,
                     const RankPlace& place) = nullptr;
    // The same for the one process of a node that starts its ranks; launch node.
    void (*add_node)(std::map<std::string, std::string>& out, const JobSpec& spec) = nullptr;
    // Variables that its own launchers set for one rank or node, so that what is inherited of them
    // is another's; one that ends in * is every name that begins so.
    std::span<const std::string_view> variables{};
    // Its ranks meet at torch's store on MASTER_PORT and at nothing else, so the agent serves it.
    bool meets_at_store = false;
    bool may_run_torch = false;  // torch's own records of a hang are asked for
    // The program of a rank, from the first word of its command: what is put before that. Left out:
    // nothing.
    std::vector<std::string> (*before_command)(const std::string& first) = nullptr;
    bool own_programs = false;  // it is more than the command's Python that runs on a node

    // GPUs that a rank sees; kAllGpus, kEqualShareOfGpus. Left out: all of its node.
    std::int32_t (*gpus_of)(const JobSpec& spec, const RankRole& role) = nullptr;
    // Whether a role may say how many of them its ranks see. Left out: no.
    bool (*masks_gpus)(const JobSpec& spec) = nullptr;
    // Whether it hands them out itself, one to a rank. Left out: no.
    bool (*hands_out_gpus)(const JobSpec& spec) = nullptr;

    std::span<const FrameworkPackage> packages{};
    // Whether ranks with different versions of `package` (a key) do not meet. Left out: its own.
    bool (*must_agree)(const JobSpec& spec, std::string_view package) = nullptr;
    std::span<const FrameworkImport> imports{};
};

// Each is defined in its file, which also lets the linker say that one is missing.
namespace frameworks {
#define LOCKSTEP_ROW(name) const FrameworkTraits& name();
LOCKSTEP_FRAMEWORKS(LOCKSTEP_ROW)
#undef LOCKSTEP_ROW
}  // namespace frameworks

const FrameworkTraits& traits_of(Framework framework);

// Variables that launchers of frameworks set for one rank or node: what is inherited of them comes
// from the process that started the agent, and is not this rank's.
bool is_launchers(std::string_view name);

}  // namespace lockstep
