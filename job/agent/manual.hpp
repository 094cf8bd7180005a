// lockstep-agent(1). Pure; any thread.
#pragma once

#include <CLI/App.hpp>

#include <string>

namespace lockstep {

// The man page of the program whose options and verbs `app` declares, as roff.
std::string agent_manual(const CLI::App& app);

}  // namespace lockstep
