// What lockstepd knows of one attempt in Slurm, and what that allows: the algorithm that loses no
// accepted job and starts none twice, without any I/O. A submission's end may be unknown (a lost
// reply, a killed sbatch, a restarted daemon) and an acknowledged job may be forgotten (slurmctld
// killed within its 5 s of saving); a job is found again by its unique name, and "not there" is
// believed only when nothing of an earlier try can come any more.
//
//   idle ──intent──▶ sending ──id──▶ known ──two empty answers, never claimed──▶ gone
//     ▲                 │                                                          │
//     │   not submitted │ unclear        (denied: refused if squeue shows nothing) │
//     └──── safe ◀──────┴──▶ in doubt ──found──▶ known                             │
//     ▲                        └──empty after the credential's lifetime──▶ gone ───┘ new intent
//
// A known job whose end is Slurm's own doing, not the job's and no person's, and that nobody has
// claimed goes the same way as one that was forgotten: to gone, a few times. It cannot start again
// then: its end is confirmed, and should an agent of it live all the same, the first claim of the
// attempt fences every other allocation.
//
// Values and pure functions of them; time is handed in. Control thread.
#pragma once

#include "job/model/spec/placement.hpp"
#include "scheduler-integration/scheduler.hpp"
#include "scheduler-integration/slurm/slurm_text.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

using SteadyTime = std::chrono::steady_clock::time_point;

// How long "not there" must be asked before it is believed.
struct SlurmPatience {
    // After the end of a try whose outcome is unknown: the credential's lifetime and the clocks'
    // difference. A request that slurmctld had not read by then is refused as expired.
    std::chrono::seconds quarantine{360};
    std::chrono::seconds between_empty{5};  // two empty answers in a row, this far apart
    // How often a job that ended without a claim is submitted again.
    std::size_t stillborn = 3;
    // So many jobs of an attempt that Slurm took and that squeue never showed end it: something
    // hides them, and each may still be in the queue.
    std::size_t unseen = 3;
    // Of an allocation that Slurm calls running until its first agent has called in. An agent does
    // that before anything else, pulling images included,
    std::chrono::seconds unclaimed{180};
    // but where pyxis does: srun imports the image before it starts the agent in it.
    std::chrono::seconds importing{3600};
    // slurmctld forgets a job this long after its end; 0: never.
    std::chrono::seconds min_job_age{0};
    bool accounting = false;  // take_history() has the answer of one
    // A job that may have been cancelled and forgotten while nobody looked, with no accounting to
    // tell, is not handed in again.
    bool doubt_ends = false;
};

struct SlurmAttempt {
    enum class Stage : std::uint8_t {
        idle,      // nothing was tried
        sending,   // sbatch runs, or is about to
        safe,      // the last try certainly did not reach Slurm
        in_doubt,  // it may have; or an earlier daemon's try, of which we know nothing
        known,     // Slurm has it as `id`
        gone,      // it had it and forgot, or it never came: positively absent
        refused,   // it will never take it: `message`
    };
    AttemptRequest request;
    std::string name;  // unique in Slurm
    std::string
        called;  // what Slurm calls `called_id` since somebody renamed it there; "" = `name`
    std::int64_t called_id = 0;
    Stage stage = Stage::idle;
    std::int64_t id = 0;       // known (and, while sending, found already)
    std::int64_t claimed = 0;  // the allocation its agents run in; the only one that may live
    SteadyTime claimed_at;     // what was asked for earlier does not know that it has started
    std::string message;       // safe, in_doubt: why; refused: Slurm's words
    SteadyTime sending_since;  // sending
    SteadyTime not_before;     // safe: Slurm takes none of this user before
    SteadyTime last_try_end;   // in_doubt: nothing was sent after this
    std::optional<SlurmJob> seen;
    SteadyTime seen_at;
    int empty_answers = 0;
    SteadyTime first_empty;
    SlurmVerdict last_verdict;
    bool confirmed = false;      // the end was said twice, or needs no second word
    bool cancel_wanted = false;  // scancel what is there, or comes
    bool cancelled = false;      // scancel was sent: CANCELLED is ours
    bool ending = false;         // its ranks have ended: Slurm's record of it will end too
    bool done = false;           // they have done their work
    std::optional<SlurmJobDetail> detail;  // of `seen` after its end: see wants_detail()
    bool over = false;                     // the job has ended; only what is left matters
    SteadyTime over_at;
    std::int64_t calling = 0;           // the allocation that may_claim() said yes to last
    std::vector<std::int64_t> surplus;  // other live copies of the name: to be cancelled
    struct Copy {
        std::int64_t id = 0;
        std::int64_t submitted_at = 0;  // Unix seconds; tells it from a later job of its number
    };
    // By its own name an earlier daemon saw it so: somebody may have renamed it since.
    std::optional<Copy> seen_before;
    std::vector<Copy> fenced;  // all that ever were in `surplus` before the claim
    // Jobs of the name that Slurm itself ended, or never started on their nodes, before an agent
    // had called in: as if they had never been, unless their agents claim the attempt after all.
    struct Stillborn {
        std::int64_t id = 0;
        std::int64_t submitted_at = 0;  // Unix seconds; tells it from a later job of its number
        std::string how;                // "Slurm job 17 lost a node"
    };
    std::vector<Stillborn> stillborn;
    std::optional<SteadyTime> running_since;  // seen so, and never claimed
    bool abandoned = false;                   // cancelled because nobody_came()
    // Jobs of the name that Slurm acknowledged, that no answer has shown, and that counted as lost:
    // each may be in its queue. How many of them since one of the name was seen, or Slurm was last
    // away and may have lost them.
    std::vector<std::int64_t> unseen;
    std::size_t unseen_in_a_row = 0;
    bool was_in_doubt = false;  // its job was found by name: an earlier try's, perhaps
    // The last answer that would have shown it. `unwatched`: since it was last there, answers were
    // so far apart that a job could end, and be forgotten, in between.
    SteadyTime looked_at;
    bool unwatched = false;
    // Slurm has no nodes for it without those that failed before: it may have them again.
    bool without_exclusion = false;
    std::string warning;         // for the job's user
    bool denied = false;         // in doubt only for as long as squeue has not been asked once
    std::size_t failures = 0;    // tries that ended with a status other than 0 and left nothing
    bool tried_in_vain = false;  // the last try ended so
    bool nodes_asked = false;    // since it lost a node: which of its nodes are down
    std::vector<std::string> down_nodes;  // those
    std::string down_why;                 // Slurm's word on the first of them; "" = none
    bool number_taken = false;  // by the last answer, `id` is another job's: Slurm has lost ours
    std::string batch_words;    // the last line of the batch script's log; read once it has ended

