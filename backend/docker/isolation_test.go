package docker_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keepwell-go/keepwell/backend"
)

// dialer is a program that says whether it reaches an address.
const dialer = `package main

import (
	"fmt"
	"net"
	"os"
	"time"
)

func main() {
	if _, err := net.DialTimeout("tcp", os.Args[1], 2*time.Second); err != nil {
		fmt.Println("not reached:", err)
		return
	}
	fmt.Println("reached")
}
`

func buildDialer(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(dialer), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", filepath.Join(dir, "dial"), filepath.Join(dir, "main.go"))
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	data, err := os.ReadFile(filepath.Join(dir, "dial"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// R32, R104: a sandbox reaches its own runner, and neither that of another sandbox of its owner nor one of another owner.
func TestSandboxesDoNotReachEachOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, engine(t))
	var all []backend.Sandbox
	for _, c := range []struct{ owner, id string }{{"island", "a"}, {"island", "b"}, {"mainland", "c"}} {
		cfg := w.config(c.owner)
		cfg.Network = ""
		b, err := w.openWith(cfg)
		if err != nil {
			t.Fatal(err)
		}
		sb := mustCreate(t, b, spec(c.id, ""))
		defer mustDestroy(t, b, sb.Ref)
		all = append(all, sb)
	}
	if err := writeFile(t.Context(), nil, all[0], "dial", buildDialer(t)); err != nil {
		t.Fatal(err)
	}
	if out := sh(t, all[0], "chmod +x dial; cut -c45- /proc/net/if_inet6"); strings.Contains(out, "eth") {
		t.Errorf("it has an address that no rule of the network is about: %s", out)
	}
	for at, want := range map[string]string{
		"127.0.0.1:8377":        `"reached\n`,
		all[0].Endpoint.Address: `"reached\n`,
		all[1].Endpoint.Address: `"not reached: `,
		all[2].Endpoint.Address: `"not reached: `,
	} {
		if out := sh(t, all[0], "./dial "+at); !strings.Contains(out, want) {
			t.Errorf("%s, from %s: %s; want %s", at, all[0].Endpoint.Address, out, want)
		}
	}
}
