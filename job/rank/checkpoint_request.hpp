// Whether this rank was asked for a checkpoint: by `lockstep checkpoint ID`, or because the time
// limit is near. The agent asks by the signal LOCKSTEP_CHECKPOINT_SIGNAL, and only once every rank
// catches it: it ends a process that does not.
#pragma once

namespace lockstep {

// True once after each request; requests between two calls count as one. The first call installs
// the handler (a handler that was there before is called, too), so call it before training starts.
// Any thread; never blocks. Without Lockstep it is false.
bool checkpoint_requested();

}  // namespace lockstep
