// What the signals of the agent ask of a rank: SIGTERM = finish the step, write a checkpoint, end;
// SIGUSR2, or the signal that LOCKSTEP_CHECKPOINT_SIGNAL names = write a checkpoint and go on;
// SIGURG = somebody asks for a profile (step_profile.hpp). One per process; install() from main
// before threads: it starts the one that takes these signals, which lives as long as the process,
// and has the others not take them. A program that is started from here inherits that. The
// questions may be asked from any thread.
#pragma once

#include <chrono>

namespace lockstep::stop_signal {

void install();
// Whether SIGTERM came.
bool requested();
// How long ago SIGTERM came, as seen by this function's first call after it; 0 if it did not.
std::chrono::milliseconds age();
// True once per request for a checkpoint (several that came together count as one).
bool take_checkpoint_request();
// The same of SIGURG.
bool take_profile_request();
// For tests: as if the signal had come, or had never come.
void request();
void ask_for_profile();
void reset();

}  // namespace lockstep::stop_signal
