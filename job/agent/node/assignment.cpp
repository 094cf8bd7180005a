#include "job/agent/node/assignment.hpp"

#include "job/model/spec/signed_statement.hpp"

#include <cstddef>

namespace lockstep {

Status Assignment::take(const wire::Welcome& welcome, const std::string& local_address) {
    address_ = local_address.empty() ? "127.0.0.1" : local_address;
    welcome_ = welcome;
    if (!spec_) {
        auto spec = config_.signed_document.empty()
                        ? parse_spec(welcome.spec)
                        : read_signed_document(welcome.document, config_.signed_document,
                                               static_cast<std::size_t>(config_.signed_point));
        LOCKSTEP_TRY(spec);
        spec_ = std::move(*spec);
    }
    keep_to_what_is_signed();
    return {};
}

// A folder that lockstepd chose could hold a checkpoint whose loading runs what is in it.
void Assignment::keep_to_what_is_signed() {
    if (config_.signed_document.empty()) {
        return;
    }
    const std::string& own = spec_->checkpoint.directory;
    welcome_.checkpoint_directory =
        own.empty() ? (config_.attempt_directory.parent_path() / "checkpoints").string() : own;
    welcome_.job_name = spec_->name;
    welcome_.document.clear();
}

// What is not needed any more need not be here.
void Assignment::forget_secrets() {
    welcome_.secret_names.clear();
    welcome_.secret_values.clear();
}

}  // namespace lockstep
