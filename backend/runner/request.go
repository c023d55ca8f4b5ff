package runner

import (
	"cmp"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// order is a start request that was found to be in order.
type order struct {
	id        string // that the process will have, unless one was started under the same key
	key       string // what the request calls it; a start with the same key is the same start
	tag       string
	cmd       wire.Command
	argv      []string
	env       map[string]string
	cwd       string // relative to the workspace, "." for the workspace itself
	timeout   time.Duration
	stdin     *string // the whole of it
	openStdin bool    // for what is written to it later
}

// newOrder checks everything about a request that can be checked without touching the sandbox. header is the id that the header
// names, which counts where the body names none. The id of the process is for name to say.
func newOrder(req wire.StartRequest, header, home string) (order, error) {
	o := order{key: cmp.Or(req.ID, header), tag: req.Tag, cmd: req.Cmd, env: req.Env, stdin: req.Stdin, openStdin: req.StdinOpen}
	if o.key != "" {
		if err := checkID(o.key); err != nil {
			return o, err
		}
	}
	if len(o.tag) > wire.MaxTag {
		return o, badRequest("tag has %d bytes, over the limit of %d", len(o.tag), wire.MaxTag)
	}
	var err error
	if o.argv, err = argv(req); err != nil {
		return o, err
	}
	if err := checkEnv(req.Env); err != nil {
		return o, err
	}
	if o.cwd, err = workingDir(req.Cwd, home); err != nil {
		return o, err
	}
	o.timeout, err = seconds("timeout", req.Timeout)
	return o, err
}

// name says which id the process of an order will have: the one that was assigned to it, or one that nobody else has.
func (s *Server) name(o *order) {
	if s.legacy != nil {
		s.legacy.name(o)
		return
	}
	if o.key == "" {
		o.key = mintID()
	}
	o.id = o.key
}

// mintID returns an id that nobody can guess.
func mintID() string {
	raw := make([]byte, 17) // 26 characters take 130 bits
	rand.Read(raw)          //nolint:errcheck // it never fails
	text := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(raw)
	return "proc_" + strings.ToLower(text[:26])
}

// checkID refuses what is no id of a process, and says so where it is the number of one.
func checkID(id string) error {
	err := wire.CheckProcessID(id)
	switch {
	case errors.Is(err, wire.ErrPID):
		return &failure{400, wire.CodePIDNotAccepted, err.Error()}
	case err != nil:
		return badRequest("%v", err)
	}
	return nil
}

func argv(req wire.StartRequest) ([]string, error) {
	args, shell := req.Cmd.Argv, false
	if args == nil {
		args, shell = []string{"/bin/sh", "-c", req.Cmd.Line}, true
	}
	size := 0
	for _, arg := range args {
		size += len(arg)
		if strings.IndexByte(arg, 0) >= 0 {
			return nil, badRequest("cmd has a NUL byte")
		}
	}
	switch {
	case req.Shell != nil && *req.Shell != shell:
		return nil, badRequest("shell is %t, but cmd is %s", *req.Shell, map[bool]string{true: "a string", false: "an array"}[shell])
	case shell && req.Cmd.Line == "", len(args) == 0, args[0] == "":
		return nil, badRequest("cmd is missing or empty")
	case size > wire.MaxCommand:
		return nil, badRequest("cmd has %d bytes, over the limit of %d", size, wire.MaxCommand)
	}
	return args, nil
}

func checkEnv(env map[string]string) error {
	if len(env) > wire.MaxEnv {
		return badRequest("env has %d names, over the limit of %d", len(env), wire.MaxEnv)
	}
	for name, value := range env {
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			return badRequest("env has a name that is empty or has = or NUL in it: %.80q", name)
		case len(name) > wire.MaxEnvValue:
			return badRequest("env has a name of %d bytes, over the limit of %d", len(name), wire.MaxEnvValue)
		case len(value) > wire.MaxEnvValue:
			return badRequest("env %.80s has %d bytes, over the limit of %d", name, len(value), wire.MaxEnvValue)
		case strings.IndexByte(value, 0) >= 0:
			return badRequest("env %.80s has a NUL byte", name)
		}
	}
	return nil
}

// workingDir returns cwd relative to home. It may be absolute, since that is how processes see it, but not lead outside.
func workingDir(cwd, home string) (string, error) {
	if cwd == "" || cwd == home {
		return ".", nil
	}
	if inside, ok := strings.CutPrefix(cwd, strings.TrimSuffix(home, "/")+"/"); ok {
		cwd = inside
	}
	return cleanPath(cwd)
}

func seconds(what string, n float64) (time.Duration, error) {
	if n < 0 || n > float64(math.MaxInt64/int64(2*time.Second)) {
		return 0, badRequest("%s of %g s is out of range", what, n)
	}
	return time.Duration(n * float64(time.Second)), nil
}
