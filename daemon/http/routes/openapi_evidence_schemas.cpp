// What is answered of captures of ranks: evidence of hangs, and profiles.
#include "daemon/http/routes/openapi.hpp"

namespace lockstep {

namespace {

constexpr std::string_view kEvidenceSchemas = R"json(
"Evidence": {"type": "object", "required": ["items"],
  "properties": {
  "items": {"type": "array", "description": "One entry per capture, newest first.",
    "items": {"type": "object", "required": ["attempt", "generation", "time", "reason", "message", "ranks"],
      "properties": {
      "attempt": {"type": "integer", "minimum": 1, "description": "Number of the attempt."},
      "generation": {"type": "integer", "minimum": 1, "description": "Number of the generation."},
      "time": {"type": "string", "format": "date-time", "description": "When it was captured."},
      "reason": {"type": "string", "description": "Why it was captured."},
      "message": {"type": "string", "description": "Summary of what was captured and what was not."},
      "step": {"type": "integer", "minimum": 0, "description": "The highest step that a rank has reported."},
      "ranks": {"type": "array", "description": "The lagging ones first; at most 256.",
        "items": {"$ref": "#/components/schemas/RankEvidence"}}}}},
  "next_cursor": {"type": "string", "description": "Value of before for the next page. Absent on the last page."}}},
"RankEvidence": {"type": "object", "required": ["rank", "node", "behind", "files", "missing"],
  "properties": {
  "rank": {"type": "integer", "minimum": 0, "description": "Number of the rank, from 0."},
  "node": {"type": "string", "description": "Its node."},
  "pid": {"type": "integer", "minimum": 1, "description": "Its process id on the node."},
  "step": {"type": "integer", "minimum": 0, "description": "The newest step it has reported."},
  "behind": {"type": "boolean", "description": "Others have reported a later step."},
  "state": {"type": "string", "description": "Process state as the letter of proc(5): S R D T Z."},
  "wchan": {"type": "string", "description": "The kernel function in which it is sleeping."},
  "frame": {"type": "string", "description": "Its current location in one line: from the Python stack, else from the native one."},
  "files": {"type": "array", "description": "Files captured from this rank, for GET …/evidence/{name}.",
    "items": {"$ref": "#/components/schemas/CapturedFile"}},
  "missing": {"type": "array", "description": "What could not be captured.",
    "items": {"$ref": "#/components/schemas/CaptureGap"}}}},
"CapturedFile": {"type": "object", "required": ["name", "size"],
  "properties": {
  "name": {"type": "string", "examples": ["stacks.txt"], "description": "The file's name."},
  "size": {"type": "integer", "minimum": 0, "description": "Size in bytes."}}},
"CaptureGap": {"type": "object", "required": ["what", "why"],
  "properties": {
  "what": {"type": "string", "description": "What could not be captured; all: nothing of this process."},
  "why": {"type": "string", "description": "Human-readable reason."}}},
"ProfileRequest": {"type": "object", "additionalProperties": false,
  "properties": {
  "ranks": {"type": "string", "examples": ["0,3-5"], "description": "Which ranks, at most 64; the first 16 if not given."},
  "seconds": {"type": "integer", "minimum": 1, "maximum": 60, "default": 5, "description": "For how long, in seconds."}}},
"ProfileAsked": {"type": "object", "required": ["attempt", "generation", "profile", "ranks", "seconds", "patience_seconds"],
  "properties": {
  "attempt": {"type": "integer", "minimum": 1, "description": "Number of the attempt."},
  "generation": {"type": "integer", "minimum": 1, "description": "Number of the generation."},
  "profile": {"type": "integer", "minimum": 1, "description": "Number of the profile, from 1 in each generation."},
  "ranks": {"type": "array", "items": {"type": "integer", "minimum": 0}, "description": "The ranks that are asked."},
  "seconds": {"type": "integer", "minimum": 1, "description": "How long they are recorded, in seconds."},
  "patience_seconds": {"type": "integer", "minimum": 1,
    "description": "The result is in GET …/profiles by then: a first and a last step are waited for, and files are written."}}},
"Profiles": {"type": "object", "required": ["items"],
  "properties": {
  "items": {"type": "array", "description": "One entry per profile, newest first.",
    "items": {"type": "object", "required": ["attempt", "generation", "profile", "time", "by", "seconds", "message", "ranks"],
      "properties": {
      "attempt": {"type": "integer", "minimum": 1, "description": "Number of the attempt."},
      "generation": {"type": "integer", "minimum": 1, "description": "Number of the generation."},
      "profile": {"type": "integer", "minimum": 1, "description": "Number of the profile, from 1 in each generation."},
      "time": {"type": "string", "format": "date-time", "description": "When it was done."},
      "by": {"type": "string", "description": "Who asked for it."},
      "seconds": {"type": "integer", "minimum": 1, "description": "How long was recorded, in seconds."},
      "message": {"type": "string", "description": "Summary of what was recorded and what was not."},
      "ranks": {"type": "array", "maxItems": 64, "description": "Its ranks, by number.",
        "items": {"$ref": "#/components/schemas/RankProfile"}}}}},
  "next_cursor": {"type": "string", "description": "Value of before for the next page. Absent on the last page."}}},
"RankProfile": {"type": "object", "required": ["rank", "node", "files", "missing"],
  "properties": {
  "rank": {"type": "integer", "minimum": 0, "description": "Number of the rank, from 0."},
  "node": {"type": "string", "description": "Its node."},
  "files": {"type": "array", "description": "Files recorded of this rank, for GET …/profiles/{name}.",
    "items": {"$ref": "#/components/schemas/CapturedFile"}},
  "missing": {"type": "array", "description": "What could not be recorded.",
    "items": {"$ref": "#/components/schemas/CaptureGap"}}}}
)json";

}  // namespace

std::string_view openapi_evidence_schemas() {
    return kEvidenceSchemas;
}

}  // namespace lockstep
