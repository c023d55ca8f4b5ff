package docker_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// A create until its runner answers, beside what the engine itself takes for a container with the same options, measured in turns.
func BenchmarkCreateUntilReady(b *testing.B) {
	w := newWorld(b, engine(b))
	be, err := w.openWith(w.config("bench"))
	if err != nil {
		b.Fatal(err)
	}
	mustCreate(b, be, spec("first", "")) // the base is made only once
	like, err := w.container(b.Context(), spec("first", "").Ref)
	if err != nil {
		b.Fatal(err)
	}
	var ours, bare time.Duration
	for i := range b.N {
		s := spec("bench-"+strconv.Itoa(i), "")
		start := time.Now()
		mustCreate(b, be, s)
		ours += time.Since(start)
		bare += w.bare(b, like, i)
		mustDestroy(b, be, s.Ref)
	}
	mustDestroy(b, be, spec("first", "").Ref)
	b.ReportMetric(float64(ours.Milliseconds())/float64(b.N), "ms/create")
	b.ReportMetric(float64(ours)/float64(bare), "x/bare")
}

// bare makes and starts a container like another one, on a fresh volume, waits for the first answer of its runner, and removes it.
func (w *world) bare(b *testing.B, like string, i int) time.Duration {
	api := w.engine.API
	got, err := api.ContainerInspect(b.Context(), like, client.ContainerInspectOptions{})
	if err != nil {
		b.Fatal(err)
	}
	config, host, volume := got.Container.Config, got.Container.HostConfig, "bare-"+strconv.Itoa(i)
	config.Labels = nil
	host.Mounts = []mount.Mount{host.Mounts[1], {Type: mount.TypeVolume, Source: volume, Target: "/workspace"}}
	start := time.Now()
	made, err := api.ContainerCreate(b.Context(), client.ContainerCreateOptions{Config: config, HostConfig: host, Name: volume})
	if err == nil {
		_, err = api.ContainerStart(b.Context(), made.ID, client.ContainerStartOptions{})
	}
	if err == nil {
		got, err = api.ContainerInspect(b.Context(), made.ID, client.ContainerInspectOptions{})
	}
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range got.Container.NetworkSettings.Networks {
		waitFor(b, "http://"+n.IPAddress.String()+":8377/health")
	}
	took := time.Since(start)
	if _, err := api.ContainerRemove(b.Context(), made.ID, client.ContainerRemoveOptions{Force: true}); err != nil {
		b.Error(err)
	}
	if _, err := api.VolumeRemove(b.Context(), volume, client.VolumeRemoveOptions{}); err != nil {
		b.Error(err)
	}
	return took
}

func waitFor(b *testing.B, url string) {
	again := time.NewTicker(5 * time.Millisecond) // as the backend does
	defer again.Stop()
	for range 1000 {
		if resp, err := http.Get(url); err == nil {
			_ = resp.Body.Close()
			return
		}
		<-again.C
	}
	b.Fatalf("%s does not answer", url)
}

// A command through the runner, beside the engine's own exec of the same command, measured in turns.
func BenchmarkExec(b *testing.B) {
	w := newWorld(b, engine(b))
	be, err := w.openWith(w.config("bench"))
	if err != nil {
		b.Fatal(err)
	}
	sb := mustCreate(b, be, spec("exec", ""))
	defer mustDestroy(b, be, sb.Ref)
	id, err := w.container(b.Context(), sb.Ref)
	if err != nil {
		b.Fatal(err)
	}
	var ours, bare time.Duration
	for b.Loop() {
		start := time.Now()
		run(b, sb, wire.Command{Argv: []string{"true"}})
		ours += time.Since(start)
		start = time.Now()
		w.engineExec(b, id)
		bare += time.Since(start)
	}
	b.ReportMetric(float64(ours.Milliseconds())/float64(b.N), "ms/exec")
	b.ReportMetric(float64(ours)/float64(bare), "x/engine")
}

func (w *world) engineExec(b *testing.B, id string) {
	api := w.engine.API
	made, err := api.ExecCreate(b.Context(), id, client.ExecCreateOptions{Cmd: []string{"true"}, AttachStdout: true, AttachStderr: true})
	if err != nil {
		b.Fatal(err)
	}
	at, err := api.ExecAttach(b.Context(), made.ID, client.ExecAttachOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer at.Close()
	buf := make([]byte, 512)
	for err == nil { // until the command has ended
		_, err = at.Reader.Read(buf)
	}
	if got, err := api.ExecInspect(b.Context(), made.ID, client.ExecInspectOptions{}); err != nil || got.ExitCode != 0 {
		b.Fatalf("the command ended with %d, %v", got.ExitCode, err)
	}
}

// One list of many containers. They are never started, which a list does not mind.
func BenchmarkListOf200(b *testing.B) {
	w := newWorld(b, engine(b))
	be, err := w.openWith(w.config("bench"))
	if err != nil {
		b.Fatal(err)
	}
	sb := mustCreate(b, be, spec("first", ""))
	if err := w.engine.Multiply(b.Context(), "bench", "first", 199); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if snap, err := be.List(b.Context()); err != nil || len(snap.Sandboxes) != 200 {
			b.Fatalf("%d sandboxes, %v", len(snap.Sandboxes), err)
		}
	}
	mustDestroy(b, be, sb.Ref)
	w.engine.Wipe("bench")
}
