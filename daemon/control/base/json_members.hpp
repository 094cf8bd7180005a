// Some members of an object that is JSON text already, without parsing it: lists have hundreds of
// large ones. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// `object`: text that dump_json() made of an object. Those of its members that are named, in the
// object's order, as an object.
std::string json_members(std::string_view object, const std::vector<std::string>& names);

}  // namespace lockstep
