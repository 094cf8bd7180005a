#include "job/agent/node/rank_ends.hpp"

#include "job/agent/ranks/failure_notes.hpp"

#include <optional>
#include <utility>
#include <vector>

namespace lockstep {

RankEnds::RankEnds(Sources sources, std::function<void(wire::Exited)> ended)
    : from_(sources), ended_(std::move(ended)) {}

void RankEnds::begin(bool launcher) {
    launcher_ = launcher;
    launcher_words_ = {};
}

void RankEnds::judge(wire::Exited& exited, const RankGroup::LastWords& words,
                     const std::filesystem::path& error_file) {
    if (launcher_) {
        launcher_words_ = words;
        return;
    }
    std::vector<ExceptionNote> notes = from_.reports.take_notes(exited.rank);
    auto recorded = read_error_file(error_file, words.pid);
    if (recorded) {  // what the hooks have told is told better
        notes.insert(notes.begin(), std::move(*recorded));
    }
    judge_exit(exited, words, std::move(notes), from_.clock.known_offset());
}

void RankEnds::exited(wire::Exited exited) {
    from_.reports.flush();
    if (!launcher_) {
        exited.step = from_.reports.last_step(exited.rank);
        from_.environment.mask_end(exited);
        ended_(std::move(exited));
        return;
    }
    for (NodeChildren::Ended& one : from_.children.ends(exited)) {
        judge_child(one);
        if (!one.exited.launcher) {
            one.exited.step = from_.reports.last_step(one.exited.rank);
        }
        from_.environment.mask_end(one.exited);
        ended_(std::move(one.exited));
    }
}

// By what the rank's own processes have told and printed; of a launcher by all that is known of no
// rank.
void RankEnds::judge_child(NodeChildren::Ended& ended) {
    if (ended.exited.exit_code == 0) {
        return;
    }
    RankGroup::LastWords words;
    std::vector<ExceptionNote> notes;
    if (ended.exited.launcher) {
        words = launcher_words_;
        notes = from_.reports.launcher_notes();
    } else {
        words.pid = ended.pid;
        words.output = std::move(ended.output);
        notes = from_.reports.take_notes(ended.exited.rank);
    }
    judge_exit(ended.exited, words, std::move(notes), from_.clock.known_offset());
}

}  // namespace lockstep
