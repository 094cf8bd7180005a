#include "job/collective/nccl_ranks.hpp"

#include "job/collective/collective_limits.hpp"

#include <algorithm>
#include <functional>
#include <ranges>
#include <utility>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

constexpr auto kInitPoll = 2ms;  // NCCL notifies nobody of the state of a communicator
constexpr auto kWatchTick = 50ms;
constexpr std::size_t kScratchBytes = 256;

}  // namespace

NcclNode::Clock::duration NcclNode::alarm_every() const {
    return std::max<Clock::duration>(1s, std::chrono::milliseconds{options.size});
}

void NcclNode::use_gpu() const {
    cuda::Context current = nullptr;
    driver.api.ctx_get_current(&current);
    if (current != context) {
        driver.api.ctx_set_current(context);
    }
}

std::optional<std::string> NcclNode::alarm() const {
    auto value = keys->wait(key("alarm"), 0ms);
    return value ? std::optional{std::move(*value)} : std::nullopt;
}

bool NcclNode::gives_up(Clock::time_point& next) const {
    if (!options.give_up || Clock::now() < next) {
        return false;
    }
    next = Clock::now() + 100ms;
    return options.give_up();
}

std::string NcclNode::blame(const std::string& noticed, const NcclPosition& mine) const {
    if (!alarm()) {
        static_cast<void>(keys->set(
            key("alarm"),
            "rank " + std::to_string(options.name_of(options.rank)) + " noticed: " + noticed));
    }
    static_cast<void>(keys->set(key("at/", options.rank), mine.encode()));
    const auto end = Clock::now() + options.verdict_timeout + 2 * alarm_every();
    std::vector<std::optional<NcclPosition>> ranks(static_cast<std::size_t>(options.size));
    for (std::int32_t rank = 0; rank < options.size; ++rank) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
            std::max<Clock::duration>(end - Clock::now(), 0ms));
        if (const auto said = keys->wait(key("at/", rank), left)) {
            ranks[static_cast<std::size_t>(rank)] = NcclPosition::decode(*said);
        }
    }
    const NcclVerdict out = verdict(ranks, alarm().value_or(noticed), options.names);
    if (options.on_verdict) {
        options.on_verdict(out);
    }
    return out.text;
}

NcclVerdict NcclNode::missing() const {
    NcclVerdict out;
    if (!keys->wait(key("rank/", options.rank), 0ms)) {
        return out;  // its own is there: it is the keys that do not answer
    }
    std::string names;
    for (std::int32_t rank = 0; rank < options.size; ++rank) {
        if (!keys->wait(key("rank/", rank), 0ms)) {
            out.culprits.push_back(options.name_of(rank));
            names += (names.empty() ? "" : ", ") + std::to_string(out.culprits.back());
        }
    }
    out.text = "NCCL's initialisation: missing: rank " + names;
    if (!out.culprits.empty() && options.on_verdict) {
        options.on_verdict(out);
    }
    return out;
}

namespace {

// Until an initialisation has ended. `comm` says how it goes: the new one, or the one that shrinks.
Status wait_ready(const NcclNode& node, nccl::Comm comm, nccl::Result state) {
    using Clock = NcclNode::Clock;
    const auto& api = node.library.api;
    const auto end = Clock::now() + node.options.init_timeout;
    NcclPosition mine;
    mine.text = "initialisation";
    auto next_alarm = Clock::now() + node.alarm_every();
    auto next_question = Clock::now();
    while (state == nccl::kInProgress) {
        if (node.gives_up(next_question)) {
            return fail(Errc::cancelled, "NCCL's initialisation was given up");
        }
        if (Clock::now() >= end) {
            if (const NcclVerdict missing = node.missing(); !missing.culprits.empty()) {
                return fail(Errc::timed_out, missing.text);
            }
            return fail(Errc::timed_out,
                        "NCCL's initialisation: " +
                            node.blame("the initialisation is not done in time", mine));
        }
        if (Clock::now() >= next_alarm) {
            if (const auto alarm = node.alarm()) {
                return fail(Errc::unavailable,
                            "NCCL's initialisation: " + node.blame(*alarm, mine));
            }
            next_alarm = Clock::now() + node.alarm_every();
        }
        std::this_thread::sleep_for(kInitPoll);
        api.comm_get_async_error(comm, &state);
    }
    if (state != nccl::kSuccess) {
        mine.error = state;
        mine.remote = state == nccl::kRemoteError;
        mine.text = node.library.error(state, comm);
        return fail(Errc::unavailable, "NCCL's initialisation: " + node.blame(mine.text, mine));
    }
    return {};
}

}  // namespace

