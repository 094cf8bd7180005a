// What is answered of the cluster, its nodes, tokens and the daemon itself.
#include "daemon/http/openapi.hpp"

namespace lockstep {

namespace {

constexpr std::string_view kClusterSchemas = R"json(
"Cluster": {"type": "object", "required": ["scheduler", "reachable", "partitions"],
  "properties": {
  "scheduler": {"type": "string", "enum": ["local", "slurm", "slurmrestd"], "description": "What places jobs here."},
  "name": {"type": "string", "description": "The cluster's name, or this machine's."},
  "shared_account": {"type": "boolean", "description": "true: jobs of all users run as one Unix user, account (--shared-account). Absent: they do not."},
  "account": {"type": "string", "description": "That Unix user."},
  "version": {"type": "string", "description": "The scheduler's version."},
  "reachable": {"type": "boolean", "description": "The scheduler answers."},
  "problem": {"type": "string", "description": "Why it is not reachable."},
  "seen_at": {"type": "string", "format": "date-time",
    "description": "When its nodes were asked for; absent: not yet, ask again."},
  "nodes": {"$ref": "#/components/schemas/NodeCount", "description": "How many nodes there are."},
  "cpus": {"$ref": "#/components/schemas/Use", "description": "CPUs of the usable nodes."},
  "gpus": {"$ref": "#/components/schemas/Use", "description": "GPUs of the usable nodes."},
  "partitions": {"type": "array", "description": "Its partitions; none with the local scheduler.",
    "items": {"type": "object", "required": ["name", "state", "default"],
      "properties": {
      "name": {"type": "string", "description": "The partition's name."},
      "state": {"type": "string", "examples": ["UP"], "description": "The scheduler's word."},
      "default": {"type": "boolean", "description": "Jobs go there that name none."},
      "max_time": {"type": "string",
        "description": "The longest that a job may ask for, as D-HH:MM:SS. Absent: unlimited."},
      "default_time": {"type": "string", "description": "What a job gets that asks for none, as D-HH:MM:SS."},
      "max_nodes_per_job": {"type": "integer", "minimum": 1, "description": "Number of nodes that one job may have."},
      "nodes": {"$ref": "#/components/schemas/NodeCount", "description": "How many nodes it has."},
      "cpus": {"$ref": "#/components/schemas/Use", "description": "CPUs of its usable nodes."},
      "gpus": {"$ref": "#/components/schemas/Use", "description": "GPUs of its usable nodes."}}}}}},
"NodeCount": {"type": "object",
  "properties": {
  "total": {"type": "integer", "minimum": 0, "description": "Number of nodes."},
  "usable": {"type": "integer", "minimum": 0, "description": "Number of nodes that answer and take jobs."},
  "idle": {"type": "integer", "minimum": 0, "description": "Number of usable nodes that nobody uses."}},
  "description": "How many nodes of each kind."},
"Use": {"type": "object", "description": "How many of the usable nodes have, and how many are taken.",
  "properties": {
  "usable": {"type": "integer", "minimum": 0, "description": "How many there are."},
  "used": {"type": "integer", "minimum": 0, "description": "How many are taken."}}},
"NodePage": {"type": "object", "required": ["items"],
  "properties": {
  "seen_at": {"type": "string", "format": "date-time",
    "description": "When the scheduler was asked; absent: not yet, ask again."},
  "next_cursor": {"type": "string", "description": "For the next page; absent on the last."},
  "items": {"type": "array", "description": "The nodes, by name.", "items": {"$ref": "#/components/schemas/Node"}}}},
"Node": {"type": "object",
  "required": ["name", "state", "usable", "partitions", "cpus", "cpus_used", "gpus", "gpus_used", "jobs"],
  "properties": {
  "name": {"type": "string", "description": "The node's name."},
  "state": {"type": "string", "description": "The scheduler's word."},
  "usable": {"type": "boolean", "description": "It answers and takes jobs."},
  "reason": {"type": "string", "description": "Why it is down or drained."},
  "partitions": {"type": "array", "description": "Names of the partitions it belongs to.", "items": {"type": "string"}},
  "cpus": {"type": "integer", "minimum": 0, "description": "Number of CPUs it has, as the scheduler counts them."},
  "cpus_used": {"type": "integer", "minimum": 0, "description": "Number of CPUs that jobs have."},
  "memory_mb": {"type": "integer", "minimum": 0, "description": "Its memory in MiB."},
  "gpus": {"type": "integer", "minimum": 0, "description": "Number of GPUs it has."},
  "gpus_used": {"type": "integer", "minimum": 0, "description": "Number of GPUs that jobs have."},
  "jobs": {"type": "array", "items": {"type": "string"}, "description": "Unfinished jobs here that the caller may see."},
  "history": {"$ref": "#/components/schemas/NodeHistory"}}},
"NodeHistory": {"type": "object",
  "required": ["since", "attempts", "faults", "faults_7d", "by_kind", "slow", "excluded"],
  "description": "What lockstepd remembers of the node, 90 days back, of everybody's jobs; absent: nothing. Nothing is decided by it.",
  "properties": {
  "since": {"type": "string", "format": "date-time", "description": "The first it knows of."},
  "attempts": {"type": "integer", "minimum": 0,
    "description": "How many attempts have ended with an agent on the node, since then."},
  "faults": {"type": "integer", "minimum": 0,
    "description": "Number of faults of the last 90 days, at most the newest 1,000."},
  "faults_7d": {"type": "integer", "minimum": 0, "description": "Number of faults of the last 7 days."},
  "by_kind": {"type": "object", "description": "Number of faults by kind; see NodeFault.",
    "additionalProperties": {"type": "integer"}},
  "slow": {"type": "integer", "minimum": 0,
    "description": "How often ranks there computed longer than the others (straggler, slow_node), each once a generation; no fault."},
  "excluded": {"type": "integer", "minimum": 0,
    "description": "How many attempts went without it because it had failed the one before."},
  "last_fault_at": {"type": "string", "format": "date-time", "description": "When it was last at fault."},
  "healthy_at": {"type": "string", "format": "date-time",
    "description": "When an attempt last ended whose ranks had run there and that it was not to blame for, or now, while ranks run there; absent: never."}}},
"NodeFault": {"type": "object", "required": ["time", "kind"],
  "description": "Of a job that the caller may not see only time and kind are told.",
  "properties": {
  "time": {"type": "string", "format": "date-time", "description": "When it was."},
  "kind": {"type": "string",
    "enum": ["node_lost", "preflight", "gpu_fault", "gpu_xid", "hang", "straggler", "slow_node", "excluded"],
    "description": "node_lost: silent, gone, or its ranks could not be ended. preflight, gpu_fault: what the pre-flight found. gpu_xid: the GPU's driver reported an error that is no program's. hang: the rank that held the others up was there. straggler, slow_node: no fault; a rank there, or half of the node's, computed longer than the others. excluded: no fault; the job's next attempt went without it."},
  "job": {"type": "string", "description": "Id of the job."},
  "user": {"type": "string", "description": "Whose job it was."},
  "attempt": {"type": "integer", "minimum": 1, "description": "Number of the attempt."},
  "generation": {"type": "integer", "minimum": 1, "description": "Number of the generation. Absent: none had begun."},
  "gpu": {"type": "integer", "minimum": 0, "description": "Number of the GPU on the node, from 0."},
  "message": {"type": "string", "description": "In a line, for people."}}},
"NodeDetail": {"allOf": [{"$ref": "#/components/schemas/Node"},
    {"type": "object", "required": ["faults"],
      "properties": {
      "faults": {"type": "array", "items": {"$ref": "#/components/schemas/NodeFault"},
        "description": "The newest 50, newest first."}}}]},
"Identity": {"type": "object", "required": ["user", "role", "scopes"],
  "properties": {
  "user": {"type": "string", "description": "Who asks."},
  "role": {"type": "string", "enum": ["viewer", "user", "admin"], "description": "What the user may do."},
  "identity": {"type": "string", "enum": ["self", "slurmrestd", "lockstep-exec"],
    "description": "Whose jobs a submission makes: those of lockstepd's own Unix user; the user's, by the user's Slurm token; the user's, who has to sign it."},
  "signing": {"type": "object", "description": "With identity lockstep-exec: what a signature has to be made for.", "required": ["audience", "gres"], "properties": {
    "audience": {"type": "string", "description": "The cluster's name in what is signed."},
    "gres": {"type": "boolean", "description": "Slurm is asked for GPUs by --gres."}}},
  "shared_account": {"type": "boolean", "description": "true: jobs of all users run as one Unix user, account, and each can do to the others what that can (--shared-account). Absent: they do not."},
  "account": {"type": "string", "description": "That Unix user."},
  "scopes": {"type": "array", "items": {"type": "string", "enum": ["metrics", "read", "write", "secrets", "admin"]},
    "description": "Of that, what this token or session may."},
  "token": {"type": "string", "description": "Its id."},
  "session": {"type": "string", "description": "Of the web page, when a cookie said who asks; its id."},
  "expires_at": {"type": "string", "format": "date-time", "description": "Absent: never."},
  "grafana_url": {"type": "string",
    "description": "Where the Grafana is that links may lead to (--grafana-url). Absent: none."},
  "slurm_token": {"type": "object", "description": "The Slurm token that lockstepd has of the user.",
    "properties": {
    "expires_at": {"type": "string", "format": "date-time", "description": "Absent: never."}}}}},
"SignInCode": {"type": "object", "required": ["code", "expires_at"],
  "properties": {
  "code": {"type": "string", "description": "For POST /v1/session, once."},
  "expires_at": {"type": "string", "format": "date-time",
    "description": "When it is worth nothing any more, a minute after it was made."}}},
"SignIn": {"type": "object", "additionalProperties": false, "description": "One of the two, not both.",
  "properties": {
  "code": {"type": "string", "maxLength": 256, "description": "As POST /v1/session/codes gave it out."},
  "token": {"type": "string", "maxLength": 512, "description": "A bearer token."}}},
"SlurmToken": {"type": "object", "required": ["token"], "additionalProperties": false,
  "properties": {
  "token": {"type": "string", "maxLength": 8192,
    "description": "As `scontrol token` prints it, with or without SLURM_JWT= before it. It must be the caller's own: where it names a user, the caller."}}},
"SecretValue": {"type": "object", "required": ["value"], "additionalProperties": false,
  "properties": {
  "value": {"type": "string", "minLength": 1, "maxLength": 32768,
    "description": "What the variable is set to; UTF-8 of at most 32 KiB."}}},
"Secret": {"type": "object", "required": ["name", "set_at"],
  "properties": {
  "name": {"type": "string", "description": "Of the secret, and of the variable it becomes."},
  "set_at": {"type": "string", "format": "date-time", "description": "When it was set last."}}},
"SecretPage": {"type": "object", "required": ["items"],
  "properties": {
  "items": {"type": "array", "description": "The caller's secrets, by name; never their values.",
    "items": {"$ref": "#/components/schemas/Secret"}}}},
"TokenRequest": {"type": "object", "required": ["name"], "additionalProperties": false,
  "properties": {
  "name": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
    "description": "What it is for; need not be unique."},
  "user": {"type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9._@-]{0,63}$",
    "description": "Whose it is; the caller if not given. Others': admins only."},
  "role": {"type": "string", "enum": ["viewer", "user", "admin"], "default": "user",
    "description": "user: own jobs; viewer: reads every job, changes none; admin: all. Another than one's own: admins only."},
  "scopes": {"type": "array", "minItems": 1, "maxItems": 5,
    "description": "Less than the role has; all of it if not given.",
    "items": {"type": "string", "enum": ["metrics", "read", "write", "secrets", "admin"]}},
  "expires_in": {"type": "integer", "minimum": 1, "maximum": 315360000,
    "description": "Seconds until it ends. A token that ends makes none that ends later, an admin's excepted.",
    "default": 2592000}}},
"Token": {"type": "object", "required": ["id", "name", "user", "role", "scopes", "created_at"],
  "properties": {
  "id": {"type": "string", "description": "For DELETE /v1/tokens/{id}."},
  "name": {"type": "string", "description": "What it is for."},
  "user": {"type": "string", "description": "Whose it is."},
  "role": {"type": "string", "enum": ["viewer", "user", "admin"], "description": "What its user may do."},
  "scopes": {"type": "array", "description": "Of that, what this token may.", "items": {"type": "string"}},
  "made_with": {"type": "string", "description": "The id of the token it was made with and ends with. Absent: of the first token, and of those that older versions made."},
  "created_at": {"type": "string", "format": "date-time", "description": "When it was made."},
  "expires_at": {"type": "string", "format": "date-time", "description": "Absent: never."},
  "last_used_at": {"type": "string", "format": "date-time",
    "description": "When it was last used, to the minute. Absent: never."},
  "revoked_at": {"type": "string", "format": "date-time", "description": "When it was revoked. Absent: it was not."}}},
"NewToken": {"allOf": [{"$ref": "#/components/schemas/Token"},
    {"type": "object", "required": ["token"],
      "properties": {
      "token": {"type": "string", "description": "The secret; it is not kept and not shown again."}}}]},
"TokenPage": {"type": "object", "required": ["items"],
  "properties": {
  "items": {"type": "array", "description": "The tokens, newest first; never their secrets.",
    "items": {"$ref": "#/components/schemas/Token"}},
  "next_cursor": {"type": "string", "description": "For the next page; absent on the last."}}},
"ScrapeTargets": {"type": "array",
  "description": "As Prometheus' http_sd_configs reads it: always the whole list, [] if there is none.",
  "items": {"type": "object", "required": ["targets", "labels"],
    "properties": {
    "targets": {"type": "array", "items": {"type": "string"},
      "description": "The address that this list was asked for at."},
    "labels": {"type": "object", "additionalProperties": {"type": "string"},
      "description": "__metrics_path__, __param_shard (of a job in several parts), instance (id/part), and __meta_lockstep_job, _name, _user, _framework, _allocation, _shard for relabelling."}}}},
"Health": {"type": "object", "required": ["status"],
  "properties": {
  "status": {"type": "string", "description": "ok: it answers; ready: it takes jobs."},
  "version": {"type": "string", "description": "lockstepd's version."}}}
)json";

}  // namespace

std::string_view openapi_cluster_schemas() {
    return kClusterSchemas;
}

}  // namespace lockstep