    // Of a job of it: what Slurm calls that.
    const std::string& name_of(std::int64_t job) const {
        return job == called_id && !called.empty() ? called : name;
    }
    // Its end is known, with all that is needed to tell whose doing it is.
    bool ended() const;
    // Nothing of it is in Slurm, and nothing can come.
    bool nothing_left() const {
        return stage == Stage::idle || stage == Stage::safe || stage == Stage::gone ||
               stage == Stage::refused || ended();
    }
};

// Takes up the attempt of a request: in a new daemon's life what was tried before is in doubt until
// it is found, and `now` is the latest that an earlier daemon's sbatch can have lived. `age`: of
// the request's intent.
SlurmAttempt take_up(AttemptRequest request, SteadyTime now,
                     std::chrono::milliseconds age = std::chrono::milliseconds{0});

// What to answer to submit(): `again` asks for an intent. The caller sends if it has a fresh one
// and may_send() holds.
Handover handover(const SlurmAttempt& attempt);
bool may_send(const SlurmAttempt& attempt);

// sbatch ended like this.
void take_reply(SlurmAttempt& attempt, const SubmitReply& reply, SteadyTime now);

// One complete answer of squeue that was asked for at `asked`: the rows of this attempt's name.
// Changes nothing if the answer is older than the last try.
void take_rows(SlurmAttempt& attempt, const std::vector<SlurmJob>& rows, SteadyTime asked,
               const SlurmPatience& patience);
// Whether accounting must be asked before the attempt may count as absent.
bool wants_history(const SlurmAttempt& attempt, SteadyTime asked);
// It has ended, and to tell how squeue's answer is not enough: whether it was preempted (which
// nobody asks of a success), or, of a job that nobody has claimed, the exit code, whether Slurm had
// started it more than once, and whether an earlier daemon had cancelled it because nobody_came().
bool wants_detail(const SlurmAttempt& attempt);
// What Slurm says of it; all unknown where it has forgotten the job.
void take_detail(SlurmAttempt& attempt, const SlurmJobDetail& detail,
                 const SlurmPatience& patience);
// Slurm calls it running, and no agent has come for so long that none will: a slurmctld that was
// killed may believe in an allocation whose launch never reached the node. To be cancelled, and
// marked as abandoned: it is submitted again.
bool nobody_came(const SlurmAttempt& attempt, SteadyTime asked, const SlurmPatience& patience);
// What accounting says (nothing: it does not know the name, or there is none to ask).
void take_history(SlurmAttempt& attempt, const std::vector<SlurmJob>& rows, SteadyTime asked,
                  const SlurmPatience& patience);

// What to say to poll(). `reachable` false: the last query failed with `why`.
Observation observe(const SlurmAttempt& attempt, bool reachable, const std::string& why);

}  // namespace lockstep
