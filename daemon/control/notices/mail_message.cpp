#include "daemon/control/notices/mail_message.hpp"

#include <array>
#include <ctime>

namespace lockstep {
namespace {

// RFC 5322 §3.3, whatever the locale.
std::string mail_date(UnixMillis time) {
    const std::time_t seconds = static_cast<std::time_t>(time / 1000);
    std::tm parts{};
    ::gmtime_r(&seconds, &parts);
    constexpr std::array<const char*, 7> kDays{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    constexpr std::array<const char*, 12> kMonths{"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                  "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    std::array<char, 64> numbers{};
    std::strftime(numbers.data(), numbers.size(), " %Y %H:%M:%S +0000", &parts);
    return std::string{kDays[static_cast<std::size_t>(parts.tm_wday)]} + ", " +
           std::to_string(parts.tm_mday) + " " + kMonths[static_cast<std::size_t>(parts.tm_mon)] +
           numbers.data();
}

}  // namespace

std::string mail_message(const Mail& mail, const std::string& to, const std::string& id,
                         UnixMillis time) {
    return "To: " + to + "\nSubject: " + mail.subject + "\nDate: " + mail_date(time) +
           "\nMessage-ID: <" + id +
           ">\nAuto-Submitted: auto-generated\nMIME-Version: 1.0\n"
           "Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit\n\n" +
           mail.text;
}

}  // namespace lockstep
