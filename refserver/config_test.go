package refserver_test

import (
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/keepwell-go/keepwell/backend/memory"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/refserver"
)

func goodConfig() refserver.Config {
	return refserver.Config{Backend: memory.New(memory.Config{}), Token: "t", Key: []byte("0123456789abcdef")}
}

func TestNewRefusesBadValuesByNameAndReason(t *testing.T) {
	for _, c := range []struct {
		bad  func(*refserver.Config)
		want string
	}{
		{func(c *refserver.Config) { c.Backend = nil }, "refserver: Backend is missing"},
		{func(c *refserver.Config) { c.Token = "" }, "refserver: Token is empty, and NoAuth is not set"},
		{func(c *refserver.Config) { c.Token = "a b" }, "refserver: Token has spaces, control or non-ASCII characters, which no header carries unchanged"},
		{func(c *refserver.Config) { c.Token = "a\n" }, "refserver: Token has spaces, control or non-ASCII characters, which no header carries unchanged"},
		{func(c *refserver.Config) { c.Key = []byte("short") }, "refserver: Key has 5 bytes, at least 16 are needed"},
		{func(c *refserver.Config) { c.MaxSandboxes = -1 }, "refserver: MaxSandboxes is -1, at least 0 is needed"},
		{func(c *refserver.Config) { c.MaxPerTenant = -2 }, "refserver: MaxPerTenant is -2, at least 0 is needed"},
		{func(c *refserver.Config) { c.TTLMax = -1 }, "refserver: TTLMax is -1, at least 0 is needed"},
		{func(c *refserver.Config) { c.IdleMax = -1 }, "refserver: IdleMax is -1, at least 0 is needed"},
		{func(c *refserver.Config) { c.SweepEvery = -1 }, "refserver: SweepEvery is -1, at least 0 is needed"},
		{func(c *refserver.Config) { c.MaxFile = -1 }, "refserver: MaxFile is -1, at least 0 is needed"},
		{func(c *refserver.Config) { c.MaxBody = -1 }, "refserver: MaxBody is -1 bytes, at least 4096 are needed"},
		{func(c *refserver.Config) { c.MaxBody = 4095 }, "refserver: MaxBody is 4095 bytes, at least 4096 are needed"},
	} {
		cfg := goodConfig()
		c.bad(&cfg)
		srv, err := refserver.New(cfg)
		if err == nil || err.Error() != c.want || srv != nil {
			t.Errorf("New gave %v and %q, want %q", srv, err, c.want)
		}
	}
}

func TestABodyLimitOverTheRunnersIsClampedWithAWarning(t *testing.T) { // R51
	core, logs := observer.New(zap.WarnLevel)
	inBubble(t, func(t *testing.T, w *world) {
		rt := refserver.Route{Method: "POST", Path: "/v1/sandboxes"}
		w.declare(rt, wire.MaxBody+1).want(t, 413, "payload_too_large")
	}, func(cfg *refserver.Config) { cfg.MaxBody, cfg.Logger = wire.MaxBody+1, zap.New(core) })
	if got := logs.FilterField(zap.String("limit", "MaxBody")).Len(); got != 1 {
		t.Errorf("%d warnings: %v", got, logs.All())
	}
}

func TestTheZeroSettingsAreTheDocumentedOnes(t *testing.T) {
	srv, err := refserver.New(goodConfig())
	if err != nil {
		t.Fatal(err)
	}
	srv.Close()
	srv.Close() // twice is once
	if n := srv.Len(); n != 0 {
		t.Errorf("%d sandboxes", n)
	}
}

func TestSecretsReachNoLog(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	var token string
	inBubble(t, func(t *testing.T, w *world) {
		token = w.create("a").str("token")
		w.runner.deafen("a", true)
		w.exec("a").want(t, 503, "runner_lost")
		w.as("Authorization", "Bearer wrong-secret", "GET", "/v1/sandboxes", "").want(t, 401, "unauthorized")
		w.do("POST", "/v1/sandboxes", `{"id":"b","env":{"K":"secret-value"},"limits":{"pids":-1}}`).want(t, 400, "bad_request")
		w.engine.Inject(memory.Fault{Call: "create", Panic: "boom"})
		w.do("POST", "/v1/sandboxes", `{"id":"b","env":{"K":"secret-value"}}`).want(t, 500, "internal")
	}, func(cfg *refserver.Config) { cfg.Logger = zap.New(core) })
	if logs.Len() == 0 {
		t.Fatal("nothing was logged")
	}
	for _, e := range logs.All() {
		text := e.Message
		for name, v := range e.ContextMap() {
			text += " " + name + "=" + fmt.Sprint(v)
		}
		for _, secret := range []string{token, adminToken, "wrong-secret", "secret-value", "runner-token", "0123456789abcdef"} {
			if strings.Contains(text, secret) {
				t.Errorf("%q in the log: %s", secret, text)
			}
		}
	}
}
