package docker

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/keepwell-go/keepwell/backend"
)

// The labels of whatever is made here.
const (
	labelOwner    = "keepwell.owner"
	labelKind     = "keepwell.kind"
	labelID       = "keepwell.id"
	labelInstance = "keepwell.instance"
	labelTenant   = "keepwell.tenant"
	labelProfile  = "keepwell.profile"
	labelCreated  = "keepwell.created"
	labelSpec     = "keepwell.spec"   // the rest of the spec
	labelVolume   = "keepwell.volume" // the workspace that a container or mark belongs to
	labelCall     = "keepwell.call"   // the create that made a container: not even the same spec twice is the same
	labelPinned   = "keepwell.pinned"
	labelRenewed  = "keepwell.renewed"
	labelFilled   = "keepwell.filled" // of a runner: the volume that has it
	labelUID      = "keepwell.workspace-uid"
)

// The kinds of things that are made here.
const (
	kindSandbox   = "sandbox"   // container
	kindHelper    = "helper"    // container that is never started, through which a volume is written to
	kindWorkspace = "workspace" // volume
	kindMark      = "mark"      // volume without content: its labels say what has changed since the container's were written
	kindRunner    = "runner"    // volume
	kindNetwork   = "network"
)

// name returns that of a sandbox's container. An owner has no '-', so no two owners share one.
func (b *Backend) name(id string) string { return "kw-" + b.cfg.Owner + "-" + id }

// limits is what labelSpec has, in JSON.
type limits struct {
	Image    string        `json:"image,omitempty"`
	MemoryMB int64         `json:"memory_mb,omitempty"`
	CPUs     float64       `json:"cpus,omitempty"`
	PIDs     int64         `json:"pids,omitempty"`
	TTL      time.Duration `json:"ttl_ns,omitempty"`
	Idle     time.Duration `json:"idle_ns,omitempty"`
	Pinned   bool          `json:"pinned,omitempty"`
}

// labels returns what a list needs to know of s.
func (b *Backend) labels(kind string, s backend.Spec, created time.Time) map[string]string {
	rest, err := json.Marshal(limits{s.Image, s.MemoryMB, s.CPUs, s.PIDs, s.TTL, s.Idle, s.Pinned})
	if err != nil {
		panic("docker: a checked spec cannot be encoded: " + err.Error())
	}
	return map[string]string{
		labelOwner: b.cfg.Owner, labelKind: kind, labelID: s.ID, labelInstance: s.Instance, labelTenant: s.Tenant,
		labelProfile: s.Profile, labelCreated: created.Format(time.RFC3339Nano), labelSpec: string(rest),
	}
}

// sandboxOf reads labels back. What is not readable was written by somebody else.
func sandboxOf(l map[string]string) (backend.Sandbox, error) {
	sb := backend.Sandbox{Spec: backend.Spec{
		Ref: backend.Ref{ID: l[labelID], Instance: l[labelInstance]}, Tenant: l[labelTenant], Profile: l[labelProfile],
	}}
	if err := sb.Check(); err != nil {
		return sb, err
	}
	var err error
	if sb.Created, err = time.Parse(time.RFC3339Nano, l[labelCreated]); err != nil {
		return sb, fmt.Errorf("label %s: %w", labelCreated, err)
	}
	var rest limits
	if err := json.Unmarshal([]byte(l[labelSpec]), &rest); err != nil {
		return sb, fmt.Errorf("label %s: %w", labelSpec, err)
	}
	sb.Image, sb.MemoryMB, sb.CPUs, sb.PIDs = rest.Image, rest.MemoryMB, rest.CPUs, rest.PIDs
	sb.TTL, sb.Idle, sb.Pinned = rest.TTL, rest.Idle, rest.Pinned
	sb.Renewed = sb.Created
	return sb, nil
}

// mark is what the labels of a mark say beside the spec.
type mark struct {
	pinned  bool
	renewed time.Time
}

func markOf(l map[string]string) (m mark, err error) {
	if m.pinned, err = strconv.ParseBool(l[labelPinned]); err != nil {
		return m, fmt.Errorf("label %s: %w", labelPinned, err)
	}
	if m.renewed, err = time.Parse(time.RFC3339Nano, l[labelRenewed]); err != nil {
		return m, fmt.Errorf("label %s: %w", labelRenewed, err)
	}
	return m, nil
}

// token returns what the runner of an instance expects. Every replica derives the same from the key.
func (b *Backend) token(r backend.Ref) string {
	h := hmac.New(sha256.New, b.cfg.Key)
	_, _ = fmt.Fprintf(h, "keepwell docker runner\x00%s\x00%s\x00%s", b.cfg.Owner, r.ID, r.Instance)
	return hex.EncodeToString(h.Sum(nil))
}
