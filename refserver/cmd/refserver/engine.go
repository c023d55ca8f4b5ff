package main

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"

	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/docker"
	"github.com/keepwell-go/keepwell/backend/local"
)

// The values of --backend.
const (
	backendLocal  = "local"
	backendDocker = "docker"
)

// dockerFlags are the flags of the Docker backend. The engine is that of DOCKER_HOST.
type dockerFlags struct {
	Owner        string `backend:"docker" placeholder:"NAME" help:"Docker: the installation that sandboxes belong to, a-z and 0-9. Default: derived from the key in the state directory."`
	Image        string `backend:"docker" placeholder:"IMAGE" help:"Docker: for sandboxes that name none. Default: one that is made here, with a shell where there is a static busybox."`
	RunnerBinary string `backend:"docker" placeholder:"FILE" help:"Docker: the program that serves the inside of sandboxes. Default: keepwell-runner beside this program, else this program."`
}

// engine is what runs the sandboxes of a server.
type engine interface {
	backend.Backend
	backend.Marker
	Confinement() []string // one sentence for each thing that is enforced or is not
	Close()
}

// containers is the Docker backend as an engine.
type containers struct{ *docker.Backend }

func (containers) Confinement() []string {
	return []string{
		"each sandbox is a container: no root, no capability, no new privileges, a read-only root",
		"memory, CPU and processes are limited for each sandbox",
	}
}

// engine opens the backend that the flags name.
func (c *serveCmd) engine(dir string, log *zap.Logger) (engine, error) {
	if c.Backend == backendDocker {
		be, err := c.open(dir, log)
		if err != nil {
			return nil, err
		}
		return containers{be}, nil
	}
	return local.Open(local.Config{StateDir: dir, RequireConfinement: c.RequireConfinement, Logger: log})
}

// open returns the Docker backend of a state directory, whose key it makes if there is none.
func (f dockerFlags) open(dir string, log *zap.Logger) (*docker.Backend, error) {
	key, err := secret(dir, keyFile)
	if err != nil {
		return nil, err
	}
	cfg := docker.Config{Owner: f.owner(key), Key: []byte(key), Image: f.Image, Shell: staticShell(), Logger: log}
	if cfg.Image == "" && cfg.Shell == "" {
		log.Warn("no static busybox is here for the image: sandboxes without an image of their own have no shell; install busybox-static or give --image")
	}
	cfg.Runner, cfg.RunnerArgs = f.runner()
	return docker.Open(cfg)
}

// owner returns whose sandboxes are ours: what --owner says, or what is derived from the key.
func (f dockerFlags) owner(key string) string {
	if f.Owner != "" {
		return f.Owner
	}
	sum := sha256.Sum256([]byte("keepwell owner\x00" + key))
	return hex.EncodeToString(sum[:6])
}

// runner returns the program that becomes the first of each container, and the arguments that make it a runner.
func (f dockerFlags) runner() (path string, args []string) {
	if f.RunnerBinary != "" {
		return f.RunnerBinary, nil
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "keepwell-runner")
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	return "/proc/self/exe", []string{"runner", "--"} // there even when the file is not any more, as after go run
}

// staticShell returns the path of a busybox that needs no libraries, or "".
func staticShell() string {
	path, err := exec.LookPath("busybox")
	if err != nil || docker.CheckStatic(path) != nil {
		return ""
	}
	return path
}