NcclRanks::~NcclRanks() {
    stop_watching();
    node_.use_gpu();
    const auto& api = node_.library.api;
    const bool well = !async_error();
    if (comm_ != nullptr && well && api.comm_finalize != nullptr) {
        // Every operation comes to its end, on every rank: unless one of them is lost.
        nccl::Result state = api.comm_finalize(comm_);
        const auto end = Clock::now() + limits::kNcclEndPatience;
        while (state == nccl::kInProgress && Clock::now() < end) {
            std::this_thread::sleep_for(kInitPoll);
            api.comm_get_async_error(comm_, &state);
        }
        if (state == nccl::kSuccess) {
            api.comm_destroy(comm_);
            comm_ = nullptr;
        }
    }
    if (comm_ != nullptr) {
        api.comm_abort(comm_);
    }
    for (const Entry& entry : under_way_) {
        node_.driver.api.event_destroy(entry.event);
    }
    for (cuda::Event event : spare_events_) {
        node_.driver.api.event_destroy(event);
    }
    if (scratch_ != 0) {
        node_.driver.api.mem_free(scratch_);
    }
}

Status NcclRanks::finish_init(nccl::Result begun) {
    if (Status ready = wait_ready(node_, comm_, begun); !ready) {
        // Kept, so that the destructor ends what has begun.
        return fail(keep(ready.error()));
    }
    if (const cuda::Result code = node_.driver.api.mem_alloc(&scratch_, kScratchBytes);
        code != cuda::kSuccess) {
        return fail(keep({Errc::exhausted, "GPU memory: " + node_.driver.error(code)}));
    }
    watcher_ = std::thread{[this] { watch(); }};
    return {};
}

// Of an operation that has waited for longer than it may.
std::optional<std::string> NcclRanks::late_words(const Entry& entry, const char* what) const {
    if (entry.waited <= node_.options.silence) {
        return std::nullopt;
    }
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(entry.waited);
    return entry.call.text() + " " + what + " after " + std::to_string(seconds.count()) + " s";
}

std::optional<NcclRanks::Trouble> NcclRanks::look() {
    const std::lock_guard lock{comm_mutex_};
    if (comm_ == nullptr) {
        return std::nullopt;
    }
    nccl::Result state = nccl::kSuccess;
    node_.library.api.comm_get_async_error(comm_, &state);
    if (state != nccl::kSuccess && state != nccl::kInProgress) {
        return Trouble{node_.library.error(state, comm_), state};
    }
    // The time of one begins when what was before it has ended.
    const Clock::duration passed = time_.passed();
    if (!under_way_.empty()) {
        under_way_.front().waited += passed;
    } else if (beginning_) {
        beginning_->waited += passed;
        if (auto late = late_words(*beginning_, "has not begun")) {
            return Trouble{std::move(*late), nccl::kSuccess};
        }
    }
    while (!under_way_.empty()) {
        Entry& first = under_way_.front();
        const cuda::Result code = node_.driver.api.event_query(first.event);
        if (code == cuda::kNotReady) {
            if (auto late = late_words(first, "is not done")) {
                return Trouble{std::move(*late), nccl::kSuccess};
            }
            break;
        }
        if (code != cuda::kSuccess) {
            return Trouble{"the GPU: " + node_.driver.error(code), nccl::kUnhandledCudaError};
        }
        ++done_;
        spare_events_.push_back(first.event);
        under_way_.pop_front();
    }
    return std::nullopt;
}

NcclPosition NcclRanks::position(const Trouble& trouble) {
    const std::lock_guard lock{comm_mutex_};
    NcclPosition out;
    out.called = collectives_;
    out.done = done_;
    out.error = trouble.error;
    out.remote = trouble.error == nccl::kRemoteError;
    out.text = trouble.error != nccl::kSuccess ? trouble.text
               : collectives_ == 0             ? std::string{kNoOperation}
                                               : last_.text();
    return out;
}

