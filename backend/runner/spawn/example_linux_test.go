package spawn_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"syscall"

	"github.com/keepwell-go/keepwell/backend/runner/spawn"
)

// A shell leaves a descendant behind that has left its session. To kill the process is to kill that one as well.
func Example() {
	home, err := os.MkdirTemp("", "home")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(home) }()
	spawner, err := spawn.New(spawn.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer spawner.Close()
	box, err := spawner.Confine(spawn.Limits{Name: "box", Home: home})
	if err != nil {
		log.Fatal(err)
	}
	defer box.Close()

	r, w, err := os.Pipe()
	if err != nil {
		log.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	p, err := box.Start(spawn.Command{
		ID: "hello", Argv: []string{"sh", "-c", "setsid sleep 1000 & echo hello; wait"}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: home,
		Stdin: null, Stdout: w, Stderr: w,
	})
	_ = w.Close()
	if err != nil {
		log.Fatal(err)
	}
	greeting := make([]byte, len("hello\n"))
	_, err = io.ReadFull(r, greeting)
	fmt.Printf("%s%v\n", greeting, err)

	killed, err := p.Kill(context.Background(), 0)
	fmt.Println(killed, err, p.Status().Signal() == syscall.SIGKILL)
	_, err = r.Read(greeting) // the end comes when nobody holds the pipe any more
	fmt.Println(err)
	// Output:
	// hello
	// <nil>
	// true <nil> true
	// EOF
}
