// What is told to the targets of a job's `notify` (notify.hpp), and in which words. Pure; any
// thread.
#pragma once

#include "job/model/job.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// `body` is what a webhook gets, but for `url`: {event, time, seq, text, job, anomaly?}. `event` is
// succeeded, failed, cancelled: the job is over; restarting: its ranks ended early and it goes on;
// hang, anomaly: it is in trouble and runs. It stays as it was then: a try of hours later sends the
// same bytes.
struct Notice {
    Seq seq = 0;  // of the event that is told; with the job's id it names the notice
    Json body;
};

// What follows from events that are appended together; `job` is what they leave. The end of the job
// is always told. Before it, limits::kNoticesOfJob at most, of which the last says so: hangs,
// restarts without a request, and anomalies, of each kind the job's first.
std::vector<Notice> notices_of(const Job& job, const std::vector<Event>& events);

struct Mail {
    std::string subject;  // ASCII, one line
    std::string text;     // UTF-8, lines of at most 900 bytes
};
// The same for people. `url`: where the job is shown; "" = unknown.
Mail mail_of(const Json& body, std::string_view url);

}  // namespace lockstep
