#include "daemon/control/actor/agent_welcome.hpp"

#include <filesystem>

namespace lockstep {

std::string AgentWelcome::text(const Agent& link, bool over) {
    const Job& job = machine_.job();
    wire::Welcome out;
    out.daemon = context_.settings.daemon_id;
    out.time = context_.clock.wall();
    out.job_id = job.id.value;
    out.job_name = job.spec.name;
    out.attempt = link.attempt();
    out.generation = job.generation() != nullptr ? job.generation()->number : 0;
    if (const auto* series = context_.series.find(job.id.value)) {
        out.acked_batch = series->last_batch(link.attempt(), link.node_rank);
    }
    out.checkpoint_directory =
        job.spec.checkpoint.directory.empty()
            ? (std::filesystem::path{job.attempt()->directory}.parent_path() / "checkpoints")
                  .string()
            : job.spec.checkpoint.directory;
    out.preflight = AttemptRun::wants_preflight(job);
    if (spec_text_.empty()) {
        Json spec = to_json(job.spec);
        spec.erase("notify");  // with its secrets no matter of the nodes
        spec_text_ = dump_json(spec);
    }
    Signatures* const signatures = context_.scheduler.signatures();
    if (!job.signature.empty() && signatures != nullptr) {
        if (document_.empty()) {
            document_ = signatures->document(job.user, job.signature).value_or("");
        }
        out.document = document_;  // without it the agent says what is wrong
    }
    const bool late = over || job.attempt() == nullptr || job.attempt()->number != link.attempt();
    for (const auto& [name, value] : late ? SecretStore::Values{} : secrets_now()) {
        out.secret_names.push_back(name);
        out.secret_values.push_back(value);
    }
    return wire::encode_welcome(out, spec_text_);
}

// Those of the moment when its first agent called in: all nodes of an attempt have the same.
const SecretStore::Values& AgentWelcome::secrets_now() {
    const Job& job = machine_.job();
    const std::int32_t attempt = job.attempt()->number;
    if (!job.spec.secrets.empty() && attempt != secrets_attempt_ && context_.secrets != nullptr) {
        secrets_attempt_ = attempt;
        secrets_ = context_.secrets->values(job.user, job.spec.secrets);
    }
    return secrets_;
}

}  // namespace lockstep
