package dedicated_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/keepwell-go/keepwell/backend/runner/dedicated"
)

// asProgram makes this test binary the program.
const asProgram = "KEEPWELL_TEST_AS_DEDICATED"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	os.Exit(dedicated.Run(ctx, os.Args[1:], "v7", os.Stdout, os.Stderr))
}

// program is the runner as its users run it.
type program struct {
	t    *testing.T
	cmd  *exec.Cmd
	http *http.Client
	addr string
}

func start(t *testing.T, env []string, args ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.Command("/proc/self/exe", args...)}
	p.cmd.Env = append(append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0"), env...) // else the race detector sleeps at each end
	p.cmd.Stderr = os.Stderr
	stdout, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() })
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if !ok {
		t.Fatalf("the first line is %q", line)
	}
	p.addr = addr
	network := "tcp"
	if strings.HasPrefix(addr, "/") {
		network = "unix"
	}
	p.http = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}}
	t.Cleanup(p.http.CloseIdleConnections)
	return p
}

func (p *program) sh(line, token string) (int, string) {
	p.t.Helper()
	req, _ := http.NewRequest("POST", "http://runner/v1/sandboxes/box/exec", strings.NewReader(fmt.Sprintf(`{"cmd":%q}`, line)))
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := p.http.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// home makes a workspace which other users can get to.
func home(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kwd")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if os.Geteuid() == 0 {
		uid := 1_400_000_000 + os.Getpid() // nobody else's, since everything of it is killed
		if err := os.Chown(dir, uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestAnOlderProtocolIsSpokenWhereItIsAskedFor(t *testing.T) {
	for protocol, want := range map[string]string{"1": `"protocol":1`, "2": `"protocol":2`} {
		p := start(t, []string{dedicated.TokenVariable + "=s3cret"}, "-listen", "127.0.0.1:0", "-id", "box", "-home", home(t), "-protocol", protocol)
		resp, err := p.http.Get("http://runner/health")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !strings.Contains(string(body), want) {
			t.Errorf("-protocol %s: health %s, %v", protocol, body, err)
		}
	}
}

func TestASandboxIsServedOverTCPToWhoHasTheToken(t *testing.T) { // R106
	p := start(t, []string{dedicated.TokenVariable + "=s3cret"}, "-listen", "127.0.0.1:0", "-id", "box", "-home", home(t))
	for _, token := range []string{"", "wrong"} {
		if status, body := p.sh("true", token); status != http.StatusUnauthorized {
			t.Errorf("token %q: %d %s", token, status, body)
		}
	}
	if status, body := p.sh("mktemp && echo $((6*7))", "s3cret"); status != 200 || !strings.Contains(body, `42\n`) || !strings.Contains(body, `"exit_code":0`) {
		t.Errorf("%d %s", status, body)
	}
}

func TestFilesAndPortsAreForTheContainerToConfine(t *testing.T) {
	dir := home(t)
	outside, err := os.MkdirTemp("", "kwo")
	if err == nil {
		err = os.Chmod(outside, 0o777)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(outside) })
	p := start(t, []string{dedicated.TokenVariable + "=s3cret"}, "-listen", "127.0.0.1:0", "-id", "box", "-home", dir)
	if status, body := p.sh("echo hi >"+outside+"/f && cat "+outside+"/f", "s3cret"); status != 200 || !strings.Contains(body, `hi\n`) {
		t.Errorf("%d %s", status, body)
	}
	resp, err := p.http.Get("http://runner/health")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	for _, want := range []string{"files are not confined beyond their permissions", "TCP ports can be bound"} {
		if err != nil || !bytes.Contains(body, []byte(want)) {
			t.Errorf("%q is not said: %s, %v", want, body, err)
		}
	}
}

func TestTheTokenIsNowhereToBeSeen(t *testing.T) { // R103
	p := start(t, []string{dedicated.TokenVariable + "=s3cret", "KEEPWELL_CANARY=1"}, "-listen", "127.0.0.1:0", "-id", "box", "-home", home(t))
	for _, name := range []string{"environ", "cmdline"} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, name))
		if err != nil || bytes.Contains(b, []byte("s3cret")) || len(b) == 0 {
			t.Errorf("%s is %q, %v", name, b, err)
		}
	}
	if _, body := p.sh("env; cat /proc/$PPID/environ; true", "s3cret"); strings.Contains(body, "s3cret") || strings.Contains(body, "CANARY") {
		t.Errorf("a command sees %s", body)
	}
}

