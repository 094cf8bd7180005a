// size: the memory, its blocks and the calls through them, which know one layout
#include "job/collective/shared_sum.hpp"

#include "job/base/files.hpp"
#include "job/base/ids.hpp"
#include "job/base/unique_fd.hpp"
#include "job/collective/collective_limits.hpp"
#include "job/collective/running_time.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t kSlotBytes = 256U << 10U;
constexpr std::size_t kSlots = 8;  // of each rank: how far one may be ahead of another
// A block of no more is reduced whole by every rank. Measured on two cores of one machine, by
// tests/bench/run trainer.
constexpr std::size_t kWholeBytes = 256U << 10U;
constexpr std::chrono::milliseconds kLook{100};  // after those that are lost

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

constexpr std::size_t kLine = 64;

// How far a rank is, in blocks of all calls; each word is written by that rank only.
struct alignas(kLine) Progress {
    std::atomic<std::uint64_t> staged;
    std::atomic<std::uint64_t> reduced;
    std::atomic<std::uint64_t> gathered;
    std::array<std::atomic<std::uint32_t>, kSlots> tags;  // of what is in the slots
};

// At the beginning of the memory; zeros when it is new.
struct alignas(kLine) Board {
    std::array<char, 64> secret;  // that the memory is the one that was meant
    alignas(kLine) std::atomic<std::uint32_t> news;
    std::atomic<std::uint32_t> waiting;
    std::array<Progress, limits::kSharedSumRanks> ranks;
};

void futex(std::atomic<std::uint32_t>& word, int what, std::uint32_t value, const timespec* most) {
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-vararg): there is no other way to it
    ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), what, value, most, nullptr, 0);
}

// What rank 0 tells the others: where the memory is among its descriptors. It has no name in any
// folder, so whoever is killed leaves nothing behind, and no small /dev/shm is in its way.
struct Invitation {
    std::array<char, 64> secret{};
    std::array<char, 36> boot{};  // of the machine, since when
    std::int64_t pid = 0;
    std::int64_t fd = -1;
};

std::string name_of(const Invitation& invitation) {
    constexpr std::size_t kNameDigits = 20;
    return "lockstep-" + std::string{invitation.secret.data(), kNameDigits};
}

// proc(5): random, anew at each start of the kernel.
std::array<char, 36> this_boot() {
    std::array<char, 36> out{};
    if (const auto text = read_file("/proc/sys/kernel/random/boot_id", 64)) {
        std::copy_n(text->begin(), std::min(text->size(), out.size()), out.begin());
    }
    return out;
}

}  // namespace

// The memory of all ranks; mapped until this object ends.
class SharedSum::Memory {
  public:
    Memory(std::int32_t rank, std::int32_t ranks) : rank_(rank), ranks_(ranks) {}
    ~Memory() {
        if (begin_ != nullptr) {
            ::munmap(begin_, bytes());
        }
    }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    // Rank 0's: there is room for it. A memory without room would end the process when it is used.
    void make(Invitation& invitation) {
        made_ = UniqueFd{::memfd_create(name_of(invitation).c_str(), MFD_CLOEXEC)};
        int room = EINTR;
        while (made_ && room == EINTR) {
            room = ::posix_fallocate(made_.get(), 0, static_cast<off_t>(bytes()));
        }
        if (room != 0 || !map(made_)) {
            made_ = {};
            return;
        }
        board().secret = invitation.secret;
        invitation.boot = this_boot();
        invitation.pid = ::getpid();
        invitation.fd = made_.get();
    }
    // Nothing is opened but what is called as it must be: on another machine, or among processes
    // with numbers of their own, that place may be somebody's file.
    bool open(const Invitation& invitation) {
        const std::string place =
            "/proc/" + std::to_string(invitation.pid) + "/fd/" + std::to_string(invitation.fd);
        std::error_code ec;
        const std::string target = std::filesystem::read_symlink(place, ec).string();
        if (ec || invitation.boot != this_boot() ||
            !target.starts_with("/memfd:" + name_of(invitation))) {
            return false;
        }
        const UniqueFd fd{::open(place.c_str(), O_RDWR | O_CLOEXEC)};
        return fd && ::lseek(fd.get(), 0, SEEK_END) == static_cast<off_t>(bytes()) && map(fd) &&
               board().secret == invitation.secret;
    }
    // After all that can have opened it: they and this rank have it mapped.
    void close() { made_ = {}; }

    std::int32_t rank() const { return rank_; }
    std::int32_t ranks() const { return ranks_; }
    Board& board() const { return *reinterpret_cast<Board*>(begin_); }
    Progress& progress(std::int32_t rank) const {
        return board().ranks[static_cast<std::size_t>(rank)];
    }
    std::byte* slot(std::int32_t rank, std::uint64_t block) const {
        return begin_ + sizeof(Board) +
               (static_cast<std::size_t>(rank) * kSlots + block % kSlots) * kSlotBytes;
    }

