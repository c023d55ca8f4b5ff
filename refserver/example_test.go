package refserver_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/memory"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/refserver"
	"github.com/keepwell-go/keepwell/refserver/client"
)

// A server of two sandboxes at most, over a backend in memory whose runner only says that nothing is going on.
func Example() {
	quiet := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { reply(w, 200, wire.Activity{Protocol: wire.Protocol}) }))
	defer quiet.Close()
	be := memory.New(memory.Config{Endpoint: func(context.Context, backend.Sandbox) (backend.Endpoint, error) {
		return backend.Endpoint{Network: "tcp", Address: quiet.Listener.Addr().String()}, nil
	}})
	srv, err := refserver.New(refserver.Config{
		Backend: be, Token: "secret", Key: []byte("sixteen bytes or"), MaxSandboxes: 2,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer srv.Close()
	hs := httptest.NewServer(srv.Handler())
	defer hs.Close()

	ctx, c := context.Background(), &client.Client{Base: hs.URL, Token: "secret"}
	for _, id := range []string{"one", "one", "two", "three"} {
		sb, err := c.Create(ctx, client.CreateRequest{ID: id})
		fmt.Printf("%s: %s%s\n", id, sb.State, client.Code(err))
	}
	outcome, err := c.Delete(ctx, "one", true)
	fmt.Println(outcome, err)
	_, err = c.Create(ctx, client.CreateRequest{ID: "three"})
	fmt.Println(srv.Len(), err)
	// Output:
	// one: running
	// one: duplicate
	// two: running
	// three: quota_exceeded
	// stopped <nil>
	// 2 <nil>
}

func ExampleNew() {
	_, err := refserver.New(refserver.Config{Backend: memory.New(memory.Config{}), Token: "secret", Key: []byte("too short")})
	fmt.Println(err)
	// Output: refserver: Key has 9 bytes, at least 16 are needed
}