void NcclRanks::watch() {
    node_.use_gpu();
    auto next_alarm = Clock::now() + node_.alarm_every();
    std::unique_lock lock{watch_mutex_};
    while (!changed_.wait_for(lock, kWatchTick, [this] { return stop_; })) {
        lock.unlock();
        auto trouble = look();
        if (!trouble && Clock::now() >= next_alarm) {
            if (auto alarm = node_.alarm()) {
                trouble = Trouble{std::move(*alarm), nccl::kSuccess};
            }
            next_alarm = Clock::now() + node_.alarm_every();
        }
        if (trouble) {
            const Errc code =
                trouble->error == nccl::kSuccess ? Errc::timed_out : Errc::unavailable;
            keep({code, node_.blame(trouble->text, position(*trouble))});
            end_operations();
            return;
        }
        lock.lock();
    }
}

void NcclRanks::stop_watching() {
    {
        const std::lock_guard lock{watch_mutex_};
        stop_ = true;
    }
    changed_.notify_all();
    if (watcher_.joinable()) {
        watcher_.join();
    }
}

// The GPU's kernels end, and with them what waits for their streams.
void NcclRanks::end_operations() {
    node_.use_gpu();
    const auto& api = node_.library.api;
    const std::lock_guard lock{comm_mutex_};
    if (comm_ == nullptr) {
        return;
    }
    if (node_.options.elastic && api.comm_shrink != nullptr) {
        if (api.comm_revoke != nullptr) {
            api.comm_revoke(comm_, 0);
        }
        return;  // shrink() ends the rest
    }
    api.comm_abort(comm_);
    comm_ = nullptr;
}

Result<std::unique_ptr<NcclCommunicator>> NcclRanks::shrink(std::span<const std::int32_t> gone) {
    const auto& api = node_.library.api;
    if (api.comm_shrink == nullptr) {
        return fail(Errc::invalid, "NCCL " + node_.library.version_text() +
                                       " cannot shrink a communicator: 2.27 can");
    }
    const bool sorted =
        std::adjacent_find(gone.begin(), gone.end(), std::greater_equal<>{}) == gone.end();
    if (gone.empty() || !sorted || gone.front() < 0 || gone.back() >= size() ||
        std::binary_search(gone.begin(), gone.end(), rank())) {
        return fail(Errc::invalid, "not a sorted list of other ranks");
    }
    stop_watching();
    keep({Errc::cancelled, "the communicator was shrunk"});
    node_.use_gpu();
    if (comm_ == nullptr) {
        return fail(Errc::cancelled, "the communicator has ended");
    }
    NcclNode node = node_;
    node.options.size = size() - static_cast<std::int32_t>(gone.size());
    node.options.rank =
        rank() - static_cast<std::int32_t>(std::lower_bound(gone.begin(), gone.end(), rank()) -
                                           gone.begin());
    node.options.prefix += "/" + std::to_string(node.options.size);
    for (const std::int32_t number : std::ranges::reverse_view{gone}) {
        if (!node.options.names.empty()) {
            node.options.names.erase(node.options.names.begin() + number);
        }
    }
    static_cast<void>(
        node.keys->set(node.key("rank/", node.options.rank), "of " + std::to_string(rank())));
    const auto state = [&] {
        nccl::Result out = nccl::kSuccess;
        api.comm_get_async_error(comm_, &out);
        return out;
    };
    const auto revoked = Clock::now() + limits::kNcclEndPatience;  // ncclCommRevoke takes its time
    while (state() == nccl::kInProgress && Clock::now() < revoked) {
        std::this_thread::sleep_for(kInitPoll);
    }
    std::vector<int> list(gone.begin(), gone.end());
    nccl::Config config;
    // NCCL writes it when all is done, from a thread of its own, and until then this communicator
    // says how it goes.
    auto made = std::make_unique<nccl::Comm>(nullptr);
    const nccl::Result begun = api.comm_shrink(comm_, list.data(), static_cast<int>(list.size()),
                                               made.get(), &config, nccl::kShrinkAbort);
    Status ready = wait_ready(node, comm_, begun);
    if (ready && *made == nullptr) {
        ready = fail(Errc::unavailable, "NCCL made no smaller communicator");
    }
    if (!ready) {
        api.comm_abort(comm_);
        comm_ = nullptr;
        static_cast<void>(made.release());  // 8 bytes, to which that thread may still write
        return fail(ready.error().in("shrinking"));
    }
    auto out = std::make_unique<NcclRanks>(std::move(node), *made);
    LOCKSTEP_TRY(out->finish_init(nccl::kSuccess));
    return out;
}

}  // namespace lockstep