    // After something was written that others wait for.
    void tell() const {
        board().news.fetch_add(1);
        if (board().waiting.load() > 0) {
            futex(board().news, FUTEX_WAKE, INT_MAX, nullptr);
        }
    }
    // Until something was told since `news` was read, or it is time to look around.
    void wait(std::uint32_t news) const {
        const timespec most{0, std::chrono::nanoseconds{kLook}.count()};
        board().waiting.fetch_add(1);
        futex(board().news, FUTEX_WAIT, news, &most);
        board().waiting.fetch_sub(1);
    }

    std::atomic<bool>& aborted() { return aborted_; }

  private:
    std::size_t bytes() const {
        return sizeof(Board) + static_cast<std::size_t>(ranks_) * kSlots * kSlotBytes;
    }
    bool map(const UniqueFd& fd) {
        void* at = ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
        begin_ = at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
        return begin_ != nullptr;
    }

    std::int32_t rank_;
    std::int32_t ranks_;
    UniqueFd made_;  // rank 0's, while others may open it
    std::byte* begin_ = nullptr;
    std::atomic<bool> aborted_ = false;
};

// One call of run(): which of its blocks are staged, reduced and gathered.
class SharedSum::Call {
  public:
    Call(Memory& memory, Values values, ReduceFunction reduce, std::uint32_t tag,
         std::uint64_t first)
        : memory_(memory),
          values_(values),
          reduce_(reduce),
          tag_(tag),
          first_(first),
          end_(first + (values.count + per_block() - 1) / per_block()),
          whole_(values.count * values.size <= kWholeBytes) {}

    std::uint64_t end() const { return end_; }
    bool done() const { return mine().gathered.load(std::memory_order_relaxed) == end_; }
    // Of another rank: nothing of it is awaited any more. What it has left in its slots counts.
    bool is_done(std::int32_t rank) const {
        const Progress& theirs = memory_.progress(rank);
        const auto& part = whole_ ? theirs.staged : theirs.reduced;
        return part.load(std::memory_order_acquire) >= end_;
    }

    // Does one thing that can be done now. conflict: another rank is at another call.
    Result<bool> advance() {
        const std::uint64_t staged = mine().staged.load(std::memory_order_relaxed);
        const std::uint64_t reduced = mine().reduced.load(std::memory_order_relaxed);
        const std::uint64_t gathered = mine().gathered.load(std::memory_order_relaxed);
        if (reduced < staged && least(&Progress::staged) > reduced) {
            if (!is_same_call(reduced)) {
                return fail(Errc::conflict, "a rank is at another call");
            }
            if (whole_) {
                reduce_whole(reduced);
                mine().gathered.store(reduced + 1, std::memory_order_release);
            } else {
                reduce_piece(reduced);
            }
            mine().reduced.store(reduced + 1, std::memory_order_release);
            memory_.tell();
            return true;
        }
        if (staged < end_ && staged < least(&Progress::gathered) + kSlots) {
            stage(staged);
            mine().tags[staged % kSlots].store(tag_, std::memory_order_relaxed);
            mine().staged.store(staged + 1, std::memory_order_release);
            memory_.tell();
            return true;
        }
        if (gathered < reduced && least(&Progress::reduced) > gathered) {
            gather(gathered);
            mine().gathered.store(gathered + 1, std::memory_order_release);
            memory_.tell();
            return true;
        }
        return false;
    }

  private:
    struct Piece {
        std::size_t offset;  // of its block, in bytes
        std::size_t count;   // of values
    };

    Progress& mine() const { return memory_.progress(memory_.rank()); }
    std::size_t per_block() const { return kSlotBytes / values_.size; }
    std::size_t count_of(std::uint64_t block) const {
        return std::min(per_block(), values_.count - (block - first_) * per_block());
    }
    std::byte* values_of(std::uint64_t block) const {
        return values_.data + (block - first_) * per_block() * values_.size;
    }
    // What rank `of` reduces.
    Piece piece(std::uint64_t block, std::int32_t of) const {
        const auto ranks = static_cast<std::size_t>(memory_.ranks());
        const std::size_t count = count_of(block);
        const std::size_t begin = count * static_cast<std::size_t>(of) / ranks;
        const std::size_t end = count * (static_cast<std::size_t>(of) + 1) / ranks;
        return {begin * values_.size, end - begin};
    }

    std::uint64_t least(std::atomic<std::uint64_t> Progress::* what) const {
        std::uint64_t out = UINT64_MAX;
        for (std::int32_t rank = 0; rank < memory_.ranks(); ++rank) {
            out = std::min(out, (memory_.progress(rank).*what).load(std::memory_order_acquire));
        }
        return out;
    }
    bool is_same_call(std::uint64_t block) const {
        for (std::int32_t rank = 0; rank < memory_.ranks(); ++rank) {
            const auto& tag = memory_.progress(rank).tags[block % kSlots];
            if (tag.load(std::memory_order_relaxed) != tag_) {
                return false;
            }
        }
        return true;
    }

