// Package postgrestest gives tests a PostgreSQL server of their own.
package postgrestest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Variable names a database for tests by its URL. Without it they start a server of their own.
const Variable = "TEST_POSTGRES"

// startTime is how long a server may take until it answers.
const startTime = time.Minute

// supervisor runs a server until its standard input ends, which it does when the tests end, however they do.
const supervisor = `"$@" & server=$!; { read -r _; kill -INT $server; } <&3 2>/dev/null & wait $server`

// Server is a PostgreSQL server of a test's own, reached over a socket in its directory.
type Server struct {
	Password string // that each URL carries

	dir, bin string
	user     *syscall.Credential // that the server runs as; nil: the one that runs the tests
	keep     io.Closer           // the server runs until this is closed
	cmd      *exec.Cmd
}

// URL returns the URL of a database that exists.
func (s *Server) URL() string {
	query := url.Values{"host": {s.dir}}.Encode()
	return (&url.URL{Scheme: "postgres", User: url.UserPassword("keeper", s.Password), Path: "/postgres", RawQuery: query}).String()
}

// New starts a server with the programs of PATH or of Debian's packages, in a directory of its own. The caller must Remove
// it. Its error is exec.ErrNotFound where there are no such programs.
func New(ctx context.Context) (*Server, error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "kwpg") // the path of a socket has to be short
	if err != nil {
		return nil, err
	}
	s := &Server{Password: "pw-" + rand.Text() + "-%/?", dir: dir, bin: bin}
	if s.user, err = ordinaryUser(); err == nil {
		err = s.init(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := s.Start(ctx); err != nil {
		return nil, errors.Join(err, s.Remove())
	}
	return s, nil
}

// programs returns the directory of the newest server that is installed.
func programs() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if path, err := exec.LookPath("postgres"); err == nil {
		path, err = filepath.EvalSymlinks(path) // to where the other programs are
		return filepath.Dir(path), err
	}
	if len(found) == 0 {
		return "", errors.Join(fmt.Errorf("postgres: %w", exec.ErrNotFound), err)
	}
	version := func(path string) int { n, _ := strconv.Atoi(strings.Split(path, "/")[4]); return n }
	slices.SortFunc(found, func(a, b string) int { return version(b) - version(a) })
	return filepath.Dir(found[0]), nil
}

// ordinaryUser returns whom to run the server as, since it refuses to run as root: the user that its package has made, or one that
// is on each machine. It has to be one with a name.
func ordinaryUser() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		if u, err = user.Lookup("daemon"); err != nil {
			return nil, err
		}
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, err
}

// init makes the data directory.
func (s *Server) init(ctx context.Context) error {
	secret := filepath.Join(s.dir, "password")
	if err := os.WriteFile(secret, []byte(s.Password), 0o600); err != nil {
		return err
	}
	if s.user != nil {
		uid, gid := int(s.user.Uid), int(s.user.Gid)
		if err := errors.Join(os.Chown(s.dir, uid, gid), os.Chown(secret, uid, gid)); err != nil {
			return err
		}
	}
	cmd := s.command(ctx, "initdb", "-D", s.data(), "-U", "keeper", "--pwfile", secret, "--auth=scram-sha-256", "--no-sync",
		"-E", "UTF8", "--locale=C")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// command returns a command of the server's programs, run as an ordinary user.
func (s *Server) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	if !filepath.IsAbs(name) {
		cmd = exec.CommandContext(ctx, filepath.Join(s.bin, name), args...)
	}
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.user}
	return cmd
}

// Start starts the server and returns when it answers.
func (s *Server) Start(ctx context.Context) error {
	end, keep, err := os.Pipe()
	if err != nil {
		return err
	}
	defer end.Close()
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return errors.Join(err, keep.Close())
	}
	defer log.Close()
	s.keep = keep
	s.cmd = s.command(context.WithoutCancel(ctx), "/bin/sh", "-c", supervisor, "sh", filepath.Join(s.bin, "postgres"), "-D", s.data(),
		"-k", s.dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=16MB")
	s.cmd.ExtraFiles, s.cmd.Stdout, s.cmd.Stderr = []*os.File{end}, log, log
	if err := s.cmd.Start(); err != nil {
		return errors.Join(err, keep.Close())
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		err := s.command(ctx, "pg_isready", "-q", "-h", s.dir, "-t", "1").Run()
		if err == nil {
			return nil
		}
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() > 2 || ctx.Err() != nil { // 1 and 2: not yet
			said, _ := os.ReadFile(log.Name())
			return fmt.Errorf("postgres does not answer: %w\n%s", errors.Join(err, s.Stop()), said)
		}
	}
}

// Stop ends the server and all connections to it. Start goes on with the same data.
func (s *Server) Stop() error {
	if s.cmd == nil {
		return nil
	}
	err := errors.Join(s.keep.Close(), s.cmd.Wait())
	s.cmd = nil
	return err
}

// Remove ends the server and removes its data.
func (s *Server) Remove() error { return errors.Join(s.Stop(), os.RemoveAll(s.dir)) }

// SkipIfMissing skips a test that New has failed for want of programs, or fails it where KEEPWELL_REQUIRE lists postgres.
func SkipIfMissing(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, exec.ErrNotFound) && !slices.Contains(strings.Split(os.Getenv("KEEPWELL_REQUIRE"), ","), "postgres") {
		t.Skipf("%v; install postgresql, or name a database by %s", err, Variable)
	}
	t.Fatal(err)
}
