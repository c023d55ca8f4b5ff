// Package wire holds what the runner and those who talk to it must agree on: paths, limits, codes and message shapes.
//
// It prevents a constant from being copied to both ends of a connection, where one copy is changed and the other forgotten. Client,
// server and runner take theirs from here.
package wire

// Protocol is the version of the runner's HTTP interface, and OldestProtocol the oldest one that a server still speaks. Version 1
// minted its own process ids.
const (
	Protocol       = 2
	OldestProtocol = 1
)

// Limits that both sides hold.
const (
	MaxBody      = 8 << 20   // bytes of a JSON request body
	MinBody      = 4 << 10   // bytes below which a limit of that would make the interface unusable
	MaxFile      = 1 << 30   // bytes of one written file, by default
	RingSize     = 1 << 20   // bytes of output kept for each stream of a process
	FollowLag    = 8 << 20   // unread bytes after which a slow follower is sent a gap
	MaxFinished  = 256       // finished processes that are remembered for each sandbox
	MaxRunning   = 512       // processes of a sandbox that run, or whose output is still held open, at a time
	MaxEvent     = 512 << 10 // bytes of one line of a stream, its end included
	MaxEnv       = 128       // names in a request's env
	MaxEnvValue  = 32 << 10  // bytes of one value of env
	PingSeconds  = 15        // silence after which a stream carries a ping event
	GraceSeconds = 5         // between SIGTERM and SIGKILL, where a kill does not say
	PipeSeconds  = 2         // after its exit during which a process's output may be held open by others before it is cut short

	MaxFinishedOutput = 32 << 20  // bytes of output that the finished processes of a sandbox keep between them; the oldest give way
	MaxCommand        = 256 << 10 // bytes of a command, its arguments taken together
	MaxTag            = 1 << 10   // bytes of a tag
)

// Headers.
const (
	TokenHeader     = "X-Sandbox-Token"     // the sandbox's own token
	ProcessIDHeader = "Keepwell-Process-Id" // the id to give the process that this request starts, where its body names none
	NextCursor      = "X-Next-Cursor"
	StreamType      = "application/x-ndjson"
)

// Codes of an Error.
const (
	CodeBadRequest       = "bad_request"
	CodeUnauthorized     = "unauthorized"
	CodeNotFound         = "not_found"
	CodeStopped          = "stopped"
	CodeMethod           = "method_not_allowed"
	CodePayloadTooLarge  = "payload_too_large"
	CodeEncoding         = "unsupported_encoding"
	CodePIDNotAccepted   = "pid_not_accepted"
	CodeStdinClosed      = "stdin_closed"
	CodeCannotStart      = "cannot_start"
	CodeUnknown          = "unknown"
	CodeUnsafePath       = "unsafe_path"
	CodeExists           = "exists"
	CodeCreating         = "creating"
	CodeDuplicate        = "duplicate"
	CodeBusy             = "busy"
	CodeQuotaExceeded    = "quota_exceeded"
	CodeCreateFailed     = "create_failed"
	CodeDestroyFailed    = "destroy_failed"
	CodeStopFailed       = "stop_failed"
	CodeDraining         = "draining"
	CodeUnavailable      = "backend_unavailable"
	CodePreparing        = "preparing"
	CodeStoreUnavailable = "store_unavailable"
	CodeSandboxGone      = "sandbox_gone"
	CodeRunnerLost       = "runner_lost"
	CodeInternal         = "internal"
	CodeNoSpace          = "no_space"
	CodePermissionDenied = "permission_denied"
)

// Error is the body of every answer that is not a success.
type Error struct {
	Error string `json:"error"`
	Code  string `json:"code"`
}

// Health is the answer to GET /health of a runner.
type Health struct {
	Protocol    int      `json:"protocol"`
	Version     string   `json:"version"`
	Confinement []string `json:"confinement"` // one sentence for each thing the machine could and could not do
}

// Activity is the answer to GET /v1/sandboxes/{id}/activity of a runner: the facts a sweep judges by.
type Activity struct {
	Protocol int   `json:"protocol,omitempty"` // of the runner; one that sends none says it in its Health
	Running  int   `json:"running"`            // processes that have not ended
	Pins     int   `json:"pins"`               // requests under way that pin the sandbox
	IdleMS   int64 `json:"idle_ms"`            // milliseconds without any activity, on the runner's clock; 0 while busy
}
