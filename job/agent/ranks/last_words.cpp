#include "job/agent/ranks/last_words.hpp"

#include "job/base/files.hpp"
#include "job/base/log.hpp"

namespace lockstep {

void leave_last_words(const std::filesystem::path& attempt_directory, std::int32_t node_rank,
                      const wire::GaveUpFile& words) {
    const auto path = attempt_directory / wire::gave_up_file_name(node_rank);
    const auto saved = write_file_atomic(path, wire::encode_gave_up_file(words), kPostmortemMode);
    if (!saved) {
        log::warn("cannot leave a word for the daemon", {{"why", saved.error().message}});
    }
}

}  // namespace lockstep
