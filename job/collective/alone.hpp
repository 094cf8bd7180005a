// The communicator of one rank. Any thread.
#pragma once

#include "job/collective/communicator.hpp"

#include <memory>

namespace lockstep {

std::unique_ptr<Communicator> make_alone();

}  // namespace lockstep
