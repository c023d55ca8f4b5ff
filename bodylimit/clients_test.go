package bodylimit_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/keepwell-go/keepwell/bodylimit"
)

// client runs a real client that uploads size bytes to address and returns the status and the body it saw.
type client func(t *testing.T, address, how string, size int) (status, body string)

// program returns the path of a tool these tests need. They are skipped without it, unless KEEPWELL_REQUIRE lists it.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	switch required := strings.Split(os.Getenv("KEEPWELL_REQUIRE"), ","); {
	case err == nil:
	case slices.Contains(required, name):
		t.Fatalf("%s is required: %v", name, err)
	default:
		t.Skipf("there is no %s here: %v", name, err)
	}
	return path
}

func skipIfShort(t *testing.T) {
	if testing.Short() {
		t.Skip("starts dozens of processes")
	}
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program(t, name), args...)
	var out, diag bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diag
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", name, err, out.String(), diag.String())
	}
	return out.String()
}

func python(t *testing.T, address, how string, size int) (status, body string) {
	status, body, _ = strings.Cut(run(t, "python3", "testdata/upload.py", address, how, fmt.Sprint(size)), "\n")
	return status, strings.TrimSpace(body)
}

func node(t *testing.T, address, how string, size int) (status, body string) {
	status, body, _ = strings.Cut(run(t, "node", "testdata/upload.mjs", address, how, fmt.Sprint(size)), "\n")
	return status, strings.TrimSpace(body)
}

func curl(t *testing.T, address, how string, size int) (status, body string) {
	file := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(file, bytes.Repeat([]byte("x"), size), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--silent", "--show-error", "--max-time", "60", "--data-binary", "@" + file, "--write-out", "\n%{http_code}"}
	switch how {
	case "declared":
		args = append(args, "--http1.1", "--header", "Expect:")
	case "chunked":
		args = append(args, "--http1.1", "--header", "Expect:", "--header", "Transfer-Encoding: chunked")
	case "expect":
		args = append(args, "--http1.1", "--header", "Expect: 100-continue", "--expect100-timeout", "60")
	case "http2":
		args = append(args, "--http2-prior-knowledge")
	case "http2_chunked":
		args = append(args, "--http2-prior-knowledge", "--header", "Content-Length:")
	}
	out := run(t, "curl", append(args, "http://"+address)...)
	i := strings.LastIndexByte(out, '\n')
	return out[i+1:], out[:i]
}

// TestRealClientsSeeTheRefusal uploads with clients that others wrote, each in its own way of being unprepared for an early answer. R53, R95
func TestRealClientsSeeTheRefusal(t *testing.T) {
	skipIfShort(t)
	direct := serve(t, readAll(limiter())).Listener.Addr().String()
	behind := serve(t, proxyTo(t, serve(t, wrapped(decode(limiter()))))).Listener.Addr().String()
	for _, c := range []struct {
		name   string
		client client
		hows   []string
	}{
		{"curl", curl, []string{"declared", "chunked", "expect", "http2", "http2_chunked"}},
		{"node", node, []string{"declared", "chunked", "expect", "silent", "http2", "http2_chunked"}},
		{"python3", python, []string{"declared", "chunked", "expect", "silent"}},
	} {
		for _, how := range c.hows {
			for _, size := range []int{limit + 1, 4 << 20} {
				t.Run(fmt.Sprintf("%s_%s_%d", c.name, how, size), func(t *testing.T) {
					t.Parallel()
					sees413(t, c.client, direct, how, size)
				})
			}
			if how == "silent" || how == "expect" || c.name == "curl" && strings.HasPrefix(how, "http2") {
				continue // what the proxy's own server does with its client is the proxy's affair, and curl 7 takes RST_STREAM for an error
			}
			t.Run(fmt.Sprintf("%s_%s_by_proxy", c.name, how), func(t *testing.T) {
				t.Parallel()
				sees413(t, c.client, behind, how, 200<<10)
			})
		}
	}
}

func sees413(t *testing.T, c client, address, how string, size int) {
	t.Helper()
	status, body := c(t, address, how, size)
	declared := size
	if strings.HasSuffix(how, "chunked") {
		declared = -1
	}
	want := fmt.Sprintf(`{"error":"%s","code":"payload_too_large"}`, tooLargeText(declared))
	if status != "413" || body != want {
		t.Errorf("saw %s %s, want 413 %s", status, body, want)
	}
}

func TestRealClientsMayUploadExactlyTheLimit(t *testing.T) { // R53
	skipIfShort(t)
	address := serve(t, readAll(&bodylimit.Limiter{Max: limit})).Listener.Addr().String()
	for name, c := range map[string]client{"curl": curl, "node": node, "python3": python} {
		for _, how := range []string{"declared", "chunked"} {
			t.Run(name+"_"+how, func(t *testing.T) {
				t.Parallel()
				if status, body := c(t, address, how, limit); status != "200" || body != fmt.Sprint(limit) {
					t.Errorf("saw %s %q", status, body)
				}
			})
		}
	}
}
