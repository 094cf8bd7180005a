// What users are to be told of an append's events. Value.
#pragma once

#include "daemon/store/notices.hpp"

#include <vector>

namespace lockstep {

struct OwedNotices {
    std::vector<NoticeRow> rows{};     // for the same append
    std::vector<NoticeRow> dropped{};  // never stored: too many of the user wait
};

}  // namespace lockstep
