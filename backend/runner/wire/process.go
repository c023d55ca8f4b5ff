package wire

import (
	"encoding/json"
	"errors"
)

// Command is what to run: a Line for /bin/sh -c, or, if Argv is not nil, a program and its arguments without a shell. In JSON it is a
// string or an array of strings. The zero Command is an empty Line.
type Command struct {
	Line string
	Argv []string
}

// ErrCommand is returned when a command is neither a string nor an array of strings.
var ErrCommand = errors.New("wire: cmd must be a string or an array of strings")

// UnmarshalJSON takes a string or an array of strings; for anything else the error is ErrCommand.
func (c *Command) UnmarshalJSON(b []byte) error {
	*c = Command{}
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &c.Line)
	}
	if json.Unmarshal(b, &c.Argv) != nil || c.Argv == nil {
		return ErrCommand
	}
	return nil
}

// MarshalJSON writes the form that was read.
func (c Command) MarshalJSON() ([]byte, error) {
	if c.Argv != nil {
		return json.Marshal(c.Argv)
	}
	return json.Marshal(c.Line)
}

// StartRequest is the body of POST …/exec and POST …/processes; ID and Tag belong to the latter, whose processes have their stdin
// open unless Stdin is given.
type StartRequest struct {
	ID               string            `json:"id,omitempty"`
	Tag              string            `json:"tag,omitempty"`
	Cmd              Command           `json:"cmd"`
	Shell            *bool             `json:"shell,omitempty"` // must agree with the form of Cmd
	Env              map[string]string `json:"env,omitempty"`
	Cwd              string            `json:"cwd,omitempty"`     // relative to the workspace
	Timeout          float64           `json:"timeout,omitempty"` // seconds; 0: none
	Stdin            *string           `json:"stdin,omitempty"`
	StdinOpen        bool              `json:"stdin_open,omitempty"` // stdin stays open, after Stdin if that is given, for POST …/stdin
	KillOnDisconnect bool              `json:"kill_on_disconnect,omitempty"`
}

// Started is the answer to POST …/processes.
type Started struct {
	ID         string  `json:"id"`
	PID        int     `json:"pid"`
	Cmd        Command `json:"cmd"`
	Tag        string  `json:"tag"`
	Reattached bool    `json:"reattached,omitempty"` // an earlier request had started this id; this one started nothing
}

// Process is one entry of GET …/processes.
type Process struct {
	ID          string  `json:"id"`
	PID         int     `json:"pid"`
	Cmd         Command `json:"cmd"`
	Tag         string  `json:"tag"`
	StartedAtMS int64   `json:"started_at_ms"`
	Running     bool    `json:"running"`
	ExitCode    *int    `json:"exit_code"`
	Signal      *string `json:"signal"`
}

// SignalRequest is the body of POST …/processes/{id}:signal.
type SignalRequest struct {
	Signal string `json:"signal"`
}

// Signaled answers it.
type Signaled struct {
	ID       string `json:"id"`
	Signaled bool   `json:"signaled"`
}

// Killed answers a kill. Killed is true if the process died of this request and its exit status has been collected, and false if
// there was nothing left to kill.
type Killed struct {
	ID     string `json:"id"`
	Killed bool   `json:"killed"`
}

// StdinRequest is the body of POST …/processes/{id}/stdin; Data or DataB64, not both.
type StdinRequest struct {
	Data    string `json:"data,omitempty"`
	DataB64 []byte `json:"data_b64,omitempty"`
	EOF     bool   `json:"eof,omitempty"`
}
