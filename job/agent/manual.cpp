#include "job/agent/manual.hpp"

#include "job/base/version.hpp"
#include "job/cli/manual.hpp"

namespace lockstep {

std::string agent_manual(const CLI::App& app) {
    cli::ManualText text;
    text.section = 1;
    text.title = "agent of a Lockstep job on one node, and its ranks' way to it";
    text.description = {
        "lockstep-agent starts the ranks of one node of an attempt, hears what they report, keeps "
        "their logs and tells lockstepd. lockstepd or the batch script starts it with run; nobody "
        "does by hand. It goes on when lockstepd is away, and hands over what it has kept when "
        "lockstepd is back.",
        "report and kv are for the scripts of ranks: they talk to the agent of the rank that they "
        "are started in, over the socket that LOCKSTEP_SOCKET names. report sends values as the "
        "libraries do. kv has the keys that the ranks of a generation share; they are empty again "
        "after every restart of the ranks.",
        "In kv, words that begin with - go after --, a value of - is read from standard input, and "
        "a value has at most 1 MiB."};
    text.environment = {
        {"LOCKSTEP_SOCKET", "Socket of the rank's agent; every rank has it."},
        {"SLURM_NODEID, SLURM_JOB_ID, SLURMD_NODENAME",
         "Which node of which allocation this is, where srun has started the agent."}};
    text.files = {{"<attempt-dir>/agent.json", "What the agent is to do and where lockstepd is."}};
    text.exits = {{"0", "Done."},
                  {"1",
                   "report: there is no agent; kv: refused (no such key, another value stands, "
                   "too large)."},
                  {"2", "Wrong use."},
                  {"3", "kv: timed out."},
                  {"4", "kv: there is no agent."}};
    text.examples = {
        {"lockstep-agent report step=3 loss=0.5", "From a rank's shell script."},
        {"lockstep-agent kv set --once seed 17", "Unless another rank has said."},
        {"lockstep-agent kv get --wait 60 seed", "Print it, or wait for it."},
        {"lockstep-agent kv barrier loaded --timeout 600", "Until every rank has come here."}};
    text.see_also = {"lockstep(1)", "lockstepd(8)"};
    return cli::man_page(app, text, kVersion, "2026-11-25");
}

}  // namespace lockstep
