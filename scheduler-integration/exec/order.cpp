#include "scheduler-integration/exec/order.hpp"

#include <cstring>
#include <initializer_list>

namespace lockstep::exec {
namespace {

template <class Number>
bool take(Number& out, const unsigned char* value, std::uint32_t size) {
    if (size != sizeof out) {
        return false;
    }
    std::memcpy(&out, value, sizeof out);
    return true;
}

template <std::size_t N>
bool take(char (&out)[N], const unsigned char* value, std::uint32_t size) {
    if (size >= N || std::memchr(value, 0, size) != nullptr) {
        return false;
    }
    std::memcpy(out, value, size);
    out[size] = '\0';
    return true;
}

bool take_field(Order& out, unsigned char tag, const unsigned char* value, std::uint32_t size) {
    switch (static_cast<Tag>(tag)) {
        case Tag::verb:
            return take(out.verb, value, size);
        case Tag::what:
            return take(out.what, value, size);
        case Tag::attempt:
            return take(out.attempt, value, size);
        case Tag::point:
            return take(out.point, value, size);
        case Tag::nil:
            return take(out.nil, value, size);
        case Tag::slurm_job:
            return take(out.slurm_job, value, size);
        case Tag::since:
            return take(out.since, value, size);
        case Tag::job:
            return take(out.job, value, size);
        case Tag::name:
            return take(out.name, value, size);
        case Tag::exclude:
            return take(out.exclude, value, size);
        case Tag::time:
            return take(out.time, value, size);
        case Tag::fence:
            return take(out.fence, value, size);
        case Tag::file:
            return take(out.file, value, size);
        case Tag::ticket:
            return take(out.ticket, value, size);
        case Tag::credential:
            return take(out.credential, value, size);
        case Tag::statement:
            return take(out.statement, value, size);
    }
    return false;
}

bool letter_or_digit(char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

template <std::size_t N>
bool ends(const char (&text)[N]) {
    return std::memchr(text, 0, N) != nullptr;
}

bool only(const char* text, const char* also) {
    for (; *text != '\0'; ++text) {
        if (!letter_or_digit(*text) && std::strchr(also, *text) == nullptr) {
            return false;
        }
    }
    return true;
}

// "ls-" and a ULID in Crockford's base 32.
bool is_job(const char* text) {
    if (std::strlen(text) != 29 || std::memcmp(text, "ls-", 3) != 0) {
        return false;
    }
    for (const char* at = text + 3; *at != '\0'; ++at) {
        const bool upper = *at >= 'A' && *at <= 'Z';
        if (!(*at >= '0' && *at <= '9') && !(upper && std::strchr("ILOU", *at) == nullptr)) {
            return false;
        }
    }
    return true;
}

// …-<ulid>-a<attempt>, as nobody but Lockstep names jobs.
bool is_attempt_name(const char* text) {
    const char* tail = std::strrchr(text, '-');
    if (tail == nullptr || tail[1] != 'a' || tail[2] < '1' || tail[2] > '9' || tail - text < 28) {
        return false;
    }
    for (const char* at = tail + 3; *at != '\0'; ++at) {
        if (*at < '0' || *at > '9') {
            return false;
        }
    }
    for (const char* at = tail - 26; at < tail; ++at) {
        if (!(*at >= '0' && *at <= '9') && !(*at >= 'a' && *at <= 'z')) {
            return false;
        }
    }
    return tail[-27] == '-' && only(text, "._-");
}

// What agents and Slurm write for others to read; never agent.json, never a way out of the folder.
bool is_log(const char* text) {
    bool known = false;
    for (const char* const begin :
         {"rank-", "node-", "agent-", "batch.", "setup-", "evidence/", "profile/"}) {
        known = known || std::strncmp(text, begin, std::strlen(begin)) == 0;
    }
    for (const char* at = text; *at != '\0'; ++at) {
        known = known && (*at != '.' || (at != text && at[-1] != '/')) &&
                (*at != '/' || (at[1] != '/' && at[1] != '\0'));
    }
    return known && only(text, "._-/");
}

bool empty(const Order& o, bool job, bool submit, bool named) {
    return (job || (o.job[0] == '\0' && o.attempt == 0)) &&
           (submit || (o.point == 0 && o.nil == 0 && o.exclude[0] == '\0' && o.time[0] == '\0' &&
                       o.ticket[0] == '\0')) &&
           (named || (o.name[0] == '\0' && o.slurm_job == 0));
}

bool is_statement(const char* text) {
    const std::size_t size = std::strlen(text);
    for (std::size_t i = 0; i < size; ++i) {
        if ((text[i] < ' ' || text[i] > '~') && text[i] != '\n') {
            return false;
        }
    }
    return size > 0 && text[size - 1] == '\n';
}

const char* check_verb(const Order& o) {
    constexpr std::uint32_t kAttempts = 1000;
    const auto what = static_cast<What>(o.what);
    const bool job = is_job(o.job) && o.attempt >= 1 && o.attempt <= kAttempts;
    switch (static_cast<Verb>(o.verb)) {
        case Verb::submit:
            if ((what != What::none && what != What::refresh) || !job ||
                !empty(o, true, true, false) || o.ticket[0] == '\0' || o.nil > 1 ||
                o.point > 1'000'000 || !only(o.exclude, "-._,") || !only(o.time, ":-") ||
                o.fence[0] != '\0' || o.file[0] != '\0' || o.since != 0) {
                return "no order to submit";
            }
            return nullptr;
        case Verb::cancel:
            if (what != What::none || !empty(o, false, false, true) || !is_attempt_name(o.name) ||
                o.slurm_job <= 0 || o.fence[0] != '\0' || o.file[0] != '\0' || o.since != 0) {
                return "no order to cancel";
            }
            return nullptr;
        case Verb::query: {
            const bool history = what == What::history;
            if (what < What::about || what > What::job ||
                !empty(o, false, false, history || what == What::job) ||
                (history && !is_attempt_name(o.name)) || (what == What::job && o.slurm_job <= 0) ||
                (!history && (o.name[0] != '\0' || o.since != 0)) || o.since < 0 ||
                (what != What::job && o.slurm_job != 0) || o.file[0] != '\0' ||
                (what == What::jobs) != (o.fence[0] != '\0') || !only(o.fence, "")) {
                return "no query";
            }
            return nullptr;
        }
        case Verb::open_log:
            if (what != What::none || !job || !empty(o, true, false, false) || !is_log(o.file) ||
                o.fence[0] != '\0' || o.since != 0) {
                return "no log to open";
            }
            return nullptr;
    }
    return "no such verb";
}

}  // namespace

const char* read_order(const unsigned char* body, std::size_t size, Order& out) {
    std::memset(&out, 0, sizeof out);
    std::uint32_t seen = 0;
    while (size > 0) {
        std::uint32_t bytes = 0;
        if (size < 1 + sizeof bytes) {
            return "a field is cut off";
        }
        const unsigned char tag = body[0];
        std::memcpy(&bytes, body + 1, sizeof bytes);
        body += 1 + sizeof bytes;
        size -= 1 + sizeof bytes;
        if (bytes > size) {
            return "a field is cut off";
        }
        if (tag > 31 || (seen & (1U << tag)) != 0) {
            return "a field is there twice, or unknown";
        }
        seen |= 1U << tag;
        if (!take_field(out, tag, body, bytes)) {
            return "a field is unknown, or too long";
        }
        body += bytes;
        size -= bytes;
    }
    return nullptr;
}

const char* check_order(const Order& o) {
    if (!ends(o.job) || !ends(o.name) || !ends(o.exclude) || !ends(o.time) || !ends(o.fence) ||
        !ends(o.file) || !ends(o.ticket) || !ends(o.credential) || !ends(o.statement)) {
        return "a text has no end";
    }
    const bool about = o.verb == static_cast<std::uint32_t>(Verb::query) &&
                       o.what == static_cast<std::uint32_t>(What::about);
    if (about != (o.credential[0] == '\0') || about != (o.statement[0] == '\0')) {
        return "a credential and what it signs are asked for";
    }
    // munge(7): "MUNGE:" and base 64, closed by a colon.
    if (!about && (!only(o.credential, "+/=:") || !is_statement(o.statement))) {
        return "no credential, or no statement";
    }
    return check_verb(o);
}

}  // namespace lockstep::exec
