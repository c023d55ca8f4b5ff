package docker

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/runner/dedicated"
)

const (
	runnerPort = 8377
	runnerDir  = "/.keepwell" // where the runner's volume is mounted
	runnerFile = "runner"
	nanoCPUs   = 1e9  // of one
	maxLog     = "1m" // of what the runner itself says; its commands' output never gets there
)

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// container returns the container of a create: the profile and nothing more. Whatever an image says of its user, entry point,
// health or stop signal is overruled.
func (b *Backend) container(c *creation, workspace string) client.ContainerCreateOptions {
	labels := b.labels(kindSandbox, c.spec, c.created)
	labels[labelVolume], labels[labelCall] = workspace, c.call
	port := network.PortMap{}
	if b.cfg.Publish {
		port[network.MustParsePort(strconv.Itoa(runnerPort)+"/tcp")] = []network.PortBinding{{HostIP: loopback}}
	}
	timeout := stopSeconds
	init := false
	return client.ContainerCreateOptions{
		Name: b.name(c.spec.ID),
		Config: &container.Config{
			Image: c.image.ID, Labels: labels, Env: b.env(c),
			User:       strconv.Itoa(c.profile.UID) + ":" + strconv.Itoa(c.profile.GID),
			Hostname:   c.spec.ID,
			WorkingDir: c.profile.Workspace,
			Entrypoint: b.runner.command(),
			Cmd: slices.Concat(b.cfg.RunnerArgs, []string{
				"-listen", ":" + strconv.Itoa(runnerPort), "-id", c.spec.ID, "-home", c.profile.Workspace, "-pass-env",
			}),
			Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
			StopSignal:  "SIGTERM", StopTimeout: &timeout,
			ExposedPorts: ports(port),
		},
		HostConfig: &container.HostConfig{
			NetworkMode: container.NetworkMode(c.base.network), PortBindings: port,
			CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"}, ReadonlyRootfs: true, Init: &init,
			Tmpfs:         map[string]string{"/tmp": "rw,exec,nosuid,nodev,mode=1777,size=" + strconv.FormatInt(c.profile.TmpMB, 10) + "m"},
			RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
			LogConfig:     container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": maxLog, "max-file": "1"}},
			Resources:     resources(c.profile),
			Mounts:        []mount.Mount{b.workspaceMount(c, workspace), runnerMount(c.base.runner)},
		},
	}
}

func ports(m network.PortMap) network.PortSet {
	set := network.PortSet{}
	for p := range m {
		set[p] = struct{}{}
	}
	return set
}

// checkLimits refuses what would come to no limit at all: a number that the engine's unit has no room for, or rounds to 0.
func checkLimits(p backend.Profile) error {
	switch {
	case p.MemoryMB > math.MaxInt64>>20:
		return fmt.Errorf("%w: memory limit of %d MiB, at most %d are allowed", backend.ErrInvalid, p.MemoryMB, int64(math.MaxInt64>>20))
	case p.CPUs*nanoCPUs < 1 || p.CPUs*nanoCPUs >= math.MaxInt64:
		return fmt.Errorf("%w: limit of %g CPUs, which is out of range", backend.ErrInvalid, p.CPUs)
	}
	return nil
}

func resources(p backend.Profile) container.Resources {
	memory := p.MemoryMB << 20
	return container.Resources{Memory: memory, MemorySwap: memory, NanoCPUs: int64(p.CPUs * nanoCPUs), PidsLimit: &p.PIDs}
}

// workspaceMount makes the volume, labelled, if it is not there: its label tells afterwards which create made it.
func (b *Backend) workspaceMount(c *creation, name string) mount.Mount {
	labels := b.labels(kindWorkspace, c.spec, c.created)
	labels[labelCall] = c.call
	return mount.Mount{
		Type: mount.TypeVolume, Source: name, Target: c.profile.Workspace,
		VolumeOptions: &mount.VolumeOptions{Labels: labels, NoCopy: c.resumes},
	}
}

func runnerMount(name string) mount.Mount {
	return mount.Mount{
		Type: mount.TypeVolume, Source: name, Target: runnerDir, ReadOnly: true,
		VolumeOptions: &mount.VolumeOptions{NoCopy: true},
	}
}

// env returns what the runner hands on to commands, and its token. The image's own PATH is what finds the image's programs, so it
// stays unless the spec has one.
func (b *Backend) env(c *creation) []string {
	env := []string{dedicated.TokenVariable + "=" + b.token(c.spec.Ref)}
	_, wanted := c.spec.Env["PATH"]
	for name, value := range c.profile.Env {
		if name != dedicated.TokenVariable && (name != "PATH" || wanted || !c.image.hasPath()) {
			env = append(env, name+"="+value)
		}
	}
	slices.Sort(env)
	return env
}

func (i image) hasPath() bool {
	return slices.ContainsFunc(i.env, func(e string) bool { return strings.HasPrefix(e, "PATH=") })
}
