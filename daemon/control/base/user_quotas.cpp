#include "daemon/control/base/user_quotas.hpp"

#include "job/base/limits.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lockstep {
namespace {

tl::unexpected<Error> come_again(std::string message, std::int32_t seconds) {
    Error error{Errc::exhausted, std::move(message)};
    error.retry_after_s = seconds;
    return fail(std::move(error));
}

}  // namespace

UserQuotas::Hold::Hold(UserQuotas& of, std::string user, std::size_t count, bool metered)
    : of_(&of), user_(std::move(user)), count_(count), metered_(metered) {}

UserQuotas::Hold::Hold(Hold&& other) noexcept
    : of_(std::exchange(other.of_, nullptr)),
      user_(std::move(other.user_)),
      count_(other.count_),
      metered_(other.metered_) {}

UserQuotas::Hold::~Hold() {
    if (of_ != nullptr) {
        of_->give_back(user_, count_, metered_);
    }
}

void UserQuotas::Hold::keep() {
    if (UserQuotas* of = std::exchange(of_, nullptr)) {
        of->accounts_[user_].storing -= count_;
    }
}

void UserQuotas::give_back(const std::string& user, std::size_t count, bool metered) {
    Account& account = accounts_[user];
    account.storing -= count;
    if (metered) {
        account.room += static_cast<double>(count);  // refill() cuts it to a full bucket
    }
}

void UserQuotas::refill(Account& account, std::size_t per_minute, Instant now) {
    const auto full = static_cast<double>(per_minute);
    if (!std::exchange(account.metered, true)) {
        account.room = full;
    } else {
        const std::chrono::duration<double> passed = now - account.since;
        account.room += std::max(passed.count(), 0.0) * full / 60;
        account.room = std::min(account.room, full);
    }
    account.since = now;
}

Result<UserQuotas::Hold> UserQuotas::take(const std::string& user, std::size_t count, Caps caps,
                                          Instant now) {
    Account& account = accounts_[user];
    const std::size_t has = account.jobs + account.storing;
    if (caps.jobs > 0 && has + count > caps.jobs) {
        const std::string more =
            count > 1 ? ", these are " + std::to_string(count) + " more" : std::string{};
        return come_again("limit: a user may have " + std::to_string(caps.jobs) +
                              " unfinished jobs; " + user + " has " + std::to_string(has) + more,
                          limits::kFullPauseSeconds);
    }
    const bool metered = caps.per_minute > 0;
    if (metered) {
        refill(account, caps.per_minute, now);
        const auto wanted = static_cast<double>(std::min(count, caps.per_minute));
        if (account.room < wanted) {
            const double seconds =
                (wanted - account.room) * 60 / static_cast<double>(caps.per_minute);
            return come_again("limit: a user may submit " + std::to_string(caps.per_minute) +
                                  " jobs a minute; a job of a sweep counts as one",
                              static_cast<std::int32_t>(std::min(std::ceil(seconds), 86'400.0)));
        }
        account.room -= static_cast<double>(count);
    }
    account.storing += count;
    return Hold{*this, user, count, metered};
}

void UserQuotas::begun(const std::string& user) {
    ++accounts_[user].jobs;
}

void UserQuotas::ended(const std::string& user) {
    Account& account = accounts_[user];
    account.jobs -= account.jobs > 0 ? 1 : 0;
}

std::size_t UserQuotas::unfinished(const std::string& user) const {
    const auto found = accounts_.find(user);
    return found == accounts_.end() ? 0 : found->second.jobs;
}

}  // namespace lockstep
