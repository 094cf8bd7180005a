// What users are to be told of an append's events. Value.
#pragma once

#include "daemon/store/notices.hpp"

#include <memory>
#include <vector>

namespace lockstep {

struct OwedNotices {
    std::vector<NoticeRow> rows{};     // for the same append
    std::vector<NoticeRow> dropped{};  // never stored: too many of the user wait
    std::shared_ptr<void> place{};     // of the rows among those that wait, until they are stored
};

}  // namespace lockstep