    void stage(std::uint64_t block) const {
        std::byte* slot = memory_.slot(memory_.rank(), block);
        const std::byte* from = values_of(block);
        const Piece own = piece(block, memory_.rank());
        const std::size_t after = own.offset + own.count * values_.size;
        const std::size_t end = count_of(block) * values_.size;
        if (whole_) {
            std::memcpy(slot, from, end);
            return;
        }
        std::memcpy(slot, from, own.offset);
        std::memcpy(slot + after, from + after, end - after);
    }

    // The result goes to where nothing was staged: the others read it there.
    void reduce_piece(std::uint64_t block) const {
        const Piece own = piece(block, memory_.rank());
        std::byte* to = memory_.slot(memory_.rank(), block) + own.offset;
        std::byte* values = values_of(block) + own.offset;
        const auto part = [&](std::int32_t rank) -> const std::byte* {
            return rank == memory_.rank() ? values : memory_.slot(rank, block) + own.offset;
        };
        reduce_(to, part(0), part(1), own.count);
        for (std::int32_t rank = 2; rank < memory_.ranks(); ++rank) {
            reduce_(to, to, part(rank), own.count);
        }
        std::memcpy(values, to, own.count * values_.size);
    }
    void reduce_whole(std::uint64_t block) const {
        std::byte* to = values_of(block);
        const std::size_t count = count_of(block);
        reduce_(to, memory_.slot(0, block), memory_.slot(1, block), count);
        for (std::int32_t rank = 2; rank < memory_.ranks(); ++rank) {
            reduce_(to, to, memory_.slot(rank, block), count);
        }
    }
    void gather(std::uint64_t block) const {
        for (std::int32_t rank = 0; rank < memory_.ranks(); ++rank) {
            if (rank != memory_.rank()) {
                const Piece theirs = piece(block, rank);
                std::memcpy(values_of(block) + theirs.offset,
                            memory_.slot(rank, block) + theirs.offset, theirs.count * values_.size);
            }
        }
    }

    Memory& memory_;
    Values values_;
    ReduceFunction reduce_;
    std::uint32_t tag_;
    std::uint64_t first_;
    std::uint64_t end_;
    bool whole_;
};

SharedSum::SharedSum(std::unique_ptr<Memory> memory) : memory_(std::move(memory)) {}
SharedSum::~SharedSum() = default;

std::unique_ptr<SharedSum> SharedSum::meet(std::int32_t rank, std::int32_t ranks,
                                           const Gather& gather) {
    if (ranks < 2 || ranks > limits::kSharedSumRanks) {
        return nullptr;
    }
    auto memory = std::make_unique<Memory>(rank, ranks);
    Invitation mine;
    if (rank == 0) {
        const std::string secret = random_secret();
        std::copy_n(secret.begin(), std::min(secret.size(), mine.secret.size()),
                    mine.secret.begin());
        memory->make(mine);
    }
    const auto bytes_of = [](const auto& value) { return std::as_bytes(std::span{&value, 1}); };
    const std::vector<std::byte> all = gather(bytes_of(mine));
    Invitation invitation;
    std::memcpy(&invitation, all.data(), sizeof invitation);
    const bool shares = invitation.fd >= 0 && (rank == 0 || memory->open(invitation));
    const std::vector<std::byte> answers = gather(bytes_of(shares));
    memory->close();
    const bool all_share = std::all_of(answers.begin(), answers.end(),
                                       [](std::byte answer) { return answer == std::byte{1}; });
    return all_share ? std::unique_ptr<SharedSum>{new SharedSum{std::move(memory)}} : nullptr;
}

Status SharedSum::run(Values values, ReduceFunction reduce, std::uint32_t tag,
                      std::chrono::milliseconds patience, const Lost& lost, const Name& name) {
    Call call{*memory_, values, reduce, tag, blocks_};
    RunningTime time;
    RunningTime::Clock::duration waited{0};
    while (!call.done()) {
        const std::uint32_t news = memory_->board().news.load();
        if (memory_->aborted()) {
            return fail(Errc::cancelled, "the operation was aborted");
        }
        bool advanced = false;
        for (Result<bool> more = call.advance();; more = call.advance()) {
            if (!more) {
                return fail(Errc::timed_out, more.error().message);
            }
            if (!*more) {
                break;
            }
            advanced = true;
        }
        waited += time.passed();
        if (advanced) {
            waited = {};
            continue;
        }
        if (call.done()) {
            break;
        }
        if (waited > patience) {
            return fail(Errc::timed_out, "Timed out waiting for the other ranks of this machine");
        }
        memory_->wait(news);
        for (std::int32_t rank = 0; rank < memory_->ranks(); ++rank) {
            // What it did before it went still counts.
            if (rank != memory_->rank() && lost(rank) && !call.is_done(rank)) {
                const Result<bool> more = call.advance();
                if (!more || !*more) {
                    return fail(Errc::unavailable,
                                "Connection closed by peer: rank " + std::to_string(name(rank)));
                }
            }
        }
    }
    blocks_ = call.end();
    return {};
}

void SharedSum::abort() {
    memory_->aborted() = true;
    memory_->tell();
}

}  // namespace lockstep
