package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"go.uber.org/zap"
)

// runnerPrefix starts the names of the runners' volumes, which all owners share.
const runnerPrefix = "keepwell-runner-"

// program is the runner as it is written to its volume, with the libraries that it needs.
type program struct {
	files  []file
	loader string // the file that runs the program; "": a static one needs none
	hash   string // of all files, which names the build
}

// file is one of a directory.
type file struct {
	name string
	data []byte
}

func readProgram(path string) (program, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return program{}, fmt.Errorf("docker: runner: %w", err)
	}
	loader, libs, err := libraries(path)
	if err != nil {
		return program{}, err
	}
	p := program{files: append(libs, file{runnerFile, data}), loader: loader}
	slices.SortFunc(p.files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	h := sha256.New()
	for _, f := range p.files {
		_, _ = fmt.Fprintf(h, "%s\x00%d\x00", f.name, len(f.data))
		_, _ = h.Write(f.data)
	}
	p.hash = hex.EncodeToString(h.Sum(nil)[:6])
	return p, nil
}

// command returns what starts the program in a container.
func (p program) command() []string {
	const at = runnerDir + "/"
	if p.loader == "" {
		return []string{at + runnerFile}
	}
	return []string{at + p.loader, "--library-path", runnerDir, at + runnerFile}
}

// runnerVolume returns the volume that has the runner, and fills one if there is none. The volume that carries the build's name has
// no content: its label names the one that has, which was full before. To make a volume that exists gives the one that exists, so
// all replicas end with the same, and nobody mounts one that is half full.
func (b *Backend) runnerVolume(ctx context.Context, image string) (string, error) {
	name := runnerPrefix + b.runner.hash
	filled, err := b.filledRunner(ctx, name)
	if err != nil {
		return "", err
	}
	if filled != "" {
		b.tidyRunners(ctx, filled)
		return filled, nil
	}
	mine := name + "." + rand.Text()[:8]
	if err := b.fillRunner(ctx, image, mine); err != nil {
		ctx, cancel := b.cfg.Clock.WithTimeout(context.WithoutCancel(ctx), undoTime)
		defer cancel()
		return "", errors.Join(err, b.removeVolume(ctx, mine))
	}
	made, err := b.api.VolumeCreate(ctx, client.VolumeCreateOptions{
		Name: name, Labels: map[string]string{labelKind: kindRunner, labelFilled: mine},
	})
	if err != nil {
		return "", err
	}
	if filled = made.Volume.Labels[labelFilled]; filled != mine {
		_ = b.removeVolume(ctx, mine) // another replica's is as good
	}
	return filled, nil
}

// filledRunner returns the volume that the one of the build's name says has the runner; "" if there is none. Where somebody has
// removed the former and left the latter, that one goes too.
func (b *Backend) filledRunner(ctx context.Context, name string) (string, error) {
	got, err := b.api.VolumeInspect(ctx, name, client.VolumeInspectOptions{})
	if errdefs.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	filled := got.Volume.Labels[labelFilled]
	if got.Volume.Labels[labelKind] != kindRunner || filled == "" {
		return "", fmt.Errorf("the volume %s is not ours", name)
	}
	if there, err := b.isFilled(ctx, filled); there || err != nil {
		return filled, err
	}
	return "", b.removeVolume(ctx, name)
}

// isFilled says whether the volume with a runner is there. Where somebody has removed it the engine makes an empty one, without a
// label, for the next container that names it.
func (b *Backend) isFilled(ctx context.Context, name string) (bool, error) {
	got, err := b.api.VolumeInspect(ctx, name, client.VolumeInspectOptions{})
	if errdefs.IsNotFound(err) {
		return false, nil
	}
	return err == nil && got.Volume.Labels[labelKind] == kindRunner, err
}

// tidyRunners removes what replicas that were killed while they filled a volume have left of it. What cannot be removed is in use,
// or is tried again by the next start.
func (b *Backend) tidyRunners(ctx context.Context, filled string) {
	got, err := b.api.VolumeList(ctx, client.VolumeListOptions{Filters: client.Filters{}.Add("label", labelKind+"="+kindRunner)})
	if err != nil {
		b.cfg.Logger.Warn("volumes of runners not listed", zap.Error(err))
		return
	}
	for _, v := range got.Items {
		made, err := time.Parse(time.RFC3339, v.CreatedAt)
		old := err == nil && b.cfg.Clock.Since(made) > abandoned
		if !old || v.Name == filled || !strings.HasPrefix(v.Name, runnerPrefix+b.runner.hash+".") {
			continue
		}
		if err := errors.Join(b.removeContainer(ctx, helperOf(v.Name)), b.removeVolume(ctx, v.Name)); err != nil {
			b.cfg.Logger.Warn("half a runner is left", zap.String("volume", v.Name), zap.Error(err))
		}
	}
}

func (b *Backend) fillRunner(ctx context.Context, image, name string) error {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range b.runner.files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o555, Size: int64(len(f.data))}); err != nil {
			return err
		}
		if _, err := w.Write(f.data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	labels := map[string]string{labelKind: kindRunner}
	return b.throughHelper(ctx, image, helper{labels: labels, volume: name, at: runnerDir, into: runnerDir}, &buf)
}