func TestTheEnvironmentOfAContainerIsPassedOnWithoutTheToken(t *testing.T) { // R103
	env := []string{dedicated.TokenVariable + "=s3cret", "KEEPWELL_CANARY=1", "TMPDIR="}
	p := start(t, env, "-listen", "127.0.0.1:0", "-id", "box", "-home", home(t), "-pass-env")
	if _, body := p.sh("env; cat /proc/$PPID/environ; true", "s3cret"); strings.Contains(body, "s3cret") || !strings.Contains(body, "KEEPWELL_CANARY=1") {
		t.Errorf("a command sees %s", body)
	}
	if _, body := p.sh("echo $TMPDIR", "s3cret"); !strings.Contains(body, "/tmp") {
		t.Errorf("TMPDIR is %s", body)
	}
}

func TestAUnixSocketIsForItsOwner(t *testing.T) {
	dir := home(t)
	socket := filepath.Join(filepath.Dir(dir), filepath.Base(dir)+".sock")
	t.Cleanup(func() { _ = os.Remove(socket) })
	for range 2 { // the second one finds the socket that the first one left behind
		p := start(t, nil, "-listen", socket, "-id", "box", "-home", dir)
		info, err := os.Stat(socket)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("the socket is %v, %v", info, err)
		}
		if status, body := p.sh("echo hi", ""); status != 200 || !strings.Contains(body, `hi\n`) {
			t.Errorf("%d %s", status, body)
		}
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

func TestSIGTERMEndsTheStreamsThenTheProgram(t *testing.T) { // R99
	p := start(t, nil, "-listen", "/tmp/kwd-"+fmt.Sprint(os.Getpid())+".sock", "-id", "box", "-home", home(t))
	t.Cleanup(func() { _ = os.Remove(p.addr) })
	resp, err := p.http.Post("http://runner/v1/sandboxes/box/exec", "", strings.NewReader(`{"cmd":"echo $$; sleep 1000"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for range 2 {
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, `"event":"exit"`) || !strings.Contains(line, "SIGKILL") {
		t.Errorf("the last event is %q, %v", line, err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("the program ended with %v", err)
	}
}

func TestACommandLineThatMakesNoSenseStartsNothing(t *testing.T) { // R58
	dir := home(t)
	for name, args := range map[string][]string{
		"-listen is missing":    {"-id", "box"},
		"-id is missing":        {"-listen", "127.0.0.1:0"},
		`unknown argument "go"`: {"-listen", "127.0.0.1:0", "-id", "box", "go"},
		"not defined: -fast":    {"-listen", "127.0.0.1:0", "-id", "box", "-fast"},
		"is not absolute":       {"-listen", "127.0.0.1:0", "-id", "box", "-home", "x"},
	} {
		var out, errs bytes.Buffer
		if code := dedicated.Run(t.Context(), args, "v7", &out, &errs); code != 2 || !strings.Contains(errs.String(), name) || out.Len() > 0 {
			t.Errorf("%v: exit code %d, stdout %q, stderr %q", args, code, &out, &errs)
		}
	}
	empty := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"a token is needed": {"-listen", "127.0.0.1:0", "-id", "box", "-home", dir},
		"is empty":          {"-listen", "127.0.0.1:0", "-id", "box", "-home", dir, "-token-file", empty},
		"no such file":      {"-listen", "127.0.0.1:0", "-id", "box", "-home", dir, "-token-file", empty + "x"},
	} {
		var out, errs bytes.Buffer
		if code := dedicated.Run(t.Context(), args, "v7", &out, &errs); code != 1 || !strings.Contains(errs.String(), name) || out.Len() > 0 {
			t.Errorf("%v: exit code %d, stdout %q, stderr %q", args, code, &out, &errs)
		}
	}
}
