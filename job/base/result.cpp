#include "job/base/result.hpp"

#include <cerrno>
#include <system_error>

namespace lockstep {

std::string_view to_string(Errc code) {
    switch (code) {
        case Errc::invalid:
            return "invalid";
        case Errc::not_found:
            return "not_found";
        case Errc::conflict:
            return "conflict";
        case Errc::denied:
            return "denied";
        case Errc::exhausted:
            return "exhausted";
        case Errc::unavailable:
            return "unavailable";
        case Errc::timed_out:
            return "timed_out";
        case Errc::cancelled:
            return "cancelled";
        case Errc::corrupt:
            return "corrupt";
        case Errc::internal:
            return "internal";
    }
    return "internal";
}

Error Error::in(std::string_view context) const& {
    Error copy = *this;
    return std::move(copy).in(context);
}

Error Error::in(std::string_view context) && {
    message.insert(0, ": ").insert(0, context);
    return std::move(*this);
}

std::string Error::text() const {
    std::string out{to_string(code)};
    out += ": ";
    out += message;
    return out;
}

Error errno_error(std::string_view what, int error_number) {
    Errc code = Errc::internal;
    if (error_number == ENOSPC || error_number == EDQUOT || error_number == EMFILE ||
        error_number == ENFILE) {
        code = Errc::exhausted;
    } else if (error_number == ENOENT) {
        code = Errc::not_found;
    } else if (error_number == EACCES || error_number == EPERM) {
        code = Errc::denied;
    }
    return Error{code, std::string{what} + ": " + std::generic_category().message(error_number)};
}

}  // namespace lockstep
