package runner_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/keepwell-go/keepwell/backend/runner"
	"github.com/keepwell-go/keepwell/backend/runner/spawn"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// A sandbox is served from a directory, and a command in it is followed to its exit.
func Example() {
	spawner, err := spawn.New(spawn.Config{})
	if err != nil {
		panic(err)
	}
	defer spawner.Close()
	server := runner.New(runner.Config{Spawner: spawner})
	defer server.Close()

	home, err := os.MkdirTemp("", "home")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(home)
	if err := server.Add(runner.Sandbox{ID: "box", Home: home}); err != nil {
		panic(err)
	}
	front := httptest.NewServer(server.Handler())
	defer front.Close()

	resp, err := http.Post(front.URL+"/v1/sandboxes/box/exec", "application/json", strings.NewReader(`{"cmd": "echo hello; exit 3"}`))
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		var event wire.Event
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			panic(err)
		}
		switch event.Event {
		case wire.EventStdout:
			fmt.Printf("stdout at %d: %s", event.Offset, event.Data)
		case wire.EventExit:
			fmt.Println("exit code", *event.ExitCode)
		}
	}
	// Output:
	// stdout at 0: hello
	// exit code 3
}
