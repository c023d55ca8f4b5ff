package wire

// Names of events. A stream ends with exactly one EventExit or EventError.
const (
	EventStart  = "start"
	EventStdout = "stdout"
	EventStderr = "stderr"
	EventGap    = "gap"
	EventPing   = "ping"
	EventExit   = "exit"
	EventError  = "error"
)

// Event has room for every kind of event and is for decoding: the name in Event tells which of the other fields are set. To
// encode, use the type of the kind below, whose line has no fields of other kinds.
type Event struct {
	Event      string  `json:"event"`
	ID         string  `json:"id"`
	PID        int     `json:"pid"`
	Data       string  `json:"data"`
	DataB64    []byte  `json:"data_b64"` // the exact bytes, where they are not UTF-8
	Offset     int64   `json:"offset"`   // of the first byte, in raw bytes of the stream
	Stream     string  `json:"stream"`
	From       int64   `json:"from"`
	To         int64   `json:"to"`
	ExitCode   *int    `json:"exit_code"`
	Signal     *string `json:"signal"`
	TimedOut   bool    `json:"timed_out"`
	DurationMS int64   `json:"duration_ms"`
	Truncated  bool    `json:"truncated"`
	Error      string  `json:"error"`
	Code       string  `json:"code"`
}

// Start is the first event of an exec.
type Start struct {
	Event string `json:"event"`
	ID    string `json:"id"`
	PID   int    `json:"pid"`
}

// Output carries bytes of stdout or stderr, in the order they were written. A character of several bytes is never cut: all of its
// bytes are in the Data of one event.
type Output struct {
	Event   string `json:"event"`
	Data    string `json:"data"`
	DataB64 []byte `json:"data_b64,omitempty"`
	Offset  int64  `json:"offset"`
}

// Gap says that the bytes From to To of a stream were dropped before they were read.
type Gap struct {
	Event  string `json:"event"`
	Stream string `json:"stream"`
	From   int64  `json:"from"`
	To     int64  `json:"to"`
}

// Ping keeps a silent stream open.
type Ping struct {
	Event string `json:"event"`
}

// Exit is the last event of a process that ran.
type Exit struct {
	Event      string  `json:"event"`
	ExitCode   *int    `json:"exit_code"`
	Signal     *string `json:"signal"`
	TimedOut   bool    `json:"timed_out"`
	DurationMS int64   `json:"duration_ms"`
	Truncated  bool    `json:"truncated,omitempty"` // a descendant kept a pipe open past the grace
}

// Failure is the last event of a stream whose process could not be followed to its end.
type Failure struct {
	Event string `json:"event"` // EventError
	Error string `json:"error"`
	Code  string `json:"code"`
}
